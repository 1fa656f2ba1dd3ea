//! The timers of guests' kernels: `docs/explanation/policies.md`, "Ticks of guests".

use super::cpus::Cpus;
use super::state::{NOBODY, Simulation, TICK, Ticks, Vcpu};
use crate::timers::Slots;
use crate::workloads::Workloads;
use laxity_trace::{LATE_NS_MAX, OwnWake, Sink};

impl<W: Workloads, S: Sink, C: Cpus> Simulation<'_, W, S, C> {
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
            let vcpu = &self.vcpus[index];
            let has_work = vcpu.cpu_bound || vcpu.ready.first().is_some();
            let is_needed = has_work || vcpu.tick.had_job;
            if vcpu.tick.left_ns > 0 || !is_needed && !self.woke_for_itself(index, now) {
                continue;
            }
            let vcpu = &mut self.vcpus[index];
            vcpu.tick.had_job = has_work;
            vcpu.tick.left_ns = tick.cost_ns;
            if vcpu.tick.interrupt_ns == 0 {
                self.put_off_all(index, now);
            }
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

    /// Whether the VCPU was seen elsewhere to wake for the tick that falls due.
    fn woke_for_itself(&mut self, index: usize, now: i64) -> bool {
        let passed = self.own_wakes.partition_point(|wake| wake.time_ns < now);
        self.own_wakes = &self.own_wakes[passed..];
        let vcpu = (self.vcpus[index].domain, self.vcpus[index].id);
        let for_it = |wake: &&OwnWake| wake.time_ns - now <= LATE_NS_MAX;
        (self.own_wakes.iter().take_while(for_it)).any(|wake| wake.vcpu == vcpu)
    }

    /// A VCPU's kernel sets its timer for the next jobs of all its tasks, if there is a least time ahead for that.
    #[inline]
    pub(super) fn put_off_all(&mut self, index: usize, now: i64) {
        if self.vcpus[index].tick.min_delta_ns > 0 {
            self.put_off_each(index, now);
        }
    }

    #[cold]
    fn put_off_each(&mut self, index: usize, now: i64) {
        for rank in 0..self.vcpus[index].tasks.len() {
            self.put_off(self.vcpus[index].tasks[rank], index, now);
        }
    }

    /// A VCPU's kernel sets its timer for the next job of a task. A job that is due sooner than the timer can end comes
    /// when it ends.
    pub(super) fn put_off(&mut self, number: u32, index: usize, now: i64) {
        let end_ns = now + self.vcpus[index].tick.min_delta_ns;
        let due_ns = self.agenda.arrivals.at(number as usize);
        let task = &mut self.tasks[number as usize];
        if task.waits() && !task.is_put_off && now < due_ns && due_ns < end_ns {
            task.is_put_off = true;
            self.agenda.arrivals.set(number as usize, end_ns);
        }
    }

    /// Lets the running VCPU go on with its tick.
    pub(super) fn execute_tick(&mut self, cpu: u32, now: i64) {
        let index = self.cpus[cpu].vcpu as usize;
        let vcpu = &mut self.vcpus[index];
        vcpu.task = TICK;
        let left_ns = vcpu.tick.left_ns;
        let end_ns = self.end_ns(cpu, index, left_ns, now);
        self.agenda.completions.set(cpu as usize, end_ns);
    }
}
