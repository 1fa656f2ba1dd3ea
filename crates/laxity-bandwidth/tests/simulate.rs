//! The model conserves bytes in every regime while machines come and go.

use laxity_bandwidth::control::Shapers;
use laxity_bandwidth::simulate::{
    Machine, Measured, Outcome, Regime, Scenario, Sender, record, simulate,
};
use laxity_bandwidth::{Agreement, Sharing};

const MBIT: u64 = 1_000_000;
const REGIMES: [Regime; 4] = [
    Regime::Native,
    Regime::Given,
    Regime::Held(Shapers::Tree),
    Regime::Held(Shapers::Single),
];

fn machine(minimum: u64, sender: Sender, present_ms: Option<(u64, u64)>) -> Machine {
    let agreement = Agreement {
        class: 1,
        minimum_bit_s: minimum * MBIT,
        maximum_bit_s: 1_000 * MBIT,
        weight: 1,
    };
    Machine {
        present_ms,
        ..Machine::new(agreement, sender)
    }
}

/// What [`Regime::Given`] gives here.
fn as_agreed(machines: &[Measured]) -> Vec<u64> {
    let maxima = machines
        .iter()
        .map(|machine| machine.agreement.maximum_bit_s);
    maxima.collect()
}

fn scenario(regime: Regime) -> Scenario {
    Scenario {
        link_bit_s: 1_000 * MBIT,
        sharing: Sharing::Weighted,
        regime,
        period_ms: 10,
        seed: 7,
        machines: vec![
            machine(300, Sender::Constant(600 * MBIT), None),
            machine(100, Sender::Constant(700 * MBIT), Some((500, 1_500))),
            machine(0, Sender::Tcp { round_trip_ms: 5 }, None),
            machine(
                0,
                Sender::Bursty {
                    bit_s: 900 * MBIT,
                    mean_ms: 40,
                },
                Some((1_000, 9_000)),
            ),
        ],
    }
}

#[test]
fn what_is_offered_is_delivered_or_dropped_or_waits() {
    const QUEUE_BYTES: u64 = 1_500_000;
    for regime in REGIMES {
        let periods = simulate(&scenario(regime), 200, as_agreed);
        for at in 0..4 {
            let sum = |of: fn(&Outcome) -> u64| periods.iter().map(|all| of(&all[at])).sum::<u64>();
            let gone = sum(|each| each.delivered_bytes)
                + sum(|each| each.dropped_bytes)
                + sum(|each| each.dropped_at_link_bytes);
            let offered = sum(|each| each.offered_bytes);
            assert!(
                gone <= offered && offered - gone <= QUEUE_BYTES,
                "{regime:?} {at}: {offered} {gone}"
            );
            let at_link = sum(|each| each.dropped_at_link_bytes);
            let in_guest = sum(|each| each.dropped_bytes);
            let elsewhere = if regime == Regime::Native {
                in_guest
            } else {
                at_link
            };
            assert_eq!(elsewhere, 0, "{regime:?}");
        }
        for all in &periods {
            let sent: u64 = all.iter().map(|each| each.delivered_bytes).sum();
            assert!(sent * 8 <= 10 * MBIT, "{regime:?}: {sent}");
        }
    }
}

#[test]
fn who_is_not_there_sends_nothing_and_who_comes_has_its_minimum() {
    for regime in REGIMES {
        let periods = simulate(&scenario(regime), 200, as_agreed);
        let sent = |at: usize, periods: &[Vec<Outcome>]| {
            periods
                .iter()
                .map(|all| all[at].delivered_bytes)
                .sum::<u64>()
                * 8
                / MBIT
        };
        assert_eq!(
            sent(1, &periods[..50]) + sent(1, &periods[150..]),
            0,
            "{regime:?}"
        );
        if let Regime::Held(_) = regime {
            assert!(sent(1, &periods[51..150]) >= 99, "{regime:?}");
            assert!(sent(0, &periods) >= 600, "{regime:?}");
        }
    }
}

#[test]
fn first_come_first_served_divides_by_what_comes() {
    let mut scenario = scenario(Regime::Native);
    scenario.machines = vec![
        machine(300, Sender::Constant(200 * MBIT), None),
        machine(100, Sender::Constant(1_800 * MBIT), None),
    ];
    let seconds = record(&scenario, 2_000, 1_000, as_agreed);
    let mbit_s = seconds[1]
        .iter()
        .map(|each| each.delivered_bytes * 8 / MBIT);
    assert_eq!(mbit_s.collect::<Vec<_>>(), [100, 900]);
}

#[test]
fn who_is_denied_its_minimum_is_counted() {
    let mut scenario = scenario(Regime::Native);
    scenario.machines = vec![
        machine(300, Sender::Constant(400 * MBIT), None),
        machine(0, Sender::Constant(2_000 * MBIT), None),
    ];
    let denied = |scenario: &Scenario| {
        let seconds = record(scenario, 5_000, 5_000, as_agreed);
        seconds[0]
            .iter()
            .map(|each| each.denied)
            .collect::<Vec<_>>()
    };
    assert_eq!(denied(&scenario), [5, 0]);
    scenario.regime = Regime::Held(Shapers::Tree);
    assert_eq!(denied(&scenario), [0, 0]);
}

#[test]
fn a_record_adds_up_to_the_periods() {
    for period_ms in [1, 10, 300] {
        let mut scenario = scenario(Regime::Held(Shapers::Tree));
        scenario.period_ms = period_ms;
        let bins = record(&scenario, 2_000, 500, as_agreed);
        let periods = simulate(&scenario, 2_000_u64.div_ceil(period_ms), as_agreed);
        let sum = |all: &[Vec<Outcome>]| -> u64 {
            all.iter().flatten().map(|each| each.delivered_bytes).sum()
        };
        assert_eq!((bins.len(), sum(&bins)), (4, sum(&periods)));
    }
}
