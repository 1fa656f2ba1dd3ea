//! The allocator of the paper, for comparison: Amamou, Bourguiba, Haddadou and Pujolle, "A Dynamic
//! Bandwidth Allocator for Virtual Machines in a Cloud Environment" (CCNC 2012), section V-A.
//!
//! It adjusts the rates at which the interfaces transmit, and knows nothing of demand. Changed is
//! only what cannot run, or cannot be meant, as it is printed:
//!
//! 1. "between B max and B min (B max < B < B min)" is empty; the bounds are the other way round.
//! 2. "whether (B − B min) < B ex" always holds, since B is below B min; what is missing is B min − B. It
//!    may be all of B ex, or figure 4's classes 2 and 3 would be cut down in every other period.
//! 3. "B ← B min; B ex ← B ex + (B − B min)" adds nothing, since B is B min by then; the difference is
//!    taken first.
//! 4. The same step on an interface below its minimum would raise it and make B ex negative; only
//!    those above their minimum are brought down to it.
//! 5. It says to whom B ex goes at the end only as "based on their priorities". Figure 4 shows 200 and
//!    100 Mbit/s of 300 going to classes 2 and 3, beyond their maxima: so it is divided among those
//!    who reach their maximum, in proportion to their rank counted from the lowest class (3, 2 and 1
//!    for three classes).
//!
//! Kept as printed, though odd: an interface that is helped needs B ex above its whole minimum, not
//! above what is missing; where that fails it is set to B ex alone, whatever it had.

use crate::Agreement;

/// An interface as the paper's daemon sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interface {
    /// Weights mean nothing to the paper.
    pub agreement: Agreement,
    /// The rate at which it transmits, as measured.
    pub measured_bit_s: u64,
}

/// The rates after one pass, in the order of the interfaces, which is that of their creation.
pub fn adjust(link_bit_s: u64, interfaces: &[Interface]) -> Vec<u64> {
    let mut order: Vec<usize> = (0..interfaces.len()).collect();
    order.sort_by_key(|&index| interfaces[index].agreement.class);
    let mut rates: Vec<u64> = interfaces.iter().map(|each| each.measured_bit_s).collect();
    let used: i128 = rates.iter().map(|&rate| i128::from(rate)).sum();
    // Negative where the interfaces transmit more than the link carries, before anyone is cut.
    let mut spare = i128::from(link_bit_s) - used;
    let mut is_held = vec![false; interfaces.len()];

    for &index in &order {
        let agreement = interfaces[index].agreement;
        let (minimum, maximum) = (agreement.minimum_bit_s, agreement.maximum_bit_s);
        if rates[index] >= maximum {
            spare += i128::from(rates[index] - maximum);
            rates[index] = maximum;
            is_held[index] = true;
        } else if rates[index] < minimum {
            let missing = i128::from(minimum - rates[index]);
            if missing <= spare {
                spare -= missing;
                rates[index] = minimum;
                continue;
            }
            for group in others_to_cut(interfaces, &order, index) {
                for other in group {
                    let floor = interfaces[other].agreement.minimum_bit_s;
                    spare += i128::from(rates[other].saturating_sub(floor));
                    rates[other] = rates[other].min(floor);
                    is_held[other] = false;
                }
                if spare > i128::from(minimum) {
                    spare -= i128::from(minimum - rates[index]);
                    rates[index] = minimum;
                } else {
                    rates[index] = u64::try_from(spare).unwrap_or(0);
                    spare = 0;
                }
            }
        }
    }
    share_the_rest(spare, interfaces, &is_held, &mut rates);
    rates
}

/// Whom the interface at `index` may bring down to their minima: the classes below its own, from the
/// lowest, each a group; the others of its own class if there is none below.
fn others_to_cut(interfaces: &[Interface], order: &[usize], index: usize) -> Vec<Vec<usize>> {
    let class_of = |at: usize| interfaces[at].agreement.class;
    let below: Vec<Vec<usize>> = order
        .chunk_by(|&a, &b| class_of(a) == class_of(b))
        .filter(|group| class_of(group[0]) > class_of(index))
        .map(<[usize]>::to_vec)
        .rev()
        .collect();
    if below.is_empty() {
        let own = |other: &usize| *other != index && class_of(*other) == class_of(index);
        return vec![order.iter().copied().filter(own).collect()];
    }
    below
}

fn share_the_rest(spare: i128, interfaces: &[Interface], is_held: &[bool], rates: &mut [u64]) {
    let mut classes: Vec<u32> = interfaces.iter().map(|each| each.agreement.class).collect();
    classes.sort_unstable();
    classes.dedup();
    let rank = |index: usize| {
        let class = interfaces[index].agreement.class;
        classes.iter().filter(|&&each| each >= class).count() as i128
    };
    let held = || (0..rates.len()).filter(|&index| is_held[index]);
    let ranks: i128 = held().map(rank).sum();
    if spare <= 0 || ranks == 0 {
        return;
    }
    let shares: Vec<(usize, i128)> = held().map(|at| (at, spare * rank(at) / ranks)).collect();
    for (index, share) in shares {
        rates[index] = rates[index].saturating_add(u64::try_from(share).unwrap_or(u64::MAX));
    }
}
