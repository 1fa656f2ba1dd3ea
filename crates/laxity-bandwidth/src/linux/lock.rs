//! One daemon for each link: whoever holds the link's lock.
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

/// That of the service, too.
const DIRECTORY: &str = "/run/laxity-bandwidth";

/// Why a link cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another daemon has it.
    #[error("{0} holds it; stop that first")]
    Held(String),
    /// Others could take the lock or stand in its way.
    #[error(
        "{DIRECTORY} is not safe for a lock: it belongs to user {0}, or others may write to it; remove it"
    )]
    Unsafe(u32),
    /// The system will not.
    #[error("cannot lock it in {DIRECTORY}: {0}")]
    System(#[from] io::Error),
}

/// A link of this network namespace, which no other daemon has for as long as this lives.
#[derive(Debug)]
pub struct LinkLock {
    path: PathBuf,
    _file: Flock<File>,
}

impl LinkLock {
    /// Takes the lock of the interface with this number; `holder` tells others who has it.
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
        /// The longest text that a holder writes of itself.
        const HOLDER_BYTES_MAX: u64 = 4_096;
        let mut builder = DirBuilder::new();
        builder
            .recursive(true)
            .mode(DIRECTORY_MODE)
            .create(directory)?;
        let there = fs::metadata(directory)?;
        let is_ours = [0, nix::unistd::geteuid().as_raw()].contains(&there.uid());
        // Root may look into the directory of the service, whose user is its own.
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
            // The one before may have removed the file between the two steps.
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
        // It is still locked, so that nobody else can have it yet.
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
            "process 7 with a.toml holds it; stop that first"
        );
        let _other_link = take("1-3.lock", "process 8").unwrap();
        drop(first);
        drop(take("1-2.lock", "process 8").unwrap());
        // Where others may write they could have made the file, and hold it.
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o1777)).unwrap();
        let refused = take("1-2.lock", "process 8").unwrap_err();
        assert!(matches!(refused, LockError::Unsafe(_)), "{refused}");
        fs::remove_dir_all(&directory).unwrap();
    }
}
