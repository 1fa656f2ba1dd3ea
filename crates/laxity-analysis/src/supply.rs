//! How long a VCPU that always has work can take to get an amount of CPU.
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
//! *C* for that. Going back from *z* in the same way
//! gives, for a load *L* that takes *n* whole budgets before the last: at most *n + 1* waits of the
//! return time less *C*, and *n + 1* stretches with budget, in each of which others delay the VCPU
//! by at most what they delay a whole budget, and in all of which together by at most what they can
//! run in the whole time.

use crate::{Ns, ceiling_divide};

/// Fixed-point iterations take this many steps at most; then there is no bound.
pub(crate) const STEPS_MAX: usize = 10_000;

/// Loads and windows beyond this (36 years) have no bound; products with valid times still fit.
pub(crate) const WINDOW_NS_MAX: Ns = 1 << 60;

/// Something that takes the CPU away: at most `cost_ns` for each release, in any window.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Competitor {
    pub cost_ns: Ns,
    pub period_ns: Ns,
    pub jitter_ns: Ns,
}

/// All that takes the CPU away from a VCPU that could run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Contention {
    /// Once.
    pub blocking_ns: Ns,
    pub competitors: Vec<Competitor>,
}

impl Contention {
    /// The most within a window.
    pub fn within(&self, window_ns: Ns) -> Ns {
        self.competitors
            .iter()
            .fold(self.blocking_ns, |sum, competitor| {
                let releases =
                    ceiling_divide(window_ns + competitor.jitter_ns, competitor.period_ns);
                sum + releases * competitor.cost_ns
            })
    }

    /// The longest time to get `load_ns` of CPU with budget for it; `None` if longer than
    /// `limit_ns`.
    pub fn serve(&self, load_ns: Ns, limit_ns: Ns) -> Option<Ns> {
        let mut time_ns = load_ns;
        for _ in 0..STEPS_MAX {
            if time_ns > limit_ns {
                return None;
            }
            let next_ns = load_ns + self.within(time_ns);
            if next_ns == time_ns {
                return Some(time_ns);
            }
            time_ns = next_ns;
        }
        None
    }

    /// The largest load up to `most_ns` that is served within `limit_ns`.
    pub fn most_served(&self, most_ns: Ns, limit_ns: Ns) -> Ns {
        if self.serve(most_ns, limit_ns).is_some() {
            return most_ns;
        }
        let (mut served_ns, mut unserved_ns) = (0, most_ns);
        while unserved_ns - served_ns > 1 {
            let middle_ns = served_ns + (unserved_ns - served_ns) / 2;
            match self.serve(middle_ns, limit_ns) {
                Some(_) => served_ns = middle_ns,
                None => unserved_ns = middle_ns,
            }
        }
        served_ns
    }
}

/// What others can delay.
#[derive(Debug, Clone)]
pub(crate) enum Delay {
    /// In the last period, by this much.
    Fixed(Ns),
    /// In the last period, by their contention.
    LastPeriod(Contention),
    /// Sporadic: with each budget by at most `each_ns`, and by their contention in all.
    EachBudget { each_ns: Ns, contention: Contention },
}

/// The least CPU that a VCPU with work gets.
#[derive(Debug, Clone)]
pub(crate) struct Supply {
    /// From the begin of work to a replenishment, at most, without any service.
    pub gap_ns: Ns,
    pub period_ns: Ns,
    /// For the guest, in every period; at least 1.
    pub budget_ns: Ns,
    pub delay: Delay,
}

impl Supply {
    /// The periodic resource model (Shin and Lee, RTSS 2003): nothing is known but that
    /// the budget is delivered in every period. `gap_ns` is theirs when it is the period less the
    /// budget.
    pub fn periodic_resource(gap_ns: Ns, period_ns: Ns, budget_ns: Ns) -> Supply {
        Supply {
            gap_ns,
            period_ns,
            budget_ns,
            delay: Delay::Fixed(period_ns - budget_ns),
        }
    }

    /// The longest time from the begin of work to having got `load_ns`, at least 1.
    pub fn time_for(&self, load_ns: Ns) -> Option<Ns> {
        Some(self.gap_ns + self.time_from_release(load_ns)?)
    }

    /// The same for work that begins at a replenishment.
    pub fn time_from_release(&self, load_ns: Ns) -> Option<Ns> {
        if load_ns > WINDOW_NS_MAX {
            return None;
        }
        let time_ns = self.time_of_sane_load(load_ns)?;
        (time_ns <= WINDOW_NS_MAX).then_some(time_ns)
    }

    fn time_of_sane_load(&self, load_ns: Ns) -> Option<Ns> {
        let budgets_before = (load_ns - 1) / self.budget_ns;
        let rest_ns = load_ns - budgets_before * self.budget_ns;
        let before_ns = budgets_before * self.period_ns;
        match &self.delay {
            Delay::Fixed(delay_ns) => Some(before_ns + rest_ns + delay_ns),
            Delay::LastPeriod(contention) => {
                Some(before_ns + contention.serve(rest_ns, self.period_ns)?)
            }
            Delay::EachBudget {
                each_ns,
                contention,
            } => {
                let alone_ns = before_ns + rest_ns;
                let most_ns = alone_ns + (budgets_before + 1) * each_ns;
                // The window in which others run begins with the work, so it includes the gap.
                let limit_ns = (self.gap_ns + most_ns).min(WINDOW_NS_MAX);
                let window_ns = contention.serve(self.gap_ns + alone_ns, limit_ns);
                Some(window_ns.map_or(most_ns, |window_ns| window_ns - self.gap_ns))
            }
        }
    }
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
                let supply = Supply::periodic_resource(gap_ns, period_ns, budget_ns);
                for load_ns in 1..30 {
                    let time_ns = supply.time_for(load_ns).unwrap();
                    assert_eq!(supply_bound(period_ns, budget_ns, time_ns), load_ns);
                    assert_eq!(supply_bound(period_ns, budget_ns, time_ns - 1), load_ns - 1);
                }
            }
        }
    }

    fn competitors() -> impl Strategy<Value = Vec<Competitor>> {
        let competitor =
            (1..6i128, 1..30i128, 0..10i128).prop_map(|(cost_ns, period_ns, jitter_ns)| {
                Competitor {
                    cost_ns,
                    period_ns,
                    jitter_ns,
                }
            });
        prop::collection::vec(competitor, 0..4)
    }

    proptest! {
        /// The fixed point against trying every window in turn.
        #[test]
        fn serve_finds_the_first_window(
            competitors in competitors(), blocking_ns in 0..3i128, load_ns in 1..20i128,
        ) {
            let contention = Contention { blocking_ns, competitors };
            let slow = (load_ns..=200).find(|&window_ns| load_ns + contention.within(window_ns) <= window_ns);
            prop_assert_eq!(contention.serve(load_ns, 200), slow);
        }

        #[test]
        fn most_served_is_the_most(
            competitors in competitors(), most_ns in 1..20i128, limit_ns in 1..60i128,
        ) {
            let contention = Contention { blocking_ns: 0, competitors };
            let slow = (1..=most_ns).rev().find(|&load_ns| contention.serve(load_ns, limit_ns).is_some());
            prop_assert_eq!(contention.most_served(most_ns, limit_ns), slow.unwrap_or(0));
        }
    }
}
