//! The sink: receives the streams and measures them.

use crate::{
    MediaError,
    capture::Capture,
    clock,
    distribution::{Distribution, Quantiles},
    machine,
    session::{Got, Plan, Session, SessionReport},
    socket::{self, BATCH_MAX, Receiver},
};
use laxity_config::format_duration;
use schemars::JsonSchema;
use serde::Serialize;
use std::{
    fs::File,
    io::{self, BufWriter, Write},
    net::{SocketAddr, UdpSocket},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

/// Time to wait after the load's end and the last received packet.
pub(crate) const LINGER_NS: i64 = 2_000_000_000;
/// Resolution of a wait.
const MS_NS: i64 = 1_000_000;
/// Size of a receive buffer that holds one second of 2,000 streams, as far as the system allows it.
const RECEIVE_BUFFER_BYTES: usize = 64 << 20;

/// Options of the sink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SinkOptions {
    /// Delay beyond which a packet is late.
    pub playout_ns: i64,
    /// Longest wait for the first packet.
    pub wait_ns: i64,
    /// The size of the load, if it is known beforehand. A known load of which nothing arrives is
    /// reported as dead; an unknown one is an error.
    pub plan: Option<Plan>,
    /// Path of a capture of all received packets.
    pub capture: Option<PathBuf>,
}

/// The received load, and the quality of the measurement.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct SinkReport {
    /// Results of the load.
    #[serde(flatten)]
    pub session: SessionReport,
    /// Whether the sink ran with real-time priority; see
    /// [`LoadReport::real_time`](crate::load::LoadReport).
    pub real_time: bool,
    /// Packets that the kernel dropped because the sink did not fetch them in time. They count as
    /// lost, but the media server did not lose them.
    pub dropped: u64,
    /// Time from the kernel's reception of a packet to its fetching by the sink; not part of the
    /// delay.
    pub fetched_late: Option<Quantiles>,
}

/// Measures one load that arrives at `socket`, until it is over or `stop`.
///
/// # Errors
///
/// If nothing comes, the clocks differ, the capture cannot be written, or the system fails.
pub fn measure(
    socket: &UdpSocket,
    options: &SinkOptions,
    stop: &AtomicBool,
) -> Result<SinkReport, MediaError> {
    socket::set_receive_buffer(socket, RECEIVE_BUFFER_BYTES)?;
    let address = socket::address(socket)?;
    let mut capture = options
        .capture
        .as_deref()
        .map(CaptureFile::create)
        .transpose()?;
    let real_time = machine::become_real_time();
    let mut session = Session::new(options.playout_ns, options.plan);
    let mut fetched_late = Distribution::default();
    socket::stamp_arrivals(socket)?;
    let mut receiver = Receiver::with_times(BATCH_MAX);
    let start_ns = clock::monotonic_ns();
    let mut last_ns = start_ns;
    while !stop.load(Ordering::Relaxed) && !session.is_complete() {
        let looked_ns = clock::monotonic_ns();
        let received = receiver.receive(socket)?;
        let now_ns = clock::monotonic_ns();
        if received == 0 {
            let over_ns = if session.has_begun() {
                last_ns.max(session.end_ns()) + LINGER_NS
            } else {
                start_ns + options.wait_ns
            };
            // Packets may have come since, while this thread did not run.
            if looked_ns >= over_ns {
                break;
            }
            continue;
        }
        last_ns = now_ns;
        for (datagram, octets) in receiver.datagrams() {
            // The first packets after a socket was asked for times may have none.
            let arrived_ns = datagram.arrived_ns.unwrap_or(now_ns);
            fetched_late.record(now_ns - arrived_ns, 1);
            if let (Some(capture), Some(source)) = (&mut capture, datagram.source) {
                capture.write(arrived_ns, source, address, octets)?;
            }
            if datagram.cut {
                session.count_too_long();
            } else {
                let got = Got {
                    arrived_ns,
                    fetched_ns: now_ns,
                };
                session.record(octets, got, None)?;
            }
        }
    }
    if let Some(capture) = capture {
        capture.finish()?;
    }
    if !session.has_begun() && options.plan.is_none() {
        return Err(MediaError::NothingCame {
            address,
            waited: format_duration((clock::monotonic_ns() - start_ns) / MS_NS * MS_NS),
        });
    }
    Ok(SinkReport {
        session: session.report(),
        real_time,
        dropped: socket::dropped(socket)?,
        fetched_late: fetched_late.quantiles(),
    })
}

/// A capture that is written to a file.
pub(crate) struct CaptureFile {
    path: PathBuf,
    /// Offset of the clock, read once, so that setting the clock leaves the capture in order.
    realtime_offset_ns: i64,
    capture: Capture<BufWriter<File>>,
}

impl CaptureFile {
    pub fn create(path: &Path) -> Result<CaptureFile, MediaError> {
        let capture = File::create(path)
            .and_then(|file| Capture::new(BufWriter::new(file)))
            .map_err(|source| refused(path, source))?;
        Ok(CaptureFile {
            path: path.to_path_buf(),
            realtime_offset_ns: clock::realtime_offset_ns(),
            capture,
        })
    }

    pub fn write(
        &mut self,
        arrived_ns: i64,
        source: SocketAddr,
        destination: SocketAddr,
        octets: &[u8],
    ) -> Result<(), MediaError> {
        let realtime_ns = arrived_ns + self.realtime_offset_ns;
        self.capture
            .write(realtime_ns, source, destination, octets)
            .map_err(|source| refused(&self.path, source))
    }

    pub fn finish(self) -> Result<(), MediaError> {
        let flushed = self.capture.into_inner().flush();
        flushed.map_err(|source| refused(&self.path, source))
    }
}

fn refused(path: &Path, source: io::Error) -> MediaError {
    MediaError::Capture {
        path: path.to_path_buf(),
        source,
    }
}
