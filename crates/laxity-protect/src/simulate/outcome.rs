//! The outcome of a history, and the coverage of many.

use super::observer::Violation;

macro_rules! coverage {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts of what has happened in histories; a history proves nothing about events that it
        /// never reaches.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct Coverage {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Coverage {
            /// Adds the counts of others.
            pub fn add(&mut self, other: &Coverage) {
                $(self.$name += other.$name;)*
            }

            /// All counts with their names.
            pub fn counts(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }
        }
    };
}

coverage! {
    /// Histories.
    histories,
    /// Events of any kind.
    happenings,
    /// Outputs that were heard.
    heard,
    /// Heard outputs that had been held.
    released,
    /// Outputs that were dropped because a lease had run out.
    lapsed,
    /// States that were heard, and lost in No-Net mode.
    lost_states,
    /// Checkpoints that were committed.
    committed,
    /// Checkpoints of which only a part arrived.
    discarded,
    /// Checkpoints with a lease that was not the longest.
    short_leases,
    /// Checkpoints that were sent again.
    resent,
    /// Copies of all memory.
    copies,
    /// Takeovers by a standby whose primary was silent.
    takeovers,
    /// Takeovers by a standby that was told to.
    switchovers,
    /// Histories in which the guest changed hosts more than once.
    returned,
    /// Primaries that saw a higher term.
    fenced,
    /// Primaries that waited for their standby.
    waited,
    /// Standbys that lived without acknowledging, until they were told to forget.
    stalled,
    /// Primaries that went on at their operator's risk.
    at_risk,
    /// Primaries that found out that nobody could take over.
    alone,
    /// Terms that the witness gave out.
    granted,
    /// Terms that the witness refused.
    refused,
    /// Claims that the witness did not answer.
    silent,
    /// Frames that were refused.
    damaged,
    /// Connections.
    connections,
    /// Processes that ended.
    crashes,
    /// Crashes while the other process had ended, too.
    both_down,
    /// Processes that stalled between two actions.
    froze_between,
    /// Orders to go on.
    go_ons,
    /// Guests that ended by themselves.
    guests_off,
    /// Checkpoints that could not be taken.
    captures_failed,
    /// Guests that could not be made to run.
    activations_failed,
    /// Guests that ran later than they should.
    activations_late,
    /// Guests that were given up before they ran.
    abandoned,
    /// Standbys whose guest's thread hung for too long.
    hung,
    /// Standbys that were given up because no checkpoint could be taken.
    captures_given_up,
    /// Guests that were left to the other host for the same reason.
    left_to_heir,
    /// Copies that began later than they could.
    copies_later,
    /// Disks that could not be flushed.
    disks_failed,
    /// Sums of disks that were compared.
    compared,
    /// Standbys without room.
    unusable,
    /// Clocks that jumped.
    clock_jumps,
    /// Records that found no room.
    disks_full,
    /// Records that were slow.
    disks_slow,
    /// Guests whose memory went with a process that was killed.
    guests_killed,
    /// Claims of a host whose other host was down, while the witness was silent, too.
    down_unwitnessed,
    /// Histories at whose end nobody had the guest.
    nobody,
    /// Histories of these in which output was heard at the end nevertheless.
    surprises,
    /// Histories at whose end the guest was protected.
    protected,
}

/// The result of a history.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The violated property, if one was violated.
    pub violation: Option<Violation>,
    /// Number of actions that each side carried out.
    pub actions: [u32; 2],
    /// The longest time between two heard outputs, in ns.
    pub silence_ns: i64,
    /// One line for each event, if a log was asked for.
    pub log: Vec<String>,
}
