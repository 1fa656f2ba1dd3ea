//! The daemon's CPU time.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use laxity_bandwidth::shaper::Shaper as _;
use nix::sys::signal::Signal;
use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

use crate::input::{agreement, head, percentile, random_pace};
use crate::scene::{Scene, enter, tree};

const MACHINES: usize = 1_000;

/// Priority of the daemon, as in `laxity-bandwidth.service`.
const PRIORITY: &str = "10";

pub fn run(is_quick: bool) {
    let time = Duration::from_secs(if is_quick { 1 } else { 10 });
    for period_ms in [10, 100] {
        cost(period_ms, 0, time);
        cost(period_ms, 50, time);
    }
}

fn agreements_text(period_ms: u64, machines: usize) -> String {
    const MINIMA_KBIT_S: u64 = 100_000;
    let mut text = head(period_ms, 200);
    for at in 0..machines {
        let minimum = MINIMA_KBIT_S / machines as u64;
        text += &agreement(at, 1 + at as u64 % 3, minimum, 200_000, 1);
    }
    text
}

/// CPU time of the daemon until it answers, by the number of interfaces.
pub fn start(is_quick: bool) {
    let sizes: &[usize] = if is_quick {
        &[50]
    } else {
        &[500, 1_000, 2_000]
    };
    for &interfaces in sizes {
        let mut scene = Scene::with_idle(&format!("start-{interfaces}"), 0, interfaces);
        let file = scene.write("agreements.toml", &agreements_text(10, interfaces));
        scene.start(&file);
        println!(
            "{{\"part\": \"start\", \"interfaces\": {interfaces}, \"cpu_s\": {:.2}, \"load\": {:.2}}}",
            cpu_s(scene.daemon()),
            load()
        );
        scene.signal(Signal::SIGTERM);
        assert!(scene.wait());
    }
}

/// CPU time while `busy` of a thousand machines flood the link and the others are silent.
fn cost(period_ms: u64, busy: usize, time: Duration) {
    let mut scene = Scene::with_idle(&format!("cost{period_ms}-{busy}"), busy, MACHINES - busy);
    let file = scene.write("agreements.toml", &agreements_text(period_ms, MACHINES));
    scene.start(&file);
    let process = scene.daemon().to_string();
    let mut command = Command::new("chrt");
    command.args(["--rr", "--pid", PRIORITY, &process]);
    assert!(command.status().is_ok_and(|status| status.success()));
    let _senders: Vec<_> = (0..busy)
        .map(|at| scene.send(at, random_pace(at as u64, 4_000_000)))
        .collect();
    thread::sleep(Duration::from_secs(1));
    let began = scene.snapshot().expect("a daemon that answers");
    let (before, started) = (cpu_s(scene.daemon()), Instant::now());
    thread::sleep(time);
    let used = (cpu_s(scene.daemon()) - before) / started.elapsed().as_secs_f64() * 100.0;
    let snapshot = scene.snapshot().expect("a daemon that answers");
    println!(
        "{{\"part\": \"cost\", \"interfaces\": {MACHINES}, \"busy\": {busy}, \"period_ms\": {period_ms}, \
         \"cpu_percent\": {used:.3}, \"loop_ms\": {:.3}, \"loop_ms_max\": {:.2}, \"periods\": {}, \
         \"periods_missed\": {}, \"load\": {:.2}}}",
        snapshot.loop_ns as f64 / 1e6,
        snapshot.loop_ns_max as f64 / 1e6,
        snapshot.periods - began.periods,
        snapshot.periods_missed - began.periods_missed,
        load()
    );
    scene.signal(Signal::SIGTERM);
    assert!(scene.wait());
}

/// CPU time of reading the kernel's counters alone, of all classes and of active ones, in turn.
pub fn looks(is_quick: bool) {
    let rounds = if is_quick { 20 } else { 200 };
    for busy in [0, 50] {
        let scene = Scene::with_idle(&format!("look-{busy}"), busy, MACHINES - busy);
        let _senders: Vec<_> = (0..busy)
            .map(|at| scene.send(at, random_pace(at as u64, 4_000_000)))
            .collect();
        let text = agreements_text(10, MACHINES);
        let [mut all, mut active] = thread::scope(|threads| {
            let looking = threads.spawn(|| {
                enter(&scene.host());
                look(&text, rounds)
            });
            looking.join().unwrap()
        });
        all.sort_by(f64::total_cmp);
        active.sort_by(f64::total_cmp);
        println!(
            "{{\"part\": \"look\", \"interfaces\": {MACHINES}, \"busy\": {busy}, \"rounds\": {rounds}, \
             \"all_us\": {:.1}, \"active_us\": {:.1}, \"load\": {:.2}}}",
            percentile(&all, 0.5),
            percentile(&active, 0.5),
            load()
        );
    }
}

/// CPU time of reading all classes and of reading the active ones, in us.
fn look(text: &str, rounds: usize) -> [Vec<f64>; 2] {
    let (mut tree, _) = tree(text);
    let mut read = Vec::new();
    let mut us: [Vec<f64>; 2] = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        thread::sleep(Duration::from_millis(10));
        us[1].push(own_us(|| tree.read(&mut read).unwrap()));
        us[0].push(own_us(|| tree.read_all().unwrap()));
    }
    us
}

/// CPU time of this thread, in us.
fn own_us(work: impl FnOnce()) -> f64 {
    let now = || Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap());
    let before = now();
    work();
    (now() - before).as_secs_f64() * 1e6
}

/// The machine's mean load over the last minute.
pub fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

/// CPU time of a process so far, including the kernel's.
pub fn cpu_s(process: u32) -> f64 {
    let clock = clock_getcpuclockid(Pid::from_raw(process as i32)).unwrap();
    Duration::from(clock_gettime(clock).unwrap()).as_secs_f64()
}
