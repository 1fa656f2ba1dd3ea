//! The daemon's state for people and for Prometheus: one snapshot in three forms.

use std::fmt::{self, Write as _};
use std::io;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, PoisonError};

use hdrhistogram::Histogram;
use laxity_daemon::metrics::{self, family};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use serde::{Deserialize, Serialize};

use crate::clock::now_ns;
use crate::gate::{Counters, Gate};
use crate::guest::Timing;
use crate::protocol::{State, Status};

/// Counters of one virtual machine.
pub struct Counts {
    /// The protocol's status; `None` before the first event.
    pub status: Option<Status>,
    /// The last notice.
    pub notice: String,
    /// Time of the last acknowledgement by the host's clock; 0 if there was none.
    pub acknowledged_at_ns: i64,
    /// Bytes of disks in all checkpoints.
    pub disk_bytes: u64,
    /// Bytes of the disks that the standby may still have otherwise, as of the last checkpoint.
    pub disk_left_bytes: u64,
    /// Times from the sending of checkpoints to their acknowledgement.
    pub transfer: Histogram<u64>,
    checkpoints: u64,
    bytes: u64,
    pages: u64,
    missed: u64,
    pause: Histogram<u64>,
    parts: [Histogram<u64>; PARTS.len()],
    last_pages: u64,
    last_bytes: u64,
}

/// The parts of a pause, in the order of [`Timing`].
pub const PARTS: [&str; 5] = ["device state", "cut", "find pages", "copy pages", "resume"];

fn histogram() -> Histogram<u64> {
    const NS_MAX: u64 = 60_000_000_000;
    Histogram::new_with_max(NS_MAX, 3).expect("these bounds can be had")
}

impl Default for Counts {
    fn default() -> Counts {
        Counts {
            status: None,
            notice: String::new(),
            acknowledged_at_ns: 0,
            disk_bytes: 0,
            disk_left_bytes: 0,
            transfer: histogram(),
            checkpoints: 0,
            bytes: 0,
            pages: 0,
            missed: 0,
            pause: histogram(),
            parts: PARTS.map(|_| histogram()),
            last_pages: 0,
            last_bytes: 0,
        }
    }
}

impl Counts {
    /// Counts an acknowledged checkpoint of Remus's stream; `bytes` is the stream's total so far.
    pub fn note_stream(&mut self, bytes: u64) {
        self.checkpoints += 1;
        self.last_bytes = bytes.saturating_sub(self.bytes);
        self.bytes = self.bytes.max(bytes);
    }

    /// Counts a captured checkpoint.
    pub fn note_capture(&mut self, bytes: u64, pages: u64, missed: u64, timing: &Timing) {
        self.checkpoints += 1;
        self.bytes += bytes;
        self.pages += pages;
        self.missed += missed;
        (self.last_pages, self.last_bytes) = (pages, bytes);
        self.pause.saturating_record(timing.pause_ns);
        let Timing {
            device_state_ns,
            cut_ns,
            find_ns,
            copy_ns,
            resume_ns,
            ..
        } = *timing;
        for (part, ns) in
            self.parts
                .iter_mut()
                .zip([device_state_ns, cut_ns, find_ns, copy_ns, resume_ns])
        {
            part.saturating_record(ns);
        }
    }
}

/// Counters that the daemon writes and others read.
pub type Shared = Arc<Mutex<Counts>>;

/// All virtual machines of a daemon.
#[derive(Clone)]
pub struct Board {
    /// Name of this host.
    pub host: String,
    /// Name, counters and, if there is one, the gate of each virtual machine.
    pub vms: Vec<(String, Shared, Option<Arc<Gate>>)>,
}

/// The state at one moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Name of the reporting host.
    pub host: String,
    /// All virtual machines that are on this host or could be.
    pub vms: Vec<VmState>,
}

/// State of one virtual machine on this host.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct VmState {
    /// Name from the site file.
    pub name: String,
    /// State in one word: `protected`, `alone`, `armed`, ….
    pub state: String,
    /// The last notice.
    pub notice: String,
    /// Term of the holder.
    pub term: u64,
    /// Number of the last acknowledged checkpoint; 0 if there was none.
    pub checkpoint: u64,
    /// Whether the other host is connected.
    pub connected: bool,
    /// Whether something takes too long, or has failed and is tried again later.
    pub stalled: bool,
    /// Interval between checkpoints, of a primary.
    pub interval_ns: Option<u64>,
    /// Length of the next checkpoint's lease, of a primary in No-Net mode.
    pub lease_ns: Option<u64>,
    /// Time since the last acknowledgement, of a primary.
    pub since_acknowledged_ns: Option<u64>,
    /// Number of checkpoints captured here since the daemon's start.
    pub checkpoints: u64,
    /// Bytes of all checkpoints since the daemon's start.
    pub bytes: u64,
    /// Changed pages in all checkpoints since the daemon's start.
    pub pages: u64,
    /// Changed pages that only a comparison found; must be 0.
    pub pages_missed: u64,
    /// Bytes of the last checkpoint.
    pub last_bytes: u64,
    /// Changed pages in the last checkpoint.
    pub last_pages: u64,
    /// Bytes of disks in all checkpoints since the daemon's start.
    pub disk_bytes: u64,
    /// Bytes of the disks that are still to be copied to the standby, of a primary.
    pub disk_left_bytes: u64,
    /// Lengths of the guest's pauses.
    pub pause: Quantiles,
    /// Median of each part of a pause, in the order of [`PARTS`].
    pub pause_parts_p50_ns: Vec<u64>,
    /// Times from the sending of a checkpoint to its acknowledgement.
    pub transfer: Quantiles,
    /// Times for which output was held.
    pub delay: Quantiles,
    /// Frames from the guest that wait now.
    pub frames_held: u64,
    /// Frames from the guest that left.
    pub frames_sent: u64,
    /// Frames to the guest.
    pub frames_received: u64,
    /// Frames dropped for lack of room.
    pub frames_dropped: u64,
    /// Frames that were not permitted to leave.
    pub frames_refused: u64,
    /// Reason why the network does not work, if it does not.
    pub network_fault: Option<String>,
}

/// Summary of a distribution of times.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// The median.
    pub p50_ns: u64,
    /// The 99th percentile.
    pub p99_ns: u64,
    /// The longest time.
    pub max_ns: u64,
}

impl Quantiles {
    fn of(histogram: &Histogram<u64>) -> Quantiles {
        Quantiles {
            p50_ns: histogram.value_at_quantile(0.5),
            p99_ns: histogram.value_at_quantile(0.99),
            max_ns: histogram.max(),
        }
    }
}

/// A state in one word.
pub fn word(state: State) -> &'static str {
    match state {
        State::Alone => "alone",
        State::Copying => "copying",
        State::Protected => "protected",
        State::Switching => "switching",
        State::Waiting => "waiting",
        State::AtRisk => "at-risk",
        State::Off => "off",
        State::Empty => "empty",
        State::Hanging => "hanging",
        State::Armed => "armed",
        State::Claiming => "claiming",
        State::Refused => "refused",
        State::Activating => "activating",
    }
}

/// All states, in the order of their numbers in the metrics.
const STATES: [State; 13] = [
    State::Alone,
    State::Copying,
    State::Protected,
    State::Switching,
    State::Waiting,
    State::AtRisk,
    State::Off,
    State::Empty,
    State::Hanging,
    State::Armed,
    State::Claiming,
    State::Refused,
    State::Activating,
];

impl Board {
    /// The current state.
    pub fn snapshot(&self) -> Snapshot {
        let vms = self.vms.iter().map(|(name, counts, gate)| {
            let Counters {
                sent,
                received,
                held,
                dropped,
                refused,
            } = gate
                .as_ref()
                .map(|gate| gate.counters())
                .unwrap_or_default();
            let counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
            let status = counts.status;
            let is_primary = status.is_some_and(|status| status.interval_ns.is_some());
            let since_ns = (is_primary && counts.acknowledged_at_ns > 0)
                .then(|| now_ns() - counts.acknowledged_at_ns);
            VmState {
                name: name.clone(),
                state: status
                    .map_or("starting", |status| word(status.state))
                    .into(),
                notice: counts.notice.clone(),
                term: status.map_or(0, |status| status.term),
                checkpoint: status
                    .and_then(|status| status.checkpoint)
                    .map_or(0, |id| id.number),
                connected: status.is_some_and(|status| status.connected),
                stalled: status.is_some_and(|status| status.is_stalled),
                interval_ns: status
                    .and_then(|status| status.interval_ns)
                    .map(|ns| ns as u64),
                lease_ns: status
                    .and_then(|status| status.lease_ns)
                    .map(|ns| ns as u64),
                since_acknowledged_ns: since_ns.and_then(|ns| ns.try_into().ok()),
                checkpoints: counts.checkpoints,
                bytes: counts.bytes,
                pages: counts.pages,
                pages_missed: counts.missed,
                last_bytes: counts.last_bytes,
                last_pages: counts.last_pages,
                disk_bytes: counts.disk_bytes,
                disk_left_bytes: if is_primary {
                    counts.disk_left_bytes
                } else {
                    0
                },
                pause: Quantiles::of(&counts.pause),
                pause_parts_p50_ns: counts
                    .parts
                    .iter()
                    .map(|part| part.value_at_quantile(0.5))
                    .collect(),
                transfer: Quantiles::of(&counts.transfer),
                delay: gate
                    .as_ref()
                    .map(|gate| Quantiles::of(&gate.delays()))
                    .unwrap_or_default(),
                frames_held: held,
                frames_sent: sent,
                frames_received: received,
                frames_dropped: dropped,
                frames_refused: refused,
                network_fault: gate.as_ref().and_then(|gate| gate.why_broken()),
            }
        });
        Snapshot {
            host: self.host.clone(),
            vms: vms.collect(),
        }
    }
}

impl Snapshot {
    /// Two tables for a terminal, and what was said last of each virtual machine.
    ///
    /// The first table has the state of each; `age` is the time since a checkpoint was last acknowledged. The second
    /// has the size of the last checkpoint and, as median and 99th percentile, what checkpoints cost.
    pub fn table(&self) -> String {
        let ms = |ns: u64| format!("{:.1}", ns as f64 / 1e6);
        let states = self.vms.iter().map(|vm| {
            let other_host = if vm.connected { "connected" } else { "silent" };
            [
                vm.name.clone(),
                vm.state.clone(),
                other_host.into(),
                vm.term.to_string(),
                vm.checkpoint.to_string(),
                vm.since_acknowledged_ns.map_or_else(String::new, ms),
                vm.interval_ns.map_or_else(String::new, ms),
            ]
        });
        let costs = self.vms.iter().map(|vm| {
            [
                vm.name.clone(),
                vm.last_pages.to_string(),
                vm.last_bytes.div_ceil(1024).to_string(),
                ms(vm.pause.p50_ns),
                ms(vm.pause.p99_ns),
                ms(vm.transfer.p50_ns),
                vm.frames_held.to_string(),
                ms(vm.delay.p50_ns),
                ms(vm.delay.p99_ns),
            ]
        });
        let mut table = format!("{}, times in ms\n\n", self.host);
        let head = [
            "vm",
            "state",
            "other host",
            "term",
            "checkpoint",
            "age",
            "interval",
        ];
        table.push_str(&laxity_daemon::table(head, states, 3));
        table.push('\n');
        let head = [
            "vm", "pages", "KiB", "pause", "p99", "transfer", "held", "delay", "p99",
        ];
        table.push_str(&laxity_daemon::table(head, costs, 1));
        table.push('\n');
        for vm in &self.vms {
            let _ = writeln!(table, "{}: {}", vm.name, vm.notice);
            if vm.stalled {
                let _ = writeln!(
                    table,
                    "{}: STALLED: something takes too long, or fails again and again",
                    vm.name
                );
            }
            if vm.disk_left_bytes > 0 {
                let left = vm.disk_left_bytes.div_ceil(1 << 20);
                let _ = writeln!(
                    table,
                    "{}: {left} MiB of its disks are not copied yet",
                    vm.name
                );
            }
            if vm.pages_missed > 0 {
                let _ = writeln!(
                    table,
                    "{}: changed pages were MISSED: {}",
                    vm.name, vm.pages_missed
                );
            }
            if let Some(fault) = &vm.network_fault {
                let _ = writeln!(table, "{}: its network does not work: {fault}", vm.name);
            }
        }
        table
    }
}

/// Prefix of all names of metrics.
const PREFIX: &str = "laxity_protect";

/// Answers `GET /metrics`.
///
/// # Errors
///
/// If the thread cannot be started.
pub fn serve_metrics(listener: TcpListener, board: Board) -> io::Result<()> {
    metrics::serve(listener, PREFIX, Metrics(board))
}

struct Metrics(Board);

impl fmt::Debug for Metrics {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Metrics")
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    vm: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QuantileLabels {
    vm: String,
    quantile: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    vm: String,
    state: &'static str,
}

/// A metric's name, its help, and its value for one virtual machine.
type Family = (&'static str, &'static str, fn(&VmState) -> f64);
/// A metric with several values.
type TimeFamily = (&'static str, &'static str, fn(&VmState) -> Quantiles);

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let vms = self.0.snapshot().vms;
        let gauges: [Family; 9] = [
            ("connected", "Whether the other host is connected", |vm| {
                f64::from(vm.connected)
            }),
            (
                "stalled",
                "Whether something takes too long, or has failed and is tried again later",
                |vm| f64::from(vm.stalled),
            ),
            ("term", "The holder's number", |vm| vm.term as f64),
            (
                "interval_seconds",
                "From one checkpoint to the next",
                |vm| vm.interval_ns.unwrap_or(0) as f64 / 1e9,
            ),
            (
                "lease_seconds",
                "How long output leaves after a checkpoint; 0 in Net mode",
                |vm| vm.lease_ns.unwrap_or(0) as f64 / 1e9,
            ),
            (
                "since_acknowledged_seconds",
                "Since a checkpoint was last acknowledged",
                |vm| {
                    vm.since_acknowledged_ns
                        .map_or(f64::NAN, |ns| ns as f64 / 1e9)
                },
            ),
            ("last_pages", "That changed in the last epoch", |vm| {
                vm.last_pages as f64
            }),
            ("last_bytes", "Of the last checkpoint", |vm| {
                vm.last_bytes as f64
            }),
            ("frames_held", "Frames that wait for a checkpoint", |vm| {
                vm.frames_held as f64
            }),
        ];
        for (name, help, value) in gauges {
            let metrics = vms
                .iter()
                .map(|vm| (labels(vm), ConstGauge::new(value(vm))));
            family(&mut encoder, name, help, metrics)?;
        }
        let counters: [Family; 8] = [
            ("checkpoints", "Captured", |vm| vm.checkpoints as f64),
            ("bytes", "Of all checkpoints", |vm| vm.bytes as f64),
            ("pages", "That changed", |vm| vm.pages as f64),
            ("pages_missed", "That only a comparison found", |vm| {
                vm.pages_missed as f64
            }),
            ("frames_sent", "From the guest", |vm| vm.frames_sent as f64),
            ("frames_received", "To the guest", |vm| {
                vm.frames_received as f64
            }),
            ("frames_dropped", "For want of room", |vm| {
                vm.frames_dropped as f64
            }),
            ("frames_refused", "That were not allowed to leave", |vm| {
                vm.frames_refused as f64
            }),
        ];
        for (name, help, value) in counters {
            let metrics = vms
                .iter()
                .map(|vm| (labels(vm), ConstCounter::new(value(vm))));
            family(&mut encoder, name, help, metrics)?;
        }
        let times: [TimeFamily; 3] = [
            (
                "pause_seconds",
                "How long the guest stood still for a checkpoint",
                |vm| vm.pause,
            ),
            (
                "epoch_seconds",
                "From the sending of a checkpoint to its acknowledgement",
                |vm| vm.transfer,
            ),
            ("output_delay_seconds", "How long output was held", |vm| {
                vm.delay
            }),
        ];
        for (name, help, value) in times {
            let metrics = vms.iter().flat_map(|vm| {
                let Quantiles {
                    p50_ns,
                    p99_ns,
                    max_ns,
                } = value(vm);
                [("0.5", p50_ns), ("0.99", p99_ns), ("1", max_ns)].map(|(quantile, ns)| {
                    let labels = QuantileLabels {
                        vm: vm.name.clone(),
                        quantile,
                    };
                    (labels, ConstGauge::new(ns as f64 / 1e9))
                })
            });
            family(&mut encoder, name, help, metrics)?;
        }
        let states = vms.iter().flat_map(|vm| {
            STATES.map(|state| {
                let labels = StateLabels {
                    vm: vm.name.clone(),
                    state: word(state),
                };
                (labels, ConstGauge::new(f64::from(vm.state == word(state))))
            })
        });
        family(
            &mut encoder,
            "state",
            "1 for the state that it is in",
            states,
        )
    }
}

fn labels(vm: &VmState) -> Labels {
    Labels {
        vm: vm.name.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::{FrameStream, Port};
    use std::os::unix::net::UnixStream;

    #[test]
    fn what_is_counted_is_told() {
        let (stream, _theirs) = UnixStream::pair().unwrap();
        let outside = Port::Stream(FrameStream::new(stream).unwrap());
        let gate = Arc::new(Gate::start(outside, [0; 6], &[], 0).unwrap());
        let mut counts = Counts::default();
        let timing = Timing {
            pause_ns: 2_000_000,
            ..Timing::default()
        };
        counts.note_capture(5000, 3, 0, &timing);
        let board = Board {
            host: "north".into(),
            vms: vec![(
                "signalling".into(),
                Arc::new(Mutex::new(counts)),
                Some(gate),
            )],
        };
        let snapshot = board.snapshot();
        let json = serde_json::to_string(&snapshot).unwrap();
        assert_eq!(serde_json::from_str::<Snapshot>(&json).unwrap(), snapshot);
        let table = snapshot.table();
        assert!(table.contains("signalling  starting  silent "), "{table}");

        let said = metrics::text(PREFIX, Metrics(board));
        for line in [
            "laxity_protect_bytes_total{vm=\"signalling\"} 5000.0\n",
            "laxity_protect_state{vm=\"signalling\",state=\"protected\"} 0.0\n",
        ] {
            assert!(said.contains(line), "{said}");
        }
        let pause = said
            .lines()
            .find(|line| line.contains("pause_seconds{vm=\"signalling\",quantile=\"0.5\"}"));
        let pause: f64 = pause
            .and_then(|line| line.split(' ').nth(1))
            .unwrap()
            .parse()
            .unwrap();
        assert!((pause - 0.002).abs() < 1e-5, "{pause}");
    }

    #[test]
    fn a_terminal_shows_everything_in_eighty_columns() {
        let long = Quantiles {
            p50_ns: 59_999_000_000,
            p99_ns: 59_999_000_000,
            max_ns: 59_999_000_000,
        };
        let vm = VmState {
            name: "a-virtual-machine-whose-name-has-more-than-forty-letters".into(),
            state: "activating".into(),
            term: 4_000_000_000,
            checkpoint: 9_000_000_000,
            interval_ns: Some(60_000_000_000),
            since_acknowledged_ns: Some(86_400_000_000_000),
            last_bytes: 64 << 30,
            last_pages: 16 << 20,
            pause: long,
            transfer: long,
            delay: long,
            frames_held: 100_000,
            ..VmState::default()
        };
        let snapshot = Snapshot {
            host: "north".into(),
            vms: vec![vm],
        };
        let table = snapshot.table();
        for line in table.lines() {
            assert!(line.chars().count() <= 80, "{table}");
        }
        for text in [
            "activating",
            "9000000000",
            "86400000.0",
            "16777216",
            "100000",
        ] {
            assert!(table.contains(text), "{table}");
        }
    }
}
