//! A network card: two rings, a wire each way, and when it interrupts.

use super::packet::Packet;
use laxity_host::Nic;
use std::collections::VecDeque;

/// What a switch keeps for a card whose wire is busy.
const SWITCH_BYTES: u32 = 512 << 10;

/// A network card.
pub struct Card {
    ns_per_byte_times_1000: u64,
    ring: usize,
    coalesce_ns: i64,
    coalesce_packets: usize,
    /// What came and has not been taken out.
    received: VecDeque<Packet>,
    /// The wire towards the card is busy until then.
    inward_until_ns: i64,
    /// When each packet that waits for the wire away from it, or is on it, will have left.
    leaving_ns: VecDeque<i64>,
    pub interrupts: u64,
    pub packets_received: u64,
    pub packets_sent: u64,
}

/// What a card does when a packet has come.
#[derive(Debug, PartialEq, Eq)]
pub enum Reaction {
    /// It interrupts now.
    Interrupt,
    /// It interrupts at this time, unless something comes before.
    InterruptAt(i64),
    /// Nothing: it will interrupt, or its driver looks anyway.
    Nothing,
    /// It has no room for the packet.
    Drop,
}

impl Card {
    pub fn new(nic: &Nic) -> Card {
        Card {
            ns_per_byte_times_1000: 8_000_000_000_000 / nic.rate_bit_s as u64,
            ring: nic.ring as usize,
            coalesce_ns: nic.coalesce_ns,
            coalesce_packets: nic.coalesce_packets as usize,
            received: VecDeque::new(),
            inward_until_ns: 0,
            leaving_ns: VecDeque::new(),
            interrupts: 0,
            packets_received: 0,
            packets_sent: 0,
        }
    }

    fn wire_ns(&self, bytes: u32) -> i64 {
        (u64::from(bytes) * self.ns_per_byte_times_1000 / 1000) as i64
    }

    /// When a packet that is sent to the card now has come; `None` if the switch before it has no room.
    pub fn arrival_ns(&mut self, bytes: u32, now: i64) -> Option<i64> {
        if self.inward_until_ns - now > self.wire_ns(SWITCH_BYTES) {
            return None;
        }
        self.inward_until_ns = self.inward_until_ns.max(now) + self.wire_ns(bytes);
        Some(self.inward_until_ns)
    }

    /// A packet has come. `driver_looks`: the driver takes packets out without an interrupt until there are none.
    pub fn receive(&mut self, packet: Packet, driver_looks: bool, now: i64) -> Reaction {
        if self.received.len() == self.ring {
            return Reaction::Drop;
        }
        self.received.push_back(packet);
        self.packets_received += 1;
        if driver_looks {
            Reaction::Nothing
        } else if self.received.len() >= self.coalesce_packets || self.coalesce_ns == 0 {
            Reaction::Interrupt
        } else if self.received.len() == 1 {
            Reaction::InterruptAt(now + self.coalesce_ns)
        } else {
            Reaction::Nothing
        }
    }

    /// The packets that wait in its ring, the oldest first.
    pub fn waiting(&self) -> impl Iterator<Item = &Packet> {
        self.received.iter()
    }

    /// How long a packet that the card takes now waits for the wire away from it.
    pub fn backlog_ns(&self, now: i64) -> i64 {
        self.leaving_ns.back().map_or(0, |&last_ns| last_ns - now)
    }

    /// How long a packet that is sent to the card now waits for the wire.
    pub fn inward_backlog_ns(&self, now: i64) -> i64 {
        self.inward_until_ns - now
    }

    /// The driver takes a packet out.
    pub fn take(&mut self) -> Option<Packet> {
        self.received.pop_front()
    }

    /// Whether there is none to take.
    pub fn is_empty(&self) -> bool {
        self.received.is_empty()
    }

    /// When a packet that the driver puts in now has left; `None` if there is no room for it.
    pub fn transmit(&mut self, bytes: u32, now: i64) -> Option<i64> {
        while self
            .leaving_ns
            .front()
            .is_some_and(|&left_ns| left_ns <= now)
        {
            self.leaving_ns.pop_front();
        }
        // One more than the ring holds is on the wire.
        if self.leaving_ns.len() > self.ring {
            return None;
        }
        self.packets_sent += 1;
        let begin_ns = self
            .leaving_ns
            .back()
            .map_or(now, |&last_ns| last_ns.max(now));
        let left_ns = begin_ns + self.wire_ns(bytes);
        self.leaving_ns.push_back(left_ns);
        Some(left_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::super::packet::Kind;
    use super::*;

    const PACKET: Packet = Packet {
        kind: Kind::Voice,
        of: 0,
        number: 0,
        copy: 0,
        sent_ns: 0,
    };

    fn card(ring: u32, coalesce_ns: i64, coalesce_packets: u32) -> Card {
        Card::new(&Nic {
            name: "eth0".into(),
            rate_bit_s: 1_000_000_000,
            domain: 0,
            ring,
            coalesce_ns,
            coalesce_packets,
        })
    }

    #[test]
    fn interrupts_wait_for_the_time_or_the_packets() {
        let mut card = card(8, 40_000, 3);
        assert_eq!(
            card.receive(PACKET, false, 5),
            Reaction::InterruptAt(40_005)
        );
        assert_eq!(card.receive(PACKET, false, 6), Reaction::Nothing);
        assert_eq!(card.receive(PACKET, false, 7), Reaction::Interrupt);
        assert_eq!(card.receive(PACKET, true, 8), Reaction::Nothing);
    }

    #[test]
    fn a_full_ring_drops() {
        let mut card = card(2, 0, 1);
        assert_eq!(card.receive(PACKET, false, 0), Reaction::Interrupt);
        assert_eq!(card.receive(PACKET, true, 0), Reaction::Nothing);
        assert_eq!(card.receive(PACKET, true, 0), Reaction::Drop);
        assert!(card.take().is_some());
        assert_eq!(card.receive(PACKET, true, 0), Reaction::Nothing);
        assert_eq!((card.packets_received, card.is_empty()), (3, false));
    }

    #[test]
    fn packets_follow_each_other_on_the_wire() {
        let mut card = card(2, 0, 1);
        // 125 bytes at 1 Gbit/s: 1 us.
        assert_eq!(card.arrival_ns(125, 0), Some(1_000));
        assert_eq!(card.arrival_ns(125, 0), Some(2_000));
        assert_eq!(card.arrival_ns(125, 5_000), Some(6_000));
        let fit = (0..9_000).filter(|_| card.arrival_ns(125, 6_000).is_some());
        assert_eq!(fit.count(), (512 << 10) / 125 + 1);
        let left: Vec<Option<i64>> = (0..4).map(|_| card.transmit(125, 0)).collect();
        assert_eq!(left, [Some(1_000), Some(2_000), Some(3_000), None]);
        assert_eq!(card.packets_sent, 3);
        // However large they are: two wait again when the first two have left.
        assert_eq!(card.transmit(12_500, 2_000), Some(103_000));
        assert_eq!(card.transmit(125, 2_000), Some(104_000));
        assert_eq!(card.transmit(125, 2_999), None);
        assert_eq!(card.transmit(125, 3_000), Some(105_000));
    }
}
