//! The operator's interface of a running daemon: a line of JSON and a line in answer, on a Unix
//! socket.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use laxity_daemon::requests::{Connection, serve_unix};
use serde::{Deserialize, Serialize};

use crate::protocol::Order;
use crate::report::{Board, Snapshot};

/// Time without an answer after which the daemon counts as silent.
const TIMEOUT: Duration = Duration::from_secs(10);
const LINE_BYTES_MAX: u64 = 4096;
/// Longest answer in bytes: the state of more virtual machines than a host has.
const ANSWER_BYTES_MAX: u64 = 16 << 20;

/// A request of an operator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// The state of all virtual machines.
    Status,
    /// See [`Order::Switchover`].
    Switchover {
        /// Name of the virtual machine.
        vm: String,
    },
    /// See [`Order::Start`].
    Start {
        /// Name of the virtual machine.
        vm: String,
        /// Whether to start although the other host does not answer.
        alone: bool,
    },
    /// See [`Order::Unprotect`].
    Unprotect {
        /// Name of the virtual machine.
        vm: String,
    },
    /// See [`Order::Protect`].
    Protect {
        /// Name of the virtual machine.
        vm: String,
    },
    /// See [`Order::GoOn`].
    GoOn {
        /// Name of the virtual machine.
        vm: String,
    },
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// The state of all virtual machines.
    Status(Snapshot),
    /// The request has been accepted.
    Taken,
    /// The request has been refused, for this reason.
    Refused(String),
}

/// Answers all requests; `order` has an order carried out, or returns why it cannot be.
///
/// # Errors
///
/// If the thread cannot be started.
pub fn serve(
    listener: UnixListener,
    board: Board,
    order: impl Fn(&str, Order) -> Result<(), String> + Send + Sync + 'static,
) -> io::Result<()> {
    serve_unix("operator", listener, move |connection| {
        answer(connection, &board, &order)
    })
}

fn answer(
    connection: &mut Connection,
    board: &Board,
    order: &impl Fn(&str, Order) -> Result<(), String>,
) -> io::Result<()> {
    let mut line = String::new();
    BufReader::new(connection.take(LINE_BYTES_MAX)).read_line(&mut line)?;
    let mut text = serde_json::to_vec(&reply(&line, board, order))?;
    text.push(b'\n');
    connection.begin_answer();
    connection.write_all(&text)
}

/// Answers a line, which may be anything.
pub fn reply(
    line: &str,
    board: &Board,
    order: &impl Fn(&str, Order) -> Result<(), String>,
) -> Answer {
    let taken = |done: Result<(), String>| done.map_or_else(Answer::Refused, |()| Answer::Taken);
    match serde_json::from_str(line) {
        Ok(Request::Status) => Answer::Status(board.snapshot()),
        Ok(Request::Switchover { vm }) => taken(order(&vm, Order::Switchover)),
        Ok(Request::Start { vm, alone }) => taken(order(&vm, Order::Start { alone })),
        Ok(Request::Unprotect { vm }) => taken(order(&vm, Order::Unprotect)),
        Ok(Request::Protect { vm }) => taken(order(&vm, Order::Protect)),
        Ok(Request::GoOn { vm }) => taken(order(&vm, Order::GoOn)),
        Err(error) => Answer::Refused(format!("this is not a request of this version: {error}")),
    }
}

/// Asks the daemon that listens on a socket.
///
/// # Errors
///
/// If none answers, or none of this version.
pub fn ask(socket: &Path, request: &Request) -> io::Result<Answer> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    serde_json::to_writer(&mut stream, request)?;
    stream.write_all(b"\n")?;
    let mut line = String::new();
    BufReader::new((&stream).take(ANSWER_BYTES_MAX)).read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}
