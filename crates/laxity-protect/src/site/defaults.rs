//! Default values, which the operator's page repeats, and bounds.

use crate::protocol::LEASE_INTERVALS;
pub use crate::protocol::defaults::{
    DETECTION_MIN_HEARTBEATS, DETECTION_NS, DRIFT_PPM, HEARTBEAT_NS, SETTLING_LEASES,
    STALL_DETECTIONS,
};

pub const MINIMUM_NS: i64 = 25 * MS;
pub const MAXIMUM_NS: i64 = 400 * MS;
pub const PAUSES_PERCENT: i64 = 20;
pub const LEASE_NS: i64 = LEASE_INTERVALS * MAXIMUM_NS;
pub const MEMORY_BYTES: i64 = 256 << 20;
pub const DIRECTORY: &str = "/var/lib/laxity-protect";
pub const KEYS: &str = "/etc/laxity-protect";
pub const APPLIANCES: &str = "/var/lib/laxity-protect/appliances";
pub const QEMU: &str = "qemu-system-x86_64";
pub const PREFIX: &str = "laxity-protect/";

pub const MS: i64 = 1_000_000;
pub const INTERVAL_NS_MIN: i64 = MS;
pub const TIME_NS_MAX: i64 = 60_000 * MS;
pub const VCPUS_MAX: i64 = 255;
