//! Xen's null: `docs/explanation/policies.md`, "Null".

use crate::rules::Rules;
use laxity_host::Host;

struct Vcpu {
    /// Its CPU for good; `None` waits for one.
    cpu: Option<usize>,
    awake: bool,
}

/// All VCPUs and CPUs under null.
pub(crate) struct Null {
    vcpus: Vec<Vcpu>,
    running: Vec<Option<usize>>,
}

impl Null {
    pub(crate) fn new(host: &Host) -> Self {
        let mut vcpus: Vec<Vcpu> = Vec::new();
        for vcpu in host.domains.iter().flat_map(|domain| &domain.vcpus) {
            let is_free = |cpu: &u32| !vcpus.iter().any(|one| one.cpu == Some(*cpu as usize));
            let mut affinity = vcpu.affinity.clone();
            affinity.sort_unstable();
            let wanted = [vcpu.cpu].into_iter().chain(affinity).find(is_free);
            vcpus.push(Vcpu {
                cpu: wanted.map(|cpu| cpu as usize),
                awake: false,
            });
        }
        Null {
            vcpus,
            running: vec![None; host.cpus as usize],
        }
    }

    fn should_run(&self, cpu: usize) -> Option<usize> {
        (self.vcpus.iter()).position(|vcpu| vcpu.awake && vcpu.cpu == Some(cpu))
    }
}

impl Rules for Null {
    fn wake(&mut self, vcpu: usize, _now_ns: i64) {
        self.vcpus[vcpu].awake = true;
    }

    fn event(&mut self, _vcpu: usize) {}

    fn timers(&mut self, _now_ns: i64) {}

    fn block(&mut self, vcpu: usize) {
        self.vcpus[vcpu].awake = false;
    }

    fn has_reason(&self, cpu: usize, _now_ns: i64) -> bool {
        self.should_run(cpu) != self.running[cpu]
    }

    fn decide(&mut self, cpu: usize, _now_ns: i64) {
        self.running[cpu] = self.should_run(cpu);
    }

    fn settle(&mut self, _now_ns: i64) {}

    fn pass(&mut self, _unit_ns: i64) {}

    fn is_awake(&self, vcpu: usize) -> bool {
        self.vcpus[vcpu].awake
    }

    fn running(&self, cpu: usize) -> Option<usize> {
        self.running[cpu]
    }
}
