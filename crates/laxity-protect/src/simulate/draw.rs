//! Chance, from seeds.

use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg32;

/// The source of randomness.
#[derive(Debug, Clone)]
pub(super) struct Draw(Pcg32);

impl Draw {
    pub fn new(seed: u64, purpose: u64) -> Draw {
        Draw(Pcg32::seed_from_u64(
            seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ purpose,
        ))
    }

    pub fn below(&mut self, limit: usize) -> usize {
        ((u64::from(self.0.next_u32()) * limit as u64) >> 32) as usize
    }

    /// A random number between two bounds, both included.
    pub fn between(&mut self, least: i64, most: i64) -> i64 {
        let span = (most - least + 1) as u128;
        least + ((u128::from(self.0.next_u64()) * span) >> 64) as i64
    }

    /// True once in `times` calls on average.
    pub fn chance(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
}
