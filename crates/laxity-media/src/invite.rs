//! Sets up calls for a given time: announces their parties to the media server by the ng protocol
//! ([`control`](crate::control)), and then gives the parties their orders
//! ([`orders`](crate::orders)).

use crate::{
    MediaError, clock,
    control::{Answer, Description, describe},
    g711::Law,
};
use serde_json::{Value, json};
use std::{
    io::{PipeReader, PipeWriter, Write},
    net::{SocketAddr, UdpSocket},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

/// First of the parties' ports, which are even.
const PORT_FIRST: u16 = 10_000;
const PORT_LAST: u16 = 65_534;

/// Time without an answer after which a question is repeated.
const ANSWER_WAIT: Duration = Duration::from_millis(250);
/// Number of times that a question is asked, ten minutes in all: the media server may still be starting, in a
/// guest that is given little time.
const TRIES: u32 = 2_400;
/// Number of times after which it is said that there was no answer yet.
const TRIES_QUIETLY: u32 = 20;

/// Longest wait for an instant between two checks of the stop flag.
const LOOK_NS: i64 = 50_000_000;

/// The calls to set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Invitation {
    /// Control address of the media server.
    pub media_server: SocketAddr,
    /// Number of streams, two to a call; with an odd number the last call's second party only
    /// listens.
    pub streams: u32,
    /// Time for which the parties send.
    pub duration_ns: i64,
    /// Time of the first packet by CLOCK_REALTIME; `None` stands for at once.
    pub begin_ns: Option<i64>,
}

/// Calls that the media server has accepted.
pub struct Invited {
    control: Control,
    invitation: Invitation,
    parties: Vec<Party>,
}

struct Party {
    local: SocketAddr,
    /// Address to which the party is to send.
    remote: SocketAddr,
    law: Law,
}

impl Invited {
    /// Announces the calls to the media server.
    ///
    /// # Errors
    ///
    /// If there are no streams, or more than ports, or the media server is not there or refuses a call.
    pub fn set_up(invitation: Invitation) -> Result<Invited, MediaError> {
        let streams_max = u32::from((PORT_LAST - PORT_FIRST) / 2 + 1);
        if !(1..=streams_max).contains(&invitation.streams) {
            return Err(MediaError::Refused(format!(
                "{} streams are not possible; give 1 to {streams_max}",
                invitation.streams
            )));
        }
        let mut control = Control::new(invitation.media_server)?;
        let address = control.local.ip();
        let mut parties = Vec::new();
        for call in 0..invitation.streams.div_ceil(2) {
            let port = PORT_FIRST + 4 * call as u16;
            let [caller, callee] =
                [port, port.saturating_add(2)].map(|port| SocketAddr::new(address, port));
            let offered = control.describe("offer", call, &describe(caller, Law::Mu))?;
            let law = offered.law();
            let answered = control.describe("answer", call, &describe(callee, law))?;
            parties.push(Party {
                local: caller,
                remote: answered.receives_at,
                law: Law::Mu,
            });
            parties.push(Party {
                local: callee,
                remote: offered.receives_at,
                law,
            });
        }
        Ok(Invited {
            control,
            invitation,
            parties,
        })
    }

    /// Writes the orders when they are due, until the calls are over, `stop` is set, or nobody
    /// reads the orders any more.
    fn give_orders(&self, orders: &mut PipeWriter, stop: &AtomicBool) -> std::io::Result<()> {
        let Invitation {
            streams,
            duration_ns,
            begin_ns,
            ..
        } = self.invitation;
        for (number, Party { local, .. }) in self.parties.iter().enumerate() {
            writeln!(orders, "open {} {local}", number / 2)?;
        }
        let begin_ns = begin_ns.map_or(clock::monotonic_ns(), |begin_ns| {
            begin_ns - clock::realtime_offset_ns()
        });
        sleep_until(begin_ns, stop);
        for (number, party) in self.parties.iter().take(streams as usize).enumerate() {
            let Party { local, remote, law } = party;
            let (call, payload_type) = (number / 2, law.payload_type());
            writeln!(orders, "send {call} {local} {remote} {payload_type}")?;
        }
        sleep_until(begin_ns + duration_ns, stop);
        for call in 0..self.parties.len() / 2 {
            writeln!(orders, "end {call}")?;
        }
        Ok(())
    }

    /// Lets `work` carry out the orders, and tells the media server at its end that the calls are
    /// over.
    ///
    /// # Errors
    ///
    /// [`MediaError::Late`] if the calls were to begin before they were set up; what `work` returns, or what the media
    /// server says then.
    pub fn with_orders<T>(
        mut self,
        stop: &AtomicBool,
        work: impl FnOnce(PipeReader) -> Result<T, MediaError>,
    ) -> Result<T, MediaError> {
        if let Some(begin_ns) = self.invitation.begin_ns {
            let late_ns = clock::monotonic_ns() + clock::realtime_offset_ns() - begin_ns;
            if late_ns >= 0 {
                self.forget()?;
                return Err(MediaError::Late { late_ns });
            }
        }
        let (orders, mut pen) = std::io::pipe().map_err(MediaError::system("make a pipe"))?;
        let done = thread::scope(|scope| {
            // A failed write is an error of the reader, who reports it.
            let giving = scope.spawn(|| {
                let _ = self.give_orders(&mut pen, stop);
                drop(pen);
            });
            let done = work(orders);
            if done.is_err() {
                stop.store(true, Ordering::Relaxed);
            }
            giving.join().expect("who gives orders does not panic");
            done
        })?;
        self.forget()?;
        Ok(done)
    }

    /// Tells the media server that the calls are over.
    fn forget(&mut self) -> Result<(), MediaError> {
        for call in 0..self.parties.len() as u32 / 2 {
            self.control
                .ask(&json!({"command": "delete", "call-id": name(call), "from-tag": CALLER}))?;
        }
        Ok(())
    }
}

fn sleep_until(time_ns: i64, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let now_ns = clock::monotonic_ns();
        if now_ns >= time_ns {
            return;
        }
        clock::sleep_until(time_ns.min(now_ns + LOOK_NS));
    }
}

const CALLER: &str = "caller";
const CALLEE: &str = "callee";

/// The media server's name of a call.
fn name(call: u32) -> String {
    format!("call-{call}")
}

/// The media server's control port.
struct Control {
    socket: UdpSocket,
    media_server: SocketAddr,
    local: SocketAddr,
    questions: u64,
}

impl Control {
    fn new(media_server: SocketAddr) -> Result<Control, MediaError> {
        let open = || {
            let socket = UdpSocket::bind(crate::socket::any_address_to(media_server))?;
            socket.connect(media_server)?;
            socket.set_read_timeout(Some(ANSWER_WAIT))?;
            let local = socket.local_addr()?;
            Ok::<_, std::io::Error>((socket, local))
        };
        let (socket, local) = open().map_err(MediaError::system("reach the media server"))?;
        Ok(Control {
            socket,
            media_server,
            local,
            questions: 0,
        })
    }

    /// Sends an offer or an answer. Returns the media server's description for the other party.
    fn describe(&mut self, command: &str, call: u32, sdp: &str) -> Result<Description, MediaError> {
        let answer = self.ask(&json!({
            "command": command, "call-id": name(call), "from-tag": CALLER, "to-tag": CALLEE, "sdp": sdp,
        }))?;
        let told = answer.sdp.as_deref().unwrap_or_default();
        Description::parse(told).map_err(|reason| self.refusal(command, &reason))
    }

    /// Asks a question, repeatedly if no answer comes; the server carries it out only once.
    fn ask(&mut self, question: &Value) -> Result<Answer, MediaError> {
        self.questions += 1;
        let cookie = format!("{}-{}", self.local.port(), self.questions);
        let datagram = format!("{cookie} {question}");
        let command = question["command"].as_str().unwrap_or_default();
        let mut answer = vec![0; usize::from(u16::MAX)];
        for tries in 0..TRIES {
            if tries == TRIES_QUIETLY {
                eprintln!(
                    "the media server at {} does not answer yet",
                    self.media_server
                );
            }
            // The system reports a closed port at a later call; it counts as no answer.
            let _ = self.socket.send(datagram.as_bytes());
            let asked_ns = clock::monotonic_ns();
            while let Ok(bytes) = self.socket.recv(&mut answer) {
                // An answer with another cookie came too late for its question.
                if let Some(parsed) = Answer::parse(&answer[..bytes], &cookie) {
                    let parsed = parsed.map_err(|reason| self.refusal(command, &reason))?;
                    return match &parsed.error_reason {
                        Some(reason) => Err(self.refusal(command, reason)),
                        None => Ok(parsed),
                    };
                }
            }
            // An error about a closed port comes earlier than that.
            clock::sleep_until(asked_ns + ANSWER_WAIT.as_nanos() as i64);
        }
        Err(MediaError::Refused(format!(
            "the media server at {} does not answer; does it run, and does it use the ng protocol?",
            self.media_server
        )))
    }

    fn refusal(&self, command: &str, reason: &str) -> MediaError {
        MediaError::Refused(format!(
            "the media server at {} refuses `{command}`: {reason}",
            self.media_server
        ))
    }
}
