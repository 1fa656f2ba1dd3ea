//! Host files: whatever is written in one, and in the overrides behind it, is either refused with
//! places and help or makes a host that runs.
//!
//! The input is the text of a host file and, behind a byte 0xFF (which no text has in it), overrides,
//! one a line.
#![no_main]

use laxity_config::FileError;
use laxity_host::{Calls, Document, Host, Workload};
use libfuzzer_sys::fuzz_target;

/// About how many events one input may cost: some milliseconds.
const EVENTS_MAX: i64 = 20_000;
const VCPUS_MAX: usize = 64;
const CPUS_MAX: u32 = 64;

fuzz_target!(|data: &[u8]| {
    let mut parts = data.splitn(2, |&byte| byte == 0xFF);
    let text = parts.next().unwrap_or_default();
    let overrides = String::from_utf8_lossy(parts.next().unwrap_or_default());
    let overrides: Vec<&str> = overrides.lines().collect();
    match Document::parse(text, "host.toml").and_then(|document| document.host(&overrides)) {
        Ok(host) => run(host),
        Err(error) => show(&error),
    }
});

/// A refusal says where, in a file that it names, and can be shown on any terminal.
fn show(error: &FileError) {
    assert!(!error.problems().is_empty());
    for problem in error.problems() {
        assert!(!problem.message().is_empty() && !problem.file().is_empty());
    }
    for (colour, width) in [(false, 100), (true, 20)] {
        assert!(!error.render(colour, width).is_empty());
    }
}

/// Runs a host, if it is small, for a time in which not too much happens.
fn run(mut host: Host) {
    let vcpus: usize = host.domains.iter().map(|domain| domain.vcpus.len()).sum();
    if vcpus > VCPUS_MAX || host.cpus > CPUS_MAX {
        return;
    }
    host.duration_ns = duration_ns(&host).min(host.duration_ns);
    let (outcome, _) = laxity_sim::run(&host, laxity_trace::Off).expect("a host that loads runs");
    assert_eq!(outcome.result.domains.len(), host.domains.len());
}

/// A duration in which about `EVENTS_MAX` events happen.
fn duration_ns(host: &Host) -> i64 {
    let settings = &host.settings;
    let shortest_ns = [
        settings.tick_ns,
        settings.time_slice_ns,
        settings.quantum_ns,
    ]
    .into_iter()
    .chain(
        host.domains
            .iter()
            .map(|domain| domain.parameters.period_ns),
    )
    .chain(
        host.domains
            .iter()
            .flat_map(|domain| &domain.tasks)
            .map(|task| task.period_ns),
    )
    .chain(
        host.domains
            .iter()
            .filter_map(|domain| Some(domain.tick?.period_ns)),
    )
    .chain(host.domains.iter().map(|domain| match domain.workload {
        Some(Workload::Bursts { run_ns, idle_ns }) => run_ns + idle_ns,
        _ => 0,
    }))
    .filter(|&period_ns| period_ns > 0)
    .min()
    .unwrap_or(1);
    let sources = host
        .domains
        .iter()
        .map(|domain| domain.vcpus.len() + domain.tasks.len());
    let sources = sources.sum::<usize>() as i64 + i64::from(host.cpus);
    let duration_ns = (EVENTS_MAX / sources).max(1).saturating_mul(shortest_ns);
    host.calls
        .as_ref()
        .map_or(duration_ns, |calls| duration_ns.min(calls_ns(calls)))
}

/// The same for calls: a packet is about ten events, a call about a hundred and what is spoken in it.
fn calls_ns(calls: &Calls) -> i64 {
    const HOUR_NS: i64 = 3_600_000_000_000;
    let packets_ns = EVENTS_MAX / 10 * calls.codec.interval_ns() / i64::from(calls.streams.max(1));
    let call_ns = calls.rate.map_or(HOUR_NS, |rate| rate.arrival_ns(1));
    packets_ns
        .min(EVENTS_MAX / 500 * call_ns)
        .clamp(1, 1_000_000_000)
}
