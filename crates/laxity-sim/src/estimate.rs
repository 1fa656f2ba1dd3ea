//! An estimate of the time, memory and trace of runs, made before they run.

use laxity_host::{ArrivalRate, Calls, Domain, Host, Parameter, Policy, Workload};
use laxity_run::bytes_of_responses;
use serde::Serialize;

/// What one run takes, or several: an estimate from the host alone, the same on every machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Estimate {
    /// How many runs it is for.
    pub runs: u64,
    /// The tasks of the run that has most.
    pub tasks: u64,
    /// The jobs of all runs.
    pub jobs: u64,
    /// Packets of voice, of all runs.
    pub packets: u64,
    /// Things that happen, of all runs; see [`Engine::events`](laxity_run::Engine::events).
    pub events: u64,
    /// Time on one CPU, of all runs.
    pub cpu_ns: u64,
    /// The memory of the run that needs most.
    pub memory_bytes: u64,
    /// The largest trace of one run.
    pub trace_bytes: u64,
}

/// Runs that are estimated to take longer, on all CPUs together, are refused unless they are asked for explicitly.
pub const TIME_NS_MAX: u64 = laxity_host::HOUR_NS as u64;

// These are fitted to the results of `examples/`, and `tests/estimate.rs` holds them against these.

/// CPU time of an event: `docs/results/speed.md` has 20 to 150 ns, by the size of the host.
const EVENT_NS: f64 = 60.0;
/// Its arrival, its completion, and the decisions that they bring about.
const JOB_EVENTS: f64 = 4.0;
/// A packet of voice on its way through driver domain and media server.
const PACKET_EVENTS: f64 = 25.0;
/// A frame that nobody answers, and of which many are taken at a time.
const FRAME_EVENTS: f64 = 6.0;
/// A replenishment, and what follows from it.
const PERIOD_EVENTS: f64 = 3.0;
/// A tick of a guest's kernel, of a policy with a quantum, of credit's accounting; a burst.
const TICK_EVENTS: f64 = 3.0;
/// A turn of credit2, which has no setting for it: its ratelimit is 1 ms, and its longest turn 10 ms.
const CREDIT2_TURN_NS: i64 = 3_000_000;
const RECORDS_OF_EVENT: f64 = 2.0;
/// The same of packets: they themselves leave none.
const RECORDS_OF_PACKETS: f64 = 0.7;

/// What Python makes of a task of the host and of the result, on top of what Rust has.
const TASK_BYTES: u64 = 6_000;
/// The policy's, the engine's and the host's part, and a line of the workload.
const VCPU_BYTES: u64 = 2_000;
/// An interpreter with what it loads.
const PROGRAM_BYTES: u64 = 200 << 20;

/// What a run of the host takes.
pub fn estimate(host: &Host) -> Estimate {
    let duration_ns = host.duration_ns as f64;
    let each = |period_ns: i64| match period_ns {
        0 => 0.0,
        _ => duration_ns / period_ns as f64,
    };
    let tasks = host.domains.iter().flat_map(|domain| &domain.tasks);
    let jobs: f64 = tasks.map(|task| each(task.period_ns).ceil()).sum();
    let packets = host
        .calls
        .as_ref()
        .map_or(0.0, |calls| packets(calls, duration_ns));
    let frames = host
        .domains
        .iter()
        .map(|domain| frames(domain, duration_ns));
    let packet_events = PACKET_EVENTS * packets + FRAME_EVENTS * frames.sum::<f64>();
    let of_domain = |domain: &Domain| {
        let mut events = 0.0;
        if host.policy.has_budgets() {
            events += PERIOD_EVENTS * each(domain.parameters.period_ns);
        }
        if let Some(tick) = &domain.tick {
            events += TICK_EVENTS * each(tick.period_ns);
        }
        if let Some(Workload::Bursts { run_ns, idle_ns }) = &domain.workload {
            events += TICK_EVENTS * each(run_ns + idle_ns);
        }
        events * domain.vcpus.len() as f64
    };
    let settings = &host.settings;
    let ticks: f64 = [
        (Parameter::Tick, settings.tick_ns),
        (Parameter::TimeSlice, settings.time_slice_ns),
        (Parameter::Quantum, settings.quantum_ns),
        (Parameter::BaseSlice, settings.jiffy_ns),
    ]
    .into_iter()
    .filter(|&(parameter, _)| host.policy.uses(parameter))
    .map(|(_, period_ns)| each(period_ns))
    .sum();
    let turns = match host.policy {
        Policy::Credit2 => each(CREDIT2_TURN_NS),
        _ => 0.0,
    };
    let other_events = JOB_EVENTS * jobs
        + host.domains.iter().map(of_domain).sum::<f64>()
        + TICK_EVENTS * f64::from(host.cpus) * (ticks + turns);
    let events = packet_events + other_events;
    let records = RECORDS_OF_PACKETS * packet_events + RECORDS_OF_EVENT * other_events;
    let tasks = host
        .domains
        .iter()
        .map(|domain| domain.tasks.len() as u64)
        .sum();
    let vcpus = host
        .domains
        .iter()
        .map(|domain| domain.vcpus.len() as u64)
        .sum::<u64>();
    let affinity_bytes = 8 * vcpus * u64::from(host.cpus);
    Estimate {
        runs: 1,
        tasks,
        jobs: jobs as u64,
        packets: packets as u64,
        events: events as u64,
        cpu_ns: (EVENT_NS * events) as u64,
        memory_bytes: PROGRAM_BYTES
            + TASK_BYTES * tasks
            + VCPU_BYTES * vcpus
            + affinity_bytes
            + bytes_of_responses(host),
        trace_bytes: (records * laxity_trace::Record::BYTES as f64) as u64,
    }
}

/// Packets of voice, to and from the media server.
fn packets(calls: &Calls, duration_ns: f64) -> f64 {
    let of_stream = |ns: f64| ns / calls.codec.interval_ns() as f64;
    let calls_in_all = calls.rate.map_or(0.0, ArrivalRate::per_s) * duration_ns / 1e9;
    let streams_of_calls = 2.0 * calls_in_all * calls.through_media_server;
    f64::from(calls.streams) * of_stream(duration_ns)
        + streams_of_calls * of_stream((calls.hold_ns as f64).min(duration_ns))
}

/// That a sender sends.
fn frames(domain: &Domain, duration_ns: f64) -> f64 {
    match domain.workload {
        Some(Workload::Sender {
            rate_bit_s,
            frame_bytes,
        }) => rate_bit_s as f64 / (8.0 * f64::from(frame_bytes)) * duration_ns / 1e9,
        _ => 0.0,
    }
}

impl Estimate {
    /// What both take, one after the other.
    pub fn and(self, other: Estimate) -> Estimate {
        Estimate {
            runs: self.runs + other.runs,
            tasks: self.tasks.max(other.tasks),
            jobs: self.jobs.saturating_add(other.jobs),
            packets: self.packets.saturating_add(other.packets),
            events: self.events.saturating_add(other.events),
            cpu_ns: self.cpu_ns.saturating_add(other.cpu_ns),
            memory_bytes: self.memory_bytes.max(other.memory_bytes),
            trace_bytes: self.trace_bytes.max(other.trace_bytes),
        }
    }
}
