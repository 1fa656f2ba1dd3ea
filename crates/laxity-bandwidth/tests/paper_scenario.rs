//! The paper's scenario (section V-B) in the model of time: 300 s, three machines, 1 Gbit/s.

use laxity_bandwidth::control::Shapers;
use laxity_bandwidth::simulate::{Machine, Outcome, Regime, Scenario, Sender, no_rates, simulate};
use laxity_bandwidth::{Agreement, Sharing};

const MBIT: u64 = 1_000_000;
const PERIOD_MS: u64 = 10;
const PERIODS_A_SECOND: usize = 100;
const RUN_S: usize = 300;
/// What VM 1 offers: seconds and Mbit/s.
const VM_1: [(u64, u64); 6] = [
    (100, 800),
    (40, 200),
    (30, 600),
    (20, 200),
    (60, 500),
    (50, 800),
];

fn run(shapers: Shapers, maxima: [u64; 3]) -> Vec<Vec<Outcome>> {
    let steps = VM_1.map(|(s, mbit_s)| (s * 1_000, mbit_s * MBIT)).to_vec();
    let senders = [
        Sender::Steps(steps),
        Sender::Constant(800 * MBIT),
        Sender::Constant(800 * MBIT),
    ];
    let machine = |(at, sender): (usize, Sender)| {
        let agreement = Agreement {
            class: 1 + at as u32,
            minimum_bit_s: [300, 100, 0][at] * MBIT,
            maximum_bit_s: maxima[at] * MBIT,
            weight: 1,
        };
        Machine::new(agreement, sender)
    };
    let scenario = Scenario {
        link_bit_s: 1_000 * MBIT,
        sharing: Sharing::ByClass,
        regime: Regime::Held(shapers),
        period_ms: PERIOD_MS,
        seed: 1,
        machines: senders.into_iter().enumerate().map(machine).collect(),
    };
    simulate(&scenario, (RUN_S * PERIODS_A_SECOND) as u64, no_rates)
}

fn loss_percent(periods: &[Vec<Outcome>], machine: usize) -> f64 {
    let sum =
        |of: fn(&Outcome) -> u64| -> u64 { periods.iter().map(|each| of(&each[machine])).sum() };
    sum(|each| each.dropped_bytes) as f64 / sum(|each| each.offered_bytes) as f64 * 100.0
}

/// Mean rates from one second to another, in Mbit/s.
fn mbit_s(periods: &[Vec<Outcome>], from_s: usize, upto_s: usize) -> [f64; 3] {
    let part = &periods[from_s * PERIODS_A_SECOND..upto_s * PERIODS_A_SECOND];
    std::array::from_fn(|at| {
        let bytes: u64 = part.iter().map(|each| each[at].delivered_bytes).sum();
        bytes as f64 * 8.0 / (upto_s - from_s) as f64 / 1e6
    })
}

#[test]
fn class_1_loses_what_its_maximum_forbids_and_no_more() {
    for shapers in [Shapers::Tree, Shapers::Single] {
        let periods = run(shapers, [600, 300, 100]);
        let lost = loss_percent(&periods, 0);
        assert!((lost - 100.0 / 6.0).abs() <= 0.5, "{lost} %");
        // To the letter, the maxima of the others leave 400 Mbit/s idle while VM 1 offers 200.
        let rates = mbit_s(&periods, 110, 140);
        for (rate, expected) in rates.iter().zip([200.0, 300.0, 100.0]) {
            assert!((rate - expected).abs() <= 2.0, "{rates:?}");
        }
    }
}

#[test]
fn nothing_is_idle_where_no_maximum_forbids_it() {
    // Single limits leave a modest sender room to show that it wants more, and a hundredth of the link
    // to whoever has no share at all (class 3, while VM 1 has 600), which VM 1 then lacks.
    for (shapers, room_mbit_s, more_lost) in
        [(Shapers::Tree, 2.0, 0.5), (Shapers::Single, 30.0, 1.2)]
    {
        let periods = run(shapers, [600, 600, 400]);
        let lost = loss_percent(&periods, 0) - 100.0 / 6.0;
        assert!((-0.5..=more_lost).contains(&lost), "{lost} %");
        for (from_s, upto_s) in [(110, 140), (175, 190)] {
            let used: f64 = mbit_s(&periods, from_s, upto_s).iter().sum();
            assert!(used >= 1_000.0 - room_mbit_s, "{used}");
        }
    }
}
