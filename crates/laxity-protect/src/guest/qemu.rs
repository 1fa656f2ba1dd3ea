//! One QEMU process: starting, capturing, continuing and ending it.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::Shutdown;
use std::ops::Range;
use std::os::fd::{AsFd as _, AsRawFd as _, RawFd};
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};
use serde_json::json;

use super::changes::{Fingerprints, Tracker, check, gather};
use super::confinement::{Handed, User, sealed, with_access_of};
use super::disk::Disk;
use super::memory::{Memory, Page};
use super::nbd::server;
use super::process::{GuestError, forward_what_it_says, spawn, system};
use super::qmp::{Event, Qmp, QmpError, is_readable_by, shortened};
use super::specification::{Accelerator, Changes, Files, Sockets, Specification, command_line};

/// The library preloaded into QEMU, which makes the kernel track writes to the file that
/// `LAXITY_GUEST_MEMORY` names.
pub const TRACKER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tracker.so"));
/// The first version with the netdev `stream`.
const VERSION_MIN: (u32, u32) = (7, 2);
/// Migration capabilities: shared memory stays in place, and the end of a migration is reported.
const CAPABILITIES: [&str; 2] = ["x-ignore-shared", "events"];
/// Longest capture or activation on a busy machine.
const MIGRATION_TIMEOUT: Duration = Duration::from_secs(20);
/// Longest wait for a pause of a guest with disks: QEMU brings all their requests to an end, and
/// flushes them.
const DISKS_TIMEOUT: Duration = Duration::from_secs(120);
/// Limit of a device state, which normally has some hundred kilobytes: a QEMU that sends more has
/// been taken over.
pub const DEVICE_STATE_BYTES_MAX: usize = 256 << 20;
/// Events that are taken at once: more than a guest causes between two looks.
const EVENTS_AT_ONCE: usize = 1_000;
/// Size of socket buffers for the guest's frames and the device state.
const SOCKET_BYTES: usize = 4 << 20;

/// Times of one capture's steps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Timing {
    /// Time from the order to save the state until the guest paused; the guest still ran.
    pub before_ns: u64,
    /// Length of the pause by QEMU's own clock: all of the following, and QEMU's own part.
    pub pause_ns: u64,
    /// Time until the device state was read.
    pub device_state_ns: u64,
    /// Time for cutting the guest's output.
    pub cut_ns: u64,
    /// Time for finding the changed pages.
    pub find_ns: u64,
    /// Time for copying the changed pages.
    pub copy_ns: u64,
    /// Time until QEMU let the guest run again.
    pub resume_ns: u64,
}

/// The state captured at the end of an epoch.
#[derive(Debug, Default)]
pub struct Captured {
    /// State of everything but memory, in QEMU's own format.
    pub device_state: Vec<u8>,
    /// Numbers of the pages that may have changed, in order.
    pub changed: Vec<u32>,
    /// Contents of these pages.
    pub contents: Vec<Page>,
    /// Number of changed pages that only the comparison found; must be 0.
    pub missed: u64,
    /// Times of the steps.
    pub timing: Timing,
}

/// The permission to let a guest run, which is taken once: by whoever is about to let it run, or by
/// whoever gives it up before. A disk may hang for any time in between.
#[derive(Debug, Clone, Default)]
pub struct Permit(Arc<AtomicBool>);

impl Permit {
    /// Takes the permission. Returns whether it was still there.
    pub fn take(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }
}

/// A running QEMU. Dropping it ends the process and frees its memory.
#[derive(Debug)]
pub struct Qemu {
    child: Child,
    qmp: Qmp,
    memory: Memory,
    tracker: Option<Tracker>,
    /// Reason why there is no tracker, if there is none.
    why_compared: Option<String>,
    /// Fingerprints of the memory, if there is no tracker, from the first look on.
    fingerprints: Option<Fingerprints>,
    has_ended: bool,
    disks: Vec<Arc<Disk>>,
}

impl Qemu {
    /// Starts a guest, confined to a user of its own if this process is root. With `waits` it does
    /// not boot, but waits for a state to continue from.
    ///
    /// The other end of its network interface comes with it, QEMU's own protocol on a stream: each frame behind its
    /// length, 32 bits, big endian.
    ///
    /// It writes to `disks`, one for each of [`Specification::volumes`]; with `waits`, once it has
    /// been continued.
    ///
    /// The process ends with the thread that called this.
    ///
    /// # Errors
    ///
    /// If it cannot be started, or is too old. Nothing is left of it then.
    pub fn start(
        specification: &Specification,
        disks: &[Arc<Disk>],
        waits: bool,
    ) -> Result<(Qemu, UnixStream), GuestError> {
        let user = User::of(
            specification.number,
            specification.accelerator != Accelerator::Tcg,
        );
        let tracker = sealed(c"laxity-tracker", TRACKER).map_err(system("write the tracker"))?;
        let (memory, memory_file) = Memory::create(specification.memory_bytes, user)
            .map_err(system("make the guest's memory"))?;
        let mut handed = Handed::default();
        let files = Files::open(specification, &mut handed)?;
        let preloaded = handed.open(tracker);
        let memory_path = handed.open(memory_file);
        let (network, network_theirs) = UnixStream::pair().map_err(system("make a socket"))?;
        widen(&network);
        widen(&network_theirs);
        let mut volumes = Vec::new();
        for disk in disks {
            let (ours, theirs) = UnixStream::pair().map_err(system("make a socket"))?;
            disk.settle();
            serve(ours, disk.clone()).map_err(system("start a thread"))?;
            volumes.push(theirs);
        }
        let inherited: Vec<RawFd> = volumes.iter().map(UnixStream::as_raw_fd).collect();
        let sockets = Sockets {
            network: network_theirs.as_raw_fd(),
            volumes: inherited.clone(),
        };
        let tracked = [
            ("LD_PRELOAD", preloaded.as_path()),
            ("LAXITY_GUEST_MEMORY", &memory_path),
        ];
        let (child, qmp) = spawn(
            &specification.program,
            &command_line(specification, &files, &memory_path, &sockets, waits),
            &tracked,
            handed
                .descriptors()
                .chain([network_theirs.as_raw_fd()])
                .chain(inherited.iter().copied())
                .collect(),
            user,
        )?;
        drop((network_theirs, handed, volumes));
        let mut qemu = Qemu {
            child,
            qmp,
            memory,
            tracker: None,
            why_compared: None,
            fingerprints: None,
            has_ended: false,
            disks: disks.to_vec(),
        };
        qemu.may_write(!waits);
        forward_what_it_says(&mut qemu.child, &specification.name);
        probe(&mut qemu.qmp)?;
        match specification.changes {
            Changes::Comparison => qemu.why_compared = Some("the site file says so".into()),
            wanted => match with_access_of(user, || qemu.track()) {
                Ok(tracker) => qemu.tracker = Some(tracker),
                Err(reason) if wanted == Changes::Tracker => {
                    return Err(GuestError::Tracker(reason));
                }
                Err(reason) => qemu.why_compared = Some(reason),
            },
        }
        Ok((qemu, network))
    }

    fn track(&self) -> Result<Tracker, String> {
        // A swapped-out page of a file in memory leaves no mark in the mapping through which it was written.
        const HEAD_LINES: usize = 1;
        let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
        if swaps.lines().count() > HEAD_LINES {
            return Err("the host has swap, with which the kernel misses some writes".into());
        }
        Tracker::open(self.child.id(), &self.memory)
    }

    /// The reason why memory is compared instead of tracked; `None` if writes are tracked.
    pub fn why_compared(&self) -> Option<&str> {
        self.why_compared.as_deref()
    }

    fn may_write(&self, may: bool) {
        for disk in &self.disks {
            disk.may_write(may);
        }
    }

    /// Says whether the guest is being paused, for which no write may wait.
    fn drain(&self, drains: bool) {
        for disk in &self.disks {
            disk.drain(drains);
        }
    }

    /// Longest wait for a pause.
    fn pause_timeout(&self) -> Duration {
        match self.disks.is_empty() {
            true => MIGRATION_TIMEOUT,
            false => DISKS_TIMEOUT,
        }
    }

    /// Flushes the disks. QEMU does so whenever the guest pauses, and finds little left to flush
    /// after this.
    fn flush(&self) -> Result<(), GuestError> {
        for disk in &self.disks {
            if disk.flush().is_err() {
                return Err(GuestError::Disk(disk.take_failure().unwrap_or_default()));
            }
        }
        Ok(())
    }

    /// Number of pages of the guest's memory.
    pub fn pages(&self) -> usize {
        self.memory.len()
    }

    /// Number of QEMU's process.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Whether the guest has ended by itself: it powered off, or its kernel panicked.
    ///
    /// # Errors
    ///
    /// If QEMU has gone, too.
    pub fn has_ended(&mut self) -> Result<bool, GuestError> {
        self.take_events()?;
        Ok(self.has_ended)
    }

    /// Takes the events so far. What a QEMU that was taken over tells without end waits for the
    /// next time.
    fn take_events(&mut self) -> Result<(), QmpError> {
        for _ in 0..EVENTS_AT_ONCE {
            if self.next_event(Duration::ZERO)?.is_none() {
                break;
            }
        }
        Ok(())
    }

    /// Waits for an event that is wanted, for as long as a migration may take. Returns what
    /// `wanted` makes of it; `None` if none has come.
    fn wait_for<T>(
        &mut self,
        mut wanted: impl FnMut(&Event) -> Option<T>,
    ) -> Result<Option<T>, QmpError> {
        let deadline = Instant::now() + MIGRATION_TIMEOUT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Some(event) = self.next_event(left)? else {
                return Ok(None);
            };
            match wanted(&event) {
                None if left.is_zero() => return Ok(None),
                None => {}
                found => return Ok(found),
            }
        }
    }

    fn next_event(&mut self, timeout: Duration) -> Result<Option<Event>, QmpError> {
        let event = self.qmp.event(timeout)?;
        let ends = |event: &Event| matches!(&*event.name, "SHUTDOWN" | "GUEST_PANICKED");
        self.has_ended |= event.as_ref().is_some_and(ends);
        Ok(event)
    }

    /// Copies pages beginning at `first` while the guest runs. Some may be half old and half new,
    /// which suffices for a first pass that a comparison follows.
    pub fn look(&self, first: usize, into: &mut [Page]) {
        // SAFETY: none is promised, as the guest runs; the bytes are copied and nobody relies on what they are until
        // they have been compared while it stood still.
        let pages = unsafe { self.memory.pages() };
        into.copy_from_slice(&pages[first..][..into.len()]);
    }

    /// Captures the guest's state, and lets it run on.
    ///
    /// `copy` is what the standby has. The pages in `compared` are compared with it, byte by byte,
    /// and what else finds changes, which is the tracker or fingerprints, is held against
    /// that. `cut` is called when the guest stands still and has sent all that it did in this
    /// epoch.
    ///
    /// # Errors
    ///
    /// If QEMU does not do it. It goes on with the guest then, if it can.
    pub fn capture(
        &mut self,
        captured: &mut Captured,
        copy: &[Page],
        compared: Range<usize>,
        cut: impl FnOnce(),
    ) -> Result<(), GuestError> {
        self.take_events()?;
        self.flush()?;
        let begun = Instant::now();
        self.drain(true);
        self.save(&mut captured.device_state)?;
        let stopped_at_ns = self.migrated("save")?;
        let saved = Instant::now();
        // QEMU parses the command while changed pages are searched.
        self.qmp.begin("cont")?;
        cut();
        let cut_at = Instant::now();
        captured.changed.clear();
        let found = self.find(captured, copy, compared);
        let found_at = Instant::now();
        // SAFETY: QEMU has said that the guest stands still, and was not told otherwise since.
        let pages = unsafe { self.memory.pages() };
        gather(pages, &captured.changed, &mut captured.contents);
        let copied = Instant::now();
        self.qmp.finish()?;
        let resumed = self.wait_for(|event| (event.name == "RESUME").then_some(event.at_ns))?;
        let resumed_at_ns = resumed.ok_or_else(|| failed("save", "the guest does not run on"))?;
        let resumed = Instant::now();
        self.drain(false);
        found?;
        let ns = |from: Instant, to: Instant| (to - from).as_nanos() as u64;
        let pause_ns = u64::try_from(resumed_at_ns - stopped_at_ns).unwrap_or(0);
        let until_resumed_ns = ns(begun, resumed);
        let after_state_ns = ns(saved, resumed);
        captured.timing = Timing {
            before_ns: until_resumed_ns.saturating_sub(pause_ns),
            pause_ns,
            device_state_ns: pause_ns.saturating_sub(after_state_ns),
            cut_ns: ns(saved, cut_at),
            find_ns: ns(cut_at, found_at),
            copy_ns: ns(found_at, copied),
            resume_ns: ns(copied, resumed),
        };
        Ok(())
    }

    fn find(
        &mut self,
        captured: &mut Captured,
        copy: &[Page],
        compared: Range<usize>,
    ) -> Result<(), GuestError> {
        // SAFETY: as in `capture`.
        let pages = unsafe { self.memory.pages() };
        if let Some(tracker) = &mut self.tracker {
            let taken = tracker.take(&mut captured.changed);
            taken.map_err(system("ask the kernel for the pages that were written"))?;
        } else {
            let fingerprints = self
                .fingerprints
                .get_or_insert_with(|| Fingerprints::new(pages.len()));
            fingerprints.take(pages, &mut captured.changed);
        }
        captured.missed = check(pages, copy, compared, &mut captured.changed) as u64;
        Ok(())
    }

    /// Makes QEMU pause the guest and write its device state.
    fn save(&mut self, state: &mut Vec<u8>) -> Result<(), GuestError> {
        let (mut ours, theirs) = UnixStream::pair().map_err(system("make a socket"))?;
        widen(&theirs);
        self.qmp.pass("checkpoint", theirs.as_fd())?;
        drop(theirs);
        self.qmp
            .execute("migrate", json!({ "uri": "fd:checkpoint" }))?;
        state.clear();
        let deadline = Instant::now() + self.pause_timeout();
        // The loop has a deadline, where `read_to_end` would wait forever for a hanging QEMU.
        let read = system("read the devices' state");
        let mut part = vec![0; 256 << 10];
        loop {
            if !is_readable_by(&ours, deadline).map_err(&read)? {
                return Err(failed("save", "it does not end"));
            }
            match ours.read(&mut part).map_err(&read)? {
                0 => return Ok(()),
                count if state.len() + count > DEVICE_STATE_BYTES_MAX => {
                    return Err(failed("save", "it is larger than that of any machine"));
                }
                count => state.extend_from_slice(&part[..count]),
            }
        }
    }

    /// Waits until a migration is done. Returns the time at which the guest was paused for it, by
    /// QEMU's clock.
    fn migrated(&mut self, what: &'static str) -> Result<i64, GuestError> {
        let mut stopped_at_ns = 0;
        let is_done = self.wait_for(|event| match (&*event.name, &*event.status) {
            ("STOP", _) => {
                stopped_at_ns = event.at_ns;
                None
            }
            ("MIGRATION", "completed") => Some(true),
            ("MIGRATION", "failed" | "cancelled") => Some(false),
            _ => None,
        })?;
        match is_done {
            Some(true) => Ok(stopped_at_ns),
            Some(false) => {
                let said = self.qmp.execute("query-migrate", json!({}))?;
                let reason = said["error-desc"]
                    .as_str()
                    .unwrap_or("QEMU gives no reason");
                Err(failed(what, &shortened(reason)))
            }
            None => Err(failed(what, "it does not end")),
        }
    }

    /// The memory of a guest that waits to be continued.
    ///
    /// # Safety
    ///
    /// It was started as one that waits, and [`Qemu::activate`] was not called.
    pub unsafe fn waiting_memory(&mut self) -> &mut [Page] {
        // SAFETY: as the caller says.
        unsafe { self.memory.pages_mut() }
    }

    /// Continues from a device state; the memory must be of the same moment. For as long as a disk
    /// takes to be flushed before, `permit` can be taken from it.
    ///
    /// # Errors
    ///
    /// If QEMU does not take it, or the guest was given up. It is of no use any more then.
    pub fn activate(&mut self, state: &[u8], permit: &Permit) -> Result<(), GuestError> {
        // A guest that was told that its writes have reached a disk finds them there, even if this
        // host fails next.
        let flushed = self.flush();
        // Whoever gave the guest up, even while its disk failed, knows what has become of it.
        if !permit.take() {
            return Err(GuestError::GivenUp);
        }
        flushed?;
        self.may_write(true);
        let (mut ours, theirs) = UnixStream::pair().map_err(system("make a socket"))?;
        widen(&ours);
        self.qmp.pass("checkpoint", theirs.as_fd())?;
        drop(theirs);
        self.qmp
            .execute("migrate-incoming", json!({ "uri": "fd:checkpoint" }))?;
        let write = system("write the devices' state");
        ours.set_write_timeout(Some(MIGRATION_TIMEOUT))
            .map_err(&write)?;
        ours.write_all(state).map_err(&write)?;
        ours.shutdown(Shutdown::Write).map_err(&write)?;
        let runs = self.wait_for(|event| match (&*event.name, &*event.status) {
            ("RESUME", _) => Some(true),
            ("MIGRATION", "failed") => Some(false),
            _ => None,
        })?;
        match runs {
            Some(true) => Ok(()),
            Some(false) => Err(failed("load", "QEMU's log gives the reason")),
            None => Err(failed("load", "it does not end")),
        }
    }

    /// Recovers from a failed capture: the guest is paused afterwards, whatever came of the
    /// capture.
    ///
    /// # Errors
    ///
    /// If QEMU has gone, or does not come to an end with it.
    pub fn give_up(&mut self) -> Result<(), GuestError> {
        let timeout = self.pause_timeout();
        self.qmp
            .execute_within(timeout, "migrate_cancel", json!({}))?;
        let deadline = Instant::now() + timeout;
        while Instant::now() < deadline {
            let said = self.qmp.execute("query-migrate", json!({}))?;
            let is_over = matches!(
                said["status"].as_str(),
                None | Some("none" | "completed" | "failed" | "cancelled")
            );
            let said = self.qmp.execute("query-status", json!({}))?;
            if is_over && said["status"] != "finish-migrate" {
                return self.stop();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Err(failed("save", "it does not end even after it is cancelled"))
    }

    /// Pauses the guest, for good or until [`Qemu::resume`].
    ///
    /// # Errors
    ///
    /// If QEMU does not.
    pub fn stop(&mut self) -> Result<(), GuestError> {
        // QEMU says what became of a flush that fails.
        let _ = self.flush();
        self.drain(true);
        let timeout = self.pause_timeout();
        self.qmp.execute_within(timeout, "stop", json!({}))?;
        Ok(())
    }

    /// Lets the guest run.
    ///
    /// # Errors
    ///
    /// If QEMU does not.
    pub fn resume(&mut self) -> Result<(), GuestError> {
        self.drain(false);
        self.qmp.execute("cont", json!({}))?;
        Ok(())
    }
}

/// Checks that QEMU has all features that are needed, and sets them up.
pub(super) fn probe(qmp: &mut Qmp) -> Result<(), GuestError> {
    let version = qmp.version().to_string();
    let too_old = |lacks: String| GuestError::TooOld {
        version: version.clone(),
        lacks,
    };
    let mut parts = version
        .split('.')
        .map_while(|part| part.parse::<u32>().ok());
    let found = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    let (major, minor) = VERSION_MIN;
    if found < VERSION_MIN {
        return Err(too_old(format!("{major}.{minor} or newer is needed")));
    }
    let known = qmp.execute("query-migrate-capabilities", json!({}))?;
    let known = known.as_array().map_or(&[][..], |known| known);
    for capability in CAPABILITIES {
        if !known.iter().any(|each| each["capability"] == capability) {
            return Err(too_old(format!(
                "it has no migration capability {capability}"
            )));
        }
    }
    let wanted = CAPABILITIES.map(|each| json!({ "capability": each, "state": true }));
    qmp.execute(
        "migrate-set-capabilities",
        json!({ "capabilities": wanted }),
    )?;
    // Migration is not throttled, since this state never leaves the machine in this form.
    qmp.execute(
        "migrate-set-parameters",
        json!({ "max-bandwidth": 1_u64 << 40 }),
    )?;
    Ok(())
}

impl Drop for Qemu {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // What a disk is doing may last for as long as its image hangs. The next guest waits for it.
        for disk in &self.disks {
            disk.end();
        }
    }
}

/// A thread that serves a disk on this connection.
fn serve(mut client: UnixStream, disk: Arc<Disk>) -> io::Result<()> {
    let served = disk.clone();
    let serve = move || {
        // A guest that ends breaks the connection without a word.
        if let Err(error) = server::serve(&mut client, &served)
            && error.kind() == io::ErrorKind::InvalidData
        {
            let path = served.path().display();
            tracing::warn!("QEMU can no longer use {path}: {error}");
        }
    };
    let server = thread::Builder::new().name("disk".into()).spawn(serve)?;
    disk.is_served_by(server);
    Ok(())
}

fn failed(what: &'static str, reason: &str) -> GuestError {
    GuestError::Migration(what, reason.into())
}

/// Enlarges a socket's buffers. Root gets the full size; other users get what the system allows,
/// and wait more often.
fn widen(socket: &UnixStream) {
    let _ = setsockopt(socket, sockopt::SndBuf, &SOCKET_BYTES);
    let _ = setsockopt(socket, sockopt::SndBufForce, &SOCKET_BYTES);
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::super::disk::tests::{disk, unflushable_disk};
    use super::super::process::START_TIMEOUT;
    use super::*;

    /// A process in QEMU's place with this disk, and QEMU's end of its socket.
    fn with_disk(disk: Disk) -> (Qemu, UnixStream) {
        let (control, mut theirs) = UnixStream::pair().unwrap();
        let version = r#"{"QMP": {"version": {"qemu": {"major": 7, "minor": 2, "micro": 0}}}}"#;
        let words = format!("{version}\n{}\n", r#"{"return": {}, "id": 1}"#);
        theirs.write_all(words.as_bytes()).unwrap();
        let qmp = Qmp::greet(control, START_TIMEOUT).unwrap();
        let mut said = [0; 256];
        let count = theirs.read(&mut said).unwrap();
        assert!(said[..count].ends_with(b"}"), "one command, and all of it");
        let qemu = Qemu {
            child: Command::new("sleep").arg("3600").spawn().unwrap(),
            qmp,
            memory: Memory::create(1 << 20, None).unwrap().0,
            tracker: None,
            why_compared: None,
            fingerprints: None,
            has_ended: false,
            disks: vec![Arc::new(disk)],
        };
        (qemu, theirs)
    }

    #[test]
    fn disks_are_flushed_before_a_guest_pauses_and_before_one_goes_on() {
        let (mut qemu, mut theirs) = with_disk(unflushable_disk("flush-first"));
        theirs.set_nonblocking(true).unwrap();
        let captured = qemu.capture(&mut Captured::default(), &[], 0..0, || {});
        let activated = qemu.activate(b"state", &Permit::default());
        for done in [captured, activated] {
            assert!(matches!(done, Err(GuestError::Disk(_))), "{done:?}");
        }
        let asked = theirs.read(&mut [0]).unwrap_err();
        assert_eq!(
            asked.kind(),
            io::ErrorKind::WouldBlock,
            "QEMU was told nothing"
        );
    }

    #[test]
    fn a_guest_that_was_given_up_while_its_disk_was_flushed_never_runs() {
        let (mut qemu, mut theirs) = with_disk(disk("given-up"));
        theirs.set_nonblocking(true).unwrap();
        let permit = Permit::default();
        assert!(permit.take());
        let activated = qemu.activate(b"state", &permit);
        assert!(
            matches!(activated, Err(GuestError::GivenUp)),
            "{activated:?}"
        );
        let asked = theirs.read(&mut [0]).unwrap_err();
        assert_eq!(
            asked.kind(),
            io::ErrorKind::WouldBlock,
            "QEMU was told nothing"
        );
        qemu.disks[0].write(0, b"more").unwrap_err();
    }

    #[test]
    fn the_end_of_a_guest_whose_disk_fails_is_told_once() {
        for was_given_up in [false, true] {
            let (mut qemu, _theirs) = with_disk(unflushable_disk("fails-once"));
            let permit = Permit::default();
            assert!(!was_given_up || permit.take());
            let activated = qemu.activate(b"state", &permit);
            match was_given_up {
                true => assert!(matches!(activated, Err(GuestError::GivenUp))),
                false => assert!(matches!(activated, Err(GuestError::Disk(_)))),
            }
            assert!(!permit.take(), "it can be given up once more");
        }
    }

    /// A QEMU that tells events without end is looked at all the same.
    #[test]
    fn events_without_end_wait_for_the_next_look() {
        let (mut qemu, mut theirs) = with_disk(disk("events"));
        let event =
            |name| format!(r#"{{"timestamp":{{"seconds":1,"microseconds":2}},"event":"{name}"}}"#);
        let told = format!("{}\n", event("E")).repeat(EVENTS_AT_ONCE);
        // A socket's buffer takes all of it.
        theirs.set_nonblocking(true).unwrap();
        theirs
            .write_all(format!("{told}{}\n", event("SHUTDOWN")).as_bytes())
            .unwrap();
        assert!(!qemu.has_ended().unwrap());
        assert!(qemu.has_ended().unwrap());
    }
}
