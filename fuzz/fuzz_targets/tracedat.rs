//! Files of trace-cmd, and dumps of the labs: whatever is in one, it is refused or makes a trace that every reader
//! takes, and that can be observed.
//!
//! The first threads that ran are the VCPUs of two domains, and the next two are programs beside them that take packets
//! for the first.
#![no_main]

use laxity_kvmtrace::Recording;
use laxity_observe::{Kernel, completions_ns, observe};
use laxity_replay::{Vcpus, with_deliveries};
use laxity_trace::{
    CallsMetadata, DomainMetadata, Kind, Metadata, Reader, Record, Sink, TraceError, Writer,
    levels, needs, perfetto, text, timeline,
};
use libfuzzer_sys::fuzz_target;
use std::io;

/// More CPUs than that are another run's subject.
const CPUS_MAX: u32 = 64;
/// A packet that waits for longer is late.
const DELAY_NS: i64 = 1000;

/// A kernel of which all is known.
const KNOWN: Kernel = Kernel {
    arrival_ns: 10_000,
    interrupt_ns: 10_000,
    wake_ns: 10_000,
    tick_ns: Some(4_000_000),
    stolen: 0.01,
};

fuzz_target!(|data: &[u8]| {
    let recording = match Recording::open(data) {
        Ok(recording) => recording,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let survey = recording.survey();
    assert!(survey.from_ns <= survey.to_ns);
    if survey.cpus > CPUS_MAX {
        return;
    }
    let mut ran = (survey.threads.iter()).filter_map(|thread| i32::try_from(thread.thread).ok());
    let mut take = |most| ran.by_ref().take(most).collect::<Vec<i32>>();
    let threads = [take(2), take(1), take(2)];
    let domain = |(name, threads): (&str, &Vec<i32>)| DomainMetadata {
        name: name.into(),
        vcpus: threads.len() as u32,
        budget_ns: 0,
        period_ns: 0,
        real_time: false,
        tasks: Vec::new(),
    };
    let metadata = Metadata {
        substrate: "kvm".into(),
        policy: "eevdf".into(),
        seed: 0,
        duration_ns: survey.to_ns.saturating_sub(survey.from_ns),
        cpus: survey.cpus,
        domains: ["one", "two", "(beside)"]
            .into_iter()
            .zip(&threads)
            .map(domain)
            .collect(),
        calls: Some(CallsMetadata {
            delay_ns: DELAY_NS,
            answer_waits_ns: Vec::new(),
            not_seen: Vec::new(),
        }),
        programs_in: None,
    };
    let (records, summary, _) = match recording.import(&metadata, &threads) {
        Ok(imported) => imported,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let workers: Vec<(i32, u16)> = threads[2].iter().map(|&thread| (thread, 0)).collect();
    let known = (&records[..], DELAY_NS);
    let packets = match recording.packets(survey.from_ns, &metadata, &threads, &workers, known) {
        Ok(packets) => packets,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let late = packets.late;
    assert!(
        late.iter()
            .all(|each| each.end_ns - each.since_ns() > DELAY_NS && each.domain < 2)
    );
    for (domain, count) in (0..).zip(packets.counts) {
        let late = late.iter().filter(|each| each.domain == domain).count();
        assert!(late as u64 <= count);
    }
    let vcpus = Vcpus::new(&metadata).expect("the metadata is valid");
    let records =
        with_deliveries(&vcpus, metadata.duration_ns, records, &late).expect("they are of the run");
    let ends = records.iter().filter(|record| record.kind == Kind::Packet);
    assert_eq!(ends.count(), late.len());
    let busy_ns: i64 = summary.cpu_ns.iter().flatten().sum();
    let all_ns = busy_ns + summary.idle_ns + summary.foreign_ns;
    assert_eq!(all_ns, i64::from(metadata.cpus) * metadata.duration_ns);

    let mut file = Vec::new();
    let mut writer = Writer::new(&mut file, &metadata).expect("a Vec takes everything");
    records.iter().for_each(|&record| writer.record(record));
    writer.finish().expect("a Vec takes everything");
    let reader = || Reader::new(&file[..]).expect("the header is right");
    let read: Result<Vec<Record>, TraceError> = reader().collect();
    assert_eq!(read.expect("the trace is right"), records);
    text::write(reader(), io::sink()).expect("the trace is right");
    perfetto::write(reader(), io::sink()).expect("the trace is right");
    levels(reader(), 64).expect("the trace is right");
    if metadata.duration_ns > 0 {
        let seen = timeline(reader(), 0, metadata.duration_ns).expect("the trace is right");
        let ran = seen.occupancy.iter();
        assert_eq!(
            ran.map(|ran| ran.end_ns - ran.start_ns).sum::<i64>(),
            busy_ns
        );
    }
    let needed = needs(reader()).expect("the trace is right");
    assert!(needed.needed_decisions <= needed.decisions);

    for kernel in [Kernel::default(), KNOWN] {
        let seen = observe(&metadata, &records, &kernel);
        let worked_ns = seen.domains.iter().flat_map(|domain| &domain.vcpus);
        assert!(worked_ns.map(|vcpu| vcpu.work_ns).sum::<i64>() <= busy_ns);
    }
    completions_ns(&metadata, &records);
});
