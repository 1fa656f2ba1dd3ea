//! The thread that handles a guest, one command after the other.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use tracing::{error, info, warn};

use super::connection::Outgoing;
use super::faults::{Step, reach};
use crate::gate::Gate;
use crate::guest::disk::{self, Disk, Taken};
use crate::guest::patches::{Staged, Writer};
use crate::guest::{Captured, GuestError, PAGE_BYTES, Patrol, Permit, Qemu, Specification, Timing};
use crate::protocol::checkpoint::Digest;
use crate::protocol::message::CHUNK_BYTES_MAX;
use crate::protocol::{CheckpointId, Header, Message, Part};

/// Size of one message of a checkpoint's memory, so that signs of life do not wait behind more.
const BATCH_BYTES: usize = 256 << 10;
const BATCH_PAGES: usize = BATCH_BYTES / PAGE_BYTES;
/// Interval at which the thread checks whether the guest has ended by itself.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Longest time that an end waits for what the thread is doing.
const DESTROY_TIMEOUT: Duration = Duration::from_secs(20);
/// Time after which this thread counts as one that hangs for a disk: none that works needs so long for
/// what one epoch has written.
pub const HANGS_AFTER: Duration = Duration::from_secs(30);
/// Time after which a flush counts as one that hangs. It writes what has come since the last one, of a
/// first copy as much as Linux lets wait, which a slow disk takes minutes for.
const FLUSH_HANGS_AFTER: Duration = Duration::from_secs(300);

/// A command for the thread, named like the corresponding
/// [`protocol::Action`](crate::protocol::Action).
#[derive(Debug)]
pub enum Command {
    /// Prepares a guest that waits for a state to continue from.
    Prepare,
    /// [`Action::Boot`](crate::protocol::Action::Boot), unless the permission was taken before.
    Boot(Permit),
    /// [`Action::Activate`](crate::protocol::Action::Activate), unless the permission was taken
    /// before.
    Activate(Permit),
    /// [`Action::Capture`](crate::protocol::Action::Capture).
    Capture {
        /// Number of the checkpoint.
        number: u64,
        /// Whether to capture all of the memory.
        full: bool,
        /// Whether to capture all that differs on disks.
        arms: bool,
    },
    /// [`Action::Compare`](crate::protocol::Action::Compare) with these bytes.
    Compare(Vec<u8>),
    /// [`Action::Sum`](crate::protocol::Action::Sum): sends the sums of the disks, from a thread of
    /// its own so that no checkpoint waits for them.
    Sum(CheckpointId, Sender<Outgoing>),
    /// Says whether output waits for checkpoints, so that an epoch's writes to disks are bounded.
    Bound(bool),
    /// Sends the last capture with this header.
    Send(Header, SyncSender<Outgoing>),
    /// Stages the bytes of a part.
    Stage(Part, Vec<u8>),
    /// Reports whether everything staged over the connection of this number can be committed.
    Check(u64),
    /// Reports with this number when all earlier commands have been carried out and no disk hangs.
    Ask(u64),
    /// [`Action::Discard`](crate::protocol::Action::Discard).
    Discard,
    /// [`Action::Commit`](crate::protocol::Action::Commit).
    Commit,
    /// [`Action::Forget`](crate::protocol::Action::Forget).
    Forget,
    /// [`Action::Pause`](crate::protocol::Action::Pause).
    Pause,
    /// [`Action::Resume`](crate::protocol::Action::Resume).
    Resume,
    /// Ends the guest and confirms.
    Destroy(Sender<()>),
}

/// A report of the thread.
#[derive(Debug)]
pub enum Report {
    /// [`protocol::Event::Captured`](crate::protocol::Event::Captured); the guest runs again, and
    /// its output is held.
    Captured {
        /// Number of the checkpoint.
        number: u64,
        /// Bytes of its memory part.
        ram_bytes: u64,
        /// Bytes of its device part.
        device_bytes: u64,
        /// Bytes of its disks' part.
        disk_bytes: u64,
        /// Bytes of the disks that are left for coming checkpoints.
        disk_left_bytes: u64,
        /// Number of changed pages.
        pages: u64,
        /// Number of changed pages that only a comparison found.
        missed: u64,
        /// Times of the capture's steps.
        timing: Timing,
    },
    /// The capture failed.
    CaptureFailed {
        /// Number of the checkpoint.
        number: u64,
        /// Reason of the failure.
        reason: String,
        /// Whether the image of a disk is the reason.
        is_disk: bool,
    },
    /// The image of a disk has failed, for the reason given.
    DiskFailed(String),
    /// Whether everything staged over the connection of this number can be committed, or why not.
    Checked(u64, Result<(), String>),
    /// A disk hangs, as is told.
    DiskHangs(String),
    /// The answer to [`Command::Ask`] with this number.
    Back(u64),
    /// The guest runs here.
    Activated,
    /// The guest could not be made to run here.
    ActivationFailed(String),
    /// The guest has ended by itself.
    Off,
    /// QEMU has ended together with the guest.
    Gone(String),
}

/// Handle of the thread.
#[derive(Debug)]
pub struct Worker {
    commands: Sender<Command>,
    /// Bytes that the thread was told to stage and has not taken yet.
    waiting_bytes: Arc<AtomicU64>,
}

impl Worker {
    /// Starts the thread. `report` is called from it.
    ///
    /// # Errors
    ///
    /// If there is no room for a thread.
    pub fn start(
        guest: Specification,
        disks: Vec<Arc<Disk>>,
        gate: Arc<Gate>,
        report: impl Fn(Report) + Send + 'static,
    ) -> std::io::Result<Worker> {
        let (sender, commands) = channel();
        let flushes = start_flushing(disks.clone())?;
        let state = State::new(guest, disks, gate, flushes, report);
        let waiting_bytes = state.waiting_bytes.clone();
        thread::Builder::new()
            .name("guest".into())
            .spawn(move || state.serve(&commands))?;
        Ok(Worker {
            commands: sender,
            waiting_bytes,
        })
    }

    /// A handle whose commands are only passed on.
    #[cfg(test)]
    pub fn that_is_told() -> (Worker, Receiver<Command>) {
        let (sender, received) = channel();
        let worker = Worker {
            commands: sender,
            waiting_bytes: Arc::default(),
        };
        (worker, received)
    }

    /// Sends a command, which is carried out after all earlier ones.
    pub fn tell(&self, command: Command) {
        if let Command::Stage(_, data) | Command::Compare(data) = &command {
            self.waiting_bytes
                .fetch_add(data.len() as u64, Ordering::Relaxed);
        }
        self.commands
            .send(command)
            .expect("the thread outlives its owner");
    }

    /// Bytes that the thread was told to stage and has not taken yet.
    pub fn waiting_bytes(&self) -> u64 {
        self.waiting_bytes.load(Ordering::Relaxed)
    }

    /// Ends the guest, and waits until that is done, but not for a disk that hangs. Returns whether
    /// it is done.
    pub fn destroy(&self) -> bool {
        let (answer, answered) = channel();
        self.tell(Command::Destroy(answer));
        let is_late = answered.recv_timeout(DESTROY_TIMEOUT) == Err(RecvTimeoutError::Timeout);
        if is_late {
            warn!("a guest could not be ended yet, because a disk hangs");
        }
        !is_late
    }
}

/// The last capture.
struct Last {
    writer: Writer,
    captured: Captured,
    is_full: bool,
    /// Batches of an incremental capture.
    batches: Vec<Arc<Vec<u8>>>,
    device: Arc<Vec<u8>>,
    disks: Vec<Arc<Vec<u8>>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stands {
    /// The guest does not exist, or waits to be continued.
    Waiting,
    Running,
    /// The guest was told to pause.
    Paused,
    /// The guest has ended, and that was reported.
    Off,
}

struct State {
    waiting_bytes: Arc<AtomicU64>,
    guest: Specification,
    gate: Arc<Gate>,
    report: Box<dyn Fn(Report) + Send>,
    qemu: Option<Qemu>,
    stands: Stands,
    last: Option<Last>,
    staged: Staged,
    staged_device: Vec<u8>,
    staged_disks: disk::Staged,
    disks: Vec<Arc<Disk>>,
    /// Asks for a flush of the disks beside everything else.
    flushes: SyncSender<()>,
    staging_failed: Option<String>,
    /// Device state of the current checkpoint, whose memory is QEMU's.
    device: Option<Vec<u8>>,
    /// The pages that are compared in the next pause, and when the last one was.
    patrol: Patrol,
    patrolled: Instant,
    /// Whether a disk hangs, which was reported.
    disk_hangs: bool,
    /// Time after which a flush counts as one that hangs.
    flush_hangs_after: Duration,
    /// Number of a [`Command::Ask`] without an answer.
    asked: Option<u64>,
}

impl State {
    fn new(
        guest: Specification,
        disks: Vec<Arc<Disk>>,
        gate: Arc<Gate>,
        flushes: SyncSender<()>,
        report: impl Fn(Report) + Send + 'static,
    ) -> State {
        State {
            waiting_bytes: Arc::default(),
            guest,
            gate,
            report: Box::new(report),
            qemu: None,
            stands: Stands::Waiting,
            last: None,
            staged: Staged::default(),
            staged_device: Vec::new(),
            staged_disks: disk::Staged::default(),
            disks,
            flushes,
            staging_failed: None,
            device: None,
            patrol: Patrol::default(),
            patrolled: Instant::now(),
            disk_hangs: false,
            flush_hangs_after: FLUSH_HANGS_AFTER,
            asked: None,
        }
    }

    fn serve(mut self, commands: &Receiver<Command>) {
        loop {
            match commands.recv_timeout(LOOK_EVERY) {
                Ok(command) => self.obey(command),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.look();
        }
    }

    /// Checks whether the images of the disks and the guest still work.
    fn look(&mut self) {
        if let Some(reason) = self.take_failure() {
            (self.report)(Report::DiskFailed(reason));
        }
        self.look_for_hanging();
        let Some(qemu) = &mut self.qemu else { return };
        match qemu.has_ended() {
            Ok(false) => {}
            Ok(true) if self.stands == Stands::Running => {
                self.stands = Stands::Off;
                (self.report)(Report::Off);
            }
            Ok(true) => {}
            Err(error) => self.lose(&error),
        }
    }

    fn look_for_hanging(&mut self) {
        let mut hanging = self.disks.iter().filter(|disk| {
            let since = disk.flushes_since();
            since.is_some_and(|since| since.elapsed() >= self.flush_hangs_after)
        });
        match hanging.next() {
            Some(disk) if !self.disk_hangs => {
                let (path, limit_s) = (disk.path().display(), self.flush_hangs_after.as_secs());
                let reason = format!("flushing {path} takes more than {limit_s} s");
                self.disk_hangs = true;
                (self.report)(Report::DiskHangs(reason));
            }
            Some(_) => {}
            None => {
                self.disk_hangs = false;
                if let Some(number) = self.asked.take() {
                    (self.report)(Report::Back(number));
                }
            }
        }
    }

    fn take_failure(&self) -> Option<String> {
        let mut failures = self.disks.iter().filter_map(|disk| disk.take_failure());
        failures.next()
    }

    fn lose(&mut self, error: &GuestError) {
        self.qemu = None;
        self.device = None;
        self.discard();
        self.stands = Stands::Waiting;
        self.gate.detach();
        (self.report)(Report::Gone(error.to_string()));
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Prepare => {
                if let Err(error) = self.prepare() {
                    error!(vm = self.guest.name, "{error}");
                }
            }
            Command::Boot(permit) => {
                let done = self.boot(&permit);
                self.begun(done);
            }
            Command::Activate(permit) => {
                reach(Step::Activating);
                let done = self.activate(&permit);
                self.begun(done);
            }
            Command::Capture { number, full, arms } => self.capture(number, full, arms),
            Command::Compare(sums) => {
                self.waiting_bytes
                    .fetch_sub(sums.len() as u64, Ordering::Relaxed);
                if let Err(error) = disk::compare(&self.disks, &sums) {
                    error!(vm = self.guest.name, "disks cannot be compared: {error}");
                }
            }
            Command::Sum(id, into) => self.sum(id, into),
            Command::Bound(is_bounded) => {
                for disk in &self.disks {
                    disk.bound(is_bounded);
                }
            }
            Command::Send(header, into) => {
                // A receiver that has gone is reported elsewhere.
                let _ = self.send(&header, &into);
            }
            Command::Stage(part, data) => {
                self.waiting_bytes
                    .fetch_sub(data.len() as u64, Ordering::Relaxed);
                self.stage(part, &data);
            }
            Command::Check(number) => {
                let checked = match &self.staging_failed {
                    Some(reason) => Err(reason.clone()),
                    None if split_device(&self.staged_device).is_none() => {
                        Err("the data that accompanies the devices' state is not valid".into())
                    }
                    None => Ok(()),
                };
                if checked.is_ok() {
                    reach(Step::Staged);
                }
                (self.report)(Report::Checked(number, checked));
            }
            Command::Ask(number) => self.asked = Some(number),
            Command::Discard => self.discard(),
            Command::Commit => self.commit(),
            Command::Forget => self.device = None,
            Command::Pause => self.pause(),
            Command::Resume => self.resume(),
            Command::Destroy(answer) => {
                self.qemu = None;
                self.device = None;
                self.last = None;
                self.stands = Stands::Waiting;
                self.disk_hangs = false;
                self.gate.detach();
                let _ = answer.send(());
            }
        }
    }

    fn start(&mut self, waits: bool) -> Result<(), GuestError> {
        self.qemu = None;
        self.last = None;
        let (qemu, network) = Qemu::start(&self.guest, &self.disks, waits)?;
        match qemu.why_compared() {
            Some(reason) => info!(
                vm = self.guest.name,
                "changed pages are found by looking through the memory: {reason}"
            ),
            None => info!(
                vm = self.guest.name,
                "changed pages are tracked by the kernel"
            ),
        }
        let attached = self.gate.attach(network);
        attached.map_err(|source| GuestError::System {
            what: "serve the guest's network",
            source,
        })?;
        if !waits {
            self.gate.begin();
        }
        self.qemu = Some(qemu);
        Ok(())
    }

    fn prepare(&mut self) -> Result<(), GuestError> {
        if self.qemu.is_none() {
            self.device = None;
            self.start(true)?;
        }
        Ok(())
    }

    fn boot(&mut self, permit: &Permit) -> Result<(), GuestError> {
        self.qemu = None;
        // This is for as long as an image hangs.
        self.disks.iter().for_each(|disk| disk.settle());
        if !permit.take() {
            return Err(GuestError::GivenUp);
        }
        self.start(false)
    }

    fn activate(&mut self, permit: &Permit) -> Result<(), GuestError> {
        let (Some(qemu), Some(device)) = (&mut self.qemu, self.device.take()) else {
            if !permit.take() {
                return Err(GuestError::GivenUp);
            }
            let reason = "there is no checkpoint any more".into();
            return Err(GuestError::Migration("load", reason));
        };
        let (addresses, state) = split_device(&device).expect("it was checked when it was staged");
        self.gate.learn(addresses);
        self.gate.begin();
        qemu.activate(state, permit)
    }

    fn begun(&mut self, done: Result<(), GuestError>) {
        match done {
            Ok(()) => {
                self.stands = Stands::Running;
                (self.report)(Report::Activated);
            }
            Err(error) => {
                self.qemu = None;
                self.device = None;
                self.gate.detach();
                // Whoever gave the guest up knows.
                if !matches!(error, GuestError::GivenUp) {
                    (self.report)(Report::ActivationFailed(error.to_string()));
                }
            }
        }
    }

    fn capture(&mut self, number: u64, full: bool, arms: bool) {
        match self.try_capture(number, full, arms) {
            Ok(report) => {
                reach(Step::Captured);
                (self.report)(report);
            }
            Err(error) => {
                // The unsent capture is dropped; the next one is made of all memory.
                self.last = None;
                if let (Some(qemu), Stands::Running) = (&mut self.qemu, self.stands)
                    && !matches!(qemu.has_ended(), Ok(true))
                {
                    match qemu.give_up() {
                        Ok(()) => self.stands = Stands::Paused,
                        Err(error) => return self.lose(&error),
                    }
                }
                let reason = error.to_string();
                let is_disk = matches!(error, GuestError::Disk(_));
                (self.report)(Report::CaptureFailed {
                    number,
                    reason,
                    is_disk,
                });
            }
        }
    }

    fn try_capture(&mut self, number: u64, full: bool, arms: bool) -> Result<Report, GuestError> {
        if full {
            for disk in &self.disks {
                disk.forget();
            }
        }
        let Some(qemu) = &mut self.qemu else {
            return Err(GuestError::Migration("save", "there is no guest".into()));
        };
        let pages = qemu.pages();
        // Without the previous capture there is nothing that changes could be told from.
        let full = full || self.last.is_none();
        let last = self.last.get_or_insert_with(|| Last {
            writer: Writer::new(pages),
            captured: Captured::default(),
            is_full: false,
            batches: Vec::new(),
            device: Arc::default(),
            disks: Vec::new(),
        });
        // The last checkpoint has been acknowledged, or its standby is gone.
        last.disks.clear();
        let Last {
            writer, captured, ..
        } = last;
        if full {
            for (at, pages) in writer.copy_mut().chunks_mut(BATCH_PAGES).enumerate() {
                qemu.look(at * BATCH_PAGES, pages);
            }
        }
        let since = std::mem::replace(&mut self.patrolled, Instant::now()).elapsed();
        let compared = match full {
            true => 0..pages,
            false => self.patrol.take(pages, since),
        };
        let (gate, disks) = (&self.gate, &self.disks);
        let mut taken = None;
        let done = qemu.capture(captured, writer.copy(), compared, || {
            gate.cut(number);
            taken = Some(Taken::take(disks, arms));
            reach(Step::Stopped);
        });
        // A guest that was told of an error of its disk is not what the standby is to go on with.
        let mut failures = disks.iter().filter_map(|disk| disk.take_failure());
        let done = match failures.next() {
            Some(reason) => Err(GuestError::Disk(reason)),
            None => done,
        };
        let taken = taken.and_then(Result::ok).unwrap_or_default();
        if let Err(error) = done {
            taken.put_back(disks);
            return Err(error);
        }
        let disk_left_bytes = taken.left_bytes;
        last.disks = taken.batches.into_iter().map(Arc::new).collect();
        if captured.missed > 0 && !full {
            error!(
                vm = self.guest.name,
                pages = captured.missed,
                "changed pages were MISSED, which a comparison found"
            );
        }
        let missed = if full { 0 } else { captured.missed };
        last.is_full = full;
        last.batches.clear();
        let mut ram_bytes = 0;
        let changed = captured.changed.iter().zip(&captured.contents);
        if full {
            for (&page, contents) in changed {
                writer.copy_mut()[page as usize] = *contents;
            }
            let mut batch = Vec::with_capacity(2 * BATCH_BYTES);
            for range in batches(pages) {
                batch.clear();
                writer.renewal(range, &mut batch);
                ram_bytes += batch.len() as u64;
            }
        } else {
            let mut batch = Vec::with_capacity(2 * BATCH_BYTES);
            for (&page, contents) in changed {
                writer.change(page, contents, &mut batch);
                if batch.len() >= BATCH_BYTES {
                    ram_bytes += batch.len() as u64;
                    last.batches.push(Arc::new(std::mem::take(&mut batch)));
                }
            }
            if !batch.is_empty() {
                ram_bytes += batch.len() as u64;
                last.batches.push(Arc::new(batch));
            }
        }
        last.device = Arc::new(join_device(&self.gate.addresses(), &captured.device_state));
        Ok(Report::Captured {
            number,
            ram_bytes,
            device_bytes: last.device.len() as u64,
            disk_bytes: last.disks.iter().map(|batch| batch.len() as u64).sum(),
            disk_left_bytes,
            pages: captured.changed.len() as u64,
            missed,
            timing: captured.timing,
        })
    }

    fn send(&mut self, header: &Header, into: &SyncSender<Outgoing>) -> Option<()> {
        let last = self.last.as_ref()?;
        let mut digest = Digest::new(header);
        let mut put = |part, data: Arc<Vec<u8>>| {
            digest.add(part, &data);
            into.send(Outgoing::Chunk(part, data)).ok()
        };
        into.send(Outgoing::Message(Message::Begin(*header))).ok()?;
        if last.is_full {
            for range in batches(last.writer.copy().len()) {
                let mut batch = Vec::with_capacity(2 * BATCH_BYTES);
                last.writer.renewal(range, &mut batch);
                put(Part::Ram, Arc::new(batch))?;
            }
        } else {
            for batch in &last.batches {
                put(Part::Ram, batch.clone())?;
            }
        }
        for part in last.device.chunks(CHUNK_BYTES_MAX) {
            put(Part::Device, Arc::new(part.to_vec()))?;
        }
        for batch in &last.disks {
            put(Part::Disk, batch.clone())?;
        }
        let checksum = digest.finish();
        into.send(Outgoing::Message(Message::End {
            id: header.id,
            checksum,
        }))
        .ok()
    }

    /// Begins to send sums. Whatever an earlier copy wrote has been written: a sum of what was
    /// there before would count as one of what is there now.
    fn sum(&self, id: CheckpointId, into: Sender<Outgoing>) {
        if self.qemu.is_none() {
            self.disks.iter().for_each(|disk| disk.settle());
        }
        let (disks, vm) = (self.disks.clone(), self.guest.name.clone());
        let send = move || {
            for sums in disk::sums(&disks) {
                let sent = match sums {
                    Ok(sums) => into.send(Outgoing::Sums(id, sums)).is_ok(),
                    Err(error) => {
                        error!(vm, "the image of a disk cannot be read: {error}");
                        false
                    }
                };
                if !sent {
                    return;
                }
            }
        };
        if let Err(error) = thread::Builder::new().name("sums".into()).spawn(send) {
            error!(vm = self.guest.name, "cannot start a thread: {error}");
        }
    }

    fn stage(&mut self, part: Part, data: &[u8]) {
        /// Size limit of any guest's device state.
        const DEVICE_BYTES_MAX: usize = 256 << 20;
        if self.staging_failed.is_some() {
            return;
        }
        let staged = match part {
            Part::Ram => self
                .prepare()
                .map_err(|error| error.to_string())
                .and_then(|()| {
                    let pages = self.qemu.as_ref().map_or(0, Qemu::pages);
                    self.staged
                        .add(data, pages)
                        .map_err(|error| error.to_string())?;
                    if self.staged.bytes() > pages * PAGE_BYTES {
                        return Err("it has more pages than the guest".into());
                    }
                    Ok(())
                }),
            Part::Device if self.staged_device.len() + data.len() > DEVICE_BYTES_MAX => {
                Err("the devices' state is too large".into())
            }
            Part::Device => {
                self.staged_device.extend_from_slice(data);
                Ok(())
            }
            Part::Disk => self.staged_disks.add(data, &self.disks),
        };
        if let Err(reason) = staged {
            warn!(
                vm = self.guest.name,
                "a checkpoint cannot be staged: {reason}"
            );
            self.staging_failed = Some(reason);
        }
    }

    fn discard(&mut self) {
        self.staged.discard();
        self.staged_device.clear();
        self.staged_disks.discard();
        self.staging_failed = None;
    }

    fn commit(&mut self) {
        if let Some(qemu) = &mut self.qemu {
            // SAFETY: nothing is committed where the guest runs, and one that waits was started to.
            self.staged.apply(unsafe { qemu.waiting_memory() });
            self.device = Some(std::mem::take(&mut self.staged_device));
            if let Err(error) = self.staged_disks.apply(&self.disks) {
                let reason = self.take_failure().unwrap_or_else(|| error.to_string());
                return self.lose(&GuestError::Disk(reason));
            }
            // A flush that has been asked for and has not begun suffices.
            let _ = self.flushes.try_send(());
        }
        self.discard();
        reach(Step::Committed);
    }

    fn pause(&mut self) {
        if let (Some(qemu), Stands::Running) = (&mut self.qemu, self.stands) {
            match qemu.stop() {
                Ok(()) => self.stands = Stands::Paused,
                Err(error) => self.lose(&error),
            }
        }
    }

    fn resume(&mut self) {
        if let (Some(qemu), Stands::Paused) = (&mut self.qemu, self.stands) {
            match qemu.resume() {
                Ok(()) => self.stands = Stands::Running,
                Err(error) => self.lose(&error),
            }
        }
    }
}

/// A thread that flushes the disks of a guest whenever it is asked to, so that little is left to
/// flush when the guest is to run here. An error of it is that of the flush before that, too.
fn start_flushing(disks: Vec<Arc<Disk>>) -> std::io::Result<SyncSender<()>> {
    let (asks, asked) = sync_channel(1);
    thread::Builder::new().name("flush".into()).spawn(move || {
        while asked.recv().is_ok() {
            for disk in &disks {
                let _ = disk.flush();
            }
        }
    })?;
    Ok(asks)
}

/// All pages of a memory, in ranges of one batch.
fn batches(pages: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    (0..pages)
        .step_by(BATCH_PAGES)
        .map(move |first| first..(first + BATCH_PAGES).min(pages))
}

/// The device part of a checkpoint: the guest's known addresses as text behind its length (32 bits,
/// little endian), then QEMU's device state.
fn join_device(addresses: &[IpAddr], state: &[u8]) -> Vec<u8> {
    let text: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
    let text = text.join(" ");
    let length = (text.len() as u32).to_le_bytes();
    [&length[..], text.as_bytes(), state].concat()
}

fn split_device(device: &[u8]) -> Option<(Vec<IpAddr>, &[u8])> {
    let (length, rest) = device.split_first_chunk()?;
    let (text, state) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    let words = std::str::from_utf8(text).ok()?.split_whitespace();
    let addresses = words
        .map(|word| word.parse().ok())
        .collect::<Option<Vec<IpAddr>>>()?;
    Some((addresses, state))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::{FrameStream, Port};
    use crate::guest::disk::tests::disk;
    use crate::guest::{Accelerator, Bus, Changes, Format, Kind};
    use std::os::unix::net::UnixStream;

    /// A thread's state before any command, with a guest that no program runs.
    fn state(disk: Arc<Disk>) -> (State, Receiver<Report>) {
        let (outside, _) = UnixStream::pair().unwrap();
        let outside = Port::Stream(FrameStream::new(outside).unwrap());
        let (reports, reported) = channel();
        let (flushes, _) = sync_channel(1);
        let guest = Specification {
            name: "media".into(),
            number: 1,
            program: "/nowhere/qemu".into(),
            kind: Kind::Pc,
            accelerator: Accelerator::Tcg,
            cpu: None,
            vcpus: 1,
            memory_bytes: 1 << 20,
            kernel: None,
            initrd: None,
            append: String::new(),
            disks: Vec::new(),
            volumes: Vec::new(),
            bus: Bus::VirtioBlk,
            format: Format::Raw,
            mac: [0; 6],
            console: None,
            arguments: Vec::new(),
            changes: Changes::Auto,
        };
        let gate = Arc::new(Gate::start(outside, [0; 6], &[], 0).unwrap());
        let report = move |report| reports.send(report).unwrap();
        let state = State::new(guest, vec![disk], gate, flushes, report);
        (state, reported)
    }

    #[test]
    fn a_disk_that_hangs_is_told_of_once_and_whoever_asks_waits_for_it() {
        let disk = Arc::new(disk("hangs-told"));
        let (mut state, reported) = state(disk.clone());
        state.flush_hangs_after = Duration::ZERO;
        disk.flushes(Some(Instant::now()));
        state.look();
        state.look();
        let told = reported.try_recv().unwrap();
        assert!(matches!(told, Report::DiskHangs(_)), "{told:?}");
        state.obey(Command::Ask(4));
        state.look();
        assert!(reported.try_recv().is_err());
        disk.flushes(None);
        state.look();
        let told = reported.try_recv().unwrap();
        assert!(matches!(told, Report::Back(4)), "{told:?}");
        assert!(reported.try_recv().is_err());
    }

    #[test]
    fn a_guest_that_was_given_up_is_not_booted() {
        let (mut state, reported) = state(Arc::new(disk("not-booted")));
        let permit = Permit::default();
        state.obey(Command::Boot(permit.clone()));
        let failed = reported.try_recv().unwrap();
        assert!(matches!(failed, Report::ActivationFailed(_)), "it is tried");
        assert!(!permit.take(), "it cannot be given up any more");
        let permit = Permit::default();
        assert!(permit.take());
        state.obey(Command::Boot(permit));
        assert!(reported.try_recv().is_err());
    }

    #[test]
    fn an_activation_that_cannot_begin_is_told_of_once() {
        let (mut state, reported) = state(Arc::new(disk("not-activated")));
        let permit = Permit::default();
        state.obey(Command::Activate(permit.clone()));
        let failed = reported.try_recv().unwrap();
        assert!(matches!(failed, Report::ActivationFailed(_)), "{failed:?}");
        assert!(!permit.take(), "it can be given up once more");
        let permit = Permit::default();
        assert!(permit.take());
        state.obey(Command::Activate(permit));
        assert!(reported.try_recv().is_err());
    }

    #[test]
    fn the_devices_part_comes_apart_as_it_was_joined() {
        let addresses = ["192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap()];
        for addresses in [&addresses[..], &[]] {
            let joined = join_device(addresses, b"state");
            assert_eq!(
                split_device(&joined),
                Some((addresses.to_vec(), &b"state"[..]))
            );
        }
        assert_eq!(split_device(&[1, 0, 0]), None);
        assert_eq!(split_device(&[9, 0, 0, 0, b'x']), None);
        assert_eq!(split_device(b"\x05\0\0\0seven"), None);
    }

    #[test]
    fn batches_are_all_pages() {
        let all: Vec<usize> = batches(200).flatten().collect();
        assert_eq!(all, (0..200).collect::<Vec<_>>());
    }
}
