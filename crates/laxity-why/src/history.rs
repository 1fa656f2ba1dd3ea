//! The recent uses of a VCPU's time: the sum of each use up to any recent time.

use std::collections::VecDeque;

/// A stretch of time that went into one thing.
#[derive(Debug, Clone, Copy)]
struct Span {
    start_ns: i64,
    end_ns: i64,
    /// The sum of all spans of the thing before.
    before_ns: i64,
}

/// The spans of a VCPU, by the index of what it spent them on.
#[derive(Debug, Default)]
pub struct History {
    /// Spans that ended longer ago are forgotten.
    window_ns: i64,
    spans: Vec<VecDeque<Span>>,
}

impl History {
    /// One that goes back so far.
    pub fn new(window_ns: i64) -> History {
        History {
            window_ns,
            spans: Vec::new(),
        }
    }

    /// The VCPU spent this time on the thing with that index.
    pub fn push(&mut self, key: usize, start_ns: i64, end_ns: i64) {
        if start_ns >= end_ns {
            return;
        }
        if self.spans.len() <= key {
            self.spans.resize_with(key + 1, VecDeque::new);
        }
        let spans = &mut self.spans[key];
        let before_ns = match spans.back_mut() {
            Some(last) if last.end_ns == start_ns => {
                last.end_ns = end_ns;
                return;
            }
            Some(last) => last.before_ns + last.end_ns - last.start_ns,
            None => 0,
        };
        spans.push_back(Span {
            start_ns,
            end_ns,
            before_ns,
        });
        while spans.len() > 1 && spans[0].end_ns < end_ns.saturating_sub(self.window_ns) {
            spans.pop_front();
        }
    }

    /// How much of a time within the window went into each thing, by its index; what did not go into any is left out.
    pub fn between(&self, from_ns: i64, to_ns: i64) -> impl Iterator<Item = (usize, i64)> {
        let is_within = move |spans: &VecDeque<Span>| {
            // Most things are long ago.
            (spans.front().zip(spans.back()))
                .is_some_and(|(first, last)| first.start_ns < to_ns && last.end_ns > from_ns)
        };
        let spent = move |spans| up_to(spans, to_ns) - up_to(spans, from_ns);
        (self.spans.iter().enumerate())
            .filter(move |(_, spans)| is_within(spans))
            .map(move |(key, spans)| (key, spent(spans)))
            .filter(|&(_, ns)| ns > 0)
    }
}

/// The sum of the spans up to a time.
fn up_to(spans: &VecDeque<Span>, time_ns: i64) -> i64 {
    match spans.partition_point(|span| span.start_ns <= time_ns) {
        0 => spans.front().map_or(0, |first| first.before_ns),
        above => {
            let span = &spans[above - 1];
            span.before_ns + time_ns.min(span.end_ns) - span.start_ns
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_go_where_they_were_spent() {
        let mut history = History::new(100);
        for (key, start_ns, end_ns) in [(0, 0, 10), (1, 10, 30), (0, 30, 35), (0, 35, 40)] {
            history.push(key, start_ns, end_ns);
        }
        let between = |from_ns, to_ns| history.between(from_ns, to_ns).collect::<Vec<_>>();
        assert_eq!(between(0, 40), [(0, 20), (1, 20)]);
        assert_eq!(between(5, 32), [(0, 7), (1, 20)]);
        assert_eq!(between(12, 13), [(1, 1)]);
    }

    #[test]
    fn what_is_forgotten_does_not_change_what_is_asked() {
        let mut history = History::new(50);
        for round in 0..1000 {
            history.push(0, 20 * round, 20 * round + 5);
            history.push(1, 20 * round + 5, 20 * round + 20);
        }
        assert!(history.spans.iter().all(|spans| spans.len() < 6));
        let last = history.between(20_000 - 50, 20_000).collect::<Vec<_>>();
        assert_eq!(last, [(0, 10), (1, 40)]);
    }
}
