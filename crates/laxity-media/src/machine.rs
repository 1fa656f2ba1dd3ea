//! The machine's load, which every measurement reports, and real-time priority.

use crate::{MediaError, clock};
use nix::time::{ClockId, clock_gettime};
use schemars::JsonSchema;
use serde::Serialize;
use std::{fs, io};
use thread_priority::{
    RealtimeThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id,
};

/// The machine's load during a measurement.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, JsonSchema)]
pub struct Machine {
    /// Number of CPUs.
    pub cpus: usize,
    /// Mean number of busy CPUs.
    pub cpus_busy: f64,
    /// Mean number of CPUs that this process kept busy.
    pub cpus_own: f64,
}

/// Counters of the CPU time used so far.
pub struct Usage {
    at_ns: i64,
    busy: u64,
    idle: u64,
    own_ns: i64,
}

impl Usage {
    /// Reads the counters.
    ///
    /// # Errors
    ///
    /// If the system does not say.
    pub fn read() -> Result<Usage, MediaError> {
        let failed = MediaError::system::<io::Error>("read /proc/stat");
        let text = fs::read_to_string("/proc/stat").map_err(&failed)?;
        let (busy, idle) = busy_and_idle(&text)
            .ok_or_else(|| failed(io::Error::other("it does not begin as it should")))?;
        let own = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID)
            .map_err(MediaError::system("ask for CPU time"))?;
        Ok(Usage {
            at_ns: clock::monotonic_ns(),
            busy,
            idle,
            own_ns: clock::to_ns(own),
        })
    }

    /// The machine's load between two readings.
    pub fn since(&self, before: &Usage) -> Machine {
        let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get());
        let busy = (self.busy - before.busy) as f64;
        let all = busy + self.idle.saturating_sub(before.idle) as f64;
        let elapsed_ns = (self.at_ns - before.at_ns).max(1);
        Machine {
            cpus,
            cpus_busy: if all > 0.0 {
                cpus as f64 * busy / all
            } else {
                0.0
            },
            cpus_own: (self.own_ns - before.own_ns) as f64 / elapsed_ns as f64,
        }
    }
}

/// Clock ticks of all CPUs, busy and idle, from the first line of /proc/stat (proc(5)): user, nice,
/// system, idle, iowait, irq, softirq, steal. The time of guests is part of user.
fn busy_and_idle(text: &str) -> Option<(u64, u64)> {
    let ticks = text.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = ticks
        .split_whitespace()
        .map(|tick| tick.parse().ok())
        .collect::<Option<_>>()?;
    let [user, nice, system, idle, iowait, irq, softirq, steal] =
        ticks.get(..8)?.try_into().ok()?;
    Some((user + nice + system + irq + softirq + steal, idle + iowait))
}

/// Gives the calling thread real-time priority. Returns whether that was permitted.
pub fn become_real_time() -> bool {
    let policy = ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::Fifo);
    set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, policy).is_ok()
}

#[cfg(test)]
mod tests {
    use super::busy_and_idle;

    #[test]
    fn ticks_are_sorted_into_busy_and_idle() {
        let text =
            "cpu  1 20 300 4000 50000 600000 7000000 80000000 9 9\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        assert_eq!(busy_and_idle(text), Some((87_600_321, 54_000)));
        assert_eq!(busy_and_idle("cpu  1 2 3\n"), None);
        assert_eq!(busy_and_idle("intr 1\n"), None);
    }
}
