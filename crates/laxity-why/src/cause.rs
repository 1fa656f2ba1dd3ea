//! The parts of a job's response.

use laxity_trace::Exit;
use serde::Serialize;

/// The use of a part of a job's response time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// The job ran, for up to its task's cost.
    OwnWork,
    /// The job arrived and was not yet released: jitter, or a timer that its kernel could not set for so soon.
    ReleasedLate,
    /// An earlier job of the same task ran; nobody.
    EarlierJob,
    /// Another task of the VCPU ran, which comes first in its guest: that task.
    Task,
    /// The VCPU ran without doing its jobs' work, or the job ran for longer than its cost: ticks of the guest's
    /// kernel, cache misses, and on real machines whatever else makes work longer; nobody.
    Overhead,
    /// The VCPU had the CPU, and the host worked in place of its guest, or for it; nobody, with the reason for which
    /// the guest was left as [`Rule`].
    Exit,
    /// The VCPU was runnable without budget: the task that used most of the budget since the VCPU last got some, or
    /// the VCPU itself where it was dropped or no task used it.
    Budget,
    /// The VCPU was parked, since its domain had used up its cap: the VCPU itself.
    Cap,
    /// Another VCPU had the CPU: that VCPU, with the [`Rule`] by which it ran.
    Cpu,
    /// The CPU was deciding or switching context; nobody.
    Switch,
    /// The VCPU could have run and its CPU was idle: a decision was still to come, a VCPU that the trace does not know
    /// ran, under the periodic server another VCPU's budget ran down, or under null it had no CPU; nobody.
    Idle,
    /// The VCPU was blocked although a job of its was released: its guest had not yet noticed. For a packet: the
    /// threads of its domain were on other VCPUs, or the domain did not run; nobody.
    Blocked,
    /// A packet waited while the VCPU that was to handle it handled others, or did other work: that VCPU.
    Queue,
    /// A packet waited in a card that had not yet interrupted; nobody.
    Coalesced,
    /// A packet waited for a domain that was paused for a checkpoint; nobody.
    Pause,
    /// A packet was held until a checkpoint was acknowledged; nobody.
    Held,
    /// A packet waited for credit of its domain's agreement about the link; nobody.
    Rate,
    /// A packet was on a wire, or waited for it; nobody.
    Link,
    /// A packet was lost with the host that failed; nobody.
    Failure,
    /// The domain's host had failed, and its standby had not yet detected the failure; nobody.
    Silence,
    /// The standby activated the domain; nobody.
    Activation,
}

/// The task or VCPU behind a cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Who {
    /// No task or VCPU in particular.
    Nobody,
    /// A task, by the places of its domain and of itself in the host file.
    Task(u16, u32),
    /// A VCPU, by its domain and its number there.
    Vcpu(u16, u16),
}

/// Why the policy let another VCPU run, or why the guest of the VCPU itself was left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// It comes first: by its priority, the end of its period, or how long it has waited; or the CPU is its own.
    Order,
    /// It got budget while it ran, so that it uses one budget right behind another.
    BackToBack,
    /// It was boosted, as it had just woken or got an event (credit, scheduler S).
    Boost,
    /// It had credits left and the waiting one had not (credit, scheduler S).
    Credits,
    /// It had its turn: it is of the same class as the waiting one, or of a worse one that has not yet been preempted
    /// (credit, scheduler S).
    Turn,
    /// The guest was left for that reason.
    #[serde(untagged)]
    Exit(Exit),
}

impl Rule {
    /// A number for each rule, from 1.
    fn number(self) -> u64 {
        match self {
            Rule::Order => 1,
            Rule::BackToBack => 2,
            Rule::Boost => 3,
            Rule::Credits => 4,
            Rule::Turn => 5,
            Rule::Exit(exit) => 6 + exit as u64,
        }
    }
}

/// What a time is attributed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub cause: Cause,
    pub who: Who,
    pub rule: Option<Rule>,
}

impl Key {
    pub const fn of(cause: Cause) -> Key {
        Key::by(cause, Who::Nobody)
    }

    pub const fn by(cause: Cause, who: Who) -> Key {
        Key {
            cause,
            who,
            rule: None,
        }
    }
}

impl Key {
    /// The key as a number, which is compared faster.
    pub fn packed(self) -> u64 {
        let (tag, domain, number) = match self.who {
            Who::Nobody => (0, 0, 0),
            Who::Task(domain, task) => (1, domain, task),
            Who::Vcpu(domain, vcpu) => (2, domain, u32::from(vcpu)),
        };
        let rule = self.rule.map_or(0, Rule::number);
        (self.cause as u64) << 56
            | rule << 50
            | tag << 48
            | u64::from(domain) << 32
            | u64::from(number)
    }
}

/// A part of a job's response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// What it went into.
    pub cause: Cause,
    /// The task or VCPU behind it.
    pub who: Who,
    /// Why another VCPU ran, of [`Cause::Cpu`], or why the guest was left, of [`Cause::Exit`].
    pub rule: Option<Rule>,
    /// How much of the response it is, ns.
    pub delay_ns: i64,
    /// How much of the lateness it is, ns.
    pub ns: i64,
}
