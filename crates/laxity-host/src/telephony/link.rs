//! What was agreed about the link: as it is written, and checked.

use laxity_bandwidth::bounds::{
    CLASS_MAX, PERIOD_NS, PERIOD_NS_MAX, PERIOD_NS_MIN, WEIGHT, WEIGHT_MAX,
};
use laxity_config::{Duration, Field, List, Name, Problem, Problems, Quantity, Span, Whole};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::file::WorkloadKind;
use super::resolve::{Names, kind};
use crate::file::{DomainTable, File};
use crate::quantities::Bits;
use crate::resolve::{lacks, ns_or, title};

/// Who is held to what, of what the driver domain's cards send.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Link {
    /// What is divided; at least 1000.
    pub rate_bit_s: i64,
    /// From one look of the allocator to the next; 1 ms to 10 s.
    pub period_ns: i64,
    /// How what is left is shared.
    pub sharing: LinkSharing,
    /// At least one; their minima fit the link.
    pub agreements: Vec<LinkAgreement>,
}

/// How what is left of a link is shared, once the minima are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LinkSharing {
    /// Among all, by weight.
    #[default]
    Weighted,
    /// One class after the other, by weight inside a class.
    ByClass,
}

/// What a domain was promised of what it sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct LinkAgreement {
    /// One whose packets go through the driver domain; it has no other agreement.
    pub domain: usize,
    /// 1 is the highest.
    pub class: u32,
    /// It gets this much whenever it asks for it; may be 0.
    pub minimum_bit_s: i64,
    /// It never gets more; at least the minimum, at least 1000.
    pub maximum_bit_s: i64,
    /// Its part of what is shared; at least 1.
    pub weight: u32,
}

/// Agreements about the link: who may send how much through the driver domain's cards. The allocator, in
/// the driver domain, sets the rate of each domain's network backend; what is too much is dropped in the guest.
/// Rates count frames from their Ethernet header on.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(
    default,
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table"
)]
#[schemars(extend("required" = ["rate", "agreements"]))]
pub(crate) struct LinkTable {
    /// What is divided: a little less than the cards carry, so that packets wait in guests and not in cards.
    pub rate: Field<Quantity<Bits>>,
    /// How often the allocator looks.
    #[schemars(extend("default" = laxity_config::format_duration(PERIOD_NS)))]
    pub period: Field<Duration<PERIOD_NS_MIN, PERIOD_NS_MAX>>,
    /// Who gets what is left after the minima: all by weight, or one class after the other.
    #[schemars(extend("default" = "weighted"))]
    pub sharing: Field<LinkSharing>,
    /// One for each domain that is held to something; the others send what they can.
    #[schemars(extend("minItems" = 1))]
    pub agreements: Field<List<LinkAgreementTable>>,
}

/// What a domain was promised.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(
    default,
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table, such as { domain = \"media\", class = 1, maximum = \"600 Mbit/s\" }"
)]
#[schemars(extend("required" = ["domain", "class", "maximum"]))]
pub(crate) struct LinkAgreementTable {
    /// The domain.
    pub domain: Field<Name>,
    /// 1 is the highest.
    pub class: Field<Whole<1, CLASS_MAX>>,
    /// It gets this much whenever it asks for it. By default nothing.
    pub minimum: Field<Quantity<Bits>>,
    /// It never gets more.
    pub maximum: Field<Quantity<Bits>>,
    /// Its part of what is shared.
    #[schemars(extend("default" = WEIGHT))]
    pub weight: Field<Whole<1, WEIGHT_MAX>>,
}

/// The link, if the file has one. `reached` are the domains whose packets go through the driver domain.
pub(super) fn resolve(
    file: &File,
    names: &Names<'_>,
    tables: &[(&DomainTable, Span)],
    reached: impl Fn(usize) -> bool,
    problems: &Problems,
) -> Option<Link> {
    let (table, span) = file.link.given()?;
    if file.calls.is_absent() {
        let message = "there are no packets to agree about without calls";
        problems.report(span, message, "add [calls] with streams = 100, say");
    }
    if lacks(span, "rate", &table.rate, problems) {
        let help = "write rate = \"980 Mbit/s\", say: a little less than the card's";
        problems.report(span, "`[link]` has no `rate`", help);
    }
    let list = match table.agreements.given() {
        Some((list, _)) => &list.0[..],
        None => &[],
    };
    if lacks(span, "agreements", &table.agreements, problems)
        || (table.agreements.value.is_some() && list.is_empty())
    {
        let help =
            "write agreements = [{ domain = \"media\", class = 1, maximum = \"600 Mbit/s\" }], say";
        problems.report(span, "`[link]` has no agreements", help);
    }
    let mut first_of = std::collections::HashMap::new();
    let mut agreements = Vec::new();
    for (table, span) in list.iter().filter_map(Field::given) {
        let Some(agreement) = agreement(table, span, names, problems) else {
            continue;
        };
        let domain = agreement.domain;
        let (owner, place) = (tables[domain].0, table.domain.span.unwrap_or(span));
        if let Some(first) = first_of.insert(domain, place) {
            problems.push(Problem {
                help: Some("a domain has one agreement".into()),
                related: Some((first, "the first one")),
                ..Problem::new(place, format!("{} has two agreements", title(owner)))
            });
        } else if !reached(domain) {
            let help = match kind(owner) {
                Some(WorkloadKind::MediaServer) => {
                    "it has a card of its own: leave one of them out"
                }
                _ => "agreements are for servers and senders",
            };
            let message = format!("{} sends nothing through the driver domain", title(owner));
            problems.report(place, message, help);
        }
        agreements.push(agreement);
    }
    let link = Link {
        rate_bit_s: table.rate.value?.0,
        period_ns: ns_or(&table.period, PERIOD_NS),
        sharing: table.sharing.value.unwrap_or_default(),
        agreements,
    };
    let minima: i128 = (link.agreements.iter())
        .map(|each| i128::from(each.minimum_bit_s))
        .sum();
    if minima > link.rate_bit_s.into() {
        let message = format!(
            "the minima add up to {minima} bit/s, and the link has {}",
            link.rate_bit_s
        );
        let help = "lower minima until they fit";
        problems.report(table.agreements.span.unwrap_or(span), message, help);
    }
    Some(link)
}

fn agreement(
    table: &LinkAgreementTable,
    span: Span,
    names: &Names<'_>,
    problems: &Problems,
) -> Option<LinkAgreement> {
    for (key, absent) in [
        ("domain", lacks(span, "domain", &table.domain, problems)),
        ("class", lacks(span, "class", &table.class, problems)),
        ("maximum", lacks(span, "maximum", &table.maximum, problems)),
    ] {
        if absent {
            let help = "write { domain = \"media\", class = 1, maximum = \"600 Mbit/s\" }, say";
            problems.report(span, format!("this agreement has no `{key}`"), help);
        }
    }
    let minimum_bit_s = table.minimum.value.map_or(0, |rate| rate.0);
    if let (Some((minimum, span)), Some((maximum, above))) =
        (table.minimum.given(), table.maximum.given())
        && minimum.0 > maximum.0
    {
        problems.push(Problem {
            help: Some("a minimum is at most the maximum".into()),
            related: Some((above, "the maximum")),
            ..Problem::new(span, "`minimum` is above `maximum`")
        });
    }
    let (domain, _) = names.find(&table.domain, problems)?;
    Some(LinkAgreement {
        domain,
        class: table.class.value?.0 as u32,
        minimum_bit_s,
        maximum_bit_s: table.maximum.value?.0,
        weight: table.weight.value.map_or(WEIGHT, |weight| weight.0 as u32),
    })
}
