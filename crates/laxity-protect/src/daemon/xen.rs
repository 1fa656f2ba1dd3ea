//! The protection of a domain of Xen: xl's Remus, whose stream goes over the link between the two daemons.
//!
//! xl takes checkpoints and keeps them: `xl remus` here and `xl migrate-receive` there.
//! This decides when they run, hears from the acknowledgements that pass through (a byte each, see
//! xen/libxl/acknowledge.patch) how far they are, and decides what becomes of the guest when the
//! other host is silent. Remus ends where its way ends, and then lets the guest run on whatever the
//! other host does: so its way ends only when that host has said that it will not.

use std::convert::Infallible;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::PoisonError;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::Pid;
use tracing::{error, info, warn};

use super::driver::Input;
use super::record::{Stored, incarnation};
use super::stream::{Event, Wire, copy_in, copy_out};
use super::xl::{self, LOOK_EVERY, is_paused, quoted, wait_for};
use crate::clock::now_ns;
use crate::protocol::checkpoint::CheckpointId;
use crate::protocol::message::{Greetings, Hello, Message, Standing};
use crate::protocol::{Mode, Order, Record, StandbyLost, State, Status};
use crate::report::Shared;
use crate::site::Domain;
use crate::transport::Link;

/// Time after a failure of xl before the next attempt.
const AGAIN_NS: i64 = 5_000_000_000;
/// Number of the acknowledgement from which the standby could take over: taking another checkpoint
/// means that the primary has received the previous one.
const ARMED_FROM: u64 = 2;

/// The driver of one domain on this host.
pub struct Xen {
    /// Settings from the site file.
    pub domain: Domain,
    /// Number of this host.
    pub host: u64,
    /// Whether the domain is created here when no host has it.
    pub begins_here: bool,
    /// Stable storage of the record.
    pub stored: Stored,
    /// Directory of the socket and of xl's output.
    pub directory: PathBuf,
    /// Incoming events.
    pub inputs: Receiver<Input>,
    /// Sender of events, for threads that report to this driver.
    pub sender: Sender<Input>,
    /// Channel that asks for a connection, on the host that makes connections.
    pub dialler: Option<Sender<()>>,
    /// State that others read.
    pub shared: Shared,
}

/// A running `xl remus` with its outgoing stream.
struct Remus {
    xl: Child,
    carrier: Option<UnixStream>,
    open: Option<Sender<Infallible>>,
}

/// A running `xl migrate-receive`, which takes over when its input ends.
struct Receiving {
    xl: Child,
    open: Sender<Infallible>,
}

enum Role {
    /// The domain is on this host.
    Primary {
        remus: Option<Remus>,
        /// The other host may have taken over: the domain is paused.
        waiting: bool,
        /// Time from which Remus may begin again.
        again_ns: i64,
    },
    /// The domain is not on this host.
    Standby { receiver: Option<Receiving> },
}

struct Run {
    xen: Xen,
    term: u64,
    incarnation: u64,
    role: Role,
    wire: Option<Wire>,
    greetings: Greetings,
    /// The last greeting of the other side of the connection.
    peer: Option<Hello>,
    /// Time of the last sign of life from it, on any connection.
    heard_ns: i64,
    /// Number of acknowledged checkpoints of the current stream.
    acknowledged: u64,
    beat_ns: i64,
    notice: String,
}

impl Xen {
    /// Runs until the daemon stops.
    ///
    /// # Errors
    ///
    /// If something fails that it cannot do without, such as the disk with its record.
    pub fn run(self, record: Record) -> io::Result<()> {
        let is_here = xl::ask(&["domid", &self.domain.name]).is_ok();
        let role = if is_here {
            // A paused domain was paused by a daemon that stopped or by `carry`, neither of which
            // knew whether the other host takes over.
            Role::Primary {
                remus: None,
                waiting: is_paused(&self.domain.name),
                again_ns: 0,
            }
        } else {
            Role::Standby { receiver: None }
        };
        let mut run = Run {
            xen: self,
            term: record.term,
            incarnation: incarnation()?,
            role,
            wire: None,
            greetings: Greetings::new(0),
            peer: None,
            heard_ns: now_ns(),
            acknowledged: 0,
            beat_ns: 0,
            notice: String::new(),
        };
        run.dial();
        let done = run.go();
        run.leave();
        done
    }
}

impl Run {
    fn go(&mut self) -> io::Result<()> {
        loop {
            match self.xen.inputs.recv_timeout(LOOK_EVERY) {
                Ok(Input::Stop) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Ok(input) => self.take(input)?,
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.look()?;
            self.tell();
        }
    }

    fn take(&mut self, input: Input) -> io::Result<()> {
        match input {
            Input::Link(link) => self.connect(*link),
            Input::Order(order, answer) => {
                let done = self.order(order)?;
                let _ = answer.send(done);
                Ok(())
            }
            Input::Xen(number, event)
                if self.wire.as_ref().map(|wire| wire.number) == Some(number) =>
            {
                match event {
                    Event::Message(message) => self.hear(message),
                    Event::Carrier(stream) => self.carry(stream),
                    Event::Ended(why) => {
                        warn!(vm = self.xen.domain.name, "the connection has ended: {why}");
                        self.disconnect();
                        Ok(())
                    }
                }
            }
            _ => Ok(()),
        }
    }

    fn dial(&self) {
        if let Some(dialler) = &self.xen.dialler {
            let _ = dialler.send(());
        }
    }

    fn connect(&mut self, link: Link) -> io::Result<()> {
        self.wire = None;
        self.greetings = Greetings::new(self.greetings.connection + 1);
        let number = self.greetings.connection;
        // A stream does not continue on another connection, and its sender does not end before this
        // side has confirmed.
        self.forget_stream();
        let sender = self.xen.sender.clone();
        let tell = move |number, event| drop(sender.send(Input::Xen(number, event)));
        self.wire = Some(Wire::start(number, link, tell)?);
        (self.peer, self.heard_ns) = (None, now_ns());
        self.greet();
        Ok(())
    }

    fn greet(&self) {
        let settings = &self.xen.domain.settings;
        let standing = match &self.role {
            Role::Primary { .. } => Standing::Primary,
            Role::Standby { .. } => Standing::Standby {
                held: None,
                claiming: false,
                unheard: false,
            },
        };
        self.send(Message::Hello(Hello {
            vm: settings.vm,
            mode: settings.mode,
            witness: false,
            lease_ns: settings.lease_ns,
            host: self.xen.host,
            incarnation: self.incarnation,
            term: self.term,
            standing,
            connection: self.greetings.connection,
            answers: self.greetings.answers,
        }));
    }

    /// Whether a greeting answers ours.
    fn counts(&mut self, hello: &Hello) -> bool {
        let (is_new, counts) = self.greetings.hear(hello);
        if is_new {
            self.greet();
        }
        counts
    }

    fn send(&self, message: Message<'static>) {
        if let Some(wire) = &self.wire {
            wire.send(message);
        }
    }

    fn hear(&mut self, message: Message<'static>) -> io::Result<()> {
        match message {
            Message::Hello(hello) if self.counts(&hello) => self.meet(hello),
            Message::Disarm { .. } => {
                self.forget_stream();
                self.greet();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Decides what both hosts do from what both are.
    fn meet(&mut self, hello: Hello) -> io::Result<()> {
        let settings = &self.xen.domain.settings;
        if (hello.vm, hello.mode, hello.lease_ns) != (settings.vm, settings.mode, settings.lease_ns)
        {
            self.note("the other host's site file describes this domain differently".into());
            self.disconnect();
            return Ok(());
        }
        self.peer = Some(hello);
        match (&mut self.role, hello.standing) {
            (Role::Primary { .. }, Standing::Primary) if hello.term > self.term => {
                self.note(format!(
                    "the other host holds term {}: the guest is ended here",
                    hello.term
                ));
                self.end_remus();
                self.xl_or_note(&["destroy", &self.xen.domain.name.clone()]);
                self.persist(hello.term)?;
                self.role = Role::Standby { receiver: None };
                // The other host waits for this greeting, and has already said that it has the
                // guest.
                self.greet();
                self.receive();
            }
            (Role::Primary { .. }, Standing::Primary) => {}
            (Role::Primary { waiting, .. }, Standing::Standby { .. })
                if *waiting && hello.term > self.term =>
            {
                self.note(format!(
                    "SILENT: the other host took over, in term {}, and has lost the guest; the one here is older, and goes on \
                     only if the operator says so",
                    hello.term
                ));
            }
            (Role::Primary { .. }, Standing::Standby { .. }) => {
                self.end_remus();
                self.go_on();
            }
            (Role::Standby { receiver }, Standing::Primary) if receiver.is_none() => {
                self.persist(hello.term.max(self.term))?;
                self.receive();
            }
            (Role::Standby { .. }, Standing::Standby { .. }) if self.xen.begins_here => {
                self.create(hello.term)?;
            }
            (Role::Standby { .. }, _) => {}
        }
        Ok(())
    }

    /// Creates the domain, which no host has.
    fn create(&mut self, peers_term: u64) -> io::Result<()> {
        self.persist(self.term.max(peers_term) + 1)?;
        let configuration = self.xen.domain.configuration.to_string_lossy().into_owned();
        if self.xl_or_note(&["create", "-q", &configuration]) {
            self.note(format!("the guest runs here, in term {}", self.term));
            self.role = Role::Primary {
                remus: None,
                waiting: false,
                again_ns: 0,
            };
        }
        self.greet();
        Ok(())
    }

    /// Lets the domain run, or run again.
    fn go_on(&mut self) {
        if let Role::Primary { waiting, .. } = &mut self.role
            && std::mem::take(waiting)
        {
            self.xl_or_note(&["unpause", &self.xen.domain.name.clone()]);
        }
    }

    fn begin_remus(&mut self) {
        let Domain {
            name,
            settings,
            hold_script,
            ..
        } = &self.xen.domain;
        let socket = self.xen.directory.join(format!("{name}.sock"));
        let _ = std::fs::remove_file(&socket);
        let program = std::env::current_exe().unwrap_or_else(|_| "laxity-protect".into());
        let way = format!(
            "exec {} carry {} {}",
            quoted(&program),
            quoted(&socket),
            quoted(Path::new(name))
        );
        let interval_ms = (settings.interval.minimum_ns / 1_000_000).to_string();
        let script = hold_script.to_string_lossy();
        let how: &[&str] = match settings.mode {
            Mode::Net => &["-N", &script],
            // The option `-F` (unsafe) is xl's term for output that is not held.
            Mode::NoNet => &["-F", "-n"],
        };
        let mut words = vec!["remus", "-i", &interval_ms, "-s", ""];
        words.extend(how);
        words.extend([&**name, &way]);
        let number = self.greetings.connection;
        let sender = self.xen.sender.clone();
        let started = UnixListener::bind(&socket).and_then(|listener| {
            let xl = self.start_xl(&words, Stdio::null(), Stdio::null())?;
            thread::Builder::new()
                .name("carrier".into())
                .spawn(move || {
                    if let Ok((stream, _)) = listener.accept() {
                        let _ = sender.send(Input::Xen(number, Event::Carrier(stream)));
                    }
                })?;
            Ok(xl)
        });
        match started {
            Ok(xl) => {
                self.acknowledged = 0;
                self.role = Role::Primary {
                    remus: Some(Remus {
                        xl,
                        carrier: None,
                        open: None,
                    }),
                    waiting: false,
                    again_ns: 0,
                };
                self.note("copying to the standby".into());
            }
            Err(error) => self.note(format!("xl remus cannot be started: {error}")),
        }
    }

    /// Accepts the connection of `xl remus` as its outgoing stream.
    fn carry(&mut self, stream: UnixStream) -> io::Result<()> {
        let (
            Role::Primary {
                remus: Some(remus), ..
            },
            Some(wire),
        ) = (&mut self.role, &mut self.wire)
        else {
            return Ok(());
        };
        copy_out(stream.try_clone()?, wire.stream(), None)?;
        if let Some(bytes) = wire.take_bytes() {
            let (open, is_open) = channel();
            copy_in(bytes, stream.try_clone()?, is_open, Some(wire.signs()))?;
            remus.open = Some(open);
        }
        remus.carrier = Some(stream);
        Ok(())
    }

    /// Ends Remus, which lets the guest run on when its stream ends. The caller knows that the
    /// other host will not take over.
    fn end_remus(&mut self) {
        let Role::Primary { remus, .. } = &mut self.role else {
            return;
        };
        let Some(Remus {
            mut xl,
            carrier,
            open: _open,
        }) = remus.take()
        else {
            return;
        };
        self.acknowledged = 0;
        let ended = carrier.as_ref().map_or(Ok(()), |stream| {
            let who = getsockopt(stream, PeerCredentials)?;
            kill(Pid::from_raw(who.pid()), Signal::SIGTERM)
        });
        if ended.is_err() || carrier.is_none() {
            let _ = xl.kill();
        }
        if !wait_for(&mut xl) {
            self.note("xl remus did not end, and was killed".into());
            let _ = xl.kill();
            let _ = xl.wait();
        }
    }

    fn receive(&mut self) {
        self.acknowledged = 0;
        let (open, is_open) = channel();
        let started = self
            .start_xl(&["migrate-receive", "-r"], Stdio::piped(), Stdio::piped())
            .and_then(|mut xl| {
                let wire = self.wire.as_mut().ok_or(io::ErrorKind::NotConnected)?;
                if let (Some(stdin), Some(bytes)) = (xl.stdin.take(), wire.take_bytes()) {
                    copy_in(bytes, stdin, is_open, None)?;
                }
                if let Some(stdout) = xl.stdout.take() {
                    copy_out(stdout, wire.stream(), Some(wire.signs()))?;
                }
                Ok(xl)
            });
        match started {
            Ok(xl) => {
                self.role = Role::Standby {
                    receiver: Some(Receiving { xl, open }),
                };
                self.note("receiving the whole memory".into());
            }
            Err(error) => self.note(format!("xl migrate-receive cannot be started: {error}")),
        }
    }

    /// Drops the received part of a stream that does not continue.
    fn forget_stream(&mut self) {
        if let Role::Standby { receiver } = &mut self.role
            && let Some(Receiving { mut xl, .. }) = receiver.take()
        {
            let _ = xl.kill();
            let _ = xl.wait();
            let half = format!("{}--incoming", self.xen.domain.name);
            let _ = xl::ask(&["destroy", &half]);
            self.acknowledged = 0;
        }
    }

    fn disconnect(&mut self) {
        if let Some(wire) = self.wire.take() {
            self.heard_ns = self.heard_ns.max(wire.signs().heard_ns());
        }
        self.peer = None;
        self.lose_peer();
        self.dial();
    }

    /// The primary has lost its peer: the other host may take over from now on.
    fn lose_peer(&mut self) {
        let Role::Primary {
            remus: Some(_),
            waiting,
            ..
        } = &mut self.role
        else {
            return;
        };
        if *waiting {
            return;
        }
        let name = self.xen.domain.name.clone();
        match (self.acknowledged, self.xen.domain.settings.standby_lost) {
            (0, _) => {
                self.end_remus();
                self.note("UNPROTECTED: the other host was lost before it had a checkpoint".into());
            }
            (_, StandbyLost::Stop) => {
                *waiting = true;
                self.xl_or_note(&["pause", &name]);
                self.note(
                    "the standby is silent, and may have taken over: the guest is paused".into(),
                );
            }
            (_, StandbyLost::Continue) => {
                self.end_remus();
                self.note(
                    "AT RISK: the standby is silent, and may have taken over; the guest goes on"
                        .into(),
                );
            }
        }
    }

    fn look(&mut self) -> io::Result<()> {
        let now_ns = now_ns();
        let settings = self.xen.domain.settings;
        if let Some(wire) = &self.wire {
            if now_ns - self.beat_ns >= settings.heartbeat_ns {
                self.beat_ns = now_ns;
                wire.send(Message::Heartbeat);
            }
            self.heard_ns = self.heard_ns.max(wire.signs().heard_ns());
            let acknowledged = wire.signs().acknowledged();
            if acknowledged > self.acknowledged {
                self.acknowledged = acknowledged;
                self.note_checkpoint();
            }
        }
        let silent_ns = now_ns - self.heard_ns;
        if silent_ns > settings.detection_ns && self.wire.is_some() {
            warn!(vm = self.xen.domain.name, "the other host is silent");
            self.disconnect();
        }
        let wait_ns = match settings.mode {
            Mode::Net => settings.detection_ns,
            Mode::NoNet => settings.detection_ns.max(settings.lease_ns),
        };
        match &mut self.role {
            Role::Standby { receiver: Some(_) } if self.wire.is_none() && silent_ns > wait_ns => {
                self.take_over()
            }
            Role::Standby {
                receiver: Some(Receiving { xl, .. }),
            } => {
                if let Ok(Some(status)) = xl.try_wait() {
                    let said = self.said();
                    self.note(format!("xl migrate-receive has ended ({status}): {said}"));
                    self.role = Role::Standby { receiver: None };
                    self.disconnect();
                }
                Ok(())
            }
            Role::Primary {
                remus: Some(remus),
                waiting: false,
                again_ns,
            } => {
                if let Ok(Some(status)) = remus.xl.try_wait() {
                    *again_ns = now_ns + AGAIN_NS;
                    let said = self.said();
                    self.note(format!(
                        "UNPROTECTED: xl remus has ended ({status}): {said}"
                    ));
                    if let Role::Primary { remus, .. } = &mut self.role {
                        *remus = None;
                    }
                    self.acknowledged = 0;
                    self.send(Message::Disarm { term: self.term });
                }
                Ok(())
            }
            Role::Primary {
                remus: None,
                waiting: false,
                again_ns,
            } if *again_ns < now_ns => {
                let is_standby = |hello: Hello| hello.standing != Standing::Primary;
                if self.wire.as_ref().is_some_and(Wire::is_fresh) {
                    if self.peer.is_some_and(is_standby) {
                        self.begin_remus();
                    }
                } else if self.wire.is_some() {
                    // A connection carries only one stream.
                    self.disconnect();
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn take_over(&mut self) -> io::Result<()> {
        let Role::Standby { receiver } = &mut self.role else {
            return Ok(());
        };
        let Some(Receiving { mut xl, open }) = receiver.take() else {
            return Ok(());
        };
        if self.acknowledged < ARMED_FROM {
            *receiver = Some(Receiving { xl, open });
            self.forget_stream();
            self.note(
                "the other host is lost, and there is no checkpoint to take over from".into(),
            );
            return Ok(());
        }
        self.note(format!("taking over from checkpoint {}", self.acknowledged));
        self.tell_state(State::Activating);
        self.persist(self.term + 1)?;
        // Closing the input of xl makes it take over.
        drop(open);
        let begun = Instant::now();
        let is_done = wait_for(&mut xl) && xl::ask(&["domid", &self.xen.domain.name]).is_ok();
        if is_done {
            let ms = begun.elapsed().as_millis();
            self.note(format!(
                "the guest runs here, in term {}; xl took {ms} ms",
                self.term
            ));
            self.acknowledged = 0;
            self.role = Role::Primary {
                remus: None,
                waiting: false,
                again_ns: 0,
            };
        } else {
            let said = self.said();
            error!(
                vm = self.xen.domain.name,
                "xl could not resume the guest: {said}"
            );
            let _ = xl.kill();
            let _ = xl.wait();
            self.note(format!("the guest could not be activated here: {said}"));
        }
        self.greet();
        Ok(())
    }

    fn order(&mut self, order: Order) -> io::Result<String> {
        let is_waiting = matches!(self.role, Role::Primary { waiting: true, .. });
        let is_empty = matches!(self.role, Role::Standby { receiver: None });
        match order {
            Order::GoOn if is_waiting => {
                self.persist(self.term.max(self.peer.map_or(0, |hello| hello.term)) + 1)?;
                self.end_remus();
                self.go_on();
                self.note("UNPROTECTED: the operator has said that the other host is off".into());
            }
            Order::GoOn => return Ok("this host does not wait for the other host".into()),
            Order::Start { alone } if is_empty && (alone || self.peer.is_some()) => {
                if self
                    .peer
                    .is_some_and(|hello| hello.standing == Standing::Primary)
                {
                    return Ok("the other host has the guest".into());
                }
                self.create(self.peer.map_or(0, |hello| hello.term))?;
            }
            Order::Start { .. } if is_empty => {
                return Ok("the other host does not answer; use --alone if you are sure that it has no guest".into());
            }
            Order::Start { .. } => return Ok("the guest or its checkpoint is here already".into()),
            Order::Switchover => return Ok("Remus has no switchover; use `xl migrate`".into()),
            Order::Unprotect | Order::Protect => {
                return Ok("Remus does not support this order".into());
            }
        }
        Ok(String::new())
    }

    /// The daemon ends. The domain stays, and the other host must not take it over.
    fn leave(&mut self) {
        let is_primary = matches!(
            &self.role,
            Role::Primary {
                remus: Some(_),
                waiting: false,
                ..
            }
        );
        if is_primary {
            self.peer = None;
            self.send(Message::Disarm { term: self.term });
            let end =
                Instant::now() + Duration::from_nanos(self.xen.domain.settings.detection_ns as u64);
            while self.peer.is_none() && self.wire.is_some() && Instant::now() < end {
                if let Ok(Input::Xen(_, Event::Message(Message::Hello(hello)))) =
                    self.xen.inputs.recv_timeout(LOOK_EVERY)
                    && self.counts(&hello)
                {
                    self.peer = Some(hello);
                }
            }
            if self.peer.is_some() || self.acknowledged == 0 {
                self.end_remus();
            } else {
                let name = self.xen.domain.name.clone();
                self.xl_or_note(&["pause", &name]);
                error!(
                    vm = name,
                    "the other host did not answer: the guest stays here, paused"
                );
            }
        }
        self.wire = None;
        self.forget_stream();
    }

    fn persist(&mut self, term: u64) -> io::Result<()> {
        self.term = term;
        self.xen.stored.write(Record { term })
    }

    fn note(&mut self, notice: String) {
        info!(vm = self.xen.domain.name, "{notice}");
        self.notice = notice;
    }

    fn note_checkpoint(&self) {
        let mut counts = self
            .xen
            .shared
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let bytes = self.wire.as_ref().map_or(0, |wire| wire.signs().bytes());
        counts.note_stream(bytes);
        counts.acknowledged_at_ns = now_ns();
    }

    fn state(&self) -> State {
        match &self.role {
            Role::Primary { waiting: true, .. } => State::Waiting,
            Role::Primary { remus: Some(_), .. } if self.acknowledged > 0 => State::Protected,
            Role::Primary { remus: Some(_), .. } => State::Copying,
            Role::Primary { remus: None, .. } => State::Alone,
            Role::Standby { receiver: Some(_) } if self.acknowledged >= ARMED_FROM => State::Armed,
            Role::Standby { receiver: Some(_) } => State::Copying,
            Role::Standby { receiver: None } => State::Empty,
        }
    }

    fn tell(&self) {
        self.tell_state(self.state());
    }

    fn tell_state(&self, state: State) {
        let is_primary = matches!(self.role, Role::Primary { .. });
        let settings = &self.xen.domain.settings;
        let mut counts = self
            .xen
            .shared
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        counts.status = Some(Status {
            state,
            term: self.term,
            checkpoint: Some(CheckpointId {
                term: self.term,
                number: self.acknowledged,
            }),
            connected: self.peer.is_some(),
            interval_ns: is_primary.then_some(settings.interval.minimum_ns),
            lease_ns: (is_primary && settings.mode == Mode::NoNet).then_some(settings.lease_ns),
            has_heir: false,
            is_stalled: false,
        });
        counts.notice.clone_from(&self.notice);
    }

    fn log(&self) -> PathBuf {
        self.xen
            .directory
            .join(format!("{}.xl.log", self.xen.domain.name))
    }

    fn end_of_log(&self) -> io::Result<String> {
        /// Read limit, larger than xl's last lines.
        const BYTES: u64 = 64 << 10;
        let mut log = File::open(self.log())?;
        let length = log.metadata()?.len();
        log.seek(SeekFrom::Start(length.saturating_sub(BYTES)))?;
        let mut end = Vec::new();
        log.take(BYTES).read_to_end(&mut end)?;
        Ok(String::from_utf8_lossy(&end).into_owned())
    }

    /// The last lines of xl's output.
    fn said(&self) -> String {
        let log = self.end_of_log().unwrap_or_default();
        let lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(xl::LINES)..].join("; ")
    }

    fn start_xl(&self, words: &[&str], input: Stdio, output: Stdio) -> io::Result<Child> {
        let log = File::create(self.log())?;
        xl::command(words)
            .stdin(input)
            .stdout(output)
            .stderr(log)
            .spawn()
    }

    fn xl_or_note(&mut self, words: &[&str]) -> bool {
        match xl::ask(words) {
            Ok(_) => true,
            Err(why) => {
                warn!(vm = self.xen.domain.name, "{why}");
                self.notice = why;
                false
            }
        }
    }
}
