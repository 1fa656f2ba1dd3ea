//! Dumps of Xen's trace buffers: whatever is in one, it is refused or makes a trace that every reader takes.
//!
//! The run is always the same: a domain of one VCPU with a task, and one of two, on two CPUs for 20 ms.
#![no_main]

use laxity_replay::Jobs;
use laxity_run::UNFINISHED;
use laxity_trace::{
    DomainMetadata, Metadata, Reader, Record, Sink, TaskMetadata, TraceError, Writer, needs,
    perfetto, text, timeline,
};
use laxity_xentrace::{XenRun, import};
use libfuzzer_sys::fuzz_target;
use std::io;
use std::sync::LazyLock;

const MS: i64 = 1_000_000;

static METADATA: LazyLock<Metadata> = LazyLock::new(|| {
    let domain = |name: &str, vcpus, tasks| DomainMetadata {
        name: name.into(),
        vcpus,
        budget_ns: 2 * MS,
        period_ns: 10 * MS,
        real_time: false,
        tasks,
    };
    let task = TaskMetadata {
        name: "loop".into(),
        vcpu: 0,
        cost_ns: MS,
        period_ns: 5 * MS,
        deadline_ns: 5 * MS,
        offset_ns: 0,
    };
    Metadata {
        substrate: "xen".into(),
        policy: "deferrable".into(),
        seed: 1,
        duration_ns: 20 * MS,
        cpus: 2,
        domains: vec![domain("control", 1, vec![task]), domain("batch", 2, vec![])],
        calls: None,
        programs_in: None,
    }
});

fuzz_target!(|data: &[u8]| {
    let run = XenRun {
        jobs: Jobs {
            metadata: &METADATA,
            completions_ns: &[vec![vec![MS, 7 * MS, UNFINISHED]], vec![]],
        },
        domids: &[3, 7],
        start_realtime_ns: 1_767_225_600_000_000_000,
    };
    let (records, summary) = match import(data, &run) {
        Ok(imported) => imported,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let busy_ns: i64 = summary.cpu_ns.iter().flatten().sum();
    let all_ns = busy_ns + summary.idle_ns + summary.foreign_ns;
    assert_eq!(all_ns, 2 * METADATA.duration_ns);

    let mut file = Vec::new();
    let mut writer = Writer::new(&mut file, &METADATA).expect("a Vec takes everything");
    records.iter().for_each(|&record| writer.record(record));
    writer.finish().expect("a Vec takes everything");
    let reader = || Reader::new(&file[..]).expect("the header is right");
    let read: Result<Vec<Record>, TraceError> = reader().collect();
    assert_eq!(read.expect("the trace is right"), records);
    text::write(reader(), io::sink()).expect("the trace is right");
    perfetto::write(reader(), io::sink()).expect("the trace is right");
    let seen = timeline(reader(), 0, METADATA.duration_ns).expect("the trace is right");
    let ran_ns: i64 = seen
        .occupancy
        .iter()
        .map(|ran| ran.end_ns - ran.start_ns)
        .sum();
    assert_eq!(ran_ns, busy_ns);
    let needed = needs(reader()).expect("the trace is right");
    assert!(needed.needed_decisions <= needed.decisions);
});
