//! A small trace made by hand, for the tests.

use crate::{
    DomainMetadata, Exit, Kind, Metadata, NONE, Reader, Record, Sink, TaskMetadata, Writer, job,
};

const MS: i64 = 1_000_000;

/// One CPU; *control* has a task that needs more than its budget, *batch* never has enough.
pub(crate) fn metadata() -> Metadata {
    let loop_task = TaskMetadata {
        name: "loop".into(),
        vcpu: 0,
        cost_ns: 3 * MS,
        period_ns: 20 * MS,
        deadline_ns: 5 * MS,
        offset_ns: 0,
    };
    let domain = |name: &str, budget_ns, tasks| DomainMetadata {
        name: name.into(),
        vcpus: 1,
        budget_ns,
        period_ns: 10 * MS,
        real_time: false,
        tasks,
    };
    Metadata {
        substrate: "sim".into(),
        policy: "deferrable".into(),
        seed: 1,
        duration_ns: 21 * MS,
        cpus: 1,
        domains: vec![
            domain("control", 2 * MS, vec![loop_task]),
            domain("batch", 5 * MS, vec![]),
        ],
        calls: None,
        programs_in: None,
    }
}

/// 21 ms: *control* misses the deadline of its job 0 at 5 ms and is running its job 1 at the end.
pub(crate) fn records() -> Vec<Record> {
    const CONTROL: u16 = 0;
    const BATCH: u16 = 1;
    let mut records = Vec::new();
    let mut on = |time_ms: i64, cpu, domain, kind, argument| {
        let vcpu = if domain == NONE { NONE } else { 0 };
        records.push(Record {
            time_ns: time_ms * MS,
            argument,
            cpu,
            domain,
            vcpu,
            kind,
        });
    };
    on(0, NONE, CONTROL, Kind::Release, job(0, 0));
    on(0, NONE, CONTROL, Kind::Wake, 0);
    on(0, NONE, BATCH, Kind::Wake, 0);
    on(0, 0, CONTROL, Kind::Schedule, 0);
    on(0, 0, CONTROL, Kind::Run, 2 * MS);
    on(0, 0, CONTROL, Kind::Execute, job(0, 0));
    on(2, 0, CONTROL, Kind::Exhaust, 0);
    on(2, 0, CONTROL, Kind::Stop, 1);
    on(2, 0, BATCH, Kind::Schedule, 130);
    on(2, 0, BATCH, Kind::Run, 7 * MS);
    on(7, 0, BATCH, Kind::Exhaust, 0);
    on(7, 0, BATCH, Kind::Stop, 1);
    on(7, 0, NONE, Kind::Schedule, 0);
    on(10, 0, CONTROL, Kind::Replenish, 2 * MS);
    on(10, 0, BATCH, Kind::Replenish, 5 * MS);
    on(10, 0, CONTROL, Kind::Schedule, 0);
    on(10, 0, CONTROL, Kind::Run, 12 * MS);
    on(10, 0, CONTROL, Kind::Execute, job(0, 0));
    on(11, 0, CONTROL, Kind::Complete, job(0, 0));
    on(11, 0, CONTROL, Kind::Block, 0);
    on(11, 0, CONTROL, Kind::Budget, MS);
    on(11, 0, CONTROL, Kind::Stop, 0);
    on(11, 0, BATCH, Kind::Schedule, 0);
    on(11, 0, BATCH, Kind::Run, i64::MAX);
    on(16, 0, BATCH, Kind::Exhaust, 0);
    on(16, 0, BATCH, Kind::Stop, 1);
    on(16, 0, NONE, Kind::Schedule, 0);
    on(20, NONE, CONTROL, Kind::Release, job(0, 1));
    on(20, NONE, CONTROL, Kind::Wake, 0);
    on(20, 0, CONTROL, Kind::Replenish, 2 * MS);
    on(20, 0, BATCH, Kind::Replenish, 5 * MS);
    on(20, 0, CONTROL, Kind::Schedule, 0);
    on(20, 0, CONTROL, Kind::Run, 22 * MS);
    on(20, 0, CONTROL, Kind::Execute, job(0, 1));
    records
}

/// The same, where the guest of *control* is left at 1 ms, for an interrupt, until it has run again for 0.25 ms, and
/// halts at 10.75 ms.
pub(crate) fn with_exits() -> Vec<Record> {
    let mut records = records();
    let exits = [
        (MS, Kind::Exit, Exit::Interrupt as i64),
        (10 * MS + MS / 4, Kind::Enter, 0),
        (10 * MS + 3 * MS / 4, Kind::Exit, Exit::Halt as i64),
    ];
    records.extend(exits.map(|(time_ns, kind, argument)| Record {
        time_ns,
        argument,
        cpu: 0,
        domain: 0,
        vcpu: 0,
        kind,
    }));
    records.sort_by_key(|record| record.time_ns);
    records
}

/// The trace file with those records.
pub(crate) fn file(metadata: &Metadata, records: &[Record]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, metadata).expect("a Vec takes everything");
    for &record in records {
        writer.record(record);
    }
    writer.finish().expect("a Vec takes everything");
    bytes
}

/// A reader of that file.
pub(crate) fn reader(file: &[u8]) -> Reader<&[u8]> {
    Reader::new(file).expect("the file's header is right")
}
