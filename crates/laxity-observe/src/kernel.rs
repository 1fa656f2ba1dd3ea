//! What is known of the kernels of a host's guests, and of the host beside them.

use crate::busy::{Busy, Seen};
use crate::recognize::Recognized;
use crate::task::Task;
use laxity_trace::LATE_NS_MAX;
use serde::Deserialize;

/// CPU time that VCPUs take beside their jobs, where it is known. By default nothing is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kernel {
    /// What a VCPU takes each time that it gets a CPU, beside decisions that the trace tells, ns.
    pub arrival_ns: i64,
    /// What an interrupt of a guest's timer takes, ns: one for all jobs and ticks that come until it is served.
    pub interrupt_ns: i64,
    /// What a job takes beside its cost and the interrupt, ns.
    pub wake_ns: i64,
    /// The time between two ticks of a guest's kernel, ns; none where it has none, or they are not known.
    pub tick_ns: Option<i64>,
    /// What the host takes of a VCPU for each nanosecond of its work, ns.
    pub stolen: f64,
}

impl Kernel {
    /// The least work of a busy period that has a job, ns, without what [`Kernel::without`] takes out; none if nothing
    /// is known.
    pub(crate) fn least_ns(&self) -> Option<f64> {
        (*self != Kernel::default()).then_some(self.wake_ns as f64)
    }

    /// When the first tick comes. A guest that falls idle wakes once more for its tick, with no job: the most such
    /// wakes follow within [`LATE_NS_MAX`] of these ticks. `None` if there are none.
    pub(crate) fn tick_offset_ns(&self, busy: &[Busy]) -> Option<i64> {
        let tick_ns = self.tick_ns?;
        let most_ns = self.arrival_ns + self.interrupt_ns + self.wake_ns;
        let mut phases_ns: Vec<i64> = (busy.iter())
            .filter(|busy| busy.is_whole && busy.work_ns < most_ns)
            .map(|busy| busy.start_ns % tick_ns)
            .collect();
        phases_ns.sort_unstable();
        let count = phases_ns.len();
        // Once more around, for those that follow the last ones.
        phases_ns.extend_from_within(..);
        phases_ns[count..].iter_mut().for_each(|ns| *ns += tick_ns);
        (0..count)
            .max_by_key(|&from| {
                let until_ns = phases_ns[from] + LATE_NS_MAX;
                let followers = phases_ns.partition_point(|&ns| ns <= until_ns) - from;
                (followers.min(count), std::cmp::Reverse(from))
            })
            .map(|from| phases_ns[from])
    }

    /// The busy periods of a VCPU without what its arrivals and interrupts take, as far as they are known without jobs.
    pub(crate) fn without(&self, seen: &Seen, tick_offset_ns: Option<i64>) -> Vec<Busy> {
        let mut spans = seen.ran_ns.iter().copied().peekable();
        let without = |busy: &Busy| {
            // A VCPU may run on for a moment after it has blocked.
            let own = std::iter::from_fn(|| spans.next_if(|span| span.0 < busy.end_ns));
            let ran_ns: Vec<_> = own.filter(|span| span.0 >= busy.start_ns).collect();
            let interrupts = self.interrupts(&ran_ns, tick_offset_ns);
            let own_ns = i64::from(busy.runs) * self.arrival_ns + interrupts * self.interrupt_ns;
            let work_ns = (busy.work_ns - own_ns) as f64 / (1.0 + self.stolen);
            Busy {
                work_ns: (work_ns.round() as i64).max(0),
                ..*busy
            }
        };
        seen.busy.iter().map(without).collect()
    }

    /// How many interrupts a VCPU has in a busy period in which it ran from and to these times: one for the wake, one
    /// for each tick that comes while it runs, and one for all that come while it waits.
    fn interrupts(&self, ran_ns: &[(i64, i64)], tick_offset_ns: Option<i64>) -> i64 {
        let ticks = |from_ns: i64, to_ns: i64| {
            let Some((offset_ns, tick_ns)) = tick_offset_ns.zip(self.tick_ns) else {
                return 0;
            };
            let passed = |ns: i64| (ns - offset_ns).div_euclid(tick_ns);
            passed(to_ns) - passed(from_ns)
        };
        let (mut interrupts, mut off_ns) = (0, None);
        for &(from_ns, to_ns) in ran_ns {
            let is_due = off_ns.is_none_or(|off_ns| ticks(off_ns, from_ns) > 0);
            let served_ns = if is_due { self.interrupt_ns } else { 0 };
            interrupts += i64::from(is_due) + ticks((from_ns + served_ns).min(to_ns), to_ns);
            off_ns = Some(to_ns);
        }
        interrupts
    }

    /// Takes what each job takes beside its cost from the costs that were found.
    pub(crate) fn apart(&self, found: Recognized, tick_offset_ns: Option<i64>) -> Recognized {
        let less = |ns: i64| (ns - self.wake_ns).max(1);
        let tasks = (found.tasks.into_iter())
            .map(|task| Task {
                cost_ns: less(task.cost_ns),
                alone_ns: task.alone_ns.map(|(least, most)| (less(least), less(most))),
                ..task
            })
            .collect();
        Recognized {
            tasks,
            tick_offset_ns,
            ..found
        }
    }
}
