//! Real guests on hosts with faults of their networks, clocks, disks and memory, and with a second
//! failure before the first is repaired: nothing that a client has seen is ever forgotten.

mod scene;

use std::fs::{self, File};
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use scene::{CHECK, Clients, Scene};

/// A guest whose hosts do not take a busy machine for a failure.
const GUEST: &str = "memory = \"96 MiB\"\naccelerator = \"tcg\"\nheartbeat = \"3 s\"\ndetection = \"10 s\"\n\
                     append = \"quiet no_timer_check\"";

/// The same with a disk.
const DISK: &str = "volumes = [\"HOST.disk\"]\nappend = \"quiet no_timer_check disk=/dev/vda\"";

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
    let Some(_turn) = scene::turn() else { return };
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
    let Some(_turn) = scene::turn() else { return };
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

/// The file system of a host's disk, on a block device of the kernel's whose contents are a file.
struct Volume {
    /// The contents of the block device.
    contents: PathBuf,
    /// Where a host mounts it.
    place: PathBuf,
}

impl Volume {
    /// Makes a file system for the image `NAME.disk`, which is empty.
    fn make(image: &Path) -> Volume {
        let (contents, place) = (
            image.with_extension("contents"),
            image.with_extension("volume"),
        );
        File::create(&contents)
            .unwrap()
            .set_len(3 * scene::DISK_BYTES)
            .unwrap();
        let done = Command::new("mke2fs")
            .args(["-q", "-t", "ext4"])
            .arg(&contents)
            .status();
        assert!(done.unwrap().success());
        fs::create_dir_all(&place).unwrap();
        Volume { contents, place }
    }

    /// Starts a host that has it mounted, alone of all processes.
    fn start(&self, scene: &mut Scene, host: usize) {
        const MOUNT: &str = "umask 077 && mount -o loop \"$0\" \"$1\" && truncate -s \"$2\" \"$1/disk\" && shift 2 && exec \"$@\"";
        let bytes = scene::DISK_BYTES.to_string();
        let (contents, place) = (
            self.contents.to_str().unwrap(),
            self.place.to_str().unwrap(),
        );
        let wrapper = [
            "unshare", "--mount", "sh", "-c", MOUNT, contents, place, &bytes,
        ];
        scene.start_in(host, &wrapper, &[]);
    }

    /// Has the disk hang: who writes to the file system waits, and not even a kill ends that.
    fn hang(&self, scene: &Scene, host: usize) -> Hanging {
        let root = PathBuf::from(format!("/proc/{}/root", scene.daemon(host)));
        let place = File::open(root.join(self.place.strip_prefix("/").unwrap())).unwrap();
        freeze(&place, FREEZE).unwrap();
        Hanging(place)
    }

    /// Has the disk fail: the block device loses almost all of its blocks, so that the kernel refuses
    /// to write them.
    fn fail(&self) {
        let contents = File::options().write(true).open(&self.contents);
        contents.unwrap().set_len(1 << 20).unwrap();
        let place = self.contents.to_str().unwrap();
        let device = losetup(&["--associated", place, "--noheadings", "--output", "NAME"]);
        losetup(&["--set-capacity", device.trim()]);
    }
}

fn losetup(words: &[&str]) -> String {
    let done = Command::new("losetup").args(words).output().unwrap();
    let error = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "losetup {words:?}: {error}");
    String::from_utf8(done.stdout).unwrap()
}

/// A file system that hangs until this is dropped.
struct Hanging(File);

impl Drop for Hanging {
    fn drop(&mut self) {
        freeze(&self.0, THAW).unwrap();
    }
}

const FREEZE: libc::Ioctl = nix::request_code_readwrite!(b'X', 119, size_of::<libc::c_int>());
const THAW: libc::Ioctl = nix::request_code_readwrite!(b'X', 120, size_of::<libc::c_int>());

fn freeze(place: &File, order: libc::Ioctl) -> nix::Result<()> {
    // SAFETY: the kernel reads no memory for either order.
    nix::errno::Errno::result(unsafe { libc::ioctl(place.as_raw_fd(), order, 0) }).map(drop)
}

/// The disk of a host hangs in the kernel, first while the guest runs there, then while that host is
/// the standby, and at last it fails. Nothing that was seen is missing from the disks.
///
/// Whoever kills this test while the disk hangs leaves processes that nothing can end until somebody
/// thaws it.
#[test]
#[ignore = "a machine whose disk hangs is not left as it was if the test is killed"]
fn a_disk_that_hangs_and_fails() {
    let Some(_turn) = scene::turn() else { return };
    let found = Command::new("losetup").arg("--find").output();
    if !found.is_ok_and(|done| done.status.success()) {
        eprintln!("SKIPPED: there are no loop devices");
        return;
    }
    let vm = GUEST.replace("append = \"quiet no_timer_check\"", DISK);
    let mut scene = Scene::new("hanging-disk", &vm);
    scene.edit(0, "north.disk", "north.volume/disk");
    let volume = Volume::make(&scene.disk(0));
    volume.start(&mut scene, 0);
    scene.start(1, None);
    scene.wait_for(0, "protected");
    let clients = Clients::start();
    clients.hear(50);

    // The guest goes on at the other host.
    let hangs = volume.hang(&scene, 0);
    let begun = Instant::now();
    scene.wait_until(1, "primary", |vm| {
        vm.state == "alone" || vm.state == "copying"
    });
    clients.hear(20);
    let moved = begun.elapsed();
    nothing_is_lost(&scene, &clients);
    drop(hangs);
    scene.wait_for(1, "protected");
    clients.hear(20);

    // The standby can write nothing that it has acknowledged: the guest goes on without it.
    let hangs = volume.hang(&scene, 0);
    let begun = Instant::now();
    scene.wait_for(0, "hanging");
    clients.hear(20);
    let freed = begun.elapsed();
    assert_ne!(scene.state(1).unwrap().state, "protected");
    nothing_is_lost(&scene, &clients);
    drop(hangs);
    scene.wait_for(1, "protected");
    clients.hear(20);
    scene.kill(1);
    scene.wait_until(0, "primary", |vm| vm.state == "alone");
    clients.hear(20);
    nothing_is_lost(&scene, &clients);
    assert_eq!(scene::ask_at_length(CHECK).wrong, 0, "{}", scene.logs());

    // What the guest writes reaches the block device no more.
    scene.start(1, None);
    scene.wait_for(0, "protected");
    clients.hear(20);
    volume.fail();
    let begun = Instant::now();
    scene.wait_until(1, "primary", |vm| {
        vm.state == "alone" || vm.state == "copying"
    });
    clients.hear(20);
    let failed = begun.elapsed();
    nothing_is_lost(&scene, &clients);
    assert_eq!(scene::ask_at_length(CHECK).wrong, 0, "{}", scene.logs());
    let seen = clients.seen.clone();
    clients.stop();
    let round = |time: Duration| time.as_secs_f64().round();
    eprintln!(
        "until 20 more answers: {:.0} s after the primary's disk hung, {:.0} s after the standby's, {:.0} s after a \
         disk failed; {} answers, none missing from a disk",
        round(moved),
        round(freed),
        round(failed),
        seen.answers()
    );
}
