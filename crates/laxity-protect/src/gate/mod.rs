//! The gate between a guest and its network: input passes at once, output waits until it is safe.
//!
//! Nothing that a guest sends leaves the host but through here. What is held is held by the checkpoint that it waits
//! for; a [`Gate`] does what [`protocol::Output`](crate::protocol::Output) says.

pub mod frames;
mod outside;
pub mod queue;

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use hdrhistogram::Histogram;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::clock::now_ns;
use crate::protocol::Output;
use frames::{Mac, announcement, claimed_address};
pub use outside::{FrameStream, Outside, Port};
use queue::Queue;

/// Default limit of held bytes.
pub const HELD_BYTES_MAX: usize = 64 << 20;
/// Longest recorded delay; longer ones count as this.
const DELAY_NS_MAX: u64 = 60_000_000_000;
/// Limit of addresses that are learned of a guest.
const ADDRESSES_MAX: usize = 64;
/// Frames that are received at once, so that the other direction and whoever asks get their turn.
const AT_ONCE: usize = 64;
/// Frames that are received at once from a guest that is paused: more than a socket holds. One that
/// sends on has been taken over, and what is left waits for a later checkpoint.
const AT_ONCE_PAUSED: usize = 1 << 20;

/// Counters of a gate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames from the guest that left.
    pub sent: u64,
    /// Frames to the guest.
    pub received: u64,
    /// Frames that wait now.
    pub held: u64,
    /// Frames from the guest that were dropped for lack of room.
    pub dropped: u64,
    /// Frames from the guest that must never leave: another guest was active, or the lease had run
    /// out.
    pub refused: u64,
}

/// A gate with the thread that serves it.
#[derive(Debug)]
pub struct Gate {
    shared: Arc<Mutex<Inner>>,
    wake: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Inner {
    guest: Option<FrameStream>,
    /// Number of guests so far.
    guests: u64,
    outside: Port,
    owner: Mac,
    queue: Queue,
    output: Output,
    /// Whether the guest counts as paused since its last cut: frames that it has sent since then
    /// must not leave.
    is_frozen: bool,
    /// Whether the guest runs here: frames for it are dropped before.
    is_active: bool,
    is_over: bool,
    addresses: BTreeSet<IpAddr>,
    counters: Counters,
    delays: Histogram<u64>,
    /// What is wrong with the outside, for good.
    why_broken: Option<String>,
    /// What was wrong with the guest that sends no more frames.
    guest_fault: Option<String>,
}

impl Gate {
    /// Opens a gate towards the outside, closed in both directions and without a guest.
    ///
    /// `addresses` are known beforehand; more are learned from what the guest says of itself.
    ///
    /// # Errors
    ///
    /// If the system refuses.
    pub fn start(
        outside: Port,
        owner: Mac,
        addresses: &[IpAddr],
        held_bytes_max: usize,
    ) -> io::Result<Gate> {
        let inner = Inner {
            guest: None,
            guests: 0,
            outside,
            owner,
            queue: Queue::new(held_bytes_max),
            output: Output::Closed,
            is_frozen: false,
            is_active: false,
            is_over: false,
            addresses: addresses.iter().copied().collect(),
            counters: Counters::default(),
            delays: Histogram::new_with_max(DELAY_NS_MAX, 3).expect("these bounds can be had"),
            why_broken: None,
            guest_fault: None,
        };
        let shared = Arc::new(Mutex::new(inner));
        let wake = Arc::new(EventFd::from_flags(
            EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK,
        )?);
        let (own, woken) = (shared.clone(), wake.clone());
        let thread = thread::Builder::new()
            .name("gate".into())
            .spawn(move || serve(&own, &woken))?;
        Ok(Gate {
            shared,
            wake,
            thread: Some(thread),
        })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the gate's thread for frames that the outside did not take.
    fn wake_for_what_is_left(&self, inner: &Inner) {
        if inner.outside.has_pending() {
            let _ = self.wake.write(1);
        }
    }

    /// Puts a guest behind the gate in place of the previous one, by the other end of its network
    /// interface from [`Qemu::start`](crate::guest::Qemu::start). The guest does not run yet.
    ///
    /// # Errors
    ///
    /// If the system refuses.
    pub fn attach(&self, guest: UnixStream) -> io::Result<()> {
        let guest = FrameStream::new(guest)?;
        self.replace(Some(guest));
        Ok(())
    }

    /// Removes the guest from the gate.
    pub fn detach(&self) {
        self.replace(None);
    }

    fn replace(&self, guest: Option<FrameStream>) {
        let mut inner = self.inner();
        if let Some(before) = std::mem::replace(&mut inner.guest, guest) {
            before.end();
        }
        inner.guests += 1;
        inner.guest_fault = None;
        inner.is_active = false;
        inner.queue.clear();
        let _ = self.wake.write(1);
    }

    /// Notes that the guest begins to run here: frames for it are delivered, and its frames are
    /// held until [`Gate::thaw`], whatever the output is set to.
    pub fn begin(&self) {
        let mut inner = self.inner();
        inner.is_active = true;
        inner.is_frozen = true;
    }

    /// Notes that the guest is paused: all frames sent so far, and no others, wait for this
    /// checkpoint. The guest counts as paused until [`Gate::thaw`]: frames that it sends before do
    /// not leave, whatever the output is set to.
    pub fn cut(&self, checkpoint: u64) {
        let mut inner = self.inner();
        inner.cut(checkpoint);
        self.wake_for_what_is_left(&inner);
    }

    /// Sets the rule for the guest's output from now on.
    pub fn set(&self, output: Output) {
        let mut inner = self.inner();
        inner.output = output;
        inner.settle();
        self.wake_for_what_is_left(&inner);
    }

    /// Notes that the guest runs again after a cut.
    pub fn thaw(&self) {
        let mut inner = self.inner();
        inner.is_frozen = false;
        inner.settle();
        self.wake_for_what_is_left(&inner);
    }

    /// Releases frames that wait for this checkpoint or an earlier one.
    pub fn release(&self, through: u64) {
        let mut inner = self.inner();
        while let Some(held) = inner.queue.pop(through) {
            let waited_ns = held.since.elapsed().as_nanos() as u64;
            inner.delays.saturating_record(waited_ns);
            inner.leave(&held.frame);
        }
        self.wake_for_what_is_left(&inner);
    }

    /// Announces the guest's addresses to the network.
    pub fn announce(&self) {
        let mut inner = self.inner();
        let owner = inner.owner;
        for address in inner.addresses.clone() {
            inner.leave(&announcement(address, owner));
        }
        self.wake_for_what_is_left(&inner);
    }

    /// The known addresses of the guest.
    pub fn addresses(&self) -> Vec<IpAddr> {
        self.inner().addresses.iter().copied().collect()
    }

    /// Adds addresses that the other host has learned.
    pub fn learn(&self, addresses: impl IntoIterator<Item = IpAddr>) {
        let mut inner = self.inner();
        for address in addresses {
            inner.learn(address);
        }
    }

    /// The counters so far.
    pub fn counters(&self) -> Counters {
        let inner = self.inner();
        Counters {
            held: inner.queue.len() as u64,
            dropped: inner.counters.dropped + inner.queue.dropped(),
            ..inner.counters
        }
    }

    /// Times for which frames were held since the start, in nanoseconds.
    pub fn delays(&self) -> Histogram<u64> {
        self.inner().delays.clone()
    }

    /// The reason why the network does not work, if it does not.
    pub fn why_broken(&self) -> Option<String> {
        let inner = self.inner();
        inner.why_broken.clone().or(inner.guest_fault.clone())
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.inner().is_over = true;
        let _ = self.wake.write(1);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Inner {
    fn cut(&mut self, checkpoint: u64) {
        self.take_from_guest(AT_ONCE_PAUSED);
        self.queue.cut(checkpoint);
        self.is_frozen = true;
        if !self.guest.as_ref().is_none_or(FrameStream::is_between) {
            self.give_up_guest("QEMU stopped within a frame".into());
        }
    }

    /// Hears no more of a guest that is out of step. The next one is another.
    fn give_up_guest(&mut self, fault: String) {
        self.guest = None;
        self.guest_fault = Some(fault);
    }

    fn learn(&mut self, address: IpAddr) {
        if self.addresses.len() < ADDRESSES_MAX {
            self.addresses.insert(address);
        }
    }

    /// Receives frames that the guest has sent so far, at most so many.
    fn take_from_guest(&mut self, frames_max: usize) {
        for _ in 0..frames_max {
            let Some(guest) = &mut self.guest else { return };
            let frame = match guest.receive() {
                Ok(Some(frame)) => frame.to_vec(),
                Ok(None) => return,
                Err(error) if error.kind() == io::ErrorKind::Other => {
                    return self
                        .give_up_guest(format!("QEMU's stream of frames is invalid: {error}"));
                }
                // QEMU has ended, which its owner finds out by itself.
                Err(_) => {
                    self.guest = None;
                    return;
                }
            };
            if let Some(address) = claimed_address(&frame, self.owner) {
                self.learn(address);
            }
            if self.is_frozen || self.output == Output::Hold {
                self.queue.push(frame);
            } else if self.may_leave_now() {
                self.leave(&frame);
            } else {
                self.counters.refused += 1;
            }
        }
    }

    fn may_leave_now(&self) -> bool {
        match self.output {
            Output::Open => true,
            Output::Until { deadline_ns } => now_ns() < deadline_ns,
            Output::Hold | Output::Closed => false,
        }
    }

    /// Applies the current rule to the held frames.
    fn settle(&mut self) {
        match self.output {
            Output::Hold => {}
            Output::Closed => {
                self.counters.refused += self.queue.len() as u64;
                self.queue.clear();
            }
            Output::Open | Output::Until { .. } => {
                let is_frozen = self.is_frozen;
                while let Some(held) = if is_frozen {
                    self.queue.pop(u64::MAX)
                } else {
                    self.queue.pop_any()
                } {
                    if self.may_leave_now() {
                        self.leave(&held.frame);
                    } else {
                        self.counters.refused += 1;
                    }
                }
            }
        }
    }

    fn leave(&mut self, frame: &[u8]) {
        match self.outside.send(frame) {
            Ok(true) => self.counters.sent += 1,
            Ok(false) => self.counters.dropped += 1,
            Err(error) => {
                self.counters.dropped += 1;
                self.why_broken
                    .get_or_insert_with(|| format!("the outside: {error}"));
            }
        }
    }

    fn take_from_outside(&mut self) {
        for _ in 0..AT_ONCE {
            let frame = match self.outside.receive() {
                Ok(Some(frame)) => frame,
                Ok(None) => return,
                Err(error) => {
                    self.why_broken
                        .get_or_insert_with(|| format!("the outside: {error}"));
                    return;
                }
            };
            if !self.is_active {
                continue;
            }
            match self.guest.as_mut().map(|guest| guest.send(frame)) {
                Some(Ok(true)) => self.counters.received += 1,
                Some(Ok(false)) => self.counters.dropped += 1,
                Some(Err(_)) => self.guest = None,
                None => {}
            }
        }
    }

    /// Frames that cannot be sent now are sent when there is room.
    fn flush(&mut self) {
        if self
            .guest
            .as_mut()
            .is_some_and(|guest| guest.flush().is_err())
        {
            self.guest = None;
        }
        if let Err(error) = self.outside.flush() {
            self.why_broken
                .get_or_insert_with(|| format!("the outside: {error}"));
        }
    }
}

/// Moves frames until the gate is dropped.
fn serve(shared: &Mutex<Inner>, wake: &EventFd) {
    let lock = || shared.lock().unwrap_or_else(PoisonError::into_inner);
    let served = serve_until_over(&lock, wake);
    if let Err(error) = served {
        lock().why_broken.get_or_insert_with(|| error.to_string());
    }
}

fn serve_until_over<'i>(
    lock: &dyn Fn() -> MutexGuard<'i, Inner>,
    wake: &EventFd,
) -> io::Result<()> {
    // Copies of the descriptors allow waiting for them without the lock.
    let outside = lock().outside.as_fd().try_clone_to_owned()?;
    let mut guest: (u64, Option<OwnedFd>) = (0, None);
    loop {
        let wanted = |has_pending| {
            let out = if has_pending {
                PollFlags::POLLOUT
            } else {
                PollFlags::empty()
            };
            PollFlags::POLLIN | out
        };
        let (guest_wanted, outside_wanted, has_received) = {
            let inner = lock();
            if inner.is_over || inner.why_broken.is_some() {
                return Ok(());
            }
            if guest.0 != inner.guests || inner.guest.is_none() {
                let copy = inner
                    .guest
                    .as_ref()
                    .map(|guest| guest.as_fd().try_clone_to_owned());
                guest = (inner.guests, copy.transpose()?);
            }
            let has_pending = inner.guest.as_ref().is_some_and(FrameStream::has_pending);
            let has_received = [
                inner.outside.has_received(),
                inner.guest.as_ref().is_some_and(FrameStream::has_received),
            ];
            let wanted = (wanted(has_pending), wanted(inner.outside.has_pending()));
            (wanted.0, wanted.1, has_received)
        };
        let mut polled = vec![
            PollFd::new(wake.as_fd(), PollFlags::POLLIN),
            PollFd::new(outside.as_fd(), outside_wanted),
        ];
        polled.extend(
            guest
                .1
                .as_ref()
                .map(|guest| PollFd::new(guest.as_fd(), guest_wanted)),
        );
        let timeout = match has_received {
            [false, false] => PollTimeout::NONE,
            _ => PollTimeout::ZERO,
        };
        match poll(&mut polled, timeout) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let has_news = |at: usize| polled.get(at).is_some_and(|fd| fd.any().unwrap_or(false));
        if has_news(0) {
            let _ = wake.read();
        }
        let mut inner = lock();
        inner.flush();
        let [outside_received, guest_received] = has_received;
        if guest_received || has_news(2) {
            inner.take_from_guest(AT_ONCE);
        }
        if outside_received || has_news(1) {
            inner.take_from_outside();
        }
    }
}

#[cfg(test)]
mod tests;
