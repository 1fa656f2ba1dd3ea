//! Random choices that a seed repeats, and numbers that the environment may set.

use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64;

pub struct Draw(Pcg64);

impl Draw {
    pub fn new(seed: u64) -> Draw {
        Draw(Pcg64::seed_from_u64(seed))
    }

    /// Both ends are among what is drawn.
    pub fn between(&mut self, least: i64, most: i64) -> i64 {
        least + (self.0.next_u64() % (most - least + 1) as u64) as i64
    }

    pub fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.between(0, choices.len() as i64 - 1) as usize]
    }
}

pub fn number_from_environment(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => (text.parse()).unwrap_or_else(|_| panic!("{name} must be a number: {text}")),
        Err(_) => default,
    }
}
