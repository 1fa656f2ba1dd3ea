//! What enforces limits in one direction: the contract between the daemon and its backends.

use std::collections::HashMap;
use std::io;

use crate::control::{Limits, Shapers};
use crate::linux::Change;
use crate::{Agreements, Holder, demand::Sample};

/// What has been counted of a holder since its shaper was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Sent, in bytes.
    pub bytes: u64,
    /// Dropped from its queue, in packets; goes round.
    pub drops: u32,
    /// How often it had to stop; goes round.
    pub overlimits: u32,
    /// What waits in its queue now, in bytes.
    pub backlog_bytes: u32,
}

impl Counters {
    /// What happened between two looks, `elapsed_ns` apart. A shaper that was made anew in between has
    /// counted less than before: all that it has counted is new then.
    pub fn since(&self, before: &Counters, elapsed_ns: u64) -> Sample {
        let is_new = self.bytes < before.bytes;
        let before = if is_new { Counters::default() } else { *before };
        Sample {
            elapsed_ns,
            delivered_bytes: self.bytes - before.bytes,
            dropped_packets: self.drops.wrapping_sub(before.drops).into(),
            backlog_bytes: self.backlog_bytes.into(),
            overlimits: self.overlimits.wrapping_sub(before.overlimits).into(),
        }
    }
}

/// Gives new holders what there was of their interfaces; then what is left, whose agreements have ended.
pub(crate) fn take_over<T>(
    before: impl Iterator<Item = (String, T)>,
    holders: &[Holder],
) -> (Vec<Option<T>>, Vec<T>) {
    let mut known: HashMap<String, T> = before.collect();
    let kept = holders.iter().map(|holder| known.remove(&holder.interface));
    (kept.collect(), known.into_values().collect())
}

/// Enforces limits for the holders of agreements, who are known by their places in
/// [`Agreements::holders`]; a tree has one more at the end, for all who hold none.
///
/// Errors are the system's. One that concerns a single holder does not keep the others from theirs.
pub trait Shaper {
    /// Whether limits know of each other.
    fn shapers(&self) -> Shapers;

    /// Takes agreements on, in place of those before: who is in both keeps its queue. Limits follow.
    fn configure(&mut self, agreements: &Agreements) -> io::Result<()>;

    /// Whose agreements ended since has no place any more: called when all limits have been applied.
    fn tidy(&mut self) -> io::Result<()>;

    /// The holder's interface is there, under this number, or it is gone.
    fn bind(&mut self, holder: usize, interface: Option<u32>) -> io::Result<()>;

    /// Sets limits, of all holders in their order. Gives those that could not be set.
    fn apply(&mut self, limits: &[Limits]) -> Vec<(usize, io::Error)>;

    /// Reads all counters.
    fn read(&mut self) -> io::Result<()>;

    /// What was read of one holder.
    fn counters(&self, holder: usize) -> Counters;

    /// Whether somebody else has changed something of what this has made; `None` stands for changes that are not known
    /// one by one.
    fn is_disturbed_by(&self, change: Option<&Change>) -> bool;

    /// The netlink ports at which this asks for changes.
    fn ports(&self) -> Vec<u32>;

    /// How packets wait where the kernel cannot do it as it should; in words for people.
    fn shortcoming(&self) -> Option<&'static str>;

    /// Makes all that there was anew, as it was: somebody else has removed or changed it. Packets that wait stay where
    /// their queues are still there.
    fn restore(&mut self, agreements: &Agreements, limits: &[Limits]) -> io::Result<()>;

    /// Removes all that this has made, and nothing else.
    fn close(&mut self) -> io::Result<()>;
}
