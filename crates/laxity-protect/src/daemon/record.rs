//! The state of a host that must survive a restart, on disk.
//!
//! The room for the next record is taken at the start, so that a full disk keeps no host from taking over:
//! a record is written into a second file of the same size, which then changes places with the first.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use laxity_config::input;
use nix::fcntl::{AT_FDCWD, Flock, FlockArg, RenameFlags, renameat2};

use crate::protocol::Record;

/// Size limit of a record's file in bytes; a term is one number.
const RECORD_BYTES_MAX: usize = 1_000;

/// The record of one virtual machine on this host, locked against other processes.
#[derive(Debug)]
pub struct Stored {
    path: PathBuf,
    _lock: Flock<File>,
}

impl Stored {
    /// Opens and reads the record in a directory, and takes the room for the next one; a new record
    /// is empty.
    ///
    /// # Errors
    ///
    /// If another process has it, it cannot be read, or there is no room.
    pub fn open(directory: &Path, vm: &str) -> io::Result<(Stored, Record)> {
        let told =
            |path: &Path, what: &str| io::Error::other(format!("{}: {what}", path.display()));
        fs::create_dir_all(directory)?;
        let path = directory.join(format!("{vm}.lock"));
        let mut options = OpenOptions::new();
        let lock = options
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)?;
        let lock = Flock::lock(lock, FlockArg::LockExclusiveNonblock)
            .map_err(|_| told(&path, "another daemon protects this virtual machine here"))?;
        let path = directory.join(format!("{vm}.record"));
        let record = match input::read_to_string(&path, RECORD_BYTES_MAX) {
            Ok(text) => {
                let term = text
                    .strip_prefix("term ")
                    .and_then(|text| text.trim_end().parse().ok());
                let term = term.ok_or_else(|| {
                    told(
                        &path,
                        "this is not a record; if the other host has a newer one, remove this file",
                    )
                })?;
                Record { term }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Record::default(),
            Err(error) => return Err(error),
        };
        let stored = Stored { path, _lock: lock };
        // The record is written twice, so that both files have its size, whoever wrote them.
        for _ in 0..2 {
            stored.write(record)?;
        }
        Ok((stored, record))
    }

    /// Replaces the record; when this returns, the new one survives any failure.
    ///
    /// # Errors
    ///
    /// If it may not be there.
    pub fn write(&self, record: Record) -> io::Result<()> {
        let new = self.path.with_extension("new");
        let mut options = OpenOptions::new();
        let file = options
            .create(true)
            .truncate(false)
            .write(true)
            .open(&new)?;
        // All records have the same length, and every byte of the last one is replaced.
        let text = format!("term {:020}\n", record.term);
        file.write_all_at(text.as_bytes(), 0)?;
        file.set_len(text.len() as u64)?;
        file.sync_all()?;
        let exchange = RenameFlags::RENAME_EXCHANGE;
        if renameat2(AT_FDCWD, &new, AT_FDCWD, &self.path, exchange).is_err() {
            // There is no record yet, or the file system cannot exchange two files.
            fs::rename(&new, &self.path)?;
        }
        let directory = self.path.parent().unwrap_or(Path::new("."));
        File::open(directory)?.sync_all()
    }
}

/// A random number that identifies this process.
///
/// # Errors
///
/// If the system has none.
pub fn incarnation() -> io::Result<u64> {
    let mut bytes = [0; 8];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_kept_and_nobody_elses() {
        let directory = std::env::temp_dir().join(format!("laxity-record-{}", std::process::id()));
        let (stored, record) = Stored::open(&directory, "vm").unwrap();
        assert_eq!(record, Record::default());
        assert!(Stored::open(&directory, "vm").is_err());
        stored.write(Record { term: 7 }).unwrap();
        drop(stored);
        let (stored, record) = Stored::open(&directory, "vm").unwrap();
        assert_eq!(record, Record { term: 7 });
        drop(stored);
        // What an earlier release wrote is read as well.
        fs::write(directory.join("vm.record"), "term 8\n").unwrap();
        assert_eq!(
            Stored::open(&directory, "vm").unwrap().1,
            Record { term: 8 }
        );
        fs::write(directory.join("vm.record"), "tern 8").unwrap();
        assert!(Stored::open(&directory, "vm").is_err());
        fs::remove_dir_all(directory).unwrap();
    }
}
