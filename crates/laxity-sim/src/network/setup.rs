//! The packets of a host as they are at the beginning.

use super::card::Card;
use super::interface::Interface;
use super::journey::Journeys;
use super::line::Line;
use super::link::Allocator;
use super::phones::Phones;
use super::pool::{Pool, Role};
use super::protect::Protection;
use super::state::{InKernel, LinkState, Network, Origin, Outside, Source, Sums};
use crate::random::{Purpose, stream, uniform_ns};
use crate::timers::NEVER;
use laxity_host::{
    Acceptance, Calls, Codec, Cost, Host, Playout, Protect, Server, Transport, Workload,
};
use laxity_run::Drops;
use std::collections::{BinaryHeap, VecDeque};

/// The calls of a host that has none: nobody phones.
const NO_CALLS: Calls = Calls {
    streams: 0,
    rate: None,
    hold_ns: 1,
    codec: Codec::G711,
    media_server: usize::MAX,
    through_media_server: 1.0,
    signalling_server: None,
    call_control: None,
    sample: 1,
    playout: Playout::Fixed,
    registrations: None,
    registration_transport: Transport::Udp,
    acceptance: Acceptance {
        loss: 0.0,
        delay_ns: 0,
        mos: 0.0,
        failed: 0.0,
    },
};

impl Network {
    /// The packets of a host with these cards, and with its calls if it has some.
    pub fn new(host: &Host, described: &laxity_host::Network) -> Network {
        let calls = host.calls.as_ref().unwrap_or(&NO_CALLS);
        let domains = host.domains.len();
        let vcpus = host.domains.iter().map(|domain| domain.vcpus.len());
        let domain_of: Vec<usize> = (vcpus.enumerate())
            .flat_map(|(domain, vcpus)| std::iter::repeat_n(domain, vcpus))
            .collect();
        let is_here = |&domain: &usize| {
            let workload = &host.domains[domain].workload;
            !matches!(workload, None | Some(Workload::Bursts { .. }))
        };
        let driver_vcpus = described.driver.map_or(0..0, |driver| {
            domain_of.partition_point(|&domain| domain < driver)
                ..domain_of.partition_point(|&domain| domain <= driver)
        });
        let mut network = Network {
            lines: domain_of.iter().map(|_| Line::default()).collect(),
            is_here: domain_of.iter().map(is_here).collect(),
            pool_of: vec![usize::MAX; domain_of.len()],
            domain_of,
            random: (0..domains)
                .map(|domain| stream(host.seed, Purpose::Workload, domain))
                .collect(),
            pools: Vec::new(),
            sources: Vec::new(),
            interfaces: Vec::new(),
            cards: Vec::new(),
            names: Vec::new(),
            wires: Vec::new(),
            card_sources: Vec::new(),
            card_pools: vec![None; described.nics.len()],
            driver_cards: Vec::new(),
            driver_vcpus,
            costs: described.costs,
            sums: Sums::of(&described.costs),
            native: described.native,
            voice_bytes: calls.codec.payload_bytes(),
            media: usize::MAX,
            signalling: None,
            control: None,
            sent_bytes: vec![0; domains],
            link: None,
            phones: Phones::new(calls, stream(host.seed, Purpose::Workload, domains)),
            protections: Vec::new(),
            still: vec![false; domains],
            drops: Drops::default(),
            outside: BinaryHeap::new(),
            in_kernel: InKernel::default(),
            outside_made: 0,
            next_ns: NEVER,
            signals: Vec::new(),
            journeys: Journeys::default(),
        };
        network.add_all(host, described);
        network.look_ahead();
        network
    }

    fn add_all(&mut self, host: &Host, network: &laxity_host::Network) {
        let first_vcpus: Vec<usize> = (0..host.domains.len())
            .map(|domain| self.domain_of.partition_point(|&other| other < domain))
            .collect();
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
            work_back: None,
            processing: Vec::new(),
        };
        for (domain, description) in host.domains.iter().enumerate() {
            let (role, server): (Role, &Server) = match &description.workload {
                Some(Workload::Sender { .. }) => (Role::Sender, &sends),
                Some(Workload::MediaServer(server)) => (Role::Media, server),
                Some(Workload::SignallingServer(server)) => (Role::Signalling, server),
                Some(Workload::CallControl(server)) => (Role::Control, server),
                _ => continue,
            };
            let pool = self.pools.len();
            let cards = match network.driver {
                Some(driver) if network.native => cards_of(driver),
                _ => cards_of(domain),
            };
            for &card in cards.iter().filter(|_| !network.native) {
                self.card_pools[card] = Some(pool);
            }
            let interface = cards.is_empty().then(|| {
                let to_line = next_line(domain);
                let from_line = next_line(network.driver.unwrap_or(domain));
                let number = self.interfaces.len();
                let to_source = self.add_source(Origin::ToGuest(number), to_line);
                let from_source = self.add_source(Origin::FromGuest(number), from_line);
                let interface = Interface::new(pool, &description.name, to_source, from_source);
                self.interfaces.push(interface);
                number
            });
            let onwards = match interface {
                Some(_) => costs.netfront_transmit,
                None => costs.transmit,
            };
            let vcpus = first_vcpus[domain]..first_vcpus[domain] + vcpus(domain);
            self.pool_of[vcpus.clone()].fill(pool);
            let threads = server.threads as usize;
            self.pools.push(Pool {
                domain,
                role,
                work: server.work,
                work_back: server.work_back.unwrap_or(server.work),
                receive: if network.native {
                    costs.socket_receive
                } else {
                    Cost::default()
                },
                send: costs.socket_send.plus(onwards),
                idle: (0..threads)
                    .map(|thread| vcpus.start + thread % vcpus.len())
                    .collect(),
                forgotten: 0,
                vcpus,
                waiting: VecDeque::new(),
                cards,
                interface,
                handled: 0,
                threads,
                interval_ns: 0,
            });
        }
        let pool_of = |domain: usize| self.pools.iter().position(|pool| pool.domain == domain);
        if let Some(calls) = &host.calls {
            let media = pool_of(calls.media_server);
            self.media = media.expect("the media server is one of the servers");
            self.signalling = calls.signalling_server.and_then(pool_of);
            self.control = calls.call_control.and_then(pool_of);
        }
        self.driver_cards = network.driver.map_or(Vec::new(), cards_of);
        if let (Some(link), Some(driver)) = (&network.link, network.driver) {
            let interface = |domain: usize| {
                let mut interfaces = self.interfaces.iter();
                interfaces.position(|each| self.pools[each.pool].domain == domain)
            };
            let allocator = Allocator::new(link, interface);
            for (&interface, credit) in allocator.interfaces.iter().zip(allocator.credits()) {
                self.interfaces[interface].credit = Some(credit);
            }
            self.at(allocator.period_ns, Outside::Look);
            self.link = Some(LinkState {
                allocator,
                source: self.add_source(Origin::Allocator, first_vcpus[driver]),
                is_due: false,
            });
        }
        if let (Some(protect), Some(driver)) = (&network.protect, network.driver) {
            self.protect(host, protect, || next_line(driver));
        }
        for pool in 0..self.pools.len() {
            let domain = self.pools[pool].domain;
            if let Some(Workload::Sender {
                rate_bit_s,
                frame_bytes,
            }) = host.domains[domain].workload
            {
                let interval_ns = i64::from(frame_bytes) * 8_000_000_000 / rate_bit_s;
                let interval_ns = interval_ns.max(1);
                self.sent_bytes[domain] = frame_bytes;
                self.pools[pool].interval_ns = interval_ns;
                let at_ns = uniform_ns(interval_ns, &mut self.random[domain]);
                self.at(at_ns, Outside::Send { pool });
            }
        }
    }

    fn protect(&mut self, host: &Host, protect: &Protect, mut next_line: impl FnMut() -> usize) {
        for (number, how) in protect.domains.iter().enumerate() {
            let source = self.add_source(Origin::Released(number), next_line());
            let name = host.domains[how.domain].name.clone();
            let mut interfaces = self.interfaces.iter();
            let interface = interfaces
                .position(|each| self.pools[each.pool].domain == how.domain)
                .expect("what is protected is behind the driver domain");
            let place = (self.interfaces[interface].pool, interface);
            let protection = Protection::new(how, protect, place, source, name);
            self.at(protection.next_ns(0), Outside::Checkpoint { of: number });
            self.protections.push(protection);
            self.interfaces[interface].protection = Some(number);
        }
        if let Some(failure) = protect.failure
            && failure.at_ns < host.duration_ns
        {
            self.at(failure.at_ns, Outside::Failure);
        }
    }

    fn add_source(&mut self, origin: Origin, line: usize) -> usize {
        let number = self.sources.len();
        let place = self.lines[line].add_source(number as u32);
        self.sources.push(Source {
            origin,
            line,
            place,
        });
        number
    }
}
