//! Agreements about bandwidth at work in the driver domain.

use super::link::{Counted, Credit};
use super::packet::{Kind, Packet};
use super::{Outside, Workloads};

impl Workloads {
    /// The driver domain is told to look, unless it has not come to the last time.
    pub(super) fn look_is_due(&mut self, now: i64) {
        let link = self.path.as_mut().and_then(|path| path.link.as_mut());
        let Some(link) = link else { return };
        link.is_due = true;
        let (source, period_ns) = (link.source, link.allocator.period_ns);
        self.outside(now + period_ns, Outside::Look);
        self.notify(source);
    }

    /// The allocator has looked.
    pub(super) fn look(&mut self, now: i64) {
        let Workloads {
            path: Some(path),
            interfaces,
            ..
        } = self
        else {
            return;
        };
        let frame_bytes = |packet: &Packet| u64::from(path.frame_bytes(packet));
        let Some(link) = &path.link else { return };
        let counted = link.allocator.interfaces.iter().map(|&at| {
            let interface = &interfaces[at];
            Counted {
                sent_bytes: interface.sent_bytes,
                dropped: interface.counted.dropped_in_guest,
                stops: interface.stops,
                waiting_bytes: interface.from_guest.iter().map(frame_bytes).sum(),
            }
        });
        let counted: Vec<Counted> = counted.collect();
        let Some(link) = &mut path.link else { return };
        let mut credits: Vec<(usize, &mut Credit)> = interfaces
            .iter_mut()
            .enumerate()
            .filter_map(|(at, interface)| Some((at, interface.credit.as_mut()?)))
            .collect();
        let order = &link.allocator.interfaces;
        credits.sort_by_key(|(at, _)| order.iter().position(|other| other == at));
        let mut credits: Vec<&mut Credit> = credits.into_iter().map(|(_, credit)| credit).collect();
        link.allocator.look(&counted, &mut credits, now);
    }

    /// Whether netback may take the next packet of a guest. If not it stops, until there is credit.
    pub(super) fn has_credit(&mut self, number: usize, now: i64) -> bool {
        let Some(path) = &self.path else { return true };
        let interface = &mut self.interfaces[number];
        let Some(packet) = interface.from_guest.front() else {
            return true;
        };
        let bytes = path.frame_bytes(packet);
        if let Some(credit) = &mut interface.credit
            && let Err(until_ns) = credit.take(bytes, now)
        {
            interface.is_stopped = true;
            interface.stops += 1;
            self.outside(until_ns, Outside::Credit { interface: number });
            return false;
        }
        interface.sent_bytes += u64::from(bytes);
        true
    }

    pub(super) fn take_look(&mut self) -> Option<Packet> {
        let link = self.path.as_mut()?.link.as_mut()?;
        std::mem::take(&mut link.is_due).then_some(Packet {
            kind: Kind::Look,
            of: 0,
            number: 0,
            sent_ns: 0,
        })
    }
}
