//! Real guests on hosts with faults of their networks, clocks, disks and memory, and with a second
//! failure before the first is repaired: nothing that a client has seen is ever forgotten.

mod scene;

use std::fs::{self, File};
use std::io::Write as _;
use std::process::Command;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use scene::{Clients, Scene};

/// A guest whose hosts do not take a busy machine for a failure.
const GUEST: &str = "memory = \"96 MiB\"\naccelerator = \"tcg\"\ndetection = \"10 s\"\n\
                     append = \"quiet no_timer_check\"";

/// Whether this machine supports a scene; the test says so otherwise.
fn is_possible() -> bool {
    if let Some(reason) = scene::what_is_missing() {
        eprintln!("SKIPPED: {reason}");
    }
    scene::what_is_missing().is_none()
}

fn tc(words: &str) -> String {
    let output = Command::new("tc").args(words.split(' ')).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "tc {words}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// Loses one of a hundred packets that leave by an interface of this network namespace. TCP then
/// sends segments again, after later ones.
///
/// The program is for the kernel's filter of packets: a random number, modulo 100; 0 drops the
/// packet (`TC_ACT_SHOT`), anything else lets it pass.
fn lose_packets(interface: &str) {
    const PROGRAM: [&str; 6] = [
        "5",
        "32 0 0 4294963256",
        "148 0 0 100",
        "21 0 1 0",
        "6 0 0 2",
        "6 0 0 0",
    ];
    tc(&format!("qdisc add dev {interface} clsact"));
    let words = format!("filter add dev {interface} egress bpf direct-action bytecode");
    let program = PROGRAM.join(",");
    let output = Command::new("tc")
        .args(words.split(' '))
        .arg(program)
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
}

/// Number of packets that an interface has lost.
fn lost_packets(interface: &str) -> u64 {
    let text = tc(&format!("-s qdisc show dev {interface} clsact"));
    let (_, after) = text.split_once("dropped ").expect("tc counts them");
    after.split(',').next().unwrap().parse().unwrap()
}

fn nothing_is_lost(scene: &Scene, clients: &Clients) {
    let lost = (clients.seen.forgotten(), clients.seen.wrong());
    assert_eq!(lost, (0, 0), "{}", scene.logs());
}

/// The process of QEMU on a host.
fn guest_of(scene: &Scene, host: usize) -> Pid {
    let name = |process: &u32| fs::read_to_string(format!("/proc/{process}/comm"));
    let is_guest = |process: &u32| name(process).is_ok_and(|name| name.starts_with("qemu-system"));
    let found = scene.children(host).into_iter().find(is_guest);
    Pid::from_raw(found.expect("a host has a guest's process") as i32)
}

/// A network that loses one packet in a hundred everywhere, two hosts whose clocks show times that
/// are a year apart, and one failure after the other: of a host, of a host that is being copied to,
/// and of the processes that hold the guest's memory, as when memory runs out.
#[test]
fn failures_on_a_bad_network() {
    const YEAR_AHEAD: [&str; 4] = ["unshare", "--time", "--boottime", "31536000"];
    if !is_possible() {
        return;
    }
    let mut scene = Scene::new("bad-network", GUEST);
    for interface in ["lo", "br0", "north0", "south0"] {
        lose_packets(interface);
    }
    scene.start(0, None);
    scene.start_in(1, &YEAR_AHEAD, &[]);
    scene.wait_for(0, "protected");
    let clients = Clients::start();
    clients.hear(50);

    // A host fails, and fails once more before it has all of the guest's memory.
    scene.kill(0);
    scene.wait_for(1, "alone");
    clients.hear(20);
    scene.start(0, Some("staged:1"));
    scene.wait_for_end(0);
    clients.hear(20);
    scene.start(0, None);
    scene.wait_for(1, "protected");
    clients.hear(50);
    nothing_is_lost(&scene, &clients);

    // The primary's daemon lives, and its guest does not.
    kill(guest_of(&scene, 1), Signal::SIGKILL).unwrap();
    scene.wait_until(0, "primary", |vm| vm.state != "armed");
    clients.hear(20);
    scene.wait_for(0, "protected");
    nothing_is_lost(&scene, &clients);

    // Neither does the standby's.
    let before = scene.wait_until(0, "there", |_| true);
    let said = scene.log(0);
    kill(guest_of(&scene, 1), Signal::SIGKILL).unwrap();
    scene.wait_for_log_after(0, &said, "copying to a standby");
    clients.hear(20);
    let after = scene.wait_until(0, "protected again", |vm| {
        vm.state == "protected" && vm.checkpoint > before.checkpoint
    });
    assert_eq!(after.term, before.term, "{}", scene.logs());
    clients.hear(20);
    nothing_is_lost(&scene, &clients);
    clients.stop();
    let lost = ["lo", "br0", "north0", "south0"].map(lost_packets);
    eprintln!("packets lost: {lost:?}");
    assert!(lost.iter().sum::<u64>() > 0 && lost[0] > 0, "{lost:?}");
}

/// A standby whose disk has become full takes over nevertheless.
#[test]
fn a_full_disk_keeps_nobody_from_taking_over() {
    if !is_possible() {
        return;
    }
    let mut scene = Scene::new("full-disk", GUEST);
    scene.start(0, None);
    // A disk of its own, which ends with the daemon.
    let directory = scene.state_directory(1);
    fs::create_dir_all(&directory).unwrap();
    let mount = "mount -t tmpfs -o size=64k none \"$0\" && exec \"$@\"";
    let directory = directory.to_str().unwrap();
    scene.start_in(
        1,
        &["unshare", "--mount", "sh", "-c", mount, directory],
        &[],
    );
    scene.wait_for(0, "protected");
    let root = format!("/proc/{}/root", scene.daemon(1));
    let mut file = File::create(format!("{root}{directory}/others")).unwrap();
    while file.write_all(&[1; 512]).is_ok() {}
    assert!(file.write_all(&[1]).is_err());
    let clients = Clients::start();
    clients.hear(20);
    scene.kill(0);
    scene.wait_for(1, "alone");
    clients.hear(20);
    nothing_is_lost(&scene, &clients);
    clients.stop();
    let record = fs::read_to_string(format!("{root}{directory}/counter.record")).unwrap();
    let term = record.strip_prefix("term ").unwrap();
    assert_eq!(term.trim_end().parse(), Ok(2_u64));
}
