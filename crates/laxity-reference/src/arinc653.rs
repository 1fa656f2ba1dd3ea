//! Xen's arinc653: `docs/explanation/policies.md`, "Arinc653".

use crate::rules::Rules;
use laxity_host::{Host, Parameters};

struct Vcpu {
    cpu: usize,
    parameters: Parameters,
    awake: bool,
}

impl Vcpu {
    /// "A window opens whenever a period begins, and is open for `budget`."
    fn has_window(&self, now_ns: i64) -> bool {
        let begun_ns = now_ns - self.parameters.phase_ns;
        begun_ns.rem_euclid(self.parameters.period_ns) < self.parameters.budget_ns
    }
}

/// All VCPUs and CPUs under arinc653.
pub(crate) struct Arinc653 {
    vcpus: Vec<Vcpu>,
    running: Vec<Option<usize>>,
}

impl Arinc653 {
    pub(crate) fn new(host: &Host) -> Self {
        let of_domain = host.domains.iter().flat_map(|domain| {
            domain.vcpus.iter().map(|vcpu| Vcpu {
                cpu: vcpu.cpu as usize,
                parameters: domain.parameters,
                awake: false,
            })
        });
        Arinc653 {
            vcpus: of_domain.collect(),
            running: vec![None; host.cpus as usize],
        }
    }

    fn should_run(&self, cpu: usize, now_ns: i64) -> Option<usize> {
        let first = (self.vcpus.iter()).position(|vcpu| vcpu.cpu == cpu && vcpu.has_window(now_ns));
        first.filter(|&vcpu| self.vcpus[vcpu].awake)
    }
}

impl Rules for Arinc653 {
    fn wake(&mut self, vcpu: usize, _now_ns: i64) {
        self.vcpus[vcpu].awake = true;
    }

    fn event(&mut self, _vcpu: usize) {}

    fn timers(&mut self, _now_ns: i64) {}

    fn block(&mut self, vcpu: usize) {
        self.vcpus[vcpu].awake = false;
    }

    fn has_reason(&self, cpu: usize, now_ns: i64) -> bool {
        self.should_run(cpu, now_ns) != self.running[cpu]
    }

    fn decide(&mut self, cpu: usize, now_ns: i64) {
        self.running[cpu] = self.should_run(cpu, now_ns);
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
