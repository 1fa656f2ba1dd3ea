//! What the daemon costs and how well it holds agreements, with real packets in network namespaces (as
//! root): `cargo bench -p laxity-bandwidth --bench daemon -- [--quick] [PART …]`; quick is to see that all works.
//!
//! - `wake`: how long a machine that was idle waits for its minimum while others flood the link;
//! - `random`: 100 random senders for some seconds: what of its minimum anyone lacked in any second;
//! - `paper`: the paper's scenario, a tenth of its time and of its rates, with and without the daemon;
//! - `periods`: its first part, at one period after the other: loss, and CPU time of all;
//! - `drops`: CPU time of a packet that is dropped, by where;
//! - `look`: CPU time of a look at 1,000 classes, at all of them and at those that are active;
//! - `start`: CPU time of the daemon until it answers, with more and more interfaces;
//! - `cost`: CPU time of the daemon with 1,000 interfaces, at 10 ms and at 100 ms, and with 10,000.
//!
//! Prints one JSON object a line.

mod cost;
mod drops;
mod input;
mod paper;
#[path = "../../tests/scene/mod.rs"]
mod scene;

use std::thread;
use std::time::{Duration, Instant};

use input::{agreement, head, percentile, random_pace};
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
use scene::{FRAME_BYTES, Pace, Scene, constant, flood};

fn main() {
    if let Some(reason) = scene::what_is_missing() {
        println!("SKIPPED: {reason}");
        return;
    }
    let words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with('-'))
        .collect();
    let is_quick = std::env::args().any(|word| word == "--quick");
    let is_wanted = |part: &str| words.is_empty() || words.iter().any(|word| word == part);
    if is_wanted("wake") {
        wake(is_quick);
    }
    if is_wanted("random") {
        random(is_quick);
    }
    if is_wanted("paper") {
        paper::run(is_quick);
    }
    if is_wanted("periods") {
        paper::periods(is_quick);
    }
    if is_wanted("drops") {
        drops::run(is_quick);
    }
    if is_wanted("look") {
        cost::looks(is_quick);
    }
    if is_wanted("start") {
        cost::start(is_quick);
    }
    if is_wanted("cost") {
        cost::run(is_quick);
    }
}

/// The time until an idle machine gets its minimum. A machine with a minimum of 30 Mbit/s sends at
/// that rate for 200 ms after a pause of 300 ms, repeatedly, while two others flood the link of 100
/// Mbit/s. The minimum is there at the end of the first window of 10 ms that holds 95 % of what the
/// machine sends in 10 ms, less a packet; the time is counted from the first packet sent.
fn wake(is_quick: bool) {
    const MINIMUM_BIT_S: u64 = 30_000_000;
    let rounds = if is_quick { 4 } else { 40 };
    const WINDOW: Duration = Duration::from_millis(10);
    let mut scene = Scene::new("wake", 3);
    let text = [
        head(10, 100),
        agreement(0, 1, 30_000, 100_000, 1),
        agreement(1, 2, 10_000, 100_000, 1),
        agreement(2, 3, 0, 100_000, 1),
    ];
    let file = scene.write("agreements.toml", &text.concat());
    scene.start(&file);
    let listener = scene.listen();
    let _floods = [scene.send(1, flood()), scene.send(2, flood())];
    thread::sleep(Duration::from_secs(1));
    let mut waits_ms: Vec<f64> = (0..rounds)
        .map(|_| {
            thread::sleep(Duration::from_millis(300));
            let (first, is_sending) = std::sync::mpsc::channel();
            let pace: Pace = Box::new(move |socket, running| {
                first.send(Instant::now()).unwrap();
                constant(MINIMUM_BIT_S)(socket, running);
            });
            let sender = scene.send(0, pace);
            let started = is_sending.recv().unwrap();
            let expected = MINIMUM_BIT_S / 8 * WINDOW.as_millis() as u64 / 1_000;
            let enough = (expected * 95 / 100).saturating_sub(FRAME_BYTES);
            let mut waited_ms = f64::INFINITY;
            // Pairs of a moment and the bytes received by then.
            let mut seen = vec![(started, listener.bytes(0))];
            while started.elapsed() < Duration::from_millis(500) {
                thread::sleep(Duration::from_micros(200));
                let now = (Instant::now(), listener.bytes(0));
                seen.push(now);
                let begin = seen.iter().rev().find(|(at, _)| now.0 - *at >= WINDOW);
                if begin.is_some_and(|(_, bytes)| now.1 - bytes >= enough) {
                    // The window that satisfies the condition began earlier.
                    waited_ms = (now.0 - started - WINDOW).as_secs_f64() * 1e3;
                    break;
                }
            }
            drop(sender);
            waited_ms
        })
        .collect();
    waits_ms.sort_by(f64::total_cmp);
    println!(
        "{{\"part\": \"wake\", \"rounds\": {rounds}, \"median_ms\": {:.2}, \"p90_ms\": {:.2}, \"max_ms\": {:.2}}}",
        percentile(&waits_ms, 0.5),
        percentile(&waits_ms, 0.9),
        percentile(&waits_ms, 1.0)
    );
}

/// Violations of minima by the kernel's counters: machines that had a queue during a whole second
/// and got less than their minimum. The daemon counts them, and this function does so independently
/// from the same counters.
fn random(is_quick: bool) {
    const MACHINES: usize = 100;
    let seconds = if is_quick { 3 } else { 20 };
    const LINK_MBIT_S: u64 = 200;
    let mut random = Pcg64Mcg::seed_from_u64(1);
    let mut below = |end: u64| random.next_u64() % end;
    let mut scene = Scene::new("random", MACHINES);
    let mut text = head(10, LINK_MBIT_S);
    for at in 0..MACHINES {
        let minimum = 200 + below(1_600);
        text += &agreement(
            at,
            1 + below(3),
            minimum,
            minimum + below(20_000),
            1 + below(9),
        );
    }
    let file = scene.write("agreements.toml", &text);
    scene.start(&file);
    let fair_bit_s = LINK_MBIT_S * 1_000_000 / MACHINES as u64;
    let _senders: Vec<_> = (0..MACHINES)
        .map(|at| scene.send(at, random_pace(at as u64, fair_bit_s)))
        .collect();
    let mut worst = 0.0_f64;
    let mut windows = 0;
    let mut short = 0;
    let ended = Instant::now() + Duration::from_secs(seconds);
    // Start of each machine's queue and the bytes sent by then.
    let mut begins: Vec<Option<(Instant, u64)>> = vec![None; MACHINES];
    while Instant::now() < ended {
        thread::sleep(Duration::from_millis(5));
        let now = Instant::now();
        let classes = scene.classes();
        let snapshot = scene.snapshot().expect("a daemon that answers");
        for (at, begin) in begins.iter_mut().enumerate() {
            let Some(&(bytes, is_waiting)) = classes.get(&(0x10 + at as u16)) else {
                continue;
            };
            if !is_waiting {
                *begin = None;
                continue;
            }
            let (since, before) = *begin.get_or_insert((now, bytes));
            let elapsed = now - since;
            if elapsed >= Duration::from_secs(1) {
                let got = (bytes - before) as f64 * 8.0 / elapsed.as_secs_f64();
                let minimum = snapshot.holders[at].minimum_bit_s as f64;
                let lacking = (1.0 - got / minimum).max(0.0) * 100.0;
                worst = worst.max(lacking);
                windows += 1;
                short += usize::from(lacking > 1.0);
                *begin = Some((now, bytes));
            }
        }
    }
    let snapshot = scene.snapshot().expect("a daemon that answers");
    let violations: u64 = snapshot.holders.iter().map(|each| each.violations).sum();
    println!(
        "{{\"part\": \"random\", \"machines\": {MACHINES}, \"seconds\": {seconds}, \"busy_seconds_of_machines\": {windows}, \
         \"short_by_more_than_1_percent\": {short}, \"worst_percent\": {worst:.2}, \"violations\": {violations}, \
         \"loop_ms_max\": {:.2}, \"periods_missed\": {}}}",
        snapshot.loop_ns_max as f64 / 1e6,
        snapshot.periods_missed
    );
}
