//! A daemon answers only root and its own user, even where the mode of the socket's file admits
//! others.

use std::fs::{self, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;

const NOBODY: nix::libc::uid_t = 65_534;

/// The answer that the user with this number receives.
fn answer_to(user: nix::libc::uid_t, socket: PathBuf) -> io::Result<String> {
    let asking = thread::spawn(move || {
        // SAFETY: the call has no pointers. It changes the user of this thread alone, which ends with it.
        let changed = unsafe { nix::libc::syscall(nix::libc::SYS_setresuid, user, user, user) };
        assert_eq!(changed, 0);
        let mut stream = UnixStream::connect(socket)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    });
    asking.join().unwrap()
}

/// Root gets the answer: on a busy computer, not each time within the time for a request.
fn is_well(socket: &Path) {
    const TIMES: usize = 300;
    let answers = (0..TIMES).map(|_| answer_to(0, socket.into()).unwrap());
    let mut answers = answers.filter(|answer| !answer.is_empty());
    assert_eq!(answers.next().as_deref(), Some("all is well"));
}

#[test]
fn a_stranger_gets_no_answer() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("SKIPPED: only root can be another user");
        return;
    }
    let directory = format!("laxity-daemon-{}-strangers", std::process::id());
    let directory = std::env::temp_dir().join(directory);
    let socket: &Path = &directory.join("status.sock");
    let (listener, _file) = laxity_daemon::listen(socket).unwrap();
    laxity_daemon::requests::serve_unix("test", listener, |connection| {
        connection.write_all(b"all is well")
    })
    .unwrap();
    is_well(socket);
    let refused = answer_to(NOBODY, socket.into()).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
    // An operator may change the mode of the socket and believe that this admits others.
    fs::set_permissions(socket, Permissions::from_mode(0o666)).unwrap();
    assert_eq!(answer_to(NOBODY, socket.into()).unwrap(), "");
    is_well(socket);
    fs::remove_dir_all(&directory).unwrap();
}
