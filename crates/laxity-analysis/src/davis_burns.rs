//! The test of Davis and Burns, "Hierarchical Fixed Priority Pre-emptive Scheduling", RTSS 2005, to
//! the letter: what RT-Xen (EMSOFT 2011, table 4) applied.
//!
//! [`crate::check`] does not use it: it has no costs and no quantum, and takes the schedulability
//! of the servers for granted.

use crate::{Ns, ceiling_divide};

/// Fixed-point iterations take this many steps at most; then the task is taken for unschedulable.
const STEPS_MAX: usize = 100_000;

/// Which server; they differ in the jitter with which they disturb those below.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerKind {
    /// Jitter of the period less the budget.
    Deferrable,
    /// No jitter. Polling and sporadic servers are treated alike in the paper.
    Periodic,
}

/// A server with its application's tasks, all unbound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PaperServer {
    /// Capacity, a period.
    pub budget_ns: i64,
    /// Replenishment period.
    pub period_ns: i64,
    /// Order of rank, the highest first.
    pub tasks: Vec<PaperTask>,
}

/// A task of the paper's model: no offset, no jitter, deadline up to the period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PaperTask {
    /// Execution time.
    pub cost_ns: i64,
    /// Least time between arrivals.
    pub period_ns: i64,
    /// Relative deadline.
    pub deadline_ns: i64,
}

impl ServerKind {
    fn jitter_ns(self, server: &PaperServer) -> Ns {
        match self {
            ServerKind::Deferrable => Ns::from(server.period_ns) - Ns::from(server.budget_ns),
            ServerKind::Periodic => 0,
        }
    }

    fn interference_ns(self, above: &[PaperServer], window_ns: Ns) -> Ns {
        above
            .iter()
            .map(|other| {
                ceiling_divide(window_ns + self.jitter_ns(other), other.period_ns.into())
                    * Ns::from(other.budget_ns)
            })
            .sum()
    }
}

/// Whether the last of `servers` (highest priority first) gets its whole budget within its period
/// when those before it have all they may.
pub fn server_is_schedulable(kind: ServerKind, servers: &[PaperServer]) -> bool {
    let Some((server, above)) = servers.split_last() else {
        return true;
    };
    let mut window_ns = Ns::from(server.budget_ns);
    loop {
        let next_ns = Ns::from(server.budget_ns) + kind.interference_ns(above, window_ns);
        if next_ns > server.period_ns.into() {
            return false;
        }
        if next_ns == window_ns {
            return true;
        }
        window_ns = next_ns;
    }
}

/// The worst-case response time of the unbound task of rank `rank` in the last of `servers`, if it
/// is at most the deadline.
///
/// The busy period begins when the server's budget is exhausted as early as can be and is
/// replenished a period after that exhaustion began: tasks have a jitter of the period less the
/// budget against their server's release. Then it is the load, a gap of period less budget for each
/// whole budget before the last, and the interference of the servers above from the last release
/// on.
pub fn response_ns(kind: ServerKind, servers: &[PaperServer], rank: usize) -> Option<i64> {
    let (server, above) = servers.split_last()?;
    let task = server.tasks.get(rank)?;
    let (budget_ns, period_ns) = (Ns::from(server.budget_ns), Ns::from(server.period_ns));
    let gap_ns = period_ns - budget_ns;
    let mut window_ns = 0;
    for _ in 0..STEPS_MAX {
        let load_ns = Ns::from(task.cost_ns)
            + server.tasks[..rank]
                .iter()
                .map(|other| {
                    ceiling_divide(window_ns + gap_ns, other.period_ns.into())
                        * Ns::from(other.cost_ns)
                })
                .sum::<Ns>();
        let periods_before = ceiling_divide(load_ns, budget_ns) - 1;
        let last_ns = (window_ns - periods_before * period_ns).max(0);
        let next_ns = load_ns + periods_before * gap_ns + kind.interference_ns(above, last_ns);
        if next_ns + gap_ns > task.deadline_ns.into() {
            return None;
        }
        if next_ns == window_ns {
            return i64::try_from(next_ns + gap_ns).ok();
        }
        window_ns = next_ns;
    }
    None
}

/// Whether every task of every server (highest priority first) meets its deadline. The servers
/// themselves are taken as schedulable; [`server_is_schedulable`] tells.
pub fn tasks_are_schedulable(kind: ServerKind, servers: &[PaperServer]) -> bool {
    (0..servers.len()).all(|number| {
        let upto = &servers[..=number];
        (0..servers[number].tasks.len()).all(|rank| response_ns(kind, upto, rank).is_some())
    })
}
