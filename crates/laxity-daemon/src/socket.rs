//! The control socket of a daemon: for root and the daemon's own user, whatever the umask is.

use std::fs::{self, DirBuilder, Metadata};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen as listen_on, socket,
};
use nix::sys::stat::{Mode, fchmod};

/// The file of a socket, which is removed when this is dropped unless another file has taken its
/// place.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let now = fs::symlink_metadata(&self.path);
        if now.is_ok_and(|now| identity(&now) == self.identity) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// Listens on a control socket. A stale socket of this user that no daemon answers is replaced; any
/// other file is left alone and is an error.
///
/// # Errors
///
/// In words for people: if another daemon answers there, if something else is there, or if the system refuses.
pub fn listen(path: &Path) -> Result<(UnixListener, SocketFile), String> {
    let failed = |error: io::Error| format!("cannot listen on {}: {error}", path.display());
    if UnixStream::connect(path).is_ok() {
        return Err(format!(
            "another daemon answers on {}; stop it, or give this one another --socket",
            path.display()
        ));
    }
    /// Other users may list the directory; only the owner may replace the socket.
    const DIRECTORY_MODE: u32 = 0o755;
    if let Some(directory) = path.parent() {
        let mut builder = DirBuilder::new();
        let made = builder.recursive(true).mode(DIRECTORY_MODE);
        made.create(directory).map_err(failed)?;
    }
    match fs::symlink_metadata(path) {
        Ok(there) if is_own_socket(&there) => fs::remove_file(path).map_err(failed)?,
        Ok(_) => {
            return Err(format!(
                "cannot listen on {}: it exists and is not a socket of this user; remove it, or give another --socket",
                path.display()
            ));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    let listener = private(path).map_err(|error| failed(error.into()))?;
    let there = fs::symlink_metadata(path).map_err(failed)?;
    let file = SocketFile {
        path: path.into(),
        identity: identity(&there),
    };
    Ok((listener, file))
}

fn is_own_socket(there: &Metadata) -> bool {
    there.file_type().is_socket() && there.uid() == nix::unistd::geteuid().as_raw()
}

/// A listening socket whose file belongs to the owner alone from its first moment: the file of a
/// bound socket gets the socket's mode less the umask.
fn private(path: &Path) -> nix::Result<UnixListener> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let made = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    fchmod(&made, Mode::S_IRUSR | Mode::S_IWUSR)?;
    bind(made.as_raw_fd(), &UnixAddr::new(path)?)?;
    listen_on(&made, Backlog::MAXCONN)?;
    Ok(UnixListener::from(made))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Directory {
            let name = format!("laxity-daemon-{}-{name}", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::create_dir_all(&path).unwrap();
            Directory(path)
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn one_daemon_listens_and_a_dead_one_is_not_in_the_way() {
        let directory = Directory::new("one");
        let path = directory.0.join("deeper/status.sock");
        let (first, file) = listen(&path).unwrap();
        let refused = listen(&path).unwrap_err();
        assert!(refused.contains("answers on"), "{refused}");
        // A killed daemon leaves the file behind, and nobody answers there.
        drop(first);
        std::mem::forget(file);
        let (_second, file) = listen(&path).unwrap();
        drop(file);
        assert!(!path.exists());
    }

    #[test]
    fn nothing_but_a_socket_of_ours_is_removed() {
        let directory = Directory::new("other");
        let text = directory.0.join("notes.txt");
        fs::write(&text, "dear").unwrap();
        let link = directory.0.join("link");
        symlink(&text, &link).unwrap();
        for path in [&text, &link, &directory.0] {
            let refused = listen(path).unwrap_err();
            assert!(refused.contains("is not a socket"), "{refused}");
        }
        assert_eq!(fs::read_to_string(&text).unwrap(), "dear");
        if nix::unistd::geteuid().is_root() {
            let path = directory.0.join("another's.sock");
            drop(UnixListener::bind(&path).unwrap());
            const NOBODY: u32 = 65_534;
            std::os::unix::fs::chown(&path, Some(NOBODY), None).unwrap();
            assert!(listen(&path).unwrap_err().contains("is not a socket"));
        }
        // A file that has replaced the daemon's socket stays at the end.
        let path = directory.0.join("ours.sock");
        let (_listener, file) = listen(&path).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "dear").unwrap();
        drop(file);
        assert_eq!(fs::read_to_string(&path).unwrap(), "dear");
    }

    #[test]
    fn the_socket_is_its_owners_alone_whatever_the_umask_is() {
        let directory = Directory::new("mode");
        let path = directory.0.join("deep/status.sock");
        // The umask belongs to the whole process; no other test here creates files whose mode
        // matters.
        let before = nix::sys::stat::umask(Mode::empty());
        let listened = listen(&path);
        nix::sys::stat::umask(before);
        let _listened = listened.unwrap();
        let mode = |path: &Path| fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o600);
        assert_eq!(mode(path.parent().unwrap()), 0o755);
    }
}
