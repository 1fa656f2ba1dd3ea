//! The resolution of a host file: its sections in the order of their dependencies, and the checks between sections.
//!
//! All sections are checked, whatever was wrong before. A missing or wrong value is reported and replaced by a harmless
//! one, since no host is returned if anything was reported.

use laxity_config::{Field, Name, Problems, Span};
use laxity_policies::{Policy, VCPUS_MAX};

use crate::admission;
use crate::file::{File, Host, Network};
use crate::placement::{Assignment, Placement, WHOLE, ratio};
use crate::sections::calls::{self, CallsTable};
use crate::sections::domain::{self, DomainTable, Domains, Surroundings};
use crate::sections::draw::{self, DrawTable, Drawing};
use crate::sections::helpers;
use crate::sections::host::{self, Machine};
use crate::sections::link;
use crate::sections::nic::{self, Nic};
use crate::sections::protect;
use crate::sections::run;
use crate::sections::tasks::Tasks;
use crate::sections::workload::{Workload, WorkloadKind};
use crate::windows;

/// The most tasks of a host. Tasks that are drawn count before they are drawn: a short file can ask for any number of
/// tasks, each of which takes kilobytes and tens of microseconds before a run begins.
const TASKS_MAX: usize = 100_000;

/// `root` is the place of the file, where missing sections are reported. The host is sound if `problems` stays empty.
pub(crate) fn resolve(file: &File, root: Span, problems: &Problems) -> Host {
    let duration_ns = run::duration_ns(&file.duration, root, problems);
    let machine = host::resolve(&file.host, root, problems);
    let domains = Domains::of(&file.domain, root, problems);
    let exceeds = exceeds_counts(&domains, file.draw.value.as_ref(), problems);
    let surroundings = Surroundings {
        duration_ns,
        cpus: machine.cpus,
        policy: machine.policy,
        network: &machine.network,
    };
    let mut host = Host {
        duration_ns,
        seed: run::seed(&file.seed),
        cpus: machine.cpus,
        policy: machine.policy,
        settings: machine.settings,
        costs: machine.costs.clone(),
        timer_latency_ns: machine.timer_latency_ns,
        domains: Vec::new(),
        caches: machine.caches.clone(),
        network: None,
        calls: None,
        profiles: machine.costs_profile.iter().cloned().collect(),
    };
    if exceeds {
        return host;
    }
    host.domains = domain::resolve(&domains, &surroundings, problems);
    let mut spans: Vec<Span> = domains.tables.iter().map(|(_, span)| *span).collect();
    for (helper, span) in domain::resolve_helpers(&domains, &host.domains, &surroundings, problems)
    {
        host.domains.push(helper);
        spans.push(span);
    }
    telephony(file, &domains, machine, &mut host, problems);
    let drawing = drawing(&file.draw, &domains, problems);
    if problems.is_empty() && host.policy == Policy::Deadline {
        admission::check(&host.domains, &spans, problems);
    }
    if problems.is_empty() {
        if let Some((drawing, load)) = drawing {
            draw(drawing, load, &domains, &mut host, problems);
        }
        place(&mut host);
        if host.policy == Policy::Arinc653 {
            windows::check(&host.domains, &domains.tables, problems);
        }
    }
    host
}

/// Reports more VCPUs or tasks than any host has, before anything is made for each of them.
fn exceeds_counts(domains: &Domains<'_>, draw: Option<&DrawTable>, problems: &Problems) -> bool {
    let drawn = draw.map_or(DrawTable::TASKS, DrawTable::tasks_each);
    let vcpus = |table: &DomainTable| {
        let helpers = helpers::given(&table.helpers).count();
        (table.vcpus() as usize + helpers, table.vcpus.span)
    };
    let tasks = |table: &DomainTable| {
        let count = match &table.tasks.value {
            Some(Tasks::Given(tasks)) => tasks.len(),
            Some(Tasks::Drawn) => drawn,
            None => 0,
        };
        (
            count + helpers::given(&table.helpers).count(),
            table.tasks.span,
        )
    };
    let exceeds =
        |what: &str, count_max: usize, count: &dyn Fn(&DomainTable) -> (usize, Option<Span>)| {
            let mut sum = 0;
            let last_straw = domains.tables.iter().find(|(table, _)| {
                sum += count(table).0;
                sum > count_max
            });
            if let Some((table, span)) = last_straw {
                let title = table.title();
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

/// Gives the host its network and calls.
fn telephony(
    file: &File,
    domains: &Domains<'_>,
    machine: Machine,
    host: &mut Host,
    problems: &Problems,
) {
    let driver = domains.driver(problems);
    let nics = nic::resolve(&file.nic, domains, driver, problems);
    host.calls = calls::resolve(&file.calls, domains, problems);
    all_take_part(file, domains, problems);
    let sends = |(table, _): &(&DomainTable, Span)| table.kind() == Some(WorkloadKind::Sender);
    let has_packets = host.calls.is_some() || domains.tables.iter().any(sends);
    if has_packets {
        host.profiles.extend(machine.network_profile);
        all_are_reached(domains, &nics, driver, problems);
    }
    packets_are_there(file, has_packets, problems);
    if machine.native {
        is_without_guests(file, domains, &nics, driver, problems);
    }
    let through_driver = |domain: usize| {
        let sends = host.domains[domain].workload.as_ref();
        let sends = sends.is_some_and(|workload| {
            !matches!(workload, Workload::Bursts { .. } | Workload::Driver)
        });
        sends && !nics.iter().any(|nic| nic.domain == domain)
    };
    let serves = |domain: usize| {
        let workload = host.domains[domain].workload.as_ref();
        through_driver(domain) && !matches!(workload, Some(Workload::Sender { .. }))
    };
    // Without packets, whose absence is reported, reachability is not checked.
    let reached = |domain| !has_packets || through_driver(domain);
    let link = link::resolve(&file.link, domains, reached, problems);
    let protected = |domain| host.calls.is_none() || serves(domain);
    let end = file.duration.given().map(|(time, span)| (time.ns, span));
    let protect = protect::resolve(&file.protect, domains, protected, end, problems);
    host.network = has_packets.then_some(Network {
        nics,
        driver,
        costs: machine.network,
        native: machine.native,
        link,
        protect,
    });
}

/// Reports domains that wait for calls that do not come, or that `[calls]` does not name.
fn all_take_part(file: &File, domains: &Domains<'_>, problems: &Problems) {
    for (table, _) in &domains.tables {
        let key = match table.kind() {
            Some(WorkloadKind::MediaServer) => "media-server",
            Some(WorkloadKind::SignallingServer) => "signalling-server",
            Some(WorkloadKind::CallControl) => "call-control",
            _ => continue,
        };
        let Some(span) = table.workload.span else {
            continue;
        };
        if file.calls.is_absent() {
            let message = format!("{} waits for calls, but there are none", table.title());
            problems.report(span, message, "add [calls] with streams = 100, say");
        } else if (file.calls.value.as_ref()).is_some_and(|calls| !names(calls, key, table)) {
            problems.report(
                span,
                format!("{} is not named in `[calls]`", table.title()),
                format!("write {key} in [calls], or leave its workload out"),
            );
        }
    }
}

/// Whether the key of `[calls]` names the domain, or is wrong, which has been reported.
fn names(calls: &CallsTable, key: &str, table: &DomainTable) -> bool {
    let field: &Field<Name> = match key {
        "media-server" => &calls.media_server,
        "signalling-server" => &calls.signalling_server,
        _ => &calls.call_control,
    };
    field.value == table.name.value || (!field.is_absent() && field.value.is_none())
}

/// Reports sections that mean nothing without packets, or without `[calls]`.
fn packets_are_there(file: &File, has_packets: bool, problems: &Problems) {
    if !file.calls.is_absent() {
        return;
    }
    const CALLS: &str = "add [calls] with streams = 100, say";
    const PACKETS: &str = "add [calls] with streams = 100, say, or a domain with workload = { kind = \"sender\", \
         rate = \"800 Mbit/s\" }";
    let link = file.link.given().map(|(_, span)| span);
    let protect = file.protect.given().map(|(_, span)| span);
    let no_agreement = "agreements have no effect without calls and senders";
    let no_card = "network cards have no effect without calls and senders";
    let no_server = "protection is for servers, and a host without calls has none";
    for (span, is_useful, message, help) in [
        (file.nic.span, has_packets, no_card, PACKETS),
        (link, has_packets, no_agreement, PACKETS),
        (protect, false, no_server, CALLS),
    ] {
        if let Some(span) = span.filter(|_| !is_useful) {
            problems.report(span, message, help);
        }
    }
}

/// Reports what a host whose servers are processes of its own kernel does not have.
fn is_without_guests(
    file: &File,
    domains: &Domains<'_>,
    nics: &[Nic],
    driver: Option<usize>,
    problems: &Problems,
) {
    const HELP: &str = "leave it out, or write native = false in [host]";
    let calls = file.calls.value.as_ref();
    let control = calls.and_then(|calls| calls.call_control.span);
    let registrations = calls.and_then(|calls| calls.registrations.span);
    for (span, what) in [
        (control, "call control"),
        (registrations, "registrations"),
        (file.link.span, "agreements about its link"),
        (file.protect.span, "protection by checkpoint"),
    ] {
        if let Some(span) = span {
            problems.report(span, format!("a native host has no {what}"), HELP);
        }
    }
    for (domain, (table, span)) in domains.tables.iter().enumerate() {
        let is_sender = table.kind() == Some(WorkloadKind::Sender);
        let drives = nics.iter().any(|nic| nic.domain == domain) && driver != Some(domain);
        if is_sender || drives {
            let what = if is_sender {
                "sends bulk data"
            } else {
                "drives a card"
            };
            let message = format!("{} {what}, and a native host has no guests", table.title());
            problems.report(table.workload.span.unwrap_or(*span), message, HELP);
        }
    }
}

/// Reports servers that no packet reaches: every server has a card of its own, or the driver domain has one.
fn all_are_reached(
    domains: &Domains<'_>,
    nics: &[Nic],
    driver: Option<usize>,
    problems: &Problems,
) {
    let has_card = |domain: usize| nics.iter().any(|nic| nic.domain == domain);
    if !problems.is_empty() {
        return; // what is wrong may be what reaches them
    }
    for (domain, (table, span)) in domains.tables.iter().enumerate() {
        let serves = !matches!(
            table.kind(),
            None | Some(WorkloadKind::CpuBound | WorkloadKind::Driver)
        );
        if serves && !has_card(domain) && !driver.is_some_and(has_card) {
            let title = table.title();
            let message = match table.kind() {
                Some(WorkloadKind::Sender) => format!("no packet of {title} reaches a card"),
                _ => format!("no packet reaches {title}"),
            };
            problems.report(
                table.workload.span.unwrap_or(*span),
                message,
                "add a domain with workload = { kind = \"driver\" }, which then has a network card",
            );
        }
    }
}

/// What `[draw]` says, and the place of the load. `None`: nothing is drawn. Reports drawn tasks without `[draw]`, and
/// `[draw]` without drawn tasks.
fn drawing(
    table: &Field<DrawTable>,
    domains: &Domains<'_>,
    problems: &Problems,
) -> Option<(Drawing, Span)> {
    let first_drawn = domains.tables.iter().find(|(table, _)| table.is_drawn());
    let Some((draw, span)) = table.given() else {
        if let (true, Some((table, span))) = (table.is_absent(), first_drawn) {
            let help = "add [draw] with load = 0.7, say: 70 % of each domain's share";
            let span = table.tasks.span.unwrap_or(*span);
            problems.report(span, "drawn tasks need the table `[draw]`", help);
        }
        return None;
    };
    // An invalid value was reported already.
    let is_wrong = |table: &DomainTable| !table.tasks.is_absent() && table.tasks.value.is_none();
    if first_drawn.is_none() && !domains.tables.iter().any(|(table, _)| is_wrong(table)) {
        let help = "write tasks = \"drawn\" in each domain that should get drawn tasks";
        problems.report(
            span,
            "`[draw]` has no effect: no domain has drawn tasks",
            help,
        );
    }
    draw::resolve(draw, span, problems)
}

/// Gives the domains that want it their drawn tasks.
fn draw(drawing: Drawing, load: Span, domains: &Domains<'_>, host: &mut Host, problems: &Problems) {
    let weights: f64 = host
        .domains
        .iter()
        .filter(|domain| domain.helper_of.is_none())
        .map(|domain| f64::from(domain.parameters.weight))
        .sum();
    for (stream, ((table, _), domain)) in (0..).zip(domains.tables.iter().zip(&mut host.domains)) {
        if !table.is_drawn() {
            continue;
        }
        let share = match table.parameters.budget_and_period() {
            Some((budget_ns, period_ns)) => {
                domain.vcpus.len() as f64 * budget_ns as f64 / period_ns as f64
            }
            None => f64::from(host.cpus) * f64::from(domain.parameters.weight) / weights,
        };
        let drawing = Drawing {
            utilization: drawing.utilization * share,
            ..drawing
        };
        let Some(tasks) = draw::draw_tasks(drawing, host.seed, stream) else {
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
        let load = if host.policy.has_budgets() {
            ratio(domain.parameters.budget_ns, domain.parameters.period_ns)
        } else {
            WHOLE
        };
        for vcpu in &mut domain.vcpus {
            vcpu.cpu = placement.place(&vcpu.affinity, load);
        }
    }
}
