//! A bound on what one source puts into the log.

use std::time::{Duration, Instant};

/// Lines that a source may put into the log in a second, and the number of those that are left out.
/// Whoever makes a daemon say something, as often as they like, neither fills the disk nor hides
/// what others say.
#[derive(Debug)]
pub struct Allowance {
    lines_s_max: u32,
    /// Beginning of the second that counts.
    since: Option<Instant>,
    said: u32,
    unsaid: u64,
}

impl Allowance {
    /// An allowance of so many lines in each second.
    pub fn new(lines_s_max: u32) -> Allowance {
        Allowance {
            lines_s_max,
            since: None,
            said: 0,
            unsaid: 0,
        }
    }

    /// Takes the allowance for one line. Returns the number of lines that were left out before it;
    /// `None` if it is to be left out itself.
    pub fn take(&mut self, now: Instant) -> Option<u64> {
        const SECOND: Duration = Duration::from_secs(1);
        let is_over = |since| now.saturating_duration_since(since) >= SECOND;
        if self.since.is_none_or(is_over) {
            (self.since, self.said) = (Some(now), 0);
        }
        if self.said >= self.lines_s_max {
            self.unsaid += 1;
            return None;
        }
        self.said += 1;
        Some(std::mem::take(&mut self.unsaid))
    }

    /// The number of lines that were left out since the last one.
    pub fn unsaid(&self) -> u64 {
        self.unsaid
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_beyond_the_allowance_are_counted() {
        let (begin, mut allowance) = (Instant::now(), Allowance::new(2));
        let mut take = |ms| allowance.take(begin + Duration::from_millis(ms));
        let taken = [0, 1, 2, 999, 1_000, 1_500, 1_999, 2_000].map(&mut take);
        let expected = [
            Some(0),
            Some(0),
            None,
            None,
            Some(2),
            Some(0),
            None,
            Some(1),
        ];
        assert_eq!(taken, expected);
        assert_eq!(allowance.unsaid(), 0);
    }
}
