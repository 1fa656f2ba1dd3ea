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

/// The domains with their priorities; `None` if no order was found in which all are guaranteed. Where a priority is
/// given, all are taken as they are.
///
/// A domain without tasks has no deadline that analysis could guarantee: its budget is what it is promised. Beside one,
/// all budgets have to fit their CPUs.
pub(crate) fn prioritized(host: &Host, open: &[OpenDomain]) -> Option<Vec<Domain>> {
    if host.domains.iter().any(|domain| domain.tasks.is_empty()) && !fits(host) {
        return None;
    }
    let count = host.domains.len();
    if !host.policy.is_fixed_priority_server() || open.iter().any(|open| !open.priority) {
        let holds = (0..count).all(|number| is_guaranteed(host, number))
            || (0..count).all(|number| is_accepted(host, number));
        return holds.then(|| host.domains.clone());
    }
    from_the_lowest(host).or_else(|| from_the_highest(host))
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
fn from_the_highest(host: &Host) -> Option<Vec<Domain>> {
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
    let order = go_on(host, &mut prefix, &left, &mut 0)?;
    let mut domains = host.domains.clone();
    for (&number, priority) in order.iter().zip(1..) {
        domains[number].parameters.priority = priority;
    }
    Some(domains)
}

/// An order of the domains `left`, each accepted below those of `prefix` and those before it.
fn go_on(host: &Host, prefix: &mut Host, left: &[usize], tried: &mut usize) -> Option<Vec<usize>> {
    if left.is_empty() {
        return Some(Vec::new());
    }
    for &number in left {
        if *tried >= ANALYSES_MAX {
            return None;
        }
        *tried += 1;
        let place = prefix.domains.len();
        let mut domain = host.domains[number].clone();
        domain.parameters.priority = place as u32 + 1;
        prefix.domains.push(domain);
        if is_accepted(prefix, place) {
            let rest: Vec<usize> = (left.iter().copied())
                .filter(|&other| other != number)
                .collect();
            if let Some(mut order) = go_on(host, prefix, &rest, tried) {
                order.insert(0, number);
                return Some(order);
            }
        }
        prefix.domains.pop();
    }
    None
}
