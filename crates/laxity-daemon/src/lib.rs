//! What Laxity's daemons have in common: how they are asked, what they tell, and how they end.
#![forbid(unsafe_code)]

use std::fmt;
use std::io::{self, IsTerminal as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

pub mod metrics;

/// Who looks has this long to ask, and as long to take the answer.
pub const TIMEOUT: Duration = Duration::from_secs(2);

/// From now on what is logged goes to the standard error output; as JSON, an object a line, if it is to be so.
pub fn start_log(as_json: bool) {
    let log = tracing_subscriber::fmt()
        .with_writer(io::stderr)
        .with_target(false);
    if as_json {
        log.json().init();
    } else {
        log.with_ansi(io::stderr().is_terminal()).init();
    }
}

/// How a program ends: with what went wrong, if anything did, which may be an error in a file with all its lines.
pub fn exit_code(done: Result<(), String>) -> ExitCode {
    let Err(message) = done else {
        return ExitCode::SUCCESS;
    };
    let label = if message.starts_with("error") {
        ""
    } else {
        "error: "
    };
    eprintln!("{label}{message}");
    ExitCode::from(2)
}

/// Listens where others ask. A socket that nobody answers any more is in the way, and goes.
///
/// # Errors
///
/// In words for people: if another daemon answers there, or the system refuses.
pub fn listen(socket: &Path) -> Result<UnixListener, String> {
    let failed = |error: io::Error| format!("cannot listen on {}: {error}", socket.display());
    if UnixStream::connect(socket).is_ok() {
        return Err(format!(
            "a daemon answers on {} already; stop it, or give this one another --socket",
            socket.display()
        ));
    }
    if let Some(directory) = socket.parent() {
        std::fs::create_dir_all(directory).map_err(failed)?;
    }
    let _ = std::fs::remove_file(socket);
    UnixListener::bind(socket).map_err(failed)
}

/// That a daemon does not answer, in words for people.
pub fn silent(socket: &Path, error: impl fmt::Display) -> String {
    format!(
        "no daemon answers on {}: {error}; is it running?",
        socket.display()
    )
}

/// Shows what `look` gives: again and again on a terminal, unless `once`.
///
/// # Errors
///
/// Those of `look`.
pub fn watch(once: bool, look: impl Fn() -> Result<String, String>) -> Result<(), String> {
    const BETWEEN: Duration = Duration::from_secs(1);
    const CLEAR: &str = "\x1b[H\x1b[2J";
    loop {
        let shown = look()?;
        if once || !io::stdout().is_terminal() {
            print!("{shown}");
            return Ok(());
        }
        print!("{CLEAR}{shown}");
        thread::sleep(BETWEEN);
    }
}

/// Rows as a table for a terminal: as many columns as `words` to the left, all others, numbers, to the right.
pub fn table<const COLUMNS: usize>(rows: &[[String; COLUMNS]], words: usize) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: [usize; COLUMNS] = std::array::from_fn(|column| width(column).unwrap_or(0));
    let mut table = String::new();
    for row in rows {
        let cells = row.iter().zip(widths).enumerate();
        let cells = cells.map(|(column, (cell, width))| {
            if column < words {
                format!("{cell:width$}")
            } else {
                format!("{cell:>width$}")
            }
        });
        table.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        table.push('\n');
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_what_is_in_them() {
        let rows = [["vm", "rate", ""], ["média", "7", ""], ["b", "12.5", "!"]];
        let rows = rows.map(|row| row.map(String::from));
        assert_eq!(
            table(&rows, 1),
            "vm     rate\nmédia     7\nb      12.5  !\n"
        );
        assert_eq!(table::<2>(&[], 1), "");
    }

    #[test]
    fn one_daemon_listens_and_a_dead_one_is_not_in_the_way() {
        let directory = std::env::temp_dir().join(format!("laxity-daemon-{}", std::process::id()));
        let socket = directory.join("status.sock");
        let first = listen(&socket).unwrap();
        let refused = listen(&socket).unwrap_err();
        assert!(refused.contains("answers on"), "{refused}");
        drop(first);
        drop(listen(&socket).unwrap());
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
