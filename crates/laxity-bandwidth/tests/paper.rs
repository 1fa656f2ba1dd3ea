//! The paper's own algorithm, and where the allocator differs from it.

use laxity_bandwidth::{
    Agreement, Claim, Sharing, allocate,
    paper::{Interface, adjust},
};

const MBIT: u64 = 1_000_000;

fn agreement(class: u32, minimum: u64, maximum: u64) -> Agreement {
    Agreement {
        class,
        minimum_bit_s: minimum * MBIT,
        maximum_bit_s: maximum * MBIT,
        weight: 1,
    }
}

fn adjust_mbit(link: u64, interfaces: &[(Agreement, u64)]) -> Vec<u64> {
    let interfaces = interfaces.iter().map(|&(agreement, measured)| Interface {
        agreement,
        measured_bit_s: measured * MBIT,
    });
    let rates = adjust(link * MBIT, &interfaces.collect::<Vec<_>>());
    rates.iter().map(|rate| rate / MBIT).collect()
}

fn the_papers(measured: [u64; 3]) -> [(Agreement, u64); 3] {
    let agreements = [
        agreement(1, 300, 600),
        agreement(2, 100, 300),
        agreement(3, 0, 100),
    ];
    std::array::from_fn(|at| (agreements[at], measured[at]))
}

#[test]
fn figure_4() {
    let rates = adjust_mbit(1000, &the_papers([800, 800, 800]));
    assert_eq!(rates, [600, 300, 100]);
    // VM 1 falls to 200: 100 Mbit/s stay reserved that it does not use, and the others exceed their
    // maxima, now and from then on.
    let rates = adjust_mbit(1000, &the_papers([200, 300, 100]));
    assert_eq!(rates, [300, 500, 200]);
    let rates = adjust_mbit(1000, &the_papers([200, 500, 200]));
    assert_eq!(rates, [300, 500, 200]);
}

#[test]
fn a_throttled_sender_is_not_heard() {
    // VM 1 offers 800 again, but is held at 300: measured, that is between its bounds.
    let rates = adjust_mbit(1000, &the_papers([300, 500, 200]));
    assert_eq!(rates, [300, 500, 200]);
}

#[test]
fn one_below_its_minimum_takes_from_the_lowest_class() {
    let interfaces = [
        (agreement(1, 300, 600), 200),
        (agreement(2, 100, 500), 400),
        (agreement(3, 50, 500), 400),
    ];
    // Class 3 gives 350, which is above 300; class 2 then gives 300 that nobody is said to get.
    assert_eq!(adjust_mbit(1000, &interfaces), [300, 100, 50]);
}

#[test]
fn as_printed_help_can_harm() {
    // Below its minimum by 10, with 100 to be had, which is not above 300: it is set to 100.
    let interfaces = [(agreement(1, 300, 600), 290), (agreement(1, 100, 900), 200)];
    assert_eq!(adjust_mbit(490, &interfaces), [100, 100]);
    // The allocator, told that both want that and more, holds both minima and leaves nothing.
    let claims = interfaces.map(|(agreement, _)| Claim {
        agreement,
        demand_bit_s: 1000 * MBIT,
    });
    let rates = allocate(490 * MBIT, Sharing::Weighted, &claims);
    assert_eq!(rates, [345 * MBIT, 145 * MBIT]);
}

#[test]
fn nobody_is_changed_between_the_bounds() {
    let interfaces = [(agreement(1, 300, 600), 400), (agreement(2, 100, 900), 200)];
    assert_eq!(adjust_mbit(1000, &interfaces), [400, 200]);
}
