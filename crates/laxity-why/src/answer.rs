//! The answer about a whole trace: its late jobs with their causes, and the sums of the causes.

use crate::account::{Account, GuestTime};
use crate::cause::{Cause, Key, Part, Rule, Who};
use crate::packet::{Fate, Packet, PacketPart, Subject, Watch};
use crate::share::Job;
use laxity_trace::{Exit, Metadata, Place, Reader, TraceError};
use serde::Serialize;
use std::collections::{BTreeMap, BinaryHeap};
use std::io::Read;

/// What is asked about a trace.
#[derive(Debug, Clone, Default)]
pub struct Question {
    /// Only jobs of this task, by the places of its domain and of itself.
    pub task: Option<(u16, u32)>,
    /// The number of jobs, packets, messages and outages that are explained, those that are late by most; all without
    /// it. Each kind that has late members gets an equal part of the number, at least one; outages come first. The
    /// totals cover all of them.
    pub worst: Option<usize>,
    /// Whether jobs that met their deadline are explained, too.
    pub every_job: bool,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum WhyError {
    /// The trace is damaged.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The host is so overloaded that its backlog does not fit into memory.
    #[error(
        "at {time_ns} ns there are so many incomplete jobs that explaining them would take more than 256 MiB"
    )]
    TooMany {
        /// When the bound was met, from the start of the run.
        time_ns: i64,
    },
}

/// Why the jobs of a trace were late.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Answer {
    /// The number of jobs that were released in the trace and whose deadline fell within the run.
    pub jobs: u64,
    /// The number of late jobs.
    pub late_jobs: u64,
    /// The number of late packets of voice, and of those that were still on their way at the end of the run.
    pub late_packets: u64,
    /// The number of lost packets of voice.
    pub lost_packets: u64,
    /// The number of messages of registrations that were answered so late that their phones had sent them again, and of
    /// those that were still on their way at the end of the run.
    pub late_messages: u64,
    /// The number of lost messages of registrations, and of their lost answers.
    pub lost_messages: u64,
    /// The number of outages of domains after the failure of their host.
    pub outages: u64,
    /// The sum of the lateness of all of these, ns.
    pub late_sum_ns: i64,
    /// The explained jobs, packets, messages and outages: in the order of their ends, or with [`Question::worst`] from
    /// the latest on.
    pub late: Vec<Explained>,
    /// The lateness of all late jobs and packets, by task, cause and culprit.
    pub totals: Vec<Total>,
    /// The time of the VCPUs whose guests the trace tells of.
    pub guests: Vec<Guest>,
    /// Facts about the calls that the trace lacks, as sentences without a full stop.
    pub not_seen: Vec<String>,
}

/// A job with the causes of its lateness.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Explained {
    /// `domain/task#job`; of a packet `domain/stream-N#number`, with the media server's domain; of a message
    /// `domain/registration-N#number`, with that of the signalling server; of an outage `domain/outage`.
    pub what: String,
    /// `job`, `packet`, `message` or `outage`.
    pub kind: &'static str,
    /// The fate of a packet or message: `late`, `lost` or `unfinished`; null for others.
    pub packet: Option<&'static str>,
    /// The place that had no room for a lost packet; null if it was lost otherwise, or not at all.
    pub lost_at: Option<Place>,
    /// When it arrived, ns from the start of the run.
    pub arrival_ns: i64,
    /// When it had to be complete, ns from the start of the run.
    pub deadline_ns: i64,
    /// When it was complete, ns from the start of the run; null if it was not at the end of the run, or is lost.
    pub completion_ns: Option<i64>,
    /// The time from its deadline to its completion, or to the end of the run. For a lost packet: the time for which
    /// the oldest packet had waited at the place that had no room for it.
    pub late_ns: i64,
    /// From the greatest to the smallest; their `ns` sum to `late_ns`.
    pub causes: Vec<ExplainedCause>,
}

/// A cause of a job's lateness.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ExplainedCause {
    /// What it is.
    pub cause: Cause,
    /// The task (`domain/task`) or the VCPU (`domain`, or `domain/vcpu` if it has several) behind it.
    pub who: Option<String>,
    /// Why another VCPU ran, or why the guest was left.
    pub rule: Option<Rule>,
    /// The VCPU that was to handle the packet meanwhile; null for a job.
    pub at: Option<String>,
    /// Its share of the lateness.
    pub ns: i64,
    /// Its part of the response.
    pub delay_ns: i64,
}

/// The sum of a cause over all late jobs of a task.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Total {
    /// The task that was late: `domain/task`; for packets `domain/packets`, with the domain that handles them; for
    /// messages `domain/registrations`, with that of the signalling server; and `domain/outage`.
    pub task: String,
    /// What it is.
    pub cause: Cause,
    /// The task or VCPU behind it, as in [`ExplainedCause`].
    pub who: Option<String>,
    /// Why another VCPU ran, or why the guest was left.
    pub rule: Option<Rule>,
    /// The VCPU that was to handle packets meanwhile; null for jobs.
    pub at: Option<String>,
    /// Its share of the lateness.
    pub ns: i64,
    /// The number of late jobs in which it has a share.
    pub jobs: u64,
}

/// The use of the time that a VCPU had its CPU.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Guest {
    /// The VCPU, as in [`ExplainedCause`].
    pub vcpu: String,
    /// The time that it had its CPU, ns.
    pub ran_ns: i64,
    /// Exits of its guest, from the reason with the most time to that with the least.
    pub exits: Vec<Exits>,
}

/// Exits of a guest for one reason.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Exits {
    /// The reason.
    pub reason: Exit,
    /// How many there were; one that the run began with is not counted.
    pub count: u64,
    /// The time after them that the host had the VCPU's CPU, until the guest was entered again, ns.
    pub ns: i64,
}

/// The domain, the task ([`PACKETS`] for packets), and the cause.
type TotalKey = (u16, u32, Option<(u16, u16)>, Key);

/// Packets, messages and outages, in place of a task.
const PACKETS: u32 = u32::MAX;
const REGISTRATIONS: u32 = u32::MAX - 1;
const OUTAGE: u32 = u32::MAX - 2;

/// The kinds of late things, by [`Late::kind`].
const KINDS: [&str; 4] = ["job", "packet", "message", "outage"];
const OUTAGES: usize = 3;

/// Collects the jobs of a trace.
struct Answering<'a> {
    metadata: &'a Metadata,
    question: &'a Question,
    answer: Answer,
    /// The sums by key, as numbers, which are compared faster.
    totals: BTreeMap<(u64, u64, u64), (TotalKey, i64, u64)>,
    /// The latest of each kind, the least late first.
    worst: [BinaryHeap<Worst>; KINDS.len()],
}

/// A job or a packet.
#[derive(PartialEq, Eq)]
enum Late {
    Job(Job),
    Packet(Packet),
}

impl Late {
    /// The place of its kind among [`KINDS`].
    fn kind(&self) -> usize {
        match self {
            Late::Job(_) => 0,
            Late::Packet(packet) => match packet.subject {
                Subject::Voice => 1,
                Subject::Registration => 2,
                Subject::Outage => OUTAGES,
            },
        }
    }

    fn is_late(&self) -> bool {
        match self {
            Late::Job(job) => job.late_ns > 0 || !job.is_complete,
            Late::Packet(_) => true,
        }
    }
}

/// An entry among the worst; the greatest is dropped first.
#[derive(PartialEq, Eq)]
struct Worst(Late);

impl Worst {
    /// Jobs that met their deadline come last.
    fn order(&self) -> (bool, i64, i64, u16, u32, u64) {
        let (late_ns, end_ns, domain, stream, number) = match &self.0 {
            Late::Job(job) => (job.late_ns, job.end_ns, job.domain, job.task, job.number),
            Late::Packet(packet) => (
                packet.late_ns,
                packet.end_ns,
                packet.domain,
                packet.stream,
                packet.number,
            ),
        };
        let is_in_time = !self.0.is_late();
        (is_in_time, -late_ns, end_ns, domain, stream, number)
    }
}

impl Ord for Worst {
    fn cmp(&self, other: &Worst) -> std::cmp::Ordering {
        self.order().cmp(&other.order())
    }
}

impl PartialOrd for Worst {
    fn partial_cmp(&self, other: &Worst) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// Explains the late jobs, packets and outages of a trace; packets and outages only as far as `watch` has seen them,
/// in a first reading of the trace.
///
/// # Errors
///
/// The trace is damaged, or its backlog too large.
pub fn why<R: Read>(
    reader: Reader<R>,
    watch: &Watch,
    question: &Question,
) -> Result<Answer, WhyError> {
    let metadata = reader.metadata().clone();
    let mut account = Account::new(&metadata, question.every_job);
    account.watch(watch);
    let mut answering = Answering::new(&metadata, question);
    for record in reader {
        let record = record?;
        let job = (account.record(&record)).map_err(|_| WhyError::TooMany {
            time_ns: record.time_ns,
        })?;
        if let Some(job) = job {
            answering.job(job);
        }
        if Subject::of(record.kind).is_some()
            && let Some(packet) = account.take_packet()
        {
            answering.packet(packet);
        }
    }
    for job in account.finish() {
        answering.job(job);
    }
    for (vcpu, time) in account.guests() {
        answering.guest(vcpu, &time);
    }
    Ok(answering.finish())
}

impl<'a> Answering<'a> {
    fn new(metadata: &'a Metadata, question: &'a Question) -> Answering<'a> {
        Answering {
            metadata,
            question,
            answer: Answer {
                jobs: 0,
                late_jobs: 0,
                late_packets: 0,
                lost_packets: 0,
                late_messages: 0,
                lost_messages: 0,
                outages: 0,
                late_sum_ns: 0,
                late: Vec::new(),
                totals: Vec::new(),
                guests: Vec::new(),
                not_seen: (metadata.calls.as_ref())
                    .map_or_else(Vec::new, |calls| calls.not_seen.clone()),
            },
            totals: BTreeMap::new(),
            worst: std::array::from_fn(|_| BinaryHeap::new()),
        }
    }

    fn job(&mut self, job: Job) {
        let is_asked = match self.question.task {
            Some(task) => task == (job.domain, job.task),
            None => true,
        };
        if !is_asked || job.deadline_ns > self.metadata.duration_ns {
            return;
        }
        self.answer.jobs += 1;
        let late = Late::Job(job);
        if let (Late::Job(job), true) = (&late, late.is_late()) {
            self.answer.late_jobs += 1;
            self.answer.late_sum_ns = self.answer.late_sum_ns.saturating_add(job.late_ns);
            for part in &job.parts {
                self.total(job.domain, job.task, None, part);
            }
        } else if !self.question.every_job {
            return;
        }
        self.keep(late);
    }

    fn packet(&mut self, packet: Packet) {
        if self.question.task.is_some() {
            return;
        }
        let answer = &mut self.answer;
        let (task, count) = match (packet.subject, packet.fate) {
            (Subject::Voice, Fate::Lost) => (PACKETS, &mut answer.lost_packets),
            (Subject::Voice, _) => (PACKETS, &mut answer.late_packets),
            (Subject::Registration, Fate::Lost) => (REGISTRATIONS, &mut answer.lost_messages),
            (Subject::Registration, _) => (REGISTRATIONS, &mut answer.late_messages),
            (Subject::Outage, _) => (OUTAGE, &mut answer.outages),
        };
        *count += 1;
        self.answer.late_sum_ns = self.answer.late_sum_ns.saturating_add(packet.late_ns);
        for PacketPart { at, part } in &packet.parts {
            self.total(packet.domain, task, *at, part);
        }
        self.keep(Late::Packet(packet));
    }

    fn guest(&mut self, (domain, vcpu): (u16, u16), time: &GuestTime) {
        let mut exits: Vec<Exits> = (Exit::ALL.into_iter().zip(time.exits))
            .map(|(reason, (count, ns))| Exits { reason, count, ns })
            .filter(|exits| exits.count > 0 || exits.ns > 0)
            .collect();
        exits.sort_by_key(|exits| -exits.ns);
        if let Some(vcpu) = self.name(Who::Vcpu(domain, vcpu)) {
            self.answer.guests.push(Guest {
                vcpu,
                ran_ns: time.ran_ns,
                exits,
            });
        }
    }

    /// Adds a part of what was late to the sums.
    fn total(&mut self, domain: u16, task: u32, at: Option<(u16, u16)>, part: &Part) {
        if part.ns <= 0 {
            return;
        }
        let key = Key {
            cause: part.cause,
            who: part.who,
            rule: part.rule,
        };
        let numbers = (
            u64::from(domain) << 32 | u64::from(task),
            at.map_or(0, |(domain, vcpu)| {
                1 << 32 | u64::from(domain) << 16 | u64::from(vcpu)
            }),
            key.packed(),
        );
        let (_, ns, count) =
            (self.totals.entry(numbers)).or_insert_with(|| ((domain, task, at, key), 0, 0));
        *ns = ns.saturating_add(part.ns);
        *count += 1;
    }

    fn keep(&mut self, late: Late) {
        match self.question.worst {
            None => {
                let explained = self.explained(&late);
                self.answer.late.push(explained);
            }
            Some(most) => {
                let worst = &mut self.worst[late.kind()];
                let late = Worst(late);
                if worst.len() < most {
                    worst.push(late);
                } else if let Some(mut least) = worst.peek_mut()
                    && late < *least
                {
                    *least = late;
                }
            }
        }
    }

    fn finish(mut self) -> Answer {
        for Worst(late) in self.take_worst() {
            let explained = self.explained(&late);
            self.answer.late.push(explained);
        }
        let mut totals: Vec<_> = std::mem::take(&mut self.totals).into_values().collect();
        totals.sort_unstable_by_key(|&(key, ns, _)| (-ns, key));
        self.answer.totals = (totals.into_iter())
            .map(|((domain, task, at, key), ns, jobs)| Total {
                task: self.task_name(domain, task),
                at: self.at_name(at),
                cause: key.cause,
                who: self.name(key.who),
                rule: key.rule,
                ns,
                jobs,
            })
            .collect();
        self.answer
    }

    /// The worst, from the latest on, as [`Question::worst`] says.
    fn take_worst(&mut self) -> Vec<Worst> {
        let most = self.question.worst.unwrap_or(0);
        let mut kinds = std::mem::take(&mut self.worst).map(BinaryHeap::into_sorted_vec);
        kinds.sort_by(|one, other| {
            let rank = |of_kind: &[Worst]| {
                let first = of_kind.first()?;
                Some((first.0.kind() != OUTAGES, first.order()))
            };
            rank(one).cmp(&rank(other))
        });
        let late = |of_kind: &Vec<Worst>| of_kind.partition_point(|each| each.0.is_late());
        let late_kinds = kinds.iter().filter(|of_kind| late(of_kind) > 0).count();
        let most_of_kind = (most / late_kinds.max(1)).max(1);
        let mut worst = Vec::new();
        let mut others = Vec::new();
        for mut of_kind in kinds {
            let kept = late(&of_kind).min(most_of_kind).min(most - worst.len());
            others.extend(of_kind.split_off(kept));
            worst.extend(of_kind);
        }
        others.sort();
        others.truncate(most - worst.len());
        worst.extend(others);
        worst.sort();
        worst
    }

    fn explained(&self, late: &Late) -> Explained {
        match late {
            Late::Job(job) => self.explained_job(late.kind(), job),
            Late::Packet(packet) => self.explained_packet(late.kind(), packet),
        }
    }

    fn causes(&self, parts: impl Iterator<Item = PacketPart>) -> Vec<ExplainedCause> {
        let cause = |PacketPart { at, part }: PacketPart| ExplainedCause {
            cause: part.cause,
            who: self.name(part.who),
            rule: part.rule,
            at: self.at_name(at),
            ns: part.ns,
            delay_ns: part.delay_ns,
        };
        let mut causes: Vec<ExplainedCause> = parts.map(cause).collect();
        causes.sort_by_key(|cause| (-cause.ns, -cause.delay_ns));
        causes
    }

    fn explained_packet(&self, kind: usize, packet: &Packet) -> Explained {
        let domain = &self.metadata.domains[usize::from(packet.domain)].name;
        Explained {
            what: match packet.subject {
                Subject::Voice => format!("{domain}/stream-{}#{}", packet.stream, packet.number),
                Subject::Registration => {
                    format!("{domain}/registration-{}#{}", packet.stream, packet.number)
                }
                Subject::Outage => format!("{domain}/outage"),
            },
            kind: KINDS[kind],
            packet: (packet.subject != Subject::Outage).then_some(match packet.fate {
                Fate::Arrived => "late",
                Fate::Lost => "lost",
                Fate::Unfinished => "unfinished",
            }),
            lost_at: packet.lost_at,
            arrival_ns: packet.sent_ns,
            deadline_ns: packet.deadline_ns,
            completion_ns: (packet.fate == Fate::Arrived).then_some(packet.end_ns),
            late_ns: packet.late_ns,
            causes: self.causes(packet.parts.iter().copied()),
        }
    }

    fn explained_job(&self, kind: usize, job: &Job) -> Explained {
        let part = |&part: &Part| PacketPart { at: None, part };
        let causes = self.causes(job.parts.iter().map(part));
        Explained {
            kind: KINDS[kind],
            packet: None,
            lost_at: None,
            what: format!("{}#{}", self.task_name(job.domain, job.task), job.number),
            arrival_ns: job.arrival_ns,
            deadline_ns: job.deadline_ns,
            completion_ns: job.is_complete.then_some(job.end_ns),
            late_ns: job.late_ns,
            causes,
        }
    }

    fn task_name(&self, domain: u16, task: u32) -> String {
        let domain = &self.metadata.domains[usize::from(domain)];
        let task = match task {
            PACKETS => "packets",
            REGISTRATIONS => "registrations",
            OUTAGE => "outage",
            task => &domain.tasks[task as usize].name,
        };
        format!("{}/{task}", domain.name)
    }

    fn at_name(&self, at: Option<(u16, u16)>) -> Option<String> {
        at.and_then(|(domain, vcpu)| self.name(Who::Vcpu(domain, vcpu)))
    }

    fn name(&self, who: Who) -> Option<String> {
        match who {
            Who::Nobody => None,
            Who::Task(domain, task) => Some(self.task_name(domain, task)),
            Who::Vcpu(domain, vcpu) => {
                let of_vcpu = &self.metadata.domains[usize::from(domain)];
                Some(if of_vcpu.vcpus == 1 || of_vcpu.is_beside() {
                    of_vcpu.name.clone()
                } else {
                    self.metadata.vcpu_name(domain, vcpu)
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(late_ns: i64) -> Job {
        Job {
            domain: 0,
            task: 0,
            number: 0,
            arrival_ns: 0,
            deadline_ns: 100,
            end_ns: 100 + late_ns,
            is_complete: true,
            late_ns: late_ns.max(0),
            parts: Vec::new(),
        }
    }

    fn packet(subject: Subject, late_ns: i64) -> Packet {
        Packet {
            subject,
            domain: 0,
            stream: 0,
            number: 0,
            sent_ns: 0,
            deadline_ns: 100,
            end_ns: 100 + late_ns,
            fate: Fate::Arrived,
            lost_at: None,
            late_ns,
            parts: Vec::new(),
        }
    }

    /// The kinds and latenesses that are explained, of so many.
    fn worst(jobs: &[i64], packets: &[(Subject, i64)], most: usize) -> Vec<(&'static str, i64)> {
        let metadata = Metadata {
            substrate: "sim".into(),
            policy: "credit".into(),
            seed: 0,
            duration_ns: 1_000_000,
            cpus: 1,
            domains: vec![laxity_trace::DomainMetadata {
                name: "domain".into(),
                vcpus: 1,
                budget_ns: 0,
                period_ns: 0,
                real_time: false,
                tasks: vec![laxity_trace::TaskMetadata {
                    name: "task".into(),
                    vcpu: 0,
                    cost_ns: 1,
                    period_ns: 100,
                    deadline_ns: 100,
                    offset_ns: 0,
                }],
            }],
            calls: None,
            programs_in: None,
        };
        let question = Question {
            worst: Some(most),
            every_job: true,
            ..Question::default()
        };
        let mut answering = Answering::new(&metadata, &question);
        jobs.iter().for_each(|&late_ns| answering.job(job(late_ns)));
        for &(subject, late_ns) in packets {
            answering.packet(packet(subject, late_ns));
        }
        let late = answering.finish().late;
        late.iter().map(|late| (late.kind, late.late_ns)).collect()
    }

    #[test]
    fn no_kind_hides_another_and_outages_come_first() {
        let packets = [
            (Subject::Voice, 700),
            (Subject::Voice, 800),
            (Subject::Registration, 500),
            (Subject::Registration, 600),
            (Subject::Outage, 10),
            (Subject::Outage, 20),
        ];
        let (job, voice, message, outage) = (
            ("job", 900),
            ("packet", 800),
            ("message", 600),
            ("outage", 20),
        );
        for (most, expected) in [
            (1, vec![outage]),
            (2, vec![job, outage]),
            (3, vec![job, voice, outage]),
            (4, vec![job, voice, message, outage]),
            (5, vec![job, voice, ("packet", 700), message, outage]),
        ] {
            assert_eq!(worst(&[300, 900], &packets, most), expected);
        }
    }

    #[test]
    fn jobs_in_time_have_no_part() {
        let packets = [5, 6, 7].map(|late_ns| (Subject::Outage, late_ns));
        let outages = [("outage", 7), ("outage", 6), ("outage", 5), ("job", 0)];
        for most in 1..=4 {
            assert_eq!(worst(&[-50, -60], &packets, most), outages[..most]);
        }
        // A part that jobs do not fill with late ones is for others.
        assert_eq!(
            worst(&[9, -50, -60], &packets, 4),
            [("job", 9), outages[0], outages[1], outages[2]]
        );
    }
}
