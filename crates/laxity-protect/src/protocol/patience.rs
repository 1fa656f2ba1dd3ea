//! Adapts how long a silence may last to how evenly the other host was heard before.

use super::settings::Settings;

/// Number of times that a silence must be as long as the longest one from which the other host came
/// back, to be taken for its loss.
const MULTIPLE: i64 = 3;
/// Time in which the difference between a long silence and the usual ones is forgotten, except for a part
/// of 1/e: the rare delays of a busy machine are minutes apart.
const MEMORY_NS: i64 = 300_000_000_000;

/// The silences between signs of life of the other host.
///
/// Delays of this host are part of them, so that a busy one is patient. They are of the machines and not
/// of the roles, so that whoever was taken for dead too soon waits longer from then on.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Patience {
    /// Time for which signs of life have come.
    heard_for_ns: i64,
    /// The longest silence; shorter ones make it shorter gradually.
    longest_ns: i64,
}

impl Patience {
    /// Notes a silence that has ended, or a time in which this host did not run.
    pub(super) fn note(&mut self, settings: &Settings, silence_ns: i64) {
        let silence_ns = silence_ns.min(settings.detection_ns);
        self.heard_for_ns = self.heard_for_ns.saturating_add(silence_ns);
        self.longest_ns = if silence_ns >= self.longest_ns {
            silence_ns
        } else {
            let excess_ns = i128::from(self.longest_ns - silence_ns);
            let forgotten_ns = excess_ns * i128::from(silence_ns) / i128::from(MEMORY_NS);
            self.longest_ns - forgotten_ns as i64
        };
    }

    /// Length of a silence that is taken for the loss of a primary. It is the longest until the other host
    /// was heard for as long as that.
    pub(super) fn limit_ns(&self, settings: &Settings) -> i64 {
        if self.heard_for_ns < settings.detection_ns {
            return settings.detection_ns;
        }
        let wanted_ns = self.longest_ns.saturating_mul(MULTIPLE);
        wanted_ns
            .max(settings.detection_min_ns)
            .min(settings.detection_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Mode, StandbyLost, interval};

    const MS: i64 = 1_000_000;
    const SETTINGS: Settings = Settings {
        vm: 1,
        mode: Mode::Net,
        standby_lost: StandbyLost::Stop,
        witness: false,
        heartbeat_ns: 20 * MS,
        detection_ns: 300 * MS,
        detection_min_ns: 60 * MS,
        stall_ns: 3000 * MS,
        lease_ns: 800 * MS,
        drift_ppm: 200,
        checkpoint_bytes_max: 0,
        interval: interval::Bounds {
            minimum_ns: 25 * MS,
            maximum_ns: 400 * MS,
            pause_share_percent: 20,
        },
    };

    /// The limit after silences of this length, for this time.
    fn limit_ns(patience: &mut Patience, silence_ns: i64, for_ns: i64) -> i64 {
        for _ in 0..for_ns / silence_ns {
            patience.note(&SETTINGS, silence_ns);
        }
        patience.limit_ns(&SETTINGS)
    }

    #[test]
    fn a_delay_is_remembered_for_minutes() {
        let patience = &mut Patience::default();
        assert_eq!(limit_ns(patience, 20 * MS, 280 * MS), 300 * MS);
        assert_eq!(limit_ns(patience, 20 * MS, 20 * MS), 60 * MS);
        assert_eq!(limit_ns(patience, 80 * MS, 80 * MS), 240 * MS);
        let in_minute_ns = limit_ns(patience, 20 * MS, 60_000 * MS);
        let in_hour_ns = limit_ns(patience, 20 * MS, 3_600_000 * MS);
        let range = 200 * MS..210 * MS;
        assert!(range.contains(&in_minute_ns), "{in_minute_ns}");
        assert!((60 * MS..61 * MS).contains(&in_hour_ns), "{in_hour_ns}");
    }

    /// A checkpoint is many frames, one right after the other.
    #[test]
    fn a_delay_is_forgotten_by_time_and_not_by_frames() {
        let patience = &mut Patience::default();
        limit_ns(patience, 80 * MS, 400 * MS);
        assert_eq!(limit_ns(patience, 1, 100_000), 240 * MS);
    }
}
