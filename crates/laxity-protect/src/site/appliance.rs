//! Appliances, virtual machines made by the project: their images and kernel arguments.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use super::model::{Appliance, Served, Vm};
use super::reading::{Reading, family};
use super::tables::{VmTable, memory_bytes};
use super::words::{Interface, Several};
use laxity_config::{Name, Span};

/// Control port of a media server in the appliance.
const MEDIA_CONTROL_PORT: u16 = 2223;
/// Arguments for short boots with the console kept for `console`. On a busy host an emulated timer
/// is late, for which Linux would not boot without these; and a guest that has panicked reboots
/// instead of serving nobody. The files of an appliance may take more than a half of its memory.
const KERNEL_ARGUMENTS: &str =
    "console=ttyS0 quiet loglevel=1 cryptomgr.notests no_timer_check panic=1 rootfstype=ramfs";

/// Least memory with which the appliance `rtpengine` boots: it has its files, 180 MiB of libraries
/// first of all, in its memory, and twice while it boots.
const RTPENGINE_BYTES_MIN: u64 = 512 << 20;

/// The addresses of the signalling servers that use this media server.
fn controlling(media: &VmTable, all: &[(&VmTable, Span)]) -> Vec<String> {
    let name = media.name.value.as_ref().map(|Name(name)| name);
    all.iter()
        .filter(|(table, _)| table.media.value.as_ref().map(|Name(name)| name) == name)
        .filter_map(|(table, _)| table.address.value.as_ref())
        .flat_map(|Several(interfaces)| interfaces)
        .map(|interface| interface.address.to_string())
        .collect()
}

impl Reading<'_> {
    /// The settings that follow from being an appliance, and a check of those that only appliances
    /// have.
    pub(super) fn appliance(
        &self,
        table: &VmTable,
        span: Span,
        all: &[(&VmTable, Span)],
        directory: &Path,
        has_tls: bool,
        vm: &mut Vm,
    ) {
        let media = table.media.given().and_then(|(Name(name), place)| {
            let is_signalling = table.appliance.value == Some(Appliance::Signalling);
            if !is_signalling && !table.appliance.is_absent() {
                let help = "leave it out: `media` names the media server for the calls of a signalling appliance";
                self.problems
                    .report(place, "only a signalling appliance has `media`", help);
            }
            self.media(name, place, all)
        });
        let Some((&appliance, place)) = table.appliance.given() else {
            let others = [("address", table.address.span), ("media", table.media.span)];
            for (key, place) in others {
                if let (Some(place), true) = (place, table.appliance.is_absent()) {
                    let help = "write appliance = \"signalling\", \"media\" or \"rtpengine\", or leave it out";
                    self.problems
                        .report(place, format!("only an appliance has `{key}`"), help);
                }
            }
            return;
        };
        for (key, given) in [
            ("kernel", table.kernel.span),
            ("initrd", table.initrd.span),
            ("disks", table.disks.span),
        ] {
            if let Some(given) = given {
                let help = "leave it out, or `appliance`";
                self.problems
                    .report(given, format!("an appliance brings its own `{key}`"), help);
            }
        }
        let help = "write the address at which it serves: address = \"192.0.2.10/24\"";
        let is_absent = table.address.is_absent();
        self.lacks(span, "address", is_absent, "an appliance", help);
        let Some(Several(interfaces)) = &table.address.value else {
            return;
        };
        let name = appliance.name();
        let [kernel, initrd] = ["kernel".into(), format!("{name}.cpio")].map(|file: String| {
            let path = directory.join(file);
            if !(self.is_there)(&path) {
                let help = format!(
                    "make it: laxity appliance {name} -o {}",
                    directory.display()
                );
                self.problems
                    .report(place, format!("there is no {}", path.display()), &*help);
            }
            path
        });
        vm.guest.kernel = Some(kernel);
        vm.guest.initrd = Some(initrd);
        let written: Vec<_> = interfaces.iter().map(Interface::to_string).collect();
        let mut append = format!("{KERNEL_ARGUMENTS} address={}", written.join(","));
        if let Some(media) = media {
            let mut own = interfaces.iter();
            if let (false, Some(place)) = (
                own.any(|it| it.address.is_ipv4() == media.is_ipv4()),
                table.media.span,
            ) {
                let family = family(media);
                let message = format!("the media server is told of calls over {family}");
                let help = format!(
                    "give both servers an address of {family}, or the media server another one first"
                );
                self.problems.report(place, message, &*help);
            }
            let control = SocketAddr::new(media, MEDIA_CONTROL_PORT);
            append += &format!(" media_control={control}");
        }
        if appliance == Appliance::Signalling && has_tls {
            append += " tls=1";
        }
        if appliance.is_media_server() {
            let controlling = controlling(table, all);
            if !controlling.is_empty() {
                append += &format!(" control_from={}", controlling.join(","));
            } else if !vm.guest.append.contains("control_from=") {
                let help = "name it as `media` of a [[vm]] with appliance = \"signalling\", or write append = \"control_from=ADDRESS\"";
                self.problems
                    .report(place, "no host may control this media server", help);
            }
        }
        if appliance == Appliance::Rtpengine && memory_bytes(table) < RTPENGINE_BYTES_MIN {
            let help = format!(
                "write memory = \"{} MiB\" or more",
                RTPENGINE_BYTES_MIN >> 20
            );
            self.problems.report(
                table.memory.span.unwrap_or(place),
                "rtpengine does not boot in so little memory",
                &*help,
            );
        }
        vm.guest.append = format!("{append} {}", vm.guest.append).trim_end().into();
        vm.appliance = Some(Served {
            kind: appliance,
            addresses: interfaces.clone(),
        });
        let own = interfaces.iter().map(|interface| interface.address);
        vm.addresses.splice(0..0, own);
    }

    /// The address of a media server, by its name.
    fn media(&self, name: &str, place: Span, all: &[(&VmTable, Span)]) -> Option<IpAddr> {
        let named = all
            .iter()
            .find(|(table, _)| table.name.value.as_ref().is_some_and(|it| it.0 == name));
        match named {
            None => {
                let help = "name a [[vm]] with appliance = \"media\" or \"rtpengine\"";
                self.problems
                    .report(place, format!("there is no virtual machine `{name}`"), help);
                None
            }
            Some((table, _)) => {
                if !table
                    .appliance
                    .value
                    .is_some_and(Appliance::is_media_server)
                {
                    let help = "name a [[vm]] with appliance = \"media\" or \"rtpengine\"";
                    self.problems
                        .report(place, format!("`{name}` is not a media server"), help);
                }
                let Several(interfaces) = table.address.value.as_ref()?;
                Some(interfaces.first()?.address)
            }
        }
    }
}
