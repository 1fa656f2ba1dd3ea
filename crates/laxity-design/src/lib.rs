//! Budgets, periods and priorities of whole hosts: the inverse of the analysis of [`laxity_analysis`].
//!
//! [`design`] takes a host with open values and finds the values with which every deadline is guaranteed and the
//! budgets together are least. It checks every candidate with [`laxity_analysis::is_guaranteed`]: it improves with the
//! analysis, and never claims more than it.
//!
//! - `periods`: which periods are worth trying, and the least budget at each: the interface synthesis of Shin and Lee
//!   (RTSS 2003; ACM TECS 2008), with the costs of context switches, which make short periods expensive. As in their
//!   EDP model (Easwaran, Anand and Lee, RTSS 2007), the supply of a server that comes first is not delayed to the end
//!   of its period: the contention that is there counts.
//! - `search`: which of them, and which priorities: branch and bound over priorities from the highest to the lowest
//!   for few domains; for many, one domain after the other, those that fail first.
//! - `audsley`: priorities alone, where budgets and periods are given (Audsley, 1991; 2001).
//! - `conflict`: where nothing holds, which demands cannot hold together: a deletion filter (Chinneck and Dravnieks,
//!   1991), and the smallest relief.
//! - `reasons`: what binds, what may still grow, what other choices cost.
//! - `group`, `designs`, `answer`: domains that share no CPU do not affect one another. Each group of domains that do
//!   is designed by itself, and the values of all are put together.
#![forbid(unsafe_code)]

mod answer;
mod audsley;
mod conflict;
mod designs;
mod group;
mod periods;
mod reasons;
mod request;
mod search;

pub use answer::{
    Answer, Design, DomainDesign, Refusal, Values, design, least_shares, needed, policy_names,
    refusal, refusal_of_fleet, values_of, with_only,
};
pub use conflict::{Demand, Impossible, Relief};
pub use reasons::{Alternative, Binding, Limit, Point, Room};
pub use request::{Aim, Request};
