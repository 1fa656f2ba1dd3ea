//! Events on the CPUs of a host, as its kernel recorded them.

use laxity_trace::Kind;
#[cfg(doc)]
use laxity_trace::NONE;

/// The VCPU that runs on a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// None.
    Idle,
    /// Something that is not of the host file.
    Foreign,
    /// By its place among all VCPUs of the host file.
    Vcpu(u32),
}

/// One thing that a kernel saw.
pub struct Event {
    /// By the counter of the host, for the order of events.
    pub cycles: u64,
    /// From the start of the run.
    pub time_ns: i64,
    /// Where it stands in the dump, for messages.
    pub offset: usize,
    /// The CPU it happened on.
    pub cpu: u16,
    /// What happened.
    pub what: What,
}

/// What a kernel saw.
pub enum What {
    /// A CPU went from one VCPU to another.
    Switch {
        /// It ran until then.
        before: Who,
        /// It runs from then on.
        after: Who,
        /// The VCPU that ran blocked, and no `Block` says so.
        blocks: bool,
        /// The decision behind it.
        decision: Decision,
    },
    /// A decision left who runs.
    Continue {
        /// It goes on.
        who: Who,
        /// The decision behind it.
        decision: Decision,
    },
    /// A VCPU got something to do.
    Wake {
        /// By its place among all VCPUs of the host file.
        vcpu: u32,
        /// Its run state changed. If not, it may have been awake.
        state: bool,
        /// The CPU in whose queue it waits from then on, or [`NONE`] if that is not known.
        cpu: u16,
    },
    /// A VCPU has nothing left to do.
    Block {
        /// By its place among all VCPUs of the host file.
        vcpu: u32,
        /// It did; it was not woken before it left its CPU.
        real: bool,
    },
    /// The policy changed something of a VCPU.
    Policy {
        /// By its place among all VCPUs of the host file.
        vcpu: u32,
        /// What.
        kind: Kind,
        /// The argument that a record of that kind has.
        argument: i64,
    },
}

/// What is known of a decision.
#[derive(Clone, Copy)]
pub struct Decision {
    /// From the decision on; `i64::MAX` if never.
    pub until_ns: i64,
    /// What it cost; 0 if that was not measured.
    pub cost_ns: i64,
}
