//! A VCPU's budget over time, as points with straight lines between them.

use crate::{Kind, Record};

/// Follows one VCPU's budget: records give its value at points; between them it runs down at 1 ns a
/// ns while it is used, and stays while it is not. Two points at one time are a step.
#[derive(Debug, Clone)]
pub(crate) struct BudgetLine {
    /// Time and value; never empty.
    points: Vec<(i64, i64)>,
    /// Points before this time are of no interest, but for the last.
    from_ns: i64,
    /// Charged in steps: a fall is never a slope.
    steps: bool,
    /// Since when the VCPU has been running.
    running_since_ns: Option<i64>,
}

impl BudgetLine {
    /// A line that begins at time 0 with `value_ns`.
    pub fn new(value_ns: i64, steps: bool, from_ns: i64) -> Self {
        BudgetLine {
            points: vec![(0, value_ns)],
            from_ns,
            steps,
            running_since_ns: None,
        }
    }

    /// Takes a record of the VCPU; in order of time.
    pub fn record(&mut self, record: &Record) {
        match record.kind {
            Kind::Run => self.running_since_ns = Some(record.time_ns),
            // The policy states what is left in a record of its own.
            Kind::Stop => self.running_since_ns = None,
            Kind::Replenish => {
                self.run_down(record.time_ns);
                self.push(record.time_ns, record.argument);
            }
            Kind::Budget => self.fall_to(record.time_ns, record.argument),
            Kind::Exhaust => self.fall_to(record.time_ns, 0),
            _ => {}
        }
    }

    /// Goes on to `to_ns`, to which no record comes.
    pub fn go_on_to(&mut self, to_ns: i64) {
        self.run_down(to_ns);
    }

    /// The points so far. The last of them is also the first of those that are taken next.
    pub fn take(&mut self) -> Vec<(i64, i64)> {
        let last = self.last();
        std::mem::replace(&mut self.points, vec![last])
    }

    /// The line within `from_ns` (as given at the beginning) to `to_ns`, both ends included.
    pub fn finish(mut self, to_ns: i64) -> Vec<(i64, i64)> {
        self.run_down(to_ns);
        if let [(before_ns, value_ns), (_, after_value_ns), ..] = self.points[..]
            && before_ns < self.from_ns
        {
            // A line between two points is level or falls by 1 ns a ns.
            let fell_ns = if after_value_ns == value_ns {
                0
            } else {
                self.from_ns - before_ns
            };
            self.points[0] = (self.from_ns, value_ns.saturating_sub(fell_ns));
        }
        self.points
    }

    fn last(&self) -> (i64, i64) {
        self.points[self.points.len() - 1]
    }

    fn push(&mut self, time_ns: i64, value_ns: i64) {
        if time_ns < self.from_ns {
            self.points.clear();
        }
        if self.points.last() != Some(&(time_ns, value_ns)) {
            self.points.push((time_ns, value_ns));
        }
    }

    /// Goes on to `time_ns`, where no record says what is left: the budget was used if the VCPU ran.
    fn run_down(&mut self, time_ns: i64) {
        let (last_ns, value_ns) = self.last();
        let used_from_ns = match self.running_since_ns {
            Some(since_ns) if !self.steps && value_ns > 0 => since_ns.max(last_ns),
            _ => time_ns,
        };
        self.push(used_from_ns, value_ns);
        let used_ns = value_ns.min(time_ns - used_from_ns);
        if used_ns > 0 {
            self.push(used_from_ns + used_ns, value_ns - used_ns);
            self.push(time_ns, value_ns - used_ns);
        }
    }

    /// The budget is `value_ns` now. What is gone was used last thing before, if there was the time
    /// for that since the last point; so also a budget that runs down while its VCPU is blocked
    /// (periodic server) is a slope. If there was not, it was dropped.
    fn fall_to(&mut self, time_ns: i64, value_ns: i64) {
        let (last_ns, last_value_ns) = self.last();
        let fell_ns = last_value_ns.saturating_sub(value_ns);
        if !self.steps && (0..=time_ns - last_ns).contains(&fell_ns) {
            self.push(time_ns - fell_ns, last_value_ns);
        } else {
            self.run_down(time_ns);
        }
        self.push(time_ns, value_ns);
    }
}
