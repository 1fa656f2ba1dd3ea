//! Agreements about bandwidth at work in the driver domain.

use super::link::{Counted, Credit};
use super::packet::{Kind, Packet};
use super::state::{LinkState, Network, Outside};
use laxity_host::{Host, LinkAgreement};
use laxity_run::AgreementResult;

impl Network {
    /// Where agreements are kept; only an allocator that is there has turns.
    pub(super) fn link(&mut self) -> &mut LinkState {
        self.link.as_mut().expect("there is an allocator")
    }

    /// The driver domain is told to look, unless it has not come to the last time.
    pub(super) fn look_is_due(&mut self, now: i64) {
        let link = self.link();
        link.is_due = true;
        let (source, period_ns) = (link.source, link.allocator.period_ns);
        self.at(now + period_ns, Outside::Look);
        self.notify(source);
    }

    /// The allocator has looked.
    pub(super) fn look(&mut self, now: i64) {
        let order = self.link().allocator.interfaces.clone();
        let counted = order.iter().map(|&at| {
            let interface = &self.interfaces[at];
            let waiting = interface.from_guest.iter();
            Counted {
                sent_bytes: interface.sent_bytes,
                dropped: interface.counted.dropped_in_guest,
                stops: interface.stops,
                waiting_bytes: waiting
                    .map(|packet| u64::from(self.frame_bytes(packet)))
                    .sum(),
            }
        });
        let counted: Vec<Counted> = counted.collect();
        let Network {
            interfaces,
            link: Some(link),
            ..
        } = self
        else {
            return;
        };
        let mut credits: Vec<(usize, &mut Credit)> = interfaces
            .iter_mut()
            .enumerate()
            .filter_map(|(at, interface)| Some((at, interface.credit.as_mut()?)))
            .collect();
        credits.sort_by_key(|(at, _)| order.iter().position(|other| other == at));
        let mut credits: Vec<&mut Credit> = credits.into_iter().map(|(_, credit)| credit).collect();
        link.allocator.look(&counted, &mut credits, now);
    }

    /// Whether netback may take the next packet of a guest. If not it stops, until there is credit.
    pub(super) fn has_credit(&mut self, number: usize, now: i64) -> bool {
        let Some(packet) = self.interfaces[number].from_guest.front() else {
            return true;
        };
        let bytes = self.frame_bytes(packet);
        let interface = &mut self.interfaces[number];
        if let Some(credit) = &mut interface.credit
            && let Err(until_ns) = credit.take(bytes, now)
        {
            interface.is_stopped = true;
            interface.stopped_ns = now;
            interface.stops += 1;
            self.at(until_ns, Outside::Credit { interface: number });
            return false;
        }
        interface.sent_bytes += u64::from(bytes);
        true
    }

    /// What came of each agreement of a host without calls, all of whose domains send frames of one size.
    pub(super) fn agreements(&self, host: &Host) -> Vec<AgreementResult> {
        let described = host
            .network
            .as_ref()
            .and_then(|network| network.link.as_ref());
        let (Some(described), None) = (described, &host.calls) else {
            return Vec::new();
        };
        let of = |agreement: &LinkAgreement| {
            let mut interfaces = self.interfaces.iter();
            let domain = agreement.domain;
            let interface = interfaces.find(|each| self.pools[each.pool].domain == domain)?;
            Some(AgreementResult::new(
                agreement,
                &interface.counted,
                self.sent_bytes[domain],
                host.duration_ns,
            ))
        };
        described.agreements.iter().filter_map(of).collect()
    }

    pub(super) fn take_look(&mut self) -> Option<Packet> {
        let link = self.link();
        std::mem::take(&mut link.is_due).then_some(Packet {
            kind: Kind::Look,
            of: 0,
            number: 0,
            copy: 0,
            sent_ns: 0,
        })
    }
}
