//! Keeps a second daemon from the same link by a lock.
//!
//! The lock is the kernel's, on a file below `/run` where only root and the daemon's own user can make one: it ends
//! with the process that holds it, however that ends, and no other user can take it or stand in its way. A name in a
//! network namespace, such as an abstract socket's, could be taken by anybody.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

/// Directory of the locks, which is the runtime directory of the service, too.
const DIRECTORY: &str = "/run/laxity-bandwidth";

/// Reasons why the lock of a link cannot be taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another daemon holds the lock.
    #[error("{0} holds its lock; stop that daemon first")]
    Held(String),
    /// Other users could take the lock or block it.
    #[error(
        "{DIRECTORY} is not safe for a lock: it belongs to user {0}, or others may write to it; remove it"
    )]
    Unsafe(u32),
    /// The system refuses the lock.
    #[error("cannot lock it in {DIRECTORY}: {0}")]
    System(#[from] io::Error),
}

/// The lock of a link in this network namespace, held until this is dropped.
#[derive(Debug)]
pub struct LinkLock {
    path: PathBuf,
    _file: Flock<File>,
}

impl LinkLock {
    /// Takes the lock of the interface with this number; `holder` is the text that tells other
    /// daemons who holds it.
    ///
    /// # Errors
    ///
    /// If another process has it, in words that say which.
    pub fn take(interface: u32, holder: &str) -> Result<LinkLock, LockError> {
        let namespace = fs::metadata("/proc/self/ns/net")?;
        let name = format!("{}-{interface}.lock", namespace.ino());
        LinkLock::take_in(Path::new(DIRECTORY), &name, holder)
    }

    fn take_in(directory: &Path, name: &str, holder: &str) -> Result<LinkLock, LockError> {
        const DIRECTORY_MODE: u32 = 0o755;
        const FILE_MODE: u32 = 0o600;
        const WRITABLE_BY_OTHERS: u32 = 0o022;
        /// Longest text that a holder writes about itself, in bytes.
        const HOLDER_BYTES_MAX: u64 = 4_096;
        let mut builder = DirBuilder::new();
        builder
            .recursive(true)
            .mode(DIRECTORY_MODE)
            .create(directory)?;
        let there = fs::metadata(directory)?;
        let is_ours = [0, nix::unistd::geteuid().as_raw()].contains(&there.uid());
        // Root is exempt, because the service's directory belongs to the service's user.
        let is_root = nix::unistd::geteuid().is_root();
        if !(is_ours || is_root) || there.mode() & WRITABLE_BY_OTHERS != 0 {
            return Err(LockError::Unsafe(there.uid()));
        }
        let path = directory.join(name);
        loop {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).mode(FILE_MODE);
            let file = options.custom_flags(libc::O_NOFOLLOW).open(&path)?;
            let mut file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(file) => file,
                Err((file, Errno::EWOULDBLOCK)) => {
                    let mut held_by = String::new();
                    let _ = file.take(HOLDER_BYTES_MAX).read_to_string(&mut held_by);
                    return Err(LockError::Held(held_by));
                }
                Err((_, error)) => return Err(io::Error::from(error).into()),
            };
            // The previous holder may have removed the file between opening and locking it.
            let is_the_one = fs::symlink_metadata(&path)
                .and_then(|named| Ok(named.ino() == file.metadata()?.ino()))
                .unwrap_or(false);
            if is_the_one {
                file.set_len(0)?;
                file.write_all(holder.as_bytes())?;
                return Ok(LinkLock { path, _file: file });
            }
        }
    }
}

impl Drop for LinkLock {
    fn drop(&mut self) {
        // The file is removed while it is locked, so that no other daemon can hold it yet.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn one_holds_a_link_and_the_next_is_told_who() {
        let name = format!("laxity-bandwidth-{}-lock", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let take = |link: &str, holder: &str| LinkLock::take_in(&directory, link, holder);
        let first = take("1-2.lock", "process 7 with a.toml").unwrap();
        let refused = take("1-2.lock", "process 8").unwrap_err();
        assert_eq!(
            refused.to_string(),
            "process 7 with a.toml holds its lock; stop that daemon first"
        );
        let _other_link = take("1-3.lock", "process 8").unwrap();
        drop(first);
        drop(take("1-2.lock", "process 8").unwrap());
        // Other users could have created and locked the file in a directory that they may write to.
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o1777)).unwrap();
        let refused = take("1-2.lock", "process 8").unwrap_err();
        assert!(matches!(refused, LockError::Unsafe(_)), "{refused}");
        fs::remove_dir_all(&directory).unwrap();
    }
}
