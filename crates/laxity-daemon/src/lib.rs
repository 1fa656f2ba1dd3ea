//! What Laxity's daemons have in common: how they are asked, what they tell, and how they end.
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

/// From now on what is logged goes to the standard error output; as JSON, an object a line, if it is to be so.
pub fn start_log(as_json: bool) {
    log_to(as_json, io::stderr).init();
}

/// A log whose records are escaped as a whole: names and texts of guests are in them. It has no colours, since
/// escaped as they would be, too.
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
    eprintln!("{label}{}", escape::lines(&message, "\n"));
    ExitCode::from(2)
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

/// Rows as a table for a terminal, with what is in them escaped: as many columns as `words` to the left, all others, numbers, to the right.
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
