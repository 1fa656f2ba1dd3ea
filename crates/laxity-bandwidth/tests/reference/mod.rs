//! A second allocator, slow and obvious: rates rise together, in exact fractions, until a claim or
//! the link is full.

use laxity_bandwidth::{Claim, Sharing};
use num_rational::BigRational;
use num_traits::Zero;

fn whole(number: u64) -> BigRational {
    BigRational::from_integer(number.into())
}

/// Exact rates in bit/s.
pub fn allocate(link_bit_s: u64, sharing: Sharing, claims: &[Claim]) -> Vec<BigRational> {
    let mut classes: Vec<u32> = claims.iter().map(|each| each.agreement.class).collect();
    classes.sort_unstable();
    classes.dedup();
    let mut left = whole(link_bit_s);
    let mut rates = vec![BigRational::zero(); claims.len()];
    let limits = claims.iter().map(|each| {
        let maximum = each.agreement.maximum_bit_s;
        whole(maximum.min(each.demand_bit_s))
    });
    let limits: Vec<BigRational> = limits.collect();
    let floors = claims
        .iter()
        .zip(&limits)
        .map(|(each, limit)| whole(each.agreement.minimum_bit_s).min(limit.clone()));
    let floors: Vec<BigRational> = floors.collect();
    let in_class = |class: u32| move |claim: &Claim| claim.agreement.class == class;
    for &class in &classes {
        rise(&mut rates, &mut left, claims, &floors, in_class(class));
    }
    match sharing {
        Sharing::Weighted => rise(&mut rates, &mut left, claims, &limits, |_| true),
        Sharing::ByClass => {
            for &class in &classes {
                rise(&mut rates, &mut left, claims, &limits, in_class(class));
            }
        }
    }
    rates
}

fn rise(
    rates: &mut [BigRational],
    left: &mut BigRational,
    claims: &[Claim],
    targets: &[BigRational],
    takes_part: impl Fn(&Claim) -> bool,
) {
    loop {
        let hungry: Vec<usize> = (0..claims.len())
            .filter(|&at| takes_part(&claims[at]) && rates[at] < targets[at])
            .collect();
        let weight = |at: usize| whole(claims[at].agreement.weight.into());
        // The distance that all claims can rise, for each unit of weight, until one of them is
        // full.
        let until_full = hungry
            .iter()
            .map(|&at| (&targets[at] - &rates[at]) / weight(at))
            .min();
        let Some(until_full) = until_full else {
            return;
        };
        let weights: BigRational = hungry.iter().map(|&at| weight(at)).sum();
        let step = until_full.min(&*left / &weights);
        if step.is_zero() {
            return;
        }
        for at in hungry {
            rates[at] += &step * weight(at);
        }
        *left -= step * weights;
    }
}
