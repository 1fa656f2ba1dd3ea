//! Balancers, the first stage of a site: they take requests of clients, and pass each to its user's
//! signalling server.
//!
//! Clients find balancers by DNS (RFC 3263), by priority and weight (RFC 2782). That and the hash of users are all that
//! divides the load: a balancer remembers nothing.

use std::net::IpAddr;
use std::path::PathBuf;

use super::model::{Appliance, Balancer, Site, Tls};
use super::reading::{Reading, family};
use super::tables::{BalancerTable, File, SHARE_MAX, VmTable, items, named};
use super::words::{DomainName, Label, Several, Written};
use laxity_config::{Field, Span, Whole};

/// Ports of SIP in SRV records: over UDP and TCP, and over TLS.
const SIP_PORT: u16 = 5060;
const TLS_PORT: u16 = 5061;
/// Default weight of a balancer.
const SHARE: u16 = 10;

impl Reading<'_> {
    /// Resolves the domain and its balancers.
    pub(super) fn balancers(
        &self,
        file: &File,
        vms: &[(&VmTable, Span)],
    ) -> (Option<String>, Vec<Balancer>) {
        let tables = items(&file.balancer);
        self.once("two balancers have the name", &tables, |table| {
            let (Written(Label(name)), span) = table.name.given()?;
            Some((name, span))
        });
        match (file.domain.given(), tables.first()) {
            (Some((_, span)), None) if file.balancer.is_absent() => {
                let help = "add one: [[balancer]] with name and address, or leave `domain` out";
                self.problems
                    .report(span, "the domain has no balancers", help);
            }
            (None, Some((_, span))) if file.domain.is_absent() => {
                let help = "write domain = \"voice.example\" above all tables";
                self.problems
                    .report(*span, "balancers need a `domain`", help);
            }
            _ => {}
        }
        let is_signalling =
            |(table, _): &(&VmTable, Span)| table.appliance.value == Some(Appliance::Signalling);
        if let (Some((_, span)), false) = (tables.first(), vms.iter().any(is_signalling)) {
            let help = "add a [[vm]] with appliance = \"signalling\"";
            self.problems.report(
                *span,
                "a balancer has no virtual machine to pass requests to",
                help,
            );
        }
        self.families(&tables, vms);
        let balancers = tables.iter().map(|(table, span)| {
            let help = "write name = \"edge1\", say";
            self.lacks(*span, "name", table.name.is_absent(), "a balancer", help);
            let help = "write its address for SIP: address = \"192.0.2.21\"";
            let is_absent = table.address.is_absent();
            self.lacks(*span, "address", is_absent, "a balancer", help);
            let share = |field: &Field<Whole<0, SHARE_MAX>>| {
                let given = field.value.and_then(|share| u16::try_from(share.0).ok());
                given.unwrap_or(SHARE)
            };
            Balancer {
                name: match &table.name.value {
                    Some(Written(Label(name))) => name.clone(),
                    None => String::new(),
                },
                addresses: match &table.address.value {
                    Some(Several(addresses)) => addresses.clone(),
                    None => Vec::new(),
                },
                priority: share(&table.priority),
                weight: share(&table.weight),
            }
        });
        let domain = file.domain.value.as_ref();
        (
            domain.map(|Written(DomainName(name))| name.clone()),
            balancers.collect(),
        )
    }

    /// Checks that a balancer can pass a request on in the family of addresses in which it came.
    fn families(&self, balancers: &[(&BalancerTable, Span)], vms: &[(&VmTable, Span)]) {
        let servers = vms
            .iter()
            .filter(|(table, _)| table.appliance.value == Some(Appliance::Signalling));
        let servers: Vec<_> = servers
            .filter_map(|(table, _)| named(&table.name).zip(table.address.value.as_ref()))
            .collect();
        for (Several(addresses), span) in balancers.iter().filter_map(|(it, _)| it.address.given())
        {
            for address in addresses {
                let lacks = servers.iter().find(|(_, Several(interfaces))| {
                    let mut interfaces = interfaces.iter();
                    !interfaces.any(|it| it.address.is_ipv4() == address.is_ipv4())
                });
                if let Some(((name, _), _)) = lacks {
                    let family = family(*address);
                    let message = format!("`{name}` has no address of {family}, as a balancer has");
                    let help = format!(
                        "give every signalling appliance one of {family}, or no balancer: address = [\"192.0.2.31/24\", \"2001:db8::31/64\"], say"
                    );
                    self.problems.report(span, message, &*help);
                }
            }
        }
    }

    /// Resolves the domain's identity.
    pub(super) fn tls(&self, file: &File) -> Option<Tls> {
        let (table, span) = file.tls.given()?;
        if file.domain.is_absent() {
            let help = "write domain = \"voice.example\" above all tables";
            let message = "TLS needs a `domain`, for which the certificate is";
            self.problems.report(span, message, help);
        }
        let path = |key, field: &Field<Written<PathBuf>>, help| {
            self.lacks(span, key, field.is_absent(), "`tls`", help);
            let path = field.value.as_ref();
            path.map_or_else(PathBuf::new, |path| self.base.join(&path.0))
        };
        Some(Tls {
            certificate: path(
                "certificate",
                &table.certificate,
                "write certificate = \"voice.crt\", say",
            ),
            key: path("key", &table.key, "write key = \"voice.key\", say"),
        })
    }
}

impl Site {
    /// The records for DNS, in the format of a zone file (RFC 1035, section 5).
    pub fn records(&self) -> Vec<String> {
        let Some(domain) = &self.domain else {
            return Vec::new();
        };
        let service = |(service, port), balancer: &Balancer| {
            let Balancer {
                name,
                priority,
                weight,
                ..
            } = balancer;
            format!("{service}.{domain}. SRV {priority} {weight} {port} {name}.{domain}.")
        };
        let addresses = |balancer: &Balancer| {
            let name = format!("{}.{domain}.", balancer.name);
            let of_one = move |address: &IpAddr| {
                let kind = if address.is_ipv4() { "A" } else { "AAAA" };
                format!("{name} {kind} {address}")
            };
            balancer.addresses.iter().map(of_one).collect::<Vec<_>>()
        };
        let balancers = || self.balancers.iter();
        let plain = [("_sip._udp", SIP_PORT), ("_sip._tcp", SIP_PORT)];
        let services = self.tls.iter().map(|_| ("_sips._tcp", TLS_PORT));
        let services = (plain.into_iter().chain(services))
            .flat_map(|each| balancers().map(move |balancer| service(each, balancer)));
        services.chain(balancers().flat_map(addresses)).collect()
    }
}
