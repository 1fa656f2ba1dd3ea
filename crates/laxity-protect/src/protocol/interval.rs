//! Adapts the interval between checkpoints: as short as the guest's pauses and the transfer to the
//! standby allow.

use serde::Serialize;

/// Bounds of the interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Bounds {
    /// Shortest interval.
    pub minimum_ns: i64,
    /// Longest interval; where it does not suffice, the guest spends more of its time in pauses.
    pub maximum_ns: i64,
    /// Largest part of the guest's time in pauses, in percent.
    pub pause_share_percent: i64,
}

/// Measurements of one epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measured {
    /// Length of the guest's pause.
    pub pause_ns: i64,
    /// Time from the sending of a checkpoint to its acknowledgement.
    pub transfer_ns: i64,
}

impl Measured {
    /// What both epochs took at least. One that took longer than the one before may be the only one, and would
    /// lengthen the epochs of seconds; what lasts is known one epoch later.
    pub fn lesser(self, other: Measured) -> Measured {
        Measured {
            pause_ns: self.pause_ns.min(other.pause_ns),
            transfer_ns: self.transfer_ns.min(other.transfer_ns),
        }
    }
}

/// Part of the distance to a shorter interval that one epoch covers.
const DOWN_PARTS: i64 = 8;

/// The interval after `interval_ns`, by what lasts of the last epochs. It grows at once, so that pauses stay below
/// their share and checkpoints do not queue, and shrinks gradually.
pub fn next(bounds: &Bounds, interval_ns: i64, measured: Measured) -> i64 {
    let for_pauses_ns = measured.pause_ns.saturating_mul(100) / bounds.pause_share_percent;
    let wanted_ns = for_pauses_ns
        .max(measured.transfer_ns)
        .clamp(bounds.minimum_ns, bounds.maximum_ns);
    if wanted_ns >= interval_ns {
        wanted_ns
    } else {
        // The step is rounded up, so that the interval reaches its target.
        interval_ns - (interval_ns - wanted_ns + DOWN_PARTS - 1) / DOWN_PARTS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds {
        minimum_ns: 25,
        maximum_ns: 400,
        pause_share_percent: 10,
    };

    fn settle(mut interval_ns: i64, pause_ns: i64, transfer_ns: i64) -> (i64, usize) {
        let measured = Measured {
            pause_ns,
            transfer_ns,
        };
        for step in 0.. {
            let next_ns = next(&BOUNDS, interval_ns, measured);
            if next_ns == interval_ns {
                return (interval_ns, step);
            }
            interval_ns = next_ns;
        }
        unreachable!("settles");
    }

    #[test]
    fn longer_at_once_and_shorter_by_and_by() {
        assert_eq!(settle(25, 1, 5), (25, 0));
        assert_eq!(
            settle(25, 20, 5),
            (200, 1),
            "a pause of 20 is a tenth of 200"
        );
        assert_eq!(settle(25, 1, 120), (120, 1), "checkpoints do not queue");
        assert_eq!(settle(25, 1000, 5), (400, 1), "no longer than the longest");
        let (interval_ns, steps) = settle(400, 1, 5);
        assert!(
            interval_ns == 25 && steps > 10,
            "{interval_ns} after {steps}"
        );
    }
}
