//! Schedulability: is every deadline met, whatever the offsets, jitters and costs turn out to be?
//!
//! [`check`] answers it for a [`laxity_host::Host`] by analysis alone. A guaranteed deadline is never missed in a run:
//! every bound holds under the rules of `docs/explanation/policies.md`, not only under the idealized servers of the
//! literature. Where the two differ, the rules decide, and the module's comment gives the reason.
//!
//! - `supply`: how long a VCPU can take to get an amount of CPU, and the argument behind it.
//! - `server`: a VCPU with a budget, and how often it wakes and is replenished.
//! - `servers`: what each policy, with its quantum and its costs, supplies to each VCPU.
//! - `cluster`: the same of VCPUs that share several CPUs.
//! - `guest`: response times of a guest's tasks on such a supply.
//! - `effort`: how closely all this is looked at, in `check` and in a search over many hosts.
//! - [`minimum_budget`], [`minimum_budgets`]: the other way round.
//!
//! Arithmetic is exact, in integer nanoseconds.
#![forbid(unsafe_code)]

mod budget;
mod check;
mod cluster;
mod effort;
mod guest;
mod runs;
mod server;
mod servers;
mod supply;
mod time;

pub use budget::{DomainBudget, minimum_budget, minimum_budgets};
pub use check::{
    Budgets, Check, DomainCheck, NotAnalysed, TaskCheck, Verdict, beyond_bounds, check, has_bounds,
    is_accepted, is_guaranteed, share_of,
};
