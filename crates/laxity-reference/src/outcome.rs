//! The result of a run, or the reason for its refusal.

/// The most steps that a run may take: some seconds of work.
pub(crate) const STEPS_MAX: i64 = 20_000_000;

/// The fate of one job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Job {
    /// Index into [`laxity_host::Host::domains`].
    pub domain: usize,
    /// Index into [`laxity_host::Domain::tasks`].
    pub task: usize,
    /// Counts the jobs of a task from 0.
    pub number: u64,
    /// When it arrived; before the end of the run.
    pub arrival_ns: i64,
    /// When it completed, at the latest at the end of the run.
    pub completion_ns: Option<i64>,
}

/// How much CPU one VCPU used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VcpuTime {
    /// Index into [`laxity_host::Host::domains`].
    pub domain: usize,
    /// Index into [`laxity_host::Domain::vcpus`].
    pub vcpu: usize,
    /// CPU time, on budget and on extra time together.
    pub cpu_ns: i64,
}

/// A stretch of time in which one VCPU ran on one CPU without a gap. Idle time has no interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval {
    /// The CPU's number.
    pub cpu: usize,
    /// Index into [`laxity_host::Host::domains`].
    pub domain: usize,
    /// Index into [`laxity_host::Domain::vcpus`].
    pub vcpu: usize,
    /// When it began.
    pub start_ns: i64,
    /// When it ended; later than it began.
    pub end_ns: i64,
}

/// What happened on a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Every job that arrived before the end, by domain, task and number.
    pub jobs: Vec<Job>,
    /// Every VCPU, in the order of the host file.
    pub vcpus: Vec<VcpuTime>,
    /// The runs of VCPUs: by CPU, then by time; as few as possible.
    pub intervals: Vec<Interval>,
}

/// Why a host is not simulated here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// `costs` is not zero.
    #[error("the reference models no costs of scheduling; leave `costs` out of the host")]
    Costs,
    /// Timers of the policy are served late.
    #[error("the reference serves every timer on time; leave `timer-latency` out of the host")]
    TimerLatency,
    /// A task has jitter.
    #[error("the reference models no jitter; task {task} of domain {domain} has {jitter_ns} ns")]
    Jitter {
        /// The domain's name.
        domain: String,
        /// The task's name.
        task: String,
        /// Its jitter.
        jitter_ns: i64,
    },
    /// The host's times are too small for its duration.
    #[error(
        "the reference would take {steps} steps of {unit_ns} ns, and takes {} at most; shorten the \
         run or round the host's times",
        STEPS_MAX
    )]
    Steps {
        /// How many there would be.
        steps: i64,
        /// The greatest common divisor of all times.
        unit_ns: i64,
    },
}
