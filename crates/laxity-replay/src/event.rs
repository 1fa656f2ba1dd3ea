//! Events on the CPUs of a host, as its kernel recorded them.

#[cfg(doc)]
use laxity_trace::NONE;
use laxity_trace::{Exit, Kind};

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
    /// The guest of a VCPU was left or entered.
    Guest {
        /// By its place among all VCPUs of the host file.
        vcpu: u32,
        /// Why it was left; `None` if it was entered.
        exit: Option<Exit>,
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

impl What {
    /// What a policy of Laxity traced of a VCPU: an event by its number in `enum laxity_event`
    /// (`policy/include/laxity/policy.h`), on a host with so many CPUs.
    ///
    /// # Errors
    ///
    /// The number is that of no event, or the event cannot have that argument.
    pub fn of_policy(vcpu: u32, number: u32, argument: i64, cpus: u32) -> Result<What, String> {
        let kind = match number {
            0 => Kind::Replenish,
            1 => Kind::Exhaust,
            2 => Kind::Budget,
            3 => Kind::Migrate,
            4 => Kind::Class,
            _ => return Err(format!("event {number} of a policy; there are 0 to 4")),
        };
        match kind {
            Kind::Migrate if !(0..i64::from(cpus)).contains(&argument) => Err(format!(
                "a VCPU is on CPU {argument}; the host has {cpus} CPUs"
            )),
            Kind::Class if !(0..4).contains(&argument) => {
                Err(format!("class {argument}; there are 0 to 3"))
            }
            _ => Ok(What::Policy {
                vcpu,
                kind,
                argument,
            }),
        }
    }
}

/// What is known of a decision.
#[derive(Clone, Copy)]
pub struct Decision {
    /// From the decision on; `i64::MAX` if never.
    pub until_ns: i64,
    /// What it cost; 0 if that was not measured.
    pub cost_ns: i64,
}
