//! The common part of the readers of all tables.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use laxity_config::{Field, Name, Problem, Problems, Span};

use super::defaults;
use super::model::{Host, number_of};
use super::tables::{ModeWord, StandbyLostWord, VmTable, items, memory_bytes};
use super::words::Written;
use crate::guest::DEVICE_STATE_BYTES_MAX;
use crate::guest::disk::STAGED_BYTES_MAX;
use crate::guest::patches::batch_bytes_max;
use crate::protocol::interval::Bounds;
use crate::protocol::{Mode, Settings, StandbyLost};

/// A site file that is being read: where its paths begin, and what is wrong with it.
pub struct Reading<'r> {
    pub base: &'r Path,
    pub root: &'r Path,
    pub is_there: &'r dyn Fn(&Path) -> bool,
    pub problems: &'r Problems,
}

impl Reading<'_> {
    /// One of the host's own directories.
    pub fn directory(&self, field: &Field<Written<PathBuf>>, default: &str) -> PathBuf {
        let path = match &field.value {
            Some(path) => self.base.join(&path.0),
            None => default.into(),
        };
        self.root.join(path.strip_prefix("/").unwrap_or(&path))
    }

    pub fn pair(&self, table: &VmTable, hosts: &[Host]) -> [String; 2] {
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
                    let help = "name another host: a failed host loses its standbys, too";
                    self.problems.report(
                        *span,
                        "a virtual machine and its standby are on the same host",
                        help,
                    );
                }
                [first.0.clone(), second.0.clone()]
            }
            names => {
                if let Some((_, span)) = table.hosts.given() {
                    let message = format!("`hosts` has two names, not {}", names.len());
                    let help = "write the host on which it starts and that of its standby: [\"north\", \"south\"]";
                    self.problems.report(span, message, help);
                }
                Default::default()
            }
        }
    }

    pub fn settings(&self, table: &VmTable, span: Span, name: &str, interval: Bounds) -> Settings {
        let detection_ns = table
            .detection
            .value
            .map_or(defaults::DETECTION_NS, |time| time.ns);
        let heartbeat_ns = table
            .heartbeat
            .value
            .map_or(defaults::HEARTBEAT_NS, |time| time.ns);
        let disks_bytes_max = match items(&table.volumes).is_empty() {
            true => 0,
            false => STAGED_BYTES_MAX,
        };
        let lease_ns = table.lease.value.map_or(defaults::LEASE_NS, |time| time.ns);
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
            heartbeat_ns,
            detection_ns,
            detection_min_ns: detection_ns.min(defaults::DETECTION_MIN_HEARTBEATS * heartbeat_ns),
            lease_ns,
            settling_ns: defaults::SETTLING_LEASES * lease_ns,
            stall_ns: defaults::STALL_DETECTIONS * detection_ns,
            drift_ppm: defaults::DRIFT_PPM,
            checkpoint_bytes_max: batch_bytes_max(memory_bytes(table))
                + DEVICE_STATE_BYTES_MAX as u64
                + disks_bytes_max as u64,
            interval,
        };
        if let (Some((_, span)), Mode::Net) = (table.lease.given(), settings.mode) {
            let help = "leave it out: in mode \"net\" output waits for acknowledgements and needs no lease";
            self.problems
                .report(span, "`lease` is a key of mode \"no-net\"", help);
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

    pub fn there(&self, path: &Path, span: Span) -> PathBuf {
        let path = self.base.join(path);
        if !(self.is_there)(&path) {
            let help = "both hosts need it, at the same place";
            self.problems
                .report(span, format!("there is no {}", path.display()), help);
        }
        path
    }

    pub fn lacks(&self, table: Span, key: &'static str, is_absent: bool, what: &str, help: &str) {
        if is_absent && !self.problems.is_misspelt(table, key) {
            self.problems
                .report(table, format!("{what} has no `{key}`"), help);
        }
    }

    pub fn once<'t, T: 't>(
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

/// The family of an address, for messages.
pub fn family(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "IPv4" } else { "IPv6" }
}
