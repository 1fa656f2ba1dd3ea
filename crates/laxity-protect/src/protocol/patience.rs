//! Adapts how long a host waits for something to how long that took before: a silence of the other host, and an
//! acknowledgement, which a lease must outlast.

/// Time in which the difference between a long wait and the usual ones is forgotten, except for a part of
/// 1/e: the rare delays of a busy machine are minutes apart.
const MEMORY_NS: i64 = 300_000_000_000;

/// The waits of the last minutes.
///
/// Delays of this host are part of them, so that a busy one is patient. Silences are of the machines and not
/// of the roles, so that whoever was taken for dead too soon waits longer from then on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// Number of times that a wait must be as long as the longest one that ended well, to be taken for a
    /// failure.
    multiple: i64,
    least_ns: i64,
    most_ns: i64,
    /// Time in which waits have ended well.
    known_for_ns: i64,
    /// The longest wait; shorter ones make it shorter gradually.
    longest_ns: i64,
}

impl Patience {
    /// The patience of one who knows nothing yet, and waits for `most_ns`.
    pub(super) fn new(multiple: i64, least_ns: i64, most_ns: i64) -> Patience {
        Patience {
            multiple,
            least_ns,
            most_ns,
            known_for_ns: 0,
            longest_ns: 0,
        }
    }

    /// Notes a wait that has ended, or a time in which this host did not run; `passed_ns` is the time since the
    /// last note, at most the longest wait at once.
    pub(super) fn note(&mut self, wait_ns: i64, passed_ns: i64) {
        let [wait_ns, passed_ns] = [wait_ns, passed_ns].map(|ns| ns.clamp(0, self.most_ns));
        self.known_for_ns = self.known_for_ns.saturating_add(passed_ns);
        self.longest_ns = if wait_ns >= self.longest_ns {
            wait_ns
        } else {
            let excess_ns = i128::from(self.longest_ns - wait_ns);
            let forgotten_ns = excess_ns * i128::from(passed_ns) / i128::from(MEMORY_NS);
            self.longest_ns - forgotten_ns as i64
        };
    }

    /// Length of a wait that is taken for a failure. It is the longest until something is known of as much time.
    pub(super) fn limit_ns(&self) -> i64 {
        if self.known_for_ns < self.most_ns {
            return self.most_ns;
        }
        let wanted_ns = self.longest_ns.saturating_mul(self.multiple);
        wanted_ns.max(self.least_ns).min(self.most_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    fn unknown() -> Patience {
        Patience::new(3, 60 * MS, 300 * MS)
    }

    /// The limit after waits of this length, for this time.
    fn limit_ns(patience: &mut Patience, wait_ns: i64, for_ns: i64) -> i64 {
        for _ in 0..for_ns / wait_ns {
            patience.note(wait_ns, wait_ns);
        }
        patience.limit_ns()
    }

    #[test]
    fn a_delay_is_remembered_for_minutes() {
        let patience = &mut unknown();
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
        let patience = &mut unknown();
        limit_ns(patience, 80 * MS, 400 * MS);
        assert_eq!(limit_ns(patience, 1, 100_000), 240 * MS);
    }
}
