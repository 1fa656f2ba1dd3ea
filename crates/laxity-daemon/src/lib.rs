//! The common part of Laxity's daemons: control sockets, metrics, logs and shutdown.
#![forbid(unsafe_code)]

use std::fmt;
use std::io::{self, IsTerminal as _, Write};
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, presets};
use tracing_subscriber::util::SubscriberInitExt as _;

mod allowance;
pub mod escape;
pub mod metrics;
mod output;
pub mod requests;
mod socket;

pub use allowance::Allowance;
pub use output::print;
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
            print(format_args!("{shown}"));
            return Ok(());
        }
        print(format_args!("{CLEAR}{shown}"));
        thread::sleep(BETWEEN);
    }
}

/// Width that every terminal has, and that no table exceeds.
pub const COLUMNS: u16 = 80;

/// A table for a terminal of [`COLUMNS`], with its cells escaped. The first `words` columns are
/// aligned to the left, the others, numbers, to the right. The first column is wrapped where the
/// table would be too wide.
pub fn table<const N: usize>(
    head: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
    words: usize,
) -> String {
    const BETWEEN: (u16, u16) = (0, 2);
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        // Trailing space of the last column, which is trimmed, does not count.
        .set_width(COLUMNS + BETWEEN.1)
        .set_header(head);
    for row in rows {
        table.add_row(row.map(|cell| escape::line(&cell)));
    }
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding(BETWEEN);
        if index > 0 {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
        if index >= words {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_what_is_in_them() {
        let rows = [["média", "7", ""], ["b", "12.5", "!"]].map(|row| row.map(String::from));
        assert_eq!(
            table(["vm", "rate", ""], rows, 1),
            "vm     rate\nmédia     7\nb      12.5  !\n"
        );
        assert_eq!(table(["vm", "rate"], [], 1), "vm  rate\n");
    }

    #[test]
    fn a_long_name_is_wrapped_and_escaped() {
        let name = "a-virtual-machine-\u{1b}[2J-".repeat(4);
        let shown = table(["vm", "rate"], [[name, "7".repeat(40)]], 1);
        assert!(shown.lines().count() > 2, "{shown}");
        assert!(
            shown.lines().all(|line| line.chars().count() <= 80),
            "{shown}"
        );
        assert!(!shown.contains('\u{1b}'), "{shown}");
    }
}
