//! Runs the program xl, which manages domains of Xen.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::SigSet;

/// Longest time for xl to end or to let a guest run.
const ENDS: Duration = Duration::from_secs(120);
/// Interval between two checks of a running xl.
pub const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Number of xl's last lines that are shown to the operator.
pub const LINES: usize = 3;

/// A command for xl with signals unblocked. The daemon blocks signals for its signal thread, and a
/// child would inherit that: then only SIGKILL would end xl or the programs that it starts.
pub fn command(words: &[&str]) -> Command {
    let mut command = Command::new("xl");
    command.args(words);
    // SAFETY: what runs between fork and exec makes one system call, and nothing else.
    unsafe {
        command.pre_exec(|| Ok(SigSet::empty().thread_set_mask()?));
    }
    command
}

/// The output of xl.
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
    // The first lines name the cause; later ones are about xl's clean-up.
    let said = String::from_utf8_lossy(&done.stderr);
    let said: Vec<&str> = said.lines().take(LINES).collect();
    Err(format!("xl {what} failed: {}", said.join("; ")))
}

/// Whether a domain is paused.
pub fn is_paused(domain: &str) -> bool {
    const STATE: usize = 4;
    let listed = ask(&["list", domain]).unwrap_or_default();
    let state = listed
        .lines()
        .nth(1)
        .and_then(|line| line.split_whitespace().nth(STATE));
    state.is_some_and(|state| state.contains('p'))
}

/// Pauses a domain unless it is paused already, because Xen counts pauses.
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

/// Waits for a process to end. Returns whether it ended well in time.
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

/// A path quoted for a shell.
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
