//! Numbers drawn at random, for tests and examples.

/// SplitMix64 (Steele, Lea and Flood, 2014).
pub struct Draw(pub u64);

impl Draw {
    /// From `least` to `most`, both included.
    pub fn between(&mut self, least: i64, most: i64) -> i64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        least + ((mixed ^ (mixed >> 31)) % (most - least + 1) as u64) as i64
    }
}
