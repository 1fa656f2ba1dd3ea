//! Sets up calls that are there from one instant to another: tells the media server of their parties by the ng protocol
//! ([`control`](crate::control)), and then those parties what to do ([`orders`](crate::orders)).

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

/// The parties' ports are the even ones from here on.
const PORT_FIRST: u16 = 10_000;
const PORT_LAST: u16 = 65_534;

/// A question that is not answered in this time is asked again,
const ANSWER_WAIT: Duration = Duration::from_millis(250);
/// this often in all: a media server may come up only now.
const TRIES: u32 = 20;

/// How long who waits for an instant waits before it looks whether it should stop.
const LOOK_NS: i64 = 50_000_000;

/// Which calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Invitation {
    /// Where the media server is told of calls.
    pub media_server: SocketAddr,
    /// Two to a call; of an odd number, the last call's second party listens only.
    pub streams: u32,
    /// How long the parties speak.
    pub duration_ns: i64,
    /// From when on, as CLOCK_REALTIME has it; at once otherwise.
    pub begin_ns: Option<i64>,
}

/// Calls that the media server knows.
pub struct Invited {
    control: Control,
    invitation: Invitation,
    parties: Vec<Party>,
}

struct Party {
    local: SocketAddr,
    /// Where it is to send.
    remote: SocketAddr,
    law: Law,
}

impl Invited {
    /// Tells the media server of the calls.
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

    /// Writes the orders when they are due, until the calls are over or `stop`; returns when nobody reads them any more, too.
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

    /// Lets `work` carry the orders out, and tells the media server when it has ended that the calls are over.
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
            // An error is that of who reads, and it says so itself.
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

/// As the media server knows a call.
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

    /// Offers or answers; what the media server describes to the other party.
    fn describe(&mut self, command: &str, call: u32, sdp: &str) -> Result<Description, MediaError> {
        let answer = self.ask(&json!({
            "command": command, "call-id": name(call), "from-tag": CALLER, "to-tag": CALLEE, "sdp": sdp,
        }))?;
        let told = answer.sdp.as_deref().unwrap_or_default();
        Description::parse(told).map_err(|reason| self.refusal(command, &reason))
    }

    /// Asks, again if no answer comes; the server does it once all the same.
    fn ask(&mut self, question: &Value) -> Result<Answer, MediaError> {
        self.questions += 1;
        let cookie = format!("{}-{}", self.local.port(), self.questions);
        let datagram = format!("{cookie} {question}");
        let command = question["command"].as_str().unwrap_or_default();
        let mut answer = vec![0; usize::from(u16::MAX)];
        for _ in 0..TRIES {
            // Where nobody listens the system says so, at a later call: as silence it is.
            let _ = self.socket.send(datagram.as_bytes());
            let asked_ns = clock::monotonic_ns();
            while let Ok(bytes) = self.socket.recv(&mut answer) {
                // Another cookie is of an answer that came too late.
                if let Some(parsed) = Answer::parse(&answer[..bytes], &cookie) {
                    let parsed = parsed.map_err(|reason| self.refusal(command, &reason))?;
                    return match &parsed.error_reason {
                        Some(reason) => Err(self.refusal(command, reason)),
                        None => Ok(parsed),
                    };
                }
            }
            // Sooner than that comes the word that nobody listens there.
            clock::sleep_until(asked_ns + ANSWER_WAIT.as_nanos() as i64);
        }
        Err(MediaError::Refused(format!(
            "the media server at {} does not answer; is it there, and does it speak the ng protocol?",
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
