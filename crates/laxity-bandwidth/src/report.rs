//! The daemon's state for people and for Prometheus: one snapshot in three forms.

use std::fmt::{self, Write as _};
use std::io::{self, Write as _};
use std::net::TcpListener;
use std::ops::{Deref, DerefMut};
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use laxity_daemon::metrics::{self, family, metric};
use laxity_daemon::requests::serve_unix;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use serde::{Deserialize, Serialize};

use crate::agreements::format_rate;

/// The state at one moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The interface of the link.
    pub link: String,
    /// The link's rate outwards, in bit/s.
    pub link_bit_s: u64,
    /// Interval between two periods, in ns.
    pub period_ns: u64,
    /// Time that the last period's work took, in ns.
    pub loop_ns: u64,
    /// Longest time that a period's work has taken since the start, in ns.
    pub loop_ns_max: u64,
    /// Number of periods so far.
    pub periods: u64,
    /// Number of periods left out because the previous one took too long or the daemon did not run.
    pub periods_missed: u64,
    /// Number of times that the agreements were read again.
    pub reloads: u64,
    /// Number of times that a changed file was refused.
    pub reloads_refused: u64,
    /// Number of times that the shaping was restored after another program had changed it.
    pub restored: u64,
    /// A feature that the kernel lacks, in words for people.
    pub shortcoming: Option<String>,
    /// All holders, with all other traffic at the end.
    pub holders: Vec<HolderState>,
}

/// State of one holder in one direction.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HolderState {
    /// Name from the file, or `others` for traffic without an agreement.
    pub name: String,
    /// Interface on the host's side.
    pub interface: String,
    /// "transmit" or "receive", from the virtual machine's point of view.
    pub direction: String,
    /// Whether the interface exists.
    pub is_present: bool,
    /// Priority class; 1 is the highest.
    pub class: u32,
    /// Agreed minimum, in bit/s.
    pub minimum_bit_s: u64,
    /// Agreed maximum, in bit/s.
    pub maximum_bit_s: u64,
    /// Estimated demand, in bit/s.
    pub offered_bit_s: u64,
    /// Rate granted now, in bit/s.
    pub granted_bit_s: u64,
    /// Rate of the last period, in bit/s.
    pub delivered_bit_s: u64,
    /// Bytes delivered since the daemon's start.
    pub delivered_bytes: u64,
    /// Packets dropped from the queue on the host's side since the start; drops inside the guest
    /// are not visible here.
    pub dropped_packets: u64,
    /// Time since the start in which the holder had traffic waiting, in ns.
    pub throttled_ns: u64,
    /// Number of seconds in which the holder asked all the time and got less than 99 % of its
    /// minimum.
    pub violations: u64,
}

/// A snapshot that the daemon writes and others read. A reader holds the lock only to share the
/// snapshot, so that the daemon, whose priority is higher, does not wait for it to be formatted.
#[derive(Debug, Clone, Default)]
pub struct Shared(Arc<Mutex<Arc<Snapshot>>>);

impl Shared {
    /// The snapshot, to change it; it is copied first if somebody still reads it.
    pub fn write(&self) -> Writing<'_> {
        Writing(self.lock())
    }

    pub(crate) fn read(&self) -> Arc<Snapshot> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Arc<Snapshot>> {
        // The snapshot is complete whenever the lock is free.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A snapshot that is being changed.
#[derive(Debug)]
pub struct Writing<'s>(MutexGuard<'s, Arc<Snapshot>>);

impl Deref for Writing<'_> {
    type Target = Snapshot;

    fn deref(&self) -> &Snapshot {
        &self.0
    }
}

impl DerefMut for Writing<'_> {
    fn deref_mut(&mut self) -> &mut Snapshot {
        Arc::make_mut(&mut self.0)
    }
}

/// Prefix of all names of metrics.
const PREFIX: &str = "laxity_bandwidth";

/// Answers each connection with one JSON object.
///
/// # Errors
///
/// If the thread cannot be started.
pub fn serve_status(listener: UnixListener, shared: Shared) -> io::Result<()> {
    serve_unix("status", listener, move |connection| {
        let answer = serde_json::to_vec(&*shared.read()).expect("a snapshot is JSON");
        connection.write_all(&answer)
    })
}

/// Answers `GET /metrics`.
///
/// # Errors
///
/// If the thread cannot be started.
pub fn serve_metrics(listener: TcpListener, shared: Shared) -> io::Result<()> {
    metrics::serve(listener, PREFIX, Metrics(shared))
}

/// A metric's name, its help, and its value for one holder.
type Family = (&'static str, &'static str, fn(&HolderState) -> f64);

#[derive(Debug)]
struct Metrics(Shared);

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    vm: String,
    interface: String,
    direction: String,
}

fn labels(holder: &HolderState) -> Labels {
    Labels {
        vm: holder.name.clone(),
        interface: holder.interface.clone(),
        direction: holder.direction.clone(),
    }
}

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let snapshot = self.0.read();
        let gauges: [Family; 6] = [
            ("offered_bits_per_second", "Estimated demand", |each| {
                each.offered_bit_s as f64
            }),
            ("granted_bits_per_second", "Current allocation", |each| {
                each.granted_bit_s as f64
            }),
            ("minimum_bits_per_second", "Agreed minimum", |each| {
                each.minimum_bit_s as f64
            }),
            ("maximum_bits_per_second", "Agreed maximum", |each| {
                each.maximum_bit_s as f64
            }),
            ("present", "Whether the interface exists", |each| {
                f64::from(each.is_present)
            }),
            ("class", "Agreed class, 1 is the highest", |each| {
                f64::from(each.class)
            }),
        ];
        for (name, help, value) in gauges {
            let metrics = snapshot.holders.iter();
            let metrics = metrics.map(|each| (labels(each), ConstGauge::new(value(each))));
            family(&mut encoder, name, help, metrics)?;
        }
        let counters: [Family; 4] = [
            ("delivered_bytes", "Sent", |each| {
                each.delivered_bytes as f64
            }),
            ("dropped_packets", "Dropped on the host's side", |each| {
                each.dropped_packets as f64
            }),
            (
                "throttled_seconds",
                "Time in which packets had to wait",
                |each| each.throttled_ns as f64 / 1e9,
            ),
            (
                "violations",
                "Seconds in which less than the minimum was delivered despite demand",
                |each| each.violations as f64,
            ),
        ];
        for (name, help, value) in counters {
            let metrics = snapshot.holders.iter();
            let metrics = metrics.map(|each| (labels(each), ConstCounter::new(value(each))));
            family(&mut encoder, name, help, metrics)?;
        }
        let whole = [
            (
                "loop_seconds",
                "Duration of the last reading of all counters",
                snapshot.loop_ns as f64 / 1e9,
            ),
            (
                "loop_seconds_max",
                "Duration of the longest reading of all counters",
                snapshot.loop_ns_max as f64 / 1e9,
            ),
            (
                "link_bits_per_second",
                "Rate of the link",
                snapshot.link_bit_s as f64,
            ),
        ];
        for (name, help, value) in whole {
            metric(&mut encoder, name, help, &ConstGauge::new(value))?;
        }
        let counts = [
            ("periods", "Readings of the counters", snapshot.periods),
            (
                "periods_missed",
                "Readings of the counters that were skipped",
                snapshot.periods_missed,
            ),
            (
                "reloads",
                "Times that agreements were read again",
                snapshot.reloads,
            ),
            (
                "reloads_refused",
                "New agreements that were refused",
                snapshot.reloads_refused,
            ),
            (
                "restored",
                "Times that other programs removed or changed the shaping, which was restored",
                snapshot.restored,
            ),
        ];
        for (name, help, value) in counts {
            metric(&mut encoder, name, help, &ConstCounter::new(value))?;
        }
        Ok(())
    }
}

impl Snapshot {
    /// Two tables for a terminal: rates of the last period, and what happened since the start.
    pub fn table(&self) -> String {
        let mut text = String::new();
        let ms = |ns: u64| ns as f64 / 1e6;
        let _ = writeln!(text, "{}, {}", self.link, format_rate(self.link_bit_s));
        let _ = writeln!(
            text,
            "a reading every {:.0} ms; the last took {:.2} ms, the longest {:.2} ms",
            ms(self.period_ns),
            ms(self.loop_ns),
            ms(self.loop_ns_max)
        );
        let _ = writeln!(
            text,
            "{} readings, and {} more that were due but skipped",
            self.periods, self.periods_missed
        );
        if self.restored > 0 {
            let times = if self.restored == 1 { "time" } else { "times" };
            let _ = writeln!(
                text,
                "other programs removed or changed the shaping; it was restored {} {times}",
                self.restored
            );
        }
        if let Some(shortcoming) = &self.shortcoming {
            let _ = writeln!(text, "{}", shortcoming.replace(": ", ":\n  "));
        }
        text.push_str("\nMbit/s in the last period\n");
        let head = [
            "vm",
            "interface",
            "",
            "minimum",
            "maximum",
            "offered",
            "granted",
            "sent",
        ];
        text.push_str(&of_holders(head, &self.holders, |each| {
            let granted = if each.is_present {
                megabits(each.granted_bit_s)
            } else {
                "absent".into()
            };
            [
                megabits(each.minimum_bit_s),
                megabits(each.maximum_bit_s),
                megabits(each.offered_bit_s),
                granted,
                megabits(each.delivered_bit_s),
            ]
        }));
        text.push_str("\nsince the start\n");
        let head = [
            "vm",
            "interface",
            "",
            "class",
            "sent",
            "dropped",
            "throttled",
            "short",
        ];
        text.push_str(&of_holders(head, &self.holders, |each| {
            [
                each.class.to_string(),
                megabytes(each.delivered_bytes),
                each.dropped_packets.to_string(),
                format!("{:.1} s", each.throttled_ns as f64 / 1e9),
                format!("{} s", each.violations),
            ]
        }));
        text
    }
}

/// A table of all holders: who it is, and five numbers of each.
fn of_holders(
    head: [&str; 8],
    holders: &[HolderState],
    numbers: impl Fn(&HolderState) -> [String; 5],
) -> String {
    const WORDS: usize = 3;
    let rows = holders.iter().map(|each| {
        let [a, b, c, d, e] = numbers(each);
        let direction = match &*each.direction {
            "receive" => "gets",
            _ => "sends",
        };
        let (name, interface) = (each.name.clone(), each.interface.clone());
        [name, interface, direction.into(), a, b, c, d, e]
    });
    laxity_daemon::table(head, rows, WORDS)
}

/// In MB, or in GB where that reads better.
fn megabytes(bytes: u64) -> String {
    const IN_GIGABYTES: u64 = 10_000_000_000;
    if bytes < IN_GIGABYTES {
        format!("{:.1} MB", bytes as f64 / 1e6)
    } else {
        format!("{:.1} GB", bytes as f64 / 1e9)
    }
}

/// In Mbit/s, with no more digits than are meaningful.
fn megabits(bit_s: u64) -> String {
    const EXACT_MBIT_S: f64 = 10_000.0;
    let mbit_s = bit_s as f64 / 1e6;
    let decimals = usize::from(mbit_s < EXACT_MBIT_S);
    format!("{mbit_s:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_is_told_by_its_labels() {
        let holder = HolderState {
            name: "media".into(),
            interface: "vif1.0".into(),
            direction: "transmit".into(),
            delivered_bytes: 1234,
            throttled_ns: 1_500_000_000,
            ..HolderState::default()
        };
        let shared = Shared::default();
        shared.write().holders.push(holder);
        let told = metrics::text(PREFIX, Metrics(shared));
        let labels = "{vm=\"media\",interface=\"vif1.0\",direction=\"transmit\"}";
        for line in [
            format!("laxity_bandwidth_delivered_bytes_total{labels} 1234.0\n"),
            format!("laxity_bandwidth_throttled_seconds_total{labels} 1.5\n"),
        ] {
            assert!(told.contains(&line), "{told}");
        }
    }

    #[test]
    fn a_terminal_shows_everything_in_eighty_columns() {
        let holder = |name: &str, interface: &str, direction: &str| HolderState {
            name: name.into(),
            interface: interface.into(),
            direction: direction.into(),
            is_present: direction == "transmit",
            class: 1_000,
            minimum_bit_s: 1_000_000_000,
            maximum_bit_s: 10_000_000_000_000,
            offered_bit_s: 10_000_000_000_000,
            granted_bit_s: 10_000_000_000_000,
            delivered_bit_s: 10_000_000_000_000,
            delivered_bytes: 9_000_000_000_000_000,
            dropped_packets: 4_000_000_000,
            throttled_ns: 90_000_000_000_000,
            violations: 86_400,
        };
        let long = "a-virtual-machine-whose-name-has-more-than-forty-letters";
        let snapshot = Snapshot {
            link: "enp129s0f1np1".into(),
            link_bit_s: 10_000_000_000_000,
            period_ns: 10_000_000_000,
            loop_ns: 1_234_000_000,
            loop_ns_max: 1_234_000_000,
            periods: 362,
            periods_missed: 448,
            restored: 2,
            shortcoming: Some("this kernel has no fq_codel: the flows of one virtual machine share one short queue".into()),
            holders: vec![
                holder(long, "tap123456789012", "transmit"),
                holder("media\u{1b}[2J", "vif1.0", "receive"),
            ],
            ..Snapshot::default()
        };
        let table = snapshot.table();
        for line in table.lines() {
            assert!(line.chars().count() <= 80, "{table}");
        }
        for text in [
            "362 readings, and 448 more",
            "2 times",
            "tap123456789012",
            "absent",
        ] {
            assert!(table.contains(text), "{table}");
        }
        assert!(!table.contains('\u{1b}'), "{table}");
    }
}
