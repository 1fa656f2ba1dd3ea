//! `[protect]`: protection by checkpoint, and a failure of the host.

use std::collections::HashMap;

use laxity_config::{
    Duration, Field, HOUR_NS, List, MICROSECOND_NS, Measured, Name, Problem, Problems, Quantity,
    SECOND_NS, Span, Whole, format_duration,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::domain::Domains;
use crate::quantities::{BitRate, NotNegative, Positive, Size};

/// The unit in which memory is copied.
pub const PAGE_BYTES: i64 = 4096;

const INTERVAL_NS: i64 = 100_000_000;
const INTERVAL_NS_MIN: i64 = 1_000_000;
const INTERVAL_NS_MAX: i64 = 60_000_000_000;
const RATE_BIT_S: i64 = 1_000_000_000;
/// The protocol's least: three signs of life, a millisecond apart.
const DETECTION_NS_MIN: i64 = 3_000_000;
const PAGES: i64 = 256;
const PAGES_MAX: i64 = 1 << 30;
const MEMORY_BYTES: i64 = 1 << 30;
const HELD: i64 = 10_000;
const DETECTION_NS: i64 = 300_000_000;
const ACTIVATION_NS: i64 = 4_000_000;
const HELD_MAX: i64 = 1_000_000;

/// The protected domains, what a checkpoint costs, and the failure of the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Protect {
    /// The time for which each checkpoint pauses a protected domain.
    pub pause_ns: i64,
    /// The additional pause for each changed page.
    pub page_pause_ns: i64,
    /// The driver domain's CPU time for each checkpoint.
    pub checkpoint_ns: i64,
    /// The driver domain's additional CPU time for each page.
    pub page_ns: i64,
    /// The rate of the link to the standby; at least 1000.
    pub rate_bit_s: i64,
    /// The time from the last byte of a checkpoint to its acknowledgement.
    pub acknowledgement_ns: i64,
    /// The failure of the protected domains' host; `None`: it does not fail.
    pub failure: Option<Failure>,
    /// The protected domains; at least one.
    pub domains: Vec<Protected>,
}

/// A domain that is protected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Protected {
    /// The domain: a server whose packets go through the driver domain. No other entry has it.
    pub domain: usize,
    /// Whether the domain's output waits.
    pub mode: ProtectMode,
    /// The time from the beginning of one checkpoint to that of the next, at least; 1 ms to 60 s.
    pub interval_ns: i64,
    /// The number of pages that change in every epoch; at most `pages_most`.
    pub pages: u64,
    /// The number of pages that change with each packet that the domain handles.
    pub pages_per_packet: u64,
    /// The number of pages that the domain has, and that can change; at least 1.
    pub pages_most: u64,
    /// The greatest number of its packets that are held; at least 1.
    pub held: u32,
}

/// Whether the output of a protected domain waits for its checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ProtectMode {
    /// Output waits: nobody sees what a failure could undo.
    #[default]
    Net,
    /// Output leaves at once.
    NoNet,
}

/// The failure of the host of the protected domains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Failure {
    /// The time of the failure; at most the end of the run.
    pub at_ns: i64,
    /// The silence after which the standby takes over; at least 3 ms.
    pub detection_ns: i64,
    /// The time from the takeover until the domains run on the standby.
    pub activation_ns: i64,
}

/// Protection by checkpoint: each checkpoint pauses a protected domain, the driver domain copies the changed pages to a
/// standby, and in net mode the domain's output is held until the standby has the checkpoint. A step without a cost is
/// free.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(
    default,
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table"
)]
#[schemars(extend("required" = ["domains"]))]
pub(crate) struct ProtectTable {
    /// The time for which each checkpoint pauses the domain.
    pub pause: Field<NotNegative>,
    /// The additional pause for each page that the domain changed.
    pub page_pause: Field<NotNegative<MICROSECOND_NS>>,
    /// The driver domain's CPU time for each checkpoint.
    pub checkpoint: Field<NotNegative>,
    /// The driver domain's CPU time for each page (4 KiB) that it copies.
    pub page: Field<NotNegative<MICROSECOND_NS>>,
    /// The rate of the link to the standby, which has a network card of its own.
    #[schemars(extend("default" = BitRate::text(RATE_BIT_S)))]
    pub rate: Field<Measured<BitRate>>,
    /// The time from the last byte of a checkpoint to its acknowledgement.
    pub acknowledgement: Field<NotNegative<MICROSECOND_NS>>,
    /// The failure of the protected domains' host. By default it does not fail.
    pub failure: Field<FailureTable>,
    /// A table for each protected domain.
    #[schemars(extend("minItems" = 1))]
    pub domains: Field<List<ProtectedTable>>,
}

/// How a domain is protected.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(
    default,
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table, such as { domain = \"media\", mode = \"no-net\" }"
)]
#[schemars(extend("required" = ["domain"]))]
pub(crate) struct ProtectedTable {
    /// The domain: a server whose packets go through the driver domain.
    pub domain: Field<Name>,
    /// Net: the domain's output is held until its checkpoint is acknowledged. No-net: output leaves at once.
    #[schemars(extend("default" = ProtectMode::default()))]
    pub mode: Field<ProtectMode>,
    /// The time from the beginning of one checkpoint to that of the next; longer if the standby does not have the first
    /// checkpoint by then.
    #[schemars(extend("default" = format_duration(INTERVAL_NS)))]
    pub interval: Field<Duration<INTERVAL_NS_MIN, INTERVAL_NS_MAX>>,
    /// The number of pages that change between two checkpoints, whatever the domain does.
    #[schemars(extend("default" = PAGES))]
    pub pages: Field<Whole<0, PAGES_MAX>>,
    /// The number of pages that change for each packet that the domain handles.
    #[schemars(extend("default" = 0))]
    pub pages_per_packet: Field<Whole<0, PAGES_MAX>>,
    /// The domain's memory: no more pages than it has can change.
    #[schemars(extend("default" = Size::text(MEMORY_BYTES)))]
    pub memory: Field<Measured<Size>>,
    /// The greatest number of the domain's packets that are held.
    #[schemars(extend("default" = HELD))]
    pub held: Field<Whole<1, HELD_MAX>>,
}

/// The failure of the protected domains' host, and the times until the domains resume on the standby: from their last
/// acknowledged checkpoint, and without protection.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(
    default,
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table, such as { at = \"10 s\" }"
)]
#[schemars(extend("required" = ["at"]))]
pub(crate) struct FailureTable {
    /// The time of the failure. At the end of the run, a failure has no effect but the host's preparation for it.
    pub at: Field<Positive<SECOND_NS>>,
    /// The silence after which the standby takes over.
    #[schemars(extend("default" = format_duration(DETECTION_NS)))]
    pub detection: Field<Duration<DETECTION_NS_MIN, HOUR_NS>>,
    /// The time from the takeover until the domains run on the standby and receive packets.
    #[schemars(extend("default" = format_duration(ACTIVATION_NS)))]
    pub activation: Field<NotNegative>,
}

/// Protection, if the file has it. `serves` tells of a domain whether it is a server whose packets go through the
/// driver domain. `end` is the end of the run and the place where the file says it.
pub(crate) fn resolve(
    protect: &Field<ProtectTable>,
    domains: &Domains<'_>,
    serves: impl Fn(usize) -> bool,
    end: Option<(i64, Span)>,
    problems: &Problems,
) -> Option<Protect> {
    let (table, span) = protect.given()?;
    let list = match table.domains.given() {
        Some((list, _)) => &list.0[..],
        None => &[],
    };
    if table.domains.is_missing("domains", span, problems)
        || (table.domains.value.is_some() && list.is_empty())
    {
        let help = "write domains = [{ domain = \"media\", mode = \"no-net\" }], say";
        problems.report(span, "`[protect]` protects no domain", help);
    }
    let mut first_of = HashMap::new();
    let mut found = Vec::new();
    for (table, span) in list.iter().filter_map(Field::given) {
        let Some(one) = protected(table, span, domains, problems) else {
            continue;
        };
        let (title, place) = (domains.title(one.domain), table.domain.span.unwrap_or(span));
        if let Some(first) = first_of.insert(one.domain, place) {
            problems.push(Problem {
                help: Some("a domain is protected once".into()),
                related: Some((first, "the first time")),
                ..Problem::new(place, format!("{title} is protected twice"))
            });
        } else if !serves(one.domain) {
            let message = format!("{title} is not a server behind the driver domain");
            let help = "only output that passes through the driver domain can be held: name a server without its own card";
            problems.report(place, message, help);
        }
        found.push(one);
    }
    let failure = match table.failure.given() {
        None => None,
        Some((failure, span)) => Some(failure_of(failure, span, end, problems)?),
    };
    Some(Protect {
        pause_ns: table.pause.ns_or(0),
        page_pause_ns: table.page_pause.ns_or(0),
        checkpoint_ns: table.checkpoint.ns_or(0),
        page_ns: table.page.ns_or(0),
        rate_bit_s: table.rate.value.map_or(RATE_BIT_S, |rate| rate.0.bit_s),
        acknowledgement_ns: table.acknowledgement.ns_or(0),
        failure,
        domains: found,
    })
}

fn failure_of(
    table: &FailureTable,
    span: Span,
    end: Option<(i64, Span)>,
    problems: &Problems,
) -> Option<Failure> {
    if table.at.is_missing("at", span, problems) {
        problems.report(
            span,
            "this failure has no time",
            "write { at = \"10 s\" }, say",
        );
    }
    let (at, place) = table.at.given()?;
    if let Some((end_ns, end)) = end
        && at.ns > end_ns
    {
        problems.push(Problem {
            help: Some("write a time before the end of the run".into()),
            related: Some((end, "the end")),
            ..Problem::new(place, "this failure is after the end of the run")
        });
    }
    Some(Failure {
        at_ns: at.ns,
        detection_ns: table.detection.ns_or(DETECTION_NS),
        activation_ns: table.activation.ns_or(ACTIVATION_NS),
    })
}

fn protected(
    table: &ProtectedTable,
    span: Span,
    domains: &Domains<'_>,
    problems: &Problems,
) -> Option<Protected> {
    if table.domain.is_missing("domain", span, problems) {
        let help = "write { domain = \"media\", mode = \"no-net\" }, say";
        problems.report(span, "this protection has no `domain`", help);
    }
    let bytes = table.memory.value.map_or(MEMORY_BYTES, |size| size.0.bytes);
    let pages_most = (bytes / PAGE_BYTES) as u64;
    if let (Some(span), 0) = (table.memory.span, pages_most) {
        let message = format!("{bytes} bytes are less than a page");
        problems.report(span, message, "write memory = \"1 GiB\", say");
    }
    let pages = match table.pages.value {
        Some(pages) => pages.0 as u64,
        None => pages_most.min(PAGES as u64),
    };
    if let (Some(span), true) = (table.pages.span, pages > pages_most) {
        let message = format!("`pages` is {pages}, but the memory has only {pages_most} pages");
        problems.report(span, message, "write fewer `pages`, or more `memory`");
    }
    let (domain, _) = domains.find(&table.domain, problems)?;
    Some(Protected {
        domain,
        mode: table.mode.value.unwrap_or_default(),
        interval_ns: table.interval.ns_or(INTERVAL_NS),
        pages,
        pages_per_packet: table.pages_per_packet.or(0) as u64,
        pages_most,
        held: table.held.or(HELD) as u32,
    })
}
