//! The time of one allocation of oversubscribed claims, from 10 to 100,000 of them.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use laxity_bandwidth::{Agreement, Claim, Sharing, allocate};
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::hint::black_box;

const LINK_BIT_S: u64 = 10_000_000_000;

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

fn allocations(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("allocate");
    for sharing in [Sharing::Weighted, Sharing::ByClass] {
        for count in [10, 100, 1_000, 10_000, 100_000] {
            let claims = claims(count);
            group.throughput(Throughput::Elements(count));
            let name = BenchmarkId::new(format!("{sharing:?}"), count);
            group.bench_with_input(name, &claims, |bencher, claims| {
                bencher.iter(|| allocate(black_box(LINK_BIT_S), sharing, black_box(claims)));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, allocations);
criterion_main!(benches);
