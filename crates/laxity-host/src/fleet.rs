//! The fleet file: many hosts, the guests that are placed on them, and the constraints between them.
//!
//! A guest is a `[[domain]]` of a host file with a few more keys, and a host is a `[host]`. [`Fleet::host`] therefore
//! makes a host file of one host and the guests on it from pieces of the fleet file, and its problems are shown at
//! their places in the fleet file.

use std::collections::HashMap;

use laxity_config::{
    Field, FileError, Flag, List, Measured, Name, Piece, Problem, Problems, Span, Whole, kinds,
    suggest,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::checks::unique;
use crate::document::{Document, texts};
use crate::quantities::BitRate;
use crate::sections::calls::STREAMS_MAX;
use crate::sections::domain::DomainTable;
use crate::sections::host::HostTable;
use crate::sections::run::{RunDuration, Seed};
use crate::sections::workload::WorkloadKind;

/// Keys of a host that its host file does not have.
const OF_HOSTS: [&str; 2] = ["name", "link"];

/// Keys of a guest that its `[[domain]]` does not have.
const OF_GUESTS: [&str; 6] = [
    "host",
    "hosts",
    "protected",
    "standby",
    "minimum",
    "streams",
];

/// A fleet for `laxity design`: hosts, and guests (virtual machines) that are to be placed on them.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(
    default,
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table"
)]
#[schemars(title = "Laxity fleet file", extend("required" = ["duration", "host", "guest"]))]
pub(crate) struct FleetTable {
    /// How long a run of one of the hosts lasts: 1 ns to 10,000 h.
    duration: Field<RunDuration>,
    /// The seed of all randomness of such a run.
    #[schemars(extend("default" = 1))]
    seed: Field<Seed>,
    /// Keys of `[host]` that every host has, unless it has its own.
    every_host: Field<HostTable>,
    /// The physical hosts, each a `[[host]]`.
    #[schemars(extend("minItems" = 1))]
    host: Field<List<FleetHostTable>>,
    /// The virtual machines, each a `[[guest]]`.
    #[schemars(extend("minItems" = 1))]
    guest: Field<List<GuestTable>>,
    /// Guests that may not share a host, each set an `[[apart]]`.
    apart: Field<List<ApartTable>>,
}

/// A physical host of a fleet: the keys of a host file's `[host]`, and these.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(
    default,
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table"
)]
#[schemars(extend("required" = ["name"]))]
struct FleetHostTable {
    /// The name, unique in the fleet: letters, digits, `-`, `_` and `.`.
    name: Field<Name>,
    /// The rate that agreements divide: a little less than the host's card carries. Without it the host takes no guest
    /// that has a `minimum`.
    link: Field<Measured<BitRate>>,
    #[serde(rename = "$host")]
    #[schemars(flatten)]
    host: HostTable,
}

/// A virtual machine of a fleet: the keys of a host file's `[[domain]]`, and these.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(
    default,
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table"
)]
#[schemars(extend("required" = ["name"]))]
struct GuestTable {
    /// The host where the guest is today. By default it is not placed yet.
    host: Field<Name>,
    /// The hosts that may have the guest or its standby. By default all.
    #[schemars(extend("minItems" = 1))]
    hosts: Field<List<Name>>,
    /// Whether the guest has a standby on another host, which takes over when the guest's own fails.
    #[schemars(extend("default" = false))]
    protected: Field<Flag>,
    /// The host where the guest's standby is today. A guest that has one is protected.
    standby: Field<Name>,
    /// The minimum rate on its host's link in the guest's agreement. By default 0.
    minimum: Field<Measured<BitRate>>,
    /// The number of streams of voice through the guest, which is then a media server with a network card of its own.
    /// Its budget and period are found by simulation where they are not given. By default none.
    streams: Field<Whole<1, STREAMS_MAX>>,
    #[serde(rename = "$domain")]
    #[schemars(flatten)]
    domain: DomainTable,
}

/// Guests of which no two may share a host, even after the failure of a host.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(
    default,
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table"
)]
#[schemars(extend("required" = ["guests"]))]
struct ApartTable {
    /// The guests, at least two.
    #[schemars(extend("minItems" = 2))]
    guests: Field<List<Name>>,
}

/// A host of a fleet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FleetHost {
    /// The name, unique in the fleet.
    pub name: String,
    /// The first host that is the same but for its name and link.
    pub like: usize,
    /// The number of physical CPUs.
    pub cpus: u32,
    /// Whether the policy is open.
    pub policy: bool,
    /// The rate that agreements divide.
    pub link_bit_s: Option<i64>,
}

/// A guest of a fleet. Hosts are given by their numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FleetGuest {
    /// The name, unique in the fleet.
    pub name: String,
    /// The host where it is today.
    pub host: Option<usize>,
    /// The host of its standby today, which is another one.
    pub standby: Option<usize>,
    /// Whether it has a standby.
    pub protected: bool,
    /// The hosts that may have it or its standby, ascending; at least one.
    pub hosts: Vec<usize>,
    /// The rate that it is promised.
    pub minimum_bit_s: i64,
    /// The number of its VCPUs.
    pub vcpus: u32,
    /// Whether its CPUs are open: the file names none.
    pub affinity: bool,
    /// The number of streams of voice through it; 0 if it has no calls.
    pub streams: u32,
    /// Whether its budget is open.
    pub budget: bool,
    /// Its period, where that is given.
    pub period_ns: Option<i64>,
}

/// A fleet file.
#[derive(Debug, Clone, Serialize)]
pub struct Fleet {
    /// The hosts, in the order of the file; at least one.
    pub hosts: Vec<FleetHost>,
    /// The guests, in the order of the file; at least one.
    pub guests: Vec<FleetGuest>,
    /// Sets of guests, ascending, no two of which may be on one host.
    pub apart: Vec<Vec<usize>>,
    #[serde(skip)]
    pieces: Pieces,
}

#[derive(Debug, Clone)]
struct Pieces {
    document: laxity_config::Document,
    run: Vec<(&'static str, Piece)>,
    hosts: Vec<Piece>,
    /// The guests as analysis sees them.
    guests: Vec<Piece>,
    /// The guests as they are written.
    callers: Vec<Piece>,
}

/// The workload of a guest with calls, unless the file gives one.
const MEDIA_SERVER: &str = "workload = { kind = \"media-server\" }";

/// The workload of a guest with calls in the worst case.
const CPU_BOUND: &str = "workload = { kind = \"cpu-bound\" }";

/// A guest with negligible load.
const ANY_GUEST: &str =
    "name = \"any\"\ntasks = [{ name = \"any\", cost = \"1 us\", period = \"1 s\" }]";

/// A table that no file has.
fn literal(text: &str) -> Piece {
    let document =
        laxity_config::Document::parse(format!("[table]\n{text}").as_bytes(), "", &kinds::FLEET);
    let piece = document.ok().and_then(|document| document.piece("table"));
    piece.expect("the text is a table")
}

impl Fleet {
    /// Makes a fleet of the text of a fleet file; `name` is what messages call it. Overrides
    /// ("guest.plc.host=north") are applied before anything is checked.
    ///
    /// # Errors
    ///
    /// All problems, each with its place and a remedy.
    pub fn load(
        text: &[u8],
        name: &str,
        overrides: &[impl AsRef<str>],
    ) -> Result<Fleet, FileError> {
        Fleet::load_with(text, name, &texts(overrides))
    }

    /// [`Fleet::load`] for one type of overrides, so that it is compiled here.
    fn load_with(text: &[u8], name: &str, overrides: &[&str]) -> Result<Fleet, FileError> {
        let document = laxity_config::Document::parse(text, name, &kinds::FLEET)?;
        let document = document.with_overrides(overrides)?;
        let mut fleet = document.read_open(&[""; 0], |_, table: &FleetTable, root, problems| {
            resolve(table, &document, root, problems)
        })?;
        fleet.check()?;
        fleet.compare_hosts();
        Ok(fleet)
    }

    /// The host file of a host with these guests, in this order.
    pub fn host(&self, host: usize, guests: &[usize]) -> Document {
        let pieces = &self.pieces;
        let domains = guests.iter().map(|&guest| self.guest(guest));
        let of_host = [
            ("host", pieces.hosts[host].clone()),
            ("domain", Piece::list(domains)),
        ];
        let all = pieces.run.iter().cloned().chain(of_host);
        Document(pieces.document.of_pieces(all).of_kind(&kinds::HOST))
    }

    /// The host file of a host with these guests, in which one of them has its calls, and a card of
    /// its own. A host file has the calls of one domain: all other guests with calls compute
    /// without a pause.
    pub fn host_with_calls(&self, host: usize, guests: &[usize], caller: usize) -> Document {
        let pieces = &self.pieces;
        let name = &self.guests[caller].name;
        let streams = self.guests[caller].streams;
        let domains = guests.iter().map(|&guest| match guest == caller {
            true => (pieces.callers[guest].clone()).over_all(&literal(MEDIA_SERVER)),
            false => self.guest(guest),
        });
        let of_host = [
            ("host", pieces.hosts[host].clone()),
            ("domain", Piece::list(domains)),
            (
                "nic",
                Piece::list([literal(&format!("name = \"eth0\"\ndomain = {name:?}"))]),
            ),
            (
                "calls",
                literal(&format!("streams = {streams}\nmedia-server = {name:?}")),
            ),
        ];
        let all = pieces.run.iter().cloned().chain(of_host);
        Document(pieces.document.of_pieces(all).of_kind(&kinds::HOST))
    }

    /// The host file of a host with a guest that every host can have.
    pub fn host_of_any(&self, host: usize) -> Document {
        let pieces = &self.pieces;
        let of_host = [
            ("host", pieces.hosts[host].clone()),
            ("domain", Piece::list([literal(ANY_GUEST)])),
        ];
        let all = pieces.run.iter().cloned().chain(of_host);
        Document(pieces.document.of_pieces(all).of_kind(&kinds::HOST))
    }

    /// A guest as analysis sees it: one with calls uses all of its budget.
    fn guest(&self, guest: usize) -> Piece {
        let piece = self.pieces.guests[guest].clone();
        match self.guests[guest].streams {
            0 => piece,
            _ => piece.over(&literal(CPU_BOUND)),
        }
    }

    /// Checks every host and every guest as host files are checked.
    fn check(&mut self) -> Result<(), FileError> {
        for host in 0..self.hosts.len() {
            let (resolved, open) = self.host_of_any(host).open(&[""; 0])?;
            (self.hosts[host].cpus, self.hosts[host].policy) = (resolved.cpus, open.policy);
        }
        for guest in 0..self.guests.len() {
            let hosts = self.guests[guest].hosts.iter().copied();
            let Some(largest) = hosts.max_by_key(|&host| self.hosts[host].cpus) else {
                continue;
            };
            let document = match self.guests[guest].streams {
                0 => self.host(largest, &[guest]),
                _ => self.host_with_calls(largest, &[guest], guest),
            };
            let (resolved, open) = document.open(&[""; 0])?;
            let (found, domain) = (&mut self.guests[guest], &open.domains[0]);
            (found.affinity, found.budget) = (domain.affinity, domain.budget);
            let period_ns = resolved.domains[0].parameters.period_ns;
            found.period_ns = (!domain.period).then_some(period_ns);
        }
        Ok(())
    }

    /// Finds the hosts that are the same.
    fn compare_hosts(&mut self) {
        let mut first = HashMap::new();
        for (number, piece) in self.pieces.hosts.iter().enumerate() {
            self.hosts[number].like = *first.entry(piece.to_toml()).or_insert(number);
        }
    }
}

/// `root` is the place of the file.
fn resolve(
    table: &FleetTable,
    document: &laxity_config::Document,
    root: Span,
    problems: &Problems,
) -> Fleet {
    if table.duration.is_missing("duration", root, problems) {
        let help = "say how long a run of a host lasts, above the first table: duration = \"60 s\"";
        problems.report(root, "`duration` is missing", help);
    }
    let tables = given(&table.host);
    if table.host.is_missing("host", root, problems)
        || table.host.value.is_some() && tables.is_empty()
    {
        let help = "add one: [[host]] with name = \"north\", cpus = 4 and policy = \"deferrable\"";
        problems.report(
            table.host.span.unwrap_or(root),
            "this fleet has no host",
            help,
        );
    }
    let guests = given(&table.guest);
    if table.guest.is_missing("guest", root, problems)
        || table.guest.value.is_some() && guests.is_empty()
    {
        let help = "add one: [[guest]] with name = \"control\" and its tasks";
        problems.report(
            table.guest.span.unwrap_or(root),
            "this fleet has no guest",
            help,
        );
    }
    unique(
        "host",
        tables.iter().map(|(table, span)| (&table.name, *span)),
        problems,
    );
    unique(
        "guest",
        guests
            .iter()
            .map(|(table, span)| (&table.domain.name, *span)),
        problems,
    );
    let names = Names::of("host", tables.iter().map(|(table, _)| &table.name));
    let guest_names = Names::of("guest", guests.iter().map(|(table, _)| &table.domain.name));
    Fleet {
        hosts: tables.iter().map(|(table, _)| host(table)).collect(),
        guests: (guests.iter())
            .map(|(table, span)| guest(table, *span, &names, problems))
            .collect(),
        apart: (given(&table.apart).iter())
            .filter_map(|(table, span)| apart(table, *span, &guest_names, problems))
            .collect(),
        pieces: pieces(document),
    }
}

/// The valid elements of a list.
fn given<T>(list: &Field<List<T>>) -> Vec<(&T, Span)> {
    let list = list.value.iter().flat_map(|list| &list.0);
    list.filter_map(Field::given).collect()
}

fn pieces(document: &laxity_config::Document) -> Pieces {
    let every_host = document.piece("every-host");
    let elements = |key| {
        document
            .piece(key)
            .map_or(Vec::new(), |list| list.elements())
    };
    let host = |piece: Piece| {
        let piece = piece.without(&OF_HOSTS);
        match &every_host {
            Some(every_host) => piece.over(every_host),
            None => piece,
        }
    };
    Pieces {
        document: document.clone(),
        run: (["duration", "seed"].into_iter())
            .filter_map(|key| Some((key, document.piece(key)?)))
            .collect(),
        hosts: elements("host").into_iter().map(host).collect(),
        guests: (elements("guest").into_iter())
            .map(|piece| match piece.has("streams") {
                true => piece.without(&OF_GUESTS).without(&["workload"]),
                false => piece.without(&OF_GUESTS),
            })
            .collect(),
        callers: (elements("guest").into_iter())
            .map(|piece| piece.without(&OF_GUESTS))
            .collect(),
    }
}

/// Named tables, for keys that refer to them.
struct Names<'f> {
    what: &'static str,
    numbers: HashMap<&'f str, usize>,
}

impl<'f> Names<'f> {
    fn of(what: &'static str, fields: impl Iterator<Item = &'f Field<Name>>) -> Names<'f> {
        let named = fields.enumerate();
        let named = named.filter_map(|(number, field)| Some((&*field.value.as_ref()?.0, number)));
        Names {
            what,
            numbers: named.collect(),
        }
    }

    fn find(&self, field: &Field<Name>, problems: &Problems) -> Option<usize> {
        let (Name(name), span) = field.given()?;
        let found = self.numbers.get(name.as_str()).copied();
        if found.is_none() {
            let mut names: Vec<&str> = self.numbers.keys().copied().collect();
            names.sort_unstable();
            let all = format!("the {}s are", self.what);
            let help = suggest::help(name, names.into_iter(), &all);
            problems.report(span, format!("there is no {} `{name}`", self.what), help);
        }
        found
    }
}

fn host(table: &FleetHostTable) -> FleetHost {
    FleetHost {
        name: name(&table.name),
        like: 0,
        cpus: 0,
        policy: false,
        link_bit_s: table.link.value.map(|rate| rate.0.bit_s),
    }
}

fn name(field: &Field<Name>) -> String {
    field
        .value
        .as_ref()
        .map_or(String::new(), |name| name.0.clone())
}

fn guest(table: &GuestTable, span: Span, names: &Names<'_>, problems: &Problems) -> FleetGuest {
    let host = names.find(&table.host, problems);
    let standby = names.find(&table.standby, problems);
    let title = format!("guest `{}`", name(&table.domain.name));
    if let (Some(standby_span), Some(host_span)) = (table.standby.span, table.host.span)
        && standby.is_some()
        && standby == host
    {
        problems.push(Problem {
            help: Some("name another host, or write protected = true alone".into()),
            related: Some((host_span, "the guest itself")),
            ..Problem::new(
                standby_span,
                format!("the standby of {title} is on the same host as the guest"),
            )
        });
    }
    let protected = table.protected.value.map(|flag| flag.0);
    if let (Some(false), Some(place)) = (protected, table.standby.span) {
        let help = "leave one of them out: a guest with a standby is protected";
        problems.report(
            place,
            format!("{title} has a standby, but it is not protected"),
            help,
        );
    }
    let mut hosts: Vec<usize> = match &table.hosts.value {
        Some(list) => (list.0.iter())
            .filter_map(|field| names.find(field, problems))
            .collect(),
        None => (0..names.numbers.len()).collect(),
    };
    hosts.sort_unstable();
    hosts.dedup();
    let protected = protected.unwrap_or(standby.is_some());
    if let Some((list, place)) = table.hosts.given() {
        if list.0.is_empty() {
            let help = "name at least one host, or leave `hosts` out to allow all";
            problems.report(place, "`hosts` allows no host", help);
        } else if protected && hosts.len() == 1 {
            let help = "name another host for its standby";
            problems.report(
                place,
                format!("{title} is protected, but `hosts` allows only one host"),
                help,
            );
        }
    }
    if table.domain.is_drawn() {
        let help = "write its tasks";
        let place = table.domain.tasks.span.unwrap_or(span);
        problems.report(place, format!("the tasks of {title} are drawn"), help);
    }
    let kind = table.domain.kind();
    if let (Some(_), Some(place), Some(kind)) =
        (table.streams.value, table.domain.workload.span, kind)
        && kind != WorkloadKind::MediaServer
    {
        let message = format!("{title} has streams, but it is not a media server");
        let help = "leave the workload out, or give it kind = \"media-server\"";
        problems.report(place, message, help);
    }
    FleetGuest {
        name: name(&table.domain.name),
        host,
        standby,
        protected,
        hosts,
        minimum_bit_s: table.minimum.value.map_or(0, |rate| rate.0.bit_s),
        vcpus: table.domain.vcpus(),
        affinity: true,
        streams: table.streams.or(0) as u32,
        budget: true,
        period_ns: None,
    }
}

fn apart(
    table: &ApartTable,
    span: Span,
    names: &Names<'_>,
    problems: &Problems,
) -> Option<Vec<usize>> {
    let missing = table.guests.is_missing("guests", span, problems);
    let list = match table.guests.given() {
        Some((list, _)) => &list.0[..],
        None => &[],
    };
    if missing || table.guests.value.is_some() && list.len() < 2 {
        let help = "write guests = [\"one\", \"other\"], say";
        let place = table.guests.span.unwrap_or(span);
        problems.report(place, "`[[apart]]` needs at least two guests", help);
    }
    let mut first = HashMap::new();
    for (Name(name), span) in list.iter().filter_map(Field::given) {
        if let Some(first) = first.insert(name, span) {
            problems.push(Problem {
                help: Some("name each guest once".into()),
                related: Some((first, "the first time")),
                ..Problem::new(span, format!("guest `{name}` is named twice"))
            });
        }
    }
    let found = list.iter().map(|field| names.find(field, problems));
    let mut guests: Vec<usize> = found.collect::<Option<_>>()?;
    guests.sort_unstable();
    Some(guests)
}
