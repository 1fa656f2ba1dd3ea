//! A host's workloads as they are at the beginning.

use super::card::Card;
use super::interface::Interface;
use super::line::Line;
use super::link::Allocator;
use super::path::{LinkState, Path};
use super::phones::Phones;
use super::protect::Protection;
use super::threads::{Pool, Role};
use super::{NEVER, Origin, Outside, Source, Workloads};
use laxity_host::{Calls, Cost, Host, Protect, Server, Workload};
use laxity_run::Drops;
use rand_core::RngCore;
use rand_pcg::Pcg32;
use std::collections::{BinaryHeap, VecDeque};

impl Workloads {
    /// `first_vcpus` is the number of each domain's first VCPU; `stream` gives a stream of random numbers by number.
    pub fn new(host: &Host, first_vcpus: &[usize], stream: impl Fn(usize) -> Pcg32) -> Workloads {
        let domains = host.domains.len();
        let vcpus = host.domains.iter().map(|domain| domain.vcpus.len());
        let mut workloads = Workloads {
            lines: Vec::new(),
            domain_of: (vcpus.enumerate())
                .flat_map(|(domain, vcpus)| std::iter::repeat_n(domain, vcpus))
                .collect(),
            random: (0..domains).map(&stream).collect(),
            pools: (0..domains).map(|_| None).collect(),
            bursts: vec![None; domains],
            sources: Vec::new(),
            interfaces: Vec::new(),
            cards: Vec::new(),
            names: Vec::new(),
            wires: Vec::new(),
            card_sources: Vec::new(),
            outside: BinaryHeap::new(),
            outside_made: 0,
            path: None,
            protections: Vec::new(),
            still: vec![false; domains],
            failure: None,
            drops: Drops::default(),
            next_ns: NEVER,
            signals: Vec::new(),
        };
        workloads.lines = (workloads.domain_of.iter())
            .map(|&domain| {
                host.domains[domain]
                    .workload
                    .as_ref()
                    .map(|_| Line::default())
            })
            .collect();
        for (domain, description) in host.domains.iter().enumerate() {
            if let Some(Workload::Bursts { run_ns, idle_ns }) = description.workload {
                workloads.bursts[domain] = Some((run_ns, idle_ns));
                for vcpu in 0..description.vcpus.len() {
                    let span_ns = (run_ns + idle_ns) as u128;
                    let draw = u128::from(workloads.random[domain].next_u64());
                    let at_ns = ((draw * span_ns) >> 64) as i64;
                    let line = first_vcpus[domain] + vcpu;
                    workloads.outside(at_ns, Outside::Burst { line });
                }
            }
        }
        if let (Some(network), Some(calls)) = (&host.network, &host.calls) {
            workloads.add_network(host, network, calls, first_vcpus, stream(domains));
        }
        workloads.look_ahead();
        workloads
    }

    fn add_network(
        &mut self,
        host: &Host,
        network: &laxity_host::Network,
        calls: &Calls,
        first_vcpus: &[usize],
        random: Pcg32,
    ) {
        let vcpus = |domain: usize| host.domains[domain].vcpus.len();
        // A domain's interrupts go to its VCPUs in turn.
        let mut bound = vec![0; host.domains.len()];
        let mut next_line = |domain: usize| {
            let line = first_vcpus[domain] + bound[domain] % vcpus(domain);
            bound[domain] += 1;
            line
        };
        for (number, nic) in network.nics.iter().enumerate() {
            let source = self.add_source(Origin::Card(number), next_line(nic.domain));
            self.card_sources.push(source);
            self.cards.push(Card::new(nic));
            self.names.push(nic.name.clone());
            self.wires.push(VecDeque::new());
        }
        let cards_of = |domain: usize| -> Vec<usize> {
            let of = |&card: &usize| network.nics[card].domain == domain;
            (0..network.nics.len()).filter(of).collect()
        };
        let costs = network.costs;
        let sends = Server {
            threads: 1,
            work: Cost::default(),
            own_work: None,
            transcode: false,
        };
        for (domain, description) in host.domains.iter().enumerate() {
            let (role, server): (Role, &Server) = match &description.workload {
                Some(Workload::Sender { .. }) => (Role::Sender, &sends),
                Some(Workload::MediaServer(server)) => (Role::Media, server),
                Some(Workload::SignallingServer(server)) => (Role::Signalling, server),
                Some(Workload::CallControl(server)) => (Role::Control, server),
                _ => continue,
            };
            let cards = cards_of(domain);
            let interface = cards.is_empty().then(|| {
                let to_line = next_line(domain);
                let from_line = next_line(network.driver.unwrap_or(domain));
                let number = self.interfaces.len();
                let to_source = self.add_source(Origin::ToGuest(number), to_line);
                let from_source = self.add_source(Origin::FromGuest(number), from_line);
                let interface = Interface::new(domain, &description.name, to_source, from_source);
                self.interfaces.push(interface);
                number
            });
            let onwards = match interface {
                Some(_) => costs.netfront_transmit,
                None => costs.transmit,
            };
            self.pools[domain] = Some(Pool {
                role,
                work: server.work,
                send: costs.socket_send.plus(onwards),
                idle: (0..server.threads as usize)
                    .map(|thread| first_vcpus[domain] + thread % vcpus(domain))
                    .collect(),
                vcpus: first_vcpus[domain]..first_vcpus[domain] + vcpus(domain),
                waiting: VecDeque::new(),
                cards,
                interface,
                handled: 0,
                threads: server.threads as usize,
            });
        }
        let link = (network.link.as_ref())
            .zip(network.driver)
            .map(|(link, driver)| {
                let interface = |domain: usize| {
                    self.interfaces
                        .iter()
                        .position(|each| each.domain == domain)
                };
                let allocator = Allocator::new(link, interface);
                for (&interface, credit) in allocator.interfaces.iter().zip(allocator.credits()) {
                    self.interfaces[interface].credit = Some(credit);
                }
                self.outside(allocator.period_ns, Outside::Look);
                LinkState {
                    allocator,
                    source: self.add_source(Origin::Allocator, first_vcpus[driver]),
                    is_due: false,
                }
            });
        if let (Some(protect), Some(driver)) = (&network.protect, network.driver) {
            self.protect(host, protect, || next_line(driver));
        }
        let mut senders = vec![(0, 0); host.domains.len()];
        for (domain, description) in host.domains.iter().enumerate() {
            if let Some(Workload::Sender {
                rate_bit_s,
                frame_bytes,
            }) = description.workload
            {
                let interval_ns = i64::from(frame_bytes) * 8_000_000_000 / rate_bit_s;
                let interval_ns = interval_ns.max(1);
                senders[domain] = (frame_bytes, interval_ns);
                let draw = u128::from(self.random[domain].next_u64());
                let at_ns = ((draw * interval_ns as u128) >> 64) as i64;
                self.outside(at_ns, Outside::Send { domain });
            }
        }
        self.path = Some(Path {
            senders,
            link,
            costs,
            voice_bytes: calls.codec.payload_bytes(),
            signalling: calls.signalling_server,
            control: calls.call_control,
            media: calls.media_server,
            driver: network.driver,
            driver_cards: network.driver.map_or(Vec::new(), cards_of),
            phones: Phones::new(calls, random),
        });
    }

    fn protect(&mut self, host: &Host, protect: &Protect, mut next_line: impl FnMut() -> usize) {
        for (number, how) in protect.domains.iter().enumerate() {
            let source = self.add_source(Origin::Released(number), next_line());
            let name = host.domains[how.domain].name.clone();
            let protection = Protection::new(how, protect, source, name);
            self.outside(protection.first_ns(), Outside::Checkpoint { of: number });
            self.protections.push(protection);
            let mut interfaces = self.interfaces.iter_mut();
            if let Some(interface) = interfaces.find(|each| each.domain == how.domain) {
                interface.protection = Some(number);
            }
        }
        self.failure = protect.failure;
        if let Some(failure) = protect.failure {
            self.outside(failure.at_ns, Outside::Failure);
            let absent_ns = failure.detection_ns + failure.activation_ns;
            self.outside(failure.at_ns + absent_ns, Outside::Activation);
        }
    }

    fn add_source(&mut self, origin: Origin, line: usize) -> usize {
        let number = self.sources.len();
        let place = self.line(line).add_source(number as u32);
        self.sources.push(Source {
            origin,
            line,
            place,
        });
        number
    }
}
