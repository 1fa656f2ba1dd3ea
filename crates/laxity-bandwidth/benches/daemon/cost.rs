//! What the daemon costs.

use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::scene::Scene;
use crate::{agreement, head, random_pace};

pub fn run() {
    for period_ms in [10, 100] {
        cost(period_ms, 0);
        cost(period_ms, 50);
    }
}

/// `busy` of a thousand machines flood the link; the others are there.
fn cost(period_ms: u64, busy: usize) {
    const MACHINES: usize = 1_000;
    const TIME: Duration = Duration::from_secs(10);
    let mut scene = Scene::with_idle(&format!("cost{period_ms}-{busy}"), busy, MACHINES - busy);
    let mut text = head(period_ms, 200);
    for at in 0..MACHINES {
        text += &agreement(at, 1 + at as u64 % 3, 100, 200_000, 1);
    }
    let file = scene.write("agreements.toml", &text);
    scene.start(&file);
    let _senders: Vec<_> = (0..busy)
        .map(|at| scene.send(at, random_pace(at as u64, 4_000_000)))
        .collect();
    thread::sleep(Duration::from_secs(1));
    let (before, started) = (cpu_s(scene.daemon()), Instant::now());
    thread::sleep(TIME);
    let used = (cpu_s(scene.daemon()) - before) / started.elapsed().as_secs_f64() * 100.0;
    let snapshot = scene.snapshot().expect("a daemon that answers");
    println!(
        "{{\"part\": \"cost\", \"interfaces\": {MACHINES}, \"busy\": {busy}, \"period_ms\": {period_ms}, \
         \"cpu_percent\": {used:.2}, \"loop_ms\": {:.2}, \"loop_ms_max\": {:.2}, \"periods\": {}, \"periods_missed\": {}}}",
        snapshot.loop_ns as f64 / 1e6,
        snapshot.loop_ns_max as f64 / 1e6,
        snapshot.periods,
        snapshot.periods_missed
    );
    scene.signal(Signal::SIGTERM);
    assert!(scene.wait());
}

/// CPU time of a process so far, its kernel's included.
pub fn cpu_s(process: u32) -> f64 {
    const TICKS_A_SECOND: f64 = 100.0;
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let (_, fields) = text.rsplit_once(") ").unwrap();
    let fields: Vec<&str> = fields.split(' ').collect();
    let ticks = |at: usize| fields[at].parse::<f64>().unwrap();
    (ticks(11) + ticks(12)) / TICKS_A_SECOND
}
