//! A whole trace for a picture that zooms: exact stretches one behind the other, and an overview of
//! all of it in cells. Both are bytes, which `python/laxity/report/timeline.js` decodes.
//!
//! VCPUs and tasks are numbered through all domains, in the order of the metadata. A number is LEB128;
//! a signed one is zigzag before that. Each column stands whole before the next one, which is what
//! deflate likes.
//!
//! A stretch:
//!
//! | what | columns |
//! |---|---|
//! | number of spans | CPU; VCPU; start, from the end of the CPU's span before (or the stretch's beginning); length; task + 1, or 0; job, signed, from the task's job before |
//! | number of points | 0 arrival, 1 completion, 2 missed deadline; task; time, from the point before (or the stretch's beginning); job, as above |
//! | for each VCPU the number of points of its budget | time, signed, from the point before (or the stretch's beginning); value, signed, from the one before (or 0) |
//! | only if the host had time of spans: number of such times | span, from that of the time before (or 0); reason of the exits; time |
//!
//! The overview:
//!
//! | what | columns |
//! |---|---|
//! | length of a cell in ns; number of pairs of a CPU and a VCPU that ran on it | for each pair: CPU; VCPU; number of cells; cell, from the one before; part of the cell in which it did not run |
//! | number of VCPUs that missed deadlines | for each: VCPU; number of cells; cell, from the one before; missed deadlines |

use crate::budget::BudgetLine;
use crate::deadlines::{Deadlines, Job};
use crate::{Exit, Kind, Metadata, Reader, Record, TraceError};
use std::collections::{BTreeMap, HashMap};
use std::io::Read;

/// Into so many cells the overview cuts the run at first.
const CELLS: i64 = 1 << 16;

/// An overview with more cells in which something ran is made coarser.
const OVERVIEW_CELLS_MAX: usize = 1 << 18;

/// A whole trace, encoded.
#[derive(Debug)]
pub struct Levels {
    /// The run from its beginning to its end, exact.
    pub stretches: Vec<Stretch>,
    /// All of it at once, in cells.
    pub overview: Vec<u8>,
}

/// A part of the run, exact.
#[derive(Debug)]
pub struct Stretch {
    /// Where it begins.
    pub from_ns: i64,
    /// Where it ends, and the next one begins.
    pub to_ns: i64,
    /// What is in it, as the module says.
    pub bytes: Vec<u8>,
}

/// Encodes the whole trace, in stretches of about `records` records each.
///
/// # Errors
///
/// The trace is damaged.
pub fn levels<R: Read>(reader: Reader<R>, records: usize) -> Result<Levels, TraceError> {
    let metadata = reader.metadata().clone();
    let mut encoder = Encoder::new(&metadata, CELLS, OVERVIEW_CELLS_MAX);
    let (mut taken, mut last_ns) = (0, 0);
    for record in reader {
        let record = record?;
        if record.time_ns > metadata.duration_ns {
            break;
        }
        encoder.misses_before(record.time_ns);
        // What happens at one instant stays together.
        if taken >= records && record.time_ns > last_ns {
            encoder.end_stretch(record.time_ns);
            taken = 0;
        }
        encoder.record(&record);
        (taken, last_ns) = (taken + 1, record.time_ns);
    }
    Ok(encoder.finish())
}

/// A VCPU ran on a CPU, for a job if it is known for which.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    cpu: u16,
    vcpu: u32,
    start_ns: i64,
    end_ns: i64,
    /// The task and the job's number.
    job: Option<(u32, u64)>,
    /// The time of it that the host had after exits of the guest, by [`Exit`].
    exits_ns: [i64; Exit::ALL.len()],
}

/// An arrival, a completion or a missed deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Point {
    what: u8,
    time_ns: i64,
    task: u32,
    job: u64,
}

const ARRIVAL: u8 = 0;
const COMPLETION: u8 = 1;
const MISS: u8 = 2;

struct Encoder<'a> {
    metadata: &'a Metadata,
    /// The number of each domain's first VCPU, and of its first task.
    first: Vec<(u32, u32)>,
    /// The VCPU of each task.
    vcpu_of_task: Vec<u32>,
    /// Where a VCPU runs.
    cpu_of_vcpu: Vec<Option<u16>>,
    running: Vec<Option<Span>>,
    /// Why the guest of a VCPU was left, and since when.
    left: Vec<Option<(Exit, i64)>>,
    deadlines: Deadlines,
    budgets: Vec<BudgetLine>,
    from_ns: i64,
    spans: Vec<Span>,
    points: Vec<Point>,
    stretches: Vec<Stretch>,
    overview: Overview,
}

impl<'a> Encoder<'a> {
    fn new(metadata: &'a Metadata, cells: i64, cells_max: usize) -> Self {
        let mut encoder = Encoder {
            metadata,
            first: Vec::new(),
            vcpu_of_task: Vec::new(),
            cpu_of_vcpu: Vec::new(),
            running: vec![None; metadata.lanes() as usize],
            left: Vec::new(),
            deadlines: Deadlines::default(),
            budgets: Vec::new(),
            from_ns: 0,
            spans: Vec::new(),
            points: Vec::new(),
            stretches: Vec::new(),
            overview: Overview::new(metadata.duration_ns, cells, cells_max),
        };
        for domain in &metadata.domains {
            let first = encoder.budgets.len() as u32;
            (encoder.first).push((first, encoder.vcpu_of_task.len() as u32));
            let initial_ns = metadata.initial_budget_ns(domain);
            let line = BudgetLine::new(initial_ns, metadata.has_credits(), 0);
            (encoder.budgets).resize(encoder.budgets.len() + domain.vcpus as usize, line);
            let of_tasks = domain.tasks.iter().map(|task| first + task.vcpu);
            encoder.vcpu_of_task.extend(of_tasks);
        }
        encoder.cpu_of_vcpu = vec![None; encoder.budgets.len()];
        encoder.left = vec![None; encoder.budgets.len()];
        encoder
    }

    /// The VCPU's number; None for a record of no VCPU.
    fn vcpu(&self, record: &Record) -> Option<u32> {
        let (first, _) = self.first.get(usize::from(record.domain))?;
        Some(first + u32::from(record.vcpu))
    }

    fn task(&self, job: Job) -> u32 {
        self.first[usize::from(job.domain)].1 + job.task
    }

    fn record(&mut self, record: &Record) {
        self.deadlines.record(self.metadata, record);
        let Some(vcpu) = self.vcpu(record) else {
            return;
        };
        match record.kind {
            Kind::Run => {
                self.leave(record.cpu, record.time_ns);
                self.enter(record.cpu, vcpu, record.time_ns, None);
            }
            Kind::Stop => self.leave(record.cpu, record.time_ns),
            Kind::Execute => {
                let job = Job::of(record);
                self.work_on(vcpu, record.time_ns, Some((self.task(job), job.number)));
            }
            Kind::Release => self.point(ARRIVAL, record.time_ns, Job::of(record)),
            Kind::Complete => {
                self.point(COMPLETION, record.time_ns, Job::of(record));
                self.work_on(vcpu, record.time_ns, None);
            }
            Kind::Exit | Kind::Enter => {
                let left = &mut self.left[vcpu as usize];
                for span in self.running.iter_mut().flatten() {
                    if span.vcpu == vcpu {
                        add_exit(span, *left, record.time_ns);
                    }
                }
                let exit = Exit::of(record.argument).filter(|_| record.kind == Kind::Exit);
                *left = exit.map(|exit| (exit, record.time_ns));
            }
            _ => {}
        }
        self.budgets[vcpu as usize].record(record);
    }

    fn enter(&mut self, cpu: u16, vcpu: u32, time_ns: i64, job: Option<(u32, u64)>) {
        self.cpu_of_vcpu[vcpu as usize] = Some(cpu);
        self.running[usize::from(cpu)] = Some(Span {
            cpu,
            vcpu,
            start_ns: time_ns,
            end_ns: time_ns,
            job,
            exits_ns: Default::default(),
        });
    }

    fn leave(&mut self, cpu: u16, time_ns: i64) {
        if let Some(span) = self.running[usize::from(cpu)].take() {
            self.cpu_of_vcpu[span.vcpu as usize] = None;
            self.ran(span, time_ns);
        }
    }

    /// From now on the VCPU works on another job, or on none that is known.
    fn work_on(&mut self, vcpu: u32, time_ns: i64, job: Option<(u32, u64)>) {
        if let Some(cpu) = self.cpu_of_vcpu[vcpu as usize] {
            self.leave(cpu, time_ns);
            self.enter(cpu, vcpu, time_ns, job);
        }
    }

    fn ran(&mut self, span: Span, end_ns: i64) {
        if span.start_ns < end_ns {
            let mut span = Span { end_ns, ..span };
            let left = self.left[span.vcpu as usize];
            add_exit(&mut span, left, end_ns);
            self.overview.ran(&span);
            self.spans.push(span);
        }
    }

    fn point(&mut self, what: u8, time_ns: i64, job: Job) {
        let point = Point {
            what,
            time_ns,
            task: self.task(job),
            job: job.number,
        };
        if what == MISS {
            let vcpu = self.vcpu_of_task[point.task as usize];
            self.overview.missed(vcpu, time_ns);
        }
        self.points.push(point);
    }

    fn misses_before(&mut self, time_ns: i64) {
        while let Some((deadline_ns, job)) = self.deadlines.missed_before(time_ns) {
            self.point(MISS, deadline_ns, job);
        }
    }

    /// Cuts what runs in two: one part ends here, the other begins the next stretch.
    fn end_stretch(&mut self, to_ns: i64) {
        for cpu in 0..self.running.len() {
            if let Some(span) = self.running[cpu] {
                self.ran(span, to_ns);
                self.running[cpu] = Some(Span {
                    start_ns: to_ns,
                    exits_ns: Default::default(),
                    ..span
                });
            }
        }
        let mut bytes = Vec::new();
        encode_spans(&mut bytes, self.from_ns, &self.spans);
        encode_points(&mut bytes, self.from_ns, &self.points);
        for line in &mut self.budgets {
            encode_budget(&mut bytes, self.from_ns, &line.take());
        }
        encode_exits(&mut bytes, &self.spans);
        self.stretches.push(Stretch {
            from_ns: self.from_ns,
            to_ns,
            bytes,
        });
        self.spans.clear();
        self.points.clear();
        self.from_ns = to_ns;
    }

    fn finish(mut self) -> Levels {
        let end_ns = self.metadata.duration_ns;
        self.misses_before(end_ns.saturating_add(1));
        for line in &mut self.budgets {
            line.go_on_to(end_ns);
        }
        self.end_stretch(end_ns);
        Levels {
            stretches: self.stretches,
            overview: self.overview.bytes(),
        }
    }
}

/// The cells in which something was, with how much, in order of time.
type Cells = Vec<(i64, i64)>;

/// The whole run in equal cells, which become twice as long whenever there would be too many.
#[derive(Debug)]
struct Overview {
    cell_ns: i64,
    cells_max: usize,
    /// Cells in all of `ran`.
    cells: usize,
    /// The time for which a VCPU ran on a CPU.
    ran: BTreeMap<(u16, u32), Cells>,
    /// The deadlines that a VCPU's jobs missed.
    missed: BTreeMap<u32, Cells>,
}

impl Overview {
    fn new(duration_ns: i64, cells: i64, cells_max: usize) -> Self {
        Overview {
            cell_ns: (duration_ns / cells).max(0) + 1,
            cells_max,
            cells: 0,
            ran: BTreeMap::new(),
            missed: BTreeMap::new(),
        }
    }

    fn ran(&mut self, span: &Span) {
        let cells = self.ran.entry((span.cpu, span.vcpu)).or_default();
        let before = cells.len();
        let mut start_ns = span.start_ns;
        while start_ns < span.end_ns {
            let cell = start_ns / self.cell_ns;
            let end_ns = (span.end_ns).min(cell.saturating_add(1).saturating_mul(self.cell_ns));
            add(cells, cell, end_ns - start_ns);
            start_ns = end_ns;
        }
        self.cells += cells.len() - before;
        while self.cells > self.cells_max && self.cell_ns < i64::MAX / 2 {
            self.coarser();
        }
    }

    fn missed(&mut self, vcpu: u32, time_ns: i64) {
        let cells = self.missed.entry(vcpu).or_default();
        add(cells, time_ns / self.cell_ns, 1);
    }

    /// Puts every two cells together.
    fn coarser(&mut self) {
        self.cell_ns *= 2;
        let all = self.ran.values_mut().chain(self.missed.values_mut());
        for cells in all {
            let mut halved = Cells::with_capacity(cells.len() / 2 + 1);
            for &(cell, value) in &*cells {
                add(&mut halved, cell / 2, value);
            }
            *cells = halved;
        }
        self.cells = self.ran.values().map(Vec::len).sum();
    }

    fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        unsigned(&mut out, self.cell_ns);
        unsigned(&mut out, self.ran.len() as i64);
        for (&(cpu, vcpu), cells) in &self.ran {
            unsigned(&mut out, cpu.into());
            unsigned(&mut out, vcpu.into());
            encode_cells(&mut out, cells, |ran_ns| self.cell_ns - ran_ns);
        }
        unsigned(&mut out, self.missed.len() as i64);
        for (&vcpu, cells) in &self.missed {
            unsigned(&mut out, vcpu.into());
            encode_cells(&mut out, cells, |missed| missed);
        }
        out
    }
}

/// Adds to a span the time up to now since the guest was left, or since the span began.
fn add_exit(span: &mut Span, left: Option<(Exit, i64)>, now_ns: i64) {
    if let Some((exit, since_ns)) = left {
        span.exits_ns[exit as usize] += now_ns - since_ns.max(span.start_ns);
    }
}

/// Adds to a cell that is the last one, or comes after it.
fn add(cells: &mut Cells, cell: i64, value: i64) {
    match cells.last_mut() {
        Some((last, sum)) if *last == cell => *sum += value,
        _ => cells.push((cell, value)),
    }
}

fn unsigned(out: &mut Vec<u8>, value: i64) {
    let mut rest = value as u64;
    while rest > 0x7F {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

fn signed(out: &mut Vec<u8>, value: i64) {
    unsigned(out, (value << 1) ^ (value >> 63));
}

fn encode_cells(out: &mut Vec<u8>, cells: &Cells, value: impl Fn(i64) -> i64) {
    unsigned(out, cells.len() as i64);
    let mut before = 0;
    for &(cell, _) in cells {
        unsigned(out, cell - before);
        before = cell;
    }
    for &(_, of_cell) in cells {
        unsigned(out, value(of_cell));
    }
}

/// The numbers of jobs as the difference from the job of the same task before.
#[derive(Default)]
struct Jobs(HashMap<u32, u64>);

impl Jobs {
    fn step(&mut self, task: u32, job: u64) -> i64 {
        let before = self.0.insert(task, job).unwrap_or(0);
        job as i64 - before as i64
    }
}

fn encode_spans(out: &mut Vec<u8>, from_ns: i64, spans: &[Span]) {
    unsigned(out, spans.len() as i64);
    spans.iter().for_each(|span| unsigned(out, span.cpu.into()));
    (spans.iter()).for_each(|span| unsigned(out, span.vcpu.into()));
    let mut ends: HashMap<u16, i64> = HashMap::new();
    for span in spans {
        let end_ns = ends.insert(span.cpu, span.end_ns).unwrap_or(from_ns);
        unsigned(out, span.start_ns - end_ns);
    }
    (spans.iter()).for_each(|span| unsigned(out, span.end_ns - span.start_ns));
    (spans.iter()).for_each(|span| unsigned(out, span.job.map_or(0, |(task, _)| task as i64 + 1)));
    let mut jobs = Jobs::default();
    for (task, job) in spans.iter().filter_map(|span| span.job) {
        signed(out, jobs.step(task, job));
    }
}

fn encode_points(out: &mut Vec<u8>, from_ns: i64, points: &[Point]) {
    unsigned(out, points.len() as i64);
    (points.iter()).for_each(|point| unsigned(out, point.what.into()));
    (points.iter()).for_each(|point| unsigned(out, point.task.into()));
    let mut before_ns = from_ns;
    for point in points {
        unsigned(out, point.time_ns - before_ns);
        before_ns = point.time_ns;
    }
    let mut jobs = Jobs::default();
    (points.iter()).for_each(|point| signed(out, jobs.step(point.task, point.job)));
}

fn encode_budget(out: &mut Vec<u8>, from_ns: i64, points: &[(i64, i64)]) {
    unsigned(out, points.len() as i64);
    let (mut before_ns, mut before_value_ns) = (from_ns, 0);
    for &(time_ns, _) in points {
        signed(out, time_ns.wrapping_sub(before_ns));
        before_ns = time_ns;
    }
    for &(_, value_ns) in points {
        signed(out, value_ns.wrapping_sub(before_value_ns));
        before_value_ns = value_ns;
    }
}

fn encode_exits(out: &mut Vec<u8>, spans: &[Span]) {
    let mut times = Vec::new();
    for (place, span) in (0..).zip(spans) {
        let of_span = span.exits_ns.iter().zip(0..).filter(|(ns, _)| **ns > 0);
        times.extend(of_span.map(|(&ns, exit)| (place, exit, ns)));
    }
    if times.is_empty() {
        return;
    }
    unsigned(out, times.len() as i64);
    let mut before = 0;
    for &(place, _, _) in &times {
        unsigned(out, place - before);
        before = place;
    }
    times.iter().for_each(|&(_, exit, _)| unsigned(out, exit));
    times.iter().for_each(|&(_, _, ns)| unsigned(out, ns));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DomainMetadata, TaskMetadata, job, sample, timeline};
    use proptest::prelude::*;

    /// Reads what the encoder writes, slowly.
    struct Bytes<'a>(std::slice::Iter<'a, u8>);

    impl Bytes<'_> {
        fn unsigned(&mut self) -> i64 {
            let mut value = 0;
            for shift in (0..).step_by(7) {
                let byte = *self.0.next().expect("a number ends");
                value |= u64::from(byte & 0x7F) << shift;
                if byte < 0x80 {
                    break;
                }
            }
            value as i64
        }

        fn signed(&mut self) -> i64 {
            let value = self.unsigned() as u64;
            (value >> 1) as i64 ^ -((value & 1) as i64)
        }

        fn column(&mut self, length: i64) -> Vec<i64> {
            (0..length).map(|_| self.unsigned()).collect()
        }

        fn signed_column(&mut self, length: usize) -> Vec<i64> {
            (0..length).map(|_| self.signed()).collect()
        }
    }

    /// The job's number, from the difference to the one before.
    fn follow(jobs: &mut HashMap<i64, i64>, task: i64, step: i64) -> u64 {
        let job = jobs.entry(task).or_default();
        *job += step;
        *job as u64
    }

    /// What stretches say together.
    #[derive(Debug, Default, PartialEq)]
    struct Decoded {
        spans: Vec<Span>,
        points: Vec<Point>,
        budgets: Vec<Vec<(i64, i64)>>,
    }

    fn decoded(stretch: &Stretch, vcpus: usize) -> Decoded {
        let mut bytes = Bytes(stretch.bytes.iter());
        let mut all = Decoded::default();
        let length = bytes.unsigned();
        let [cpu, vcpu, gap, ran, task] = [(); 5].map(|()| bytes.column(length));
        let of_jobs = task.iter().filter(|&&task| task > 0).count();
        let mut steps = bytes.signed_column(of_jobs).into_iter();
        let (mut ends, mut jobs) = (HashMap::new(), HashMap::new());
        for at in 0..length as usize {
            let start_ns = ends.get(&cpu[at]).unwrap_or(&stretch.from_ns) + gap[at];
            ends.insert(cpu[at], start_ns + ran[at]);
            let job = (task[at] > 0).then(|| {
                let step = steps.next().expect("a step for each job");
                let task = task[at] - 1;
                (task as u32, follow(&mut jobs, task, step))
            });
            all.spans.push(Span {
                cpu: cpu[at] as u16,
                vcpu: vcpu[at] as u32,
                start_ns,
                end_ns: start_ns + ran[at],
                job,
                exits_ns: Default::default(),
            });
        }
        let length = bytes.unsigned();
        let [what, task, after] = [(); 3].map(|()| bytes.column(length));
        let steps = bytes.signed_column(length as usize);
        let (mut time_ns, mut jobs) = (stretch.from_ns, HashMap::new());
        for at in 0..length as usize {
            time_ns += after[at];
            all.points.push(Point {
                what: what[at] as u8,
                time_ns,
                task: task[at] as u32,
                job: follow(&mut jobs, task[at], steps[at]),
            });
        }
        for _ in 0..vcpus {
            let length = bytes.unsigned() as usize;
            let [times, values] = [(); 2].map(|()| bytes.signed_column(length));
            let (mut time_ns, mut value_ns) = (stretch.from_ns, 0);
            let of_vcpu = times.iter().zip(&values).map(|(after_ns, more_ns)| {
                time_ns += after_ns;
                value_ns += more_ns;
                (time_ns, value_ns)
            });
            all.budgets.push(of_vcpu.collect());
        }
        if bytes.0.len() > 0 {
            let length = bytes.unsigned();
            assert!(length > 0, "exits are left out where there are none");
            let [step, exit, ns] = [(); 3].map(|()| bytes.column(length));
            let mut place = 0;
            for at in 0..length as usize {
                place += step[at] as usize;
                all.spans[place].exits_ns[exit[at] as usize] = ns[at];
            }
        }
        assert_eq!(bytes.0.len(), 0, "nothing stands behind the exits");
        all
    }

    /// The length of a cell, who ran in which, and how many deadlines were missed in which.
    type DecodedOverview = (i64, BTreeMap<(u16, u32), Cells>, BTreeMap<u32, Cells>);

    fn decoded_overview(overview: &[u8]) -> DecodedOverview {
        fn cells(bytes: &mut Bytes<'_>) -> Cells {
            let length = bytes.unsigned();
            let [steps, values] = [(); 2].map(|()| bytes.column(length));
            let mut cell = 0;
            let places = steps.iter().map(|step| {
                cell += step;
                cell
            });
            places.zip(values).collect()
        }
        let mut bytes = Bytes(overview.iter());
        let cell_ns = bytes.unsigned();
        let (mut ran, mut missed) = (BTreeMap::new(), BTreeMap::new());
        for _ in 0..bytes.unsigned() {
            let pair = (bytes.unsigned() as u16, bytes.unsigned() as u32);
            let of_pair = cells(&mut bytes);
            let of_pair = of_pair
                .into_iter()
                .map(|(cell, idle_ns)| (cell, cell_ns - idle_ns));
            ran.insert(pair, of_pair.collect());
        }
        for _ in 0..bytes.unsigned() {
            missed.insert(bytes.unsigned() as u32, cells(&mut bytes));
        }
        assert_eq!(bytes.0.len(), 0, "nothing stands behind the overview");
        (cell_ns, ran, missed)
    }

    const TASKS: u32 = 3;
    const VCPUS: u16 = 2;

    /// Two domains with two VCPUs and three tasks each, on two CPUs.
    fn metadata(duration_ns: i64) -> Metadata {
        let tasks = (0..TASKS).map(|task| TaskMetadata {
            name: format!("task-{task}"),
            vcpu: task % 2,
            cost_ns: 3,
            period_ns: 20 + i64::from(task),
            deadline_ns: 9,
            offset_ns: 1,
        });
        let domain = |name: &str| DomainMetadata {
            name: name.into(),
            vcpus: VCPUS.into(),
            budget_ns: 7,
            period_ns: 10,
            real_time: false,
            tasks: tasks.clone().collect(),
        };
        Metadata {
            duration_ns,
            cpus: 2,
            domains: vec![domain("a"), domain("b")],
            ..sample::metadata()
        }
    }

    /// Records in order of time that name only what is there; many of them make no sense.
    fn any_records() -> impl Strategy<Value = Vec<Record>> {
        let kinds = prop::sample::select([&Kind::ALL[..11], &[Kind::Exit, Kind::Enter]].concat());
        let one = (
            kinds,
            0..9i64,
            0..2u16,
            0..2u16,
            0..VCPUS,
            0..TASKS,
            0..9u64,
        );
        prop::collection::vec(one, 0..120).prop_map(|all| {
            let mut time_ns = 0;
            let records =
                all.into_iter()
                    .map(|(kind, after_ns, cpu, domain, vcpu, task, number)| {
                        time_ns += after_ns;
                        let is_of_job = kind.is_of_job();
                        Record {
                            time_ns,
                            argument: if is_of_job {
                                job(task, number)
                            } else {
                                number as i64
                            },
                            cpu,
                            domain,
                            vcpu: if is_of_job { (task % 2) as u16 } else { vcpu },
                            kind,
                        }
                    });
            records.collect()
        })
    }

    /// For each domain, from what each VCPU ran.
    fn of_domains(ran: impl Iterator<Item = (u32, i64)>) -> [i64; 2] {
        let mut sums = [0; 2];
        ran.for_each(|(vcpu, ran_ns)| sums[vcpu as usize / usize::from(VCPUS)] += ran_ns);
        sums
    }

    /// The time that the host had of each VCPU, by reason.
    fn exits_of(spans: &[Span]) -> BTreeMap<(u32, usize), i64> {
        let mut sums = BTreeMap::new();
        for span in spans {
            for (exit, ns) in span
                .exits_ns
                .into_iter()
                .enumerate()
                .filter(|(_, ns)| *ns > 0)
            {
                *sums.entry((span.vcpu, exit)).or_default() += ns;
            }
        }
        sums
    }

    /// The same, by a look at each nanosecond: which VCPU each CPU has, and why its guest was left.
    fn exits_by_ns(records: &[Record], end_ns: i64) -> BTreeMap<(u32, usize), i64> {
        let (mut on_cpu, mut left) = ([None; 2], BTreeMap::new());
        let (mut rest, mut sums) = (records.iter().peekable(), BTreeMap::new());
        for now_ns in 0..end_ns {
            while let Some(record) = rest.next_if(|record| record.time_ns <= now_ns) {
                let vcpu = u32::from(record.domain * VCPUS + record.vcpu);
                match record.kind {
                    Kind::Run => on_cpu[usize::from(record.cpu)] = Some(vcpu),
                    Kind::Stop => on_cpu[usize::from(record.cpu)] = None,
                    Kind::Exit => drop(left.insert(vcpu, record.argument as usize)),
                    Kind::Enter => drop(left.remove(&vcpu)),
                    _ => {}
                }
            }
            for vcpu in on_cpu.into_iter().flatten() {
                if let Some(&exit) = left.get(&vcpu) {
                    *sums.entry((vcpu, exit)).or_default() += 1;
                }
            }
        }
        sums
    }

    proptest! {
        /// The reference is what a picture of the whole run has, which is found in another way.
        #[test]
        fn stretches_say_what_the_timeline_says(records in any_records(), length in 1usize..50) {
            let end_ns = records.last().map_or(0, |record| record.time_ns) + 30;
            let file = sample::file(&metadata(end_ns), &records);
            let whole = timeline(sample::reader(&file), 0, end_ns).expect("the trace is whole");
            let levels = levels(sample::reader(&file), length).expect("the trace is whole");

            let mut spans: Vec<Span> = Vec::new();
            let mut points = Vec::new();
            let mut budgets = vec![Vec::new(); 2 * usize::from(VCPUS)];
            let mut at_ns = 0;
            for stretch in &levels.stretches {
                prop_assert_eq!(stretch.from_ns, at_ns);
                at_ns = stretch.to_ns;
                let all = decoded(stretch, budgets.len());
                for span in all.spans {
                    prop_assert!(stretch.from_ns <= span.start_ns && span.end_ns <= stretch.to_ns);
                    spans.push(span);
                }
                points.extend(all.points);
                for (line, more) in budgets.iter_mut().zip(all.budgets) {
                    line.extend(more);
                }
            }
            prop_assert_eq!(at_ns, end_ns);

            prop_assert_eq!(exits_of(&spans), exits_by_ns(&records, end_ns));
            // Every nanosecond of every CPU, since stretches and jobs cut what ran.
            let mut ran = vec![vec![None; end_ns as usize]; 2];
            for span in &spans {
                for ns in &mut ran[usize::from(span.cpu)][span.start_ns as usize..span.end_ns as usize] {
                    prop_assert_eq!(ns.replace(span.vcpu), None, "one VCPU at a time");
                }
            }
            let mut wanted = vec![vec![None; end_ns as usize]; 2];
            for of in &whole.occupancy {
                let vcpu = u32::from(of.domain * VCPUS + of.vcpu);
                wanted[usize::from(of.cpu)][of.start_ns as usize..of.end_ns as usize].fill(Some(vcpu));
            }
            prop_assert_eq!(ran, wanted);

            for (what, wanted) in [
                (ARRIVAL, &whole.releases),
                (COMPLETION, &whole.completions),
                (MISS, &whole.misses),
            ] {
                let found: Vec<_> = (points.iter())
                    .filter(|point| point.what == what)
                    .map(|point| (point.time_ns, point.task, point.job))
                    .collect();
                let wanted: Vec<_> = (wanted.iter())
                    .map(|of| (of.time_ns, u32::from(of.domain) * TASKS + of.task, of.job))
                    .collect();
                prop_assert_eq!(found, wanted);
            }
            for (mut line, wanted) in budgets.into_iter().zip(&whole.budgets) {
                line.dedup();
                prop_assert_eq!(&line, &wanted.points);
            }
        }

        #[test]
        fn shares_of_domains_are_the_same_at_every_level(
            records in any_records(),
            cells in 1i64..200,
            cells_max in 1usize..40,
        ) {
            let end_ns = records.last().map_or(0, |record| record.time_ns) + 30;
            let metadata = metadata(end_ns);
            let file = sample::file(&metadata, &records);
            let whole = timeline(sample::reader(&file), 0, end_ns).expect("the trace is whole");
            let numbered = whole.occupancy.iter().map(|of| {
                (u32::from(of.domain * VCPUS + of.vcpu), of.end_ns - of.start_ns)
            });
            let wanted = of_domains(numbered);

            let mut encoder = Encoder::new(&metadata, cells, cells_max);
            for record in &records {
                encoder.misses_before(record.time_ns);
                encoder.record(record);
            }
            let Levels { stretches, overview } = encoder.finish();
            let exact = decoded(&stretches[0], 2 * usize::from(VCPUS));
            let exact = exact.spans.iter().map(|span| (span.vcpu, span.end_ns - span.start_ns));
            prop_assert_eq!(of_domains(exact), wanted);

            let (mut cell_ns, mut ran, mut missed) = decoded_overview(&overview);
            let mut level = Overview::new(end_ns, cells, usize::MAX);
            (level.ran, level.missed) = (ran.clone(), missed.clone());
            level.cell_ns = cell_ns;
            prop_assert!(ran.values().map(Vec::len).sum::<usize>() <= cells_max.max(ran.len()));
            loop {
                let sums = ran.iter().flat_map(|(&(_, vcpu), cells)| {
                    cells.iter().map(move |&(_, ran_ns)| (vcpu, ran_ns))
                });
                prop_assert_eq!(of_domains(sums), wanted);
                for cells in ran.values() {
                    prop_assert!(cells.iter().all(|&(_, ran_ns)| 0 < ran_ns && ran_ns <= cell_ns));
                }
                let misses: i64 = missed.values().flatten().map(|&(_, count)| count).sum();
                prop_assert_eq!(misses, whole.misses.len() as i64);
                if cell_ns > end_ns {
                    break;
                }
                level.coarser();
                (cell_ns, ran, missed) = decoded_overview(&level.bytes());
            }
        }
    }

    #[test]
    fn what_runs_is_known_by_its_job() {
        const MS: i64 = 1_000_000;
        let file = sample::file(&sample::metadata(), &sample::records());
        let levels = levels(sample::reader(&file), 1 << 15).expect("the trace is whole");
        let [stretch] = &levels.stretches[..] else {
            panic!("a short trace is one stretch");
        };
        let spans: Vec<_> = (decoded(stretch, 2).spans.iter())
            .map(|span| (span.vcpu, span.start_ns / MS, span.end_ns / MS, span.job))
            .collect();
        let wanted = [
            (0, 0, 2, Some((0, 0))),
            (1, 2, 7, None),
            (0, 10, 11, Some((0, 0))),
            (1, 11, 16, None),
            (0, 20, 21, Some((0, 1))),
        ];
        assert_eq!(spans, wanted);
    }
}
