//! Dumps made by hand, and what must come of them.

use super::*;
use crate::dump::{MAGIC, VERSION};
use laxity_replay::{Clock, Jobs};
use laxity_trace::{DomainMetadata, Exit, Kind, Metadata, NONE, TaskMetadata};
use proptest::prelude::*;

const MS: i64 = 1_000_000;
const KHZ: u64 = 2_000_000;
const START_NS: i64 = 1000 * MS;
const PAGE_BYTES: usize = 256;
const SWITCH: &str = "name: sched_switch\nID: 310\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\tfield:pid_t prev_pid;\toffset:8;\tsize:4;\tsigned:1;\n\tfield:long prev_state;\toffset:16;\tsize:8;\tsigned:1;\n\tfield:pid_t next_pid;\toffset:24;\tsize:4;\tsigned:1;\n\tfield:char next_comm[16];\toffset:28;\tsize:16;\tsigned:0;\n\tfield:int next_prio;\toffset:44;\tsize:4;\tsigned:1;\n";
const WAKEUP: &str = "name: sched_wakeup\nID: 312\nformat:\n\tfield:char comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\tfield:pid_t pid;\toffset:24;\tsize:4;\tsigned:1;\n";
const ENTRY: &str = "name: kvm_entry\nID: 1756\nformat:\n\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\tfield:unsigned int vcpu_id;\toffset:8;\tsize:4;\tsigned:0;\n";
const EXIT: &str = "name: kvm_exit\nID: 1744\nformat:\n\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\tfield:unsigned int exit_reason;\toffset:8;\tsize:4;\tsigned:0;\n\tfield:u32 isa;\toffset:12;\tsize:4;\tsigned:0;\n";

/// *control* has a VCPU and a task, *batch* a VCPU; thread 9 is nobody's.
const CONTROL: i32 = 41;
const BATCH: i32 = 42;
const OTHER: i32 = 9;

fn metadata() -> Metadata {
    let domain = |name: &str, tasks| DomainMetadata {
        name: name.into(),
        vcpus: 1,
        budget_ns: 0,
        period_ns: 0,
        real_time: false,
        tasks,
    };
    let task = TaskMetadata {
        name: "loop".into(),
        vcpu: 0,
        cost_ns: MS,
        period_ns: 10 * MS,
        deadline_ns: 10 * MS,
        offset_ns: 0,
    };
    Metadata {
        substrate: "kvm".into(),
        policy: "deadline".into(),
        seed: 1,
        duration_ns: 20 * MS,
        cpus: 1,
        domains: vec![domain("control", vec![task]), domain("batch", vec![])],
        calls: None,
        programs_in: None,
    }
}

/// What `laxity-ftrace` writes of one CPU, made by hand; times are from the start of the run.
#[derive(Default)]
struct Dump {
    pages: Vec<Vec<u8>>,
    last: u64,
    lost: u64,
    /// It has the formats of `kvm_entry` and `kvm_exit`.
    tells_exits: bool,
}

impl Dump {
    fn cycles(time_ns: i64) -> u64 {
        (START_NS + time_ns) as u64 * KHZ / 1_000_000
    }

    fn event(&mut self, time_ns: i64, data: &[u8]) {
        let cycles = Dump::cycles(time_ns);
        let begins =
            (self.pages.last()).is_none_or(|page| page.len() + data.len() + 12 > PAGE_BYTES);
        if begins {
            let mut page = cycles.to_le_bytes().to_vec();
            page.extend([0; 8]);
            self.pages.push(page);
            self.last = cycles;
        }
        let page = self.pages.last_mut().expect("there is one");
        let mut delta = cycles - self.last;
        if delta >= 1 << 27 {
            page.extend(((delta as u32) << 5 | 30).to_le_bytes());
            page.extend(((delta >> 27) as u32).to_le_bytes());
            delta = 0;
        }
        page.extend(((delta as u32) << 5 | (data.len() / 4) as u32).to_le_bytes());
        page.extend(data);
        self.last = cycles;
    }

    fn switch(&mut self, time_ns: i64, before: i32, state: i64, after: i32) {
        let mut data = [0; 48];
        data[..2].copy_from_slice(&310_u16.to_le_bytes());
        data[8..12].copy_from_slice(&before.to_le_bytes());
        data[16..24].copy_from_slice(&state.to_le_bytes());
        data[24..28].copy_from_slice(&after.to_le_bytes());
        self.event(time_ns, &data);
    }

    fn wake(&mut self, time_ns: i64, thread: i32) {
        let mut data = [0; 28];
        data[..2].copy_from_slice(&312_u16.to_le_bytes());
        data[24..28].copy_from_slice(&thread.to_le_bytes());
        self.event(time_ns, &data);
    }

    fn entry(&mut self, time_ns: i64, thread: i32) {
        let mut data = [0; 12];
        data[..2].copy_from_slice(&1756_u16.to_le_bytes());
        data[4..8].copy_from_slice(&thread.to_le_bytes());
        self.event(time_ns, &data);
    }

    fn exit(&mut self, time_ns: i64, thread: i32, isa: u32, reason: u32) {
        let mut data = [0; 16];
        data[..2].copy_from_slice(&1744_u16.to_le_bytes());
        data[4..8].copy_from_slice(&thread.to_le_bytes());
        data[8..12].copy_from_slice(&reason.to_le_bytes());
        data[12..].copy_from_slice(&isa.to_le_bytes());
        self.event(time_ns, &data);
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(1_u32.to_le_bytes());
        bytes.extend(KHZ.to_le_bytes());
        bytes.extend(Dump::cycles(-MS).to_le_bytes());
        bytes.extend(Dump::cycles(30 * MS).to_le_bytes());
        let texts = ["\tfield: u64 timestamp;\n", SWITCH, WAKEUP, ENTRY, EXIT];
        let texts = &texts[..if self.tells_exits { 5 } else { 3 }];
        bytes.extend((texts.len() as u32).to_le_bytes());
        for text in texts {
            bytes.extend((text.len() as u32).to_le_bytes());
            bytes.extend(text.as_bytes());
        }
        bytes.extend(0_u32.to_le_bytes());
        bytes.extend((PAGE_BYTES as u32).to_le_bytes());
        bytes.extend(self.lost.to_le_bytes());
        bytes.extend(((self.pages.len() * PAGE_BYTES) as u64).to_le_bytes());
        for page in &self.pages {
            let used = (page.len() - 16) as u64;
            let mut page = page.clone();
            page[8..16].copy_from_slice(&used.to_le_bytes());
            page.resize(PAGE_BYTES, 0);
            bytes.extend(page);
        }
        bytes
    }
}

fn import_bytes(bytes: &[u8]) -> Result<(Vec<Record>, Summary), KvmError> {
    import_with(bytes, None)
}

/// With what a policy did.
fn import_with(bytes: &[u8], policy: Option<&[u8]>) -> Result<(Vec<Record>, Summary), KvmError> {
    let metadata = metadata();
    import(
        bytes,
        &KvmRun {
            jobs: Jobs {
                metadata: &metadata,
                completions_ns: &[vec![vec![2 * MS]], vec![]],
            },
            threads: &[vec![CONTROL], vec![BATCH]],
            start_ns: START_NS,
            policy,
        },
    )
}

/// *batch* computes and is interrupted by *control*, and by somebody else.
fn usual() -> Dump {
    let mut dump = Dump::default();
    dump.switch(-MS / 2, 0, 0, BATCH);
    dump.wake(MS, CONTROL);
    dump.switch(MS, BATCH, 0x100, CONTROL);
    dump.switch(2 * MS, CONTROL, 1, BATCH);
    dump.switch(5 * MS, BATCH, 0, OTHER);
    dump.switch(6 * MS, OTHER, 1, BATCH);
    dump.switch(15 * MS, BATCH, 0x100, 0);
    dump
}

#[test]
fn threads_become_vcpus() {
    let (records, summary) = import_bytes(&usual().bytes()).expect("the dump is whole");
    let rows: Vec<_> = records
        .iter()
        .filter(|record| !record.kind.is_of_job() && record.kind != Kind::Schedule)
        .map(|record| {
            let Record {
                time_ns,
                kind,
                domain,
                argument,
                ..
            } = *record;
            (time_ns / MS, kind, domain, argument)
        })
        .collect();
    assert_eq!(
        rows,
        [
            (0, Kind::Wake, 1, 0),
            (0, Kind::Run, 1, i64::MAX),
            (1, Kind::Wake, 0, 0),
            (1, Kind::Stop, 1, 1),
            (1, Kind::Run, 0, i64::MAX),
            (2, Kind::Block, 0, 0),
            (2, Kind::Stop, 0, 0),
            (2, Kind::Run, 1, i64::MAX),
            (5, Kind::Stop, 1, 1),
            (6, Kind::Run, 1, i64::MAX),
            (15, Kind::Stop, 1, 1),
        ]
    );
    assert_eq!(summary.cpu_ns, [vec![MS], vec![13 * MS]]);
    assert_eq!((summary.foreign_ns, summary.idle_ns), (MS, 5 * MS));
    let jobs = records.iter().filter(|record| record.kind.is_of_job());
    assert_eq!(jobs.count(), 3);
    assert!(
        records
            .iter()
            .all(|record| record.cpu == 0 || record.cpu == NONE)
    );
}

/// The same with exits: *batch* is interrupted, *control* wakes from a halt, sets its timer and halts, and *batch* has
/// meanwhile not been entered. The exit at 3.2 ms is one after which the guest was entered untraced.
fn with_exits() -> Dump {
    let mut dump = Dump {
        tells_exits: true,
        ..Dump::default()
    };
    dump.switch(-MS / 2, 0, 0, BATCH);
    dump.exit(-MS / 3, BATCH, AMD, 0x60);
    dump.entry(-MS / 4, BATCH);
    dump.wake(MS, CONTROL);
    dump.exit(MS, BATCH, AMD, 0x60);
    dump.switch(MS + 10, BATCH, 0x100, CONTROL);
    dump.entry(MS + 20, CONTROL);
    dump.exit(MS + 30, CONTROL, AMD, 0x7C);
    dump.entry(MS + 40, CONTROL);
    dump.exit(2 * MS - 10, CONTROL, AMD, 0x78);
    dump.switch(2 * MS, CONTROL, 1, BATCH);
    dump.entry(2 * MS + 10, BATCH);
    dump.exit(3 * MS, OTHER, INTEL, 12);
    dump.exit(3 * MS + MS / 5, BATCH, INTEL, 32);
    dump.exit(4 * MS, BATCH, INTEL, 30);
    dump.entry(4 * MS + 50, BATCH);
    dump.exit(14 * MS, BATCH, INTEL, 0x8000_0021);
    dump
}

const INTEL: u32 = 1;
const AMD: u32 = 2;

#[test]
fn guests_are_left_and_entered() {
    let dump = with_exits();
    let (records, summary) = import_bytes(&dump.bytes()).expect("the dump is whole");
    let is_of_guest = |record: &&Record| matches!(record.kind, Kind::Exit | Kind::Enter);
    let rows: Vec<_> = (records.iter().filter(is_of_guest))
        .map(|record| {
            let exit = Exit::of(record.argument).filter(|_| record.kind == Kind::Exit);
            (record.time_ns, record.domain, record.cpu, exit)
        })
        .collect();
    assert_eq!(
        rows,
        [
            // It is entered before it is left, so that it had been left.
            (0, 0, NONE, Some(Exit::Other)),
            (MS, 1, 0, Some(Exit::Interrupt)),
            (MS + 20, 0, 0, None),
            (MS + 30, 0, 0, Some(Exit::Register)),
            (MS + 40, 0, 0, None),
            (2 * MS - 10, 0, 0, Some(Exit::Halt)),
            (2 * MS + 10, 1, 0, None),
            (4 * MS, 1, 0, Some(Exit::Port)),
            (4 * MS + 50, 1, 0, None),
            (14 * MS, 1, 0, Some(Exit::Other)),
        ]
    );
    // All else is as it is without exits.
    let rest: Vec<Record> = (records.iter().filter(|record| !is_of_guest(record)))
        .copied()
        .collect();
    let mut without = dump;
    without.tells_exits = false;
    let (records, same) = import_bytes(&without.bytes()).expect("the dump is whole");
    assert_eq!((rest, summary), (records, same));
}

#[test]
fn reasons_have_the_numbers_of_their_processors() {
    let told = |isa, reason| {
        let mut dump = Dump {
            tells_exits: true,
            ..Dump::default()
        };
        dump.switch(-MS / 2, 0, 0, BATCH);
        dump.exit(MS, BATCH, isa, reason);
        let (records, _) = import_bytes(&dump.bytes()).expect("the dump is whole");
        let exit = records.iter().find(|record| record.kind == Kind::Exit);
        Exit::of(exit.expect("it is told").argument).expect("a reason")
    };
    // Numbers as the description of the event, which the kernel gives, names them.
    let named = [
        (INTEL, "EXTERNAL_INTERRUPT", 1, Exit::Interrupt),
        (INTEL, "PREEMPTION_TIMER", 52, Exit::Timer),
        (INTEL, "HLT", 12, Exit::Halt),
        (INTEL, "MWAIT_INSTRUCTION", 36, Exit::Halt),
        (INTEL, "MSR_READ", 31, Exit::Register),
        (INTEL, "MSR_WRITE", 32, Exit::Register),
        (INTEL, "TPR_BELOW_THRESHOLD", 43, Exit::Controller),
        (INTEL, "APIC_ACCESS", 44, Exit::Controller),
        (INTEL, "EOI_INDUCED", 45, Exit::Controller),
        (INTEL, "APIC_WRITE", 56, Exit::Controller),
        (INTEL, "INTERRUPT_WINDOW", 7, Exit::Window),
        (INTEL, "NMI_WINDOW", 8, Exit::Window),
        (INTEL, "IO_INSTRUCTION", 30, Exit::Port),
        (INTEL, "EPT_VIOLATION", 48, Exit::Memory),
        (INTEL, "EPT_MISCONFIG", 49, Exit::Memory),
        (INTEL, "VMCALL", 18, Exit::Hypercall),
        (INTEL, "PAUSE_INSTRUCTION", 40, Exit::Pause),
        (INTEL, "CPUID", 10, Exit::Other),
        (AMD, "interrupt", 0x60, Exit::Interrupt),
        (AMD, "nmi", 0x61, Exit::Interrupt),
        (AMD, "smi", 0x62, Exit::Interrupt),
        (AMD, "hlt", 0x78, Exit::Halt),
        (AMD, "mwait", 0x8B, Exit::Halt),
        (AMD, "idle-halt", 0xA6, Exit::Halt),
        (AMD, "msr", 0x7C, Exit::Register),
        (AMD, "write_cr8", 0x18, Exit::Controller),
        (AMD, "avic_incomplete_ipi", 0x401, Exit::Controller),
        (AMD, "avic_unaccelerated_access", 0x402, Exit::Controller),
        (AMD, "vintr", 0x64, Exit::Window),
        (AMD, "io", 0x7B, Exit::Port),
        (AMD, "npf", 0x400, Exit::Memory),
        (AMD, "hypercall", 0x81, Exit::Hypercall),
        (AMD, "pause", 0x77, Exit::Pause),
        (AMD, "cpuid", 0x72, Exit::Other),
        (3, "of no known processor", 1, Exit::Other),
    ];
    for (isa, name, number, exit) in named {
        assert_eq!(told(isa, number), exit, "{name}");
    }
}

/// The file of a policy's events: a time from the start of the run, a thread, a number and an argument.
fn policy(lost: u64, events: &[(i64, i32, u32, i64)]) -> Vec<u8> {
    let mut bytes = policy::MAGIC.to_vec();
    bytes.extend(lost.to_le_bytes());
    bytes.extend((events.len() as u64).to_le_bytes());
    for &(time_ns, thread, number, argument) in events {
        bytes.extend(Dump::cycles(time_ns).to_le_bytes());
        bytes.extend(thread.to_le_bytes());
        bytes.extend(number.to_le_bytes());
        bytes.extend(argument.to_le_bytes());
    }
    bytes
}

#[test]
fn what_the_policy_did_is_in_the_trace() {
    let file = policy(
        0,
        &[
            (-MS, CONTROL, 0, 3 * MS),
            (MS, CONTROL, 2, 2 * MS),
            (2 * MS, OTHER, 1, 0),
            (3 * MS, BATCH, 1, 0),
            (4 * MS, BATCH, 4, 2),
            (25 * MS, BATCH, 0, MS),
        ],
    );
    let (records, _) = import_with(&usual().bytes(), Some(&file)).expect("both are whole");
    let of_policy = [Kind::Replenish, Kind::Exhaust, Kind::Budget, Kind::Class];
    let rows: Vec<_> = (records.iter())
        .filter(|record| of_policy.contains(&record.kind))
        .map(|record| (record.time_ns, record.kind, record.domain, record.argument))
        .collect();
    assert_eq!(
        rows,
        [
            (MS, Kind::Budget, 0, 2 * MS),
            (3 * MS, Kind::Exhaust, 1, 0),
            (4 * MS, Kind::Class, 1, 2),
        ]
    );
    let error = |file: &[u8]| {
        let error = import_with(&usual().bytes(), Some(file)).expect_err("it is wrong");
        error.to_string()
    };
    assert!(error(b"LAXITYLTx").contains("does not begin with LAXITYPT"));
    assert!(error(&file[..file.len() - 1]).contains("the policy's events is not whole"));
    assert!(error(&policy(2, &[])).contains("2 events of the policy were lost"));
    assert!(error(&policy(0, &[(0, BATCH, 5, 0)])).contains("event 5"));
    assert!(error(&policy(0, &[(0, BATCH, 3, 1)])).contains("on CPU 1; the host has 1"));
    assert!(error(&policy(0, &[(0, BATCH, 4, 4)])).contains("class 4"));
}

#[test]
fn a_long_pause_is_a_time_of_its_own() {
    let mut dump = Dump::default();
    dump.switch(-900 * MS, 0, 0, BATCH);
    dump.switch(5 * MS, BATCH, 1, 0);
    let (_, summary) = import_bytes(&dump.bytes()).expect("the dump is whole");
    assert_eq!(summary.cpu_ns[1], [5 * MS]);
}

#[test]
fn what_is_wrong_is_said() {
    let error = |bytes: &[u8]| import_bytes(bytes).expect_err("it is wrong").to_string();
    let whole = usual().bytes();
    assert!(error(b"LAXITYXT").contains("does not begin with LAXITYLT"));
    assert!(error(&whole[..30]).contains("the header is not whole"));
    assert!(error(&whole[..whole.len() - 1]).contains("a CPU's buffer is not whole"));
    let mut lost = usual();
    lost.lost = 3;
    assert!(error(&lost.bytes()).contains("lost 3 trace events of CPU 0"));
    let mut contradiction = usual();
    contradiction.switch(16 * MS, BATCH, 0, 0);
    assert!(error(&contradiction.bytes()).contains("batch"));
    let unknown = String::from_utf8_lossy(&whole).replace("prev_state", "prev_stand");
    assert!(!error(unknown.as_bytes()).is_empty());
    let metadata = metadata();
    let run = |threads: &[Vec<i32>]| {
        let jobs = Jobs {
            metadata: &metadata,
            completions_ns: &[vec![vec![]], vec![]],
        };
        let run = KvmRun {
            jobs,
            threads,
            start_ns: START_NS,
            policy: None,
        };
        import(&whole, &run).expect_err("no such run").to_string()
    };
    assert!(run(&[vec![1]]).contains("2 domains, and the threads of 1"));
    assert!(run(&[vec![1], vec![1]]).contains("also belongs to another VCPU"));
    assert!(run(&[vec![1, 2], vec![3]]).contains("has 1 VCPUs and 2 threads"));
}

/// A dump is a recording, too; where it does not tell the rate of the TSC, by a clock that somebody else knows.
#[test]
fn a_dump_is_a_recording_by_any_clock() {
    let mut bytes = usual().bytes();
    let threads = [vec![CONTROL], vec![BATCH]];
    let mut metadata = metadata();
    metadata.domains[0].tasks.clear();
    let with = |bytes: &[u8], clock: Option<Clock>, start_ns| {
        let recording = Recording::open(bytes).expect("the dump is whole");
        let recording = match clock {
            Some(clock) => recording.by(clock),
            None => recording,
        };
        let (records, _, guessed) = recording
            .import_from(start_ns, &metadata, &threads)
            .expect("the dump is whole");
        assert_eq!(guessed, 0);
        records
    };
    let expected = with(&bytes, None, START_NS);
    assert!(expected.len() > 5);
    bytes[16..24].fill(0);
    assert!(
        import_bytes(&bytes)
            .expect_err("no rate")
            .to_string()
            .contains("rate of the TSC")
    );
    let cycles = Recording::open(&bytes).expect("the dump is whole");
    let from_cycles = (START_NS - MS / 2) * KHZ as i64 / MS;
    assert_eq!(cycles.survey().from_ns, from_cycles);
    // By the clock of the run.
    let clock = Clock {
        cycles_start: START_NS as u64 * KHZ / MS as u64,
        start_ns: 0,
        cycles: KHZ.into(),
        duration_ns: MS.into(),
    };
    assert_eq!(with(&bytes, Some(clock), 0), expected);
}

/// The beginning of a file of trace-cmd, up to what its version has behind it.
fn trace_dat(version: &str) -> Vec<u8> {
    let mut file = tracedat::MAGIC.to_vec();
    file.extend(version.as_bytes());
    file.extend([0, 0, 8]);
    file.extend((PAGE_BYTES as u32).to_le_bytes());
    file
}

/// Sections of options that name each other in a circle end.
#[test]
fn options_in_a_circle_are_refused() {
    let mut file = trace_dat("7");
    file.extend(*b"none\0\0");
    let section = file.len() as u64 + 8;
    file.extend(section.to_le_bytes());
    // Its number and flags, its name, its length; then the end of the options, which names the next section.
    file.extend([0; 8]);
    file.extend(14_u64.to_le_bytes());
    file.extend(0_u16.to_le_bytes());
    file.extend(8_u32.to_le_bytes());
    file.extend(section.to_le_bytes());
    let error = Recording::open(&file).err().expect("it has no end");
    assert!(error.to_string().contains("options without end"), "{error}");
}

/// What is made of a file grows with its length: the same bytes are not the buffers of many CPUs.
#[test]
fn buffers_that_overlap_are_refused() {
    let mut file = trace_dat("6");
    for name in ["header_page", "header_event"] {
        file.extend(name.as_bytes());
        file.extend([0; 9]);
    }
    // No formats, then those of one system.
    file.extend(0_u32.to_le_bytes());
    file.extend(1_u32.to_le_bytes());
    file.extend(*b"sched\0");
    file.extend(2_u32.to_le_bytes());
    for text in [SWITCH, WAKEUP] {
        file.extend((text.len() as u64).to_le_bytes());
        file.extend(text.as_bytes());
    }
    // No symbols, formats of printk and names of threads.
    file.extend([0; 16]);
    file.extend(2_u32.to_le_bytes());
    file.extend(*b"flyrecord\0");
    let with_places = |first: usize, second: usize| {
        let buffer = file.len() as u64 + 32;
        let mut file = file.clone();
        for offset in [first, second] {
            file.extend((buffer + offset as u64).to_le_bytes());
            file.extend((PAGE_BYTES as u64).to_le_bytes());
        }
        file.extend([0; 2 * PAGE_BYTES]);
        tracedat::parse(&file).map(|parsed| parsed.buffers.len())
    };
    assert_eq!(with_places(0, PAGE_BYTES).expect("they stand apart"), 2);
    assert_eq!(with_places(PAGE_BYTES, 0).expect("they stand apart"), 2);
    for offset in [0, PAGE_BYTES - 1] {
        let error = with_places(0, offset).expect_err("a byte is in both");
        assert!(
            error.to_string().contains("CPUs 0 and 1 overlap"),
            "{error}"
        );
    }
}

proptest! {
    #[test]
    fn no_byte_makes_it_fail_otherwise(at in any::<prop::sample::Index>(), value: u8, cut in any::<prop::sample::Index>()) {
        for dump in [usual(), with_exits()] {
            let mut bytes = dump.bytes();
            let at = at.index(bytes.len());
            bytes[at] = value;
            bytes.truncate(cut.index(bytes.len()) + 1);
            if let Ok((_, summary)) = import_bytes(&bytes) {
                let busy: i64 = summary.cpu_ns.iter().flatten().sum();
                prop_assert_eq!(busy + summary.idle_ns + summary.foreign_ns, 20 * MS);
            }
        }
    }

    #[test]
    fn no_byte_of_a_policy_makes_it_fail_otherwise(at in any::<prop::sample::Index>(), value: u8, cut in any::<prop::sample::Index>()) {
        let mut bytes = policy(0, &[(0, BATCH, 0, MS), (MS, BATCH, 3, 0), (2 * MS, CONTROL, 4, 1)]);
        let at = at.index(bytes.len());
        bytes[at] = value;
        bytes.truncate(cut.index(bytes.len()) + 1);
        let _ = import_with(&usual().bytes(), Some(&bytes));
    }
}
