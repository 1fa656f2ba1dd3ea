//! Histories of two hosts, a guest and a network, in which everything goes wrong: the state machines of
//! [`protocol`](crate::protocol) in a model of time, watched from outside.
//!
//! A [`Plan`] says what goes wrong and when; all else is chance from its seed, so that a plan is a history.
//! What goes wrong ends some time, and then somebody has to serve again, if anybody still has the guest.

mod guest;
mod host;
mod network;
mod observer;
mod plan;
mod world;

use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg32;

pub use network::Damage;
pub use observer::Violation;
pub use plan::{Fault, Plan};
use world::{Happening, World};

const MS: i64 = 1_000_000;

macro_rules! coverage {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts of what has happened in histories; a history proves nothing about events that it
        /// never reaches.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct Coverage {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Coverage {
            /// Adds the counts of others.
            pub fn add(&mut self, other: &Coverage) {
                $(self.$name += other.$name;)*
            }

            /// All counts with their names.
            pub fn counts(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }
        }
    };
}

coverage! {
    /// Histories.
    histories,
    /// Events of any kind.
    happenings,
    /// Outputs that were heard.
    heard,
    /// Heard outputs that had been held.
    released,
    /// Outputs that were dropped because a lease had run out.
    lapsed,
    /// States that were heard, and lost in No-Net mode.
    lost_states,
    /// Checkpoints that were committed.
    committed,
    /// Checkpoints of which only a part arrived.
    discarded,
    /// Checkpoints that were sent again.
    resent,
    /// Copies of all memory.
    copies,
    /// Takeovers by a standby whose primary was silent.
    takeovers,
    /// Takeovers by a standby that was told to.
    switchovers,
    /// Histories in which the guest changed hosts more than once.
    returned,
    /// Primaries that saw a higher term.
    fenced,
    /// Primaries that waited for their standby.
    waited,
    /// Standbys that lived without acknowledging, until they were told to forget.
    stalled,
    /// Primaries that went on at their operator's risk.
    at_risk,
    /// Primaries that found out that nobody could take over.
    alone,
    /// Terms that the witness gave out.
    granted,
    /// Terms that the witness refused.
    refused,
    /// Claims that the witness did not answer.
    silent,
    /// Frames that were refused.
    damaged,
    /// Connections.
    connections,
    /// Processes that ended.
    crashes,
    /// Processes that stalled between two actions.
    froze_between,
    /// Orders to go on.
    go_ons,
    /// Guests that ended by themselves.
    guests_off,
    /// Checkpoints that could not be taken.
    captures_failed,
    /// Guests that could not be made to run.
    activations_failed,
    /// Standbys without room.
    unusable,
    /// Histories at whose end nobody had the guest.
    nobody,
    /// Histories of these in which output was heard at the end nevertheless.
    surprises,
    /// Histories at whose end the guest was protected.
    protected,
}

/// The result of a history.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The violated property, if one was violated.
    pub violation: Option<Violation>,
    /// Number of actions that each side carried out.
    pub actions: [u32; 2],
    /// The longest time between two heard outputs, in ns.
    pub silence_ns: i64,
    /// One line for each event, if a log was asked for.
    pub log: Vec<String>,
}

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

/// The source of randomness.
#[derive(Debug, Clone)]
struct Draw(Pcg32);

impl Draw {
    fn new(seed: u64, purpose: u64) -> Draw {
        Draw(Pcg32::seed_from_u64(
            seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ purpose,
        ))
    }

    fn below(&mut self, limit: usize) -> usize {
        ((u64::from(self.0.next_u32()) * limit as u64) >> 32) as usize
    }

    /// A random number between two bounds, both included.
    fn between(&mut self, least: i64, most: i64) -> i64 {
        let span = (most - least + 1) as u128;
        least + ((u128::from(self.0.next_u64()) * span) >> 64) as i64
    }

    /// True once in `times` calls on average.
    fn chance(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
}
