//! Random numbers of a run: one stream for each purpose, so that one more draw for one does not shift another.

use laxity_host::{Cost, PiecewiseLinear};
use rand_core::{RngCore, SeedableRng};
use rand_pcg::{Lcg64Xsh32, Pcg32};

/// What a stream is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// By task.
    Jitter = 1,
    /// By CPU.
    Cost = 2,
    /// By domain; behind them one for the phones.
    Workload = 3,
}

/// The stream of this number for this purpose.
pub fn stream(seed: u64, purpose: Purpose, index: usize) -> Pcg32 {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    bytes[8..].copy_from_slice(&((purpose as u64) << 32 | index as u64).to_le_bytes());
    Lcg64Xsh32::from_seed(bytes)
}

/// What something costs, prepared for many draws.
pub enum Drawn {
    Constant { ns: i64 },
    From(PiecewiseLinear),
}

impl Drawn {
    pub fn of(cost: &Cost) -> Drawn {
        match *cost {
            Cost::Constant { ns } => Drawn::Constant { ns },
            Cost::Quantiles { .. } => Drawn::From(cost.distribution()),
        }
    }

    /// What it costs this time, ns.
    #[inline]
    pub fn next(&self, random: &mut Pcg32) -> i64 {
        match self {
            Drawn::Constant { ns } => *ns,
            Drawn::From(distribution) => distribution.at(random.next_u32()),
        }
    }
}

/// What something costs this time, ns.
#[inline]
pub fn draw(cost: &Cost, random: &mut Pcg32) -> i64 {
    match *cost {
        Cost::Constant { ns } => ns,
        Cost::Quantiles { .. } => cost.at(random.next_u32()),
    }
}

/// A time from 0 to `below_ns`, not included.
pub fn uniform_ns(below_ns: i64, random: &mut Pcg32) -> i64 {
    ((u128::from(random.next_u64()) * below_ns as u128) >> 64) as i64
}
