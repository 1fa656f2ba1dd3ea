//! Response times of a guest's tasks on the supply of their VCPU.
//!
//! Rate-monotonic guests: the busy-period analysis of Lehoczky (1990), on a supply as Davis and
//! Burns (RTSS 2005) do it. Jobs that are late and queue are part of the busy period, so a late
//! task leaves the bounds of those below it intact. Offsets are ignored, which is safe.
//!
//! *Bound* tasks (Davis and Burns) arrive only when their VCPU is replenished, so they
//! need not wait for a replenishment. If all tasks above are bound too, no busy period begins
//! elsewhere. If not, one may have begun up to a period earlier; what arrived since counts, and
//! what was served meanwhile is left out. (Davis and Burns count arrivals only from the period less
//! the budget before, on the ground that it is the worst case; that is not obvious when more is
//! served but more arrives, so it is not used here.)
//!
//! EDF guests: processor demand (Baruah, Rosier and Howell, 1990) against supply, as Shin and Lee
//! (RTSS 2003), at the points of Zhang and Burns' QPA (2009).
//!
//! The ticks of a guest's kernel are a task above all others without a deadline of its own: at most one
//! arrives in a period, be it due to running, waiting or idle VCPUs, and those that are missed only
//! become fewer. Under EDF all that can arrive within a window come before the deadline at its end.

use crate::supply::{STEPS_MAX, Supply};
use crate::{Ns, ceiling_divide};

/// Busy periods of more jobs of one task than this are given up.
const JOBS_MAX: i128 = 64;

/// A task, as its guest's scheduler sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GuestTask {
    pub cost_ns: Ns,
    pub period_ns: Ns,
    pub deadline_ns: Ns,
    pub jitter_ns: Ns,
    /// Arrives only at replenishments of its VCPU.
    pub bound: bool,
    /// Comes before all tasks, whatever orders these; its own deadline is nobody's concern.
    pub is_tick: bool,
}

impl GuestTask {
    pub fn new(task: &laxity_host::Task, bound: bool) -> GuestTask {
        GuestTask {
            cost_ns: task.cost_ns.into(),
            period_ns: task.period_ns.into(),
            deadline_ns: task.deadline_ns.into(),
            jitter_ns: task.jitter_ns.into(),
            bound,
            is_tick: false,
        }
    }

    pub fn of_tick(tick: &laxity_host::Tick) -> GuestTask {
        GuestTask {
            cost_ns: tick.cost_ns.into(),
            period_ns: tick.period_ns.into(),
            deadline_ns: tick.period_ns.into(),
            jitter_ns: 0,
            bound: false,
            is_tick: true,
        }
    }

    /// The most that jobs released within a window demand, if arrivals up to `earlier_ns` before
    /// count.
    pub fn request_ns(&self, window_ns: Ns, earlier_ns: Ns) -> Ns {
        ceiling_divide(window_ns + self.jitter_ns + earlier_ns, self.period_ns) * self.cost_ns
    }

    /// The most that jobs with release and deadline within a window demand.
    fn demand_ns(&self, window_ns: Ns) -> Ns {
        if self.is_tick {
            return self.request_ns(window_ns, 0);
        }
        let after_ns = window_ns - (self.deadline_ns - self.jitter_ns);
        if after_ns < 0 {
            0
        } else {
            (after_ns / self.period_ns + 1) * self.cost_ns
        }
    }
}

/// Whether the tasks need no more than the supply gives in the long run.
fn is_sustained(tasks: &[GuestTask], supply: &Supply) -> bool {
    // Exact fractions of a few dozen 42-bit periods do not fit; rounded up to 2^-60 they are safe.
    const ONE: Ns = 1 << 60;
    let needed: Ns = tasks
        .iter()
        .map(|task| ceiling_divide(task.cost_ns * ONE, task.period_ns))
        .sum();
    let slack = tasks.len() as Ns;
    needed <= supply.budget_ns * ONE / supply.period_ns + slack
}

/// A bound on a response time, and whether the task counts as bound in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Response {
    pub bound_ns: Ns,
    pub bound_task: bool,
}

/// Bounds on response times, from the arrival, of tasks in order of rank, highest first.
pub(crate) fn fixed_priority(tasks: &[GuestTask], supply: &Supply) -> Vec<Option<Response>> {
    (0..tasks.len())
        .map(|rank| {
            let (above, task) = (&tasks[..rank], &tasks[rank]);
            if !is_sustained(&tasks[..=rank], supply) {
                return None;
            }
            let unbound =
                busy_period(above, task, |load_ns| supply.time_for(load_ns), 0).map(|bound_ns| {
                    Response {
                        bound_ns,
                        bound_task: false,
                    }
                });
            let bound = task
                .bound
                .then(|| {
                    busy_period(
                        above,
                        task,
                        |load_ns| supply.time_from_release(load_ns),
                        if above.iter().all(|other| other.bound) {
                            0
                        } else {
                            supply.gap_ns.max(supply.period_ns)
                        },
                    )
                })
                .flatten()
                .map(|bound_ns| Response {
                    bound_ns,
                    bound_task: true,
                });
            [unbound, bound]
                .into_iter()
                .flatten()
                .min_by_key(|response| response.bound_ns)
        })
        .collect()
}

/// The longest response of any job of `task` in a busy period of it and those above. `earlier_ns`:
/// how long before time 0 tasks above that are not bound may have begun to arrive.
fn busy_period(
    above: &[GuestTask],
    task: &GuestTask,
    time_for: impl Fn(Ns) -> Option<Ns>,
    earlier_ns: Ns,
) -> Option<Ns> {
    let mut response_ns = 0;
    let mut end_ns = 0;
    let mut steps = 0;
    for job in 0..JOBS_MAX {
        loop {
            let load_ns = (job + 1) * task.cost_ns
                + above
                    .iter()
                    .map(|other| other.request_ns(end_ns, if other.bound { 0 } else { earlier_ns }))
                    .sum::<Ns>();
            let next_ns = time_for(load_ns)?;
            if next_ns == end_ns {
                break;
            }
            end_ns = next_ns;
            steps += 1;
            if steps > STEPS_MAX || end_ns > JOBS_MAX * task.period_ns {
                return None;
            }
        }
        response_ns = response_ns.max(end_ns - job * task.period_ns + task.jitter_ns);
        if end_ns <= (job + 1) * task.period_ns - task.jitter_ns {
            return Some(response_ns);
        }
    }
    None
}

/// Whether every job meets its deadline under EDF.
pub(crate) fn edf_is_schedulable(tasks: &[GuestTask], supply: &Supply) -> bool {
    if tasks
        .iter()
        .any(|task| !task.is_tick && task.deadline_ns - task.jitter_ns < task.cost_ns)
        || !is_sustained(tasks, supply)
    {
        return false;
    }
    let Some(longest_ns) = longest_busy_period(tasks, supply) else {
        return false;
    };
    let demand_ns = |window_ns: Ns| {
        tasks
            .iter()
            .map(|task| task.demand_ns(window_ns))
            .sum::<Ns>()
    };
    let Some(mut window_ns) = last_deadline(tasks, longest_ns + 1) else {
        return true;
    };
    // From the last deadline down. What is served by `served_ns` is so for every window between.
    for _ in 0..STEPS_MAX {
        let Some(served_ns) = supply.time_for(demand_ns(window_ns)) else {
            return false;
        };
        if served_ns > window_ns {
            return false;
        }
        let below_ns = if served_ns < window_ns {
            served_ns + 1
        } else {
            window_ns
        };
        match last_deadline(tasks, below_ns) {
            Some(next_ns) => window_ns = next_ns,
            None => return true,
        }
    }
    false
}

/// The longest time for which the tasks can keep their VCPU at work.
fn longest_busy_period(tasks: &[GuestTask], supply: &Supply) -> Option<Ns> {
    let mut window_ns = tasks.iter().map(|task| task.cost_ns).sum();
    for _ in 0..STEPS_MAX {
        let load_ns = tasks.iter().map(|task| task.request_ns(window_ns, 0)).sum();
        let next_ns = supply.time_for(load_ns)?;
        if next_ns <= window_ns {
            return Some(window_ns);
        }
        window_ns = next_ns;
    }
    None
}

/// The last time before `before_ns` at which a window's demand steps up.
fn last_deadline(tasks: &[GuestTask], before_ns: Ns) -> Option<Ns> {
    tasks
        .iter()
        .filter(|task| !task.is_tick)
        .filter_map(|task| {
            let first_ns = task.deadline_ns - task.jitter_ns;
            let since_ns = before_ns - 1 - first_ns;
            (since_ns >= 0).then(|| first_ns + since_ns / task.period_ns * task.period_ns)
        })
        .max()
}
