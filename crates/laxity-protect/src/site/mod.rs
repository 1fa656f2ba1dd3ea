//! The site file: hosts, protected virtual machines, and balancers. Types, defaults, validation
//! with line and column.

mod appliance;
mod balancer;
mod defaults;
mod model;
mod reading;
mod tables;
mod words;
mod xen;

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use laxity_config::kinds::SITE;
use laxity_config::{Field, FileError, Problem, Span, read};

use crate::gate::Outside;
use crate::gate::frames::Mac;
use crate::guest::disk::DISKS_MAX;
use crate::guest::{Accelerator, Bus, Changes, Format, Kind, Specification};
use crate::protocol::interval::Bounds;
use crate::witness::Place;
use model::WITNESS;
pub use model::{Appliance, Balancer, Domain, Host, Served, Site, Tls, Vm, number_of};
use reading::{Reading, family};
use tables::{EngineWord, File, HostTable, VmTable, items, memory_bytes, named};
pub use words::Interface;
use words::{Endpoint, Several, Written, unprotectable};

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
    read(text, name, &SITE, |file: &File, whole, problems| {
        Reading {
            base,
            root,
            is_there,
            problems,
        }
        .site(file, whole)
    })
}

impl Reading<'_> {
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
        let tls = self.tls(file);
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
                self.appliance(table, *span, &tables, &appliances, tls.is_some(), &mut vm);
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
                        "leave `[witness]` out, or write a separate site file for domains of Xen";
                    self.problems
                        .report(span, "Remus does not use a witness", help);
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
            tls,
            balancers,
            hosts,
            vms,
            xen_domains,
        }
    }

    /// Checks that every server has addresses of its own, at most one of each family.
    fn addresses(&self, file: &File, vms: &[(&VmTable, Span)]) {
        let vms = vms.iter().filter_map(|(table, _)| {
            let (Several(interfaces), span) = table.address.given()?;
            let addresses: Vec<_> = interfaces.iter().map(|each| each.address).collect();
            Some((addresses, span))
        });
        let balancers = items(&file.balancer);
        let balancers = balancers.iter().filter_map(|(table, _)| {
            let (Several(addresses), span) = table.address.given()?;
            Some((addresses.clone(), span))
        });
        let mut seen: HashMap<IpAddr, Span> = HashMap::new();
        for (addresses, span) in vms.chain(balancers) {
            for (number, address) in addresses.iter().enumerate() {
                let mut others = addresses[..number].iter();
                if others.any(|other| other.is_ipv4() == address.is_ipv4()) {
                    let message = format!("two addresses of {}", family(*address));
                    let help = "give at most one of IPv4 and one of IPv6";
                    self.problems.report(span, message, help);
                } else if let Some(first) = seen.insert(*address, span) {
                    self.problems.push(Problem {
                        help: Some("give each an address of its own".into()),
                        related: Some((first, "the first one")),
                        ..Problem::new(span, format!("two have the address {address}"))
                    });
                }
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
                let help = "give it another name: the certificate of the witness has this name";
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
        let help = "write the address for the other hosts: address = \"192.0.2.1:7421\"";
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
        let help = "write the host on which it starts and that of its standby: hosts = [\"north\", \"south\"]";
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
                let message = format!("`{key}` is a key of domains of Xen");
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

    fn guest(&self, table: &VmTable, span: Span, name: &str) -> Specification {
        let path = |field: &Field<Written<PathBuf>>| {
            field.value.as_ref().map(|path| self.base.join(&path.0))
        };
        let text = |field: &Field<Written<String>>| field.value.as_ref().map(|text| text.0.clone());
        let boots = [
            table.kernel.is_absent(),
            table.disks.is_absent(),
            table.volumes.is_absent(),
            table.appliance.is_absent(),
        ];
        if boots == [true; 4] {
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
        let mut volumes = Vec::new();
        for (Written(image), span) in items(&table.volumes) {
            if volumes.contains(&self.base.join(image)) {
                let help = "give each disk an image of its own";
                let message = format!("two disks have the image {}", image.display());
                self.problems.report(span, message, help);
            }
            volumes.push(self.there(image, span));
        }
        if let (Some((_, span)), true) = (table.volumes.given(), volumes.len() > DISKS_MAX) {
            let message = format!("{} disks to write to", volumes.len());
            let help = format!("have {DISKS_MAX} at most");
            self.problems.report(span, message, &*help);
        }
        for (key, span) in [
            ("volume-bus", table.volume_bus.span),
            ("volume-format", table.volume_format.span),
        ] {
            if let (Some(span), true) = (span, table.volumes.is_absent()) {
                let help = "write volumes = [\"image\"], or leave it out";
                let message = format!("`{key}` has no effect without `volumes`");
                self.problems.report(span, message, help);
            }
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
            volumes,
            bus: table.volume_bus.value.unwrap_or(Bus::VirtioBlk),
            format: table.volume_format.value.unwrap_or(Format::Raw),
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
