//! Bounds and defaults of what agreements state, for every file that has agreements in it.

/// The lowest class; 1 is the highest.
pub const CLASS_MAX: i64 = 1_000;

/// The greatest weight; 1 is the least.
pub const WEIGHT_MAX: i64 = 65_535;

/// The weight where a file states none.
pub const WEIGHT: u32 = 1;

/// The shortest time from one look of the allocator to the next.
pub const PERIOD_NS_MIN: i64 = 1_000_000;

/// The longest such time.
pub const PERIOD_NS_MAX: i64 = 10_000_000_000;

/// That time where a file states none.
pub const PERIOD_NS: i64 = 10_000_000;
