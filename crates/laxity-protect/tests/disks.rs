//! Real guests that write to disks, and real kills: nothing that a client has seen is ever missing
//! from the disk. `LAXITY_FAILOVERS` is the number of kills, `LAXITY_SEED` the seed.

mod scene;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use laxity_protect::daemon::control::Request;
use rand_core::{RngCore as _, SeedableRng as _};
use scene::stock::Stock;
use scene::{CHECK, Clients, Death, HOSTS, Scene, Seen, number};

/// A guest with a disk. Its kernel is told not to check its timer, which is late on a busy machine.
/// The hosts may not hear each other there for longer than the default of 300 ms, and a standby takes
/// over from a primary that lives: the test goes on then.
const GUEST: &str = "memory = \"96 MiB\"\naccelerator = \"tcg\"\nheartbeat = \"300 ms\"\ndetection = \"1 s\"\n\
                     volumes = [\"HOST.disk\"]\n\
                     append = \"quiet no_timer_check disk=/dev/vda\"";
/// A guest with a database of SQLite on its disk, as a [`Sqlite`] has it.
const DATABASE: &str = "memory = \"96 MiB\"\naccelerator = \"tcg\"\nheartbeat = \"300 ms\"\ndetection = \"1 s\"\n\
                        volumes = [\"HOST.disk\"]\nvolume-bus = \"BUS\"\nvolume-format = \"FORMAT\"\n\
                        append = \"quiet no_timer_check disk=/dev/DISK journal=JOURNAL\"";

/// A guest's disk with a database of SQLite.
struct Sqlite {
    /// Bus of the disk.
    bus: &'static str,
    /// Name of the disk in the guest.
    disk: &'static str,
    /// Kind of SQLite's journal.
    journal: &'static str,
    /// Format of the disk's images.
    format: &'static str,
}

const ROLLED_BACK: Sqlite = Sqlite {
    bus: "virtio-blk",
    disk: "vda",
    journal: "delete",
    format: "raw",
};
const WRITTEN_AHEAD: Sqlite = Sqlite {
    bus: "virtio-scsi",
    disk: "sda",
    journal: "wal",
    format: QCOW2,
};

/// A guest whose root is on its disk, with a database of PostgreSQL.
const SERVER: &str = "memory = \"128 MiB\"\naccelerator = \"tcg\"\nheartbeat = \"300 ms\"\ndetection = \"1 s\"\n\
                      volumes = [\"HOST.disk\"]\n\
                      append = \"quiet no_timer_check disk=/dev/vda\"";
/// Queries to PostgreSQL, and what its answers begin with: whether the database is whole, and each
/// count with its request.
const IS_WHOLE: (&str, &str) = ("SELECT highest FROM checked\n", "1: highest = \"");
const ROWS: (&str, &str) = (
    "SELECT count || ' ' || request AS row FROM counts\n",
    "1: row = \"",
);

/// Steps of an epoch at which a host with the guest dies; `None` stands for a kill from outside.
const STEPS: [Option<&str>; 6] = [
    Some("stopped"),
    Some("captured"),
    Some("sent"),
    Some("acknowledged"),
    Some("released"),
    None,
];
/// QEMU's own format of images.
const QCOW2: &str = "qcow2";
/// What such an image begins with.
const QCOW2_MAGIC: &[u8] = b"QFI\xfb";
/// The host on which a new guest is booted.
const BOOTS: usize = 0;
/// Number of protected epochs in one of which a host dies: a guest that has just been copied answers
/// little in the first of them.
const EPOCHS: u64 = 32;

#[test]
fn nothing_seen_is_missing_from_the_disk() {
    let Some(_turn) = scene::turn() else { return };
    let mut scene = Scene::new("disks", GUEST);
    let seen = fail_again_and_again(&mut scene, |_, _, _| {});
    let there = |scene: &Scene, host| highest_in_blocks(&scene.disk(host));
    let copied_bytes = fail_both(&mut scene, &seen, there);
    // What is copied to the other disk is only what differs.
    assert!(copied_bytes < scene::DISK_BYTES / 8, "{copied_bytes} bytes");
}

#[test]
fn nothing_committed_is_missing_from_a_database() {
    let Some(_turn) = scene::turn() else { return };
    kill_hosts(&mut with_sqlite(&ROLLED_BACK), rows_in_sqlite);
}

/// On a SCSI disk, whose images are of the format qcow2.
#[test]
fn nothing_committed_is_missing_from_a_database_on_a_scsi_disk() {
    let Some(_turn) = scene::turn() else { return };
    let has_programs = Command::new("qemu-img").arg("--version").output().is_ok();
    if !has_programs {
        eprintln!("SKIPPED: there is no qemu-img (Debian's qemu-utils)");
        return;
    }
    kill_hosts(&mut with_sqlite(&WRITTEN_AHEAD), rows_in_sqlite);
}

/// A scene whose guest has a database of SQLite.
fn with_sqlite(kind: &Sqlite) -> Scene {
    let Sqlite {
        bus,
        disk,
        journal,
        format,
    } = kind;
    let vm = DATABASE
        .replace("BUS", bus)
        .replace("DISK", disk)
        .replace("JOURNAL", journal)
        .replace("FORMAT", format);
    let scene = Scene::new(&format!("{bus}-{format}"), &vm);
    for host in [0, 1] {
        let disk = scene.disk(host);
        scene.edit(host, "counter.cpio", "database.cpio");
        run("mke2fs", &["-q", "-t", "ext4", "-b", "4096"], &disk);
        if *format == QCOW2 {
            let raw = disk.with_extension("raw");
            fs::rename(&disk, &raw).unwrap();
            convert(&raw, &disk, QCOW2);
            fs::set_permissions(&disk, fs::Permissions::from_mode(0o600)).unwrap();
        }
    }
    scene
}

#[test]
fn nothing_committed_is_missing_from_postgresql() {
    let Some(_turn) = scene::turn() else { return };
    let Some(mut scene) = with_postgresql() else {
        return;
    };
    kill_hosts(&mut scene, rows_in_postgresql);
}

/// A scene whose guest has a server of PostgreSQL, if that has been built.
fn with_postgresql() -> Option<Scene> {
    let image = scene::built("postgresql.disk");
    if !image.exists() {
        eprintln!("SKIPPED: the guest with PostgreSQL is not built: make protect-guest");
        return None;
    }
    let scene = Scene::new("postgresql", SERVER);
    for host in [0, 1] {
        scene.edit(host, "counter.cpio", "postgresql.cpio");
        fs::copy(&image, scene.disk(host)).unwrap();
    }
    Some(scene)
}

/// Transactions a second of a guest with a database: in a stock QEMU, which opens the same image
/// itself, under a daemon without a standby, and protected with epochs of two lengths, by turns.
/// `make results-protection` prints it.
///
/// The guest does one transaction after the other, and more clients wait than it answers in an
/// epoch: what is compared is how much it does, and not how long an answer is held.
#[test]
#[ignore = "it measures, for minutes"]
fn throughput() {
    let Some(_turn) = scene::turn() else { return };
    compare_throughput("SQLite, rollback journal, virtio-blk, raw", || {
        Some(with_sqlite(&ROLLED_BACK))
    });
    compare_throughput("SQLite, write-ahead log, virtio-scsi, qcow2", || {
        Some(with_sqlite(&WRITTEN_AHEAD))
    });
    compare_throughput("PostgreSQL, virtio-blk, raw", with_postgresql);
}

/// The ways in which a guest runs whose throughput is measured.
const WAYS: [Way; 4] = [
    Way::Stock,
    Way::Alone,
    Way::Protected { interval_ms: 25 },
    Way::Protected { interval_ms: 50 },
];

#[derive(Clone, Copy)]
enum Way {
    Stock,
    Alone,
    Protected { interval_ms: u64 },
}

impl Way {
    fn name(self) -> String {
        match self {
            Way::Stock => "stock QEMU".into(),
            Way::Alone => "without a standby".into(),
            Way::Protected { interval_ms } => format!("epochs of {interval_ms} ms"),
        }
    }

    /// Transactions a second in a scene that nothing has run in.
    fn rate_hz(self, mut scene: Scene, seconds: u64) -> f64 {
        const CLIENTS: u64 = 40;
        let rate_hz = || scene::answers_hz(CLIENTS, Duration::from_secs(seconds));
        let state = match self {
            Way::Stock => {
                let _qemu = Stock::start(&scene, 0);
                return rate_hz();
            }
            Way::Alone => {
                scene.start(0, None);
                scene.wait_until(0, "there", |_| true);
                scene.order(0, &start(true));
                "alone"
            }
            Way::Protected { interval_ms } => {
                let epochs = scene::epochs_of(interval_ms);
                for host in [0, 1] {
                    scene.edit(host, "heartbeat", &format!("{epochs}\nheartbeat"));
                    scene.start(host, None);
                }
                "protected"
            }
        };
        scene.wait_for(0, state);
        let rate_hz = rate_hz();
        let vm = scene.state(0).expect("the daemon answers");
        assert_eq!((&*vm.state, vm.term), (state, 1), "{}", scene.logs());
        rate_hz
    }
}

fn compare_throughput(what: &str, scene: impl Fn() -> Option<Scene>) {
    let (rounds, seconds) = (number("LAXITY_ROUNDS", 3), number("LAXITY_ROUND_S", 10));
    let mut rates_hz = WAYS.map(|_| Vec::new());
    for _ in 0..rounds {
        for (way, rates_hz) in WAYS.iter().zip(&mut rates_hz) {
            let Some(scene) = scene() else { return };
            rates_hz.push(way.rate_hz(scene, seconds));
        }
    }
    eprintln!("{what}");
    for (way, of_way_hz) in WAYS.iter().zip(&rates_hz) {
        let pairs = of_way_hz.iter().zip(&rates_hz[0]);
        let [least, percent, most] = spread(pairs.map(|(here, stock)| 1e2 * here / stock));
        let [_, rate_hz, _] = spread(of_way_hz.iter().copied());
        eprintln!(
            "  {:18} {rate_hz:4.0} transactions a second, {percent:3.0} % ({least:.0} to {most:.0})",
            way.name()
        );
    }
}

/// The least, the median and the largest of some numbers.
fn spread(numbers: impl Iterator<Item = f64>) -> [f64; 3] {
    let mut numbers: Vec<f64> = numbers.collect();
    numbers.sort_by(f64::total_cmp);
    [0, numbers.len() / 2, numbers.len() - 1].map(|at| numbers[at])
}

/// Kills hosts of a guest with a database, whose rows on a host's disk `rows_on` gives: what was seen
/// is in the databases of the host that died and of the one that lives, and both are whole.
fn kill_hosts(scene: &mut Scene, rows_on: fn(&Scene, usize) -> Rows) {
    let seen = fail_again_and_again(scene, |scene, death, seen| {
        let rows = rows_on(scene, death.host);
        refuse_missing(&rows, seen, death.seen);
        // The survivor's database, as it is on its disk.
        let said = scene::ask_at_length(CHECK);
        assert_eq!(said.wrong, 0, "{}", scene.logs());
    });
    fail_both(scene, &seen, |scene, host| {
        let rows = rows_on(scene, host);
        refuse_missing(&rows, &seen, seen.highest());
        highest(&rows)
    });
}

/// The request of each count in a database, which keeps the last few thousand.
type Rows = BTreeMap<u64, u64>;

fn highest(rows: &Rows) -> u64 {
    rows.last_key_value().map_or(0, |(&count, _)| count)
}

/// Each count that was seen, up to `through`, is in a database with the request that it answered,
/// unless the database has deleted it since.
fn refuse_missing(rows: &Rows, seen: &Seen, through: u64) {
    let there = highest(rows);
    assert!(
        there >= through,
        "{there} is in the database, and {through} was seen"
    );
    let oldest = rows.first_key_value().map_or(1, |(&count, _)| count);
    for (count, request) in seen.requests() {
        if (oldest..=through).contains(&count) {
            assert_eq!(rows.get(&count), Some(&request), "the request of {count}");
        }
    }
}

/// Boots a guest, and kills one of its hosts after the other while clients ask. `look` sees each that
/// died, when the other one has answered. Returns what was seen.
fn fail_again_and_again(
    scene: &mut Scene,
    look: impl Fn(&Scene, &Death, &Seen),
) -> std::sync::Arc<Seen> {
    let (failovers, seed) = (number("LAXITY_FAILOVERS", 5), number("LAXITY_SEED", 1));
    let mut random = rand_pcg::Pcg64Mcg::seed_from_u64(seed);
    let mut fates: [Option<String>; 2] = [None, None];
    let fate = |random: &mut rand_pcg::Pcg64Mcg| {
        let step = STEPS[random.next_u32() as usize % STEPS.len()];
        step.map(|step| format!("{step}:{}", 1 + random.next_u64() % EPOCHS))
    };
    for host in [0, 1] {
        fates[host] = fate(&mut random);
        scene.start(host, fates[host].as_deref());
    }
    let begun = Instant::now();
    let clients = Clients::start();
    let mut died = BTreeMap::new();
    for failover in 0..failovers {
        let said = || format!("failover {failover}, seed {seed}");
        let death = scene::next_death(scene, &clients.seen, &fates, &mut random);
        let (dead, survivor) = (death.host, 1 - death.host);
        let how = fates[dead].as_ref();
        let how = how.map_or("killed", |fate| fate.split(':').next().unwrap());
        *died.entry(how.to_string()).or_insert(0) += 1;
        let (answers, waits) = (clients.seen.answers(), Instant::now());
        while clients.seen.answers() < answers + 20 {
            let waited = waits.elapsed() < scene::PATIENCE;
            assert!(waited, "nobody answers: {}\n{}", said(), scene.logs());
            std::thread::sleep(Duration::from_millis(1));
        }
        let (forgotten, wrong) = (clients.seen.forgotten(), clients.seen.wrong());
        assert_eq!((forgotten, wrong), (0, 0), "{}\n{}", said(), scene.logs());
        scene.wait_until(survivor, "primary", |vm| vm.state != "armed");
        look(scene, &death, &clients.seen);
        fates[dead] = fate(&mut random);
        scene.start(dead, fates[dead].as_deref());
    }
    let seen = clients.seen.clone();
    clients.stop();
    eprintln!(
        "{failovers} failovers in {:.0} s, seed {seed}, how: {died:?}; {} answers, none missing from the disk",
        begun.elapsed().as_secs_f64(),
        seen.answers()
    );
    seen
}

/// Both hosts fail, and the guest is booted where it ran: all that was seen is on its disk. Returns
/// the number of bytes that were copied to the other disk until the guest was protected again.
fn fail_both(scene: &mut Scene, seen: &Seen, highest_on: impl Fn(&Scene, usize) -> u64) -> u64 {
    // The disk outlives both hosts: the guest wrote each count before it answered.
    // A host that was overtaken may not know yet, and its term is lower.
    let term = |&host: &usize| {
        let vm = scene.state(host).filter(|vm| vm.interval_ns.is_some());
        vm.map(|vm| vm.term)
    };
    let holder = [0, 1].into_iter().max_by_key(term).unwrap();
    assert!(term(&holder).is_some(), "none has the guest");
    // Both hosts fail. The guest is not booted from either disk unasked, and has forgotten nothing
    // when it is booted where it was.
    for host in [0, 1] {
        if !scene.has_ended(host) {
            scene.kill(host);
        }
    }
    let (there, highest) = (highest_on(scene, holder), seen.highest());
    assert!(
        there >= highest,
        "{there} is on the disk, and {highest} was seen"
    );
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
        scene.wait_for_log_after(BOOTS, &said, "order `start` on the host where it ran last");
    }
    for host in [0, 1] {
        let vm = scene.wait_until(host, "there", |_| true);
        assert_eq!(vm.state, "empty");
    }
    scene.order(holder, &start(false));
    let said = scene::ask_once(7);
    assert!(said.count > highest, "{said:?} after {highest}");
    assert_eq!(said.wrong, 0);
    assert_eq!(scene::ask_at_length(CHECK).wrong, 0);
    scene.wait_for(holder, "protected");
    let vm = scene.wait_until(holder, "there", |_| true);
    assert_eq!(vm.disk_left_bytes, 0);
    vm.disk_bytes
}

/// The order to start the guest, without the other host or not.
fn start(alone: bool) -> Request {
    let vm = "counter".into();
    Request::Start { vm, alone }
}

/// The highest count in a disk's blocks.
fn highest_in_blocks(disk: &Path) -> u64 {
    let disk = fs::read(disk).unwrap();
    let counts = disk
        .chunks(4096)
        .map(|block| u64::from_le_bytes(block[..8].try_into().unwrap()));
    counts.max().unwrap_or(0)
}

/// A copy of the disk that a host left, as after a power failure: the file system's journal has been
/// played back.
fn recovered(scene: &Scene, host: usize) -> PathBuf {
    let disk = scene.disk(host);
    let copy = disk.with_extension("copy");
    if fs::read(&disk).unwrap().starts_with(QCOW2_MAGIC) {
        // Clusters that nothing refers to are what the format allows a failure to leave.
        run("qemu-img", &["check", "-q"], &disk);
        convert(&disk, &copy, "raw");
    } else {
        fs::copy(&disk, &copy).unwrap();
    }
    // It repairs what a journal leaves to be done, and nothing else.
    run("e2fsck", &["-f", "-p"], &copy);
    copy
}

/// The rows in the database of SQLite that a host left on its disk, none where the guest had made no
/// database. SQLite plays its journal back.
fn rows_in_sqlite(scene: &Scene, host: usize) -> Rows {
    let copy = recovered(scene, host);
    let at = |name: &str| copy.with_extension(name);
    let names = [
        ("counts.db", "db"),
        ("counts.db-journal", "db-journal"),
        ("counts.db-wal", "db-wal"),
    ];
    for (name, to) in names {
        let _ = fs::remove_file(at(to));
        let dump = format!("dump /{name} {}", at(to).display());
        run("debugfs", &["-R", &dump], &copy);
    }
    if !at("db").exists() {
        return Rows::new();
    }
    let said = run(
        &scene::built("check-database").to_string_lossy(),
        &[],
        &at("db"),
    );
    said.lines().map(row).collect()
}

/// A count and its request.
fn row(words: &str) -> (u64, u64) {
    let (count, request) = words.split_once(' ').unwrap();
    (count.parse().unwrap(), request.parse().unwrap())
}

/// The rows in the database of PostgreSQL that a host left on its disk. The guest's own server
/// recovers it and looks at tables and indexes, then every page has to have its checksum.
fn rows_in_postgresql(scene: &Scene, host: usize) -> Rows {
    let copy = recovered(scene, host);
    let root = copy.with_extension("root");
    let _ = fs::remove_dir_all(&root);
    fs::create_dir(&root).unwrap();
    run(
        "debugfs",
        &["-R", &format!("rdump / {}", root.display())],
        &copy,
    );
    let data = fs::metadata(root.join("data")).unwrap();
    let run_there = |program: &str, words: &[&str], input: &str| {
        let mut command = Command::new("chroot");
        command.arg(format!("--userspec={}:{}", data.uid(), data.gid()));
        command.arg(&root);
        command.arg(format!("/usr/lib/postgresql/15/bin/{program}"));
        command.args(words);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut asks = child.stdin.take().unwrap();
        asks.write_all(input.as_bytes()).unwrap();
        drop(asks);
        let done = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned();
        assert!(done.status.success(), "{program}: {}\n{said}", done.status);
        said
    };
    let server = ["--single", "-D", "/data", "postgres"];
    let said = run_there("postgres", &server, &format!("{}{}", IS_WHOLE.0, ROWS.0));
    run_there("pg_checksums", &["--check", "-D", "/data"], "");
    assert!(
        said.contains(IS_WHOLE.1),
        "{} is broken:\n{said}",
        HOSTS[host]
    );
    let answers = said
        .lines()
        .filter_map(|line| line.trim().strip_prefix(ROWS.1));
    answers
        .map(|line| row(line.split('"').next().unwrap()))
        .collect()
}

/// Makes an image of another format.
fn convert(from: &Path, to: &Path, format: &str) {
    let words = ["convert", "-O", format, &from.to_string_lossy()];
    run("qemu-img", &words, to);
}

/// Runs a program on a file, which must be content. Returns what it says.
fn run(program: &str, words: &[&str], file: &Path) -> String {
    let done = Command::new(program)
        .args(words)
        .arg(file)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    let also = String::from_utf8_lossy(&done.stderr);
    // e2fsck ends with 1 where it repaired something, and qemu-img with 3 where clusters are lost.
    let is_content = done.status.success()
        || matches!(
            (program, done.status.code()),
            ("e2fsck", Some(1)) | ("qemu-img", Some(3))
        );
    assert!(
        is_content,
        "{program} {words:?}: {}\n{said}\n{also}",
        done.status
    );
    said
}
