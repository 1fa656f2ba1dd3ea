//! The division of a job's lateness among the parts of its response.

use crate::cause::{Cause, Part};

/// A job whose response has been split.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// The domain, by its place in the host file.
    pub domain: u16,
    /// The task, by its place in the domain.
    pub task: u32,
    /// The job's number, from 0.
    pub number: u64,
    /// When it arrived, ns from the start of the run.
    pub arrival_ns: i64,
    /// When it had to be complete, ns from the start of the run.
    pub deadline_ns: i64,
    /// When it was, or the end of the trace, ns from the start of the run.
    pub end_ns: i64,
    /// Whether it was complete then.
    pub is_complete: bool,
    /// How long after its deadline that was; 0 if it was in time.
    pub late_ns: i64,
    /// The response, from the longest part to the shortest. Their delays sum to `end_ns` - `arrival_ns`, their shares
    /// to `late_ns`. Empty if the job was in time and only late ones are split.
    pub parts: Vec<Part>,
}

/// Divides a job's lateness among the parts of its response, whose delays sum to the response.
///
/// Own work is a cause only where it alone is longer than the deadline, by what it is longer. The rest of the lateness
/// is divided among all other parts in proportion to their delays: each nanosecond of delay would have made the job a
/// nanosecond earlier, whenever it came. Shares are whole nanoseconds that sum to the lateness exactly; each is within
/// one of its proportion.
pub fn divide(parts: &mut [Part], relative_deadline_ns: i64, late_ns: i64) {
    let is_own = |part: &Part| part.cause == Cause::OwnWork;
    let mut delays_ns = 0_i128;
    let mut rest_ns = late_ns;
    for part in parts.iter_mut() {
        if is_own(part) {
            part.ns = (part.delay_ns - relative_deadline_ns).clamp(0, late_ns);
            rest_ns -= part.ns;
        } else {
            delays_ns += i128::from(part.delay_ns);
        }
    }
    let (mut before_ns, mut given_ns) = (0_i128, 0_i64);
    for part in parts.iter_mut().filter(|part| !is_own(part)) {
        before_ns += i128::from(part.delay_ns);
        let up_to_ns = match delays_ns {
            0 => 0,
            _ => in_proportion(rest_ns, before_ns, delays_ns),
        };
        part.ns = up_to_ns - given_ns;
        given_ns = up_to_ns;
    }
}

/// `whole_ns` · `part_ns` / `sum_ns`, rounded down; the usual times take no division in 128 bits.
fn in_proportion(whole_ns: i64, part_ns: i128, sum_ns: i128) -> i64 {
    if let (Ok(part), Ok(sum)) = (i64::try_from(part_ns), i64::try_from(sum_ns))
        && let Some(product) = whole_ns.checked_mul(part)
    {
        return product / sum;
    }
    (i128::from(whole_ns) * part_ns / sum_ns) as i64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cause::Who;

    fn parts(delays_ns: &[(Cause, i64)]) -> Vec<Part> {
        let part = |&(cause, delay_ns)| Part {
            cause,
            who: Who::Nobody,
            rule: None,
            delay_ns,
            ns: 0,
        };
        delays_ns.iter().map(part).collect()
    }

    fn shares(delays_ns: &[(Cause, i64)], deadline_ns: i64) -> Vec<i64> {
        let mut parts = parts(delays_ns);
        let response_ns: i64 = parts.iter().map(|part| part.delay_ns).sum();
        divide(&mut parts, deadline_ns, (response_ns - deadline_ns).max(0));
        parts.iter().map(|part| part.ns).collect()
    }

    #[test]
    fn delays_share_in_proportion() {
        let delays = [(Cause::OwnWork, 4), (Cause::Cpu, 6), (Cause::Budget, 3)];
        assert_eq!(shares(&delays, 10), [0, 2, 1]);
        assert_eq!(shares(&delays, 13), [0, 0, 0]);
    }

    #[test]
    fn shares_sum_where_they_do_not_divide() {
        let delays = [(Cause::Cpu, 1), (Cause::Task, 1), (Cause::Switch, 1)];
        assert_eq!(shares(&delays, 1).iter().sum::<i64>(), 2);
        assert_eq!(shares(&delays, 2).iter().sum::<i64>(), 1);
    }

    #[test]
    fn own_work_is_a_cause_where_it_alone_is_too_long() {
        assert_eq!(shares(&[(Cause::OwnWork, 12), (Cause::Cpu, 5)], 10), [2, 5]);
        assert_eq!(shares(&[(Cause::OwnWork, 12)], 10), [2]);
    }

    #[test]
    fn times_near_the_greatest_do_not_overflow() {
        let delays = [(Cause::Cpu, i64::MAX / 3), (Cause::Task, i64::MAX / 3)];
        assert_eq!(shares(&delays, 0).iter().sum::<i64>(), i64::MAX / 3 * 2);
    }
}
