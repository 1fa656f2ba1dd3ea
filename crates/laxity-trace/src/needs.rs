//! The number of decisions and context switches that a schedule needs, and the number that were made.

use crate::{Kind, NONE, Reader, TraceError};
use schemars::JsonSchema;
use serde::Serialize;
use std::io::Read;

/// Decisions of one CPU within this time of the first are one.
pub const MERGE_NS: i64 = 1000;

/// What was decided, and what needed to be.
///
/// The schedule is taken as it is: which VCPU runs on which CPU, when VCPUs block and when they use up their
/// budget. The least that any scheduler would have done for it is counted like this, for each CPU:
///
/// - The decisions within [`MERGE_NS`] of a first one, that one included, are a *group*: they could have been
///   one decision.
/// - A group needs a *context switch* if who runs after it is not who ran before it (nobody counts as one who
///   runs). What comes and goes within a group needs none.
/// - A group needs a *decision* if it needs a context switch, or if the VCPU that ran had blocked or had used
///   up its budget since the decision before: then it had to be asked whether it goes on.
/// - Nothing else does: decisions that let the running VCPU go on without such a reason, as ticks, quanta and
///   wakes that do not preempt bring them about, are excess.
///
/// A decision is a `Schedule` record; who runs after it is whom it names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, JsonSchema)]
pub struct Needs {
    /// Decisions that were made.
    pub decisions: u64,
    /// Decisions that the schedule needs.
    pub needed_decisions: u64,
    /// `decisions` / `needed_decisions` - 1; null if none are needed.
    pub excess_decisions_ratio: Option<f64>,
    /// Decisions that changed who runs on their CPU.
    pub switches: u64,
    /// Context switches that the schedule needs.
    pub needed_switches: u64,
    /// `switches` / `needed_switches` - 1; null if none are needed.
    pub excess_switches_ratio: Option<f64>,
    /// What the needed decisions are for.
    pub causes: Causes,
}

/// What the needed decisions are for: each is counted once, by the first that is true of its group's first
/// decision that is true of any.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Causes {
    /// The VCPU that ran blocked: its last job was complete.
    pub completions: u64,
    /// The VCPU that ran used up its budget.
    pub exhaustions: u64,
    /// The VCPU that was chosen woke since the CPU's decision before: a job was released.
    pub releases: u64,
    /// The VCPU that was chosen was replenished since then.
    pub replenishments: u64,
    /// The end of a turn, another CPU's queue, a foreign VCPU on real Xen, and whatever else changes who runs.
    pub others: u64,
}

/// Counts what a trace's schedule needs.
///
/// # Errors
///
/// The trace is damaged.
pub fn needs<R: Read>(reader: Reader<R>) -> Result<Needs, TraceError> {
    let metadata = reader.metadata();
    let mut cpus = vec![Cpu::default(); metadata.lanes() as usize];
    let mut vcpus: Vec<Vec<Vcpu>> = Vec::with_capacity(metadata.domains.len());
    for domain in &metadata.domains {
        vcpus.push(vec![Vcpu::default(); domain.vcpus as usize]);
    }
    let mut needs = Needs::default();
    // Records are numbered from 1, so that 0 is before all of them.
    for (record, number) in reader.zip(1_u64..) {
        let record = record?;
        let who = (record.domain != NONE).then_some((record.domain, record.vcpu));
        let vcpu = who.map(|(domain, vcpu)| &mut vcpus[usize::from(domain)][usize::from(vcpu)]);
        match (record.kind, vcpu) {
            (Kind::Wake, Some(vcpu)) => vcpu.woke = number,
            (Kind::Replenish, Some(vcpu)) => vcpu.replenished = number,
            (Kind::Block, _) => running(&mut cpus, who, |cpu| cpu.blocked = true),
            (Kind::Exhaust, _) => running(&mut cpus, who, |cpu| cpu.exhausted = true),
            // A trace may begin while a VCPU runs.
            (Kind::Run, _) => cpus[usize::from(record.cpu)].who = who,
            (Kind::Schedule, chosen) => {
                let chosen = chosen.map_or(Vcpu::default(), |vcpu| *vcpu);
                let cpu = &mut cpus[usize::from(record.cpu)];
                cpu.decide(&mut needs, record.time_ns, number, who, chosen);
            }
            _ => {}
        }
    }
    for cpu in &mut cpus {
        cpu.close(&mut needs);
    }
    let excess = |made: u64, needed: u64| (needed > 0).then(|| made as f64 / needed as f64 - 1.0);
    needs.excess_decisions_ratio = excess(needs.decisions, needs.needed_decisions);
    needs.excess_switches_ratio = excess(needs.switches, needs.needed_switches);
    Ok(needs)
}

type Who = Option<(u16, u16)>;

/// When something last happened to a VCPU, by the record's number.
#[derive(Debug, Clone, Copy, Default)]
struct Vcpu {
    woke: u64,
    replenished: u64,
}

#[derive(Debug, Clone, Default)]
struct Cpu {
    /// The VCPU that runs after the last decision.
    who: Who,
    /// The last decision, by its record's number.
    decided: u64,
    /// That VCPU has blocked since.
    blocked: bool,
    /// That VCPU has used up its budget since.
    exhausted: bool,
    group: Option<Group>,
}

#[derive(Debug, Clone)]
struct Group {
    start_ns: i64,
    /// The VCPU that ran before.
    before: Who,
    cause: Option<Cause>,
    /// Needed whoever runs at the end.
    needed: bool,
}

#[derive(Debug, Clone, Copy)]
enum Cause {
    Completion,
    Exhaustion,
    Release,
    Replenishment,
    Other,
}

/// Does something to the CPU that runs a VCPU, if one does.
fn running(cpus: &mut [Cpu], who: Who, mark: impl FnOnce(&mut Cpu)) {
    if let Some(cpu) = cpus.iter_mut().find(|cpu| cpu.who == who) {
        mark(cpu);
    }
}

impl Cpu {
    fn decide(&mut self, needs: &mut Needs, time_ns: i64, number: u64, who: Who, chosen: Vcpu) {
        let change = who != self.who;
        needs.decisions += 1;
        needs.switches += u64::from(change);
        let cause = match () {
            () if self.blocked => Some(Cause::Completion),
            () if self.exhausted => Some(Cause::Exhaustion),
            () if !change => None,
            () if chosen.woke > self.decided => Some(Cause::Release),
            () if chosen.replenished > self.decided => Some(Cause::Replenishment),
            () => Some(Cause::Other),
        };
        let over = |group: &Group| time_ns - group.start_ns > MERGE_NS;
        if self.group.as_ref().is_some_and(over) {
            self.close(needs);
        }
        let group = self.group.get_or_insert(Group {
            start_ns: time_ns,
            before: self.who,
            cause: None,
            needed: false,
        });
        group.cause = group.cause.or(cause);
        group.needed |= self.blocked || self.exhausted;
        self.who = who;
        self.decided = number;
        (self.blocked, self.exhausted) = (false, false);
    }

    /// Counts the group that is over.
    fn close(&mut self, needs: &mut Needs) {
        let Some(group) = self.group.take() else {
            return;
        };
        let change = group.before != self.who;
        needs.needed_switches += u64::from(change);
        if !change && !group.needed {
            return;
        }
        needs.needed_decisions += 1;
        let causes = &mut needs.causes;
        let cause = match group.cause {
            Some(Cause::Completion) => &mut causes.completions,
            Some(Cause::Exhaustion) => &mut causes.exhaustions,
            Some(Cause::Release) => &mut causes.releases,
            Some(Cause::Replenishment) => &mut causes.replenishments,
            Some(Cause::Other) | None => &mut causes.others,
        };
        *cause += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Metadata, Record, sample};
    use proptest::prelude::*;

    fn of(records: &[Record]) -> Needs {
        let metadata = Metadata {
            cpus: 2,
            ..sample::metadata()
        };
        let file = sample::file(&metadata, records);
        needs(sample::reader(&file)).expect("the trace is whole")
    }

    #[test]
    fn the_sample_needs_all_of_its_decisions() {
        let found = of(&sample::records());
        assert_eq!((found.decisions, found.needed_decisions), (7, 7));
        assert_eq!((found.switches, found.needed_switches), (7, 7));
        assert_eq!(found.excess_decisions_ratio, Some(0.0));
        let causes = Causes {
            completions: 1,
            exhaustions: 3,
            releases: 2,
            replenishments: 1,
            others: 0,
        };
        assert_eq!(found.causes, causes);
    }

    fn record(time_ns: i64, kind: Kind, domain: u16) -> Record {
        let vcpu = if domain == NONE { NONE } else { 0 };
        Record {
            time_ns,
            argument: 0,
            cpu: 0,
            domain,
            vcpu,
            kind,
        }
    }

    fn decide(time_ns: i64, domain: u16) -> Record {
        record(time_ns, Kind::Schedule, domain)
    }

    #[test]
    fn ticks_are_excess() {
        let found = of(&[
            record(0, Kind::Run, 0),
            decide(10_000, 0),
            decide(20_000, 0),
            record(25_000, Kind::Wake, 1),
            decide(30_000, 0),
            decide(40_000, 1),
            decide(50_000, 0),
        ]);
        assert_eq!((found.decisions, found.needed_decisions), (5, 2));
        assert_eq!((found.switches, found.needed_switches), (2, 2));
        assert_eq!(found.excess_decisions_ratio, Some(1.5));
        assert_eq!(
            found.causes.others, 2,
            "it did not wake since the decision before"
        );
        assert_eq!(of(&[decide(0, NONE)]).excess_decisions_ratio, None);
    }

    #[test]
    fn decisions_in_a_row_are_one() {
        // To nobody and on to another, within 1 us.
        let found = of(&[
            record(0, Kind::Run, 0),
            record(9_000, Kind::Block, 0),
            decide(9_500, NONE),
            decide(10_500, 1),
        ]);
        assert_eq!((found.switches, found.needed_switches), (2, 1));
        assert_eq!((found.needed_decisions, found.causes.completions), (1, 1));
        // A ns later, they are two.
        let found = of(&[
            record(0, Kind::Run, 0),
            decide(9_500, NONE),
            decide(10_501, 1),
        ]);
        assert_eq!((found.needed_switches, found.needed_decisions), (2, 2));
        // There and back: nothing was needed.
        let found = of(&[record(0, Kind::Run, 0), decide(9_500, 1), decide(10_500, 0)]);
        assert_eq!(
            (
                found.switches,
                found.needed_switches,
                found.needed_decisions
            ),
            (2, 0, 0)
        );
    }

    #[test]
    fn one_that_uses_up_its_budget_and_goes_on_needs_a_decision() {
        let found = of(&[
            record(0, Kind::Run, 0),
            record(5, Kind::Exhaust, 0),
            decide(5, 0),
        ]);
        assert_eq!((found.needed_decisions, found.needed_switches), (1, 0));
        assert_eq!(found.causes.exhaustions, 1);
        // Not if another's is used up, as a periodic server's is while it waits.
        let found = of(&[
            record(0, Kind::Run, 0),
            record(5, Kind::Exhaust, 1),
            decide(5, 0),
        ]);
        assert_eq!(found.needed_decisions, 0);
    }

    proptest! {
        #[test]
        fn never_more_is_needed_than_is_done(
            steps in prop::collection::vec(any::<(u16, u8, u8, u8)>(), 0..200),
        ) {
            let mut time_ns = 0;
            let records: Vec<Record> = steps.into_iter().map(|(step_ns, kind, domain, cpu)| {
                time_ns += i64::from(step_ns % 3000);
                let kinds =
                    [Kind::Schedule, Kind::Wake, Kind::Block, Kind::Exhaust, Kind::Replenish];
                let kind = kinds[usize::from(kind) % kinds.len()];
                let domain = match domain % 3 {
                    2 if kind == Kind::Schedule => NONE,
                    domain => u16::from(domain) % 2,
                };
                Record { cpu: u16::from(cpu % 2), ..record(time_ns, kind, domain) }
            }).collect();
            let found = of(&records);
            prop_assert!(found.needed_decisions <= found.decisions);
            prop_assert!(found.needed_switches <= found.switches);
            prop_assert!(found.needed_switches <= found.needed_decisions);
            let Causes { completions, exhaustions, releases, replenishments, others } = found.causes;
            let caused = completions + exhaustions + releases + replenishments + others;
            prop_assert_eq!(caused, found.needed_decisions);
        }
    }
}
