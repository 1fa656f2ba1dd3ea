//! Priorities for servers whose budgets and periods are given.
//!
//! Audsley's method (Optimal priority assignment, 1991; Information Processing Letters 79, 2001) gives out priorities
//! from the lowest up: any domain that is guaranteed at the lowest priority may have it. The method would find every
//! order that holds if a bound depended only on which domains are above, and not on their order.

use laxity_analysis::is_guaranteed;
use laxity_host::{Domain, Host, OpenDomain};

use crate::group::fits;

/// The domains with their priorities; `None` if no order was found in which all are guaranteed. Where a priority is
/// given, all are taken as they are.
///
/// The domains above are taken for equals of one another. Analysis may bound what they use more closely once they have
/// an order, so that some order may hold where none is found.
pub(crate) fn prioritized(host: &Host, open: &[OpenDomain]) -> Option<Vec<Domain>> {
    let mut host = host.clone();
    if !fits(&host) {
        return None;
    }
    let count = host.domains.len();
    if !host.policy.is_fixed_priority_server() || open.iter().any(|open| !open.priority) {
        let holds = (0..count).all(|number| is_guaranteed(&host, number));
        return holds.then_some(host.domains);
    }
    let mut above: Vec<usize> = (0..count).collect();
    // Those that have no priority yet are above all others, whatever their order.
    const ABOVE: u32 = 0;
    for domain in &mut host.domains {
        domain.parameters.priority = ABOVE;
    }
    for priority in (1..=count as u32).rev() {
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
