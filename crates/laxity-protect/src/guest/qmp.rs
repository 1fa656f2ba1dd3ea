//! The part of QEMU's machine protocol (QMP) that protection needs: one command at a time, events
//! kept in order, file descriptors passed along. The protocol is specified in "QEMU Machine
//! Protocol Specification" of QEMU's documentation.
//!
//! The crates for QMP cannot pass descriptors, and each epoch passes one.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Read as _};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use serde_json::{Value, json};

/// Limit of a line; all of QEMU's lines are shorter.
const LINE_BYTES_MAX: usize = 1 << 20;
/// Limit of the events that wait to be taken: more than any guest causes before somebody looks.
const EVENTS_BYTES_MAX: usize = 1 << 20;
/// Characters of a text of QEMU's that go into a message; all of its reasons are shorter.
const SAID_CHARS_MAX: usize = 500;
/// Longest wait for an answer of a QEMU that works.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Errors of the connection to QEMU.
#[derive(Debug, thiserror::Error)]
pub enum QmpError {
    /// QEMU has ended, or closed the connection.
    #[error("QEMU has gone")]
    Gone,
    /// QEMU does not answer.
    #[error("QEMU did not answer `{waited_for}` within {} ms", timeout.as_millis())]
    Silent {
        /// The command or event that was waited for.
        waited_for: String,
        /// The time that QEMU had.
        timeout: Duration,
    },
    /// QEMU refuses a command.
    #[error("QEMU refuses `{command}`: {description}")]
    Refused {
        /// The refused command.
        command: String,
        /// QEMU's reason.
        description: String,
    },
    /// QEMU's output is no QMP.
    #[error("QEMU's message is not QMP: {0}")]
    Garbled(String),
    /// The socket fails.
    #[error("the connection to QEMU fails: {0}")]
    Io(io::Error),
}

impl From<io::Error> for QmpError {
    fn from(error: io::Error) -> QmpError {
        use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
        match error.kind() {
            BrokenPipe | ConnectionReset | UnexpectedEof => QmpError::Gone,
            _ => QmpError::Io(error),
        }
    }
}

/// The last byte of every command.
const END: u8 = b'}';

/// An event of QEMU's.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Name of the event in the QMP reference: STOP, RESUME, MIGRATION, ….
    pub name: String,
    /// The status in its data, as MIGRATION has it; else empty.
    pub status: String,
    /// Time of the event by QEMU's word: nanoseconds of the wall clock, in steps of a microsecond.
    pub at_ns: i64,
}

impl Event {
    fn bytes(&self) -> usize {
        size_of::<Event>() + self.name.len() + self.status.len()
    }
}

/// A connection to one QEMU.
#[derive(Debug)]
pub struct Qmp {
    stream: UnixStream,
    /// Received bytes that have not been parsed; no line ends before `scanned`.
    received: Vec<u8>,
    scanned: usize,
    events: VecDeque<Event>,
    events_bytes: usize,
    /// Number of the last command. A late answer to an earlier one is ignored.
    commands: u64,
    /// Command that was begun and not finished.
    begun: Option<&'static str>,
    /// QEMU's version, such as "7.2.22".
    version: String,
}

impl Qmp {
    /// Completes the greeting with the QEMU at the other end.
    ///
    /// # Errors
    ///
    /// If it has ended, does not greet within `timeout`, or is no QEMU.
    pub fn greet(stream: UnixStream, timeout: Duration) -> Result<Qmp, QmpError> {
        let mut qmp = Qmp {
            stream,
            received: Vec::new(),
            scanned: 0,
            events: VecDeque::new(),
            events_bytes: 0,
            commands: 0,
            begun: None,
            version: String::new(),
        };
        let greeting = qmp.message(Instant::now() + timeout)?;
        let greeting = greeting.ok_or_else(|| silent("its greeting", timeout))?;
        let version = &greeting["QMP"]["version"]["qemu"];
        let part = |name: &str| version[name].as_u64();
        let (Some(major), Some(minor), Some(micro)) = (part("major"), part("minor"), part("micro"))
        else {
            return Err(QmpError::Garbled(shortened(&greeting.to_string())));
        };
        qmp.version = format!("{major}.{minor}.{micro}");
        qmp.send("qmp_capabilities", &json!({}), None, timeout)?;
        Ok(qmp)
    }

    /// QEMU's version.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Executes a command and returns QEMU's answer.
    ///
    /// # Errors
    ///
    /// If QEMU says no, or nothing.
    pub fn execute(&mut self, command: &str, arguments: Value) -> Result<Value, QmpError> {
        self.execute_within(TIMEOUT, command, arguments)
    }

    /// Executes a command that may take long and returns QEMU's answer.
    ///
    /// # Errors
    ///
    /// If QEMU says no, or nothing within `timeout`.
    pub fn execute_within(
        &mut self,
        timeout: Duration,
        command: &str,
        arguments: Value,
    ) -> Result<Value, QmpError> {
        self.send(command, &arguments, None, timeout)
    }

    /// Passes a file descriptor to QEMU, which then knows it by `name`.
    ///
    /// # Errors
    ///
    /// If QEMU says no, or nothing.
    pub fn pass(&mut self, name: &str, descriptor: BorrowedFd<'_>) -> Result<(), QmpError> {
        let arguments = json!({ "fdname": name });
        self.send("getfd", &arguments, Some(descriptor.as_raw_fd()), TIMEOUT)?;
        Ok(())
    }

    /// Adds a file to a set of QEMU's, which opens one of them by the name `/dev/fdset/SET`.
    ///
    /// # Errors
    ///
    /// If QEMU says no, or nothing.
    pub fn add_to_set(&mut self, set: u32, file: BorrowedFd<'_>) -> Result<(), QmpError> {
        let arguments = json!({ "fdset-id": set });
        self.send("add-fd", &arguments, Some(file.as_raw_fd()), TIMEOUT)?;
        Ok(())
    }

    /// Sends a command except for its last byte. QEMU parses its input byte by byte, with some ten
    /// system calls each; most of that is over when [`Qmp::finish`] is called. No other command can
    /// be sent before.
    ///
    /// # Errors
    ///
    /// If QEMU has gone.
    pub fn begin(&mut self, command: &'static str) -> Result<(), QmpError> {
        let message = self.command(command, &json!({}));
        let (end, beginning) = message.split_last().expect("it has an end");
        assert_eq!(*end, END);
        self.begun = Some(command);
        self.write(beginning, None, TIMEOUT)
    }

    /// Sends the last byte of the command that was begun, and returns QEMU's answer.
    ///
    /// # Errors
    ///
    /// If QEMU says no, or nothing.
    ///
    /// # Panics
    ///
    /// If none was begun.
    pub fn finish(&mut self) -> Result<Value, QmpError> {
        let command = self.begun.take().expect("a command was begun");
        self.write(&[END], None, TIMEOUT)?;
        self.answer(command, TIMEOUT)
    }

    fn send(
        &mut self,
        command: &str,
        arguments: &Value,
        descriptor: Option<RawFd>,
        timeout: Duration,
    ) -> Result<Value, QmpError> {
        assert_eq!(self.begun, None, "one command at a time");
        let message = self.command(command, arguments);
        self.write(&message, descriptor, timeout)?;
        self.answer(command, timeout)
    }

    /// The next command in its shortest form.
    fn command(&mut self, command: &str, arguments: &Value) -> Vec<u8> {
        self.commands += 1;
        let mut message = json!({ "execute": command, "id": self.commands });
        if arguments.as_object().is_some_and(|some| !some.is_empty()) {
            message["arguments"] = arguments.clone();
        }
        message.to_string().into_bytes()
    }

    fn write(
        &mut self,
        bytes: &[u8],
        descriptor: Option<RawFd>,
        timeout: Duration,
    ) -> Result<(), QmpError> {
        self.stream.set_write_timeout(Some(timeout))?;
        let mut sent = 0;
        while sent < bytes.len() {
            let descriptors: Vec<RawFd> = descriptor.filter(|_| sent == 0).into_iter().collect();
            let with = [ControlMessage::ScmRights(&descriptors)];
            let with = if descriptors.is_empty() {
                &[][..]
            } else {
                &with
            };
            let part = [IoSlice::new(&bytes[sent..])];
            let flags = MsgFlags::MSG_NOSIGNAL;
            let done = sendmsg::<()>(self.stream.as_raw_fd(), &part, with, flags, None);
            sent += done.map_err(io::Error::from)?;
        }
        Ok(())
    }

    fn answer(&mut self, command: &str, timeout: Duration) -> Result<Value, QmpError> {
        let deadline = Instant::now() + timeout;
        loop {
            let answer = self.message(deadline)?;
            let mut answer = answer.ok_or_else(|| silent(command, timeout))?;
            if is_answer(&answer) && answer["id"] != self.commands {
                // However many there are, they are passed over for no longer than all else is waited for.
                if Instant::now() < deadline {
                    continue;
                }
                return Err(silent(command, timeout));
            }
            if let Some(returned) = answer.get_mut("return") {
                return Ok(returned.take());
            }
            if let Some(error) = answer.get("error") {
                let description = error["desc"].as_str().unwrap_or("without a reason");
                return Err(QmpError::Refused {
                    command: command.into(),
                    description: shortened(description),
                });
            }
            self.keep(&answer)?;
        }
    }

    /// The next event, the oldest first; `None` if there is none within `timeout`.
    ///
    /// # Errors
    ///
    /// If QEMU has gone.
    pub fn event(&mut self, timeout: Duration) -> Result<Option<Event>, QmpError> {
        let deadline = Instant::now() + timeout;
        while self.events.is_empty() {
            match self.message(deadline)? {
                Some(message) if !is_answer(&message) => self.keep(&message)?,
                Some(_) if Instant::now() < deadline => {}
                _ => break,
            }
        }
        let event = self.events.pop_front();
        self.events_bytes -= event.as_ref().map_or(0, Event::bytes);
        Ok(event)
    }

    fn keep(&mut self, message: &Value) -> Result<(), QmpError> {
        const NS_IN_S: i64 = 1_000_000_000;
        const NS_IN_US: i64 = 1_000;
        let part = |name: &str| message["timestamp"][name].as_i64();
        let (Some(name), Some(seconds), Some(microseconds)) = (
            message["event"].as_str(),
            part("seconds"),
            part("microseconds"),
        ) else {
            return Err(QmpError::Garbled(shortened(&message.to_string())));
        };
        let event = Event {
            name: name.into(),
            status: message["data"]["status"]
                .as_str()
                .unwrap_or_default()
                .into(),
            at_ns: seconds
                .saturating_mul(NS_IN_S)
                .saturating_add(microseconds.saturating_mul(NS_IN_US)),
        };
        self.events_bytes += event.bytes();
        self.events.push_back(event);
        if self.events_bytes > EVENTS_BYTES_MAX {
            return Err(QmpError::Garbled(
                "more events than a guest can cause".into(),
            ));
        }
        Ok(())
    }

    /// The next line; `None` if there is none by the deadline.
    fn message(&mut self, deadline: Instant) -> Result<Option<Value>, QmpError> {
        loop {
            let end = self.received[self.scanned..]
                .iter()
                .position(|&byte| byte == b'\n');
            if let Some(end) = end {
                let line: Vec<u8> = self.received.drain(..=self.scanned + end).collect();
                self.scanned = 0;
                return match serde_json::from_slice(&line) {
                    Ok(message) => Ok(Some(message)),
                    Err(error) => Err(QmpError::Garbled(error.to_string())),
                };
            }
            self.scanned = self.received.len();
            if self.scanned > LINE_BYTES_MAX {
                return Err(QmpError::Garbled("a line that is too long".into()));
            }
            if !is_readable_by(&self.stream, deadline)? {
                return Ok(None);
            }
            let mut part = [0; 4096];
            let count = self.stream.read(&mut part)?;
            if count == 0 {
                return Err(QmpError::Gone);
            }
            self.received.extend_from_slice(&part[..count]);
        }
    }
}

/// Whether a message is the answer to a command.
fn is_answer(message: &Value) -> bool {
    message.get("return").or(message.get("error")).is_some()
}

/// The beginning of a text of QEMU's, which may be as long as a line.
pub(super) fn shortened(text: &str) -> String {
    match text.char_indices().nth(SAID_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into(),
    }
}

fn silent(waited_for: &str, timeout: Duration) -> QmpError {
    QmpError::Silent {
        waited_for: waited_for.into(),
        timeout,
    }
}

/// Waits until there is something to read. Returns false if there is nothing by the deadline.
pub(crate) fn is_readable_by(stream: &UnixStream, deadline: Instant) -> io::Result<bool> {
    use nix::poll::{PollFd, PollFlags, ppoll};
    use nix::sys::time::TimeSpec;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut polled = [PollFd::new(stream.as_fd(), PollFlags::POLLIN)];
        match ppoll(&mut polled, Some(TimeSpec::from_duration(left)), None) {
            Ok(count) => return Ok(count > 0),
            Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::thread;

    const GREETING: &str =
        "{\"QMP\": {\"version\": {\"qemu\": {\"micro\": 22, \"minor\": 2, \"major\": 7}}}}\r\n";
    const SOON: Duration = Duration::from_millis(50);

    /// A model of QEMU that greets, and then gives one of `answers` to each command.
    fn qemu(answers: &'static [&'static str]) -> (UnixStream, thread::JoinHandle<Vec<Value>>) {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let run = thread::spawn(move || {
            theirs.write_all(GREETING.as_bytes()).unwrap();
            let commands = serde_json::Deserializer::from_reader(theirs.try_clone().unwrap());
            let mut commands = commands.into_iter::<Value>();
            let mut told = Vec::new();
            for answer in ["{\"return\": {}, \"id\": 1}\r\n"].iter().chain(answers) {
                match commands.next() {
                    Some(Ok(command)) => told.push(command),
                    _ => break,
                }
                theirs.write_all(answer.as_bytes()).unwrap();
            }
            told
        });
        (ours, run)
    }

    #[test]
    fn answers_and_events_are_told_apart() {
        let (stream, run) = qemu(&[
            "{\"timestamp\": {\"seconds\": 2, \"microseconds\": 5}, \"event\": \"STOP\"}\r\n{\"return\": {\"a\": 0}, \"id\": 1}\r\n{\"return\": {\"a\": 1}, \"id\": 2}\r\n",
            "{\"error\": {\"class\": \"GenericError\", \"desc\": \"no such thing\"}, \"id\": 3}\r\n",
        ]);
        let mut qmp = Qmp::greet(stream, Duration::from_secs(5)).unwrap();
        assert_eq!(qmp.version(), "7.2.22");
        assert_eq!(qmp.execute("query-a", json!({})).unwrap(), json!({"a": 1}));
        let event = qmp.event(SOON).unwrap().unwrap();
        assert_eq!((&*event.name, event.at_ns), ("STOP", 2_000_005_000));
        assert_eq!(qmp.event(Duration::ZERO).unwrap_or(None), None);
        let refused = qmp.execute("cont", json!({})).unwrap_err();
        assert_eq!(refused.to_string(), "QEMU refuses `cont`: no such thing");
        let told = run.join().unwrap();
        assert_eq!(told.len(), 3);
        assert!(matches!(
            qmp.execute("cont", json!({})),
            Err(QmpError::Gone)
        ));
    }

    #[test]
    fn what_is_begun_is_done_when_it_is_finished() {
        let (stream, run) = qemu(&[
            "{\"return\": {\"b\": 2}, \"id\": 2}\r\n",
            "{\"return\": {}, \"id\": 3}\r\n",
        ]);
        let mut qmp = Qmp::greet(stream, Duration::from_secs(5)).unwrap();
        qmp.begin("cont").unwrap();
        assert_eq!(qmp.event(SOON).unwrap(), None);
        assert_eq!(qmp.finish().unwrap(), json!({"b": 2}));
        qmp.execute("stop", json!({ "now": true })).unwrap();
        let told = run.join().unwrap();
        assert_eq!(told[1], json!({ "execute": "cont", "id": 2 }));
        assert_eq!(
            told[2],
            json!({ "execute": "stop", "id": 3, "arguments": { "now": true } })
        );
    }

    const EVENT: &str =
        "{\"timestamp\": {\"seconds\": 2, \"microseconds\": 5}, \"event\": \"STOP\"}\n";

    /// A greeted QEMU that a guest has taken over, with all that it says from then on. Its end of the
    /// connection comes back when all has been said, or the other has heard enough.
    fn that_says(words: String) -> (Qmp, thread::JoinHandle<UnixStream>) {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let greeting = format!("{GREETING}{{\"return\": {{}}, \"id\": 1}}\n");
        let run = thread::spawn(move || {
            let _ = theirs.write_all((greeting + &words).as_bytes());
            theirs
        });
        let qmp = Qmp::greet(ours, Duration::from_secs(600)).unwrap();
        (qmp, run)
    }

    #[test]
    fn events_that_nobody_takes_are_bounded() {
        let (mut qmp, run) = that_says(EVENT.repeat(2 * EVENTS_BYTES_MAX / size_of::<Event>()));
        let done = qmp.execute_within(Duration::from_secs(600), "cont", json!({}));
        assert!(matches!(done, Err(QmpError::Garbled(_))), "{done:?}");
        drop(qmp);
        drop(run.join().unwrap());
    }

    /// Late answers put no end off: neither that of a command nor that of a look for events.
    #[test]
    fn answers_without_end_are_waited_for_no_longer() {
        const LATE: &str = "{\"return\": {}, \"id\": 1}\n";
        let (mut qmp, run) = that_says(format!("{}{EVENT}", LATE.repeat(2)));
        let _theirs = run.join().unwrap();
        assert_eq!(qmp.event(Duration::ZERO).unwrap(), None);
        assert_eq!(qmp.event(Duration::ZERO).unwrap(), None);
        assert!(qmp.event(Duration::ZERO).unwrap().is_some());
        // No system reads a thousand lines within a microsecond.
        let (mut qmp, run) = that_says(format!(
            "{}{{\"return\": {{}}, \"id\": 2}}\n",
            LATE.repeat(1_000)
        ));
        let _theirs = run.join().unwrap();
        let done = qmp.execute_within(Duration::from_micros(1), "cont", json!({}));
        assert!(matches!(done, Err(QmpError::Silent { .. })), "{done:?}");
    }

    #[test]
    fn what_qemu_says_is_shown_in_part() {
        let reason = "é".repeat(LINE_BYTES_MAX / 4);
        let words = format!("{{\"error\": {{\"desc\": \"{reason}\"}}, \"id\": 2}}\n");
        let (mut qmp, run) = that_says(words);
        let done = qmp.execute_within(Duration::from_secs(600), "cont", json!({}));
        assert!(done.unwrap_err().to_string().len() < 4 * SAID_CHARS_MAX);
        drop(qmp);
        drop(run.join().unwrap());
    }

    #[test]
    fn who_does_not_greet_is_no_qemu() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let silent = Qmp::greet(ours.try_clone().unwrap(), SOON).unwrap_err();
        assert!(matches!(silent, QmpError::Silent { .. }), "{silent}");
        theirs.write_all(b"220 mail.example ESMTP\r\n").unwrap();
        let garbled = Qmp::greet(ours, SOON).unwrap_err();
        assert!(matches!(garbled, QmpError::Garbled(_)), "{garbled}");
    }
}
