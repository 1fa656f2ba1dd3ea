//! The allocator in the driver domain, and what it sets: the credit of each network backend.

use laxity_bandwidth::control::{Controller, Shapers};
use laxity_bandwidth::demand::Sample;
use laxity_bandwidth::{Agreement, Sharing};
use laxity_host::{Link, LinkAgreement, LinkSharing};

/// Netback's credit comes in windows of this length, which our daemon sets.
const WINDOW_NS: i64 = 20_000_000;
/// Credit that a backend may keep from one window to the next: netback's own.
const BURST_BYTES: u64 = 128 << 10;

/// What a backend may take from its guest: so many bytes in each window. It leaves in the ring what it has no credit
/// for.
#[derive(Debug, Clone)]
pub struct Credit {
    window_bytes: u64,
    left_bytes: u64,
    since_ns: i64,
}

impl Credit {
    fn new(bit_s: u64) -> Credit {
        let window_bytes = window_bytes(bit_s);
        Credit {
            window_bytes,
            left_bytes: window_bytes,
            since_ns: 0,
        }
    }

    /// Takes a frame's credit, or says when there is more.
    pub fn take(&mut self, bytes: u32, now: i64) -> Result<(), i64> {
        let bytes = u64::from(bytes);
        if self.left_bytes < bytes && now >= self.since_ns + WINDOW_NS {
            self.since_ns = now;
            // A frame that is larger than a window's credit passes all the same, now and then.
            let most = self.window_bytes.max(BURST_BYTES);
            self.left_bytes = (self.left_bytes + self.window_bytes).min(most);
        }
        if self.left_bytes < bytes {
            return Err(self.since_ns + WINDOW_NS);
        }
        self.left_bytes -= bytes;
        Ok(())
    }
}

fn window_bytes(bit_s: u64) -> u64 {
    bit_s * WINDOW_NS as u64 / 8_000_000_000
}

/// What has been counted of a guest's interface.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counted {
    pub sent_bytes: u64,
    pub dropped: u64,
    /// How often its credit was used up.
    pub stops: u64,
    /// What waits in its ring and before it, now.
    pub waiting_bytes: u64,
}

/// The allocator, and what it last saw of the interfaces that are held to an agreement.
pub struct Allocator {
    pub period_ns: i64,
    /// In the order of the agreements.
    pub interfaces: Vec<usize>,
    controller: Controller,
    before: Vec<Counted>,
    looked_ns: i64,
}

impl Allocator {
    /// `interface` gives the interface of a domain.
    pub fn new(link: &Link, interface: impl Fn(usize) -> Option<usize>) -> Allocator {
        let interfaces = link
            .agreements
            .iter()
            .filter_map(|each| interface(each.domain));
        let interfaces: Vec<usize> = interfaces.collect();
        let agreements: Vec<Agreement> = link.agreements.iter().map(agreement).collect();
        let sharing = match link.sharing {
            LinkSharing::Weighted => Sharing::Weighted,
            LinkSharing::ByClass => Sharing::ByClass,
        };
        // Each backend's rate stands alone.
        let controller = Controller::new(
            link.rate_bit_s as u64,
            sharing,
            Shapers::Single,
            &agreements,
        );
        Allocator {
            period_ns: link.period_ns,
            before: vec![Counted::default(); interfaces.len()],
            interfaces,
            controller,
            looked_ns: 0,
        }
    }

    /// What each interface begins with.
    pub fn credits(&self) -> Vec<Credit> {
        let ceiling = |at| self.controller.limits(at).ceiling_bit_s;
        (0..self.interfaces.len())
            .map(|at| Credit::new(ceiling(at)))
            .collect()
    }

    /// Looks at what was counted, and sets credits anew.
    pub fn look(&mut self, counted: &[Counted], credits: &mut [&mut Credit], now: i64) {
        let elapsed_ns = (now - self.looked_ns).max(1) as u64;
        self.looked_ns = now;
        let samples = counted.iter().zip(&mut self.before).map(|(now, before)| {
            let sample = Sample {
                elapsed_ns,
                delivered_bytes: now.sent_bytes - before.sent_bytes,
                dropped_packets: now.dropped - before.dropped,
                backlog_bytes: now.waiting_bytes,
                overlimits: now.stops - before.stops,
            };
            *before = *now;
            sample
        });
        let samples: Vec<Sample> = samples.collect();
        self.controller.step(&samples);
        for (at, credit) in credits.iter_mut().enumerate() {
            credit.window_bytes = window_bytes(self.controller.limits(at).ceiling_bit_s);
        }
    }
}

fn agreement(each: &LinkAgreement) -> Agreement {
    Agreement {
        class: each.class,
        minimum_bit_s: each.minimum_bit_s as u64,
        maximum_bit_s: each.maximum_bit_s as u64,
        weight: each.weight,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_passes_its_bytes_and_no_more() {
        // 250,000 bytes in 20 ms.
        let mut credit = Credit::new(100_000_000);
        for window in 0..10 {
            let now = window * WINDOW_NS;
            let passed = (0..1_000).filter(|_| credit.take(1_000, now).is_ok());
            assert_eq!(passed.count(), 250);
            assert_eq!(credit.take(1_000, now), Err(now + WINDOW_NS));
        }
    }

    #[test]
    fn what_is_used_up_comes_back_when_the_window_ends_and_not_before() {
        let mut credit = Credit::new(100_000_000);
        while credit.take(1_000, 0).is_ok() {}
        for now in (0..WINDOW_NS).step_by(100_000).chain([WINDOW_NS - 1]) {
            assert_eq!(credit.take(1_000, now), Err(WINDOW_NS));
        }
        assert_eq!(credit.take(1_000, WINDOW_NS), Ok(()));
    }

    #[test]
    fn a_pause_saves_a_burst_and_no_more() {
        let mut credit = Credit::new(1_000_000);
        let mut bytes = 0;
        for window in 100..200 {
            while credit.take(1_000, window * WINDOW_NS).is_ok() {
                bytes += 1_000;
            }
        }
        // 2,500 bytes a window; frames do not divide them.
        assert!(
            (250_000..=250_000 + BURST_BYTES).contains(&bytes),
            "{bytes}"
        );
    }
}
