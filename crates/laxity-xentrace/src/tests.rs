//! Dumps made by hand and at random, and what must come of them.

use super::*;
use crate::decode::{MAGIC, RUNNABLE, RUNNING, VERSION, trc};
use laxity_replay::Jobs;
use laxity_run::UNFINISHED;
use laxity_trace::{
    DomainMetadata, Kind, Metadata, NONE, Reader, Sink, TaskMetadata, Writer, perfetto, text,
    timeline,
};
use proptest::prelude::*;
use std::collections::HashMap;

const US: i64 = 1000;
const MS: i64 = 1_000_000;
/// Real time at the start of the run, and how long before that it was traced.
const START_REALTIME_NS: i64 = 1_767_225_600_000_000_000;
const LEAD_NS: i64 = MS;
const CYCLES_A_NS: u64 = 3;
const CYCLES_START: u64 = 1 << 40;

const IDLE: (u32, u32) = (0x7FFF, 0);
const DOM0: (u32, u32) = (0, 0);
/// Xen's numbers of the domains: *control* has one VCPU and a task, *batch* two VCPUs.
const DOMIDS: [u16; 2] = [3, 7];
const CONTROL: (u32, u32) = (3, 0);
const BATCH: (u32, u32) = (7, 0);
const BATCH_1: (u32, u32) = (7, 1);

fn metadata(cpus: u32) -> Metadata {
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
        period_ns: 10 * MS,
        deadline_ns: 5 * MS,
        offset_ns: 0,
    };
    Metadata {
        substrate: "xen".into(),
        policy: "deferrable".into(),
        seed: 1,
        duration_ns: 20 * MS,
        cpus,
        domains: vec![domain("control", 1, vec![task]), domain("batch", 2, vec![])],
        calls: None,
        programs_in: None,
    }
}

/// What `laxity-trace` writes, made by hand. Times are from the start of the run.
struct Dump(Vec<Vec<u8>>);

impl Dump {
    fn new(cpus: usize) -> Self {
        Dump(vec![Vec::new(); cpus])
    }

    fn cycles(time_ns: i64) -> u64 {
        CYCLES_START + (time_ns + LEAD_NS) as u64 * CYCLES_A_NS
    }

    fn words(&mut self, cpu: usize, words: &[u32]) {
        self.0[cpu].extend(words.iter().flat_map(|word| word.to_le_bytes()));
    }

    fn event(&mut self, cpu: usize, time_ns: i64, event: u32, words: &[u32]) {
        let cycles = Dump::cycles(time_ns);
        let header = 1 << 31 | (words.len() as u32) << 28 | event;
        self.words(cpu, &[header, cycles as u32, (cycles >> 32) as u32]);
        self.words(cpu, words);
    }

    fn wake(&mut self, cpu: usize, time_ns: i64, who: (u32, u32)) {
        self.event(cpu, time_ns, trc::WAKE, &[who.0, who.1]);
    }

    fn block(&mut self, cpu: usize, time_ns: i64, who: (u32, u32)) {
        self.event(cpu, time_ns, trc::BLOCK, &[who.0, who.1]);
    }

    fn state(&mut self, cpu: usize, time_ns: i64, who: (u32, u32), old: u32, new: u32) {
        let event = trc::RUNSTATE_CHANGE | old << 8 | new << 4;
        self.event(cpu, time_ns, event, &[who.0 << 16 | who.1]);
    }

    /// A switch in the words of stock Xen, but for the run states.
    fn switch(&mut self, cpu: usize, time_ns: i64, before: (u32, u32), after: (u32, u32)) {
        self.event(cpu, time_ns, 0x0002_800E, &[before.0, before.1, 17]);
        let next = [after.0, after.1, 5, u32::MAX];
        self.event(cpu, time_ns, trc::SWITCH_INFNEXT, &next);
        let both = [before.0, before.1, after.0, after.1];
        self.event(cpu, time_ns, trc::SWITCH, &both);
    }

    fn go_on(&mut self, cpu: usize, time_ns: i64, who: (u32, u32)) {
        self.event(
            cpu,
            time_ns,
            trc::SWITCH_INFCONT,
            &[who.0, who.1, 9, 30_000_000],
        );
    }

    fn policy(&mut self, cpu: usize, time_ns: i64, event: u32, who: (u32, u32), word: i64) {
        let name = if who == IDLE {
            u32::MAX
        } else {
            who.0 << 16 | who.1
        };
        let words = [name, word as u32, (word >> 32) as u32];
        self.event(cpu, time_ns, event, &words);
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend((self.0.len() as u32).to_le_bytes());
        for time_ns in [-LEAD_NS, 20 * MS + LEAD_NS] {
            bytes.extend(Dump::cycles(time_ns).to_le_bytes());
            bytes.extend((START_REALTIME_NS + time_ns).to_le_bytes());
        }
        for (cpu, buffer) in self.0.iter().enumerate() {
            bytes.extend((cpu as u64).to_le_bytes());
            bytes.extend((buffer.len() as u64).to_le_bytes());
            bytes.extend(buffer);
        }
        bytes
    }
}

fn import_with(
    dump: &[u8],
    metadata: &Metadata,
    completions_ns: &[i64],
) -> Result<(Vec<Record>, Summary), XenError> {
    import(
        dump,
        &XenRun {
            jobs: Jobs {
                metadata,
                completions_ns: &[vec![completions_ns.to_vec()], vec![]],
            },
            domids: &DOMIDS,
            start_realtime_ns: START_REALTIME_NS,
        },
    )
}

/// Time in us, kind, CPU, domain, VCPU, argument.
type Row = (i64, Kind, u16, u16, u16, i64);

/// Without the records of jobs.
fn schedule(dump: &Dump) -> (Vec<Row>, Summary) {
    let metadata = metadata(dump.0.len() as u32);
    let (records, summary) = import_with(&dump.bytes(), &metadata, &[]).expect("the dump is whole");
    let records = records
        .into_iter()
        .filter(|record| !record.kind.is_of_job());
    let row = |record: Record| {
        let Record {
            time_ns,
            kind,
            cpu,
            domain,
            vcpu,
            argument,
        } = record;
        (time_ns / US, kind, cpu, domain, vcpu, argument)
    };
    (records.map(row).collect(), summary)
}

const NEVER: i64 = i64::MAX;

/// The buffers of a stock scheduler: no events of Laxity, `WAKE` and `BLOCK` or run states.
fn stock(states: bool) -> Dump {
    let mut dump = Dump::new(1);
    // A vCPU of dom0 starts the trace; *batch* has been waiting.
    dump.switch(0, -20 * US, DOM0, BATCH);
    dump.wake(0, 100 * US, CONTROL);
    if states {
        dump.state(0, 101 * US, CONTROL, 2, RUNNABLE);
    }
    dump.switch(0, 110 * US, BATCH, CONTROL);
    if states {
        dump.state(0, 111 * US, BATCH, RUNNING, RUNNABLE);
        dump.state(0, 111 * US, CONTROL, RUNNABLE, RUNNING);
    }
    dump.block(0, 500 * US, CONTROL);
    // Woken before it has left: it does not block.
    dump.wake(0, 501 * US, CONTROL);
    dump.go_on(0, 502 * US, CONTROL);
    dump.block(0, 600 * US, CONTROL);
    dump.switch(0, 602 * US, CONTROL, DOM0);
    if states {
        dump.state(0, 602 * US, CONTROL, RUNNING, 2);
    }
    dump.switch(0, 700 * US, DOM0, IDLE);
    dump.go_on(0, 800 * US, IDLE);
    dump.switch(0, 900 * US, IDLE, BATCH);
    dump
}

#[test]
fn buffers_of_a_stock_scheduler() {
    for states in [false, true] {
        let (records, summary) = schedule(&stock(states));
        let woken_us = if states { 101 } else { 100 };
        assert_eq!(
            records,
            [
                (0, Kind::Wake, NONE, 1, 0, 0),
                (0, Kind::Run, 0, 1, 0, NEVER),
                (woken_us, Kind::Wake, NONE, 0, 0, 0),
                (110, Kind::Stop, 0, 1, 0, 1),
                (110, Kind::Schedule, 0, 0, 0, 0),
                (110, Kind::Run, 0, 0, 0, NEVER),
                (502, Kind::Schedule, 0, 0, 0, 0),
                (600, Kind::Block, 0, 0, 0, 0),
                (602, Kind::Stop, 0, 0, 0, 0),
                (602, Kind::Schedule, 0, NONE, NONE, 0),
                (800, Kind::Schedule, 0, NONE, NONE, 0),
                (900, Kind::Schedule, 0, 1, 0, 0),
                (900, Kind::Run, 0, 1, 0, NEVER),
            ]
        );
        assert_eq!((summary.decisions, summary.switches), (6, 4));
        assert_eq!(
            (summary.foreign_decisions, summary.foreign_switches),
            (1, 1)
        );
        assert_eq!((summary.foreign_ns, summary.idle_ns), (98 * US, 200 * US));
        let batch_ns = 110 * US + 20 * MS - 900 * US;
        assert_eq!(summary.cpu_ns, [vec![492 * US], vec![batch_ns, 0]]);
    }
}

#[test]
fn buffers_of_laxity() {
    let mut dump = Dump::new(1);
    dump.go_on(0, -US, CONTROL);
    dump.policy(0, 5 * US, trc::REPLENISH, CONTROL, 2 * MS);
    dump.policy(0, 5 * US, trc::REPLENISH, DOM0, 2 * MS);
    dump.policy(0, 10 * US, trc::REPLENISH + 1, CONTROL, 0);
    dump.policy(0, 10 * US, trc::CLASS, CONTROL, 3);
    dump.policy(0, 11 * US, trc::DECISION, BATCH_1, 5 * MS);
    dump.switch(0, 12 * US, CONTROL, BATCH_1);
    dump.event(0, 13 * US, trc::MEASURE, &[300, 901, 60, 2]);
    dump.policy(0, 20 * US, trc::REPLENISH + 2, BATCH_1, -7);
    dump.policy(0, 20 * US, trc::DECISION, BATCH_1, i64::MAX);
    dump.go_on(0, 21 * US, BATCH_1);
    dump.event(0, 22 * US, trc::MEASURE, &[150, 0, 0, 0]);
    // A tasklet takes the CPU, whatever the policy says.
    dump.policy(0, 30 * US, trc::DECISION, BATCH_1, MS);
    dump.switch(0, 31 * US, BATCH_1, IDLE);
    dump.policy(0, 40 * US, trc::DECISION, IDLE, MS);
    dump.go_on(0, 41 * US, IDLE);
    let (records, summary) = schedule(&dump);
    assert_eq!(
        records,
        [
            (0, Kind::Wake, NONE, 0, 0, 0),
            (0, Kind::Wake, NONE, 1, 1, 0),
            (0, Kind::Run, 0, 0, 0, 30 * MS - US),
            (5, Kind::Replenish, NONE, 0, 0, 2 * MS),
            (10, Kind::Exhaust, NONE, 0, 0, 0),
            (10, Kind::Class, NONE, 0, 0, 3),
            (12, Kind::Stop, 0, 0, 0, 1),
            (12, Kind::Schedule, 0, 1, 1, 400),
            (12, Kind::Run, 0, 1, 1, 5 * MS + 12 * US),
            (20, Kind::Budget, NONE, 1, 1, -7),
            (21, Kind::Schedule, 0, 1, 1, 50),
            (31, Kind::Stop, 0, 1, 1, 1),
            (31, Kind::Schedule, 0, NONE, NONE, 0),
            (41, Kind::Schedule, 0, NONE, NONE, 0),
        ]
    );
    assert_eq!(summary.decision_ns, [100, 50]);
    assert_eq!(summary.switch_ns, [300]);
    assert_eq!((summary.timer_ns, summary.timers), (20, 2));
}

#[test]
fn a_vcpu_goes_from_one_cpu_to_another() {
    let mut dump = Dump::new(2);
    dump.switch(0, 10 * US, BATCH, IDLE);
    dump.state(0, 10 * US, BATCH, RUNNING, RUNNABLE);
    dump.policy(0, 11 * US, trc::REPLENISH + 3, BATCH, 1);
    dump.switch(1, 12 * US, CONTROL, BATCH);
    // Paused: no `BLOCK` says that it blocks.
    dump.state(1, 12 * US, CONTROL, RUNNING, 3);
    dump.state(0, 15 * US, CONTROL, 3, RUNNABLE);
    // Paused while it waits.
    dump.state(0, 16 * US, CONTROL, RUNNABLE, 3);
    let (records, summary) = schedule(&dump);
    assert_eq!(
        records,
        [
            (0, Kind::Wake, NONE, 0, 0, 0),
            (0, Kind::Wake, NONE, 1, 0, 0),
            (0, Kind::Run, 0, 1, 0, NEVER),
            (0, Kind::Run, 1, 0, 0, NEVER),
            (10, Kind::Stop, 0, 1, 0, 1),
            (10, Kind::Schedule, 0, NONE, NONE, 0),
            (11, Kind::Migrate, NONE, 1, 0, 1),
            (12, Kind::Block, 1, 0, 0, 0),
            (12, Kind::Stop, 1, 0, 0, 0),
            (12, Kind::Schedule, 1, 1, 0, 0),
            (12, Kind::Run, 1, 1, 0, NEVER),
            (15, Kind::Wake, NONE, 0, 0, 0),
            (16, Kind::Block, NONE, 0, 0, 0),
        ]
    );
    assert_eq!(summary.idle_ns, 20 * MS - 10 * US);
}

#[test]
fn jobs_arrive_and_complete() {
    let mut dump = Dump::new(1);
    dump.wake(0, 10 * MS, CONTROL);
    dump.switch(0, 10 * MS, IDLE, CONTROL);
    let metadata = metadata(1);
    let jobs = |completions_ns: &[i64]| {
        let (records, _) =
            import_with(&dump.bytes(), &metadata, completions_ns).expect("the dump is whole");
        records
            .into_iter()
            .map(|record| (record.time_ns / MS, record.kind, record.cpu))
            .filter(|(_, kind, _)| *kind != Kind::Schedule)
            .collect::<Vec<_>>()
    };
    // The first is so late that it completes as the second arrives.
    assert_eq!(
        jobs(&[10 * MS, 13 * MS]),
        [
            (0, Kind::Release, NONE),
            (10, Kind::Complete, NONE),
            (10, Kind::Release, NONE),
            (10, Kind::Wake, NONE),
            (10, Kind::Run, 0),
            (13, Kind::Complete, 0),
        ]
    );
    assert_eq!(jobs(&[UNFINISHED]), jobs(&[]));
    assert_eq!(jobs(&[20 * MS + 1, UNFINISHED]), jobs(&[]));
}

/// Xen's clock is 1 s ahead of the run's. Timers bring replenishments at 7 and 17 ms, 3 us late the first time and 5 us
/// the second; batch wakes within its second period.
#[test]
fn deadlines_of_rtds_are_on_the_clock_of_the_run() {
    let mut dump = Dump::new(1);
    let mut replenish = |time_ns: i64, who: (u32, u32), deadline_ns: i64| {
        let deadline_ns = deadline_ns + 1_000 * MS;
        let deadline = [deadline_ns as u32, (deadline_ns >> 32) as u32];
        let words = [who.0 << 16 | who.1, 0, deadline[0], deadline[1], 0, 0];
        dump.event(0, time_ns, trc::RTDS_REPLENISH, &words);
    };
    replenish(2 * MS, BATCH_1, 6 * MS);
    replenish(7 * MS + 3 * US, CONTROL, 17 * MS);
    replenish(12 * MS, BATCH_1, 16 * MS);
    replenish(17 * MS + 5 * US, CONTROL, 27 * MS);
    let (_, summary) = schedule(&dump);
    let deadlines_ns = vec![
        vec![Some(17 * MS + 3 * US)],
        vec![None, Some(6 * MS + 3 * US)],
    ];
    assert_eq!(summary.deadlines_ns, deadlines_ns);
    assert_eq!(
        schedule(&Dump::new(1)).1.deadlines_ns,
        [vec![None], vec![None; 2]]
    );
}

/// The time for replenishments grows with their number; this test would not end otherwise.
#[test]
fn many_replenishments_are_no_matter() {
    const REPLENISHMENTS: u64 = 500_000;
    let mut dump = Dump::new(1);
    for number in 0..REPLENISHMENTS {
        let words = [
            CONTROL.0 << 16 | CONTROL.1,
            0,
            10_000 + 10 * number as u32,
            0,
            0,
            0,
        ];
        dump.event(0, 0, trc::RTDS_REPLENISH, &words);
    }
    assert!(schedule(&dump).1.deadlines_ns[0][0].is_some());
}

/// control has 7 ms after it paid; of batch's VCPUs the one has what a reset gave it, and the other what it had before
/// the first change within the run.
#[test]
fn credits_of_credit2_are_those_at_the_start() {
    let mut dump = Dump::new(1);
    let name = |who: (u32, u32)| who.0 << 16 | who.1;
    let ns = |milliseconds: i64| (milliseconds * MS) as i32 as u32;
    let mut event = |time_ns, event, words: &[u32]| dump.event(0, time_ns, event, words);
    event(-3 * US, trc::CREDIT2_RESET, &[name(BATCH), ns(-2), ns(8)]);
    event(-2 * US, trc::CREDIT2_BURN, &[name(DOM0), ns(1), 0, ns(1)]);
    event(-US, trc::CREDIT2_BURN, &[name(CONTROL), ns(7), 0, ns(2)]);
    event(US, trc::CREDIT2_BURN, &[name(CONTROL), ns(6), 0, ns(1)]);
    event(
        2 * US,
        trc::CREDIT2_BURN,
        &[name(BATCH_1), ns(-4), 0, ns(3)],
    );
    let (_, summary) = schedule(&dump);
    let credits_ns = vec![vec![Some(7 * MS)], vec![Some(8 * MS), Some(-MS)]];
    assert_eq!(summary.credits_ns, credits_ns);
}

#[test]
fn jobs_that_cannot_be_are_refused() {
    let metadata = metadata(1);
    let error = |completions_ns: &[i64]| {
        import_with(&Dump::new(1).bytes(), &metadata, completions_ns)
            .expect_err("no such jobs")
            .to_string()
    };
    assert_eq!(
        error(&[1, 2, 3]),
        "task control.loop: 3 jobs are reported, and 2 are released"
    );
    assert!(error(&[1, 9 * MS]).contains("job 1 cannot have completed at 9000000 ns"));
    assert!(error(&[13 * MS, 12 * MS]).contains("the one before completed at 13000000 ns"));
    assert!(error(&[UNFINISHED, 12 * MS]).contains("job 1 cannot"));
    assert!(error(&[-1]).contains("job 0 cannot"));
    let run = XenRun {
        jobs: Jobs {
            metadata: &metadata,
            completions_ns: &[],
        },
        domids: &[3, 3],
        start_realtime_ns: 0,
    };
    let error = |run| import(&[], &run).expect_err("no such run").to_string();
    assert_eq!(
        error(run),
        "domain batch has the same Xen number as another domain, 3"
    );
    assert!(
        error(XenRun {
            domids: &[3],
            ..run
        })
        .contains("2 domains, but 1 numbers")
    );
    assert!(
        error(XenRun {
            domids: &[3, 0x7FFF],
            ..run
        })
        .contains("below 32752")
    );
    assert!(
        error(XenRun {
            domids: &DOMIDS,
            ..run
        })
        .contains("completion times")
    );
}

fn error(dump: &Dump) -> String {
    import_with(&dump.bytes(), &metadata(2), &[])
        .expect_err("it is damaged")
        .to_string()
}

#[test]
fn what_is_of_no_interest_is_passed_over() {
    let mut dump = stock(true);
    let (records, summary) = schedule(&dump);
    // A wrap, an event without time, one of credit's, and one of a later version of ours.
    dump.words(0, &[3 << 28 | 0x0001_F002, 1, 2, 3]);
    dump.words(0, &[0x0020_1003]);
    dump.event(0, MS, 0x0002_2009, &[1]);
    dump.event(0, MS, trc::MEASURE + 1, &[1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(schedule(&dump), (records, summary));
}

#[test]
fn lost_records_are_refused() {
    let mut dump = Dump::new(2);
    dump.go_on(1, 0, IDLE);
    dump.event(1, US, trc::LOST_RECORDS, &[42, 0, 0, 0]);
    assert_eq!(
        error(&dump),
        "Xen lost 42 trace records of CPU 1 (byte 108 of the dump): trace with larger buffers, \
         fewer events or for a shorter time"
    );
}

#[test]
fn contradictions_are_refused() {
    let mut dump = Dump::new(2);
    dump.go_on(0, 0, CONTROL);
    dump.switch(0, US, BATCH, IDLE);
    assert_eq!(
        error(&dump),
        "byte 144 of the dump, CPU 0 at 1000 ns of the run: batch/0 is said to have run here, and before, \
         control/0"
    );
    let mut dump = Dump::new(2);
    dump.go_on(0, 0, CONTROL);
    dump.switch(1, US, IDLE, CONTROL);
    assert!(error(&dump).contains("control/0 begins to run, and it still runs on CPU 0"));
    // Two CPUs that run it at once, from the beginning.
    let mut dump = Dump::new(2);
    dump.go_on(0, 0, CONTROL);
    dump.go_on(1, 0, CONTROL);
    assert!(error(&dump).contains("control/0 is said to have run here"));
}

#[test]
fn damage_is_named() {
    let with = |change: fn(&mut Dump)| {
        let mut dump = Dump::new(2);
        dump.go_on(0, 10 * US, IDLE);
        change(&mut dump);
        error(&dump)
    };
    assert_eq!(
        with(|dump| dump.go_on(0, 9 * US, IDLE)),
        "the dump is damaged at byte 92: time goes back, from cycle 1099514657776 to 1099514654776"
    );
    assert!(with(|dump| dump.event(0, MS, trc::WAKE, &[1])).contains("event 0x28004 has 1 words"));
    assert!(with(|dump| dump.words(0, &[2 << 28 | trc::WAKE, 1, 2])).contains("has no time"));
    assert!(with(|dump| dump.wake(0, MS, (3, 1))).contains("VCPU 1, and 1 in the host file"));
    assert!(
        with(|dump| dump.wake(0, MS, (0x1_0000, 0)))
            .contains("no domain can have the number 65536")
    );
    assert!(with(|dump| dump.policy(0, MS, trc::CLASS, BATCH, 4)).contains("class 4"));
    assert!(with(|dump| dump.policy(0, MS, trc::REPLENISH + 3, BATCH, 2)).contains("is on CPU 2"));
    assert!(with(|dump| dump.words(0, &[1 << 31])).contains("byte 92: a trace record is not"));
    let mut third = Dump::new(3);
    third.switch(2, 0, DOM0, IDLE);
    assert!(
        import_with(&third.bytes(), &metadata(2), &[]).is_ok(),
        "dom0 may be anywhere"
    );
    third.switch(2, US, IDLE, BATCH);
    assert!(error(&third).contains("the host has 2 CPUs"));
}

#[test]
fn another_file_is_refused() {
    let bytes = Dump::new(2).bytes();
    let error = |at: usize, byte: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = byte;
        import_with(&bytes, &metadata(2), &[]).expect_err("it is damaged")
    };
    assert_eq!(error(0, 0), XenError::Magic);
    assert_eq!(error(8, 2), XenError::Version { version: 2 });
    assert!(
        error(12, 3)
            .to_string()
            .contains("cut short at byte 80: a CPU's header")
    );
    assert!(
        error(12, 1)
            .to_string()
            .contains("16 bytes after the last CPU")
    );
    assert!(
        error(64, 0)
            .to_string()
            .contains("CPU 0 is not in order of number")
    );
    assert!(error(55, 1).to_string().contains("where a 0 belongs"));
    assert!(
        error(50, 1)
            .to_string()
            .contains("CPU 65536; CPUs are below")
    );
    assert!(
        error(56, 200)
            .to_string()
            .contains("byte 64: a CPU's buffer is not whole")
    );
    assert!(
        error(37, 0)
            .to_string()
            .contains("the clocks did not go on")
    );
    assert!(error(38, 1).to_string().contains("no CPU counts cycles"));
    assert!(error(47, 255).to_string().contains("beyond all time"));
    let mut late = metadata(2);
    late.duration_ns += 2 * LEAD_NS;
    let window = import_with(&bytes, &late, &[]).expect_err("it was not traced to the end");
    assert!(matches!(window, XenError::Window { .. }), "{window}");
}

/// Whether the records are a trace: they can be read, and every `Run` and `Stop`, `Wake` and `Block`
/// follows from what was before.
fn check_trace(metadata: &Metadata, records: &[Record]) {
    let mut file = Vec::new();
    let mut writer = Writer::new(&mut file, metadata).expect("a Vec takes everything");
    records.iter().for_each(|&record| writer.record(record));
    writer.finish().expect("a Vec takes everything");
    let reader = || Reader::new(&file[..]).expect("the header is right");
    let read = reader()
        .collect::<Result<Vec<_>, _>>()
        .expect("the trace is right");
    assert!(read == records);
    text::write(reader(), std::io::sink()).expect("the trace is right");
    perfetto::write(reader(), std::io::sink()).expect("the trace is right");
    timeline(reader(), 0, metadata.duration_ns).expect("the trace is right");

    let mut awake = HashMap::new();
    let mut running = HashMap::new();
    for record in records {
        let who = (record.domain, record.vcpu);
        match record.kind {
            Kind::Wake => assert!(!awake.insert(who, true).unwrap_or(false), "{record:?}"),
            Kind::Block => assert!(awake.insert(who, false).unwrap_or(false), "{record:?}"),
            Kind::Run => {
                assert_eq!(running.insert(record.cpu, who), None, "{record:?}");
                assert!(running.values().filter(|&&other| other == who).count() == 1);
                assert!(awake[&who]);
            }
            Kind::Stop => {
                assert_eq!(running.remove(&record.cpu), Some(who), "{record:?}");
                assert_eq!(record.argument, i64::from(awake[&who]));
            }
            _ => {}
        }
    }
}

/// VCPUs that take turns at random, as Xen would trace them, and what must come of it.
fn random_run(steps: &[(u8, u8, u16)], states: bool) -> (Dump, Vec<Record>) {
    const WHO: [(u32, u32); 3] = [CONTROL, BATCH, BATCH_1];
    const NAMES: [(u16, u16); 3] = [(0, 0), (1, 0), (1, 1)];
    let mut dump = Dump::new(2);
    let mut expected = Vec::new();
    let mut awake = [false; 3];
    let mut on_cpu: [Option<usize>; 2] = [None; 2];
    let mut time_ns = 0;
    let named = |who: Option<usize>| who.map_or(IDLE, |who| WHO[who]);
    for &(choice, who, step_ns) in steps {
        time_ns += i64::from(step_ns) + 1;
        if time_ns > 20 * MS {
            break;
        }
        let mut record = |who: Option<usize>, cpu, kind, argument| {
            let (domain, vcpu) = who.map_or((NONE, NONE), |who| NAMES[who]);
            expected.push(Record {
                time_ns,
                argument,
                cpu,
                domain,
                vcpu,
                kind,
            });
        };
        let cpu = usize::from(choice & 1);
        let who = usize::from(who) % 3;
        let running = on_cpu.contains(&Some(who));
        match choice >> 1 & 3 {
            0 if !awake[who] => {
                awake[who] = true;
                dump.wake(cpu, time_ns, WHO[who]);
                if states {
                    dump.state(cpu, time_ns, WHO[who], 2, RUNNABLE);
                }
                record(Some(who), NONE, Kind::Wake, 0);
            }
            1 => {
                dump.go_on(cpu, time_ns, named(on_cpu[cpu]));
                record(on_cpu[cpu], cpu as u16, Kind::Schedule, 0);
            }
            kind => {
                let next = (awake[who] && !running).then_some(who);
                let before = on_cpu[cpu];
                if before == next {
                    continue;
                }
                let blocks = kind == 2;
                if let Some(before) = before.filter(|_| blocks) {
                    dump.block(cpu, time_ns, WHO[before]);
                    awake[before] = false;
                    record(Some(before), cpu as u16, Kind::Block, 0);
                }
                dump.switch(cpu, time_ns, named(before), named(next));
                if let Some(before) = before {
                    if states {
                        let new = if blocks { 2 } else { RUNNABLE };
                        dump.state(cpu, time_ns, WHO[before], RUNNING, new);
                    }
                    record(Some(before), cpu as u16, Kind::Stop, i64::from(!blocks));
                }
                record(next, cpu as u16, Kind::Schedule, 0);
                if next.is_some() {
                    record(next, cpu as u16, Kind::Run, i64::MAX);
                }
                on_cpu[cpu] = next;
            }
        }
    }
    (dump, expected)
}

proptest! {
    #[test]
    fn random_runs_come_out(
        steps in prop::collection::vec(any::<(u8, u8, u16)>(), 0..200), states: bool,
    ) {
        let (dump, expected) = random_run(&steps, states);
        let metadata = metadata(2);
        let (records, summary) = import_with(&dump.bytes(), &metadata, &[4 * MS, 15 * MS])
            .expect("the dump is whole");
        check_trace(&metadata, &records);
        let (jobs, schedule): (Vec<_>, Vec<_>) =
            records.into_iter().partition(|record| record.kind.is_of_job());
        prop_assert_eq!(jobs.len(), 4);
        prop_assert_eq!(&schedule, &expected);
        let of = |kind| expected.iter().filter(|record| record.kind == kind).count() as u64;
        prop_assert_eq!(summary.decisions, of(Kind::Schedule));
        let cpu_ns: i64 = summary.cpu_ns.iter().flatten().sum();
        prop_assert_eq!(cpu_ns + summary.idle_ns + summary.foreign_ns, 40 * MS);
    }

    #[test]
    fn a_run_may_be_cut_out_of_a_longer_one(
        steps in prop::collection::vec(any::<(u8, u8, u16)>(), 0..200), from_us in 0i64..900,
    ) {
        let (dump, expected) = random_run(&steps, true);
        let mut metadata = metadata(2);
        metadata.duration_ns = 10 * MS;
        let (records, _) = import(&dump.bytes(), &XenRun {
            jobs: Jobs {
                metadata: &metadata,
                completions_ns: &[vec![vec![]], vec![]],
            },
            domids: &DOMIDS,
            start_realtime_ns: START_REALTIME_NS + from_us * US,
        }).expect("the dump is whole");
        check_trace(&metadata, &records);
        // What runs is what ran at any instant of the longer run.
        let within: Vec<Record> = expected.into_iter()
            .map(|record| Record { time_ns: record.time_ns - from_us * US, ..record })
            .filter(|record| (1..=10 * MS).contains(&record.time_ns))
            .collect();
        let records: Vec<Record> = records.into_iter()
            .filter(|record| record.time_ns > 0 && !record.kind.is_of_job())
            .collect();
        prop_assert_eq!(records, within);
    }

    #[test]
    fn no_damage_makes_it_panic(
        steps in prop::collection::vec(any::<(u8, u8, u16)>(), 0..50),
        damage in prop::collection::vec(any::<(usize, u8)>(), 1..8),
        length: usize,
    ) {
        let mut bytes = random_run(&steps, true).0.bytes();
        for (at, byte) in damage {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        bytes.truncate(length % (2 * bytes.len()));
        let metadata = metadata(2);
        if let Ok((records, _)) = import_with(&bytes, &metadata, &[4 * MS]) {
            check_trace(&metadata, &records);
        }
    }
}
