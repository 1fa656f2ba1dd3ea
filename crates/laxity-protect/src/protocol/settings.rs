//! The operator's settings for the protection of one virtual machine.

use serde::Serialize;
use thiserror::Error;

use super::interval;

/// The treatment of the guest's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Output waits for the acknowledgement of the checkpoint at the end of its epoch: no visible
    /// output is ever lost.
    Net,
    /// Output leaves at once during a lease, which acknowledgements renew: a failure loses
    /// everything since the last checkpoint.
    NoNet,
}

/// The primary's behaviour when the standby falls silent, which may have taken over, or live and
/// acknowledge nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StandbyLost {
    /// The primary waits silently until the standby answers or the operator decides.
    Stop,
    /// The primary goes on unprotected: with a witness as soon as the standby is ruled out, without
    /// one at the operator's risk.
    Continue,
}

/// What holds where the operator states nothing else.
pub mod defaults {
    const MS: i64 = 1_000_000;

    /// Interval between two signs of life.
    pub const HEARTBEAT_NS: i64 = 20 * MS;
    /// Silence after which the other side counts as lost, however unevenly it was heard.
    pub const DETECTION_NS: i64 = 300 * MS;
    /// Shortest silence that counts as a loss, in signs of life: a machine that is idle but for one guest now and
    /// then delays more than one.
    pub const DETECTION_MIN_HEARTBEATS: i64 = 5;
    /// Time without an acknowledgement, in multiples of `detection`, after which a living standby has
    /// stalled. Pauses of a busy machine are shorter.
    pub const STALL_DETECTIONS: i64 = 10;
    /// Time after a copy in which leases are the longest, in multiples of these.
    pub const SETTLING_LEASES: i64 = 4;
    /// Worst-case relative drift of two commodity clocks, in ppm.
    pub const DRIFT_PPM: i64 = 200;
}

/// Least number of heartbeats in `detection`: fewer lost ones in a row are no loss of the host.
pub const DETECTION_HEARTBEATS: i64 = 3;
/// Longest time until something that failed is tried again, in multiples of the time after which a
/// standby counts as stalled: a try costs the guest a pause.
const RETRY_STALLS: i64 = 10;
/// Least number of intervals in a lease, which must not run out from one checkpoint to the next.
pub const LEASE_INTERVALS: i64 = 2;

/// Settings of one virtual machine, the same on both of its hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Settings {
    /// Number of the virtual machine, unique on these hosts.
    pub vm: u64,
    /// Treatment of the guest's output.
    pub mode: Mode,
    /// The primary's behaviour when the standby falls silent.
    pub standby_lost: StandbyLost,
    /// Whether a witness gives out the terms.
    pub witness: bool,
    /// Interval between two signs of life.
    pub heartbeat_ns: i64,
    /// Silence after which the other side counts as lost, however unevenly it was heard.
    pub detection_ns: i64,
    /// Silence after which the other host is not taken for lost yet, however evenly it was heard.
    pub detection_min_ns: i64,
    /// Time without an acknowledgement after which a living standby counts as stalled; also the
    /// time without a checkpoint, and the time until a guest runs after a takeover, after which that
    /// counts as too long.
    pub stall_ns: i64,
    /// Longest time for which output may leave after the capture of an acknowledged checkpoint, however late
    /// acknowledgements were before; No-Net only.
    pub lease_ns: i64,
    /// Time after the standby was armed in which leases are the longest: the copy of all of the memory has just
    /// ended, and perhaps the guest's start, so that checkpoints are late as they are not later on.
    pub settling_ns: i64,
    /// Largest relative drift of the hosts' clocks, in ppm.
    pub drift_ppm: i64,
    /// Most bytes of a checkpoint of this guest. A longer one is refused before any of it is kept.
    pub checkpoint_bytes_max: u64,
    /// Bounds of the interval between checkpoints.
    pub interval: interval::Bounds,
}

/// Settings that cannot work, with settings that would.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Unworkable {
    /// A time is zero or negative.
    #[error("{0} must be longer than zero")]
    NotPositive(&'static str),
    /// A single lost message would count as a lost host.
    #[error(
        "detection ({detection_ns} ns) must be at least three heartbeats ({heartbeat_ns} ns each)"
    )]
    Detection {
        /// The stated value.
        detection_ns: i64,
        /// The stated value.
        heartbeat_ns: i64,
    },
    /// The lease would run out between two checkpoints.
    #[error(
        "the lease ({lease_ns} ns) must be at least twice the longest interval ({interval_ns} ns)"
    )]
    Lease {
        /// The stated value.
        lease_ns: i64,
        /// The stated longest interval.
        interval_ns: i64,
    },
    /// The shortest interval is longer than the longest.
    #[error(
        "the shortest interval ({minimum_ns} ns) must not be longer than the longest ({maximum_ns} ns)"
    )]
    Interval {
        /// The stated value.
        minimum_ns: i64,
        /// The stated value.
        maximum_ns: i64,
    },
    /// The share of pauses is nothing or everything.
    #[error("the share of pauses must be from 1 to 99 percent, not {0}")]
    PauseShare(i64),
    /// The drift is beyond that of any clock.
    #[error("the drift of clocks must be from 0 to 100000 millionths, not {0}")]
    Drift(i64),
}

impl Settings {
    /// Checks that the settings can work.
    ///
    /// # Errors
    ///
    /// All that is wrong.
    pub fn check(&self) -> Result<(), Vec<Unworkable>> {
        let mut wrong = Vec::new();
        let interval = self.interval;
        let positive = [
            ("heartbeat", self.heartbeat_ns),
            ("detection", self.detection_ns),
            ("the time after which a standby stalls", self.stall_ns),
            ("the shortest interval", interval.minimum_ns),
            ("the longest interval", interval.maximum_ns),
        ];
        let too_short = positive.iter().filter(|(_, time_ns)| *time_ns <= 0);
        wrong.extend(too_short.map(|(name, _)| Unworkable::NotPositive(name)));
        if self.detection_ns / DETECTION_HEARTBEATS < self.heartbeat_ns {
            wrong.push(Unworkable::Detection {
                detection_ns: self.detection_ns,
                heartbeat_ns: self.heartbeat_ns,
            });
        }
        if self.mode == Mode::NoNet && self.lease_ns / LEASE_INTERVALS < interval.maximum_ns {
            wrong.push(Unworkable::Lease {
                lease_ns: self.lease_ns,
                interval_ns: interval.maximum_ns,
            });
        }
        if interval.minimum_ns > interval.maximum_ns {
            wrong.push(Unworkable::Interval {
                minimum_ns: interval.minimum_ns,
                maximum_ns: interval.maximum_ns,
            });
        }
        if !(1..=99).contains(&interval.pause_share_percent) {
            wrong.push(Unworkable::PauseShare(interval.pause_share_percent));
        }
        if !(0..=100_000).contains(&self.drift_ppm) {
            wrong.push(Unworkable::Drift(self.drift_ppm));
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong) }
    }

    /// Time that a standby waits after it acknowledged a checkpoint with this lease, so that the lease has run
    /// out by the other host's clock, too; zero in Net mode, where output needs acknowledgements.
    pub(super) fn lease_wait_ns(&self, lease_ns: i64) -> i64 {
        match self.mode {
            Mode::Net => 0,
            Mode::NoNet => {
                let drift_ns = i128::from(lease_ns) * i128::from(self.drift_ppm) / 1_000_000;
                lease_ns + drift_ns as i64 + 1
            }
        }
    }

    /// Time before something is tried again that has failed this many times in a row: the longest
    /// interval at first, and twice as long each time, up to [`RETRY_STALLS`].
    pub(super) fn retry_ns(&self, failures: u32) -> i64 {
        let shortest_ns = self.interval.maximum_ns;
        let longest_ns = self.stall_ns.saturating_mul(RETRY_STALLS);
        let doublings = failures.saturating_sub(1).min(i64::BITS - 2);
        shortest_ns
            .saturating_mul(1 << doublings)
            .min(longest_ns.max(shortest_ns))
    }

    /// Whether no host is ever heard beside another holder of the guest, whatever fails.
    pub fn promises_one_voice(&self) -> bool {
        self.standby_lost == StandbyLost::Stop || self.witness
    }
}
