//! The model of a site file, complete with defaults.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use ureq::http::Uri;

use super::words::Interface;
use crate::gate::Outside;
use crate::guest::Specification;
use crate::protocol::Settings;
use crate::witness::Place;

/// Owner of the key and certificate of etcd's members.
pub(super) const WITNESS: &str = "witness";

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
    /// What balancers show to clients over TLS; without it they speak UDP and TCP alone.
    pub tls: Option<Tls>,
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

pub(super) fn other<'h>(hosts: &'h [String; 2], host: &str) -> Option<&'h str> {
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

/// The service of an appliance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Appliance {
    /// Registrar and proxy of SIP.
    Signalling,
    /// Relay of RTP, Laxity's own.
    Media,
    /// Relay of RTP, Debian's rtpengine.
    Rtpengine,
}

/// The appliance of a virtual machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Served {
    /// Service of the appliance.
    pub kind: Appliance,
    /// Addresses at which it serves, at most one of each family; the first is for other servers.
    pub addresses: Vec<Interface>,
}

impl Appliance {
    /// The name for `laxity appliance`.
    pub fn name(self) -> &'static str {
        match self {
            Appliance::Signalling => "signalling",
            Appliance::Media => "media",
            Appliance::Rtpengine => "rtpengine",
        }
    }

    /// Whether it relays calls.
    pub fn is_media_server(self) -> bool {
        match self {
            Appliance::Signalling => false,
            Appliance::Media | Appliance::Rtpengine => true,
        }
    }
}

/// The identity of a domain, which only its balancers need to have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Tls {
    /// File of the certificate, with those between it and its authority.
    pub certificate: PathBuf,
    /// File of the certificate's key.
    pub key: PathBuf,
}

/// A balancer, to which clients are sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Balancer {
    /// Name of the balancer in the domain.
    pub name: String,
    /// Addresses at which it serves SIP, at most one of each family.
    pub addresses: Vec<IpAddr>,
    /// SRV priority: balancers with the lowest number are asked first.
    pub priority: u16,
    /// SRV weight among balancers with the same priority.
    pub weight: u16,
}

/// A protected virtual machine that is a domain of Xen, by `xl remus`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Domain {
    /// Name in the domain's configuration.
    pub name: String,
    /// The first host, and the standby.
    pub hosts: [String; 2],
    /// Settings of the protocol; the interval is fixed.
    pub settings: Settings,
    /// Configuration for `xl create`.
    pub configuration: PathBuf,
    /// Script that holds an interface's output; see `xl remus -N`.
    pub hold_script: PathBuf,
}

impl Domain {
    /// The other one of its two hosts; `None` if `host` is neither.
    pub fn other(&self, host: &str) -> Option<&str> {
        other(&self.hosts, host)
    }
}
