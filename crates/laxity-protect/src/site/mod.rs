//! The site file: hosts, protected virtual machines, and balancers. Types, defaults, validation
//! with line and column.

mod appliance;
mod balancer;
mod words;
mod xen;

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use laxity_config::{
    Duration, Field, FileError, FileKind, List, Measured, Name, Problem, Problems, Quantity, Span,
    Whole, read,
};
use serde::{Deserialize, Serialize};
use ureq::http::Uri;

use crate::gate::Outside;
use crate::gate::frames::Mac;
use crate::guest::patches::batch_bytes_max;
use crate::guest::{Accelerator, Changes, DEVICE_STATE_BYTES_MAX, Kind, Specification};
use crate::protocol::interval::Bounds;
use crate::protocol::{Mode, Settings, StandbyLost};
use crate::witness::Place;
pub use appliance::{Appliance, Served};
pub use balancer::Balancer;
use balancer::BalancerTable;
pub use words::Interface;
use words::{DomainName, Endpoint, Written, unprotectable};
pub use xen::Domain;

const MS: i64 = 1_000_000;
const INTERVAL_NS_MIN: i64 = MS;
const TIME_NS_MAX: i64 = 60_000 * MS;
const VCPUS_MAX: i64 = 255;
/// Owner of the key and certificate of etcd's members.
const WITNESS: &str = "witness";

/// Default values, which the operator's page repeats.
mod defaults {
    use super::MS;
    use crate::protocol::LEASE_INTERVALS;
    pub use crate::protocol::defaults::{DETECTION_NS, DRIFT_PPM, HEARTBEAT_NS, STALL_DETECTIONS};

    pub const MINIMUM_NS: i64 = 25 * MS;
    pub const MAXIMUM_NS: i64 = 400 * MS;
    pub const PAUSES_PERCENT: i64 = 20;
    pub const LEASE_NS: i64 = LEASE_INTERVALS * MAXIMUM_NS;
    pub const MEMORY_BYTES: i64 = 256 << 20;
    pub const DIRECTORY: &str = "/var/lib/laxity-protect";
    pub const KEYS: &str = "/etc/laxity-protect";
    pub const APPLIANCES: &str = "/var/lib/laxity-protect/appliances";
    pub const QEMU: &str = "qemu-system-x86_64";
    pub const PREFIX: &str = "laxity-protect/";
}

/// Size of a guest's memory.
#[derive(Debug, Clone, Copy)]
struct Memory {
    bytes: i64,
}

impl Quantity for Memory {
    const WHAT: &'static str = "a size";
    const EXAMPLE: &'static str = "256 MiB";
    const UNITS: &'static [(&'static str, i64)] = &[("MiB", 1 << 20), ("GiB", 1 << 30)];
    const MIN: (i64, &'static str) = (16 << 20, "16 MiB");
    const MAX: (i64, &'static str) = (1 << 40, "1024 GiB");

    fn of(bytes: i64) -> Memory {
        Memory { bytes }
    }
}

/// The contents of a site file.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Site {
    /// Directory for state that must survive a restart.
    pub directory: PathBuf,
    /// Directory of the host's key, its certificate and the site's certificate.
    pub keys: PathBuf,
    /// Directory of the images from `laxity appliance`.
    pub appliances: PathBuf,
    /// The witness that gives out terms, if there is one.
    pub witness: Option<Place>,
    /// The SIP domain; clients ask DNS for its balancers.
    pub domain: Option<String>,
    /// All balancers.
    pub balancers: Vec<Balancer>,
    /// All hosts.
    pub hosts: Vec<Host>,
    /// The virtual machines that QEMU runs.
    pub vms: Vec<Vm>,
    /// The virtual machines that are domains of Xen.
    pub xen_domains: Vec<Domain>,
}

/// A machine that runs guests.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Host {
    /// Name in its certificate.
    pub name: String,
    /// Address for the other hosts.
    pub address: SocketAddr,
}

/// A protected virtual machine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Vm {
    /// Name in messages, by which both hosts identify it.
    pub name: String,
    /// Its service, if it is an appliance.
    pub appliance: Option<Served>,
    /// The first host, and the standby.
    pub hosts: [String; 2],
    /// Settings of the protocol.
    pub settings: Settings,
    /// Specification of the guest.
    pub guest: Specification,
    /// Network behind the gate.
    pub outside: Outside,
    /// Known addresses of the guest.
    pub addresses: Vec<IpAddr>,
}

fn other<'h>(hosts: &'h [String; 2], host: &str) -> Option<&'h str> {
    match hosts {
        [here, there] | [there, here] if here == host => Some(there),
        _ => None,
    }
}

impl Vm {
    /// The other one of its two hosts; `None` if `host` is neither.
    pub fn other(&self, host: &str) -> Option<&str> {
        other(&self.hosts, host)
    }
}

impl Site {
    /// All owners of keys, with the names in their certificates.
    pub fn owners_of_keys(&self) -> Vec<(String, Vec<String>)> {
        let hosts = self.hosts.iter();
        let mut owners: Vec<_> = hosts
            .map(|host| (host.name.clone(), vec![host.name.clone()]))
            .collect();
        let members = self.witness.iter().flat_map(|witness| &witness.endpoints);
        let addresses: Vec<String> = members
            .filter_map(|member| Uri::try_from(member).ok())
            .filter(|uri| uri.scheme_str() == Some("https"))
            .filter_map(|uri| Some(uri.host()?.trim_matches(['[', ']']).to_string()))
            .collect();
        if !addresses.is_empty() {
            owners.push((WITNESS.into(), addresses));
        }
        owners
    }

    /// The host with this name.
    pub fn host(&self, name: &str) -> Option<&Host> {
        self.hosts.iter().find(|host| host.name == name)
    }
}

/// A number for a name, the same on every host: FNV-1a.
pub fn number_of(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

#[derive(Debug, Default, Deserialize)]
#[serde(
    default,
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table"
)]
struct File {
    directory: Field<Written<PathBuf>>,
    keys: Field<Written<PathBuf>>,
    appliances: Field<Written<PathBuf>>,
    witness: Field<WitnessTable>,
    domain: Field<Written<DomainName>>,
    balancer: Field<List<BalancerTable>>,
    host: Field<List<HostTable>>,
    vm: Field<List<VmTable>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(
    default,
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table"
)]
struct HostTable {
    name: Field<Name>,
    address: Field<Written<SocketAddr>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(
    default,
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table"
)]
struct WitnessTable {
    endpoints: Field<List<Written<Endpoint>>>,
    prefix: Field<Written<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(
    default,
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table"
)]
struct VmTable {
    name: Field<Name>,
    hosts: Field<List<Name>>,
    engine: Field<EngineWord>,
    configuration: Field<Written<PathBuf>>,
    hold_script: Field<Written<PathBuf>>,
    appliance: Field<Appliance>,
    address: Field<Written<Interface>>,
    media: Field<Name>,
    mode: Field<ModeWord>,
    standby_lost: Field<StandbyLostWord>,
    interval: Field<IntervalTable>,
    heartbeat: Field<Duration<MS, TIME_NS_MAX>>,
    detection: Field<Duration<MS, TIME_NS_MAX>>,
    lease: Field<Duration<MS, TIME_NS_MAX>>,
    memory: Field<Measured<Memory>>,
    vcpus: Field<Whole<1, VCPUS_MAX>>,
    machine: Field<Kind>,
    accelerator: Field<Accelerator>,
    cpu: Field<Written<String>>,
    qemu: Field<Written<PathBuf>>,
    kernel: Field<Written<PathBuf>>,
    initrd: Field<Written<PathBuf>>,
    append: Field<Written<String>>,
    disks: Field<List<Written<PathBuf>>>,
    arguments: Field<List<Written<String>>>,
    console: Field<Written<PathBuf>>,
    mac: Field<Written<Mac>>,
    tap: Field<Written<String>>,
    socket: Field<Written<PathBuf>>,
    addresses: Field<List<Written<IpAddr>>>,
    changes: Field<Changes>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(
    default,
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table, such as { minimum = \"25 ms\", maximum = \"400 ms\", pauses = 20 }"
)]
struct IntervalTable {
    minimum: Field<Duration<INTERVAL_NS_MIN, TIME_NS_MAX>>,
    maximum: Field<Duration<INTERVAL_NS_MIN, TIME_NS_MAX>>,
    pauses: Field<Whole<1, 99>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum EngineWord {
    Qemu,
    Xen,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ModeWord {
    Net,
    NoNet,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum StandbyLostWord {
    Stop,
    Continue,
}

const KIND: FileKind = FileKind {
    noun: "site file",
    with_article: "a site file",
    least: "a site file has at least two [[host]] with name and address, and a [[vm]]",
};

/// Parses a site file. Messages call it `name`; its paths start in `base`, the file's own
/// directory, and the host's own directories are below `root`, which is "/" unless several hosts
/// share a machine. `is_there` is asked about every file that a guest needs; a caller that does not
/// care answers yes.
///
/// # Errors
///
/// All that is wrong, with places and what would be right.
pub fn load(
    text: &[u8],
    name: &str,
    base: &Path,
    root: &Path,
    is_there: &dyn Fn(&Path) -> bool,
) -> Result<Site, FileError> {
    read(text, name, &KIND, |file: &File, whole, problems| {
        Reading {
            base,
            root,
            is_there,
            problems,
        }
        .site(file, whole)
    })
}

struct Reading<'r> {
    base: &'r Path,
    root: &'r Path,
    is_there: &'r dyn Fn(&Path) -> bool,
    problems: &'r Problems,
}

fn items<T>(list: &Field<List<T>>) -> Vec<(&T, Span)> {
    match &list.value {
        Some(list) => list.0.iter().filter_map(Field::given).collect(),
        None => Vec::new(),
    }
}

fn named(field: &Field<Name>) -> Option<(&str, Span)> {
    let (Name(name), span) = field.given()?;
    Some((name, span))
}

impl Reading<'_> {
    /// One of the host's own directories.
    fn directory(&self, field: &Field<Written<PathBuf>>, default: &str) -> PathBuf {
        let path = match &field.value {
            Some(path) => self.base.join(&path.0),
            None => default.into(),
        };
        self.root.join(path.strip_prefix("/").unwrap_or(&path))
    }

    fn site(&self, file: &File, whole: Span) -> Site {
        let tables = items(&file.host);
        for (is_absent, what, help) in [
            (
                file.host.is_absent(),
                "there is no host",
                "add two: [[host]] with name and address",
            ),
            (
                file.vm.is_absent(),
                "there is no virtual machine",
                "add one: [[vm]] with name, hosts, kernel and tap",
            ),
        ] {
            if is_absent {
                self.problems.report(whole, what, help);
            }
        }
        self.once("two hosts have the name", &tables, |table| {
            named(&table.name)
        });
        let hosts: Vec<Host> = tables
            .iter()
            .map(|(table, span)| self.host(table, *span))
            .collect();
        let tables = items(&file.vm);
        self.once("two virtual machines have the name", &tables, |table| {
            named(&table.name)
        });
        let witness = self.witness(file);
        let appliances = self.directory(&file.appliances, defaults::APPLIANCES);
        let (of_xen, of_qemu): (Vec<_>, Vec<_>) = tables
            .iter()
            .copied()
            .partition(|(table, _)| table.engine.value == Some(EngineWord::Xen));
        let vms = of_qemu
            .iter()
            .map(|(table, span)| {
                let mut vm = self.vm(table, *span, &hosts);
                vm.settings.witness = witness.is_some();
                self.appliance(table, *span, &tables, &appliances, &mut vm);
                vm
            })
            .collect();
        let (domain, balancers) = self.balancers(file, &tables);
        self.addresses(file, &tables);
        let xen_domains = of_xen
            .iter()
            .map(|(table, span)| {
                if let (Some(_), Some((_, span))) = (&witness, table.engine.given()) {
                    let help =
                        "leave `[witness]` out, or have a site of its own for domains of Xen";
                    self.problems
                        .report(span, "Remus asks no witness who may go on", help);
                }
                self.xen_domain(table, *span, &hosts)
            })
            .collect();
        Site {
            directory: self.directory(&file.directory, defaults::DIRECTORY),
            keys: self.directory(&file.keys, defaults::KEYS),
            appliances,
            witness,
            domain,
            balancers,
            hosts,
            vms,
            xen_domains,
        }
    }

    /// Checks that every server has an address of its own.
    fn addresses(&self, file: &File, vms: &[(&VmTable, Span)]) {
        let vms = vms.iter().filter_map(|(table, _)| {
            let (Written(interface), span) = table.address.given()?;
            Some((IpAddr::V4(interface.address), span))
        });
        let balancers = items(&file.balancer);
        let balancers = balancers.iter().filter_map(|(table, _)| {
            let (Written(address), span) = table.address.given()?;
            Some((*address, span))
        });
        let mut seen: HashMap<IpAddr, Span> = HashMap::new();
        for (address, span) in vms.chain(balancers) {
            if let Some(first) = seen.insert(address, span) {
                self.problems.push(Problem {
                    help: Some("give each an address of its own".into()),
                    related: Some((first, "the first one")),
                    ..Problem::new(span, format!("two have the address {address}"))
                });
            }
        }
    }

    fn witness(&self, file: &File) -> Option<Place> {
        let (table, span) = file.witness.given()?;
        let help = "write its members: endpoints = [\"https://192.0.2.9:2379\"]";
        let given = items(&table.endpoints);
        let is_absent = table.endpoints.is_absent();
        self.lacks(span, "endpoints", is_absent, "a witness", help);
        if let Some((list, span)) = table.endpoints.given()
            && list.0.is_empty()
        {
            self.problems
                .report(span, "the witness has no members", help);
        }
        for host in items(&file.host)
            .iter()
            .filter_map(|(host, _)| host.name.given())
        {
            if host.0.0 == WITNESS {
                let help = "name it otherwise: the witness has a certificate of that name";
                self.problems
                    .report(host.1, format!("a host is called `{WITNESS}`"), help);
            }
        }
        Some(Place {
            endpoints: given
                .iter()
                .map(|(Written(Endpoint(member)), _)| member.clone())
                .collect(),
            prefix: table
                .prefix
                .value
                .as_ref()
                .map_or_else(|| defaults::PREFIX.into(), |prefix| prefix.0.clone()),
        })
    }

    fn host(&self, table: &HostTable, span: Span) -> Host {
        self.lacks(
            span,
            "name",
            table.name.is_absent(),
            "a host",
            "write name = \"north\", say",
        );
        let help = "write where the other hosts find it: address = \"192.0.2.1:7421\"";
        self.lacks(span, "address", table.address.is_absent(), "a host", help);
        Host {
            name: table
                .name
                .value
                .as_ref()
                .map_or_else(String::new, |name| name.0.clone()),
            address: table
                .address
                .value
                .as_ref()
                .map_or(([0, 0, 0, 0], 0).into(), |address| address.0),
        }
    }

    fn vm(&self, table: &VmTable, span: Span, hosts: &[Host]) -> Vm {
        let lacks =
            |key, is_absent, help| self.lacks(span, key, is_absent, "a virtual machine", help);
        lacks(
            "name",
            table.name.is_absent(),
            "write name = \"signalling\", say",
        );
        let help = "write where it begins and where its standby is: hosts = [\"north\", \"south\"]";
        lacks("hosts", table.hosts.is_absent(), help);
        let name = table
            .name
            .value
            .as_ref()
            .map_or_else(String::new, |name| name.0.clone());
        for (key, given) in [
            ("configuration", table.configuration.span),
            ("hold-script", table.hold_script.span),
        ] {
            if let Some(given) = given {
                let help = "leave it out, or write engine = \"xen\"";
                let message = format!("`{key}` is of domains of Xen");
                self.problems.report(given, message, help);
            }
        }
        Vm {
            hosts: self.pair(table, hosts),
            settings: self.settings(table, span, &name, interval(table)),
            appliance: None,
            guest: self.guest(table, span, &name),
            outside: self.outside(table, span),
            addresses: items(&table.addresses)
                .iter()
                .map(|(address, _)| address.0)
                .collect(),
            name,
        }
    }

    fn pair(&self, table: &VmTable, hosts: &[Host]) -> [String; 2] {
        let names = items(&table.hosts);
        for (Name(name), span) in &names {
            if !hosts.iter().any(|host| host.name == *name) {
                let help = "name one of the [[host]]s";
                self.problems
                    .report(*span, format!("there is no host `{name}`"), help);
            }
        }
        match &names[..] {
            [(first, _), (second, span)] => {
                if first == second {
                    let help = "a host that fails takes its standby with it; name another";
                    self.problems
                        .report(*span, "a virtual machine cannot protect itself", help);
                }
                [first.0.clone(), second.0.clone()]
            }
            names => {
                if let Some((_, span)) = table.hosts.given() {
                    let message = format!("`hosts` has two names, not {}", names.len());
                    let help =
                        "write where it begins and where its standby is: [\"north\", \"south\"]";
                    self.problems.report(span, message, help);
                }
                Default::default()
            }
        }
    }

    fn settings(&self, table: &VmTable, span: Span, name: &str, interval: Bounds) -> Settings {
        let detection_ns = table
            .detection
            .value
            .map_or(defaults::DETECTION_NS, |time| time.ns);
        let settings = Settings {
            vm: number_of(name),
            mode: match table.mode.value {
                Some(ModeWord::NoNet) => Mode::NoNet,
                Some(ModeWord::Net) | None => Mode::Net,
            },
            standby_lost: match table.standby_lost.value {
                Some(StandbyLostWord::Continue) => StandbyLost::Continue,
                Some(StandbyLostWord::Stop) | None => StandbyLost::Stop,
            },
            witness: false,
            heartbeat_ns: table
                .heartbeat
                .value
                .map_or(defaults::HEARTBEAT_NS, |time| time.ns),
            detection_ns,
            lease_ns: table.lease.value.map_or(defaults::LEASE_NS, |time| time.ns),
            stall_ns: defaults::STALL_DETECTIONS * detection_ns,
            drift_ppm: defaults::DRIFT_PPM,
            checkpoint_bytes_max: batch_bytes_max(memory_bytes(table))
                + DEVICE_STATE_BYTES_MAX as u64,
            interval,
        };
        if let (Some((_, span)), Mode::Net) = (table.lease.given(), settings.mode) {
            let help = "leave it out: in mode \"net\" output waits for acknowledgements, and needs no lease";
            self.problems
                .report(span, "`lease` is of mode \"no-net\"", help);
        }
        for wrong in settings.check().err().unwrap_or_default() {
            self.problems.report(
                span,
                wrong.to_string(),
                "change one of the two, or leave it out",
            );
        }
        settings
    }

    fn guest(&self, table: &VmTable, span: Span, name: &str) -> Specification {
        let path = |field: &Field<Written<PathBuf>>| {
            field.value.as_ref().map(|path| self.base.join(&path.0))
        };
        let text = |field: &Field<Written<String>>| field.value.as_ref().map(|text| text.0.clone());
        let boots = [
            table.kernel.is_absent(),
            table.disks.is_absent(),
            table.appliance.is_absent(),
        ];
        if boots == [true; 3] {
            let help = "write appliance = \"signalling\", or kernel = \"vmlinuz\" and initrd, or disks = [\"image\"]";
            self.problems
                .report(span, "a virtual machine has nothing to boot from", help);
        }
        if let (Some((_, span)), true) = (table.initrd.given(), table.kernel.is_absent()) {
            self.problems.report(
                span,
                "`initrd` needs a `kernel`",
                "write kernel = \"vmlinuz\", say",
            );
        }
        let mut disks = Vec::new();
        for (Written(disk), span) in items(&table.disks) {
            disks.push(self.there(disk, span));
        }
        for field in [&table.kernel, &table.initrd] {
            if let Some((Written(path), span)) = field.given() {
                self.there(path, span);
            }
        }
        let mut arguments = Vec::new();
        for (Written(argument), span) in items(&table.arguments) {
            if let Some((message, help)) = unprotectable(argument) {
                self.problems.report(span, message, help);
            }
            arguments.push(argument.clone());
        }
        Specification {
            name: name.into(),
            number: number_of(name),
            program: table
                .qemu
                .value
                .as_ref()
                .map_or(defaults::QEMU.into(), |path| path.0.clone()),
            kind: table.machine.value.unwrap_or(Kind::Pc),
            accelerator: table.accelerator.value.unwrap_or(Accelerator::Auto),
            cpu: text(&table.cpu),
            vcpus: table.vcpus.value.map_or(1, |vcpus| vcpus.0 as u32),
            memory_bytes: memory_bytes(table),
            kernel: path(&table.kernel),
            initrd: path(&table.initrd),
            append: text(&table.append).unwrap_or_default(),
            disks,
            mac: table
                .mac
                .value
                .as_ref()
                .map_or_else(|| mac_of(name), |mac| mac.0),
            console: path(&table.console),
            arguments,
            changes: table.changes.value.unwrap_or(Changes::Auto),
        }
    }

    fn there(&self, path: &Path, span: Span) -> PathBuf {
        let path = self.base.join(path);
        if !(self.is_there)(&path) {
            let help = "both hosts need it, at the same place";
            self.problems
                .report(span, format!("there is no {}", path.display()), help);
        }
        path
    }

    fn outside(&self, table: &VmTable, span: Span) -> Outside {
        match (&table.tap.value, &table.socket.value) {
            (Some(tap), None) => return Outside::Tap(tap.0.clone()),
            (None, Some(socket)) => return Outside::Socket(self.base.join(&socket.0)),
            (Some(_), Some(_)) => {
                let help = "leave one out: `tap` for an interface of the host, `socket` for a virtual switch";
                self.problems.report(
                    span,
                    "a virtual machine has one network: `tap` or `socket`",
                    help,
                );
            }
            (None, None) if table.tap.is_absent() && table.socket.is_absent() => {
                let help = "write tap = \"tap0\", an interface of the host that is on a bridge";
                self.problems
                    .report(span, "a virtual machine has no network", help);
            }
            (None, None) => {}
        }
        Outside::Tap(String::new())
    }

    fn lacks(&self, table: Span, key: &'static str, is_absent: bool, what: &str, help: &str) {
        if is_absent && !self.problems.is_misspelt(table, key) {
            self.problems
                .report(table, format!("{what} has no `{key}`"), help);
        }
    }

    fn once<'t, T: 't>(
        &self,
        what: &str,
        tables: &[(&'t T, Span)],
        name: impl Fn(&'t T) -> Option<(&'t str, Span)>,
    ) {
        let mut seen: HashMap<&str, Span> = HashMap::new();
        for (table, _) in tables {
            if let Some((name, span)) = name(table)
                && let Some(first) = seen.insert(name, span)
            {
                self.problems.push(Problem {
                    help: Some("give each a name of its own".into()),
                    related: Some((first, "the first one")),
                    ..Problem::new(span, format!("{what} `{name}`"))
                });
            }
        }
    }
}

fn memory_bytes(table: &VmTable) -> u64 {
    let memory = table.memory.value;
    memory.map_or(defaults::MEMORY_BYTES, |memory| memory.0.bytes) as u64
}

/// The interval of a virtual machine that QEMU runs.
fn interval(table: &VmTable) -> Bounds {
    let interval = table.interval.value.as_ref();
    let minimum_ns = interval
        .and_then(|table| table.minimum.value)
        .map(|time| time.ns);
    let maximum_ns = interval
        .and_then(|table| table.maximum.value)
        .map(|time| time.ns);
    let pauses = interval
        .and_then(|table| table.pauses.value)
        .map(|percent| percent.0);
    let minimum_or_default_ns =
        minimum_ns.unwrap_or(defaults::MINIMUM_NS.min(maximum_ns.unwrap_or(i64::MAX)));
    Bounds {
        minimum_ns: minimum_or_default_ns,
        maximum_ns: maximum_ns.unwrap_or(defaults::MAXIMUM_NS.max(minimum_or_default_ns)),
        pause_share_percent: pauses.unwrap_or(defaults::PAUSES_PERCENT),
    }
}

/// A locally administered address, the same on both hosts.
fn mac_of(name: &str) -> Mac {
    let [a, b, c, ..] = number_of(name).to_le_bytes();
    [0x52, 0x54, 0, a, b, c]
}
