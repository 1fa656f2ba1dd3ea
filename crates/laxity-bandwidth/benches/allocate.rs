//! The time of one allocation of oversubscribed claims, from 10 to 100,000 of them.
//!
//! Prints one JSON object a line for each way to share and number of claims, with times in nanoseconds.

use laxity_bandwidth::{Agreement, Claim, Sharing, allocate};
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::hint::black_box;
use std::time::{Duration, Instant};

const LINK_BIT_S: u64 = 10_000_000_000;
/// How long allocations are timed, and before that repeated, until all is where it will be.
const TIMED: Duration = Duration::from_secs(3);
const WARM_UP: Duration = Duration::from_secs(1);

fn claims(count: u64) -> Vec<Claim> {
    let mut random = Pcg64Mcg::seed_from_u64(1);
    let mut below = |end: u64| random.next_u64() % end;
    let fair_bit_s = LINK_BIT_S / count;
    let claim = |_| {
        let minimum_bit_s = below(fair_bit_s);
        Claim {
            agreement: Agreement {
                class: 1 + below(3) as u32,
                minimum_bit_s,
                maximum_bit_s: minimum_bit_s + below(4 * fair_bit_s),
                weight: 1 + below(100) as u32,
            },
            demand_bit_s: below(4 * fair_bit_s),
        }
    };
    (0..count).map(claim).collect()
}

/// The times of allocations, one after the other for so long, ns.
fn times_ns(sharing: Sharing, claims: &[Claim], during: Duration) -> Vec<u128> {
    let begin = Instant::now();
    let mut times_ns = Vec::new();
    while begin.elapsed() < during {
        let start = Instant::now();
        black_box(allocate(black_box(LINK_BIT_S), sharing, black_box(claims)));
        times_ns.push(start.elapsed().as_nanos());
    }
    times_ns
}

fn main() {
    for sharing in [Sharing::Weighted, Sharing::ByClass] {
        for count in [10, 100, 1_000, 10_000, 100_000] {
            let claims = claims(count);
            times_ns(sharing, &claims, WARM_UP);
            let mut times_ns = times_ns(sharing, &claims, TIMED);
            times_ns.sort_unstable();
            let quantile_ns = |percent: usize| times_ns[(times_ns.len() - 1) * percent / 100];
            let (median_ns, p99_ns) = (quantile_ns(50), quantile_ns(99));
            println!(
                r#"{{"sharing":"{sharing:?}","claims":{count},"median_ns":{median_ns},"p99_ns":{p99_ns}}}"#
            );
        }
    }
}
