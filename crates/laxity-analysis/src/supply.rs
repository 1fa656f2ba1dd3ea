//! The supply of a VCPU: the longest time in which a VCPU that always has work gets an amount of CPU time.
//!
//! # Servers with a fixed period (deferrable, periodic, polling; SEDF)
//!
//! Let a VCPU have work from time *a* on. It first waits for a replenishment, then gets its budget
//! *C* in every period *T*, in the last one within the time in which the *contention* of others
//! lets it have what it still needs. This is the shape of the analysis of Davis and Burns (RTSS
//! 2005), and of the supply bound function of Shin and Lee (RTSS 2003).
//!
//! The wait. Let *d* be the time from *a* to the next replenishment and *s* what the VCPU gets in
//! it. If it ends without budget, then what it lacks of *C* was used before *a* and took that long,
//! so *d - s <= T - C*. If it ends with budget left, it was kept from running for *d - s*, which
//! the schedulability of the server limits to *T - C* as well. Getting more in *d* never makes the
//! end later (a whole budget takes at most a period), so *s = 0, d = T - C* is the worst case. A
//! polling server is different: a job that arrives just after the VCPU was replenished while
//! blocked finds that budget dropped, and waits for *T*. (Davis and Burns count *T - C* there too:
//! their polling server gives its budget to such a job.)
//!
//! If the contention lets the VCPU have only part of its budget within the period, the same holds
//! for that part in place of *C*: a server that is not schedulable still supplies something.
//!
//! # Sporadic server
//!
//! A replenishment comes one period after the VCPU was *chosen*, not after it became ready, so
//! every delay by others also delays all that follows: the server drifts, and the bound of Davis
//! and Burns does not hold as it stands. Let *z* be the last time at which the VCPU had no budget.
//! All of *C* was then pending, so it was used within the last return time before *z* (one period,
//! or a sixteenth more if replenishments may have been merged: see `runs`), all but a trifle, which is taken off
//! *C* for that. What others ran in that window delayed nothing: the window is as long as it is, and
//! *C* was used in it. Going back from the window's begin in the same way splits the time into
//! windows, each with *C*, and stretches between them, in which the VCPU had budget. Others can
//! delay it in a stretch by what they can run before the VCPU begins to run again, which depends on
//! the load that is served in the stretch (`Delays`), and in all stretches together by what they can
//! run in the whole time. The first window may have begun before the work: what was used there, and
//! the time that it took, are behind.
//!
//! # What was used before
//!
//! Under deferrable, sporadic and SEDF only use takes budget away. If the VCPU used *u* since the last
//! replenishment before *a*, it has *C - u* left, and has taken *u* for it, so the next replenishment
//! is *T - u* away at most. A larger *u* is worse. What the guest's tasks can have used is bounded by
//! their own response times (`guest`).
//!
//! A guest that cannot use its budget up never waits for it (`Delay::Free`): until it does it runs
//! as if there were no server, and its response times without a server bound what it uses.
//!
//! # Servers with a fixed period that are not schedulable
//!
//! If others can keep the VCPU from its budget within a period (one with a longer period can run for all of
//! its budget in it, and a deferrable one twice in a row), they need the CPU for all of that period but what
//! the VCPU got. What they can run in the whole time therefore bounds in how many periods they can do so
//! (`Deficits`), and in the others the VCPU gets all of its budget. This is the supply function of Lipari and
//! Bini ("Resource Partitioning among Real-Time Applications", ECRTS 2003) of a server below others.
//!
//! # Several CPUs
//!
//! A VCPU that may run on any of several CPUs waits only while all of them are busy with others
//! (`longest_wait_ns`). Everything else is as with a server with a fixed period: what was said of the wait and of the
//! last period counts the time in which the VCPU is kept from running, and not what keeps it.

use std::rc::Rc;

use crate::time::{Ns, ceiling_divide, divide};

/// Fixed-point iterations take this many steps at most; then there is no bound.
pub(crate) const STEPS_MAX: usize = 10_000;

/// Loads and windows beyond this (36 years) have no bound; products with valid times still fit.
pub(crate) const WINDOW_NS_MAX: Ns = 1 << 60;

/// One, in the fixed-point fractions of rates, which are rounded up: exact fractions of a few dozen 42-bit periods
/// do not fit.
pub(crate) const ONE: Ns = 1 << 60;

/// A time in each period, as a part of it, in fractions of [`ONE`], rounded up.
pub(crate) fn rate(time_ns: Ns, period_ns: Ns) -> Ns {
    ceiling_divide(time_ns * ONE, period_ns)
}

/// Something that takes the CPU away: at most `cost_ns` for each release, in any window. Its times have 64 bits, which
/// a CPU divides many times faster than 128: most of the work of analysis is to add up competitors.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Competitor {
    pub cost_ns: u64,
    pub period_ns: u64,
    pub jitter_ns: u64,
}

impl Competitor {
    /// Takes times of a host, of which none is longer than an hour, or sums of them.
    pub fn new(cost_ns: Ns, period_ns: Ns, jitter_ns: Ns) -> Competitor {
        Competitor {
            cost_ns: bits_64(cost_ns),
            period_ns: bits_64(period_ns),
            jitter_ns: bits_64(jitter_ns),
        }
    }

    /// The part of the CPU that it takes in the long run, in fractions of [`ONE`], rounded up.
    pub fn rate(&self) -> Ns {
        rate(self.cost_ns.into(), self.period_ns.into())
    }

    #[inline]
    fn releases(&self, window_ns: u64) -> u64 {
        (window_ns + self.jitter_ns).div_ceil(self.period_ns)
    }

    #[inline]
    fn within(&self, window_ns: u64) -> u128 {
        u128::from(self.releases(window_ns)) * u128::from(self.cost_ns)
    }

    /// The longest window in which it takes no more than in this one.
    #[inline]
    fn steady_ns(&self, window_ns: u64) -> u64 {
        (self.releases(window_ns) * self.period_ns).saturating_sub(self.jitter_ns)
    }
}

/// A time in 64 bits: no window is longer than four times [`WINDOW_NS_MAX`], and nothing lasts less than no time.
#[inline]
fn bits_64(time_ns: Ns) -> u64 {
    u64::try_from(time_ns.max(0)).expect("times have 64 bits")
}

/// A task none of whose jobs takes longer than `response_ns` from its arrival.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Workload {
    pub cost_ns: Ns,
    pub period_ns: Ns,
    pub response_ns: Ns,
}

impl Workload {
    /// The most CPU that its jobs use within a window: the first as late as it can be, the others as
    /// soon as they arrive (Bertogna, Cirinei and Lipari, "Improved Schedulability Analysis of EDF on
    /// Multiprocessor Platforms", ECRTS 2005).
    pub fn within(&self, window_ns: Ns) -> Ns {
        if window_ns <= 0 {
            return 0;
        }
        let span_ns = (window_ns + self.response_ns - self.cost_ns).max(0);
        let whole = divide(span_ns, self.period_ns);
        whole * self.cost_ns + self.cost_ns.min(span_ns - whole * self.period_ns)
    }

    /// The same with whole jobs, so that fixed points over windows need no more steps than there are
    /// jobs.
    fn whole_jobs_within(&self, window_ns: Ns) -> Ns {
        let span_ns = (window_ns + self.response_ns - self.cost_ns).max(0);
        ceiling_divide(span_ns, self.period_ns) * self.cost_ns
    }

    /// The longest window with no more whole jobs than this one.
    fn steady_ns(&self, window_ns: Ns) -> Ns {
        let before_ns = self.response_ns - self.cost_ns;
        let span_ns = (window_ns + before_ns).max(0);
        ceiling_divide(span_ns, self.period_ns) * self.period_ns - before_ns
    }
}

/// What its budget lets a VCPU run.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Limit {
    /// Its budget for each release.
    Releases(Competitor),
    /// SEDF: twice its slice, and from then on its slice a period, for a period that a wake cuts short
    /// has no more than its part of the slice used. A slice that is replaced late is used for as long.
    Slices {
        budget_ns: Ns,
        period_ns: Ns,
        late_ns: Ns,
    },
    /// What of its budgets is due by the end of the window: a period that ends with the window, those before it, and of
    /// the first one what fits between the begin of the window and the time by which its budget is used for sure,
    /// `slack_ns` before its end (Bertogna and Cirinei, "Response-Time Analysis for Globally Scheduled Symmetric
    /// Multiprocessor Platforms", RTSS 2007, on EDF; without slack Bertogna, Cirinei and Lipari, "Improved
    /// Schedulability Analysis of EDF on Multiprocessor Platforms", ECRTS 2005, section 4).
    Due {
        budget_ns: Ns,
        period_ns: Ns,
        slack_ns: Ns,
    },
}

/// A VCPU that takes the CPU away.
#[derive(Debug, Clone)]
pub(crate) struct Rival {
    pub limit: Limit,
    /// What its guest asks for; `None` where no bound is known.
    pub demand: Option<Vec<Workload>>,
}

impl Rival {
    /// The part of the CPU that it takes in the long run at most, in fractions of [`ONE`], rounded up.
    fn rate(&self) -> Ns {
        let limit = match self.limit {
            Limit::Releases(budget) => budget.rate(),
            Limit::Slices {
                budget_ns,
                period_ns,
                ..
            }
            | Limit::Due {
                budget_ns,
                period_ns,
                ..
            } => rate(budget_ns, period_ns),
        };
        let Some(demand) = &self.demand else {
            return limit;
        };
        let demanded = (demand.iter())
            .map(|task| rate(task.cost_ns, task.period_ns))
            .sum();
        limit.min(demanded)
    }

    fn within(&self, window_ns: Ns) -> Ns {
        let limit_ns = match self.limit {
            Limit::Releases(budget) => budget.within(bits_64(window_ns)) as Ns,
            Limit::Slices {
                budget_ns,
                period_ns,
                late_ns,
            } => {
                let after_ns = (window_ns + late_ns - 2 * budget_ns).max(0);
                2 * budget_ns + ceiling_divide(after_ns * budget_ns, period_ns)
            }
            Limit::Due {
                budget_ns,
                period_ns,
                slack_ns,
            } => {
                let whole = divide(window_ns, period_ns);
                let begun_ns = window_ns - whole * period_ns - slack_ns;
                whole * budget_ns + begun_ns.clamp(0, budget_ns)
            }
        };
        let Some(demand) = &self.demand else {
            return limit_ns;
        };
        let demanded_ns = (demand.iter())
            .map(|task| task.whole_jobs_within(window_ns))
            .sum();
        limit_ns.min(demanded_ns)
    }

    /// The longest window in which it is known to take no more than in this one.
    fn steady_ns(&self, window_ns: Ns) -> Ns {
        let limit_ns = match self.limit {
            Limit::Releases(budget) => budget.steady_ns(bits_64(window_ns)).into(),
            Limit::Slices { .. } | Limit::Due { .. } => window_ns,
        };
        let demand = self.demand.iter().flatten();
        (demand.map(|task| task.steady_ns(window_ns))).fold(limit_ns, Ns::min)
    }
}

/// The most that tasks use within a window.
pub(crate) fn demanded(tasks: &[Workload], window_ns: Ns) -> Ns {
    tasks.iter().map(|task| task.within(window_ns)).sum()
}

/// All that takes the CPU away from a VCPU that could run; clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Contention {
    /// Once.
    blocking_ns: Ns,
    /// Decisions, and rivals with a known budget and unknown tasks.
    competitors: Rc<Vec<Competitor>>,
    /// The other rivals.
    rivals: Rc<Vec<Rival>>,
    /// Where the VCPU may run on several CPUs, what keeps all of them busy; then no others are rivals.
    everywhere: Option<Rc<Everywhere>>,
    /// For the least time to get an amount of CPU time: what others take once, in nanoseconds, and the factor by which
    /// the time is longer than both amounts together; `None` if others take all of every window.
    least: Option<(f64, f64)>,
}

/// What can keep several CPUs busy at once. Each bound holds by itself.
#[derive(Debug, Clone)]
pub(crate) struct Everywhere {
    pub cpus: Ns,
    /// VCPUs with what their guests ask for.
    pub rivals: Vec<Rival>,
    /// What all decisions take beside them: once, and as windows grow.
    pub decisions_once_ns: Ns,
    pub decisions: Vec<Competitor>,
    /// VCPUs with their budgets, of which the decisions that choose them are a part; none if decisions cost nothing.
    pub charged: Vec<Rival>,
}

impl Everywhere {
    /// The longest time within a window for which all CPUs are busy.
    pub fn within(&self, window_ns: Ns) -> Ns {
        if window_ns <= 0 {
            return 0;
        }
        let work_ns = |rivals: &[Rival]| -> Vec<Ns> {
            rivals.iter().map(|of| of.within(window_ns)).collect()
        };
        let short_ns = bits_64(window_ns);
        let decisions_ns: u128 = self.decisions.iter().map(|of| of.within(short_ns)).sum();
        let decisions_ns = self.decisions_once_ns + decisions_ns as Ns;
        let wait_ns = longest_wait_ns(self.cpus, work_ns(&self.rivals), decisions_ns);
        if self.charged.is_empty() {
            return wait_ns;
        }
        wait_ns.min(longest_wait_ns(self.cpus, work_ns(&self.charged), 0))
    }

    /// The part of the time for which all CPUs are busy in the long run at most, in fractions of [`ONE`], rounded up.
    fn rate(&self) -> Ns {
        let rates = |rivals: &[Rival]| rivals.iter().map(Rival::rate).collect();
        let decisions = self.decisions.iter().map(Competitor::rate).sum();
        let busy = longest_wait_ns(self.cpus, rates(&self.rivals), decisions);
        if self.charged.is_empty() {
            return busy + 1;
        }
        busy.min(longest_wait_ns(self.cpus, rates(&self.charged), 0)) + 1
    }
}

/// The longest time for which all CPUs can be busy at once, if each rival runs on one CPU at a time and no longer than
/// its work, and `anywhere_ns` of CPU time are spent on any CPUs. In a wait of length *y* a rival fills at most the
/// less of *y* and its work, and together they fill all CPUs for *y* (Bertogna, Cirinei and Lipari, "Improved
/// Schedulability Analysis of EDF on Multiprocessor Platforms", ECRTS 2005, section 4).
pub(crate) fn longest_wait_ns(cpus: Ns, mut work_ns: Vec<Ns>, anywhere_ns: Ns) -> Ns {
    work_ns.sort_unstable();
    let rivals = work_ns.len() as Ns;
    let mut longest_ns = Ns::MAX;
    let mut filled_ns = anywhere_ns;
    for shorter in 0..=work_ns.len() {
        // The larger ones fill all of the wait, and leave `free` CPUs to those that do not.
        let free = cpus - (rivals - shorter as Ns);
        if free > 0 {
            longest_ns = longest_ns.min(divide(filled_ns, free));
        }
        filled_ns += work_ns.get(shorter).unwrap_or(&0);
    }
    longest_ns
}

/// Lower bounds in floating point are lowered by this part, which is far more than what rounding adds.
const ROUNDED: f64 = 1e-9;

impl Contention {
    /// `blocking_ns` is taken once, `decisions` and `rivals` as windows grow.
    pub fn new(blocking_ns: Ns, decisions: Vec<Competitor>, rivals: Vec<Rival>) -> Contention {
        let mut competitors = decisions;
        let mut others = Vec::new();
        for rival in rivals {
            match (&rival.limit, &rival.demand) {
                (&Limit::Releases(budget), None) => competitors.push(budget),
                _ => others.push(rival),
            }
        }
        let (mut part, mut once_ns) = (0.0, blocking_ns as f64);
        for of in &competitors {
            let of_window = of.cost_ns as f64 / of.period_ns as f64;
            part += of_window;
            once_ns += of_window * of.jitter_ns as f64;
        }
        for rival in &others {
            if let (
                &Limit::Slices {
                    budget_ns,
                    period_ns,
                    ..
                },
                None,
            ) = (&rival.limit, &rival.demand)
            {
                part += budget_ns as f64 / period_ns as f64;
            }
        }
        let lower = 1.0 - ROUNDED;
        Contention {
            blocking_ns,
            competitors: Rc::new(competitors),
            rivals: Rc::new(others),
            everywhere: None,
            least: (part * lower < 1.0).then(|| (once_ns * lower, lower / (1.0 - part * lower))),
        }
    }

    /// The same of a VCPU that waits only while all of several CPUs are busy.
    pub fn of_cluster(
        blocking_ns: Ns,
        decisions: Vec<Competitor>,
        everywhere: Everywhere,
    ) -> Contention {
        Contention {
            everywhere: Some(Rc::new(everywhere)),
            ..Contention::new(blocking_ns, decisions, Vec::new())
        }
    }

    /// The part of the CPU that it takes in the long run at most, in fractions of [`ONE`], rounded up.
    pub fn rate(&self) -> Ns {
        let competitors = self.competitors.iter().map(Competitor::rate);
        let rivals = self.rivals.iter().map(Rival::rate);
        let everywhere = self.everywhere.iter().map(|of| of.rate());
        competitors.chain(rivals).chain(everywhere).sum()
    }

    /// The most within a window.
    pub fn within(&self, window_ns: Ns) -> Ns {
        let short_ns = bits_64(window_ns);
        let competitors_ns: u128 = (self.competitors.iter())
            .map(|competitor| competitor.within(short_ns))
            .sum();
        self.blocking_ns + competitors_ns as Ns + self.rivals_within(window_ns)
    }

    fn rivals_within(&self, window_ns: Ns) -> Ns {
        let rivals = self.rivals.iter().map(|rival| rival.within(window_ns));
        let everywhere = self.everywhere.iter().map(|of| of.within(window_ns));
        rivals.chain(everywhere).sum()
    }

    /// The longest window in which it is known to be no more than within this one.
    fn steady_ns(&self, window_ns: Ns) -> Ns {
        let short_ns = bits_64(window_ns);
        let competitors = (self.competitors.iter()).map(|of| of.steady_ns(short_ns).into());
        let rivals = self.rivals.iter().map(|of| of.steady_ns(window_ns));
        let everywhere = self.everywhere.iter().map(|_| window_ns);
        let all = competitors.chain(rivals).chain(everywhere);
        all.min().unwrap_or(WINDOW_NS_MAX)
    }

    /// No shorter time is enough to get `load_ns` of CPU; `None` if no time is.
    fn least_ns(&self, load_ns: Ns) -> Option<Ns> {
        let (once_ns, factor) = self.least?;
        let time_ns = (bits_64(load_ns) as f64 + once_ns) * factor;
        Some((time_ns as u64).into())
    }

    /// The longest time to get `load_ns` of CPU with budget for it; `None` if longer than
    /// `limit_ns`.
    ///
    /// The least fixed point, whatever the time below it that the iteration begins with. The load and what is taken of
    /// every window give a good one (Davis, Zabos and Burns, "Efficient Exact Schedulability Tests for Fixed Priority
    /// Real-Time Systems", IEEE Transactions on Computers 57, 2008).
    pub fn serve(&self, load_ns: Ns, limit_ns: Ns) -> Option<Ns> {
        let mut time_ns = load_ns.max(self.least_ns(load_ns)?);
        if time_ns > limit_ns {
            return None;
        }
        // Few competitors are released from one step to the next: each has the time until which it is not.
        let short_ns = bits_64(time_ns);
        let mut taken_ns: u128 = 0;
        let mut steady_ns: Vec<u64> = (self.competitors.iter())
            .map(|competitor| {
                taken_ns += competitor.within(short_ns);
                competitor.steady_ns(short_ns)
            })
            .collect();
        for _ in 0..STEPS_MAX {
            let others_ns = self.blocking_ns + self.rivals_within(time_ns);
            let next_ns = load_ns + others_ns + taken_ns as Ns;
            if next_ns == time_ns {
                return Some(time_ns);
            }
            if next_ns > limit_ns {
                return None;
            }
            time_ns = next_ns;
            let short_ns = bits_64(time_ns);
            for (competitor, steady_ns) in self.competitors.iter().zip(&mut steady_ns) {
                if *steady_ns < short_ns {
                    let before_ns = competitor.within(*steady_ns);
                    taken_ns += competitor.within(short_ns) - before_ns;
                    *steady_ns = competitor.steady_ns(short_ns);
                }
            }
        }
        None
    }

    /// The largest load up to `most_ns` that is served within `limit_ns`.
    pub fn most_served(&self, most_ns: Ns, limit_ns: Ns) -> Ns {
        if limit_ns < 1 {
            return 0;
        }
        // Some load is served just at the limit; a larger one is if it is served at all.
        let mut served_ns = (limit_ns - self.within(limit_ns)).max(0);
        if self.everywhere.is_some() {
            return self.most_served_beside(served_ns.min(most_ns), most_ns, limit_ns);
        }
        while served_ns < most_ns {
            let Some(time_ns) = self.serve(served_ns + 1, limit_ns) else {
                break;
            };
            served_ns += 1 + self.steady_ns(time_ns).clamp(time_ns, limit_ns) - time_ns;
        }
        served_ns.min(most_ns)
    }

    /// The same, if `served_ns` is served for sure. A smaller load is served no later.
    fn most_served_beside(&self, mut served_ns: Ns, most_ns: Ns, limit_ns: Ns) -> Ns {
        let mut beyond_ns = most_ns + 1;
        while beyond_ns - served_ns > 1 {
            let middle_ns = served_ns + (beyond_ns - served_ns) / 2;
            match self.serve(middle_ns, limit_ns) {
                Some(_) => served_ns = middle_ns,
                None => beyond_ns = middle_ns,
            }
        }
        served_ns
    }
}

/// A server with a fixed period of whose budget only `sure_ns` is sure to be had in every period, of a length of
/// `window_ns`, but `whole_ns` in all periods but those in which the others run so long.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deficits {
    pub whole_ns: Ns,
    pub sure_ns: Ns,
    pub window_ns: Ns,
}

impl Deficits {
    /// The least that a number of periods supplies, during which others run for `others_ns` at most. A
    /// period that lacks some of the budget has others run for all that the VCPU did not.
    pub fn supplied(&self, periods: Ns, others_ns: Ns) -> Ns {
        let (lack_ns, free_ns) = (self.whole_ns - self.sure_ns, self.window_ns - self.whole_ns);
        let least = divide(others_ns, (lack_ns + free_ns).max(1));
        let lacking_ns = |hit: Ns| {
            let hit = hit.min(periods);
            (hit * lack_ns).min(others_ns - hit * free_ns).max(0)
        };
        periods * self.whole_ns - lacking_ns(least).max(lacking_ns(least + 1))
    }
}

/// How long others can keep a sporadic server from running, with budget, in neighbouring stretches while it uses
/// some of it there: a concave function that is nowhere below.
#[derive(Debug, Clone)]
pub(crate) struct Delays {
    /// The number of neighbouring stretches.
    stretches: Ns,
    /// (load, delay), by load.
    corners: Vec<(Ns, Ns)>,
    /// (load, delay) of the slope after the last corner.
    beyond: (Ns, Ns),
}

impl Delays {
    /// Parts of the load at which the delay is looked at.
    const PARTS: [Ns; 12] = [1, 4, 8, 12, 16, 20, 24, 32, 40, 48, 56, 64];

    /// `window_ns`: the length of the windows between the stretches. A schedulable server is served its budget,
    /// `whole_ns`, within one, and a stretch with so much load is no worse than one. `None` if there is no bound
    /// within reach.
    pub fn new(
        contention: &Contention,
        whole_ns: Ns,
        window_ns: Ns,
        stretches: Ns,
        is_schedulable: bool,
    ) -> Option<Delays> {
        let parts = Self::PARTS.last().expect("there are parts");
        let windows_ns = (stretches - 1) * window_ns;
        let most_ns = stretches * whole_ns * if is_schedulable { 1 } else { 4 };
        let delay = |before_ns: Ns, load_ns: Ns| {
            // What is kept from running begins to run after that: one nanosecond more is served.
            let loaded_ns = before_ns + load_ns + 1;
            let time_ns = contention.serve(loaded_ns, (stretches + 64) * window_ns)?;
            Some(time_ns - loaded_ns)
        };
        let mut corners: Vec<(Ns, Ns)> = Vec::new();
        let mut least_ns = 0;
        for part in Self::PARTS {
            let load_ns = most_ns * part / parts;
            // Below this load the delay is no longer.
            add_corner(&mut corners, (least_ns, delay(windows_ns, load_ns - 1)?));
            least_ns = load_ns;
        }
        let mut beyond = (1, 0);
        if !is_schedulable {
            // What comes after `most_ns` is further stretches without windows between.
            let each_ns = delay(0, most_ns)?;
            let last_ns = corners.last().map_or(0, |&(_, delay_ns)| delay_ns);
            add_corner(&mut corners, (most_ns, last_ns + each_ns));
            beyond = (most_ns, each_ns);
        }
        Some(Delays {
            stretches,
            corners,
            beyond,
        })
    }

    /// What is supplied in the long run in each window, if each has `budget_ns`, rounded up.
    pub fn most_ns(&self, window_ns: Ns, budget_ns: Ns) -> Ns {
        let with_stretches = self.corners.iter().map(|&(load_ns, delay_ns)| {
            let served_ns = budget_ns * self.stretches + load_ns;
            let time_ns = window_ns * self.stretches + load_ns + delay_ns;
            ceiling_divide(served_ns * window_ns, time_ns)
        });
        let (load_ns, delay_ns) = self.beyond;
        let in_one_stretch = ceiling_divide(load_ns * window_ns, load_ns + delay_ns);
        with_stretches.chain([in_one_stretch]).min().unwrap_or(0)
    }

    /// The longest delay of a number of stretches that use `load_ns` in all; the same part each is the
    /// worst, since the function is concave.
    fn of(&self, stretches: Ns, load_ns: Ns) -> Ns {
        // Groups of neighbours, the last of which may be smaller, times the stretches of one.
        let groups = stretches + self.stretches - 1;
        let load = load_ns * self.stretches;
        let after = (self.corners).partition_point(|&(x, _)| x * groups <= load);
        let (x, y) = self.corners[after - 1];
        let (dx, dy) =
            (self.corners.get(after)).map_or(self.beyond, |next| (next.0 - x, next.1 - y));
        ceiling_divide(
            y * groups * dx + dy.max(0) * (load - x * groups),
            dx * self.stretches,
        )
    }
}

/// Adds a corner of greater load to a concave function that is to be nowhere below.
fn add_corner(corners: &mut Vec<(Ns, Ns)>, corner: (Ns, Ns)) {
    while let [.., (first_x, first_y), (x, y)] = corners[..] {
        let (dx, dy) = (x - first_x, y - first_y);
        if (corner.1 - first_y) * dx < dy * (corner.0 - first_x) {
            break;
        }
        corners.pop();
    }
    match corners.last_mut() {
        Some((x, y)) if *x == corner.0 => *y = corner.1.max(*y),
        _ => corners.push(corner),
    }
}

/// What others can delay.
#[derive(Debug, Clone)]
pub(crate) enum Delay {
    /// Budget that never runs out.
    Free(Contention),
    /// In the last period, by their contention: after a replenishment, and after any time.
    LastPeriod {
        after_release: Contention,
        anywhere: Contention,
    },
    /// By their contention after a replenishment in the last period, and in as many others as they have the CPU
    /// for.
    SomePeriods {
        after_release: Contention,
        in_periods: Contention,
        deficits: Deficits,
    },
    /// SEDF: in the last period, by this much, or by their contention.
    Deadline(Ns, Contention),
    /// Global EDF: in the last period, by this much after a replenishment, or by their contention after any time.
    Cluster(Ns, Contention),
    /// Sporadic: between any two budgets, by their contention.
    Stretches(Contention, Vec<Delays>),
}

/// The least CPU that a VCPU with work gets.
#[derive(Debug, Clone)]
pub(crate) struct Supply {
    /// From the begin of work to a replenishment, at most, without any service.
    pub gap_ns: Ns,
    pub period_ns: Ns,
    /// For the guest, in every period; 0 only with [`Delay::SomePeriods`].
    pub budget_ns: Ns,
    /// What is supplied in each period in the long run at most.
    pub most_ns: Ns,
    /// Within what time before the begin of work use of budget matters; `None` if budget is lost otherwise
    /// than by use.
    pub memory_ns: Option<Ns>,
    /// How late the first budget of a server can be that keeps what it does not use.
    pub first_ns: Ns,
    pub delay: Delay,
}

impl Supply {
    /// For a VCPU that never waits for budget, but for the first.
    pub fn free(contention: Contention, first_ns: Ns) -> Supply {
        // Others may ask for any number of CPUs.
        let rest = (ONE - contention.rate()).max(0);
        Supply {
            gap_ns: 0,
            period_ns: WINDOW_NS_MAX,
            budget_ns: WINDOW_NS_MAX,
            most_ns: WINDOW_NS_MAX * rest / ONE,
            memory_ns: None,
            first_ns,
            delay: Delay::Free(contention),
        }
    }

    /// Whether the VCPU never waits for budget.
    pub fn is_free(&self) -> bool {
        matches!(self.delay, Delay::Free(_))
    }

    /// The longest time from the begin of work to having got `load_ns`, at least 1, if the VCPU used at
    /// most `used_ns` within `memory_ns` before.
    pub fn time_for(&self, load_ns: Ns, used_ns: Ns) -> Option<Ns> {
        if load_ns > WINDOW_NS_MAX {
            return None;
        }
        let used_ns = match self.memory_ns {
            Some(_) => used_ns.min(self.budget_ns),
            None => self.budget_ns,
        };
        let time_ns = match &self.delay {
            Delay::Stretches(contention, delays) => {
                self.time_of_stretches(load_ns, used_ns, contention, delays)?
            }
            _ => self.time_of_periods(load_ns, used_ns)?,
        };
        let time_ns = match self.first_ns {
            0 => time_ns,
            first_ns => time_ns.max(first_ns + self.time_from_release(load_ns)?),
        };
        (time_ns <= WINDOW_NS_MAX).then_some(time_ns)
    }

    fn time_of_periods(&self, load_ns: Ns, used_ns: Ns) -> Option<Ns> {
        let left_ns = self.budget_ns - used_ns;
        if left_ns == 0 {
            return Some(self.gap_ns + self.time_from_release(load_ns)?);
        }
        if load_ns <= left_ns {
            let worst_ns = self.gap_ns + self.time_from_release(load_ns)?;
            let left_is_enough_ns = match &self.delay {
                Delay::Deadline(delay_ns, contention) => {
                    let most_ns = load_ns + delay_ns;
                    Some(contention.serve(load_ns, most_ns).unwrap_or(most_ns))
                }
                Delay::LastPeriod { anywhere, .. } | Delay::Cluster(_, anywhere) => {
                    anywhere.serve(load_ns, worst_ns)
                }
                _ => None,
            };
            return Some(left_is_enough_ns.map_or(worst_ns, |time_ns| time_ns.min(worst_ns)));
        }
        // Either what is left is used before the replenishment, or others keep the VCPU from it.
        let used_up_ns = self.gap_ns + left_ns + self.time_from_release(load_ns - left_ns)?;
        let kept_ns = match &self.delay {
            Delay::LastPeriod { anywhere, .. } | Delay::Cluster(_, anywhere) => {
                let apart_ns = self.memory_ns.unwrap_or(self.period_ns);
                let kept_ns = anywhere.within(apart_ns).min(self.gap_ns);
                kept_ns + self.time_from_release(load_ns)?
            }
            _ => 0,
        };
        Some(used_up_ns.max(kept_ns))
    }

    /// The same for work that begins at a replenishment.
    pub fn time_from_release(&self, load_ns: Ns) -> Option<Ns> {
        if load_ns > WINDOW_NS_MAX {
            return None;
        }
        let periods = divide(load_ns - 1, self.budget_ns.max(1));
        let (before_ns, rest_ns) = (periods * self.period_ns, load_ns - periods * self.budget_ns);
        match &self.delay {
            Delay::Free(contention) => contention.serve(load_ns, WINDOW_NS_MAX),
            Delay::LastPeriod { after_release, .. } => {
                Some(before_ns + after_release.serve(rest_ns, self.period_ns)?)
            }
            Delay::SomePeriods {
                after_release,
                in_periods,
                deficits,
            } => self.time_of_some_periods(load_ns, after_release, in_periods, deficits),
            Delay::Deadline(delay_ns, contention) | Delay::Cluster(delay_ns, contention) => {
                let within_ns = contention.serve(rest_ns, rest_ns + delay_ns);
                Some(before_ns + within_ns.unwrap_or(rest_ns + delay_ns))
            }
            Delay::Stretches(contention, delays) => {
                self.time_of_stretches(load_ns, self.budget_ns, contention, delays)
            }
        }
    }

    fn time_of_some_periods(
        &self,
        load_ns: Ns,
        after_release: &Contention,
        in_periods: &Contention,
        deficits: &Deficits,
    ) -> Option<Ns> {
        let supplied = |periods: Ns| {
            let late_ns = self.period_ns - deficits.window_ns;
            let others_ns = in_periods.within(periods * self.period_ns + late_ns);
            deficits.supplied(periods, others_ns)
        };
        // After `enough` periods the load has been served, and `few` may not be enough.
        let (mut few, mut enough) = (0, 1);
        while supplied(enough) < load_ns {
            (few, enough) = (enough, 2 * enough);
            if few * self.period_ns > WINDOW_NS_MAX {
                return None;
            }
        }
        while enough - few > 1 {
            let middle = few + (enough - few) / 2;
            if supplied(middle) >= load_ns {
                enough = middle;
            } else {
                few = middle;
            }
        }
        let rest_ns = load_ns - if few == 0 { 0 } else { supplied(few) };
        let last_ns = after_release.serve(rest_ns, self.period_ns);
        Some(few * self.period_ns + last_ns.unwrap_or(self.period_ns))
    }

    fn time_of_stretches(
        &self,
        load_ns: Ns,
        used_ns: Ns,
        contention: &Contention,
        delays: &[Delays],
    ) -> Option<Ns> {
        let left_ns = self.budget_ns - used_ns;
        // Windows whose budget is used up, the first of them with what is left, or in whole.
        let with_left = |windows: Ns| {
            let served_ns = left_ns + (windows - 1) * self.budget_ns;
            (
                windows * self.period_ns - used_ns,
                load_ns - served_ns,
                windows,
            )
        };
        let in_whole = |windows: Ns| {
            let served_ns = windows * self.budget_ns;
            (windows * self.period_ns, load_ns - served_ns, windows + 1)
        };
        let most_whole = (load_ns - 1) / self.budget_ns;
        let most_left = (load_ns > left_ns).then(|| (load_ns - left_ns - 1) / self.budget_ns + 1);
        let (alone_ns, rest_ns, _) = in_whole(most_whole);
        let mut alone_ns = alone_ns + rest_ns;
        if let Some(most) = most_left {
            let (windows_ns, rest_ns, _) = with_left(most);
            alone_ns = alone_ns.max(windows_ns + rest_ns);
        }
        let longest_ns = (delays.iter())
            .map(|delays| {
                let with_left = most_left.map_or(0, |most| longest(&with_left, 1, most, delays));
                longest(&in_whole, 0, most_whole, delays).max(with_left)
            })
            .min();
        let limit_ns = longest_ns.map_or(WINDOW_NS_MAX, |time_ns| time_ns.min(WINDOW_NS_MAX));
        contention.serve(alone_ns, limit_ns).or(longest_ns)
    }
}

/// The longest time for any number of windows from `least` to `most`. It is concave in their number.
fn longest(shape: &impl Fn(Ns) -> (Ns, Ns, Ns), least: Ns, most: Ns, delays: &Delays) -> Ns {
    let time = |windows: Ns| {
        let (windows_ns, rest_ns, stretches) = shape(windows);
        windows_ns + rest_ns + delays.of(stretches, rest_ns)
    };
    let (mut low, mut high) = (least, most);
    while low < high {
        let middle = low + (high - low) / 2;
        if time(middle + 1) >= time(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    time(low)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The supply bound function of Shin and Lee as a walk through the worst case, nanosecond by
    /// nanosecond.
    fn supply_bound(period_ns: Ns, budget_ns: Ns, window_ns: Ns) -> Ns {
        let gap_ns = period_ns - budget_ns;
        (0..window_ns)
            .filter(|&at_ns| {
                at_ns >= 2 * gap_ns && (at_ns - 2 * gap_ns).rem_euclid(period_ns) < budget_ns
            })
            .count() as Ns
    }

    #[test]
    fn inverts_the_supply_bound_function() {
        for period_ns in 1..9 {
            for budget_ns in 1..=period_ns {
                let gap_ns = period_ns - budget_ns;
                let slices = Contention::new(gap_ns, Vec::new(), Vec::new());
                let supply = Supply {
                    gap_ns,
                    period_ns,
                    budget_ns,
                    most_ns: budget_ns,
                    memory_ns: None,
                    first_ns: 0,
                    delay: Delay::Deadline(gap_ns, slices),
                };
                for load_ns in 1..30 {
                    let time_ns = supply.time_for(load_ns, 0).unwrap();
                    assert_eq!(supply_bound(period_ns, budget_ns, time_ns), load_ns);
                    assert_eq!(supply_bound(period_ns, budget_ns, time_ns - 1), load_ns - 1);
                }
            }
        }
    }

    /// Every length of a wait in turn.
    #[test]
    fn the_longest_wait_is_filled_and_no_longer_one_is() {
        for cpus in 1..5 {
            for seed in 0..400_i128 {
                let rivals = seed % 7;
                let work_ns: Vec<Ns> = (0..rivals)
                    .map(|rival| (seed * 31 + rival * 17) % 23)
                    .collect();
                let anywhere_ns = seed % 3 * 5;
                let fills = |wait_ns: &Ns| {
                    let filled_ns: Ns = work_ns.iter().map(|work_ns| work_ns.min(wait_ns)).sum();
                    filled_ns + anywhere_ns >= cpus * wait_ns
                };
                let slow = (0..1_000).rev().find(fills);
                let found = longest_wait_ns(cpus, work_ns.clone(), anywhere_ns);
                assert_eq!(Some(found), slow, "{cpus} CPUs, {work_ns:?}, {anywhere_ns}");
            }
        }
    }

    /// What a server can use of a window, nanosecond by nanosecond, of budgets that are due by its end: for every place
    /// of its periods.
    fn due_slowly(budget_ns: Ns, period_ns: Ns, slack_ns: Ns, window_ns: Ns) -> Ns {
        (0..period_ns)
            .map(|last_ns| {
                // Periods end at `last_ns` before the window's end, and whole periods before that.
                let mut used_ns = 0;
                let mut end_ns = window_ns - last_ns;
                while end_ns > 0 {
                    let usable_ns = (end_ns - period_ns..end_ns - slack_ns)
                        .filter(|&at_ns| (0..window_ns).contains(&at_ns))
                        .count() as Ns;
                    used_ns += usable_ns.min(budget_ns);
                    end_ns -= period_ns;
                }
                used_ns
            })
            .max()
            .expect("there is a place")
    }

    #[test]
    fn what_is_due_is_the_most_of_all_places_of_periods() {
        for period_ns in 1..9 {
            for budget_ns in 1..=period_ns {
                for slack_ns in 0..=period_ns - budget_ns {
                    for window_ns in 0..25 {
                        let rival = Rival {
                            limit: Limit::Due {
                                budget_ns,
                                period_ns,
                                slack_ns,
                            },
                            demand: None,
                        };
                        assert_eq!(
                            rival.within(window_ns),
                            due_slowly(budget_ns, period_ns, slack_ns, window_ns),
                            "{budget_ns} of {period_ns}, {slack_ns} early, in {window_ns}"
                        );
                    }
                }
            }
        }
    }

    fn competitors() -> impl Strategy<Value = Vec<Competitor>> {
        let competitor =
            (1..6i128, 1..30i128, 0..10i128).prop_map(|(cost_ns, period_ns, jitter_ns)| {
                Competitor::new(cost_ns, period_ns, jitter_ns)
            });
        prop::collection::vec(competitor, 0..4)
    }

    proptest! {
        /// The fixed point against trying every window in turn.
        #[test]
        fn serve_finds_the_first_window(
            competitors in competitors(), blocking_ns in 0..3i128, load_ns in 1..20i128,
        ) {
            let contention = Contention::new(blocking_ns, competitors, Vec::new());
            let slow = (load_ns..=200).find(|&window_ns| load_ns + contention.within(window_ns) <= window_ns);
            prop_assert_eq!(contention.serve(load_ns, 200), slow);
        }

        #[test]
        fn most_served_is_the_most(
            competitors in competitors(), most_ns in 1..20i128, limit_ns in 1..60i128,
        ) {
            let contention = Contention::new(0, competitors, Vec::new());
            let slow = (1..=most_ns).rev().find(|&load_ns| contention.serve(load_ns, limit_ns).is_some());
            prop_assert_eq!(contention.most_served(most_ns, limit_ns), slow.unwrap_or(0));
        }
    }
}
