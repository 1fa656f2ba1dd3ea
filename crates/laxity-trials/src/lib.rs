//! Random cases of tests: how many, from which seed, and what is drawn from one.
//!
//! `LAXITY_CASES` is the number of cases of each test, or a part of what it tries by itself: `1`, `1000000`, `20%`.
//! `LAXITY_SEED` is the seed of the first case (default 0). A failure names its seed, and both together repeat it.

use std::ops::Range;

/// The number in a variable of the environment, or else `standard`.
///
/// # Panics
///
/// If the variable holds no whole number.
pub fn number(variable: &str, standard: u64) -> u64 {
    std::env::var(variable).map_or(standard, |text| whole(variable, &text))
}

/// How many cases a test tries that tries `standard` by itself: at least one.
///
/// # Panics
///
/// If `LAXITY_CASES` is neither a whole number nor one with a percent sign.
pub fn cases(standard: u64) -> u64 {
    std::env::var(CASES).map_or(standard, |text| asked(&text, standard))
}

/// The seeds of a test's cases, of which there are `standard` unless `LAXITY_CASES` says otherwise.
///
/// # Panics
///
/// If `LAXITY_CASES` or `LAXITY_SEED` cannot be read.
pub fn seeds(standard: u64) -> Range<u64> {
    let first = number("LAXITY_SEED", 0);
    first..first + cases(standard)
}

const CASES: &str = "LAXITY_CASES";

fn asked(text: &str, standard: u64) -> u64 {
    text.strip_suffix('%').map_or_else(
        || whole(CASES, text),
        |percent| (standard * whole(CASES, percent) / 100).max(1),
    )
}

fn whole(variable: &str, text: &str) -> u64 {
    (text.parse()).unwrap_or_else(|_| panic!("{variable} must be a number: {text}"))
}

/// Numbers drawn at random, the same for the same seed: SplitMix64 (Steele, Lea and Flood, 2014).
#[derive(Debug, Clone)]
pub struct Draw(u64);

impl Draw {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> Draw {
        Draw(seed)
    }

    /// The next number of the sequence, of 64 bits.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 on, `bound` not included.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.number() % bound
    }

    /// From `least` to `most`, both included.
    pub fn between(&mut self, least: i64, most: i64) -> i64 {
        least + self.below((most - least + 1) as u64) as i64
    }

    /// One of the choices, all as likely.
    pub fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::{Draw, asked};

    #[test]
    fn a_number_or_a_part_is_asked_for() {
        assert_eq!(asked("7", 1000), 7);
        assert_eq!(asked("20%", 1000), 200);
        assert_eq!(asked("20%", 2), 1);
        assert_eq!(asked("200%", 3), 6);
    }

    #[test]
    #[should_panic(expected = "LAXITY_CASES must be a number: many")]
    fn a_word_is_no_number() {
        asked("many", 1000);
    }

    #[test]
    fn the_sequence_is_that_of_splitmix64() {
        // The first numbers from 1234567, as other implementations of the generator give them.
        let mut draw = Draw::new(1_234_567);
        let drawn = [(); 3].map(|()| draw.number());
        assert_eq!(
            drawn,
            [
                6457827717110365317,
                3203168211198807973,
                9817491932198370423
            ]
        );
    }
}
