//! From what is written to what is meant: defaults, and the checks that need more than one key.
//!
//! Everything is looked at, whatever was wrong before it; a value that is missing or wrong is
//! reported and stands as some harmless value from then on, because the host is not given out
//! if anything was reported.

use std::collections::HashMap;

use laxity_config::{Duration, Field, Name, Problem, Problems, Span, format_duration};
use laxity_policies::{Parameters, Policy, Settings, VCPUS_MAX};

use crate::costs;
use crate::draw::{Drawing, draw_tasks};
use crate::file::{CostsChoice, DomainTable, DrawTable, File, TaskTable, Tasks, TickTable};
use crate::model::{Costs, Domain, GuestScheduler, Host, Task, Tick, Vcpu};
use crate::placement::{Assignment, Placement, WHOLE, ratio};
use crate::telephony::resolve::{self as telephony, is_endless};

/// In the whole host. What is drawn is counted too, before it is drawn: a short file can ask for any number of tasks, each of
/// which takes kilobytes and tens of microseconds before a run begins.
const TASKS_MAX: usize = 100_000;

/// `root` is where what is missing from the file is missed. Sound if `problems` is still empty.
pub(crate) fn resolve(file: &File, root: Span, problems: &Problems) -> Host {
    let seed = file.seed.value.map_or(1, |seed| seed.0 as u64);
    if lacks(root, "duration", &file.duration, problems) {
        problems.report(
            root,
            "`duration` is missing",
            "say how long a run lasts, above the first table: duration = \"60 s\"",
        );
    }
    let duration_ns = file.duration.value.map_or(i64::MAX, |duration| duration.ns);
    let mut host = host_table(file, root, problems);
    host.duration_ns = duration_ns;
    host.seed = seed;

    let tables: Vec<(&DomainTable, Span)> = match &file.domain.value {
        Some(list) => list.0.iter().filter_map(Field::given).collect(),
        None => Vec::new(),
    };
    if let Some(span) = missing_domains(file, root) {
        let help = "add one: [[domain]] with name = \"control\"";
        problems.report(span, "this host has no domain", help);
    }
    unique(
        "domain",
        tables.iter().map(|(table, span)| (&table.name, *span)),
        problems,
    );
    if exceeds_counts(&tables, file, problems) {
        return host;
    }
    host.domains = tables
        .iter()
        .map(|(table, span)| domain(table, *span, &host, problems))
        .collect();
    set_priorities(&tables, &mut host.domains, problems);
    telephony::resolve(file, &tables, &mut host, problems);
    let drawing = drawing(file, &tables, problems);
    if problems.is_empty() {
        if let Some((drawing, load)) = drawing {
            draw(drawing, load, &tables, &mut host, problems);
        }
        place(&mut host);
    }
    host
}

/// Whether the table at `table` lacks `key`: not if it is only misspelt, which has been said.
pub(crate) fn lacks<T>(
    table: Span,
    key: &'static str,
    field: &Field<T>,
    problems: &Problems,
) -> bool {
    field.is_absent() && !problems.is_misspelt(table, key)
}

fn host_table(file: &File, root: Span, problems: &Problems) -> Host {
    if lacks(root, "host", &file.host, problems) {
        problems.report(
            root,
            "the table `[host]` is missing",
            "add [host] with cpus = 1 and policy = \"deferrable\"",
        );
    }
    let mut host = Host {
        duration_ns: 0,
        seed: 0,
        cpus: 1,
        policy: Policy::Deferrable,
        settings: Settings::default(),
        costs: Costs::default(),
        domains: Vec::new(),
        caches: Vec::new(),
        network: None,
        calls: None,
        profiles: Vec::new(),
    };
    let Some((table, span)) = file.host.given() else {
        return host;
    };
    if lacks(span, "cpus", &table.cpus, problems) {
        problems.report(span, "`[host]` has no `cpus`", "write cpus = 1, say");
    }
    if lacks(span, "policy", &table.policy, problems) {
        let names = Policy::ALL.map(Policy::name).join(", ");
        let help = format!("write policy = \"deferrable\", say; the policies are {names}");
        problems.report(span, "`[host]` has no `policy`", help);
    }
    host.cpus = table.cpus.value.map_or(1, |cpus| cpus.0 as u32);
    host.policy = table.policy.value.unwrap_or(Policy::Deferrable);
    let default = Settings::default();
    host.settings = Settings {
        quantum_ns: ns_or(&table.quantum, default.quantum_ns),
        time_slice_ns: ns_or(&table.time_slice, default.time_slice_ns),
        tick_ns: ns_or(&table.tick, default.tick_ns),
        accounting_ns: ns_or(&table.accounting, default.accounting_ns),
    };
    let Settings {
        tick_ns,
        accounting_ns,
        ..
    } = host.settings;
    // Where neither is given, the defaults fit.
    if let Some(span) = table.accounting.span.or(table.tick.span)
        && accounting_ns % tick_ns != 0
    {
        let nearest_ns = ((accounting_ns + tick_ns / 2) / tick_ns).max(1) * tick_ns;
        let default = if table.accounting.is_absent() {
            ", by default"
        } else {
            ""
        };
        problems.push(Problem {
            help: Some(format!(
                "write accounting = \"{}\", say",
                format_duration(nearest_ns)
            )),
            related: table
                .tick
                .span
                .filter(|tick| *tick != span)
                .map(|tick| (tick, "the tick")),
            ..Problem::new(
                span,
                format!(
                    "`accounting` ({}{default}) is not a multiple of `tick` ({})",
                    format_duration(accounting_ns),
                    format_duration(tick_ns)
                ),
            )
        });
    }
    host.costs = match &table.costs.value {
        None => Costs::default(),
        Some(CostsChoice::Profile(name)) => {
            let (costs, profile) = costs::profile(name, host.policy);
            host.profiles.push(profile);
            costs
        }
        Some(CostsChoice::Given(table)) => costs::costs(table, problems),
    };
    host
}

pub(crate) fn ns_or<const MIN_NS: i64, const MAX_NS: i64>(
    field: &Field<Duration<MIN_NS, MAX_NS>>,
    default_ns: i64,
) -> i64 {
    field.value.map_or(default_ns, |time| time.ns)
}

/// Where to say so, if there is no domain (and no mistake in its place).
fn missing_domains(file: &File, root: Span) -> Option<Span> {
    match &file.domain {
        Field { span: None, .. } => Some(root),
        Field {
            span,
            value: Some(list),
        } if list.0.is_empty() => *span,
        _ => None,
    }
}

/// Names must be there, and different.
pub(crate) fn unique<'f>(
    what: &str,
    names: impl Iterator<Item = (&'f Field<Name>, Span)>,
    problems: &Problems,
) {
    let mut seen: HashMap<&str, Span> = HashMap::new();
    for (field, place) in names {
        if lacks(place, "name", field, problems) {
            problems.report(
                place,
                format!("a {what} has no name"),
                format!("write name = \"my-{what}\", say"),
            );
        }
        let Some((Name(name), span)) = field.given() else {
            continue;
        };
        if let Some(first) = seen.insert(name, span) {
            problems.push(Problem {
                help: Some(format!("give each {what} a name of its own")),
                related: Some((first, "the first one")),
                ..Problem::new(span, format!("two {what}s are named `{name}`"))
            });
        }
    }
}

/// "domain `control`", in messages.
pub(crate) fn title(table: &DomainTable) -> String {
    match &table.name.value {
        Some(Name(name)) => format!("domain `{name}`"),
        None => "this domain".into(),
    }
}

fn domain(table: &DomainTable, span: Span, host: &Host, problems: &Problems) -> Domain {
    let vcpus = table.vcpus.value.map_or(1, |vcpus| vcpus.0 as u32);
    let affinity = affinity(table, host.cpus, problems);
    let tasks = match &table.tasks.value {
        Some(Tasks::Given(tasks)) => given_tasks(tasks, vcpus, host.duration_ns, problems),
        Some(Tasks::Drawn) | None => Vec::new(),
    };
    Domain {
        name: table
            .name
            .value
            .as_ref()
            .map_or(String::new(), |name| name.0.clone()),
        parameters: parameters(table, span, vcpus, host.policy, problems),
        vcpus: vec![Vcpu { cpu: 0, affinity }; vcpus as usize],
        guest: table
            .scheduler
            .value
            .unwrap_or(GuestScheduler::RateMonotonic),
        tasks,
        cpu_bound: is_endless(table),
        workload: None,
        working_set_bytes: table.working_set.value.map_or(0, |size| size.0 as u64),
        tick: table
            .tick
            .given()
            .map(|(table, span)| tick(table, span, problems)),
    }
}

fn tick(table: &TickTable, span: Span, problems: &Problems) -> Tick {
    if lacks(span, "period", &table.period, problems) {
        let help = "write the time between two ticks: period = \"4 ms\", say";
        problems.report(span, "`tick` has no `period`", help);
    }
    if lacks(span, "cost", &table.cost, problems) {
        let help = "write the CPU time of each tick: cost = \"40 us\", say";
        problems.report(span, "`tick` has no `cost`", help);
    }
    let period = ("period", &table.period);
    shorter(("cost", &table.cost), period, "the period", problems);
    shorter(("offset", &table.offset), period, "the period", problems);
    Tick {
        period_ns: ns_or(&table.period, 2),
        cost_ns: ns_or(&table.cost, 1),
        offset_ns: ns_or(&table.offset, 0),
    }
}

/// Ascending.
fn affinity(table: &DomainTable, cpus: u32, problems: &Problems) -> Vec<u32> {
    let Some((list, span)) = table.affinity.given() else {
        return (0..cpus).collect();
    };
    if list.0.is_empty() {
        let help = "name at least one CPU, or leave `affinity` out to allow all";
        problems.report(span, "`affinity` allows no CPU", help);
    }
    let mut first = HashMap::new();
    for (cpu, span) in list.0.iter().filter_map(Field::given) {
        if cpu.0 >= i64::from(cpus) {
            let message = format!("there is no CPU {}", cpu.0);
            let help = match cpus {
                1 => "this host has one CPU, number 0".into(),
                _ => format!("this host has {cpus} CPUs, numbers 0 to {}", cpus - 1),
            };
            problems.report(span, message, help);
        }
        if let Some(first) = first.insert(cpu.0, span) {
            problems.push(Problem {
                help: Some("name each CPU once".into()),
                related: Some((first, "the first time")),
                ..Problem::new(span, format!("`affinity` names CPU {} twice", cpu.0))
            });
        }
    }
    let mut affinity: Vec<u32> = list
        .0
        .iter()
        .filter_map(|cpu| cpu.value.map(|cpu| cpu.0 as u32))
        .collect();
    affinity.sort_unstable();
    affinity
}

fn parameters(
    table: &DomainTable,
    span: Span,
    vcpus: u32,
    policy: Policy,
    problems: &Problems,
) -> Parameters {
    let period = ("period", &table.period);
    not_longer(("budget", &table.budget), period, "the period", problems);
    not_longer(("slice", &table.slice), period, "the period", problems);
    let has_slice = policy == Policy::Sedf && !table.slice.is_absent();
    let lacks_budget = !has_slice && lacks(span, "budget", &table.budget, problems);
    let lacks_period = lacks(span, "period", &table.period, problems);
    if !policy.shares_by_weight() && (lacks_budget || lacks_period) {
        let (missing, example) = match (lacks_budget, lacks_period) {
            (true, true) => (
                "`budget` and no `period`",
                "budget = \"2 ms\" and period = \"10 ms\"",
            ),
            (true, false) => ("`budget`", "budget = \"2 ms\""),
            (false, _) => ("`period`", "period = \"10 ms\""),
        };
        let policy = policy.name();
        problems.report(
            span,
            format!("{} has no {missing}", title(table)),
            format!(
                "under the {policy} policy every domain has a budget and a period: \
                 write {example}, say"
            ),
        );
    }
    if let Some((cap, span)) = table.cap.given()
        && cap.0 > 100 * vcpus
    {
        let usable = 100 * vcpus;
        let plural = if vcpus == 1 { "" } else { "s" };
        problems.report(
            span,
            format!(
                "`cap` ({} %) is more than {vcpus} VCPU{plural} can use ({usable} %)",
                cap.0
            ),
            format!("write at most {usable}, or 0 for no cap"),
        );
    }
    let budget = match policy {
        Policy::Sedf if !table.slice.is_absent() => &table.slice,
        _ => &table.budget,
    };
    let standard = Parameters::default();
    let whole_or = |given: Option<i64>, standard: u32| given.map_or(standard, |given| given as u32);
    Parameters {
        budget_ns: ns_or(budget, standard.budget_ns),
        period_ns: ns_or(&table.period, standard.period_ns),
        laxity_ns: ns_or(&table.laxity, standard.laxity_ns),
        priority: whole_or(table.priority.value.map(|given| given.0), standard.priority),
        extratime: (table.extratime.value).map_or(standard.extratime, |flag| flag.0),
        weight: whole_or(table.weight.value.map(|given| given.0), standard.weight),
        cap_percent: table.cap.value.map_or(standard.cap_percent, |cap| cap.0),
    }
}

/// Reports a time that is longer than the one which bounds it.
fn not_longer<const A: i64, const B: i64, const C: i64, const D: i64>(
    (name, field): (&str, &Field<Duration<A, B>>),
    (bound_name, bound): (&str, &Field<Duration<C, D>>),
    label: &'static str,
    problems: &Problems,
) {
    if let (Some((time, span)), Some((bound, bound_span))) = (field.given(), bound.given())
        && time.ns > bound.ns
    {
        let (time, bound) = (format_duration(time.ns), format_duration(bound.ns));
        problems.push(Problem {
            help: Some(format!(
                "write at most \"{bound}\", or a longer `{bound_name}`"
            )),
            related: Some((bound_span, label)),
            ..Problem::new(
                span,
                format!("`{name}` ({time}) is longer than `{bound_name}` ({bound})"),
            )
        });
    }
}

/// Reports a time that is not shorter than the one which bounds it.
fn shorter<const A: i64, const B: i64, const C: i64, const D: i64>(
    (name, field): (&str, &Field<Duration<A, B>>),
    (bound_name, bound): (&str, &Field<Duration<C, D>>),
    label: &'static str,
    problems: &Problems,
) {
    if let (Some((time, span)), Some((bound, bound_span))) = (field.given(), bound.given())
        && time.ns >= bound.ns
    {
        let (time, bound) = (format_duration(time.ns), format_duration(bound.ns));
        problems.push(Problem {
            help: Some(format!("write less than \"{bound}\"")),
            related: Some((bound_span, label)),
            ..Problem::new(
                span,
                format!("`{name}` ({time}) is not shorter than `{bound_name}` ({bound})"),
            )
        });
    }
}

fn given_tasks(
    tasks: &[Field<TaskTable>],
    vcpus: u32,
    duration_ns: i64,
    problems: &Problems,
) -> Vec<Task> {
    let given = || tasks.iter().filter_map(Field::given);
    unique(
        "task",
        given().map(|(table, span)| (&table.name, span)),
        problems,
    );
    let mut assignment = Assignment::new(vcpus);
    let mut resolved = Vec::with_capacity(tasks.len());
    for (table, span) in given() {
        let mut task = task(table, span, duration_ns, problems);
        task.vcpu = match table.vcpu.given() {
            None => assignment.least(),
            Some((vcpu, _)) if vcpu.0 < i64::from(vcpus) => vcpu.0 as u32,
            Some((vcpu, span)) => {
                let message = format!("this domain has no VCPU {}", vcpu.0);
                problems.report(
                    span,
                    message,
                    match vcpus {
                        1 => "it has one VCPU, number 0; `vcpus` gives it more".into(),
                        _ => format!("it has {vcpus} VCPUs, numbers 0 to {}", vcpus - 1),
                    },
                );
                0
            }
        };
        // What is wrong may exceed its period, and has been reported.
        if task.cost_ns <= task.period_ns {
            assignment.add(task.vcpu, ratio(task.cost_ns, task.period_ns));
        }
        resolved.push(task);
    }
    resolved
}

fn task(table: &TaskTable, span: Span, duration_ns: i64, problems: &Problems) -> Task {
    let name = table.name.value.as_ref().map_or("", |name| name.0.as_str());
    let title = || {
        if name.is_empty() {
            "this task".into()
        } else {
            format!("task `{name}`")
        }
    };
    if lacks(span, "cost", &table.cost, problems) {
        let help = "write the CPU time of each of its jobs: cost = \"5 ms\", say";
        problems.report(span, format!("{} has no `cost`", title()), help);
    }
    if lacks(span, "period", &table.period, problems) {
        let help = "write the time between its jobs: period = \"200 ms\", say";
        problems.report(span, format!("{} has no `period`", title()), help);
    }
    let (cost, period, deadline) = (
        ("cost", &table.cost),
        ("period", &table.period),
        ("deadline", &table.deadline),
    );
    not_longer(deadline, period, "the period", problems);
    if table.deadline.is_absent() {
        not_longer(cost, period, "the period", problems);
    } else {
        not_longer(cost, deadline, "the deadline", problems);
    }
    shorter(("jitter", &table.jitter), period, "the period", problems);
    if let Some((offset, span)) = table.offset.given()
        && offset.ns >= duration_ns
    {
        let (offset, run) = (format_duration(offset.ns), format_duration(duration_ns));
        problems.report(
            span,
            format!("`offset` ({offset}) is not before the run's end ({run})"),
            format!("write less than \"{run}\", or a longer `duration`"),
        );
    }
    let period_ns = ns_or(&table.period, 1);
    Task {
        name: name.into(),
        vcpu: 0,
        cost_ns: ns_or(&table.cost, 1),
        period_ns,
        deadline_ns: ns_or(&table.deadline, period_ns),
        offset_ns: ns_or(&table.offset, 0),
        jitter_ns: ns_or(&table.jitter, 0),
    }
}

/// Priorities that are not given are rate-monotonic: 1, 2, 3 … by period, equal ones in the order of
/// the file, domains without a period last. Either all are given or none.
fn set_priorities(tables: &[(&DomainTable, Span)], domains: &mut [Domain], problems: &Problems) {
    let given = tables.iter().find_map(|(table, _)| table.priority.span);
    let Some(given) = given else {
        let mut order: Vec<&mut Domain> = domains.iter_mut().collect();
        order.sort_by_key(|domain| match domain.parameters.period_ns {
            0 => i64::MAX,
            period_ns => period_ns,
        });
        for (domain, priority) in order.into_iter().zip(1..) {
            domain.parameters.priority = priority;
        }
        return;
    };
    for (table, span) in tables {
        if lacks(*span, "priority", &table.priority, problems) {
            problems.push(Problem {
                help: Some(
                    "give each domain a priority, or none (then the shorter period comes first)"
                        .into(),
                ),
                related: Some((given, "another domain has one")),
                ..Problem::new(*span, format!("{} has no `priority`", title(table)))
            });
        }
    }
}

/// Whether there are more VCPUs or tasks than any host has. This comes before anything is made for
/// each of them.
fn exceeds_counts(tables: &[(&DomainTable, Span)], file: &File, problems: &Problems) -> bool {
    let drawn = drawn_tasks(file.draw.value.as_ref());
    let vcpus = |table: &DomainTable| {
        (
            table.vcpus.value.map_or(1, |vcpus| vcpus.0 as usize),
            table.vcpus.span,
        )
    };
    let tasks = |table: &DomainTable| {
        let count = match &table.tasks.value {
            Some(Tasks::Given(tasks)) => tasks.len(),
            Some(Tasks::Drawn) => drawn,
            None => 0,
        };
        (count, table.tasks.span)
    };
    let exceeds =
        |what: &str, count_max: usize, count: &dyn Fn(&DomainTable) -> (usize, Option<Span>)| {
            let mut sum = 0;
            let last_straw = tables.iter().find(|(table, _)| {
                sum += count(table).0;
                sum > count_max
            });
            if let Some((table, span)) = last_straw {
                let title = title(table);
                problems.report(
                    count(table).1.unwrap_or(*span),
                    format!("with {title} this host has more than {count_max} {what}"),
                    "describe a smaller host",
                );
            }
            last_straw.is_some()
        };
    exceeds("VCPUs", VCPUS_MAX as usize, &vcpus) | exceeds("tasks", TASKS_MAX, &tasks)
}

fn drawn_tasks(table: Option<&DrawTable>) -> usize {
    table
        .and_then(|table| table.tasks.value)
        .map_or(5, |tasks| tasks.0 as usize)
}

/// `[draw]` as it applies to every domain, where the utilization is that of a share of 1, and the
/// place of the load. `None`: nothing is drawn.
fn drawing(
    file: &File,
    tables: &[(&DomainTable, Span)],
    problems: &Problems,
) -> Option<(Drawing, Span)> {
    let first_drawn = tables.iter().find(|(table, _)| is_drawn(table));
    let Some((table, span)) = file.draw.given() else {
        if let (true, Some((table, span))) = (file.draw.is_absent(), first_drawn) {
            let help = "add [draw] with load = 0.7, say: 70 % of each domain's share";
            let span = table.tasks.span.unwrap_or(*span);
            problems.report(span, "drawn tasks need the table `[draw]`", help);
        }
        return None;
    };
    // Unless someone meant to and wrote it wrong.
    let is_wrong = |table: &DomainTable| !table.tasks.is_absent() && table.tasks.value.is_none();
    if first_drawn.is_none() && !tables.iter().any(|(table, _)| is_wrong(table)) {
        let help = "write tasks = \"drawn\" in the domains that are to get such tasks";
        problems.report(
            span,
            "`[draw]` is of no use: no domain has its tasks drawn",
            help,
        );
    }
    if lacks(span, "load", &table.load, problems) {
        problems.report(
            span,
            "`[draw]` has no `load`",
            "write load = 0.7, say: 70 % of each domain's share",
        );
    }
    let (cost_ms_min, cost_ms_max) = drawn_cost_ms(table, problems);
    let (load, load_span) = table.load.given()?;
    let tasks = drawn_tasks(Some(table));
    Some((
        Drawing {
            utilization: load.0,
            tasks,
            cost_ms_min,
            cost_ms_max,
        },
        load_span,
    ))
}

pub(crate) fn is_drawn(table: &DomainTable) -> bool {
    matches!(table.tasks.value, Some(Tasks::Drawn))
}

/// The least and the greatest cost, in milliseconds; by default those of RT-Xen.
fn drawn_cost_ms(table: &DrawTable, problems: &Problems) -> (i64, i64) {
    const MILLISECOND_NS: i64 = 1_000_000;
    const DEFAULT_MS: (i64, i64) = (5, 10);
    let Some((list, span)) = table.cost.given() else {
        return DEFAULT_MS;
    };
    let [least, greatest] = &list.0[..] else {
        let help = "write the least and the greatest: [\"5 ms\", \"10 ms\"]";
        let message = format!("`cost` must be two times, not {}", list.0.len());
        problems.report(span, message, help);
        return DEFAULT_MS;
    };
    for (cost, span) in [least, greatest].into_iter().filter_map(Field::given) {
        if cost.ns % MILLISECOND_NS != 0 {
            let cost = format_duration(cost.ns);
            problems.report(
                span,
                format!("`cost` is not a whole number of milliseconds: {cost}"),
                "costs are drawn in whole milliseconds; write \"5 ms\", say",
            );
        }
    }
    let (Some((least, span)), Some((greatest, greatest_span))) = (least.given(), greatest.given())
    else {
        return DEFAULT_MS;
    };
    if least.ns > greatest.ns {
        problems.push(Problem {
            help: Some("write the least first".into()),
            related: Some((greatest_span, "the greatest")),
            ..Problem::new(span, "the least `cost` is above the greatest")
        });
    }
    (least.ns / MILLISECOND_NS, greatest.ns / MILLISECOND_NS)
}

/// Gives the domains that want it their drawn tasks.
fn draw(
    drawing: Drawing,
    load: Span,
    tables: &[(&DomainTable, Span)],
    host: &mut Host,
    problems: &Problems,
) {
    let weights: f64 = host
        .domains
        .iter()
        .map(|domain| f64::from(domain.parameters.weight))
        .sum();
    for (stream, ((table, _), domain)) in (0..).zip(tables.iter().zip(&mut host.domains)) {
        if !is_drawn(table) {
            continue;
        }
        // The same under every policy: the budget comes before sedf's own slice.
        let budget = table.budget.value.or(table.slice.value);
        let share = match (budget, table.period.value) {
            (Some(budget), Some(period)) => {
                domain.vcpus.len() as f64 * budget.ns as f64 / period.ns as f64
            }
            _ => f64::from(host.cpus) * f64::from(domain.parameters.weight) / weights,
        };
        let drawing = Drawing {
            utilization: drawing.utilization * share,
            ..drawing
        };
        let Some(tasks) = draw_tasks(drawing, host.seed, stream) else {
            let plural = if drawing.tasks == 1 { "" } else { "s" };
            let message = format!(
                "the {:.0} % of domain `{}` cannot be split among {} task{plural} of at most 100 %",
                100.0 * drawing.utilization,
                domain.name,
                drawing.tasks,
            );
            return problems.report(load, message, "draw more tasks, or write a lower load");
        };
        domain.tasks = tasks;
        let mut assignment = Assignment::new(domain.vcpus.len() as u32);
        for task in &mut domain.tasks {
            task.vcpu = assignment.least();
            assignment.add(task.vcpu, ratio(task.cost_ns, task.period_ns));
        }
    }
}

/// Gives each VCPU the CPU where it starts.
fn place(host: &mut Host) {
    let mut placement = Placement::new(host.cpus);
    for domain in &mut host.domains {
        let Parameters {
            budget_ns,
            period_ns,
            ..
        } = domain.parameters;
        let load = match host.policy {
            policy if policy.shares_by_weight() => WHOLE,
            _ => ratio(budget_ns, period_ns),
        };
        for vcpu in &mut domain.vcpus {
            vcpu.cpu = placement.place(&vcpu.affinity, load);
        }
    }
}
