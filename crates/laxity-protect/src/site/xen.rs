//! Domains of Xen, which xl and its Remus run and protect.

use std::path::PathBuf;

use laxity_config::{Field, Span};

use super::defaults::{self, MS};
use super::model::{Domain, Host};
use super::reading::Reading;
use super::tables::VmTable;
use super::words::Written;
use crate::protocol::Mode;
use crate::protocol::interval::Bounds;

/// Default interval, which is that of `xl remus`.
const INTERVAL_NS: i64 = 200 * MS;
const HOLD_SCRIPT: &str = "/etc/xen/scripts/remus-netbuf-setup";

/// The keys that only a virtual machine of QEMU has: where each is set, and what would be right.
fn of_qemu(table: &VmTable) -> [(&'static str, Option<Span>, &'static str); 23] {
    const CONFIGURED: &str = "leave it out: `configuration` describes the domain";
    const NOT_ON_XEN: &str = "leave it out, or engine = \"xen\": appliances are made for QEMU";
    const NO_DISKS: &str = "leave it out: disks of domains of Xen are not protected";
    const OTHERWISE: &str = "leave it out: Xen and xl do this in their own way";
    // All fields are named, so that a new key has to be assigned to its engine here.
    let VmTable {
        name: _,
        hosts: _,
        engine: _,
        configuration: _,
        hold_script: _,
        mode: _,
        standby_lost: _,
        interval: _,
        heartbeat: _,
        detection: _,
        lease: _,
        appliance,
        address,
        media,
        memory,
        vcpus,
        machine,
        accelerator,
        cpu,
        qemu,
        kernel,
        initrd,
        append,
        disks,
        volumes,
        volume_bus,
        volume_format,
        arguments,
        console,
        mac,
        tap,
        socket,
        addresses,
        changes,
    } = table;
    [
        ("appliance", appliance.span, NOT_ON_XEN),
        ("address", address.span, NOT_ON_XEN),
        ("media", media.span, NOT_ON_XEN),
        ("memory", memory.span, CONFIGURED),
        ("vcpus", vcpus.span, CONFIGURED),
        ("machine", machine.span, CONFIGURED),
        ("accelerator", accelerator.span, OTHERWISE),
        ("cpu", cpu.span, CONFIGURED),
        ("qemu", qemu.span, OTHERWISE),
        ("kernel", kernel.span, CONFIGURED),
        ("initrd", initrd.span, CONFIGURED),
        ("append", append.span, CONFIGURED),
        ("disks", disks.span, CONFIGURED),
        ("volumes", volumes.span, NO_DISKS),
        ("volume-bus", volume_bus.span, NO_DISKS),
        ("volume-format", volume_format.span, NO_DISKS),
        ("arguments", arguments.span, CONFIGURED),
        ("console", console.span, OTHERWISE),
        ("mac", mac.span, CONFIGURED),
        ("tap", tap.span, CONFIGURED),
        ("socket", socket.span, CONFIGURED),
        ("addresses", addresses.span, OTHERWISE),
        ("changes", changes.span, OTHERWISE),
    ]
}

impl Reading<'_> {
    /// Resolves a `[[vm]]` with `engine = "xen"`.
    pub(super) fn xen_domain(&self, table: &VmTable, span: Span, hosts: &[Host]) -> Domain {
        let lacks = |key, is_absent, help| self.lacks(span, key, is_absent, "a domain", help);
        let help = "write the name in its configuration: name = \"signalling\", say";
        lacks("name", table.name.is_absent(), help);
        let help = "write the host on which it starts and that of its standby: hosts = [\"north\", \"south\"]";
        lacks("hosts", table.hosts.is_absent(), help);
        let help = "write configuration = \"signalling.cfg\", as for `xl create`";
        lacks("configuration", table.configuration.is_absent(), help);
        for (key, given, help) in of_qemu(table) {
            if let Some(given) = given {
                let message = format!("`{key}` is a key of virtual machines of QEMU");
                self.problems.report(given, message, help);
            }
        }
        if let Some(interval) = &table.interval.value {
            let given = [interval.maximum.span, interval.pauses.span];
            for span in given.into_iter().flatten() {
                let help = "write interval = { minimum = \"200 ms\" }";
                self.problems
                    .report(span, "Remus has a single, fixed interval", help);
            }
        }
        let name = table
            .name
            .value
            .as_ref()
            .map_or_else(String::new, |name| name.0.clone());
        let given = table.interval.value.as_ref();
        let interval_ns = given.and_then(|interval| interval.minimum.value);
        let interval_ns = interval_ns.map_or(INTERVAL_NS, |time| time.ns);
        let interval = Bounds {
            minimum_ns: interval_ns,
            maximum_ns: interval_ns,
            pause_share_percent: defaults::PAUSES_PERCENT,
        };
        let settings = self.settings(table, span, &name, interval);
        let waits_ns = 2 * settings.detection_ns;
        if settings.mode == Mode::NoNet && settings.lease_ns < waits_ns {
            let message = format!(
                "a lease of {} ms is too short for a detection of {} ms: a primary alone pauses its domain after the \
                 detection, and the standby has to wait until that is certain",
                settings.lease_ns / MS,
                settings.detection_ns / MS
            );
            let help = format!("write lease = \"{} ms\" or more", waits_ns / MS);
            let place = table.lease.span.or(table.detection.span);
            self.problems.report(place.unwrap_or(span), message, help);
        }
        let path = |field: &Field<Written<PathBuf>>| {
            field.value.as_ref().map(|path| self.base.join(&path.0))
        };
        if let (Some((_, span)), Mode::NoNet) = (table.hold_script.given(), settings.mode) {
            let help = "leave it out: in mode \"no-net\" no output is held";
            self.problems
                .report(span, "`hold-script` is a key of mode \"net\"", help);
        }
        if let Some((Written(path), span)) = table.configuration.given() {
            self.there(path, span);
        }
        Domain {
            hosts: self.pair(table, hosts),
            configuration: path(&table.configuration).unwrap_or_default(),
            hold_script: path(&table.hold_script).unwrap_or(HOLD_SCRIPT.into()),
            settings,
            name,
        }
    }
}
