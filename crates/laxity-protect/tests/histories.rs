//! The protocol in random histories, and in all histories with a single fault.
//!
//! A history that fails says its seed; with that seed and one history it is told step by step. `make mutations`
//! breaks the protocol in every way that it knows, and 10,000 histories notice each.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use laxity_protect::protocol::{Mode, Settings, StandbyLost, interval};
use laxity_protect::simulate::{self, Coverage, Fault, Plan};
use laxity_trials::seeds;

/// The log of a failing history.
fn told(plan: &Plan) -> String {
    let outcome = simulate::tell(plan);
    let log = outcome.log.join("\n");
    format!("{plan:#?}\n{log}\n{:?}", outcome.violation)
}

#[test]
fn random_histories() {
    let Range { start: first, end } = seeds(25_000);
    let histories = end - first;
    let next = AtomicU64::new(first);
    let all = Mutex::new(Coverage::default());
    let work = || {
        let mut coverage = Coverage::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end {
                break;
            }
            let plan = Plan::random(seed);
            let outcome = simulate::run(&plan, &mut coverage);
            if outcome.violation.is_some() {
                next.store(end, Ordering::Relaxed);
                panic!(
                    "LAXITY_SEED={seed} LAXITY_CASES=1: {}",
                    told(&simulate::shrink(&plan))
                );
            }
        }
        all.lock().unwrap().add(&coverage);
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, Into::into) {
            scope.spawn(work);
        }
    });
    let coverage = all.into_inner().unwrap();
    println!("{coverage:#?}");
    if histories >= 10_000 {
        assert!(
            coverage.surprises < histories / 1000,
            "{} histories only seemed to leave nobody",
            coverage.surprises
        );
        for (name, count) in coverage.counts() {
            assert!(
                count >= histories / 1000 || name == "surprises",
                "only {count} {name} in {histories} histories"
            );
        }
    }
}

/// Every point at which a process can end or stall, in a short history without random faults: with
/// all settings, with and without a switchover, on either host.
#[test]
fn one_fault_at_every_action() {
    let mut coverage = Coverage::default();
    let mut histories = 0;
    for plan in short_plans() {
        let actions = simulate::run(&plan, &mut coverage).actions;
        for side in [0, 1] {
            for action in 0..actions[side] {
                for fault in faults_at(side, action) {
                    let mut plan = plan.clone();
                    plan.faults.insert(0, (BEGUN_NS, fault));
                    let outcome = simulate::run(&plan, &mut coverage);
                    histories += 1;
                    assert!(outcome.violation.is_none(), "{}", told(&plan));
                    // The primary's end is the only fault: the silence has a bound.
                    if matches!(fault, Fault::Crash { side: 0, .. }) && plan.faults.len() == 1 {
                        let most_ns = longest_silence_ns(&plan.settings);
                        let silence_ns = outcome.silence_ns;
                        assert!(silence_ns <= most_ns, "{silence_ns} > {most_ns}: {plan:#?}");
                    }
                }
            }
        }
    }
    println!("{histories} histories: {coverage:#?}");
    assert!(
        coverage.takeovers > 500 && coverage.switchovers > 500,
        "{coverage:#?}"
    );
    assert!(histories > 4_000, "{histories}");
}

const MS: i64 = 1_000_000;
/// A process begins at once; the fault counts its actions.
const BEGUN_NS: i64 = 0;

fn short_plans() -> Vec<Plan> {
    let mut plans = Vec::new();
    for number in 0..16 {
        let has = |bit| number & bit != 0;
        let settings = Settings {
            vm: 1,
            mode: if has(1) { Mode::Net } else { Mode::NoNet },
            standby_lost: if has(2) {
                StandbyLost::Stop
            } else {
                StandbyLost::Continue
            },
            witness: has(4),
            heartbeat_ns: 8 * MS,
            detection_ns: 30 * MS,
            detection_min_ns: 24 * MS,
            lease_ns: 40 * MS,
            settling_ns: 10 * MS,
            stall_ns: 300 * MS,
            checkpoint_bytes_max: 1 << 20,
            drift_ppm: 10_000,
            interval: interval::Bounds {
                minimum_ns: 6 * MS,
                maximum_ns: 20 * MS,
                pause_share_percent: 20,
            },
        };
        plans.push(Plan {
            seed: number,
            settings,
            clocks: [(-5_000, 0), (5_000, 1 << 30)],
            faults: if has(8) {
                vec![(45 * MS, Fault::Switchover)]
            } else {
                vec![]
            },
            healed_ns: 150 * MS,
        });
    }
    plans
}

fn faults_at(side: usize, actions: u32) -> Vec<Fault> {
    let mut faults = Vec::new();
    for one in [false, true] {
        faults.push(Fault::Crash {
            side,
            actions,
            power: one,
        });
        faults.push(Fault::Freeze {
            side,
            actions,
            for_ns: 100 * MS,
            guest: one,
            clock_first: one,
        });
    }
    faults
}

/// The longest silence between two hosts' outputs: an epoch's output may have been held, and a
/// message may have been on its way when the primary ended; then detection or the lease, whichever
/// is longer; then the model's times for capture, activation and the guest's next step.
fn longest_silence_ns(settings: &Settings) -> i64 {
    let epoch_ns = settings.interval.maximum_ns + 2 * MS;
    let on_the_way_ns = 6 * MS;
    let drift_ns = settings.lease_ns * settings.drift_ppm / 1_000_000 + MS;
    let lease_ns = if settings.mode == Mode::NoNet {
        settings.lease_ns + drift_ns
    } else {
        0
    };
    let witness_ns = if settings.witness { 6 * MS } else { 0 };
    let activation_ns = 3 * MS;
    let step_ns = 2 * 5 * MS;
    epoch_ns
        + on_the_way_ns
        + settings.detection_ns.max(lease_ns)
        + drift_ns
        + witness_ns
        + activation_ns
        + step_ns
}
