//! The tables of a site file, as they may be written.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use laxity_config::{Duration, Field, List, Measured, Name, Quantity, Span, Whole};
use serde::Deserialize;

use super::defaults::{self, INTERVAL_NS_MIN, MS, TIME_NS_MAX, VCPUS_MAX};
use super::model::Appliance;
use super::words::{DomainName, Endpoint, Interface, Label, Several, Written};
use crate::gate::frames::Mac;
use crate::guest::{Accelerator, Bus, Changes, Format, Kind};

pub const SHARE_MAX: i64 = u16::MAX as i64;

/// Size of a guest's memory.
#[derive(Debug, Clone, Copy)]
pub struct Memory {
    pub bytes: i64,
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

#[derive(Debug, Default, Deserialize)]
#[serde(
    default,
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table"
)]
pub struct File {
    pub directory: Field<Written<PathBuf>>,
    pub keys: Field<Written<PathBuf>>,
    pub appliances: Field<Written<PathBuf>>,
    pub witness: Field<WitnessTable>,
    pub domain: Field<Written<DomainName>>,
    pub tls: Field<TlsTable>,
    pub balancer: Field<List<BalancerTable>>,
    pub host: Field<List<HostTable>>,
    pub vm: Field<List<VmTable>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(
    default,
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table"
)]
pub struct HostTable {
    pub name: Field<Name>,
    pub address: Field<Written<SocketAddr>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(
    default,
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table"
)]
pub struct WitnessTable {
    pub endpoints: Field<List<Written<Endpoint>>>,
    pub prefix: Field<Written<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(
    default,
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table"
)]
pub struct VmTable {
    pub name: Field<Name>,
    pub hosts: Field<List<Name>>,
    pub engine: Field<EngineWord>,
    pub configuration: Field<Written<PathBuf>>,
    pub hold_script: Field<Written<PathBuf>>,
    pub appliance: Field<Appliance>,
    pub address: Field<Several<Interface>>,
    pub media: Field<Name>,
    pub mode: Field<ModeWord>,
    pub standby_lost: Field<StandbyLostWord>,
    pub interval: Field<IntervalTable>,
    pub heartbeat: Field<Duration<MS, TIME_NS_MAX>>,
    pub detection: Field<Duration<MS, TIME_NS_MAX>>,
    pub lease: Field<Duration<MS, TIME_NS_MAX>>,
    pub memory: Field<Measured<Memory>>,
    pub vcpus: Field<Whole<1, VCPUS_MAX>>,
    pub machine: Field<Kind>,
    pub accelerator: Field<Accelerator>,
    pub cpu: Field<Written<String>>,
    pub qemu: Field<Written<PathBuf>>,
    pub kernel: Field<Written<PathBuf>>,
    pub initrd: Field<Written<PathBuf>>,
    pub append: Field<Written<String>>,
    pub disks: Field<List<Written<PathBuf>>>,
    pub volumes: Field<List<Written<PathBuf>>>,
    pub volume_bus: Field<Bus>,
    pub volume_format: Field<Format>,
    pub arguments: Field<List<Written<String>>>,
    pub console: Field<Written<PathBuf>>,
    pub mac: Field<Written<Mac>>,
    pub tap: Field<Written<String>>,
    pub socket: Field<Written<PathBuf>>,
    pub addresses: Field<List<Written<IpAddr>>>,
    pub changes: Field<Changes>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(
    default,
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table, such as { minimum = \"25 ms\", maximum = \"400 ms\", pauses = 20 }"
)]
pub struct IntervalTable {
    pub minimum: Field<Duration<INTERVAL_NS_MIN, TIME_NS_MAX>>,
    pub maximum: Field<Duration<INTERVAL_NS_MIN, TIME_NS_MAX>>,
    pub pauses: Field<Whole<1, 99>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EngineWord {
    Qemu,
    Xen,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModeWord {
    Net,
    NoNet,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StandbyLostWord {
    Stop,
    Continue,
}

#[derive(Debug, Default, Deserialize)]
#[serde(
    default,
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table"
)]
pub struct TlsTable {
    pub certificate: Field<Written<PathBuf>>,
    pub key: Field<Written<PathBuf>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(
    default,
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table"
)]
pub struct BalancerTable {
    pub name: Field<Written<Label>>,
    pub address: Field<Several<IpAddr>>,
    pub priority: Field<Whole<0, SHARE_MAX>>,
    pub weight: Field<Whole<0, SHARE_MAX>>,
}

pub fn items<T>(list: &Field<List<T>>) -> Vec<(&T, Span)> {
    match &list.value {
        Some(list) => list.0.iter().filter_map(Field::given).collect(),
        None => Vec::new(),
    }
}

pub fn named(field: &Field<Name>) -> Option<(&str, Span)> {
    let (Name(name), span) = field.given()?;
    Some((name, span))
}

/// The size of a virtual machine's memory.
pub fn memory_bytes(table: &VmTable) -> u64 {
    let memory = table.memory.value;
    memory.map_or(defaults::MEMORY_BYTES, |memory| memory.0.bytes) as u64
}
