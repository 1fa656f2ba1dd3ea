//! Drives the protocol of one virtual machine in one thread: events in, actions out.

use std::collections::VecDeque;
use std::fmt::Display;
use std::io;
use std::mem;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::Duration;

use tracing::{debug, error, info, warn};

use super::connection::{Connection, Heard, Outgoing};
use super::faults::{Step, reach};
use super::priority;
use super::record::{Stored, incarnation};
use super::worker::{Command, HANGS_AFTER, Report, Worker};
use crate::clock::now_ns;
use crate::gate::Gate;
use crate::guest::Permit;
use crate::guest::disk::Disk;
use crate::protocol::message::{self, Message, Standing};
use crate::protocol::{
    Action, Event, Node, Notice, Order, Output, Record, Settings, State, Verdict,
};
use crate::report::Shared;
use crate::transport::Link;
use crate::witness::Witness;

/// Longest time without a checkpoint while the other host could go on with the guest instead, and
/// longest time for putting one by while the other host waits for that.
const HANGS_AFTER_NS: i64 = HANGS_AFTER.as_nanos() as i64;
/// Longest time between two updates of the state that others see.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Time after a failed boot of a guest before the next attempt.
const START_AGAIN_NS: i64 = 5_000_000_000;
/// Prepared parts of a checkpoint that wait to be sent.
const PARTS_MAX: usize = 8;
/// Messages other than heartbeats that wait behind a checkpoint under inspection. A correct sender
/// waits for an answer.
const WAITING_MAX: usize = 16;

/// An event for a driver.
#[derive(Debug)]
pub enum Input {
    /// A connection has been made.
    Link(Box<Link>),
    /// An event of the connection with this number.
    Heard(u64, Heard),
    /// A report of the guest's thread.
    Report(Report),
    /// The witness's answer to a claim of this incarnation, with the expected term of the claim.
    Verdict(u64, u64, Verdict),
    /// An order of the operator, and the channel for the answer.
    Order(Order, Sender<String>),
    /// A guest was given up before it began to run.
    Abandoned,
    /// The guest's thread does not come back.
    Hangs,
    /// An event of the connection with this number, which carries a stream of Xen's.
    Xen(u64, super::stream::Event),
    /// The daemon ends.
    Stop,
}

/// The driver of one virtual machine on this host.
pub struct Driver {
    /// Name of the virtual machine.
    pub vm: String,
    /// Settings from the site file.
    pub settings: Settings,
    /// Number of this host.
    pub host: u64,
    /// Whether the guest is booted here when no host has it.
    pub begins_here: bool,
    /// Stable storage of the record.
    pub stored: Stored,
    /// The disks that the guest writes to.
    pub disks: Vec<Arc<Disk>>,
    /// The guest's network gate.
    pub gate: Arc<Gate>,
    /// The thread that handles the guest.
    pub worker: Worker,
    /// Incoming events.
    pub inputs: Receiver<Input>,
    /// Sender of events, for threads that report to this driver.
    pub sender: Sender<Input>,
    /// The witness that gives out terms, if the site has one.
    pub witness: Option<Witness>,
    /// Channel that asks for a connection, on the host that makes connections.
    pub dialler: Option<Sender<()>>,
    /// State that others read.
    pub shared: Shared,
}

impl Driver {
    /// Runs until the daemon stops.
    ///
    /// # Errors
    ///
    /// If something fails that it cannot do without, such as the disk with its record. Nothing leaves the guest then.
    pub fn run(self, record: Record) -> io::Result<()> {
        if let Err(error) = priority::raise() {
            warn!(
                vm = self.vm,
                "no real-time priority: failures are noticed later on a busy host: {error}"
            );
        }
        let incarnation = incarnation()?;
        let node = Node::new(self.settings, self.host, incarnation, record, now_ns());
        self.dial();
        let mut run = Run {
            driver: self,
            node,
            incarnation,
            record,
            connection: None,
            connections: 0,
            actions: Vec::new(),
            answer: None,
            sent_at_ns: 0,
            capture_at_ns: None,
            failing_since_ns: None,
            permit: Permit::default(),
            start_at_ns: None,
            unused_term: None,
            held: None,
            waiting: VecDeque::new(),
            checks: 0,
            checks_since_ns: None,
            hangs: None,
            hangs_so_far: 0,
        };
        let done = run.go();
        run.driver.gate.set(Output::Closed);
        run.driver.worker.destroy();
        done
    }

    fn dial(&self) {
        if let Some(dialler) = &self.dialler {
            let _ = dialler.send(());
        }
    }
}

struct Run {
    driver: Driver,
    node: Node,
    incarnation: u64,
    record: Record,
    connection: Option<Connection>,
    /// Number of connections so far.
    connections: u64,
    actions: Vec<Action>,
    /// Channel to the operator while an order is carried out.
    answer: Option<Sender<String>>,
    sent_at_ns: i64,
    /// Time at which the checkpoint that is being taken was asked for.
    capture_at_ns: Option<i64>,
    /// Time at which the first of the checkpoints was asked for that could not be taken in a row,
    /// all while the other host could have gone on with the guest.
    failing_since_ns: Option<i64>,
    /// The permission of the guest's thread to let the guest run.
    permit: Permit,
    /// Time at which to boot the guest here unless another host has it.
    start_at_ns: Option<i64>,
    /// The term in which this process alone has tried to boot a guest that had never run.
    unused_term: Option<u64>,
    held: Option<End>,
    /// Frames that arrived behind the checkpoint under inspection.
    waiting: VecDeque<Frame>,
    /// Number of questions to the guest's thread so far.
    checks: u64,
    /// Time since which the thread has answered none of them, if there are any.
    checks_since_ns: Option<i64>,
    /// Number of times that the thread was taken for one that hangs, if it has not come back since
    /// the last one.
    hangs: Option<u64>,
    hangs_so_far: u64,
}

/// The end of a checkpoint, while the guest's thread checks whether all that was staged can be
/// committed.
struct End {
    /// Number of that question. The thread may still have to answer earlier ones.
    check: u64,
    frame: Frame,
}

struct Frame {
    sequence: u64,
    bytes: Vec<u8>,
}

impl Run {
    fn go(&mut self) -> io::Result<()> {
        loop {
            let wait_ns = u64::try_from(self.node.wake_ns() - now_ns()).unwrap_or(0);
            let wait = Duration::from_nanos(wait_ns).min(LOOK_EVERY);
            let mut next = match self.driver.inputs.recv_timeout(wait) {
                Ok(input) => Some(input),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            };
            while let Some(input) = next {
                if matches!(input, Input::Stop) {
                    return Ok(());
                }
                self.take(input)?;
                next = self.driver.inputs.try_recv().ok();
            }
            if now_ns() >= self.node.wake_ns() {
                self.handle(Event::Timer, &[])?;
            }
            if self
                .start_at_ns
                .take_if(|at_ns| now_ns() >= *at_ns)
                .is_some()
                && self.node.status().state == State::Empty
            {
                self.start_unasked()?;
            }
            self.look_at_capture()?;
            self.look_at_thread()?;
            self.show();
        }
    }

    /// Gives a guest up whose checkpoint does not end, as with a disk that hangs, or of which none
    /// can be taken: its output waits, and the other host, which hears this one, does not take over.
    fn look_at_capture(&mut self) -> io::Result<()> {
        if !self.has_heir() {
            self.failing_since_ns = None;
            return Ok(());
        }
        let since_ns = self.failing_since_ns.or(self.capture_at_ns);
        if since_ns.is_some_and(|since_ns| now_ns() >= since_ns + HANGS_AFTER_NS) {
            let limit_s = HANGS_AFTER.as_secs();
            self.lose(&format!("a checkpoint was not taken in {limit_s} s"))?;
        }
        Ok(())
    }

    /// Gives a checkpoint up that the guest's thread does not put by, as with a disk that hangs: the
    /// other host's output waits for it.
    fn look_at_thread(&mut self) -> io::Result<()> {
        let ends_ns = self
            .checks_since_ns
            .map(|since_ns| since_ns + HANGS_AFTER_NS);
        if self.hangs.is_none() && ends_ns.is_some_and(|ends_ns| now_ns() >= ends_ns) {
            let limit_s = HANGS_AFTER.as_secs();
            error!(
                vm = self.driver.vm,
                "a checkpoint was not stored in {limit_s} s"
            );
            self.hang()?;
        }
        Ok(())
    }

    /// Takes nothing in until the guest's thread has done all that it was told and no disk hangs.
    fn hang(&mut self) -> io::Result<()> {
        self.hangs_so_far += 1;
        self.hangs = Some(self.hangs_so_far);
        self.driver.worker.tell(Command::Ask(self.hangs_so_far));
        self.handle(Event::Hangs, &[])
    }

    /// Boots the guest if no host has it. A guest that has run before may have written to disks, and
    /// nobody but the operator knows which host's are the newer ones.
    fn start_unasked(&mut self) -> io::Result<()> {
        let term = self.record.term;
        let never_ran = term == 0 || self.unused_term == Some(term);
        if never_ran || self.driver.disks.is_empty() {
            self.handle(Event::Order(Order::Start { alone: false }), &[])?;
            if never_ran && self.node.status().state != State::Empty {
                self.unused_term = Some(self.record.term);
            }
            return Ok(());
        }
        info!(
            vm = self.driver.vm,
            "its disks may have been written before: if no host has the guest, order `start` on the host where \
             it ran last"
        );
        Ok(())
    }

    fn take(&mut self, input: Input) -> io::Result<()> {
        match input {
            Input::Link(link) => self.connect(*link),
            Input::Heard(number, heard) => self.hear(number, heard),
            Input::Report(report) => self.report(report),
            Input::Verdict(incarnation, expected, verdict) => {
                // A term given to an earlier incarnation is lost; the next claim discovers that.
                if incarnation == self.incarnation {
                    self.handle(Event::Verdict { expected, verdict }, &[])?;
                }
                Ok(())
            }
            Input::Order(order, answer) => {
                self.answer = Some(answer);
                self.handle(Event::Order(order), &[])?;
                if let Some(answer) = self.answer.take() {
                    let _ = answer.send(String::new());
                }
                Ok(())
            }
            Input::Abandoned => {
                self.note_unused_term();
                self.handle(Event::ActivationFailed, &[])?;
                self.hang()
            }
            Input::Hangs => self.hang(),
            Input::Xen(..) | Input::Stop => Ok(()),
        }
    }

    fn connect(&mut self, link: Link) -> io::Result<()> {
        self.connections += 1;
        let number = self.connections;
        let sender = self.driver.sender.clone();
        info!(vm = self.driver.vm, peer = link.peer, "connected");
        // A new connection ends the previous one.
        self.close();
        let started = Connection::start(number, link, move |number, heard| {
            let _ = sender.send(Input::Heard(number, heard));
        });
        self.connection = Some(started?);
        self.handle(Event::Connected { connection: number }, &[])
    }

    fn hear(&mut self, number: u64, heard: Heard) -> io::Result<()> {
        // Nothing is put by for a thread that hangs, and the other host must hear that it does.
        let is_flooded = self.hangs.is_none() && self.is_flooded();
        let Some(connection) = self
            .connection
            .as_mut()
            .filter(|each| each.number == number)
        else {
            return Ok(());
        };
        match heard {
            Heard::Frame if is_flooded => {
                warn!(
                    vm = self.driver.vm,
                    "the other host sends more than this host can store: the connection is closed"
                );
                self.disconnect(number)
            }
            Heard::Frame => {
                let Some(bytes) = connection.frame() else {
                    return Ok(());
                };
                let sequence = connection.sequence;
                connection.sequence += 1;
                let frame = Frame { sequence, bytes };
                if self.held.is_some() {
                    self.put_by(number, frame)
                } else {
                    self.read(number, frame)
                }
            }
            Heard::Ended(error) => {
                info!(vm = self.driver.vm, "the connection has ended: {error}");
                self.disconnect(number)
            }
        }
    }

    /// Whether more messages wait than a correct primary sends: it sends a checkpoint only after
    /// the previous one was acknowledged, and one more may have been abandoned half sent.
    fn is_flooded(&self) -> bool {
        let bytes_max = self.driver.settings.checkpoint_bytes_max.saturating_mul(2);
        self.driver.worker.waiting_bytes() > bytes_max
    }

    fn read(&mut self, number: u64, frame: Frame) -> io::Result<()> {
        match message::decode(&frame.bytes, frame.sequence) {
            // A checkpoint must be checked before it is acknowledged.
            Ok(Message::End { .. }) => {
                self.checks += 1;
                let check = self.checks;
                self.driver.worker.tell(Command::Check(check));
                self.checks_since_ns.get_or_insert(now_ns());
                self.held = Some(End { check, frame });
                Ok(())
            }
            Ok(message) => self.receive(number, message),
            Err(refused) => self.refuse(number, &refused),
        }
    }

    fn refuse(&mut self, number: u64, refused: &dyn Display) -> io::Result<()> {
        let vm = &self.driver.vm;
        warn!(vm, "a message of the other host is refused: {refused}");
        self.disconnect(number)
    }

    /// Handles a frame that arrives while the guest's thread checks a checkpoint, which may take
    /// long.
    fn put_by(&mut self, number: u64, frame: Frame) -> io::Result<()> {
        match message::decode(&frame.bytes, frame.sequence) {
            // A request to disarm ends the check.
            Ok(message @ Message::Disarm { .. }) => {
                self.held = None;
                self.waiting.clear();
                self.receive(number, message)
            }
            Ok(Message::Heartbeat) => self.receive(number, Message::Heartbeat),
            Ok(_) if self.waiting.len() == WAITING_MAX => {
                self.refuse(number, &"it is not waiting for an acknowledgement")
            }
            // Every frame is a sign of life.
            Ok(_) => {
                self.waiting.push_back(frame);
                self.receive(number, Message::Heartbeat)
            }
            Err(refused) => self.refuse(number, &refused),
        }
    }

    /// Handles the result of a check.
    fn checked(&mut self, check: u64, result: Result<(), String>) -> io::Result<()> {
        self.checks_since_ns = (check < self.checks).then(now_ns);
        let Some(End { frame, .. }) = self.held.take_if(|end| end.check == check) else {
            return Ok(());
        };
        let Some(number) = self.connection.as_ref().map(|each| each.number) else {
            return Ok(());
        };
        match result {
            Ok(()) => {
                let message = message::decode(&frame.bytes, frame.sequence);
                self.receive(number, message.expect("it was decoded before"))?;
            }
            Err(reason) => {
                warn!(vm = self.driver.vm, "a checkpoint is unusable: {reason}");
                self.handle(Event::Unusable, &[])?;
            }
        }
        while let (None, Some(frame)) = (&self.held, self.waiting.pop_front()) {
            self.read(number, frame)?;
        }
        Ok(())
    }

    fn receive(&mut self, connection: u64, message: Message<'_>) -> io::Result<()> {
        let mut data: &[u8] = &[];
        match message {
            Message::Chunk(_, bytes) | Message::Sums(_, bytes) => data = bytes,
            // The guest's process is prepared before the first checkpoint arrives.
            Message::Hello(hello)
                if hello.standing == Standing::Primary
                    && self.node.status().state == State::Empty =>
            {
                self.driver.worker.tell(Command::Prepare);
            }
            Message::Acknowledge(_) => {
                reach(Step::Acknowledged);
                let transfer_ns = u64::try_from(now_ns() - self.sent_at_ns).unwrap_or(0);
                let mut shared = self
                    .driver
                    .shared
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                shared.acknowledged_at_ns = now_ns();
                shared.transfer.saturating_record(transfer_ns);
            }
            _ => {}
        }
        self.handle(
            Event::Received {
                connection,
                message,
            },
            data,
        )
    }

    fn close(&mut self) {
        self.connection = None;
        self.held = None;
        self.waiting.clear();
    }

    fn disconnect(&mut self, number: u64) -> io::Result<()> {
        self.close();
        self.driver.dial();
        self.handle(Event::Disconnected { connection: number }, &[])
    }

    fn report(&mut self, report: Report) -> io::Result<()> {
        let vm = self.driver.vm.clone();
        match &report {
            Report::Captured { .. } => (self.capture_at_ns, self.failing_since_ns) = (None, None),
            Report::CaptureFailed { .. } => {
                let asked_ns = self.capture_at_ns.take();
                self.failing_since_ns = self.failing_since_ns.or(asked_ns);
            }
            _ => {}
        }
        match report {
            Report::Captured {
                number,
                ram_bytes,
                device_bytes,
                disk_bytes,
                disk_left_bytes,
                pages,
                missed,
                timing,
            } => {
                {
                    let mut shared = self
                        .driver
                        .shared
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner);
                    let bytes = ram_bytes + device_bytes + disk_bytes;
                    shared.note_capture(bytes, pages, missed, &timing);
                    shared.disk_bytes += disk_bytes;
                    shared.disk_left_bytes = disk_left_bytes;
                }
                let pause_ns = timing.pause_ns as i64;
                self.handle(
                    Event::Captured {
                        number,
                        ram_bytes,
                        device_bytes,
                        disk_bytes,
                        disk_left_bytes,
                        pause_ns,
                    },
                    &[],
                )
            }
            Report::CaptureFailed {
                number,
                reason,
                is_disk,
            } => {
                warn!(vm, "a checkpoint could not be taken: {reason}");
                if is_disk && self.has_heir() {
                    return self.lose(&reason);
                }
                self.handle(Event::CaptureFailed { number }, &[])?;
                self.note(format!("a checkpoint could not be taken: {reason}"));
                Ok(())
            }
            Report::DiskFailed(reason) => {
                error!(vm, "a disk fails: {reason}");
                // The guest is told of the error where nothing better can be done.
                let is_standby = matches!(
                    self.node.status().state,
                    State::Empty | State::Hanging | State::Armed | State::Refused
                );
                if is_standby || self.has_heir() {
                    self.lose(&reason)?;
                }
                self.note(format!("a disk fails: {reason}"));
                Ok(())
            }
            Report::DiskHangs(reason) => {
                error!(vm, "a disk hangs: {reason}");
                let is_standby = matches!(
                    self.node.status().state,
                    State::Empty | State::Armed | State::Claiming | State::Refused
                );
                if is_standby && self.hangs.is_none() {
                    self.hang()?;
                }
                self.note(format!("a disk hangs: {reason}"));
                Ok(())
            }
            Report::Back(number) => {
                if self.hangs.take_if(|hang| *hang == number).is_none() {
                    return Ok(());
                }
                self.handle(Event::Recovers, &[])
            }
            Report::Activated if self.node.status().state != State::Activating => {
                error!(vm, "a guest runs that was given up: it is ended");
                let (answer, _) = channel();
                self.driver.worker.tell(Command::Destroy(answer));
                Ok(())
            }
            Report::Activated => {
                self.unused_term = None;
                self.handle(Event::Activated, &[])?;
                self.driver.gate.thaw();
                Ok(())
            }
            Report::ActivationFailed(reason) => {
                error!(vm, "the guest cannot run here: {reason}");
                self.note_unused_term();
                self.handle(Event::ActivationFailed, &[])
            }
            Report::Checked(number, result) => self.checked(number, result),
            Report::Off => self.handle(Event::GuestOff, &[]),
            Report::Gone(reason) => self.lose(&reason),
        }
    }

    /// Notes that a guest which had never run could not be made to run: a witness may have given
    /// another term than was expected.
    fn note_unused_term(&mut self) {
        self.unused_term = self.unused_term.map(|_| self.record.term);
    }

    /// Whether the other host can go on with the guest, lives, and was not told to forget it.
    fn has_heir(&self) -> bool {
        self.node.status().has_heir
    }

    /// Handles the end of QEMU, or a guest that cannot go on here. A standby has nothing to take
    /// over with any more. A primary behaves as one whose host has failed: it begins anew, and the
    /// other side takes over for lack of signs of life.
    fn lose(&mut self, reason: &str) -> io::Result<()> {
        error!(vm = self.driver.vm, "the guest is lost here: {reason}");
        match self.node.status().state {
            State::Empty | State::Hanging | State::Armed | State::Claiming | State::Refused => {
                self.handle(Event::Unusable, &[])
            }
            // This is about an earlier QEMU. The guest's thread has been told to let the guest run,
            // and says what became of that: until then it may run.
            State::Activating => Ok(()),
            _ => {
                self.driver.gate.set(Output::Closed);
                self.close();
                // The guest's thread may hang, and does this before anything else then.
                let (answer, _) = channel();
                self.driver.worker.tell(Command::Destroy(answer));
                (self.capture_at_ns, self.failing_since_ns) = (None, None);
                let Driver { settings, host, .. } = self.driver;
                self.incarnation = incarnation()?;
                self.node = Node::new(settings, host, self.incarnation, self.record, now_ns());
                self.driver.dial();
                self.hang()
            }
        }
    }

    fn handle(&mut self, event: Event<'_>, data: &[u8]) -> io::Result<()> {
        let mut actions = mem::take(&mut self.actions);
        self.node.handle(now_ns(), event, &mut actions);
        for action in actions.drain(..) {
            self.carry_out(action, data)?;
        }
        self.actions = actions;
        Ok(())
    }

    fn carry_out(&mut self, action: Action, data: &[u8]) -> io::Result<()> {
        let Driver { worker, gate, .. } = &self.driver;
        match action {
            Action::Persist(record) => {
                self.record = record;
                if self.node.status().state != State::Activating {
                    self.unused_term = None; // The other host's term: the guest may run there.
                }
                self.driver.stored.write(record)?;
            }
            Action::Send(message) => self.send(Outgoing::Message(message)),
            Action::SendCheckpoint(header) => {
                let (into, all) = sync_channel(PARTS_MAX);
                self.sent_at_ns = now_ns();
                worker.tell(Command::Send(header, into));
                self.send(Outgoing::All(all));
            }
            Action::Disconnect => {
                self.close();
                self.driver.dial();
            }
            Action::Capture { number, full, arms } => {
                self.capture_at_ns = Some(now_ns());
                worker.tell(Command::Capture { number, full, arms });
            }
            Action::Sum(id) => {
                let connection = self.connection.as_ref();
                if let Some(connection) = connection.filter(|_| !self.driver.disks.is_empty()) {
                    worker.tell(Command::Sum(id, connection.sender()));
                }
            }
            Action::Compare => worker.tell(Command::Compare(data.to_vec())),
            Action::Pause => worker.tell(Command::Pause),
            Action::Resume => {
                worker.tell(Command::Resume);
                gate.thaw();
            }
            Action::Destroy => {
                if !worker.destroy() {
                    let _ = self.driver.sender.send(Input::Hangs);
                }
            }
            Action::Output(output) => {
                gate.set(output);
                if !self.driver.disks.is_empty() {
                    let waits = matches!(output, Output::Hold | Output::Until { .. });
                    worker.tell(Command::Bound(waits));
                }
            }
            Action::Release { through } => {
                gate.release(through);
                reach(Step::Released);
            }
            Action::Stage(part) => worker.tell(Command::Stage(part, data.to_vec())),
            Action::Discard => worker.tell(Command::Discard),
            Action::Commit(_) => worker.tell(Command::Commit),
            Action::Forget => worker.tell(Command::Forget),
            Action::Activate(_) => {
                self.permit = Permit::default();
                worker.tell(Command::Activate(self.permit.clone()));
                self.unused_term = None; // The guest has run before.
            }
            Action::Boot => {
                self.permit = Permit::default();
                worker.tell(Command::Boot(self.permit.clone()));
            }
            Action::Abandon => {
                if self.permit.take() {
                    let _ = self.driver.sender.send(Input::Abandoned);
                }
            }
            Action::Announce => gate.announce(),
            Action::Claim { expected } => self.claim(expected),
            Action::Say(notice) => self.say(notice),
        }
        Ok(())
    }

    /// Asks the witness in a thread of its own, so that no epoch waits for the answer.
    fn claim(&self, expected: u64) {
        let Some(witness) = self.driver.witness.clone() else {
            return;
        };
        let (vm, sender) = (self.driver.vm.clone(), self.driver.sender.clone());
        let incarnation = self.incarnation;
        let ask = move || {
            let verdict = witness
                .claim(expected, incarnation)
                .unwrap_or_else(|reason| {
                    warn!(vm, "the witness: {reason}");
                    Verdict::Unknown
                });
            let _ = sender.send(Input::Verdict(incarnation, expected, verdict));
        };
        let started = thread::Builder::new().name("witness".into()).spawn(ask);
        if let Err(error) = started {
            warn!(vm = self.driver.vm, "cannot ask the witness: {error}");
            let silent = Input::Verdict(incarnation, expected, Verdict::Unknown);
            let _ = self.driver.sender.send(silent);
        }
    }

    fn send(&self, outgoing: Outgoing) {
        if let Some(connection) = &self.connection {
            connection.send(outgoing);
        }
    }

    fn say(&mut self, notice: Notice) {
        let vm = &self.driver.vm;
        match notice {
            Notice::Protected(_) => reach(Step::Protected),
            Notice::Alone => reach(Step::Alone),
            _ => {}
        }
        match notice {
            Notice::Impossible(why) => match &self.answer.take() {
                Some(answer) => drop(answer.send(why.into())),
                None => debug!(vm, "{notice}"),
            },
            Notice::Waiting
            | Notice::AtRisk
            | Notice::Stalled { .. }
            | Notice::CapturesFail { .. }
            | Notice::ActivationFailed
            | Notice::ActivationLate
            | Notice::Hangs
            | Notice::Fenced { .. } => error!(vm, "{notice}"),
            Notice::Alone
            | Notice::Lost
            | Notice::Disagrees
            | Notice::Rejected(_)
            | Notice::CopiesLater { .. } => warn!(vm, "{notice}"),
            _ => info!(vm, "{notice}"),
        }
        let start_in_ns = match notice {
            Notice::Greeted { .. } | Notice::Recovers => Some(0),
            Notice::ActivationFailed => Some(START_AGAIN_NS),
            _ => None,
        };
        if let (Some(start_in_ns), true) = (start_in_ns, self.driver.begins_here) {
            self.start_at_ns = Some(now_ns() + start_in_ns);
        }
        self.note(notice.to_string());
    }

    /// Tells the operator.
    fn note(&self, notice: String) {
        let mut shared = self
            .driver
            .shared
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        shared.notice = notice;
    }

    fn show(&self) {
        let status = self.node.status();
        let mut shared = self
            .driver
            .shared
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        shared.status = Some(status);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::{FrameStream, Port};
    use crate::guest::Timing;
    use crate::guest::disk::tests::disk;
    use crate::protocol::interval::Bounds;
    use crate::protocol::{CheckpointId, Part};
    use crate::protocol::{Mode, StandbyLost};
    use std::os::unix::net::UnixStream;

    fn run(directory: &std::path::Path) -> (Run, Receiver<Command>) {
        let (stored, record) = Stored::open(directory, "media").unwrap();
        let (outside, _) = UnixStream::pair().unwrap();
        let outside = Port::Stream(FrameStream::new(outside).unwrap());
        let settings = Settings {
            vm: 1,
            mode: Mode::Net,
            standby_lost: StandbyLost::Stop,
            witness: false,
            heartbeat_ns: 50_000_000,
            detection_ns: 3_600_000_000_000,
            detection_min_ns: 3_600_000_000_000,
            lease_ns: 800_000_000,
            settling_ns: 3_200_000_000,
            stall_ns: 3_600_000_000_000,
            checkpoint_bytes_max: 1 << 20,
            drift_ppm: 200,
            interval: Bounds {
                minimum_ns: 25_000_000,
                maximum_ns: 3_600_000_000_000,
                pause_share_percent: 20,
            },
        };
        let (sender, inputs) = channel();
        let (worker, commands) = Worker::that_is_told();
        let driver = Driver {
            vm: "media".into(),
            settings,
            host: 1,
            begins_here: false,
            stored,
            disks: Vec::new(),
            gate: Arc::new(Gate::start(outside, [0; 6], &[], 0).unwrap()),
            worker,
            inputs,
            sender,
            witness: None,
            dialler: None,
            shared: Shared::default(),
        };
        let run = Run {
            node: Node::new(settings, 1, 1, record, now_ns()),
            driver,
            incarnation: 1,
            record,
            connection: None,
            connections: 2,
            actions: Vec::new(),
            answer: None,
            sent_at_ns: 0,
            capture_at_ns: None,
            failing_since_ns: None,
            permit: Permit::default(),
            start_at_ns: None,
            unused_term: None,
            held: None,
            waiting: VecDeque::new(),
            checks: 2,
            checks_since_ns: None,
            hangs: None,
            hangs_so_far: 0,
        };
        (run, commands)
    }

    #[test]
    fn what_waits_to_be_put_by_is_bounded() {
        let directory =
            std::env::temp_dir().join(format!("laxity-protect-flood-{}", std::process::id()));
        let (run, commands) = run(&directory);
        let part = vec![0; 1 << 20];
        for _ in 0..2 {
            run.driver
                .worker
                .tell(Command::Stage(Part::Ram, part.clone()));
            assert!(!run.is_flooded());
        }
        run.driver.worker.tell(Command::Stage(Part::Ram, vec![0]));
        assert!(run.is_flooded());
        assert_eq!(commands.try_iter().count(), 3);
        std::fs::remove_dir_all(&directory).unwrap();
    }

    /// A guest with a standby that has acknowledged some checkpoints, and could take over from the
    /// second one on.
    fn primary(name: &str, acknowledged: u64) -> (Run, Receiver<Command>) {
        let name = format!("laxity-protect-{name}-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let (mut run, commands) = run(&directory);
        std::fs::remove_dir_all(&directory).unwrap();
        std::fs::create_dir_all(&directory).unwrap();
        run.handle(Event::Order(Order::Start { alone: true }), &[])
            .unwrap();
        run.handle(Event::Activated, &[]).unwrap();
        greet(&mut run);
        assert_eq!(run.node.status().state, State::Copying);
        for number in 1..=acknowledged {
            run.report(captured(number)).unwrap();
            let term = run.record.term;
            hear(
                &mut run,
                Message::Acknowledge(CheckpointId { term, number }),
            );
            await_capture(&mut run);
        }
        std::fs::remove_dir_all(&directory).unwrap();
        (run, commands)
    }

    /// Connects to another host that has nothing.
    fn greet(run: &mut Run) {
        run.handle(Event::Connected { connection: 3 }, &[]).unwrap();
        let Settings {
            mode,
            witness,
            lease_ns,
            ..
        } = run.driver.settings;
        let hello = message::Hello {
            vm: 1,
            mode,
            witness,
            lease_ns,
            host: 2,
            incarnation: 2,
            term: run.record.term,
            standing: Standing::Standby {
                held: None,
                claiming: false,
                unheard: false,
            },
            connection: 1,
            answers: Some(3),
        };
        hear(run, Message::Hello(hello));
    }

    fn hear(run: &mut Run, message: Message<'static>) {
        let connection = 3;
        let received = Event::Received {
            connection,
            message,
        };
        run.handle(received, &[]).unwrap();
    }

    /// Waits until the next checkpoint is asked for.
    fn await_capture(run: &mut Run) {
        while run.capture_at_ns.is_none() {
            thread::sleep(Duration::from_millis(5));
            run.handle(Event::Timer, &[]).unwrap();
        }
    }

    fn captured(number: u64) -> Report {
        Report::Captured {
            number,
            ram_bytes: 1,
            device_bytes: 1,
            disk_bytes: 0,
            disk_left_bytes: 0,
            pages: 1,
            missed: 0,
            timing: Timing::default(),
        }
    }

    #[test]
    fn a_disk_that_fails_is_the_loss_of_a_guest_that_goes_on_elsewhere() {
        let reports = [
            || Report::DiskFailed("it is broken".into()),
            || Report::CaptureFailed {
                number: 3,
                reason: "it is broken".into(),
                is_disk: true,
            },
        ];
        for report in reports {
            let (mut run, commands) = primary("disk-protected", 2);
            assert_eq!(run.node.status().state, State::Protected);
            run.report(report()).unwrap();
            assert_eq!(run.node.status().state, State::Hanging);
            run.report(Report::Back(1)).unwrap();
            assert_eq!(run.node.status().state, State::Empty);
            let ends = |command: Command| matches!(command, Command::Destroy(_));
            assert!(commands.try_iter().any(ends));
        }
    }

    #[test]
    fn a_checkpoint_without_end_is_the_loss_of_a_guest_that_goes_on_elsewhere() {
        for is_protected in [true, false] {
            let (mut run, commands) = primary("hangs", if is_protected { 2 } else { 0 });
            let begun_ns = run.capture_at_ns.expect("one is being taken");
            run.look_at_capture().unwrap();
            assert_ne!(run.node.status().state, State::Hanging);
            run.capture_at_ns = Some(begun_ns - HANGS_AFTER_NS);
            run.look_at_capture().unwrap();
            assert_eq!(run.node.status().state == State::Hanging, is_protected);
            let ends = |command: Command| matches!(command, Command::Destroy(_));
            assert_eq!(commands.try_iter().any(ends), is_protected);
        }
    }

    fn ends(command: &Command) -> bool {
        matches!(command, Command::Destroy(_))
    }

    fn capture_fails(run: &mut Run) {
        let reason = "QEMU does not".into();
        let report = Report::CaptureFailed {
            number: 3,
            reason,
            is_disk: false,
        };
        run.report(report).unwrap();
    }

    #[test]
    fn checkpoints_that_cannot_be_taken_are_the_loss_of_a_guest_that_goes_on_elsewhere() {
        let (mut run, commands) = primary("captures", 2);
        capture_fails(&mut run);
        let since_ns = run.failing_since_ns.expect("since it was asked for");
        // The next one was asked for a moment ago.
        (run.failing_since_ns, run.capture_at_ns) =
            (Some(since_ns - HANGS_AFTER_NS), Some(now_ns()));
        run.look_at_capture().unwrap();
        assert_eq!(run.node.status().state, State::Hanging);
        assert!(commands.try_iter().any(|command| ends(&command)));
    }

    #[test]
    fn a_guest_is_not_ended_whose_standby_was_told_to_forget_it() {
        let failures: [fn(&mut Run); 3] = [
            |run| {
                let broken = "it is broken".into();
                run.report(Report::DiskFailed(broken)).unwrap();
            },
            |run| {
                run.capture_at_ns = Some(now_ns() - HANGS_AFTER_NS);
                run.look_at_capture().unwrap();
            },
            |run| {
                capture_fails(run);
                run.failing_since_ns = Some(now_ns() - HANGS_AFTER_NS);
                run.look_at_capture().unwrap();
                assert_eq!(
                    run.failing_since_ns, None,
                    "it would count for the next standby"
                );
            },
        ];
        for fails in failures {
            let (mut run, commands) = primary("disarmed", 2);
            run.handle(Event::Order(Order::Unprotect), &[]).unwrap();
            fails(&mut run);
            assert!(!commands.try_iter().any(|command| ends(&command)));
            assert_eq!(run.node.status().state, State::Protected);
        }
    }

    /// A host that has been told to boot the guest, and the permission to.
    fn activating(name: &str) -> (Run, Receiver<Command>, Permit) {
        let name = format!("laxity-protect-{name}-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let (mut run, commands) = run(&directory);
        run.handle(Event::Order(Order::Start { alone: true }), &[])
            .unwrap();
        std::fs::remove_dir_all(&directory).unwrap();
        assert_eq!(run.node.status().state, State::Activating);
        let permit = commands.try_iter().find_map(|command| match command {
            Command::Boot(permit) => Some(permit),
            _ => None,
        });
        (run, commands, permit.unwrap())
    }

    #[test]
    fn a_guest_is_given_up_unless_it_has_begun_to_run() {
        let (mut run, commands, permit) = activating("abandons");
        run.carry_out(Action::Abandon, &[]).unwrap();
        assert!(!permit.take(), "the guest's thread may not begin any more");
        let input = run.driver.inputs.try_recv().unwrap();
        run.take(input).unwrap();
        assert_eq!(run.node.status().state, State::Hanging);
        assert!(matches!(commands.try_iter().last(), Some(Command::Ask(1))));
        run.report(Report::Back(1)).unwrap();
        assert_eq!(run.node.status().state, State::Empty);

        let (mut run, _commands, permit) = activating("begins");
        assert!(permit.take());
        run.carry_out(Action::Abandon, &[]).unwrap();
        assert!(run.driver.inputs.try_recv().is_err());
        run.report(Report::Activated).unwrap();
        assert_eq!(run.node.status().state, State::Alone);
    }

    #[test]
    fn the_end_of_an_earlier_guest_says_nothing_of_one_that_is_about_to_run() {
        let (mut run, _commands, _permit) = activating("earlier");
        run.report(Report::Gone("it was killed".into())).unwrap();
        run.report(Report::Activated).unwrap();
        assert_eq!(run.node.status().state, State::Alone);
    }

    #[test]
    fn a_guest_that_nobody_waits_for_is_ended() {
        let directory =
            std::env::temp_dir().join(format!("laxity-protect-stray-{}", std::process::id()));
        let (mut run, commands) = run(&directory);
        run.report(Report::Activated).unwrap();
        assert_eq!(run.node.status().state, State::Empty);
        assert!(commands.try_iter().any(|command| ends(&command)));
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_checkpoint_that_is_not_put_by_is_given_up() {
        let directory =
            std::env::temp_dir().join(format!("laxity-protect-put-by-{}", std::process::id()));
        let (mut run, commands) = run(&directory);
        let end = Message::End {
            id: CheckpointId { term: 1, number: 1 },
            checksum: 0,
        };
        let mut bytes = Vec::new();
        message::encode(&end, 0, &mut bytes);
        run.read(3, Frame { sequence: 0, bytes }).unwrap();
        run.look_at_thread().unwrap();
        assert_eq!(run.node.status().state, State::Empty);
        let since_ns = run.checks_since_ns.expect("the thread is asked");
        run.checks_since_ns = Some(since_ns - HANGS_AFTER_NS);
        // The connection that it came on may be gone.
        run.close();
        run.look_at_thread().unwrap();
        assert_eq!(run.node.status().state, State::Hanging);
        let asks = |command: &Command| matches!(command, Command::Ask(_));
        assert_eq!(commands.try_iter().filter(asks).count(), 1);
        run.look_at_thread().unwrap();
        assert_eq!(commands.try_iter().count(), 0, "that is known");
        run.report(Report::Checked(3, Ok(()))).unwrap();
        run.report(Report::Back(1)).unwrap();
        assert_eq!(run.node.status().state, State::Empty);
        assert_eq!(run.checks_since_ns, None);
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_checkpoint_that_leaves_blocks_does_not_arm_a_standby() {
        for left_bytes in [0, 4096] {
            let (mut run, commands) = primary("left", 1);
            let Report::Captured {
                number,
                ram_bytes,
                device_bytes,
                disk_bytes,
                pages,
                missed,
                timing,
                ..
            } = captured(2)
            else {
                unreachable!()
            };
            let asked = commands.try_iter().last();
            assert!(matches!(asked, Some(Command::Capture { arms: true, .. })));
            run.report(Report::Captured {
                number,
                ram_bytes,
                device_bytes,
                disk_bytes,
                disk_left_bytes: left_bytes,
                pages,
                missed,
                timing,
            })
            .unwrap();
            let sent = commands.try_iter().find_map(|command| match command {
                Command::Send(header, _) => Some(header),
                _ => None,
            });
            assert_eq!(sent.unwrap().arms, left_bytes == 0);
            let term = run.record.term;
            hear(
                &mut run,
                Message::Acknowledge(CheckpointId { term, number }),
            );
            await_capture(&mut run);
            let Some(Command::Capture { arms, .. }) = commands.try_iter().last() else {
                panic!("a checkpoint is asked for");
            };
            assert_eq!(arms, left_bytes == 0);
        }
    }

    #[test]
    fn a_disk_that_fails_does_not_end_the_only_guest() {
        let (mut run, commands) = primary("disk-copying", 0);
        run.report(Report::DiskFailed("it is broken".into()))
            .unwrap();
        let number = 1;
        let reason = "it is broken".into();
        let is_disk = true;
        run.report(Report::CaptureFailed {
            number,
            reason,
            is_disk,
        })
        .unwrap();
        assert_eq!(run.node.status().state, State::Alone, "nothing is copied");
        let ends = |command: &Command| matches!(command, Command::Destroy(_));
        assert!(!commands.try_iter().any(|command| ends(&command)));
        let shared = run.driver.shared.lock().unwrap();
        assert!(shared.notice.contains("it is broken"), "{}", shared.notice);
    }

    #[test]
    fn a_first_boot_that_fails_is_tried_again() {
        let directory =
            std::env::temp_dir().join(format!("laxity-protect-boots-{}", std::process::id()));
        let (mut run, commands) = run(&directory);
        run.driver.disks = vec![Arc::new(disk("boots"))];
        greet(&mut run);
        let boots = |commands: &Receiver<Command>| {
            let is_boot = |command: &Command| matches!(command, Command::Boot(_));
            commands.try_iter().filter(is_boot).count()
        };
        for _ in 0..2 {
            run.start_unasked().unwrap();
            assert_eq!(boots(&commands), 1);
            run.report(Report::ActivationFailed("there is no room".into()))
                .unwrap();
            greet(&mut run);
        }
        // The other host has had the guest since, and then this one could not run it.
        let term = run.record.term + 1;
        run.carry_out(Action::Persist(Record { term }), &[])
            .unwrap();
        run.start_unasked().unwrap();
        assert_eq!(boots(&commands), 0);
        run.report(Report::ActivationFailed("its image is damaged".into()))
            .unwrap();
        greet(&mut run);
        run.start_unasked().unwrap();
        assert_eq!(boots(&commands), 0);
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn what_is_said_of_an_earlier_checkpoint_is_not_about_this_one() {
        let directory =
            std::env::temp_dir().join(format!("laxity-protect-driver-{}", std::process::id()));
        let (mut run, _commands) = run(&directory);
        run.held = Some(End {
            check: 2,
            frame: Frame {
                sequence: 0,
                bytes: Vec::new(),
            },
        });
        for said in [Ok(()), Err("it is damaged".into())] {
            run.report(Report::Checked(1, said)).unwrap();
            assert!(run.held.is_some(), "the other end still waits for its own");
        }
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
