//! The writer of a trace's records.

use crate::{Metadata, Record};
use std::io::{self, Write};

/// The first bytes of every trace file.
pub(crate) const MAGIC: [u8; 8] = *b"LAXTRACE";
/// The version of the file's layout; a reader takes no other.
pub(crate) const VERSION: u32 = 1;
/// Bytes of metadata: readers hold it in memory, and a hostile file must not be able to ask for all of that.
pub(crate) const METADATA_BYTES_MAX: usize = 256 << 20;

/// Records that are held before they are written: 384 KiB.
const BUFFER_RECORDS: usize = 16_384;

/// Takes the records of a run as they happen.
pub trait Sink {
    /// False when records are thrown away, so that the caller need not make them.
    const ENABLED: bool;

    /// Takes one record. Times never go backwards.
    fn record(&mut self, record: Record);
}

/// No trace.
#[derive(Debug, Clone, Copy, Default)]
pub struct Off;

impl Sink for Off {
    const ENABLED: bool = false;

    #[inline]
    fn record(&mut self, _record: Record) {}
}

impl Sink for Vec<Record> {
    const ENABLED: bool = true;

    #[inline]
    fn record(&mut self, record: Record) {
        self.push(record);
    }
}

/// Writes a trace file. It has its own buffer: give it a bare file. Without
/// [`finish`](Writer::finish) the last records are not written.
#[derive(Debug)]
#[must_use = "the last records are written by `finish`"]
pub struct Writer<W: Write> {
    out: W,
    buffer: Vec<[u8; Record::BYTES]>,
    /// The first failure. Nothing is written after it, and `finish` returns it.
    failure: Option<io::Error>,
}

impl<W: Write> Writer<W> {
    /// Begins a trace: writes the header and `metadata`.
    ///
    /// # Errors
    ///
    /// Those of `out`, and `InvalidInput` for metadata that no reader takes: 256 MiB or more.
    pub fn new(mut out: W, metadata: &Metadata) -> io::Result<Self> {
        let metadata = serde_json::to_vec(metadata)?;
        if metadata.len() >= METADATA_BYTES_MAX {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the trace's metadata is 256 MiB or more",
            ));
        }
        let metadata_bytes = metadata.len() as u32;
        out.write_all(&MAGIC)?;
        out.write_all(&VERSION.to_le_bytes())?;
        out.write_all(&metadata_bytes.to_le_bytes())?;
        out.write_all(&metadata)?;
        Ok(Writer {
            out,
            buffer: Vec::with_capacity(BUFFER_RECORDS),
            failure: None,
        })
    }

    /// Writes what is left.
    ///
    /// # Errors
    ///
    /// The first failure of `out` since the trace began; the file is then not whole.
    pub fn finish(mut self) -> io::Result<()> {
        self.write_buffer();
        match self.failure {
            Some(failure) => Err(failure),
            None => self.out.flush(),
        }
    }

    #[cold]
    #[inline(never)]
    fn write_buffer(&mut self) {
        if self.failure.is_none() {
            self.failure = self.out.write_all(self.buffer.as_flattened()).err();
        }
        self.buffer.clear();
    }
}

impl<W: Write> Sink for Writer<W> {
    const ENABLED: bool = true;

    #[inline]
    fn record(&mut self, record: Record) {
        if self.buffer.len() == BUFFER_RECORDS {
            self.write_buffer();
        }
        self.buffer.push(record.to_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    /// Takes so many bytes, then fails for ever.
    struct Full(usize);

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.0 < bytes.len() {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.0 -= bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_is_told_at_the_end() {
        let record = sample::records()[0];
        let room = sample::file(&sample::metadata(), &[]).len() + 10;
        for records in [1, BUFFER_RECORDS, 3 * BUFFER_RECORDS + 1] {
            let mut writer = Writer::new(Full(room), &sample::metadata()).expect("there is room");
            for _ in 0..records {
                writer.record(record);
            }
            let error = writer
                .finish()
                .expect_err("there is no room for the records");
            assert_eq!(
                error.kind(),
                io::ErrorKind::StorageFull,
                "{records} records"
            );
        }
        assert!(
            Writer::new(Full(room - 11), &sample::metadata()).is_err(),
            "there is no room for the header"
        );
    }
}
