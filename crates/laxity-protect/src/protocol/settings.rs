//! What the operator states about the protection of one virtual machine.

use serde::Serialize;
use thiserror::Error;

use super::interval;

/// What happens to the guest's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Output waits for the acknowledgement of the checkpoint at the end of its epoch: nothing that
    /// anybody has seen is ever lost.
    Net,
    /// Output leaves at once, while a lease lasts that acknowledgements renew: a failure loses what
    /// happened since the last checkpoint.
    NoNet,
}

/// What the primary does when the standby falls silent, which may be because it has taken over, or lives and
/// acknowledges nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StandbyLost {
    /// It waits, silent, until the standby answers or the operator decides.
    Stop,
    /// It goes on unprotected: with a witness as soon as that has ruled out the standby, without one at
    /// the operator's own risk.
    Continue,
}

/// Of one virtual machine, the same on both of its hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Settings {
    /// The virtual machine, by a number that no other has on these hosts.
    pub vm: u64,
    /// What happens to its output.
    pub mode: Mode,
    /// What becomes of it when its standby falls silent.
    pub standby_lost: StandbyLost,
    /// Whether a third party gives out the terms.
    pub witness: bool,
    /// From one sign of life to the next.
    pub heartbeat_ns: i64,
    /// After so much silence the other side is taken for lost.
    pub detection_ns: i64,
    /// A standby that lives, and has not acknowledged a checkpoint for so long, is of no use.
    pub stall_ns: i64,
    /// How long output may leave after the taking of a checkpoint that was acknowledged; No-Net only.
    pub lease_ns: i64,
    /// By how much the clocks of the hosts may run apart, in millionths.
    pub drift_ppm: i64,
    /// The most bytes that a checkpoint of such a guest can have. A longer one is refused before any of it is kept.
    pub checkpoint_bytes_max: u64,
    /// From one checkpoint to the next.
    pub interval: interval::Bounds,
}

/// Settings that cannot work, and what would.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Unworkable {
    /// Times of zero or less.
    #[error("{0} must be longer than zero")]
    NotPositive(&'static str),
    /// A lost message would be taken for a lost host.
    #[error(
        "detection ({detection_ns} ns) must be at least three heartbeats ({heartbeat_ns} ns each)"
    )]
    Detection {
        /// As it was stated.
        detection_ns: i64,
        /// As it was stated.
        heartbeat_ns: i64,
    },
    /// It would run out from one checkpoint to the next.
    #[error(
        "the lease ({lease_ns} ns) must be at least twice the longest interval ({interval_ns} ns)"
    )]
    Lease {
        /// As it was stated.
        lease_ns: i64,
        /// The longest, as it was stated.
        interval_ns: i64,
    },
    /// The shortest interval is longer than the longest.
    #[error(
        "the shortest interval ({minimum_ns} ns) must not be longer than the longest ({maximum_ns} ns)"
    )]
    Interval {
        /// As it was stated.
        minimum_ns: i64,
        /// As it was stated.
        maximum_ns: i64,
    },
    /// A share of nothing or of everything.
    #[error("the share of pauses must be from 1 to 99 percent, not {0}")]
    PauseShare(i64),
    /// No clock is so wrong.
    #[error("the drift of clocks must be from 0 to 100000 millionths, not {0}")]
    Drift(i64),
}

impl Settings {
    /// Refuses what cannot work.
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
        if self.detection_ns / 3 < self.heartbeat_ns {
            wrong.push(Unworkable::Detection {
                detection_ns: self.detection_ns,
                heartbeat_ns: self.heartbeat_ns,
            });
        }
        if self.mode == Mode::NoNet && self.lease_ns / 2 < interval.maximum_ns {
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

    /// How long a standby waits after an acknowledgement, so that the lease has run out by the other
    /// host's clock, too; nothing in Net mode, where output needs acknowledgements.
    pub(super) fn lease_wait_ns(&self) -> i64 {
        match self.mode {
            Mode::Net => 0,
            Mode::NoNet => {
                let drift_ns = i128::from(self.lease_ns) * i128::from(self.drift_ppm) / 1_000_000;
                self.lease_ns + drift_ns as i64 + 1
            }
        }
    }

    /// Whether nobody is ever heard beside another holder of the guest, whatever fails.
    pub fn promises_one_voice(&self) -> bool {
        self.standby_lost == StandbyLost::Stop || self.witness
    }
}
