//! How long from one checkpoint to the next: as short as the guest's pauses and the way to the standby
//! allow.

use serde::Serialize;

/// Within which the interval adapts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Bounds {
    /// The shortest.
    pub minimum_ns: i64,
    /// The longest; what an interval cannot keep to then, the guest pays with its pauses.
    pub maximum_ns: i64,
    /// The part of its time that the guest may spend in pauses, in percent.
    pub pause_share_percent: i64,
}

/// What one epoch cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measured {
    /// How long the guest stood still.
    pub pause_ns: i64,
    /// From sending a checkpoint to its acknowledgement.
    pub transfer_ns: i64,
}

/// Of the way down to a shorter interval, that one epoch goes.
const DOWN_PARTS: i64 = 8;

/// The interval that follows `interval_ns`. It gets longer at once, so that pauses stay below their share
/// and checkpoints do not queue, and shorter by and by.
pub fn next(bounds: &Bounds, interval_ns: i64, measured: Measured) -> i64 {
    let for_pauses_ns = measured.pause_ns.saturating_mul(100) / bounds.pause_share_percent;
    let wanted_ns = for_pauses_ns
        .max(measured.transfer_ns)
        .clamp(bounds.minimum_ns, bounds.maximum_ns);
    if wanted_ns >= interval_ns {
        wanted_ns
    } else {
        // Rounded up, so that it arrives.
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
