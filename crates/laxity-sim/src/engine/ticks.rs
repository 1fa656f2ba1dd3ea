//! The timer interrupts of guests' kernels: `docs/explanation/policies.md`, "Ticks of guests".

use super::state::{NOBODY, Simulation, TICK, Ticks, Vcpu};
use crate::workloads::Workloads;
use laxity_trace::Sink;

impl<W: Workloads, S: Sink> Simulation<'_, W, S> {
    /// When all domains are there.
    pub(super) fn add_ticks(&mut self) {
        let mut first_vcpu = 0;
        for domain in &self.host.domains {
            let vcpus = first_vcpu..first_vcpu + domain.vcpus.len();
            first_vcpu = vcpus.end;
            if let Some(tick) = domain.tick {
                let slot = self.tasks.len() + self.ticks.len();
                self.agenda.arrivals.set(slot, tick.offset_ns);
                self.ticks.push(Ticks { tick, vcpus });
            }
        }
    }

    /// A domain's ticks fall due.
    pub(super) fn tick(&mut self, source: usize, now: i64) {
        let Ticks { tick, ref vcpus } = self.ticks[source];
        let slot = self.tasks.len() + source;
        self.agenda.arrivals.set(slot, now + tick.period_ns);
        for index in vcpus.clone() {
            let vcpu = &mut self.vcpus[index];
            let has_work = vcpu.cpu_bound || vcpu.ready.first().is_some();
            if vcpu.tick.left_ns > 0 || !has_work && !vcpu.tick.had_job {
                continue;
            }
            vcpu.tick.had_job = has_work;
            vcpu.tick.left_ns = tick.cost_ns;
            self.tell(index, now);
            let Vcpu { cpu, blocked, .. } = self.vcpus[index];
            if blocked {
                self.wake(index, now);
            } else if cpu != NOBODY {
                self.account(cpu, now);
                self.execute(cpu, now);
            }
        }
    }

    /// Lets the running VCPU go on with its tick.
    pub(super) fn execute_tick(&mut self, cpu: u32, now: i64) {
        let index = self.cpus[cpu as usize].vcpu as usize;
        let vcpu = &mut self.vcpus[index];
        vcpu.task = TICK;
        let left_ns = vcpu.tick.left_ns;
        let end_ns = self.end_ns(cpu, index, left_ns, now);
        self.agenda.completions.set(cpu as usize, end_ns);
    }
}
