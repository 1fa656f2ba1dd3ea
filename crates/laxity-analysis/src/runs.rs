//! The delay of a sporadic server's replenishments.
//!
//! `policy/` keeps at most 32 replenishments of a VCPU pending, and merges two neighbours when there
//! is one more: the two whose first is delayed least by it, which is by the time between their runs
//! in which the VCPU did not run. All but the first of the 33 lie within the last period. Among 16
//! disjoint pairs of neighbours in it, one has no more than a sixteenth of the period between its
//! runs. Budget therefore comes back within one period and a sixteenth.
//!
//! One period may be claimed where no more than 32 runs can begin within one. A run begins when the
//! VCPU wakes, comes back from a preemption, or gets budget after it had none. The first two are
//! bounded by arrivals; the last only by the runs a period before, and so not at all, unless the
//! budget cannot be used up, or is the whole period (it is used up only by a run of a whole period,
//! and is back at once).
//!
//! A replenishment that is small is merged with the next one if that is registered before it is due;
//! both may be small again, and so on: a trifle may come back late by any time. But no two pending
//! replenishments have late parts at once (runs of the second began when the first was due, or
//! later), and the late part of one is smaller than what comes back by itself. All of the budget but
//! that much is therefore back in time.

use crate::effort::Effort;
use crate::guest::{self, History, Useful};
use crate::server::{REPLENISHMENTS_MAX, Server};
use crate::supply::{Contention, Supply, demanded};
use crate::time::Ns;

/// Smaller replenishments are merged with the next one (`SPORADIC_WORTH_NS` and `SPORADIC_WORTH_PARTS` in
/// `policy/src/sporadic.c`).
const WORTH_NS: Ns = 100_000;
const WORTH_PARTS: Ns = 16;

/// Within what time all but a trifle is back. `late_ns`: how late a replenishment can be served.
pub(crate) fn return_ns(period_ns: Ns, late_ns: Ns) -> Ns {
    period_ns + (period_ns + late_ns) / (REPLENISHMENTS_MAX / 2)
}

/// What a replenishment must be not to be small.
fn worth_ns(budget_ns: Ns, period_ns: Ns) -> Ns {
    WORTH_NS
        .min(budget_ns / WORTH_PARTS)
        .min(period_ns - budget_ns)
}

/// What of a budget is not late for being small.
pub(crate) fn on_time_ns(budget_ns: Ns, period_ns: Ns) -> Ns {
    budget_ns - worth_ns(budget_ns, period_ns)
}

/// Whether the budget has no room for more replenishments than can be pending. `overrun_ns`: by how much a decision can
/// take it beyond its end.
pub(crate) fn are_never_too_many(server: &Server, overrun_ns: Ns) -> bool {
    let least_ns = REPLENISHMENTS_MAX * worth_ns(server.budget_ns, server.period_ns);
    least_ns > server.budget_ns + overrun_ns
}

/// The largest budget for which this holds; with a nanosecond more, all of it may come back later.
pub(crate) fn most_never_too_many_ns(period_ns: Ns, overrun_ns: Ns) -> Ns {
    let by_worth_ns = REPLENISHMENTS_MAX * WORTH_NS - overrun_ns - 1;
    let by_rest_ns = (REPLENISHMENTS_MAX * period_ns - overrun_ns - 1) / (REPLENISHMENTS_MAX + 1);
    by_worth_ns.min(by_rest_ns)
}

/// Whether no replenishment of `server` is ever merged for being one too many. `rivals` come first or as equals;
/// `contention` is what they can run. Scheduling is free, and there is no quantum.
pub(crate) fn are_never_merged(
    server: &Server,
    rivals: &[(&Server, Contention)],
    contention: &Contention,
    effort: Effort,
) -> bool {
    let Some(returns) = returns(server, contention, server.period_ns, effort) else {
        return false;
    };
    let mut begins = returns + server.wakes(server.period_ns);
    for (rival, rival_contention) in rivals {
        let Some(returns) = self::returns(rival, rival_contention, server.period_ns, effort) else {
            return false;
        };
        begins += returns + rival.wakes(server.period_ns);
    }
    begins <= REPLENISHMENTS_MAX
}

/// How often the VCPU can get budget after it had none, within a window; `None` if there is no
/// bound.
fn returns(server: &Server, contention: &Contention, window_ns: Ns, effort: Effort) -> Option<Ns> {
    if server.budget_ns == server.period_ns {
        return Some(window_ns / server.period_ns + 1);
    }
    can_never_exhaust(server, contention, effort).then_some(0)
}

/// Whether the tasks alone cannot use the budget up.
fn can_never_exhaust(server: &Server, contention: &Contention, effort: Effort) -> bool {
    !server.cpu_bound
        && used_without_server_ns(server, contention, server.period_ns, 0, effort)
            .is_some_and(|used_ns| used_ns < server.budget_ns)
}

/// The most that the tasks use within a window as long as they do not run out of budget: they run as if
/// there were no server, so their response times limit what runs in it. `first_ns`: how late the first budget can be.
pub(crate) fn used_without_server_ns(
    server: &Server,
    contention: &Contention,
    window_ns: Ns,
    first_ns: Ns,
    effort: Effort,
) -> Option<Ns> {
    let free = Supply::free(contention.clone(), first_ns);
    let history = History::unknown();
    let responses_ns: Vec<Option<Ns>> = guest::responses(
        server.guest,
        &server.tasks,
        &free,
        &history,
        effort,
        Useful::All,
    )
    .into_iter()
    .map(|response| response.map(|response| response.bound_ns))
    .collect();
    let workloads = guest::workloads(&server.tasks, &responses_ns)?;
    Some(demanded(&workloads, window_ns))
}
