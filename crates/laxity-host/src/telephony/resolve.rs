//! What is written about telephony, checked against the rest of the host.

use std::collections::HashMap;

use laxity_config::{Field, Name, Problem, Problems, Span, suggest};

use super::costs::{self, PROFILES};
use super::file::{CallsTable, NetworkChoice, NicTable, WorkloadKind, WorkloadTable};
use super::link;
use super::protect;
use super::{Acceptance, Cache, Calls, Codec, Network, NetworkCosts, Nic, Server, Workload};
use crate::file::{DomainTable, File};
use crate::model::{Cost, Host, Profile};
use crate::resolve::{is_drawn, lacks, ns_or, title, unique};

const THREADS: u32 = 4;
const RING: u32 = 256;
const RATE_BIT_S: i64 = 1_000_000_000;
const SAMPLE: u32 = 4;
const REFILL_KIB_NS: i64 = 1_600;

/// Whether the domain has an endless loop.
pub(crate) fn is_endless(table: &DomainTable) -> bool {
    table.workload.value.as_ref().is_some_and(|workload| {
        workload.kind.value == Some(WorkloadKind::CpuBound) && workload.run.is_absent()
    })
}

/// Gives the host its caches, workloads, network and calls.
pub(crate) fn resolve(
    file: &File,
    tables: &[(&DomainTable, Span)],
    host: &mut Host,
    problems: &Problems,
) {
    host.caches = caches(file, host.cpus, problems);
    let (costs, profile) = network_costs(file, problems);
    for ((table, _), domain) in tables.iter().zip(&mut host.domains) {
        domain.workload = workload(table, &costs, problems);
    }
    let names = Names::of(tables);
    let driver = the_driver(tables, problems);
    let nics = nics(file, &names, tables, driver, problems);
    host.calls = calls(file, &names, tables, problems);
    all_take_part(file, tables, problems);
    if host.calls.is_some() {
        host.profiles.extend(profile);
        all_are_reached(tables, &nics, driver, problems);
        let through_driver = |domain: usize| {
            let sends = host.domains[domain].workload.as_ref();
            let sends = sends.is_some_and(|workload| {
                !matches!(workload, Workload::Bursts { .. } | Workload::Driver)
            });
            sends && !nics.iter().any(|nic| nic.domain == domain)
        };
        let link = link::resolve(file, &names, tables, through_driver, problems);
        let serves = |domain: usize| {
            let workload = host.domains[domain].workload.as_ref();
            through_driver(domain) && !matches!(workload, Some(Workload::Sender { .. }))
        };
        let protect = protect::resolve(file, &names, tables, serves, problems);
        host.network = Some(Network {
            nics,
            driver,
            costs,
            link,
            protect,
        });
    } else {
        link::resolve(file, &names, tables, |_| true, problems);
        protect::resolve(file, &names, tables, |_| true, problems);
    }
}

fn caches(file: &File, cpus: u32, problems: &Problems) -> Vec<Cache> {
    let Some((list, _)) = file
        .host
        .value
        .as_ref()
        .and_then(|host| host.caches.given())
    else {
        return Vec::new();
    };
    let mut taken: HashMap<i64, Span> = HashMap::new();
    let mut caches = Vec::new();
    for (table, span) in list.0.iter().filter_map(Field::given) {
        for (key, absent) in [
            ("cpus", lacks(span, "cpus", &table.cpus, problems)),
            ("size", lacks(span, "size", &table.size, problems)),
        ] {
            if absent {
                let help = "write { cpus = [0, 1], size = \"4 MiB\" }, say";
                problems.report(span, format!("this cache has no `{key}`"), help);
            }
        }
        let list = table
            .cpus
            .value
            .as_ref()
            .map_or(&[][..], |list| &list.0[..]);
        for (cpu, span) in list.iter().filter_map(Field::given) {
            if cpu.0 >= i64::from(cpus) {
                let help = format!("this host has CPUs 0 to {}", cpus - 1);
                problems.report(span, format!("there is no CPU {}", cpu.0), help);
            }
            if let Some(first) = taken.insert(cpu.0, span) {
                problems.push(Problem {
                    help: Some("a CPU has one cache".into()),
                    related: Some((first, "the first time")),
                    ..Problem::new(span, format!("CPU {} has two caches", cpu.0))
                });
            }
        }
        let mut cpus: Vec<u32> = list
            .iter()
            .filter_map(|cpu| cpu.value.map(|cpu| cpu.0 as u32))
            .collect();
        cpus.sort_unstable();
        caches.push(Cache {
            cpus,
            bytes: table.size.value.map_or(64, |size| size.0 as u64),
            refill_kib_ns: ns_or(&table.refill, REFILL_KIB_NS),
        });
    }
    caches
}

fn network_costs(file: &File, problems: &Problems) -> (NetworkCosts, Option<Profile>) {
    let choice = file.host.value.as_ref().map(|host| &host.network);
    let name = match choice.and_then(|choice| choice.value.as_ref()) {
        None => PROFILES[0],
        Some(NetworkChoice::Profile(name)) => name,
        Some(NetworkChoice::Given(table)) => return (costs::costs(table, problems), None),
    };
    let (costs, profile) = costs::profile(name);
    (costs, Some(profile))
}

/// What the domain does besides its tasks and an endless loop.
fn workload(table: &DomainTable, costs: &NetworkCosts, problems: &Problems) -> Option<Workload> {
    let (workload, span) = table.workload.given()?;
    if lacks(span, "kind", &workload.kind, problems) {
        problems.report(
            span,
            "`workload` has no `kind`",
            "write workload = { kind = \"cpu-bound\" }",
        );
    }
    let kind = workload.kind.value?;
    keys_fit(workload, kind, problems);
    let resolved = match kind {
        WorkloadKind::CpuBound => bursts(workload, span, problems)?,
        WorkloadKind::Driver => Workload::Driver,
        WorkloadKind::MediaServer => {
            let relay = match (transcodes(workload), &workload.work.value) {
                (true, None) => costs.relay.plus(costs.transcode),
                _ => costs.relay,
            };
            Workload::MediaServer(server(workload, relay, problems))
        }
        WorkloadKind::SignallingServer => {
            Workload::SignallingServer(server(workload, costs.signalling, problems))
        }
        WorkloadKind::CallControl => {
            Workload::CallControl(server(workload, costs.signalling, problems))
        }
        WorkloadKind::Sender => sender(workload, span, problems)?,
    };
    if let Some(span) = table.tasks.span
        && (is_drawn(table) || table.tasks.value.is_some())
    {
        let message = format!("{} has tasks beside its workload", title(table));
        let help = "tasks go with an endless loop only: give them a domain of their own";
        problems.report(span, message, help);
    }
    if let Some(span) = table.tick.span {
        let message = format!("{} has ticks beside its workload", title(table));
        let help =
            "what ticks cost is part of what its packets and computations cost: leave `tick` out";
        problems.report(span, message, help);
    }
    Some(resolved)
}

fn server(workload: &WorkloadTable, work: Cost, problems: &Problems) -> Server {
    let own_work =
        (!workload.work.is_absent()).then(|| crate::costs::cost(&workload.work, problems));
    Server {
        threads: workload
            .threads
            .value
            .map_or(THREADS, |threads| threads.0 as u32),
        work: own_work.unwrap_or(work),
        own_work,
        transcode: transcodes(workload),
    }
}

fn transcodes(workload: &WorkloadTable) -> bool {
    workload.transcode.value.is_some_and(|flag| flag.0)
}

/// Keys that mean nothing to the kind of workload.
fn keys_fit(workload: &WorkloadTable, kind: WorkloadKind, problems: &Problems) {
    use WorkloadKind::{CallControl, CpuBound, MediaServer, Sender, SignallingServer};
    let servers = &[MediaServer, SignallingServer, CallControl][..];
    let keys = [
        ("run", workload.run.span, &[CpuBound][..]),
        ("idle", workload.idle.span, &[CpuBound]),
        ("threads", workload.threads.span, servers),
        ("work", workload.work.span, servers),
        ("transcode", workload.transcode.span, &[MediaServer]),
        ("rate", workload.rate.span, &[Sender]),
        ("size", workload.size.span, &[Sender]),
    ];
    for (key, span, kinds) in keys {
        if let Some(span) = span
            && !kinds.contains(&kind)
        {
            let kinds = suggest::list(kinds.iter().map(|kind| format!("`{}`", kind.name())), "and");
            problems.report(
                span,
                format!("`{key}` means nothing to the workload `{}`", kind.name()),
                format!("leave it out; it belongs to {kinds}"),
            );
        }
    }
    if let (Some((flag, _)), Some(span)) = (workload.transcode.given(), workload.work.span)
        && flag.0
    {
        let message = "`work` and `transcode` both say what a packet's work costs";
        problems.report(span, message, "keep one of them");
    }
}

fn sender(workload: &WorkloadTable, span: Span, problems: &Problems) -> Option<Workload> {
    const FRAME_BYTES: i64 = 1514;
    const FRAME_BYTES_MAX: i64 = 9014;
    if lacks(span, "rate", &workload.rate, problems) {
        let help = "write rate = \"800 Mbit/s\", say";
        problems.report(span, "a sender has no `rate`", help);
    }
    let bytes = workload.size.value.map_or(FRAME_BYTES, |size| size.0);
    if let (true, Some(span)) = (bytes > FRAME_BYTES_MAX, workload.size.span) {
        let message = format!("packets of {bytes} bytes are larger than any frame");
        problems.report(
            span,
            message,
            "write size = \"1514 B\", say; at most 9014 B",
        );
    }
    Some(Workload::Sender {
        rate_bit_s: workload.rate.value?.0,
        frame_bytes: bytes as u32,
    })
}

fn bursts(workload: &WorkloadTable, span: Span, problems: &Problems) -> Option<Workload> {
    let keys = [("run", &workload.run), ("idle", &workload.idle)];
    for [(there, given), (missing, other)] in [keys, [keys[1], keys[0]]] {
        if !given.is_absent() && lacks(span, missing, other, problems) {
            problems.report(
                span,
                format!("`workload` has `{there}` and no `{missing}`"),
                "write run = \"50 ms\" and idle = \"1 ms\", say, or neither",
            );
        }
    }
    Some(Workload::Bursts {
        run_ns: workload.run.value?.ns,
        idle_ns: workload.idle.value?.ns,
    })
}

pub(super) fn kind(table: &DomainTable) -> Option<WorkloadKind> {
    table.workload.value.as_ref()?.kind.value
}

fn the_driver(tables: &[(&DomainTable, Span)], problems: &Problems) -> Option<usize> {
    let mut drivers = tables
        .iter()
        .enumerate()
        .filter(|(_, (table, _))| kind(table) == Some(WorkloadKind::Driver));
    let (driver, (_, first)) = drivers.next()?;
    if let Some((_, (table, span))) = drivers.next() {
        problems.push(Problem {
            help: Some("a host has one driver domain".into()),
            related: Some((*first, "the first one")),
            ..Problem::new(*span, format!("{} is a second driver domain", title(table)))
        });
    }
    Some(driver)
}

/// Domains by name.
pub(super) struct Names<'f>(HashMap<&'f str, usize>);

impl<'f> Names<'f> {
    fn of(tables: &[(&'f DomainTable, Span)]) -> Names<'f> {
        let named = tables.iter().enumerate();
        Names(
            named
                .filter_map(|(index, (table, _))| {
                    Some((table.name.value.as_ref()?.0.as_str(), index))
                })
                .collect(),
        )
    }

    /// The domain that the field names.
    pub fn find(&self, field: &Field<Name>, problems: &Problems) -> Option<(usize, Span)> {
        let (Name(name), span) = field.given()?;
        let found = self.0.get(name.as_str()).copied();
        if found.is_none() {
            let mut names: Vec<&str> = self.0.keys().copied().collect();
            names.sort_unstable();
            let help = suggest::help(name, names.into_iter(), "the domains are");
            problems.report(span, format!("there is no domain `{name}`"), help);
        }
        Some((found?, span))
    }
}

fn nics(
    file: &File,
    names: &Names<'_>,
    tables: &[(&DomainTable, Span)],
    driver: Option<usize>,
    problems: &Problems,
) -> Vec<Nic> {
    let list = file.nic.value.as_ref().map_or(&[][..], |list| &list.0[..]);
    let given = || list.iter().filter_map(Field::given);
    unique(
        "nic",
        given().map(|(table, span)| (&table.name, span)),
        problems,
    );
    if given().next().is_none()
        && let Some(domain) = driver
    {
        return vec![Nic {
            name: "eth0".into(),
            rate_bit_s: RATE_BIT_S,
            domain,
            ring: RING,
            coalesce_ns: 0,
            coalesce_packets: 1,
        }];
    }
    given()
        .filter_map(|(table, span)| nic(table, span, names, tables, driver, problems))
        .collect()
}

fn nic(
    table: &NicTable,
    span: Span,
    names: &Names<'_>,
    tables: &[(&DomainTable, Span)],
    driver: Option<usize>,
    problems: &Problems,
) -> Option<Nic> {
    let domain = match names.find(&table.domain, problems) {
        Some((domain, span)) => {
            let kind = kind(tables[domain].0);
            if !matches!(kind, Some(WorkloadKind::Driver | WorkloadKind::MediaServer)) {
                problems.report(
                    span,
                    format!("{} does not drive network cards", title(tables[domain].0)),
                    "a card belongs to the driver domain, or to a media server (VMM bypass)",
                );
            }
            domain
        }
        None if !table.domain.is_absent() => return None,
        None => match driver {
            Some(driver) => driver,
            None => {
                problems.report(
                    span,
                    "this card has no domain, and this host no driver domain",
                    "add a domain with workload = { kind = \"driver\" }, or write domain = \"media\", say",
                );
                return None;
            }
        },
    };
    let coalesce = match table.coalesce.given() {
        None => (0, 1),
        Some((coalesce, span)) => {
            if lacks(span, "time", &coalesce.time, problems)
                | lacks(span, "packets", &coalesce.packets, problems)
            {
                let message = "`coalesce` needs a `time` and a number of `packets`";
                problems.report(
                    span,
                    message,
                    "write { time = \"40 us\", packets = 3 }, say",
                );
            }
            let packets = coalesce.packets.value.map_or(1, |packets| packets.0 as u32);
            (ns_or(&coalesce.time, 1), packets)
        }
    };
    Some(Nic {
        name: table
            .name
            .value
            .as_ref()
            .map_or(String::new(), |name| name.0.clone()),
        rate_bit_s: table.rate.value.map_or(RATE_BIT_S, |rate| rate.0),
        domain,
        ring: table.ring.value.map_or(RING, |ring| ring.0 as u32),
        coalesce_ns: coalesce.0,
        coalesce_packets: coalesce.1,
    })
}

fn calls(
    file: &File,
    names: &Names<'_>,
    tables: &[(&DomainTable, Span)],
    problems: &Problems,
) -> Option<Calls> {
    let (table, span) = file.calls.given()?;
    if lacks(span, "media-server", &table.media_server, problems) {
        let help = "name a domain whose workload is of the kind \"media-server\"";
        problems.report(span, "`[calls]` has no `media-server`", help);
    }
    let server = |field: &Field<Name>, wanted: WorkloadKind| {
        let (domain, span) = names.find(field, problems)?;
        if kind(tables[domain].0) != Some(wanted) {
            problems.report(
                span,
                format!("{} is no {}", title(tables[domain].0), wanted.name()),
                format!("give it workload = {{ kind = {:?} }}", wanted.name()),
            );
        }
        Some(domain)
    };
    let media_server = server(&table.media_server, WorkloadKind::MediaServer);
    let signalling_server = server(&table.signalling_server, WorkloadKind::SignallingServer);
    let call_control = server(&table.call_control, WorkloadKind::CallControl);
    if let Some(span) = table.call_control.span
        && table.signalling_server.is_absent()
    {
        let message = "`call-control` is asked by the signalling server, and there is none";
        problems.report(
            span,
            message,
            "write signalling-server = \"signalling\", say",
        );
    }
    for (key, span) in [
        ("registrations", table.registrations.span),
        ("registration-transport", table.registration_transport.span),
    ] {
        if let Some(span) = span
            && table.signalling_server.is_absent()
        {
            let message = format!("`{key}` go to the signalling server, and there is none");
            let help = "write signalling-server = \"signalling\", say";
            problems.report(span, message, help);
        }
    }
    if let Some(span) = table.registration_transport.span
        && table.registrations.is_absent()
    {
        let message = "`registration-transport` says how registrations travel, and none come";
        problems.report(span, message, "write registrations = \"100 /s\", say");
    }
    some_come(table, span, problems);
    let default = Acceptance::default();
    let acceptance = table.acceptance.value.as_ref();
    Some(Calls {
        streams: table.streams.value.map_or(0, |streams| streams.0 as u32),
        rate: table.rate.value.map_or(0, |rate| rate.0),
        hold_ns: ns_or(&table.hold, 1),
        codec: table.codec.value.unwrap_or(Codec::G711),
        media_server: media_server?,
        through_media_server: table.through_media_server.value.map_or(1.0, |part| part.0),
        signalling_server,
        call_control,
        registrations: table.registrations.value.map_or(0, |rate| rate.0),
        registration_transport: table.registration_transport.value.unwrap_or_default(),
        sample: table.sample.value.map_or(SAMPLE, |sample| sample.0 as u32),
        acceptance: acceptance.map_or(default, |table| Acceptance {
            loss: table.loss.value.map_or(default.loss, |part| part.0),
            delay_ns: ns_or(&table.delay, default.delay_ns),
            mos: table.mos.value.map_or(default.mos, |score| score.0),
        }),
    })
}

/// Streams or calls, or both; calls with all that they need.
fn some_come(table: &CallsTable, span: Span, problems: &Problems) {
    let keys = [
        (
            "rate",
            table.rate.is_absent(),
            lacks(span, "rate", &table.rate, problems),
        ),
        (
            "hold",
            table.hold.is_absent(),
            lacks(span, "hold", &table.hold, problems),
        ),
    ];
    if keys.iter().all(|(_, absent, _)| *absent) {
        if !table.registrations.is_absent() {
            return;
        }
        if lacks(span, "streams", &table.streams, problems) {
            let message = "`[calls]` has neither `streams`, nor a `rate`, nor `registrations`";
            let help = "write streams = 800, or rate = \"4 /s\" and hold = \"30 s\", say";
            problems.report(span, message, help);
        }
        return;
    }
    for (key, _, lacks) in keys {
        if lacks {
            let help = "calls have both: rate = \"4 /s\" and hold = \"30 s\", say";
            problems.report(span, format!("`[calls]` has no `{key}`"), help);
        }
    }
}

/// Nobody serves calls that do not come, and nobody was forgotten in `[calls]`.
fn all_take_part(file: &File, tables: &[(&DomainTable, Span)], problems: &Problems) {
    let calls = file.calls.value.as_ref();
    for (table, _) in tables {
        let key = match kind(table) {
            Some(WorkloadKind::MediaServer) => "media-server",
            Some(WorkloadKind::SignallingServer) => "signalling-server",
            Some(WorkloadKind::CallControl) => "call-control",
            Some(WorkloadKind::Sender) if file.calls.is_absent() => "media-server",
            _ => continue,
        };
        let Some(span) = table.workload.span else {
            continue;
        };
        let named = |calls: &CallsTable| {
            let field = match key {
                "media-server" => &calls.media_server,
                "signalling-server" => &calls.signalling_server,
                _ => &calls.call_control,
            };
            // A name that is wrong has been reported.
            field.value.as_ref().map(|name| &name.0)
                == table.name.value.as_ref().map(|name| &name.0)
                || (!field.is_absent() && field.value.is_none())
        };
        if file.calls.is_absent() {
            let message = match kind(table) {
                Some(WorkloadKind::Sender) => {
                    format!(
                        "{} sends packets, and without calls there is no network",
                        title(table)
                    )
                }
                _ => format!("{} waits for calls, and there are none", title(table)),
            };
            problems.report(span, message, "add [calls] with streams = 100, say");
        } else if calls.is_some_and(|calls| !named(calls)) {
            problems.report(
                span,
                format!("{} is not named in `[calls]`", title(table)),
                format!("write {key} in [calls], or leave its workload out"),
            );
        }
    }
    if let (true, Some(span)) = (file.calls.is_absent(), file.nic.span) {
        let message = "network cards are of no use without calls";
        problems.report(span, message, "add [calls] with streams = 100, say");
    }
}

/// Every server has a card of its own, or the driver domain has one.
fn all_are_reached(
    tables: &[(&DomainTable, Span)],
    nics: &[Nic],
    driver: Option<usize>,
    problems: &Problems,
) {
    let has_card = |domain: usize| nics.iter().any(|nic| nic.domain == domain);
    if !problems.is_empty() {
        return; // what is wrong may be what reaches them
    }
    for (domain, (table, span)) in tables.iter().enumerate() {
        let serves = !matches!(
            kind(table),
            None | Some(WorkloadKind::CpuBound | WorkloadKind::Driver)
        );
        if serves && !has_card(domain) && !driver.is_some_and(has_card) {
            problems.report(
                table.workload.span.unwrap_or(*span),
                format!("no packet reaches {}", title(table)),
                "add a domain with workload = { kind = \"driver\" }, which then has a network card",
            );
        }
    }
}
