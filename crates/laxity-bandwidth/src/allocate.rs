//! The allocator: from agreements, demands and a link to rates.
//!
//! Two steps, each a sequence of weighted max-min fillings:
//!
//! 1. Minima, by class from the highest (1): each claim gets its minimum, or its demand if that is
//!    less. A class whose minima do not fit into what is left shares that by weighted max-min, and
//!    the classes below it get nothing.
//! 2. The rest, up to each claim's maximum and demand: by weighted max-min among all
//!    ([`Sharing::Weighted`]), or among one class after the other ([`Sharing::ByClass`]).
//!
//! A filling removes, pass by pass, the claims that are full at the level that all have reached. A few passes are
//! enough for most cases; otherwise the remaining claims are sorted by the level at which each is full, and one more
//! pass is enough. A filling costs O(n log n) at worst; everything else is linear, except sorting by class.

use serde::Deserialize;

/// What a virtual machine was promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct Agreement {
    /// Priority class; 1 is the highest.
    pub class: u32,
    /// Rate that the holder gets whenever it asks for it, in bit/s.
    pub minimum_bit_s: u64,
    /// Rate that the holder never exceeds, in bit/s; at least the minimum.
    pub maximum_bit_s: u64,
    /// Weight of the holder where rate is shared, relative to the other weights; at least 1.
    pub weight: u32,
}

/// An agreement and its holder's current demand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// What was promised.
    pub agreement: Agreement,
    /// Rate at which the holder would send without any limit, in bit/s.
    pub demand_bit_s: u64,
}

impl Claim {
    /// The highest rate that the holder can get: its maximum or its demand, whichever is less.
    pub fn limit_bit_s(&self) -> u64 {
        self.agreement.maximum_bit_s.min(self.demand_bit_s)
    }

    /// The rate that the holder gets before anything is shared: its minimum or its limit, whichever
    /// is less.
    pub fn floor_bit_s(&self) -> u64 {
        self.agreement.minimum_bit_s.min(self.limit_bit_s())
    }
}

/// How the rate that the minima leave over is shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sharing {
    /// Among all holders at once, by weight.
    #[default]
    Weighted,
    /// Among one class after the other, by weight inside a class.
    ByClass,
}

/// Passes over the sharing members before they are sorted.
const PASSES: usize = 8;

/// One member of a filling.
struct Member {
    index: usize,
    room: u64,
    weight: u64,
}

/// The rates of all claims, in their order, in bit/s.
///
/// They add up to the link's rate or to what all claims are limited to, whichever is less. What
/// whole bits a second leave over by rounding goes to single claims, so that each rate is less than
/// 1 bit/s from the exact one in each of the two steps. A claim that demands nothing changes nothing
/// for the others, to the bit: whoever knows such claims may leave them out.
pub fn allocate(link_bit_s: u64, sharing: Sharing, claims: &[Claim]) -> Vec<u64> {
    let mut order: Vec<usize> = (0..claims.len()).collect();
    order.sort_by_key(|&index| claims[index].agreement.class);
    let is_one_class =
        |a: &usize, b: &usize| claims[*a].agreement.class == claims[*b].agreement.class;

    let mut filling = Filling {
        claims,
        left_bit_s: link_bit_s,
        rates: vec![0; claims.len()],
        members: Vec::with_capacity(claims.len()),
    };
    for class in order.chunk_by(is_one_class) {
        filling.fill(class, Claim::floor_bit_s);
    }
    match sharing {
        Sharing::Weighted => filling.fill(&order, Claim::limit_bit_s),
        Sharing::ByClass => {
            for class in order.chunk_by(is_one_class) {
                filling.fill(class, Claim::limit_bit_s);
            }
        }
    }
    filling.rates
}

struct Filling<'c> {
    claims: &'c [Claim],
    left_bit_s: u64,
    rates: Vec<u64>,
    members: Vec<Member>,
}

impl Filling<'_> {
    /// Raises the rates of the claims at `indices` towards their targets by weighted max-min: all
    /// rise from their current rates in proportion to their weights, and a claim that reaches its
    /// target stays there.
    fn fill(&mut self, indices: &[usize], target_bit_s: impl Fn(&Claim) -> u64) {
        self.members.clear();
        let members = indices.iter().map(|&index| Member {
            index,
            room: target_bit_s(&self.claims[index]) - self.rates[index],
            weight: self.claims[index].agreement.weight.into(),
        });
        self.members
            .extend(members.filter(|member| member.room > 0));
        let wanted: u128 = self.members.iter().map(|each| u128::from(each.room)).sum();
        if wanted <= u128::from(self.left_bit_s) {
            for member in &self.members {
                self.rates[member.index] += member.room;
                self.left_bit_s -= member.room;
            }
            return;
        }
        let mut weight: u64 = self.members.iter().map(|each| each.weight).sum();
        if (0..PASSES).all(|_| self.settle(&mut weight)) {
            // Members are sorted by the level at which each is full: one pass in this order finds
            // all members that fill up.
            self.members.sort_unstable_by(|a, b| {
                let a_level = u128::from(a.room) * u128::from(b.weight);
                let b_level = u128::from(b.room) * u128::from(a.weight);
                a_level.cmp(&b_level).then(a.index.cmp(&b.index))
            });
            self.settle(&mut weight);
        }
        // Each member gets the whole part of its end on the line of all shares, less that of its
        // beginning: each is off by less than one, and the sum is exact.
        let amount = u128::from(self.left_bit_s);
        let end_of = |weights: u64| (amount * u128::from(weights) / u128::from(weight)) as u64;
        let mut weights = 0;
        for member in &self.members {
            let begin = end_of(weights);
            weights += member.weight;
            self.rates[member.index] += end_of(weights) - begin;
        }
        self.left_bit_s = 0;
    }
    /// Fills up and takes out the members whose targets lie below the common level. The level rises
    /// with each of them, so none is taken out too early, and at least one stays, since not all
    /// fit. Returns whether any was taken out.
    fn settle(&mut self, weight: &mut u64) -> bool {
        let before = self.members.len();
        self.members.retain(|member| {
            let is_full = u128::from(member.room) * u128::from(*weight)
                <= u128::from(self.left_bit_s) * u128::from(member.weight);
            if is_full {
                self.rates[member.index] += member.room;
                self.left_bit_s -= member.room;
                *weight -= member.weight;
            }
            !is_full
        });
        self.members.len() < before
    }
}
