//! The bytes of a dump, taken from its beginning to its end.

use crate::error::XenError;

/// The bytes of the dump from `offset` on.
pub struct Input<'a> {
    pub rest: &'a [u8],
    pub offset: usize,
}

impl<'a> Input<'a> {
    pub fn take(&mut self, bytes: usize, what: &'static str) -> Result<&'a [u8], XenError> {
        let offset = self.offset;
        let (taken, rest) = self
            .rest
            .split_at_checked(bytes)
            .ok_or(XenError::Truncated { offset, what })?;
        self.rest = rest;
        self.offset += bytes;
        Ok(taken)
    }

    pub fn words<const N: usize>(&mut self, what: &'static str) -> Result<[u32; N], XenError> {
        let bytes = self.take(4 * N, what)?;
        let mut words = [0; N];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
            *word = u32::from_le_bytes(*bytes);
        }
        Ok(words)
    }
}

pub fn long(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}
