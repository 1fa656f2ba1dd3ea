//! Priorities for servers whose budgets and periods are given.
//!
//! Audsley's method (Optimal priority assignment, 1991; Information Processing Letters 79, 2001) gives out priorities
//! from the lowest up: any domain that is guaranteed at the lowest priority may have it. The method finds an order
//! if there is one, provided that a bound depends on which domains are above, and not on their order.
//!
//! The bounds of [`is_guaranteed`] are of that kind: they count the domains above with all of their budgets. The
//! exception is a sporadic server without costs and quantum, whose replenishments may be shown never to be merged;
//! that depends on what delays those above.
//!
//! The bounds of [`is_accepted`] are lower, and depend on the order: they count what guests ask for, which is less the
//! sooner their jobs end. Where Audsley's method finds nothing, orders are tried from the highest priority down, since
//! nothing below a domain changes its bound. Up to six domains all orders are tried.

use laxity_analysis::{is_accepted, is_guaranteed};
use laxity_host::{Domain, Host, OpenDomain};

use crate::group::fits;

/// Analyses of one domain below others in the search through orders; all orders of six domains take fewer.
const ANALYSES_MAX: usize = 2_000;

/// The domains with their priorities; `None` if no order was found in which all are guaranteed. Priorities that are
/// given stay, and the others are found around them.
///
/// A domain without tasks has no deadline that analysis could guarantee: its budget is what it is promised. Beside one,
/// all budgets have to fit their CPUs.
pub(crate) fn prioritized(host: &Host, open: &[OpenDomain]) -> Option<Vec<Domain>> {
    if host.domains.iter().any(|domain| domain.tasks.is_empty()) && !fits(host) {
        return None;
    }
    let count = host.domains.len();
    let is_open = |number: usize| open[number].priority;
    if !host.policy.is_fixed_priority_server() || !(0..count).any(is_open) {
        return holds(host).then(|| host.domains.clone());
    }
    if !(0..count).all(is_open) {
        return from_the_highest(host, is_open);
    }
    from_the_lowest(host).or_else(|| from_the_highest(host, is_open))
}

/// Whether all domains hold as they are.
fn holds(host: &Host) -> bool {
    let mut numbers = 0..host.domains.len();
    numbers.clone().all(|number| is_guaranteed(host, number))
        || numbers.all(|number| is_accepted(host, number))
}

/// Audsley's method.
fn from_the_lowest(host: &Host) -> Option<Vec<Domain>> {
    let mut host = host.clone();
    let mut above: Vec<usize> = (0..host.domains.len()).collect();
    // Those that have no priority yet are above all others, whatever their order.
    const ABOVE: u32 = 0;
    for domain in &mut host.domains {
        domain.parameters.priority = ABOVE;
    }
    for priority in (1..=host.domains.len() as u32).rev() {
        let place = above.iter().rposition(|&number| {
            host.domains[number].parameters.priority = priority;
            let holds = is_guaranteed(&host, number);
            host.domains[number].parameters.priority = ABOVE;
            holds
        })?;
        let number = above.remove(place);
        host.domains[number].parameters.priority = priority;
    }
    Some(host.domains)
}

/// Orders from the highest priority down, those with the shortest deadlines first.
fn from_the_highest(host: &Host, is_open: impl Fn(usize) -> bool) -> Option<Vec<Domain>> {
    let mut left: Vec<usize> = (0..host.domains.len()).collect();
    left.sort_by_key(|&number| {
        let deadlines = host.domains[number].tasks.iter();
        deadlines
            .map(|task| task.deadline_ns)
            .min()
            .unwrap_or(i64::MAX)
    });
    let mut prefix = Host {
        domains: Vec::new(),
        ..host.clone()
    };
    let order = go_on(host, &is_open, &mut prefix, &left, &mut 0)?;
    let mut found = host.clone();
    for (number, priority) in order {
        found.domains[number].parameters.priority = priority;
    }
    // Domains of one priority, which only a file gives, are above one another.
    holds(&found).then_some(found.domains)
}

/// An order of the domains `left` with their priorities, each accepted below those of `prefix` and those before it.
fn go_on(
    host: &Host,
    is_open: &impl Fn(usize) -> bool,
    prefix: &mut Host,
    left: &[usize],
    tried: &mut usize,
) -> Option<Vec<(usize, u32)>> {
    if left.is_empty() {
        return Some(Vec::new());
    }
    let above = (prefix.domains.last()).map_or(0, |domain| domain.parameters.priority);
    for &number in left {
        if *tried >= ANALYSES_MAX {
            return None;
        }
        let mut domain = host.domains[number].clone();
        if is_open(number) {
            domain.parameters.priority = above + 1;
        } else if domain.parameters.priority < above {
            return None; // It is too late for this one, whatever comes next.
        }
        *tried += 1;
        let (place, priority) = (prefix.domains.len(), domain.parameters.priority);
        prefix.domains.push(domain);
        if is_accepted(prefix, place) {
            let rest: Vec<usize> = (left.iter().copied())
                .filter(|&other| other != number)
                .collect();
            if let Some(mut order) = go_on(host, is_open, prefix, &rest, tried) {
                order.insert(0, (number, priority));
                return Some(order);
            }
        }
        prefix.domains.pop();
    }
    None
}
