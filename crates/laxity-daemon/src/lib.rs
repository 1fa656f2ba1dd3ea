//! What Laxity's daemons share: control sockets, metrics, logs, and how they end.
#![forbid(unsafe_code)]

use std::fmt;
use std::io::{self, IsTerminal as _, Write};
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use tracing_subscriber::util::SubscriberInitExt as _;

pub mod escape;
pub mod metrics;
pub mod requests;
mod socket;

pub use socket::{SocketFile, listen};

/// Sends the log to the standard error output from now on, as one JSON object a line if `as_json`.
pub fn start_log(as_json: bool) {
    log_to(as_json, io::stderr).init();
}

/// A log whose records are escaped as a whole, since names and texts of guests are in them. The log
/// has no colours, because the escape would destroy their control characters.
fn log_to<W: Write + 'static>(
    as_json: bool,
    writer: impl Fn() -> W + Send + Sync + 'static,
) -> Box<dyn tracing::Subscriber + Send + Sync> {
    let log = tracing_subscriber::fmt()
        .with_writer(move || escape::Records(writer()))
        .with_target(false)
        .with_ansi(false);
    if as_json {
        Box::new(log.json().finish())
    } else {
        Box::new(log.finish())
    }
}

/// The exit code of a program, after printing its error, if there is one. An error may be about a
/// file and have several lines.
pub fn exit_code(done: Result<(), String>) -> ExitCode {
    let Err(message) = done else {
        return ExitCode::SUCCESS;
    };
    let label = if message.starts_with("error") {
        ""
    } else {
        "error: "
    };
    eprintln!("{label}{}", escape::lines(&message, "\n"));
    ExitCode::from(2)
}

/// The message for a daemon that does not answer.
pub fn silent(socket: &Path, error: impl fmt::Display) -> String {
    format!(
        "no daemon answers on {}: {error}; is it running?",
        socket.display()
    )
}

/// Shows the result of `look`, repeatedly on a terminal unless `once`.
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

/// A table for a terminal whose cells are escaped. The first columns, as many as `words`, are
/// aligned to the left; the others hold numbers and are aligned to the right.
pub fn table<const COLUMNS: usize>(rows: &[[String; COLUMNS]], words: usize) -> String {
    let rows = rows
        .iter()
        .map(|row| row.each_ref().map(|cell| escape::line(cell)));
    let rows: Vec<[String; COLUMNS]> = rows.collect();
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
}
