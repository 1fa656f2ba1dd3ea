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
//! A filling takes out, pass by pass, who is full at the level that all have reached. Few passes do for
//! most; where they do not, what is left is sorted by the level at which each is full, and one more
//! does. So it costs O(n log n) at worst; all else is linear but for sorting by class.

use serde::Deserialize;

/// What a virtual machine was promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct Agreement {
    /// 1 is the highest.
    pub class: u32,
    /// It gets this much whenever it asks for it.
    pub minimum_bit_s: u64,
    /// It never gets more; at least the minimum.
    pub maximum_bit_s: u64,
    /// Its part of what is shared, relative to the others'; at least 1.
    pub weight: u32,
}

/// An agreement, and what its holder asks for now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// What was promised.
    pub agreement: Agreement,
    /// What it would send if nobody stopped it.
    pub demand_bit_s: u64,
}

impl Claim {
    /// The most that it can get: no more than its maximum and its demand.
    pub fn limit_bit_s(&self) -> u64 {
        self.agreement.maximum_bit_s.min(self.demand_bit_s)
    }

    /// What it gets before anything is shared: no more than its minimum and its limit.
    pub fn floor_bit_s(&self) -> u64 {
        self.agreement.minimum_bit_s.min(self.limit_bit_s())
    }
}

/// How the rest is shared, once the minima are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sharing {
    /// Among all at once, by weight.
    #[default]
    Weighted,
    /// One class after the other; by weight inside a class.
    ByClass,
}

/// Passes over those who share, before they are sorted.
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
/// 1 bit/s from the exact one in each of the two steps.
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
    /// Raises the rates of those at `indices` towards their targets, by weighted max-min: all rise
    /// from where they are in proportion to their weights, and who reaches the target stays there.
    fn fill(&mut self, indices: &[usize], target_bit_s: impl Fn(&Claim) -> u64) {
        self.members.clear();
        self.members.extend(indices.iter().map(|&index| Member {
            index,
            room: target_bit_s(&self.claims[index]) - self.rates[index],
            weight: self.claims[index].agreement.weight.into(),
        }));
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
            // By the level at which each is full: in this order one pass finds all that are.
            self.members.sort_unstable_by(|a, b| {
                let a_level = u128::from(a.room) * u128::from(b.weight);
                let b_level = u128::from(b.room) * u128::from(a.weight);
                a_level.cmp(&b_level).then(a.index.cmp(&b.index))
            });
            self.settle(&mut weight);
        }
        // The whole part of each one's end on the line of all shares, less that of its beginning:
        // each is off by less than one, and together they are all that there was.
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
    /// Fills up and takes out those who fit under the level of those who share; the level rises with
    /// each of them, so that none was taken out too early. Not all can be, as not all fit. Whether
    /// there were any.
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
