//! What is protected by checkpoints: as it is written, and checked.

use std::collections::HashMap;

use laxity_config::{Duration, Field, List, Name, Problem, Problems, Quantity, Span, Whole};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::resolve::Names;
use crate::file::{DomainTable, File, NotNegative, Positive};
use crate::quantities::{Bits, Bytes};
use crate::resolve::{lacks, ns_or, title};

/// What is copied at a time.
pub const PAGE_BYTES: i64 = 4096;

const INTERVAL_NS: i64 = 100_000_000;
const INTERVAL_NS_MIN: i64 = 1_000_000;
const INTERVAL_NS_MAX: i64 = 60_000_000_000;
const RATE_BIT_S: i64 = 1_000_000_000;
const PAGES: u64 = 256;
const PAGES_MAX: i64 = 1 << 30;
const MEMORY_BYTES: i64 = 1 << 30;
const HELD: u32 = 10_000;
const HELD_MAX: i64 = 1_000_000;

/// Who is protected, what a checkpoint costs, and whether the host fails.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Protect {
    /// A protected domain stands still for so long at each checkpoint …
    pub pause_ns: i64,
    /// … and for so long more for each page.
    pub page_pause_ns: i64,
    /// CPU time of the driver domain for each checkpoint …
    pub checkpoint_ns: i64,
    /// … and for each page.
    pub page_ns: i64,
    /// What the link to the standby carries; at least 1000.
    pub rate_bit_s: i64,
    /// From the last byte of a checkpoint to its acknowledgement.
    pub acknowledgement_ns: i64,
    /// If the protected domains' host dies.
    pub failure: Option<Failure>,
    /// At least one.
    pub domains: Vec<Protected>,
}

/// A domain that is protected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Protected {
    /// A server whose packets go through the driver domain; it is there once.
    pub domain: usize,
    /// Whether its output waits.
    pub mode: ProtectMode,
    /// From the beginning of one checkpoint to that of the next, at least; 1 ms to 60 s.
    pub interval_ns: i64,
    /// Pages that change in every epoch; at most `pages_most`.
    pub pages: u64,
    /// Pages that change with each packet that it handles.
    pub pages_per_packet: u64,
    /// Pages that it has; no more change. At least 1.
    pub pages_most: u64,
    /// Packets of it that are held at most; at least 1.
    pub held: u32,
}

/// Whether the output of a protected domain waits for its checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ProtectMode {
    /// It waits: nobody sees what a failure could undo.
    #[default]
    Net,
    /// It leaves at once.
    NoNet,
}

/// The death of the host of the protected domains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// When; within the run.
    pub at_ns: i64,
    /// Until the standby notices.
    pub detection_ns: i64,
    /// Until the domains run there, from then on.
    pub activation_ns: i64,
}

/// Protection by checkpoint: protected domains stand still now and then, the driver domain copies what they
/// changed to a standby, and in Net mode what they send is held until the standby has it. What is not given
/// costs nothing.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(
    default,
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table"
)]
#[schemars(extend("required" = ["domains"]))]
pub(crate) struct ProtectTable {
    /// A domain stands still for so long at each checkpoint.
    pub pause: Field<NotNegative>,
    /// It stands still for so long more for each page that it changed.
    pub page_pause: Field<NotNegative>,
    /// CPU time of the driver domain for each checkpoint.
    pub checkpoint: Field<NotNegative>,
    /// CPU time of the driver domain for each page (4 KiB) that it copies.
    pub page: Field<NotNegative>,
    /// What the link to the standby carries, which has a network card of its own.
    #[schemars(extend("default" = "1 Gbit/s"))]
    pub rate: Field<Quantity<Bits>>,
    /// From the last byte of a checkpoint to its acknowledgement.
    pub acknowledgement: Field<NotNegative>,
    /// The host of the protected domains dies. By default it does not.
    pub failure: Field<FailureTable>,
    /// One for each domain that is protected.
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
    /// Net: what it sends is held until its checkpoint is acknowledged. No-net: it leaves at once.
    #[schemars(extend("default" = "net"))]
    pub mode: Field<ProtectMode>,
    /// From the beginning of one checkpoint to that of the next; longer, if the standby does not have the
    /// first one by then.
    #[schemars(extend("default" = "100 ms"))]
    pub interval: Field<Duration<INTERVAL_NS_MIN, INTERVAL_NS_MAX>>,
    /// Pages that change between two checkpoints, whatever it does.
    #[schemars(extend("default" = 256))]
    pub pages: Field<Whole<0, PAGES_MAX>>,
    /// Pages that change for each packet that it handles.
    #[schemars(extend("default" = 0))]
    pub pages_per_packet: Field<Whole<0, PAGES_MAX>>,
    /// Its memory: more than all of it does not change.
    #[schemars(extend("default" = "1 GiB"))]
    pub memory: Field<Quantity<Bytes>>,
    /// So many of its packets are held at most.
    #[schemars(extend("default" = 10_000))]
    pub held: Field<Whole<1, HELD_MAX>>,
}

/// When the host of the protected domains dies, and when they run on elsewhere: from their last checkpoint that
/// was acknowledged, and without protection.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(
    default,
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table, such as { at = \"10 s\" }"
)]
#[schemars(extend("required" = ["at"]))]
pub(crate) struct FailureTable {
    /// When it dies.
    pub at: Field<Positive>,
    /// How long the standby waits for a sign of life.
    #[schemars(extend("default" = "300 ms"))]
    pub detection: Field<NotNegative>,
    /// How long the domains take to run there, and packets to go there.
    #[schemars(extend("default" = "4 ms"))]
    pub activation: Field<NotNegative>,
}

/// Protection, if the file has it. `serves` are the servers whose packets go through the driver domain.
pub(super) fn resolve(
    file: &File,
    names: &Names<'_>,
    tables: &[(&DomainTable, Span)],
    serves: impl Fn(usize) -> bool,
    problems: &Problems,
) -> Option<Protect> {
    let (table, span) = file.protect.given()?;
    if file.calls.is_absent() {
        let message = "protection is for servers, and without calls there are none";
        problems.report(span, message, "add [calls] with streams = 100, say");
    }
    let list = match table.domains.given() {
        Some((list, _)) => &list.0[..],
        None => &[],
    };
    if lacks(span, "domains", &table.domains, problems)
        || (table.domains.value.is_some() && list.is_empty())
    {
        let help = "write domains = [{ domain = \"media\", mode = \"no-net\" }], say";
        problems.report(span, "`[protect]` protects nobody", help);
    }
    let mut first_of = HashMap::new();
    let mut domains = Vec::new();
    for (table, span) in list.iter().filter_map(Field::given) {
        let Some(one) = protected(table, span, names, problems) else {
            continue;
        };
        let (owner, place) = (tables[one.domain].0, table.domain.span.unwrap_or(span));
        if let Some(first) = first_of.insert(one.domain, place) {
            problems.push(Problem {
                help: Some("a domain is protected once".into()),
                related: Some((first, "the first time")),
                ..Problem::new(place, format!("{} is protected twice", title(owner)))
            });
        } else if !serves(one.domain) {
            let message = format!("{} is no server behind the driver domain", title(owner));
            let help = "only what goes through the driver domain can be held: name a server without a card of its own";
            problems.report(place, message, help);
        }
        domains.push(one);
    }
    let failure = match table.failure.given() {
        None => None,
        Some((failure, span)) => Some(failure_of(file, failure, span, problems)?),
    };
    Some(Protect {
        pause_ns: ns_or(&table.pause, 0),
        page_pause_ns: ns_or(&table.page_pause, 0),
        checkpoint_ns: ns_or(&table.checkpoint, 0),
        page_ns: ns_or(&table.page, 0),
        rate_bit_s: table.rate.value.map_or(RATE_BIT_S, |rate| rate.0),
        acknowledgement_ns: ns_or(&table.acknowledgement, 0),
        failure,
        domains,
    })
}

fn failure_of(
    file: &File,
    table: &FailureTable,
    span: Span,
    problems: &Problems,
) -> Option<Failure> {
    if lacks(span, "at", &table.at, problems) {
        problems.report(
            span,
            "this failure has no time",
            "write { at = \"10 s\" }, say",
        );
    }
    let (at, place) = table.at.given()?;
    if let Some((duration, end)) = file.duration.given()
        && at.ns >= duration.ns
    {
        problems.push(Problem {
            help: Some("let the host die before the run ends".into()),
            related: Some((end, "the end")),
            ..Problem::new(place, "this failure is after the end of the run")
        });
    }
    Some(Failure {
        at_ns: at.ns,
        detection_ns: ns_or(&table.detection, 300_000_000),
        activation_ns: ns_or(&table.activation, 4_000_000),
    })
}

fn protected(
    table: &ProtectedTable,
    span: Span,
    names: &Names<'_>,
    problems: &Problems,
) -> Option<Protected> {
    if lacks(span, "domain", &table.domain, problems) {
        let help = "write { domain = \"media\", mode = \"no-net\" }, say";
        problems.report(span, "this protection has no `domain`", help);
    }
    let bytes = table.memory.value.map_or(MEMORY_BYTES, |size| size.0);
    let pages_most = (bytes / PAGE_BYTES) as u64;
    if let (Some(span), 0) = (table.memory.span, pages_most) {
        let message = format!("{bytes} bytes are less than a page");
        problems.report(span, message, "write memory = \"1 GiB\", say");
    }
    let pages = (table.pages.value).map_or(PAGES.min(pages_most), |pages| pages.0 as u64);
    if let (Some(span), true) = (table.pages.span, pages > pages_most) {
        let message = format!("{pages} pages are more than the {pages_most} of its memory");
        problems.report(span, message, "write fewer `pages`, or more `memory`");
    }
    let (domain, _) = names.find(&table.domain, problems)?;
    Some(Protected {
        domain,
        mode: table.mode.value.unwrap_or_default(),
        interval_ns: ns_or(&table.interval, INTERVAL_NS),
        pages,
        pages_per_packet: (table.pages_per_packet.value).map_or(0, |pages| pages.0 as u64),
        pages_most,
        held: table.held.value.map_or(HELD, |held| held.0 as u32),
    })
}
