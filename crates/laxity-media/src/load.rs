//! The load: streams of G.711 sent at absolute times.

use crate::{
    MediaError, clock,
    distribution::{Distribution, Quantiles},
    g711::Law,
    machine,
    rtp::{self, HEADER_BYTES, PACKET_BYTES},
    schedule::{PERIOD_SAMPLES, Schedule},
    socket::Sender,
    stamp::Stamp,
};
use nix::sys::prctl;
use schemars::JsonSchema;
use serde::Serialize;
use std::{
    net::{SocketAddr, UdpSocket},
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

/// Packets of one system call: few, so that the time in a packet is close to the time at which it
/// leaves.
const BATCH: usize = 32;
/// Time from the start of the threads to the first packet, enough for the last thread to start.
const START_AFTER_NS: i64 = 50_000_000;

/// Results of the load, with its own lateness.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct LoadReport {
    /// Number of streams.
    pub streams: u32,
    /// Number of packets that were due.
    pub due: u64,
    /// Number of sending threads.
    pub threads: u32,
    /// Interval between two wake-ups.
    pub tick_ns: i64,
    /// Whether the threads ran with real-time priority (SCHED_FIFO), which needs a permission.
    /// Without it other work on the machine delays them.
    pub real_time: bool,
    /// Packets that the system accepted.
    pub sent: u64,
    /// Packets that the system refused.
    pub failed: u64,
    /// The system's error for the last of these.
    pub error: Option<String>,
    /// Time from the intended start to the end of the last thread, measured by the threads' clock.
    pub measured_duration_ns: i64,
    /// Lateness of a thread's wake-ups.
    pub wake_up_late: Option<Quantiles>,
    /// Time from when a packet was due to the end of the system call that sent it.
    pub packet_late: Option<Quantiles>,
}

/// Sends all packets of `schedule` to `to`, or until `stop`.
///
/// # Errors
///
/// If nothing can be sent to `to`, or the system took not one packet.
pub fn load(
    socket: &UdpSocket,
    to: SocketAddr,
    law: Law,
    schedule: &Schedule,
    stop: &AtomicBool,
) -> Result<LoadReport, MediaError> {
    let start_ns = clock::monotonic_ns() + START_AFTER_NS;
    let threads = 0..schedule.threads();
    let parts: Vec<Result<Part, MediaError>> = thread::scope(|scope| {
        let handles: Vec<_> = threads
            .map(|thread| {
                let send = move || send(socket, to, law, schedule, thread, start_ns, stop);
                scope.spawn(send)
            })
            .collect();
        let joined = handles.into_iter().map(|handle| handle.join());
        joined
            .map(|part| part.expect("a thread of the load does not panic"))
            .collect()
    });
    let size = Size {
        streams: schedule.streams(),
        threads: schedule.threads(),
        tick_ns: schedule.tick_ns(),
    };
    report(size, start_ns, parts)
}

/// The size of a load.
pub(crate) struct Size {
    pub streams: u32,
    pub threads: u32,
    pub tick_ns: i64,
}

/// The results of all threads together.
pub(crate) fn report(
    size: Size,
    begin_ns: i64,
    parts: impl IntoIterator<Item = Result<Part, MediaError>>,
) -> Result<LoadReport, MediaError> {
    let mut whole = Part {
        real_time: true,
        ..Part::default()
    };
    for part in parts {
        let part = part?;
        whole.due += part.due;
        whole.sent += part.sent;
        whole.failed += part.failed;
        whole.error = part.error.or(whole.error);
        whole.real_time &= part.real_time;
        whole.wake_up_late.merge(&part.wake_up_late);
        whole.packet_late.merge(&part.packet_late);
        whole.ended_ns = whole.ended_ns.max(part.ended_ns);
    }
    if let (0, Some(error)) = (whole.sent, whole.error) {
        return Err(MediaError::system("send")(error));
    }
    Ok(LoadReport {
        streams: size.streams,
        due: whole.due,
        threads: size.threads,
        tick_ns: size.tick_ns,
        real_time: whole.real_time,
        sent: whole.sent,
        failed: whole.failed,
        error: whole.error.map(|error| error.desc().to_string()),
        measured_duration_ns: whole.ended_ns - begin_ns,
        wake_up_late: whole.wake_up_late.quantiles(),
        packet_late: whole.packet_late.quantiles(),
    })
}

/// The results of one thread.
#[derive(Default)]
pub(crate) struct Part {
    pub real_time: bool,
    pub due: u64,
    pub sent: u64,
    pub failed: u64,
    pub error: Option<nix::errno::Errno>,
    pub wake_up_late: Distribution,
    pub packet_late: Distribution,
    /// Time at which the thread had nothing left to send.
    pub ended_ns: i64,
}

impl Part {
    /// Results of the calling thread, whose wake-ups are exact from now on as far as the system
    /// permits.
    pub fn begin() -> Part {
        // The kernel may delay a timer by its slack, 50 us by default, to save power. A slack of 1
        // ns is always accepted.
        prctl::set_timerslack(1).expect("a thread may set its timer slack");
        Part {
            real_time: machine::become_real_time(),
            ..Part::default()
        }
    }
}

fn send(
    socket: &UdpSocket,
    to: SocketAddr,
    law: Law,
    schedule: &Schedule,
    thread: u32,
    start_ns: i64,
    stop: &AtomicBool,
) -> Result<Part, MediaError> {
    let mut part = Part::begin();
    part.due = schedule
        .turns(thread)
        .map(|turn| turn.streams.len() as u64)
        .sum();
    let mut sender = Sender::new(socket, to)?;
    let silence = law.encode(0);
    let mut packets = [[silence; PACKET_BYTES]; BATCH];
    let mut end_ns = start_ns + schedule.duration_ns();
    for turn in schedule.turns(thread) {
        if stop.load(Ordering::Relaxed) {
            end_ns = 0;
            break;
        }
        let due_ns = start_ns + turn.due_ns;
        clock::sleep_until(due_ns);
        part.wake_up_late.record(clock::monotonic_ns() - due_ns, 1);
        for first in turn.streams.clone().step_by(BATCH) {
            let streams = first..turn.streams.end.min(first + BATCH as u32);
            let batch = &mut packets[..streams.len()];
            let sent_ns = clock::monotonic_ns();
            for (stream, packet) in streams.zip(&mut *batch) {
                let stamp = Stamp {
                    run: run_of(start_ns),
                    stream: stream as u16,
                    streams: schedule.streams() as u16,
                    packet: turn.packet,
                    packets: schedule.packets(),
                    sent_ns,
                };
                write(&stamp, law, packet);
            }
            let sent = sender.send(batch.iter().map(|packet| &packet[..]));
            part.sent += sent;
            part.packet_late
                .record(clock::monotonic_ns() - due_ns, sent);
        }
    }
    clock::sleep_until(end_ns);
    part.ended_ns = clock::monotonic_ns();
    part.failed = sender.failed;
    part.error = sender.error;
    Ok(part)
}

/// The number of a run that starts at this time, which distinguishes it from other runs.
pub(crate) fn run_of(start_ns: i64) -> u32 {
    start_ns as u32
}

/// Writes the packet that a stamp describes.
pub(crate) fn write(stamp: &Stamp, law: Law, packet: &mut [u8; PACKET_BYTES]) {
    let (run, stream) = (stamp.run, u32::from(stamp.stream));
    let header = rtp::Header {
        marker: stamp.packet == 0,
        law,
        // RFC 3550, section 5.1, asks for random initial values. These differ from stream to stream
        // and from run to run.
        sequence: (run.wrapping_add(stream.wrapping_mul(40_503)) as u16)
            .wrapping_add(stamp.packet as u16),
        timestamp: run
            .wrapping_add(stream.wrapping_mul(2_654_435_761))
            .wrapping_add(stamp.packet.wrapping_mul(PERIOD_SAMPLES)),
        ssrc: run.wrapping_add(stream),
        payload: HEADER_BYTES..PACKET_BYTES,
    };
    rtp::write_header(&header, packet);
    stamp.write(law, &mut packet[HEADER_BYTES..]);
}
