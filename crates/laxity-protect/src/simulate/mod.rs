//! Histories of two hosts, a guest and a network, in which everything goes wrong: the state machines of
//! [`protocol`](crate::protocol) in a model of time, watched from outside.
//!
//! A [`Plan`] says what goes wrong and when; all else is chance from its seed, so that a plan is a history.
//! What goes wrong ends some time, and then somebody has to serve again, if anybody still has the guest.

mod disk;
mod draw;
mod guest;
mod happening;
mod host;
mod network;
mod observer;
mod outcome;
mod plan;
mod world;

pub use network::Damage;
pub use observer::Violation;
pub use outcome::{Coverage, Outcome};
pub use plan::{Fault, Plan};
use world::World;

/// Runs a history, and adds its counts to `coverage`.
pub fn run(plan: &Plan, coverage: &mut Coverage) -> Outcome {
    World::new(plan, false).run(coverage)
}

/// Runs a history with a log.
pub fn tell(plan: &Plan) -> Outcome {
    World::new(plan, true).run(&mut Coverage::default())
}

/// Removes the faults that a failing plan does not need to fail.
pub fn shrink(plan: &Plan) -> Plan {
    let mut smallest = plan.clone();
    let mut at = 0;
    while at < smallest.faults.len() {
        let mut smaller = smallest.clone();
        smaller.faults.remove(at);
        if run(&smaller, &mut Coverage::default()).violation.is_some() {
            smallest = smaller;
            at = 0;
        } else {
            at += 1;
        }
    }
    smallest
}
