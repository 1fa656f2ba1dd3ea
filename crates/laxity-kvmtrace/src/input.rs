//! The bytes of a file, taken from its beginning to its end.

use crate::error::KvmError;

/// The bytes of a file from `offset` on.
#[derive(Clone)]
pub struct Input<'a> {
    pub rest: &'a [u8],
    pub offset: usize,
}

impl<'a> Input<'a> {
    pub fn new(file: &'a [u8]) -> Input<'a> {
        Input {
            rest: file,
            offset: 0,
        }
    }

    /// The bytes of a file from a place on that the file names.
    pub fn at(file: &'a [u8], offset: u64, what: &'static str) -> Result<Input<'a>, KvmError> {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        let rest = file
            .get(offset..)
            .ok_or(KvmError::Truncated { offset, what })?;
        Ok(Input { rest, offset })
    }

    pub fn take(&mut self, bytes: usize, what: &'static str) -> Result<&'a [u8], KvmError> {
        let offset = self.offset;
        let (taken, rest) = self
            .rest
            .split_at_checked(bytes)
            .ok_or(KvmError::Truncated { offset, what })?;
        self.rest = rest;
        self.offset += bytes;
        Ok(taken)
    }

    /// The next bytes as an input of their own.
    pub fn inside(&mut self, bytes: usize, what: &'static str) -> Result<Input<'a>, KvmError> {
        let offset = self.offset;
        let rest = self.take(bytes, what)?;
        Ok(Input { rest, offset })
    }

    pub fn short(&mut self, what: &'static str) -> Result<u16, KvmError> {
        let bytes = self.take(2, what)?;
        Ok(bytes
            .first_chunk()
            .map_or(0, |bytes| u16::from_le_bytes(*bytes)))
    }

    pub fn word(&mut self, what: &'static str) -> Result<u32, KvmError> {
        let bytes = self.take(4, what)?;
        Ok(bytes
            .first_chunk()
            .map_or(0, |bytes| u32::from_le_bytes(*bytes)))
    }

    pub fn long(&mut self, what: &'static str) -> Result<u64, KvmError> {
        let bytes = self.take(8, what)?;
        Ok(bytes
            .first_chunk()
            .map_or(0, |bytes| u64::from_le_bytes(*bytes)))
    }

    /// Bytes behind their number in 8 bytes.
    pub fn block(&mut self, what: &'static str) -> Result<&'a [u8], KvmError> {
        let bytes = usize::try_from(self.long(what)?).unwrap_or(usize::MAX);
        self.take(bytes, what)
    }

    /// A text that a 0 ends, shorter than `most`.
    pub fn string(&mut self, most: usize, what: &'static str) -> Result<&'a str, KvmError> {
        let offset = self.offset;
        let bytes = self.rest.iter().take(most).position(|&byte| byte == 0);
        let text = self.take(bytes.ok_or(KvmError::Truncated { offset, what })?, what)?;
        self.take(1, what)?;
        std::str::from_utf8(text).map_err(|_| KvmError::Damaged {
            offset,
            reason: format!("{what} is not text"),
        })
    }
}
