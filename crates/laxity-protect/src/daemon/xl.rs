//! Xl, which runs domains of Xen, as a program.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::SigSet;

/// What it may take to end, or to let a guest run.
const ENDS: Duration = Duration::from_secs(120);
/// Between two looks at what it does.
pub const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Of what it says, for the operator.
pub const LINES: usize = 3;

/// Xl, which takes signals: the daemon blocks them, for a thread that waits for them, and what it starts would have that from
/// it. Then nothing but SIGKILL would end xl, or what it starts itself.
pub fn command(words: &[&str]) -> Command {
    let mut command = Command::new("xl");
    command.args(words);
    // SAFETY: what runs between fork and exec makes one system call, and nothing else.
    unsafe {
        command.pre_exec(|| Ok(SigSet::empty().thread_set_mask()?));
    }
    command
}

/// What xl answers.
///
/// # Errors
///
/// What it complains of.
pub fn ask(words: &[&str]) -> Result<String, String> {
    let what = words.join(" ");
    let done = command(words).stdin(Stdio::null()).output();
    let done = done.map_err(|error| format!("xl {what}: {error}"))?;
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).trim().into());
    }
    // Its first lines have the cause, what follows is what it then could not clean up.
    let said = String::from_utf8_lossy(&done.stderr);
    let said: Vec<&str> = said.lines().take(LINES).collect();
    Err(format!("xl {what} failed: {}", said.join("; ")))
}

/// Whether somebody has paused a domain.
pub fn is_paused(domain: &str) -> bool {
    const STATE: usize = 4;
    let listed = ask(&["list", domain]).unwrap_or_default();
    let state = listed
        .lines()
        .nth(1)
        .and_then(|line| line.split_whitespace().nth(STATE));
    state.is_some_and(|state| state.contains('p'))
}

/// Pauses a domain, unless it is: Xen counts.
///
/// # Errors
///
/// What xl complains of.
pub fn pause(domain: &str) -> Result<(), String> {
    if !is_paused(domain) {
        ask(&["pause", domain])?;
    }
    Ok(())
}

/// Whether it has ended well in time.
pub fn wait_for(child: &mut Child) -> bool {
    let end = Instant::now() + ENDS;
    while Instant::now() < end {
        match child.try_wait() {
            Ok(None) => thread::sleep(LOOK_EVERY),
            Ok(Some(_)) => return true,
            Err(_) => return false,
        }
    }
    false
}

/// For a shell.
pub fn quoted(path: &Path) -> String {
    format!("'{}'", path.to_string_lossy().replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_one_word_for_a_shell() {
        assert_eq!(quoted(Path::new("/a b/it's")), r"'/a b/it'\''s'");
    }
}
