//! The allocator against a slow second solver and against what must hold of any allocation.

mod reference;

use laxity_bandwidth::{Agreement, Claim, Sharing, allocate};
use laxity_trials::seeds;
use num_rational::BigRational;
use num_traits::ToPrimitive;
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;

struct Instance {
    link_bit_s: u64,
    sharing: Sharing,
    claims: Vec<Claim>,
}

fn below(random: &mut Pcg64Mcg, end: u64) -> u64 {
    random.next_u64() % end
}

/// A random instance: small and large rates, equal rates, zeros, minima that fit the link and
/// minima that do not.
fn instance(random: &mut Pcg64Mcg) -> Instance {
    let scale = [4, 100, 1_000_000_000, 1 << 50][below(random, 4) as usize];
    let count = below(random, 9);
    let claims = (0..count).map(|_| {
        let minimum_bit_s = below(random, 3) * below(random, scale) / 2;
        let agreement = Agreement {
            class: 1 + below(random, 3) as u32,
            minimum_bit_s,
            maximum_bit_s: minimum_bit_s + below(random, 2) * below(random, scale),
            weight: 1 + below(random, 3) as u32 * below(random, 500) as u32,
        };
        let demand_bit_s = match below(random, 4) {
            0 => 0,
            1 => u64::MAX,
            2 => minimum_bit_s,
            _ => below(random, 2 * scale),
        };
        Claim {
            agreement,
            demand_bit_s,
        }
    });
    let claims = claims.collect();
    Instance {
        link_bit_s: below(random, 4 * scale),
        sharing: if below(random, 2) == 0 {
            Sharing::Weighted
        } else {
            Sharing::ByClass
        },
        claims,
    }
}

/// Tolerance: less than 1 bit/s in each of the two steps.
const ROUNDING_BIT_S: u64 = 2;

fn check(instance: &Instance) {
    let Instance {
        link_bit_s,
        sharing,
        claims,
    } = instance;
    let rates = allocate(*link_bit_s, *sharing, claims);
    let exact = reference::allocate(*link_bit_s, *sharing, claims);
    assert_eq!(rates.len(), claims.len());
    let rounding = BigRational::from_integer(ROUNDING_BIT_S.into());
    for ((rate, exact), claim) in rates.iter().zip(&exact).zip(claims) {
        assert!(*rate <= claim.agreement.maximum_bit_s && *rate <= claim.demand_bit_s);
        let distance = BigRational::from_integer((*rate).into()) - exact;
        assert!(
            distance < rounding && -distance < rounding,
            "{rates:?}, not {:?}",
            exact.to_f64()
        );
    }
    // The link is used to the bit while any claim wants more.
    let sum: u128 = rates.iter().map(|&rate| u128::from(rate)).sum();
    let wanted: u128 = claims
        .iter()
        .map(|each| u128::from(each.limit_bit_s()))
        .sum();
    assert_eq!(sum, wanted.min(u128::from(*link_bit_s)));
    who_demands_nothing_changes_nothing(instance, &rates);
    minima_by_class(instance, &rates);
    no_one_gains_but_from_the_better_off(instance, &rates);
    more_is_not_less(instance, &rates);
}

/// Without the claims that demand nothing, all others get the same rates to the bit.
fn who_demands_nothing_changes_nothing(instance: &Instance, rates: &[u64]) {
    let demanding = instance.claims.iter().zip(rates);
    let demanding = demanding.filter(|(claim, _)| claim.demand_bit_s > 0);
    let (claims, rates): (Vec<Claim>, Vec<u64>) = demanding.unzip();
    assert_eq!(
        allocate(instance.link_bit_s, instance.sharing, &claims),
        rates
    );
}

/// A claim below its floor is in a class below which all classes have nothing.
fn minima_by_class(instance: &Instance, rates: &[u64]) {
    for (short, rate) in instance.claims.iter().zip(rates) {
        if *rate >= short.floor_bit_s() {
            continue;
        }
        for (other, other_rate) in instance.claims.iter().zip(rates) {
            if other.agreement.class > short.agreement.class {
                assert_eq!(*other_rate, 0, "{rates:?}");
            }
            // Members of lower classes get nothing of the rest, either.
            assert!(*other_rate <= other.floor_bit_s(), "{rates:?}");
        }
    }
}

/// Max-min fairness: a claim that could use more has at least as large a weighted share as any
/// claim it shares with.
fn no_one_gains_but_from_the_better_off(instance: &Instance, rates: &[u64]) {
    let all = instance.claims.iter().zip(rates);
    let is_short_of_minima = all.clone().any(|(each, rate)| *rate < each.floor_bit_s());
    let shares = all.map(|(claim, rate)| {
        let (base, target) = if is_short_of_minima {
            (0, claim.floor_bit_s())
        } else {
            (claim.floor_bit_s(), claim.limit_bit_s())
        };
        (claim.agreement, rate - base, *rate < target)
    });
    let shares: Vec<(Agreement, u64, bool)> = shares.collect();
    let is_by_class = is_short_of_minima || instance.sharing == Sharing::ByClass;
    for (agreement, share, is_hungry) in &shares {
        for (other, other_share, _) in &shares {
            if !is_hungry || is_by_class && agreement.class > other.class {
                continue;
            }
            if is_by_class && agreement.class < other.class {
                assert_eq!(*other_share, 0, "{rates:?}");
                continue;
            }
            let own = u128::from(share + ROUNDING_BIT_S) * u128::from(other.weight);
            let others = u128::from(other_share.saturating_sub(ROUNDING_BIT_S));
            assert!(own >= others * u128::from(agreement.weight), "{rates:?}");
        }
    }
}

/// A larger link lowers no claim's rate; a larger demand lowers neither the claim's own rate nor
/// raises another's.
fn more_is_not_less(instance: &Instance, rates: &[u64]) {
    let larger = instance.link_bit_s + instance.link_bit_s / 3 + 1;
    let with_more = allocate(larger, instance.sharing, &instance.claims);
    for (more, rate) in with_more.iter().zip(rates) {
        assert!(more + ROUNDING_BIT_S >= *rate);
    }
    let mut claims = instance.claims.clone();
    for index in 0..claims.len() {
        let demand_bit_s = claims[index].demand_bit_s;
        claims[index].demand_bit_s = demand_bit_s.saturating_add(demand_bit_s / 2 + 1);
        let asked = allocate(instance.link_bit_s, instance.sharing, &claims);
        for (other, (more, rate)) in asked.iter().zip(rates).enumerate() {
            if other == index {
                assert!(more + ROUNDING_BIT_S >= *rate);
            } else {
                assert!(*more <= rate + ROUNDING_BIT_S);
            }
        }
        claims[index].demand_bit_s = demand_bit_s;
    }
}

#[test]
fn random_instances() {
    for seed in seeds(20_000) {
        let instance = instance(&mut Pcg64Mcg::seed_from_u64(seed));
        let checked = std::panic::catch_unwind(|| check(&instance));
        assert!(
            checked.is_ok(),
            "LAXITY_SEED={seed} LAXITY_CASES=1: link {} bit/s, {:?}, {:#?}",
            instance.link_bit_s,
            instance.sharing,
            instance.claims
        );
    }
}

const MBIT: u64 = 1_000_000;

fn claim(class: u32, minimum: u64, maximum: u64, weight: u32, demand: u64) -> Claim {
    Claim {
        agreement: Agreement {
            class,
            minimum_bit_s: minimum * MBIT,
            maximum_bit_s: maximum * MBIT,
            weight,
        },
        demand_bit_s: demand * MBIT,
    }
}

fn rates_mbit(link: u64, sharing: Sharing, claims: &[Claim]) -> Vec<u64> {
    let rates = allocate(link * MBIT, sharing, claims);
    rates.iter().map(|rate| rate / MBIT).collect()
}

#[test]
fn the_papers_agreements() {
    let claims = |offered| {
        [
            claim(1, 300, 600, 1, offered),
            claim(2, 100, 300, 1, 800),
            claim(3, 0, 100, 1, 800),
        ]
    };
    for sharing in [Sharing::Weighted, Sharing::ByClass] {
        assert_eq!(rates_mbit(1000, sharing, &claims(800)), [600, 300, 100]);
        assert_eq!(rates_mbit(1000, sharing, &claims(200)), [200, 300, 100]);
    }
    // The two modes differ on a link that the maxima oversubscribe.
    let rates = rates_mbit(700, Sharing::Weighted, &claims(800));
    assert_eq!(rates, [400, 200, 100]);
    let rates = rates_mbit(700, Sharing::ByClass, &claims(800));
    assert_eq!(rates, [600, 100, 0]);
}

#[test]
fn what_does_not_fit_is_shared_inside_the_class_that_it_hits() {
    let claims = [
        claim(2, 300, 300, 1, 1000),
        claim(1, 400, 900, 1, 1000),
        claim(2, 300, 300, 2, 1000),
        claim(3, 100, 300, 9, 1000),
    ];
    let rates = rates_mbit(850, Sharing::Weighted, &claims);
    assert_eq!(rates, [150, 400, 300, 0]);
    let rates = rates_mbit(700, Sharing::Weighted, &claims);
    assert_eq!(rates, [100, 400, 200, 0]);
}

/// Each claim is just above the level until the one before it is full, and the claims are in the
/// wrong order: every pass finds only one of them.
#[test]
fn nothing_is_left_where_minima_take_less_than_the_link() {
    let claims = [claim(1, 300, 600, 1, 1_000), claim(1, 100, 900, 1, 1_000)];
    assert_eq!(rates_mbit(490, Sharing::Weighted, &claims), [345, 145]);
}

#[test]
fn a_chain() {
    const COUNT: u64 = 14;
    let link_bit_s = 1 << 50;
    let mut left = link_bit_s;
    let mut level = 0;
    let mut claims: Vec<Claim> = (0..COUNT)
        .map(|at| {
            let room = if at == 0 { left / COUNT / 2 } else { level + 1 };
            level = left / (COUNT - at);
            left -= room.min(left);
            let agreement = Agreement {
                class: 1,
                minimum_bit_s: 0,
                maximum_bit_s: room,
                weight: 1,
            };
            Claim {
                agreement,
                demand_bit_s: u64::MAX,
            }
        })
        .collect();
    // The last claim takes all that is left.
    claims[COUNT as usize - 1].agreement.maximum_bit_s = u64::MAX;
    claims.reverse();
    // Each claim stands beside one of the same agreement that demands nothing.
    let claims = claims.into_iter().flat_map(|claim| {
        let idle = Claim {
            demand_bit_s: 0,
            ..claim
        };
        [idle, claim]
    });
    let claims = claims.collect();
    check(&Instance {
        link_bit_s,
        sharing: Sharing::Weighted,
        claims,
    });
}

#[test]
fn extremes() {
    assert_eq!(allocate(0, Sharing::Weighted, &[]), [0; 0]);
    let all = Claim {
        agreement: Agreement {
            class: u32::MAX,
            minimum_bit_s: u64::MAX,
            maximum_bit_s: u64::MAX,
            weight: u32::MAX,
        },
        demand_bit_s: u64::MAX,
    };
    let rates = allocate(u64::MAX, Sharing::ByClass, &[all; 3]);
    assert_eq!(rates, [u64::MAX / 3; 3]);
    // The division of two bits among three claims is the same every time.
    let rates = allocate(2, Sharing::Weighted, &[claim(1, 0, 1, 1, 1); 3]);
    assert_eq!(rates, [0, 1, 1]);
}
