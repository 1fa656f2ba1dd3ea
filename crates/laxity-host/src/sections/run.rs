//! The keys above the first table: how long a run lasts, and its seed.

use laxity_config::{Duration, Field, HOUR_NS, Problems, SECOND_NS, Span, Whole};

/// 10,000 hours: the longest run.
pub const RUN_DURATION_NS_MAX: i64 = 10_000 * HOUR_NS;

/// The duration of a run.
pub(crate) type RunDuration = Duration<1, RUN_DURATION_NS_MAX, SECOND_NS>;

/// The seed of a run.
pub(crate) type Seed = Whole<0, { i64::MAX }>;

/// In nanoseconds. `root` is the place of the file.
pub(crate) fn duration_ns(duration: &Field<RunDuration>, root: Span, problems: &Problems) -> i64 {
    if duration.is_missing("duration", root, problems) {
        problems.report(
            root,
            "`duration` is missing",
            "say how long a run lasts, above the first table: duration = \"60 s\"",
        );
    }
    duration.ns_or(i64::MAX)
}

pub(crate) fn seed(seed: &Field<Seed>) -> u64 {
    seed.or(1) as u64
}
