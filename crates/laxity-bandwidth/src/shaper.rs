//! The contract between the daemon and the backends that enforce limits in one direction.

use std::collections::HashMap;
use std::io;

use crate::agreements::Attachment;
use crate::control::{Limits, Shapers};
use crate::{Agreements, Holder, demand::Sample};

/// Bytes of the shortest frame of Ethernet without its checksum. A card makes shorter ones as long.
pub const FRAME_BYTES_MIN: u64 = 60;

/// Counters of a holder since its shaper was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Sent, in bytes.
    pub bytes: u64,
    /// Sent, in packets, where these are counted; wraps around.
    pub packets: u32,
    /// Packets dropped from its queue; wraps around.
    pub drops: u32,
    /// Number of times that the shaper stopped it; wraps around.
    pub overlimits: u32,
    /// Bytes that wait in its queue now.
    pub backlog_bytes: u32,
}

impl Counters {
    /// The difference between two reads, `elapsed_ns` apart. Counters that went down belong to a
    /// new shaper and count in full. Frames that are all shorter than [`FRAME_BYTES_MIN`] count as
    /// the link carries them.
    pub fn since(&self, before: &Counters, elapsed_ns: u64) -> Sample {
        let is_new = self.bytes < before.bytes;
        let before = if is_new { Counters::default() } else { *before };
        let packets = u64::from(self.packets.wrapping_sub(before.packets));
        Sample {
            elapsed_ns,
            delivered_bytes: (self.bytes - before.bytes).max(FRAME_BYTES_MIN * packets),
            dropped_packets: self.drops.wrapping_sub(before.drops).into(),
            backlog_bytes: self.backlog_bytes.into(),
            overlimits: self.overlimits.wrapping_sub(before.overlimits).into(),
        }
    }
}

/// A change of traffic control.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// Interface of the change.
    pub interface: u32,
    /// Handle of the object that was changed, made or removed.
    pub handle: u32,
    /// Handle of the object's parent.
    pub parent: u32,
}

/// Gives new holders the state of their attachments. Returns the rest, whose agreements have ended.
pub(crate) fn take_over<T>(
    before: impl Iterator<Item = (Attachment, T)>,
    holders: &[Holder],
) -> (Vec<Option<T>>, Vec<T>) {
    let mut known: HashMap<Attachment, T> = before.collect();
    let kept = holders.iter().map(|holder| known.remove(&holder.at));
    (kept.collect(), known.into_values().collect())
}

/// Enforces limits for the holders of agreements, who are known by their places in
/// [`Agreements::holders`]; a tree has one more place at the end for traffic without an agreement.
///
/// Errors are the system's. One that concerns a single holder does not keep the others from theirs.
pub trait Shaper {
    /// Whether holders lend rate to each other.
    fn shapers(&self) -> Shapers;

    /// Takes on new agreements. A holder that is also in the old ones keeps its queue; its limits
    /// follow by [`Shaper::apply`].
    fn configure(&mut self, agreements: &Agreements) -> io::Result<()>;

    /// Removes the holders whose agreements have ended; called when all limits have been applied.
    fn tidy(&mut self) -> io::Result<()>;

    /// Binds a holder to its interface's number; `None` means that the interface is gone.
    fn bind(&mut self, holder: usize, interface: Option<u32>) -> io::Result<()>;

    /// Says that the kernel has told something of a bound holder's interface, such as that its guest
    /// is connected.
    fn look(&mut self, _holder: usize) -> io::Result<()> {
        Ok(())
    }

    /// Says that packets which enter by `interface` belong to whoever has the interface below it,
    /// unless they have an agreement of their own; `None` means that `interface` is gone.
    fn stack(&mut self, _interface: u32, _lower: Option<u32>) -> io::Result<()> {
        Ok(())
    }

    /// Sets the limits of some holders. Returns the holders whose limits could not be set.
    fn apply(&mut self, limits: &[(usize, Limits)]) -> Vec<(usize, io::Error)>;

    /// Reads the counters of all holders whose counters may have changed since the last read, and
    /// puts these holders into `read`, in order.
    fn read(&mut self, read: &mut Vec<usize>) -> io::Result<()>;

    /// The last counters read of one holder.
    fn counters(&self, holder: usize) -> Counters;

    /// Whether a change by another program concerns this shaper's objects; `None` stands for lost
    /// notifications.
    fn is_disturbed_by(&self, change: Option<&Change>) -> bool;

    /// The netlink ports of this shaper's own requests.
    fn ports(&self) -> Vec<u32>;

    /// A feature that the kernel lacks for this shaper's queues, in words for people.
    fn shortcoming(&self) -> Option<&'static str>;

    /// Restores all objects after another program has removed or changed some, with the limits of
    /// all holders. Packets stay in the queues that still exist.
    fn restore(&mut self, agreements: &Agreements, limits: &[(usize, Limits)]) -> io::Result<()>;

    /// Removes all objects of this shaper, and nothing else.
    fn close(&mut self) -> io::Result<()>;
}
