//! The paper's model media server (section 4): a pool of threads, each of which receives a packet
//! of an incoming stream, processes it, and sends it on.

use crate::{
    MediaError, clock, g711,
    rtp::{self, Malformed},
    socket::{self, BATCH_MAX, Receiver, Sender},
};
use schemars::JsonSchema;
use serde::Serialize;
use std::{
    hint,
    net::{SocketAddr, UdpSocket},
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

/// Options of the media server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayOptions {
    /// Number of threads in the pool.
    pub threads: u32,
    /// CPU time of each packet beside receiving, transcoding and sending it.
    pub work_ns: i64,
    /// Whether the payload leaves in G.711's other law.
    pub transcode: bool,
    /// Most packets that a thread receives at once; the paper's server receives 1.
    pub batch: u32,
}

/// Totals of the media server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RelayReport {
    /// Number of announced calls; 0 where all streams share a port.
    pub calls: u64,
    /// Number of calls that ended because neither media nor requests came any more.
    pub expired: u64,
    /// Number of requests about calls from clients without the right.
    pub refused: u64,
    /// Packets that the server received from its socket.
    pub received: u64,
    /// Packets that the server sent on.
    pub forwarded: u64,
    /// Packets that the kernel dropped because the server's receive buffer was full.
    pub dropped: u64,
    /// Packets that the system did not send.
    pub failed: u64,
    /// Datagrams that are no G.711 packets.
    pub invalid: Invalid,
    /// CPU time of the pool.
    pub cpu_ns: i64,
    /// Packets whose passage was to be written down, and of which too many others were.
    pub unwritten: u64,
}

/// Numbers of datagrams that are no G.711 packets, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Invalid {
    /// Shorter than the header says.
    pub truncated: u64,
    /// Not RTP's version 2.
    pub version: u64,
    /// Padding with a length of zero octets.
    pub padding: u64,
    /// A payload type other than 0 and 8.
    pub payload_type: u64,
    /// Longer than any packet of voice.
    pub too_long: u64,
}

impl Invalid {
    /// Counts one invalid datagram.
    pub fn count(&mut self, malformed: Malformed) {
        let counter = match malformed {
            Malformed::Truncated { .. } => &mut self.truncated,
            Malformed::Version(_) => &mut self.version,
            Malformed::Padding => &mut self.padding,
            Malformed::PayloadType(_) => &mut self.payload_type,
        };
        *counter += 1;
    }

    /// The sum over all reasons.
    pub fn total(&self) -> u64 {
        self.truncated + self.version + self.padding + self.payload_type + self.too_long
    }

    fn add(&mut self, other: &Invalid) {
        self.truncated += other.truncated;
        self.version += other.version;
        self.padding += other.padding;
        self.payload_type += other.payload_type;
        self.too_long += other.too_long;
    }
}

impl RelayOptions {
    /// # Errors
    ///
    /// What makes no sense.
    pub fn validate(&self) -> Result<(), MediaError> {
        const THREADS_MAX: u32 = 1024;
        if !(1..=THREADS_MAX).contains(&self.threads) {
            return Err(MediaError::Refused(format!(
                "a pool cannot have {} threads; give 1 to {THREADS_MAX}",
                self.threads
            )));
        }
        if !(1..=BATCH_MAX as u32).contains(&self.batch) {
            return Err(MediaError::Refused(format!(
                "a thread cannot receive {} packets at once; give 1 to {BATCH_MAX}",
                self.batch
            )));
        }
        Ok(())
    }
}

/// Relays packets from `socket` to `to`, until `stop`.
///
/// # Errors
///
/// If the options make no sense or the system fails.
pub fn relay(
    socket: &UdpSocket,
    to: SocketAddr,
    options: &RelayOptions,
    stop: &AtomicBool,
) -> Result<RelayReport, MediaError> {
    options.validate()?;
    let parts: Vec<Result<RelayReport, MediaError>> = thread::scope(|scope| {
        let handles: Vec<_> = (0..options.threads)
            .map(|_| scope.spawn(|| serve(socket, to, options, stop)))
            .collect();
        let joined = handles.into_iter().map(|handle| handle.join());
        joined
            .map(|part| part.expect("a thread of the pool does not panic"))
            .collect()
    });
    let mut whole = RelayReport {
        dropped: socket::dropped(socket)?,
        ..RelayReport::default()
    };
    for part in parts {
        whole.add(&part?);
    }
    Ok(whole)
}

impl RelayReport {
    /// Adds the totals of another thread.
    pub(crate) fn add(&mut self, part: &RelayReport) {
        self.received += part.received;
        self.forwarded += part.forwarded;
        self.failed += part.failed;
        self.invalid.add(&part.invalid);
        self.cpu_ns += part.cpu_ns;
        self.unwritten += part.unwritten;
    }
}

/// One thread of the pool.
fn serve(
    socket: &UdpSocket,
    to: SocketAddr,
    options: &RelayOptions,
    stop: &AtomicBool,
) -> Result<RelayReport, MediaError> {
    let mut report = RelayReport::default();
    let mut receiver = Receiver::new(options.batch as usize);
    let mut sender = Sender::new(socket, to)?;
    while !stop.load(Ordering::Relaxed) {
        report.received += receiver.receive(socket)? as u64;
        let invalid = &mut report.invalid;
        let outgoing = receiver.datagrams().filter_map(|(datagram, octets)| {
            if datagram.cut {
                invalid.too_long += 1;
                return None;
            }
            match process(octets, options) {
                Ok(()) => Some(&*octets),
                Err(malformed) => {
                    invalid.count(malformed);
                    None
                }
            }
        });
        report.forwarded += sender.send(outgoing);
    }
    report.failed = sender.failed;
    report.cpu_ns = clock::thread_cpu_ns();
    Ok(report)
}

/// Processes one packet.
pub(crate) fn process(packet: &mut [u8], options: &RelayOptions) -> Result<(), Malformed> {
    let header = rtp::parse(packet)?;
    if options.transcode {
        g711::transcode(header.law, &mut packet[header.payload]);
        rtp::set_law(packet, header.law.other());
    }
    work(options.work_ns);
    Ok(())
}

/// Uses `work_ns` of the thread's CPU time, however long that takes: a preempted thread still has
/// its work to do.
pub(crate) fn work(work_ns: i64) {
    if work_ns == 0 {
        return;
    }
    let end_ns = clock::thread_cpu_ns() + work_ns;
    while clock::thread_cpu_ns() < end_ns {
        hint::spin_loop();
    }
}
