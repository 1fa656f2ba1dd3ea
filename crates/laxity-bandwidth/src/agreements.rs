//! The agreements file: types, defaults, validation with line and column.

use std::collections::HashMap;
use std::fmt;

use laxity_config::kinds::AGREEMENTS;
use laxity_config::{
    Duration, Field, FileError, List, Measured, Name, Problem, Problems, Quantity, Span, Whole,
    read, written,
};
use serde::{Deserialize, Deserializer};

use crate::bounds::{CLASS_MAX, PERIOD_NS, PERIOD_NS_MAX, PERIOD_NS_MIN, WEIGHT, WEIGHT_MAX};
use crate::{Agreement, Claim, Sharing, allocate};

/// Limit of agreements in a file. The kernel numbers the classes of a tree with 16 bits, and each
/// agreement needs three.
const AGREEMENTS_MAX: usize = 20_000;
/// Limit of a domain's cards.
const CARDS_MAX: i64 = 64;
/// Part of the link that is reserved for traffic without an agreement, unless the file says
/// otherwise.
const RESERVE_PARTS: u64 = 100;

/// A link's rate or a maximum. Rates are set in whole bytes a second.
#[derive(Debug, Clone, Copy)]
struct LinkRate {
    bit_s: u64,
}

const RATE_UNITS: &[(&str, i64)] = &[
    ("bit/s", 1),
    ("kbit/s", 1_000),
    ("Mbit/s", 1_000_000),
    ("Gbit/s", 1_000_000_000),
    ("Tbit/s", 1_000_000_000_000),
];
const RATE_MAX: (i64, &str) = (10_000_000_000_000, "10 Tbit/s");

impl Quantity for LinkRate {
    const WHAT: &'static str = "a rate";
    const EXAMPLE: &'static str = "100 Mbit/s";
    const UNITS: &'static [(&'static str, i64)] = RATE_UNITS;
    const MIN: (i64, &'static str) = (8, "8 bit/s");
    const MAX: (i64, &'static str) = RATE_MAX;

    fn of(bit_s: i64) -> LinkRate {
        LinkRate {
            bit_s: bit_s as u64,
        }
    }
}

/// A minimum, which may be zero.
#[derive(Debug, Clone, Copy)]
struct PartRate {
    bit_s: u64,
}

impl Quantity for PartRate {
    const WHAT: &'static str = "a rate";
    const EXAMPLE: &'static str = "100 Mbit/s";
    const UNITS: &'static [(&'static str, i64)] = RATE_UNITS;
    const MIN: (i64, &'static str) = (0, "0 bit/s");
    const MAX: (i64, &'static str) = RATE_MAX;

    fn of(bit_s: i64) -> PartRate {
        PartRate {
            bit_s: bit_s as u64,
        }
    }
}

/// A burst: at least one Ethernet frame, since the kernel would never send less.
#[derive(Debug, Clone, Copy)]
struct Burst {
    bytes: u64,
}

impl Quantity for Burst {
    const WHAT: &'static str = "a size";
    const EXAMPLE: &'static str = "64 KiB";
    const UNITS: &'static [(&'static str, i64)] = &[("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20)];
    const MIN: (i64, &'static str) = (1_514, "1514 B");
    const MAX: (i64, &'static str) = (64 << 20, "64 MiB");

    fn of(bytes: i64) -> Burst {
        Burst {
            bytes: bytes as u64,
        }
    }
}

/// A rate in the unit that reads best, without rounding.
pub fn format_rate(bit_s: u64) -> String {
    let units = || RATE_UNITS.iter().map(|&(unit, scale)| (unit, scale as u64));
    // A rate reads well with at most three decimals and a whole part above zero (not "0.5 Gbit/s").
    let reads_well =
        |scale: u64| bit_s >= scale && (scale == 1 || bit_s.is_multiple_of(scale / 1000));
    let well = units().rev().find(|(_, scale)| reads_well(*scale));
    let (unit, scale) = well.unwrap_or(("bit/s", 1));
    let (whole, rest) = (bit_s / scale, bit_s % scale);
    if rest == 0 {
        return format!("{whole} {unit}");
    }
    let decimals = format!("{:03}", rest / (scale / 1000));
    format!("{whole}.{} {unit}", decimals.trim_end_matches('0'))
}

/// The contents of an agreements file.
#[derive(Debug, Clone, PartialEq)]
pub struct Agreements {
    /// Interval between two measurements of demands, after each of which the rates are set.
    pub period_ns: i64,
    /// How the rate that is left after the minima is shared.
    pub sharing: Sharing,
    /// The shared link.
    pub link: Link,
    /// One for each virtual machine's interface, in the order of the file.
    pub holders: Vec<Holder>,
    /// Warnings for the operator about minima that do not fit the link and that the file admits.
    pub warnings: Vec<String>,
}

impl Agreements {
    /// The agreement for traffic without an agreement, such as the host's own.
    pub fn others(&self) -> Agreement {
        Agreement {
            class: 1,
            minimum_bit_s: self.link.reserve_bit_s,
            maximum_bit_s: self.link.rate_bit_s,
            weight: 1,
        }
    }
}

/// The shared link.
#[derive(Debug, Clone, PartialEq)]
pub struct Link {
    /// Mechanism that sets the rates.
    pub backend: Backend,
    /// The network interface towards the outside.
    pub interface: String,
    /// The link's rate outwards, in bit/s.
    pub rate_bit_s: u64,
    /// The link's rate inwards, in bit/s; `None` means that traffic inwards is not limited.
    pub receive_bit_s: Option<u64>,
    /// The least rate of the host's own traffic, out of either rate, in bit/s.
    pub reserve_bit_s: u64,
}

/// Mechanism that sets the rates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Backend {
    /// The kernel's traffic control.
    Linux,
    /// The `rate` key of Xen's network backends.
    Xen,
}

/// The host's side of one network card of a virtual machine.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Attachment {
    /// The interface of this name.
    Interface(String),
    /// A card of a domain of libvirt, whose interface has another name whenever the domain starts.
    Card {
        /// The domain's name.
        domain: String,
        /// The card's place in the domain's configuration, from 1 on.
        number: usize,
    },
}

impl Attachment {
    /// The interface's name, if that is what the file has.
    pub fn interface(&self) -> Option<&str> {
        match self {
            Attachment::Interface(name) => Some(name),
            Attachment::Card { .. } => None,
        }
    }
}

impl fmt::Display for Attachment {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Attachment::Interface(name) => formatter.write_str(name),
            Attachment::Card { domain, number } => {
                write!(formatter, "card {number} of the domain {domain:?}")
            }
        }
    }
}

/// The holder of an agreement: one interface of a virtual machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Holder {
    /// The holder's name in messages and tables.
    pub name: String,
    /// Where its packets enter the host.
    pub at: Attachment,
    /// The agreement for what the holder sends.
    pub agreement: Agreement,
    /// The agreement for what the holder receives; its class is that of `agreement`.
    pub receive: Agreement,
    /// Burst that the holder may send after a pause on top of its rate. `None` stands for what one
    /// tick of the clock and one packet need.
    pub burst_bytes: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(
    default,
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table"
)]
struct File {
    period: Field<Duration<PERIOD_NS_MIN, PERIOD_NS_MAX>>,
    sharing: Field<SharingWord>,
    overcommit: Field<Overcommit>,
    absent: Field<Absent>,
    link: Field<LinkTable>,
    agreement: Field<List<AgreementTable>>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum SharingWord {
    Weighted,
    ByClass,
}

/// What to do with minima that do not fit the link.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Overcommit {
    Refuse,
    Warn,
}

/// What to do about an interface that does not exist when the file is read.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Absent {
    Refuse,
    Wait,
}

#[derive(Debug, Default, Deserialize)]
#[serde(
    default,
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table"
)]
struct LinkTable {
    backend: Field<Backend>,
    interface: Field<InterfaceName>,
    rate: Field<Measured<LinkRate>>,
    receive_rate: Field<Measured<LinkRate>>,
    reserve: Field<Measured<PartRate>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(
    default,
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table"
)]
struct AgreementTable {
    name: Field<Name>,
    interface: Field<InterfaceName>,
    domain: Field<DomainName>,
    card: Field<Whole<1, CARDS_MAX>>,
    class: Field<Whole<1, CLASS_MAX>>,
    minimum: Field<Measured<PartRate>>,
    maximum: Field<Measured<LinkRate>>,
    weight: Field<Whole<1, WEIGHT_MAX>>,
    burst: Field<Measured<Burst>>,
    receive: Field<ReceiveTable>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(
    default,
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table, such as { minimum = \"10 Mbit/s\", maximum = \"1 Gbit/s\" }"
)]
struct ReceiveTable {
    minimum: Field<Measured<PartRate>>,
    maximum: Field<Measured<LinkRate>>,
    weight: Field<Whole<1, WEIGHT_MAX>>,
}

/// The name of a network interface, under the kernel's rules.
#[derive(Debug, Clone)]
struct InterfaceName(String);

impl<'de> Deserialize<'de> for InterfaceName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        /// IFNAMSIZ less the terminating byte.
        const BYTES_MAX: usize = 15;
        let expected = "an interface's name in quotes, such as \"vif1.0\"";
        written(deserializer, expected, |text| {
            let help =
                format!("an interface's name has 1 to {BYTES_MAX} bytes, and no space, `/` or `:`");
            let is_wrong = |c: char| c.is_whitespace() || c.is_control() || "/:".contains(c);
            let wrong = if text.is_empty() || text == "." || text == ".." {
                format!("is not the name of an interface: {text:?}")
            } else if text.len() > BYTES_MAX {
                format!("is too long: {} bytes", text.len())
            } else if let Some(wrong) = text.chars().find(|c| is_wrong(*c)) {
                format!("cannot contain {wrong:?}")
            } else {
                return Ok(InterfaceName(text.into()));
            };
            Err(format!("{wrong}\n{help}"))
        })
    }
}

/// The name of a domain of libvirt, as `virsh` finds it by.
#[derive(Debug, Clone)]
struct DomainName(String);

impl<'de> Deserialize<'de> for DomainName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const BYTES_MAX: usize = 255;
        /// The hexadecimal digits of a UUID.
        const UUID_DIGITS: usize = 32;
        let expected = "a domain's name in quotes, such as \"media\"";
        written(deserializer, expected, |text| {
            let digits = text.chars().filter(|c| *c != '-');
            let is_uuid = digits.clone().count() == UUID_DIGITS
                && digits.clone().all(|c| c.is_ascii_hexdigit());
            let wrong = if text.is_empty() {
                "is empty".into()
            } else if text.len() > BYTES_MAX {
                format!("is too long: {} bytes", text.len())
            } else if let Some(wrong) = text.chars().find(|c| c.is_control() || *c == '/') {
                format!("cannot contain {wrong:?}")
            } else if text.starts_with('-') {
                format!("cannot begin with '-': {text:?}")
            } else if is_uuid || text.chars().all(|c| c.is_ascii_digit()) {
                format!("is what virsh takes for a domain's number or UUID: {text:?}")
            } else {
                return Ok(DomainName(text.into()));
            };
            Err(format!(
                "{wrong}\na domain's name is as `virsh list --all` shows it; for one that this file cannot have, name \
                 the interface instead"
            ))
        })
    }
}

/// What is known of the interface that a file names, or of a domain's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Port {
    /// It exists, and what enters by it can be held to an agreement.
    Usable,
    /// It does not exist now.
    Absent,
    /// Whether it exists cannot be told, for this reason.
    Unknown(String),
    /// It exists, and cannot be used for a reason; the second text says what would be right.
    Unusable(&'static str, &'static str),
}

/// What is known of an attachment where the interface of this name is the link's.
pub type LookAt<'a> = &'a dyn Fn(&Attachment, &str) -> Port;

/// Parses agreements from the text of a file. Messages call the file `name`; `look_at` is asked
/// about every interface, and a caller that does not care answers [`Port::Usable`].
///
/// # Errors
///
/// All that is wrong, with places and what would be right.
pub fn load(text: &[u8], name: &str, look_at: LookAt<'_>) -> Result<Agreements, FileError> {
    read(text, name, &AGREEMENTS, |file: &File, root, problems| {
        resolve(file, root, look_at, problems)
    })
}

fn resolve(file: &File, root: Span, look_at: LookAt<'_>, problems: &Problems) -> Agreements {
    let may_be_absent = file.absent.value == Some(Absent::Wait);
    let link = link(file, root, look_at, problems);
    let tables: Vec<(&AgreementTable, Span)> = match &file.agreement.value {
        Some(list) => list.0.iter().filter_map(Field::given).collect(),
        None => Vec::new(),
    };
    if file.agreement.is_absent() {
        problems.report(
            root,
            "there is no agreement",
            "add one: [[agreement]] with name, interface, class and maximum",
        );
    } else if tables.len() > AGREEMENTS_MAX {
        let message = format!("there are too many agreements: {}", tables.len());
        problems.report(root, message, format!("write at most {AGREEMENTS_MAX}"));
    }
    once(
        "name",
        "agreements have the name",
        &tables,
        |each| &each.name,
        |name| &name.0,
        problems,
    );
    once(
        "interface",
        "agreements are for the interface",
        &tables,
        |each| &each.interface,
        |name| &name.0,
        problems,
    );
    let mut holders = Vec::new();
    let mut cards: HashMap<Attachment, Span> = HashMap::new();
    for (table, span) in &tables {
        let attachment = attachment(table, *span, &link, problems);
        holders.push(holder(table, *span, attachment.clone(), &link, problems));
        let Some((_, span)) = place(table) else {
            continue;
        };
        if attachment.interface() == Some(&link.interface) {
            let help = "name the interface of one virtual machine";
            problems.report(
                span,
                format!("`{attachment}` is the link, not the interface of a virtual machine"),
                help,
            );
            continue;
        }
        if let Attachment::Card { number, .. } = &attachment
            && let Some(first) = cards.insert(attachment.clone(), span)
        {
            problems.push(Problem {
                help: Some(format!(
                    "give each agreement a card of its own, such as card = {}",
                    number + 1
                )),
                related: Some((first, "the first one")),
                ..Problem::new(span, format!("two agreements are for {attachment}"))
            });
            continue;
        }
        match look_at(&attachment, &link.interface) {
            Port::Absent if !may_be_absent => absent(&attachment, span, problems),
            Port::Unknown(why) if !may_be_absent => problems.report(
                span,
                format!("{attachment} is not known: {why}"),
                "see that libvirt answers `virsh --connect qemu:///system list`, name the interface instead, or write \
                 absent = \"wait\" above the first table",
            ),
            // On Xen each backend is held by itself, whatever its packets pass.
            Port::Unusable(reason, help) if link.backend == Backend::Linux => {
                problems.report(span, format!("`{attachment}` {reason}"), help);
            }
            _ => {}
        }
    }
    let mut agreements = Agreements {
        period_ns: file.period.value.map_or(PERIOD_NS, |period| period.ns),
        sharing: match file.sharing.value {
            Some(SharingWord::ByClass) => Sharing::ByClass,
            Some(SharingWord::Weighted) | None => Sharing::Weighted,
        },
        link,
        holders,
        warnings: Vec::new(),
    };
    if problems.is_empty() {
        check_minima(file, &tables, &mut agreements, problems);
    }
    agreements
}

/// The key that says where an agreement's packets enter the host, and its place; `None` without one.
fn place(table: &AgreementTable) -> Option<(&'static str, Span)> {
    let interface = table.interface.given().map(|(_, span)| ("interface", span));
    interface.or_else(|| Some(("domain", table.domain.given()?.1)))
}

fn attachment(table: &AgreementTable, span: Span, link: &Link, problems: &Problems) -> Attachment {
    let (interface, domain) = (table.interface.given(), table.domain.given());
    if let (Some(_), Some((_, span))) = (interface, domain) {
        problems.report(
            span,
            "an agreement has both `interface` and `domain`",
            "leave one of them out: a domain's interface is found by libvirt",
        );
    }
    if let (None, Some((_, span))) = (domain, table.card.given()) {
        let help = "add domain = \"media\", say, or leave `card` out";
        problems.report(span, "`card` needs a `domain`", help);
    }
    if let (Backend::Xen, Some((_, span))) = (link.backend, domain) {
        let help = "write interface = \"vif3.0\", say: device 0 of domain 3";
        problems.report(
            span,
            "`domain` is libvirt's, and not known with backend \"xen\"",
            help,
        );
    }
    let is_misspelt = |key| problems.is_misspelt(span, key);
    if table.interface.is_absent()
        && table.domain.is_absent()
        && !is_misspelt("interface")
        && !is_misspelt("domain")
    {
        problems.report(
            span,
            "an agreement has no `interface`",
            "write interface = \"vif1.0\", say: the host's side of the virtual machine's interface; or domain = \
             \"media\" for a domain of libvirt",
        );
    }
    match (interface, domain) {
        (None, Some((DomainName(domain), _))) => Attachment::Card {
            domain: domain.clone(),
            number: table.card.value.map_or(1, |card| card.0 as usize),
        },
        _ => Attachment::Interface(interface.map_or_else(String::new, |(name, _)| name.0.clone())),
    }
}

fn absent(attachment: &Attachment, span: Span, problems: &Problems) {
    let message = match attachment {
        Attachment::Interface(name) => format!("there is no interface `{name}`"),
        Attachment::Card { .. } => format!("{attachment} has no interface now"),
    };
    let create = match attachment {
        Attachment::Interface(_) => "create it first",
        Attachment::Card { .. } => "start the domain first",
    };
    let help = format!(
        "{create}, or write absent = \"wait\" above the first table if it may appear later"
    );
    problems.report(span, message, help);
}

fn link(file: &File, root: Span, look_at: LookAt<'_>, problems: &Problems) -> Link {
    let mut link = Link {
        backend: Backend::Linux,
        interface: String::new(),
        rate_bit_s: 0,
        receive_bit_s: None,
        reserve_bit_s: 0,
    };
    let Some((table, span)) = file.link.given() else {
        if file.link.is_absent() && !problems.is_misspelt(root, "link") {
            let help = "add [link] with interface = \"eth0\" and rate = \"1 Gbit/s\"";
            problems.report(root, "the table `[link]` is missing", help);
        }
        return link;
    };
    let lacks = |key, is_absent| is_absent && !problems.is_misspelt(span, key);
    if lacks("interface", table.interface.is_absent()) {
        let help = "write interface = \"eth0\", say: the interface towards the outside";
        problems.report(span, "`[link]` has no `interface`", help);
    }
    if lacks("rate", table.rate.is_absent()) {
        let help = "write rate = \"1 Gbit/s\", say: the rate of the link";
        problems.report(span, "`[link]` has no `rate`", help);
    }
    if let Some((InterfaceName(name), span)) = table.interface.given() {
        link.interface.clone_from(name);
        if look_at(&Attachment::Interface(name.clone()), name) == Port::Absent {
            let help = "name an existing interface; `ip link` lists them";
            problems.report(span, format!("there is no interface `{name}`"), help);
        }
    }
    link.backend = table.backend.value.unwrap_or(Backend::Linux);
    link.rate_bit_s = table.rate.value.map_or(0, |rate| rate.0.bit_s);
    link.receive_bit_s = table.receive_rate.value.map(|rate| rate.0.bit_s);
    if let (Backend::Xen, Some((_, span))) = (link.backend, table.receive_rate.given()) {
        let help = "leave it out: Xen's `rate` key limits only what a domain sends";
        problems.report(
            span,
            "`receive-rate` cannot be enforced with backend \"xen\"",
            help,
        );
    }
    link.reserve_bit_s = match table.reserve.value {
        Some(reserve) => reserve.0.bit_s,
        None => link.rate_bit_s / RESERVE_PARTS,
    };
    if let (Some((_, span)), true) = (table.reserve.given(), link.rate_bit_s > 0) {
        let least = link.receive_bit_s.unwrap_or(u64::MAX).min(link.rate_bit_s);
        if link.reserve_bit_s > least {
            let message = format!(
                "`reserve` is more than the link's rate, {}",
                format_rate(least)
            );
            problems.report(span, message, "write the rate that the host itself needs");
        }
    }
    link
}

fn holder(
    table: &AgreementTable,
    span: Span,
    at: Attachment,
    link: &Link,
    problems: &Problems,
) -> Holder {
    let lacks = |key, is_absent: bool, help: &str| {
        if is_absent && !problems.is_misspelt(span, key) {
            problems.report(span, format!("an agreement has no `{key}`"), help);
        }
    };
    lacks(
        "name",
        table.name.is_absent(),
        "write name = \"media\", say",
    );
    lacks(
        "class",
        table.class.is_absent(),
        "write class = 1 for the highest",
    );
    let help = "write the rate that it never exceeds: maximum = \"1 Gbit/s\"";
    lacks("maximum", table.maximum.is_absent(), help);
    bounds(&table.minimum, &table.maximum, problems);

    let class = table.class.value.map_or(1, |class| class.0 as u32);
    let weight = table.weight.value.map_or(WEIGHT, |weight| weight.0 as u32);
    let bit_s =
        |minimum: &Field<Measured<PartRate>>, maximum: &Field<Measured<LinkRate>>, default| {
            let maximum = maximum.value.map_or(default, |rate| rate.0.bit_s);
            (minimum.value.map_or(0, |rate| rate.0.bit_s), maximum)
        };
    let (minimum_bit_s, maximum_bit_s) = bit_s(&table.minimum, &table.maximum, link.rate_bit_s);
    let agreement = Agreement {
        class,
        minimum_bit_s,
        maximum_bit_s,
        weight,
    };
    let inwards_bit_s = link.receive_bit_s.unwrap_or(u64::MAX);
    let mut receive = Agreement {
        class,
        minimum_bit_s: 0,
        maximum_bit_s: inwards_bit_s,
        weight,
    };
    if let Some((given, span)) = table.receive.given() {
        bounds(&given.minimum, &given.maximum, problems);
        if link.receive_bit_s.is_none() {
            let help = "write the link's rate inwards: receive-rate = \"1 Gbit/s\" in [link]";
            problems.report(span, "`receive` needs the link's `receive-rate`", help);
        }
        (receive.minimum_bit_s, receive.maximum_bit_s) =
            bit_s(&given.minimum, &given.maximum, inwards_bit_s);
        receive.weight = given.weight.value.map_or(weight, |weight| weight.0 as u32);
    }
    Holder {
        name: table
            .name
            .value
            .clone()
            .map_or_else(String::new, |name| name.0),
        at,
        agreement,
        receive,
        burst_bytes: table.burst.value.map(|burst| burst.0.bytes),
    }
}

fn bounds(
    minimum: &Field<Measured<PartRate>>,
    maximum: &Field<Measured<LinkRate>>,
    problems: &Problems,
) {
    if let (Some((minimum, span)), Some((maximum, maximum_span))) =
        (minimum.given(), maximum.given())
        && minimum.0.bit_s > maximum.0.bit_s
    {
        let (low, high) = (maximum.0.bit_s, minimum.0.bit_s);
        problems.push(Problem {
            help: Some("write a minimum that does not exceed the maximum".into()),
            related: Some((maximum_span, "the maximum")),
            ..Problem::new(
                span,
                format!(
                    "`minimum` ({}) is above `maximum` ({})",
                    format_rate(high),
                    format_rate(low)
                ),
            )
        });
    }
}

/// Reports each value of a key that an earlier entry already has.
fn once<'t, T: 't>(
    key: &str,
    what: &str,
    tables: &[(&'t AgreementTable, Span)],
    field: impl Fn(&'t AgreementTable) -> &'t Field<T>,
    text: impl Fn(&'t T) -> &'t String,
    problems: &Problems,
) {
    let mut seen: HashMap<&str, Span> = HashMap::new();
    for (table, _) in tables {
        let Some((value, span)) = field(table).given() else {
            continue;
        };
        let value = text(value);
        if let Some(first) = seen.insert(value, span) {
            problems.push(Problem {
                help: Some(format!(
                    "give each agreement {} {key} of its own",
                    article(key)
                )),
                related: Some((first, "the first one")),
                ..Problem::new(span, format!("two {what} `{value}`"))
            });
        }
    }
}

fn article(word: &str) -> &'static str {
    if word.starts_with(['a', 'e', 'i', 'o', 'u']) {
        "an"
    } else {
        "a"
    }
}

/// Checks that minima fit the link in either direction; those that do not are refused, or admitted
/// with a warning.
fn check_minima(
    file: &File,
    tables: &[(&AgreementTable, Span)],
    agreements: &mut Agreements,
    problems: &Problems,
) {
    let link = &agreements.link;
    let admits = file.overcommit.value == Some(Overcommit::Warn);
    let directions = [
        (Some(link.rate_bit_s), "", false),
        (link.receive_bit_s, " to receive", true),
    ];
    for (rate_bit_s, direction, is_receive) in directions {
        let Some(rate_bit_s) = rate_bit_s else {
            continue;
        };
        let agreement = |holder: &Holder| {
            if is_receive {
                holder.receive
            } else {
                holder.agreement
            }
        };
        let own = agreements
            .holders
            .iter()
            .map(|each| u128::from(agreement(each).minimum_bit_s));
        let sum = own.sum::<u128>() + u128::from(link.reserve_bit_s);
        if sum <= u128::from(rate_bit_s) {
            continue;
        }
        let claims: Vec<Claim> = agreements
            .holders
            .iter()
            .map(|each| Claim {
                agreement: agreement(each),
                demand_bit_s: agreement(each).minimum_bit_s,
            })
            .collect();
        let left_bit_s = rate_bit_s.saturating_sub(link.reserve_bit_s);
        let rates = allocate(left_bit_s, agreements.sharing, &claims);
        let short = (0..claims.len()).filter(|&at| rates[at] < claims[at].demand_bit_s);
        let short: Vec<usize> = short.collect();
        let message = format!(
            "the minima{direction} and the reserve add up to {}, more than the link's {}",
            format_rate(u64::try_from(sum).unwrap_or(u64::MAX)),
            format_rate(rate_bit_s)
        );
        if admits {
            let names = short.iter().map(|&at| {
                let name = &agreements.holders[at].name;
                format!("`{name}` {}", format_rate(rates[at]))
            });
            let names: Vec<String> = names.take(10).collect();
            agreements.warnings.push(format!(
                "{message}; if all virtual machines ask at once, {} of {} get less than their minimum: {}",
                short.len(),
                claims.len(),
                names.join(", ")
            ));
        } else if let Some((table, span)) = short.first().map(|&at| tables[at]) {
            let help = "write lower minima, or allow it with overcommit = \"warn\" above the first table: \
                        the lowest class then gets too little first";
            let receive = table.receive.value.as_ref().filter(|_| is_receive);
            let minimum = receive.map_or(&table.minimum, |receive| &receive.minimum);
            problems.report(minimum.span.unwrap_or(span), message, help);
        }
    }
}
