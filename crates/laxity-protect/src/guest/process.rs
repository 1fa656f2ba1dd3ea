//! A QEMU process: starting it confined, with a connection to control it, and what it says.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read as _};
use std::os::fd::{AsRawFd as _, BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use laxity_daemon::Allowance;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::{getpid, getppid};

use super::confinement::{NotHanded, SANDBOX, User, gain_nothing};
use super::qmp::{Qmp, QmpError};

/// Longest start of QEMU on a busy machine.
pub(super) const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Words for a QEMU without a machine, which runs no guest.
pub(super) const NO_MACHINE: [&str; 6] = [
    "-nodefaults",
    "-no-user-config",
    "-display",
    "none",
    "-machine",
    "none",
];
/// Lines of a QEMU's output that the log takes in a second: more than QEMU says of a start that fails.
const LINES_S_MAX: u32 = 20;

/// Errors of a guest.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    /// The program cannot be started.
    #[error("cannot start {}: {source}", program.display())]
    Start {
        /// Path of QEMU.
        program: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// QEMU ended before it was ready.
    #[error("{} ended immediately: {said}", program.display())]
    Ended {
        /// Path of QEMU.
        program: PathBuf,
        /// Last output of QEMU.
        said: String,
    },
    /// QEMU lacks a feature that protection needs.
    #[error("QEMU {version} cannot protect a guest: {lacks}")]
    TooOld {
        /// Version of QEMU.
        version: String,
        /// The missing feature.
        lacks: String,
    },
    /// A file of the guest cannot be handed to QEMU.
    #[error(transparent)]
    File(#[from] NotHanded),
    /// KVM was asked for and does not run guests.
    #[error("KVM does not run guests: {0}; write accelerator = \"auto\" or \"tcg\"")]
    Kvm(String),
    /// The tracker was asked for and is not available.
    #[error("{0}; write changes = \"auto\", and memory is compared instead")]
    Tracker(String),
    /// QEMU could not save or load the devices' state.
    #[error("QEMU could not {0} the devices' state: {1}")]
    Migration(&'static str, String),
    /// The image of a disk fails.
    #[error("{0}")]
    Disk(String),
    /// The guest was given up before it began to run.
    #[error("the guest was given up before it ran")]
    GivenUp,
    /// QEMU does not obey.
    #[error(transparent)]
    Qmp(#[from] QmpError),
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    System {
        /// The operation that failed.
        what: &'static str,
        /// Error of the system.
        source: io::Error,
    },
}

pub(super) fn system<E: Into<io::Error>>(what: &'static str) -> impl Fn(E) -> GuestError {
    move |source| GuestError::System {
        what,
        source: source.into(),
    }
}

/// Starts QEMU with these words and the given environment, and completes the greeting. It inherits
/// `files` and runs as `user`.
///
/// The process ends with the thread that called this.
///
/// # Errors
///
/// If it cannot be started, or ends at once, for the reason that it gives.
pub(super) fn spawn(
    program: &Path,
    words: &[OsString],
    environment: &[(&str, &Path)],
    mut files: Vec<RawFd>,
    user: Option<User>,
) -> Result<(Child, Qmp), GuestError> {
    let (control, theirs) = UnixStream::pair().map_err(system("make a socket"))?;
    files.push(theirs.as_raw_fd());
    let mut command = Command::new(program);
    command
        .args(words)
        .args(control_words(theirs.as_raw_fd()))
        .args(SANDBOX)
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let parent = getpid();
    // SAFETY: what runs between fork and exec makes system calls, and nothing else.
    unsafe {
        command.pre_exec(move || {
            for file in &files {
                // SAFETY: they are open in the parent until it has spawned us.
                let file = BorrowedFd::borrow_raw(*file);
                fcntl(file, FcntlArg::F_SETFD(FdFlag::empty()))?;
            }
            if let Some(user) = user {
                user.become_it()?;
            }
            gain_nothing()?;
            // The setting comes last, because a change of user resets it.
            set_pdeathsig(Signal::SIGKILL)?;
            // A parent that ended before is told of by nobody, and its guest must not run on.
            if getppid() != parent {
                return Err(Errno::ESRCH.into());
            }
            Ok(())
        });
    }
    let mut child = command.spawn().map_err(|source| GuestError::Start {
        program: program.into(),
        source,
    })?;
    drop(theirs);
    match Qmp::greet(control, START_TIMEOUT) {
        Ok(qmp) => Ok((child, qmp)),
        Err(error) => {
            let _ = child.kill();
            let _ = child.wait();
            let mut said = String::new();
            if let Some(mut stderr) = child.stderr.take() {
                let _ = stderr.read_to_string(&mut said);
            }
            match (error, said.trim()) {
                (QmpError::Gone, said) if !said.is_empty() => Err(GuestError::Ended {
                    program: program.into(),
                    said: said.into(),
                }),
                (error, _) => Err(error.into()),
            }
        }
    }
}

fn control_words(control: RawFd) -> [OsString; 4] {
    let socket = format!("socket,id=control,fd={control}");
    ["-chardev", &socket, "-mon", "chardev=control,mode=control"].map(OsString::from)
}

/// Logs what a QEMU says, in the name of its guest, from a thread of its own.
pub(super) fn forward_what_it_says(qemu: &mut Child, name: &str) {
    let Some(stderr) = qemu.stderr.take() else {
        return;
    };
    let name = name.to_string();
    std::thread::spawn(move || {
        forward(
            BufReader::new(stderr),
            Instant::now,
            |line, unsaid| match unsaid {
                0 => tracing::warn!(vm = name, "QEMU: {line}"),
                _ => tracing::warn!(vm = name, unsaid, "QEMU: {line}"),
            },
        );
    });
}

/// Logs what QEMU says, with the number of lines that were left out before a line and at the end: a
/// guest that has taken its QEMU over says as much as it likes.
fn forward(mut said: impl BufRead, now: impl Fn() -> Instant, mut log: impl FnMut(&str, u64)) {
    let mut allowance = Allowance::new(LINES_S_MAX);
    while let Some(line) = next_line(&mut said) {
        if let Some(unsaid) = allowance.take(now()) {
            log(&line, unsaid);
        }
    }
    if allowance.unsaid() > 0 {
        log("it sent no details", allowance.unsaid());
    }
}

/// The next line, or the next part of an overlong line; `None` at the end.
fn next_line(said: &mut impl BufRead) -> Option<String> {
    const LINE_BYTES_MAX: u64 = 4096;
    let mut line = Vec::new();
    let read = said.take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
    let count = read.unwrap_or(0);
    (count > 0).then(|| String::from_utf8_lossy(&line).trim_end().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_takes_so_many_lines_and_counts_the_others() {
        let said = io::repeat(b'\n').take(10_000);
        let (now, mut logged) = (Instant::now(), Vec::new());
        forward(
            BufReader::new(said),
            || now,
            |line, unsaid| logged.push((line.to_string(), unsaid)),
        );
        let (last, lines) = logged.split_last().unwrap();
        let said_of_them = (String::new(), 0);
        assert_eq!(*lines, vec![said_of_them; LINES_S_MAX as usize]);
        assert_eq!(last.1, 10_000 - u64::from(LINES_S_MAX));
    }

    #[test]
    fn a_line_without_end_is_read_in_parts() {
        let mut said = BufReader::new(io::repeat(b'x').take(10_000).chain(&b"\nend\n"[..]));
        let lines: Vec<String> = std::iter::from_fn(|| next_line(&mut said)).collect();
        let lengths: Vec<usize> = lines.iter().map(String::len).collect();
        assert_eq!(lengths, [4096, 4096, 10_000 - 2 * 4096, 3]);
    }
}
