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
//! EDF guests: response times as Spuri ("Analysis of Deadline Scheduled Real-Time Systems", INRIA 2772,
//! 1996), on a supply: the longest response of a job over all its arrivals within a busy period in which
//! all others arrive at once. Where that is too long a search, processor demand (Baruah, Rosier and
//! Howell, 1990) against supply, as Shin and Lee (RTSS 2003), at the points of Zhang and Burns' QPA
//! (2009), says whether all deadlines are met, and the deadlines are the bounds.
//!
//! What the tasks used before a busy period matters to supplies that remember it (`History`): none of
//! the tasks that keep it busy has work left when it begins, so their jobs before it and in it arrive
//! a period apart, and none of those before it took longer than its response time.
//!
//! The ticks of a guest's kernel are a task above all others without a deadline of its own: at most one
//! arrives in a period, be it due to running, waiting or idle VCPUs, and those that are missed only
//! become fewer. The interrupts by which the jobs of a task come are one more such task. Under EDF all
//! that can arrive within a window come before the deadline at its end.

use laxity_host::GuestScheduler;

use crate::effort::Effort;
use crate::supply::{ONE, STEPS_MAX, Supply, Workload, rate};
use crate::time::{Ns, ceiling_divide};

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
    /// A tick, or the interrupt by which a job comes, precedes all tasks, whatever orders these, and its own deadline
    /// is not checked.
    pub is_tick: bool,
}

impl GuestTask {
    /// A task of a domain whose kernel, if it ticks, does so like this. The kernel may have to wake it for each job. A
    /// timer that cannot be set for less than a time ahead lets a job come late by less than that time, after its
    /// jitter: it is jitter, too.
    pub fn new(
        task: &laxity_host::Task,
        tick: Option<&laxity_host::Tick>,
        bound: bool,
    ) -> GuestTask {
        let put_off_ns = tick.map_or(0, |tick| (tick.min_delta_ns - 1).max(0));
        GuestTask {
            cost_ns: Ns::from(task.cost_ns) + Ns::from(tick.map_or(0, |tick| tick.wake_ns)),
            period_ns: task.period_ns.into(),
            deadline_ns: task.deadline_ns.into(),
            jitter_ns: Ns::from(task.jitter_ns) + Ns::from(put_off_ns),
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

    /// The interrupt by which the jobs of a task come, if they come by one: as often as they do, although the kernel
    /// serves one interrupt for several jobs that wait.
    pub fn interrupt(&self, tick: Option<&laxity_host::Tick>) -> Option<GuestTask> {
        let cost_ns = tick.map_or(0, laxity_host::Tick::interrupt_ns);
        (cost_ns > 0).then_some(GuestTask {
            cost_ns: cost_ns.into(),
            is_tick: true,
            ..*self
        })
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

/// What tasks can have used before they had work.
#[derive(Debug, Clone)]
pub(crate) struct History {
    /// How long before.
    pub window_ns: Ns,
    /// In the order of the tasks; `None` where a response time is not known.
    pub tasks: Option<Vec<Workload>>,
    /// What decisions use beside them.
    pub decisions_ns: Ns,
}

impl History {
    pub fn unknown() -> History {
        History {
            window_ns: 0,
            tasks: None,
            decisions_ns: 0,
        }
    }

    /// The most that was used within the window before a busy period of length `busy_ns`, if
    /// `counted_ns` says what of each task is served in it; `None` for tasks that may have had work left.
    fn used_ns(&self, busy_ns: Ns, counted_ns: impl Fn(usize) -> Option<Ns>) -> Ns {
        let Some(tasks) = &self.tasks else {
            return Ns::MAX;
        };
        let used_ns: Ns = (tasks.iter().enumerate())
            .map(|(number, task)| {
                let most_ns = task.within(self.window_ns);
                let Some(counted_ns) = counted_ns(number) else {
                    return most_ns;
                };
                let span_ns = busy_ns + self.window_ns + task.response_ns;
                let all_ns = ceiling_divide(span_ns, task.period_ns) * task.cost_ns;
                most_ns.min((all_ns - counted_ns).max(0))
            })
            .sum();
        used_ns + self.decisions_ns
    }
}

/// The tasks as what they use, if all response times are known.
pub(crate) fn workloads(tasks: &[GuestTask], responses_ns: &[Option<Ns>]) -> Option<Vec<Workload>> {
    (tasks.iter().zip(responses_ns))
        .map(|(task, response_ns)| {
            Some(Workload {
                cost_ns: task.cost_ns,
                period_ns: task.period_ns,
                response_ns: (*response_ns)?,
            })
        })
        .collect()
}

/// The bounds on response times that are of use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Useful {
    All,
    /// Those within deadlines: the search for a bound ends beyond its deadline.
    InTime,
}

/// Bounds on response times, from the arrival, of tasks in their order: by rank, the highest first (EDF:
/// any), ticks before all.
pub(crate) fn responses(
    scheduler: GuestScheduler,
    tasks: &[GuestTask],
    supply: &Supply,
    history: &History,
    effort: Effort,
    useful: Useful,
) -> Vec<Option<Response>> {
    match scheduler {
        GuestScheduler::RateMonotonic => fixed_priority(tasks, supply, history, useful),
        GuestScheduler::Edf => edf(tasks, supply, history, effort),
    }
}

/// Whether the tasks need no more than the supply gives in the long run.
fn is_sustained(tasks: &[GuestTask], supply: &Supply) -> bool {
    let needed: Ns = tasks
        .iter()
        .map(|task| rate(task.cost_ns, task.period_ns))
        .sum();
    let slack = tasks.len() as Ns;
    needed <= supply.most_ns * ONE / supply.period_ns + slack
}

/// A bound on a response time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Response {
    pub bound_ns: Ns,
    pub kind: Kind,
}

/// How a bound was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Rate-monotonic, without a wait for budget.
    Free,
    /// Rate-monotonic, for arrivals at any time.
    Unbound,
    /// Rate-monotonic, for arrivals at replenishments.
    Bound,
    /// EDF, as a response time.
    Edf,
    /// EDF, by the demand of all tasks.
    EdfDemand,
}

fn fixed_priority(
    tasks: &[GuestTask],
    supply: &Supply,
    history: &History,
    useful: Useful,
) -> Vec<Option<Response>> {
    (0..tasks.len())
        .map(|rank| {
            let (above, task) = (&tasks[..rank], &tasks[rank]);
            let latest_ns = match useful {
                Useful::All => Ns::MAX,
                Useful::InTime => task.deadline_ns,
            };
            if !is_sustained(&tasks[..=rank], supply) {
                return None;
            }
            let used_ns = |busy_ns: Ns, jobs: Ns| {
                history.used_ns(busy_ns, |number| match number {
                    number if number < rank => Some(tasks[number].request_ns(busy_ns, 0)),
                    number if number == rank => Some(jobs * task.cost_ns),
                    _ => None,
                })
            };
            let unbound = busy_period(
                above,
                task,
                |load_ns, busy_ns, jobs| supply.time_for(load_ns, used_ns(busy_ns, jobs)),
                0,
                latest_ns,
            )
            .map(|bound_ns| Response {
                bound_ns,
                kind: if supply.is_free() {
                    Kind::Free
                } else {
                    Kind::Unbound
                },
            });
            let bound = task
                .bound
                .then(|| {
                    busy_period(
                        above,
                        task,
                        |load_ns, _, _| supply.time_from_release(load_ns),
                        if above.iter().all(|other| other.bound) {
                            0
                        } else {
                            supply.gap_ns.max(supply.period_ns)
                        },
                        latest_ns,
                    )
                })
                .flatten()
                .map(|bound_ns| Response {
                    bound_ns,
                    kind: Kind::Bound,
                });
            [unbound, bound]
                .into_iter()
                .flatten()
                .min_by_key(|response| response.bound_ns)
        })
        .collect()
}

/// The longest response of any job of `task` in a busy period of it and those above; `None` if it is
/// longer than `latest_ns`. `earlier_ns`: how long before time 0 tasks above that are not bound may
/// have begun to arrive. `time_for` is asked with the load, the time so far and the number of the
/// task's jobs in it.
fn busy_period(
    above: &[GuestTask],
    task: &GuestTask,
    time_for: impl Fn(Ns, Ns, Ns) -> Option<Ns>,
    earlier_ns: Ns,
    latest_ns: Ns,
) -> Option<Ns> {
    let mut response_ns = 0;
    let mut end_ns = 0;
    let mut steps = 0;
    for job in 0..JOBS_MAX {
        let arrival_ns = job * task.period_ns - task.jitter_ns;
        loop {
            let is_late = end_ns - arrival_ns > latest_ns;
            if steps > STEPS_MAX || is_late || end_ns > JOBS_MAX * task.period_ns {
                return None;
            }
            let load_ns = (job + 1) * task.cost_ns
                + above
                    .iter()
                    .map(|other| other.request_ns(end_ns, if other.bound { 0 } else { earlier_ns }))
                    .sum::<Ns>();
            let next_ns = time_for(load_ns, end_ns, job + 1)?.max(end_ns);
            if next_ns == end_ns {
                break;
            }
            end_ns = next_ns;
            steps += 1;
        }
        response_ns = response_ns.max(end_ns - arrival_ns);
        if end_ns <= arrival_ns + task.period_ns {
            return Some(response_ns);
        }
    }
    None
}

/// Busy periods with more deadlines of EDF jobs than this are not searched.
const DEADLINES_MAX: Ns = 128;

fn edf(
    tasks: &[GuestTask],
    supply: &Supply,
    history: &History,
    effort: Effort,
) -> Vec<Option<Response>> {
    let meets_deadlines = edf_is_schedulable(tasks, supply);
    let longest_ns = (effort.searches_edf() && is_sustained(tasks, supply))
        .then(|| longest_busy_period(tasks, supply, |_| true))
        .flatten();
    (0..tasks.len())
        .map(|number| {
            let task = &tasks[number];
            if task.is_tick {
                return fixed_priority(&tasks[..=number], supply, &History::unknown(), Useful::All)
                    [number];
            }
            let searched = longest_ns
                .and_then(|longest_ns| edf_response(tasks, number, supply, history, longest_ns))
                .map(|bound_ns| Response {
                    bound_ns,
                    kind: Kind::Edf,
                });
            let met = meets_deadlines.then_some(Response {
                bound_ns: task.deadline_ns,
                kind: Kind::EdfDemand,
            });
            ([searched, met].into_iter().flatten()).min_by_key(|response| response.bound_ns)
        })
        .collect()
}

/// The longest response of a job of task `number`, over all times from the begin of a busy period to
/// its release.
fn edf_response(
    tasks: &[GuestTask],
    number: usize,
    supply: &Supply,
    history: &History,
    longest_ns: Ns,
) -> Option<Ns> {
    let task = &tasks[number];
    // From one such time to the next the load does not change.
    let mut releases_ns = vec![0];
    for other in tasks.iter().filter(|other| !other.is_tick) {
        let first_ns = other.deadline_ns - other.jitter_ns - task.deadline_ns;
        let begin = ceiling_divide(-first_ns, other.period_ns).max(0);
        let end = ceiling_divide(longest_ns - first_ns, other.period_ns);
        if end - begin + releases_ns.len() as Ns > DEADLINES_MAX {
            return None;
        }
        releases_ns.extend((begin..end).map(|job| first_ns + job * other.period_ns));
    }
    releases_ns.sort_unstable();
    releases_ns.dedup();
    let mut response_ns = 0;
    for release_ns in releases_ns {
        let counted_ns = |other: usize, busy_ns: Ns| {
            let (place, other) = (other, &tasks[other]);
            let arrived = ceiling_divide(busy_ns + other.jitter_ns, other.period_ns);
            if other.is_tick {
                return arrived * other.cost_ns;
            }
            let after_ns = release_ns + task.deadline_ns - other.deadline_ns + other.jitter_ns;
            let due = (after_ns.div_euclid(other.period_ns) + 1).max(0);
            let jobs = if place == number {
                due
            } else {
                due.min(arrived)
            };
            jobs * other.cost_ns
        };
        let mut end_ns = 0;
        let mut steps = 0;
        loop {
            let load_ns = (0..tasks.len())
                .map(|other| counted_ns(other, end_ns))
                .sum();
            let used_ns = history.used_ns(end_ns, |other| Some(counted_ns(other, end_ns)));
            let next_ns = supply.time_for(load_ns, used_ns)?.max(end_ns);
            if next_ns == end_ns {
                break;
            }
            end_ns = next_ns;
            steps += 1;
            if steps > STEPS_MAX {
                return None;
            }
        }
        response_ns = response_ns.max(end_ns - release_ns + task.jitter_ns);
    }
    Some(response_ns)
}

/// Whether every job meets its deadline under EDF.
fn edf_is_schedulable(tasks: &[GuestTask], supply: &Supply) -> bool {
    if tasks
        .iter()
        .any(|task| !task.is_tick && task.deadline_ns - task.jitter_ns < task.cost_ns)
        || !is_sustained(tasks, supply)
    {
        return false;
    }
    // When what is due by the end of a window is served, if by then.
    let served_ns = |window_ns: Ns| {
        let demand_ns = tasks.iter().map(|task| task.demand_ns(window_ns)).sum();
        let served_ns = supply.time_for(demand_ns, Ns::MAX);
        served_ns.filter(|&served_ns| served_ns <= window_ns)
    };
    // Where a deadline is missed, one early in the busy period often is, whose end takes many steps to find.
    let is_in_time = |busy_ns: Ns| {
        last_deadline(tasks, busy_ns).is_none_or(|window_ns| served_ns(window_ns).is_some())
    };
    let Some(longest_ns) = longest_busy_period(tasks, supply, is_in_time) else {
        return false;
    };
    let Some(mut window_ns) = last_deadline(tasks, longest_ns + 1) else {
        return true;
    };
    // From the last deadline down. What is served by `served_ns` is so for every window between.
    for _ in 0..STEPS_MAX {
        let Some(served_ns) = served_ns(window_ns) else {
            return false;
        };
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

/// The longest time for which the tasks can keep their VCPU at work. `goes_on` is asked with shorter times, each longer
/// than the one before, and ends the search.
fn longest_busy_period(
    tasks: &[GuestTask],
    supply: &Supply,
    goes_on: impl Fn(Ns) -> bool,
) -> Option<Ns> {
    let mut window_ns = tasks.iter().map(|task| task.cost_ns).sum();
    for _ in 0..STEPS_MAX {
        if !goes_on(window_ns) {
            return None;
        }
        let load_ns = tasks.iter().map(|task| task.request_ns(window_ns, 0)).sum();
        let next_ns = supply.time_for(load_ns, Ns::MAX)?;
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
