//! A real guest that writes to a disk, and real kills: nothing that a client has seen is ever
//! missing from the disk. `LAXITY_FAILOVERS` is the number of kills, `LAXITY_SEED` the seed.

mod scene;

use std::fs;
use std::time::{Duration, Instant};

use laxity_protect::daemon::control::Request;
use rand_core::{RngCore as _, SeedableRng as _};
use scene::{Clients, Scene, number};

/// A guest with a disk. Its kernel is told not to check its timer, which is late on a busy machine.
/// The hosts may not hear each other there for longer than the default of 300 ms, and a standby takes
/// over from a primary that lives: the test goes on then.
const GUEST: &str = "memory = \"96 MiB\"\naccelerator = \"tcg\"\ndetection = \"1 s\"\n\
                     volumes = [\"HOST.disk\"]\n\
                     append = \"quiet no_timer_check disk=/dev/vda\"";

/// Steps of an epoch at which a host with the guest dies; `None` stands for a kill from outside.
const STEPS: [Option<&str>; 6] = [
    Some("stopped"),
    Some("captured"),
    Some("sent"),
    Some("acknowledged"),
    Some("released"),
    None,
];
/// The host on which a new guest is booted.
const BOOTS: usize = 0;
/// Number of protected epochs in one of which a host dies.
const EPOCHS: u64 = 16;

#[test]
fn nothing_seen_is_missing_from_the_disk() {
    if let Some(reason) = scene::what_is_missing() {
        eprintln!("SKIPPED: {reason}");
        return;
    }
    let (failovers, seed) = (number("LAXITY_FAILOVERS", 5), number("LAXITY_SEED", 1));
    let mut random = rand_pcg::Pcg64Mcg::seed_from_u64(seed);
    let mut scene = Scene::new("disks", GUEST);
    let mut fates: [Option<String>; 2] = [None, None];
    let fate = |random: &mut rand_pcg::Pcg64Mcg| {
        let step = STEPS[random.next_u32() as usize % STEPS.len()];
        step.map(|step| format!("{step}:{}", 1 + random.next_u64() % EPOCHS))
    };
    for host in [0, 1] {
        fates[host] = fate(&mut random);
        scene.start(host, fates[host].as_deref());
    }
    let clients = Clients::start();
    let mut died = Vec::new();
    for failover in 0..failovers {
        let said = || format!("failover {failover}, seed {seed}");
        let dead = scene::next_death(&mut scene, &fates, &mut random);
        died.push(fates[dead].clone().unwrap_or("killed".into()));
        let (survivor, answers) = (1 - dead, clients.seen.answers());
        let begun = Instant::now();
        while clients.seen.answers() < answers + 20 {
            let waited = begun.elapsed() < scene::PATIENCE;
            assert!(waited, "nobody answers: {}\n{}", said(), scene.logs());
            std::thread::sleep(Duration::from_millis(1));
        }
        let (forgotten, wrong) = (clients.seen.forgotten(), clients.seen.wrong());
        assert_eq!((forgotten, wrong), (0, 0), "{}\n{}", said(), scene.logs());
        scene.wait_until(survivor, "primary", |vm| vm.state != "armed");
        fates[dead] = fate(&mut random);
        scene.start(dead, fates[dead].as_deref());
    }
    let seen = clients.seen.clone();
    clients.stop();
    eprintln!(
        "{failovers} failovers, seed {seed}, how: {died:?}; {} answers, none missing from the disk",
        seen.answers()
    );
    // The disk outlives both hosts: the guest wrote each count before it answered.
    // A host that was overtaken may not know yet, and its term is lower.
    let term = |&host: &usize| {
        let vm = scene.state(host).filter(|vm| vm.interval_ns.is_some());
        vm.map(|vm| vm.term)
    };
    let holder = [0, 1].into_iter().max_by_key(term).unwrap();
    assert!(term(&holder).is_some(), "none has the guest");
    let there = on_disk(&scene, holder);
    let highest = seen.highest();
    assert!(
        there >= highest,
        "{there} is on the disk, and {highest} was seen"
    );
    // Both hosts fail. The guest is not booted from either disk unasked, and has forgotten nothing
    // when it is booted where it was.
    for host in [0, 1] {
        if !scene.has_ended(host) {
            scene.kill(host);
        }
    }
    if holder != BOOTS {
        // The host that would boot the guest has been replaced, and knows nothing of it.
        fs::remove_file(scene.record(BOOTS)).unwrap();
    }
    let said = scene.log(BOOTS);
    for host in [0, 1] {
        scene.start(host, None);
    }
    scene.wait_until(holder, "connected", |vm| vm.connected);
    if holder == BOOTS {
        scene.wait_for_log_after(BOOTS, &said, "order `start` where it ran last");
    }
    for host in [0, 1] {
        let vm = scene.wait_until(host, "there", |_| true);
        assert_eq!(vm.state, "empty");
    }
    let start = Request::Start {
        vm: "counter".into(),
        alone: false,
    };
    scene.order(holder, &start);
    let said = scene::ask_once(7);
    assert!(said.count > highest, "{said:?} after {highest}");
    assert_eq!(said.wrong, 0);
    // What is copied to the other disk is only what differs.
    scene.wait_for(holder, "protected");
    let vm = scene.wait_until(holder, "there", |_| true);
    assert_eq!(vm.disk_left_bytes, 0);
    assert!(
        vm.disk_bytes < scene::DISK_BYTES / 8,
        "{} bytes",
        vm.disk_bytes
    );
}

/// The highest count on a host's disk.
fn on_disk(scene: &Scene, host: usize) -> u64 {
    let disk = fs::read(scene.disk(host)).unwrap();
    let counts = disk
        .chunks(4096)
        .map(|block| u64::from_le_bytes(block[..8].try_into().unwrap()));
    counts.max().unwrap_or(0)
}
