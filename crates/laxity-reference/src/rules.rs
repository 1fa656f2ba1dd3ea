//! The rules that every policy keeps: `docs/explanation/policies.md`, "What happens at one instant".

/// If others wait, a turn on extra time lasts this long.
pub(crate) const EXTRA_TURN_NS: i64 = 1_000_000;

/// What a guest tells of that on which a VCPU works.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Told {
    /// The task and the number of the job that ranks first.
    pub(crate) job: Option<(usize, u64)>,
    /// When that must be complete.
    pub(crate) deadline_ns: Option<i64>,
    /// The place in the order of the guest's work of what the VCPU does; smaller comes first.
    pub(crate) order: i64,
}

/// A policy, as the instants drive it. VCPUs are numbered through the host in the order of the file.
pub(crate) trait Rules {
    /// Rule 1: a VCPU that was blocked gets work.
    fn wake(&mut self, vcpu: usize, now_ns: i64);
    /// Rule 1: a VCPU that is not blocked gets work.
    fn event(&mut self, vcpu: usize);
    /// After rule 1: the VCPU's guest works on something else than before.
    fn tell(&mut self, _vcpu: usize, _told: Told, _now_ns: i64) {}
    /// Rule 2: everything that the policy does by the clock.
    fn timers(&mut self, now_ns: i64);
    /// Whether decisions of this instant made a timer due that is served at this instant, too.
    fn is_due_again(&self, _now_ns: i64) -> bool {
        false
    }
    /// When a decision ends next that can end between two units of time.
    fn next_ns(&self) -> i64 {
        i64::MAX
    }
    /// Rule 3: a running VCPU has nothing left to do.
    fn block(&mut self, vcpu: usize);
    /// Rule 3: whether the CPU has a reason to decide.
    fn has_reason(&self, cpu: usize, now_ns: i64) -> bool;
    /// Rule 3: the CPU decides who runs.
    fn decide(&mut self, cpu: usize, now_ns: i64);
    /// Every CPU that had a reason has decided.
    fn settle(&mut self, now_ns: i64);
    /// All CPUs do for `unit_ns` what was decided.
    fn pass(&mut self, unit_ns: i64);
    /// Whether the VCPU is not blocked.
    fn is_awake(&self, vcpu: usize) -> bool;
    /// The VCPU that runs on the CPU by its last decision.
    fn running(&self, cpu: usize) -> Option<usize>;
}
