//! Real guests and real kills: nothing that a client has seen is ever forgotten. `LAXITY_FAILOVERS`
//! is the number of kills, `LAXITY_SEED` the seed (`make failovers COUNT=1000 SEED=7`).

mod etcd;
mod scene;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::{Duration, Instant};

use laxity_protect::daemon::control::Request;
use nix::sys::signal::Signal;
use rand_core::{RngCore as _, SeedableRng as _};
use scene::{Clients, Flood, Flooded, HOSTS, POWER_OFF, Scene, Strangers, ask_once, number};

/// The guest. Debian's kernel alone does not fit into 80 MiB. On a busy machine an emulated timer is
/// late, for which the kernel would not boot unless it is told not to check.
const GUEST: &str = "memory = \"96 MiB\"\naccelerator = \"tcg\"\nappend = \"quiet no_timer_check\"";
/// The setting of the guest where a test needs to know which host is the primary: on a busy machine the hosts
/// may not hear each other for seconds, and with the defaults a standby takes over.
const STEADY: &str = "heartbeat = \"3 s\"\ndetection = \"10 s\"";

/// Steps of an epoch at which a primary, or a standby, dies.
const PRIMARY_STEPS: [&str; 6] = [
    "stopped",
    "captured",
    "begun",
    "sent",
    "acknowledged",
    "released",
];
const STANDBY_STEPS: [&str; 2] = ["staged", "committed"];
/// Number of protected epochs in one of which a primary dies.
const EPOCHS: u64 = 16;

#[test]
fn nothing_seen_is_forgotten() {
    let Some(_turn) = scene::turn() else { return };
    let (failovers, seed) = (number("LAXITY_FAILOVERS", 50), number("LAXITY_SEED", 1));
    let mut random = rand_pcg::Pcg64Mcg::seed_from_u64(seed);
    let mut scene = Scene::new("failovers", GUEST);
    // A process that is to die at a step is told so at its start.
    let mut fates: [Option<String>; 2] = [None, None];
    let fate = |random: &mut rand_pcg::Pcg64Mcg| {
        let step = PRIMARY_STEPS[random.next_u32() as usize % PRIMARY_STEPS.len()];
        let epoch = 1 + random.next_u64() % EPOCHS;
        (!random.next_u32().is_multiple_of(3)).then(|| format!("{step}:{epoch}"))
    };
    for host in [0, 1] {
        fates[host] = fate(&mut random);
        scene.start(host, fates[host].as_deref());
    }
    let begun = Instant::now();
    let clients = Clients::start();
    let mut died = std::collections::BTreeMap::new();
    let mut outages = Vec::new();
    for failover in 0..failovers {
        let said = || format!("failover {failover}, seed {seed}");
        let dead = scene::next_death(&mut scene, &clients.seen, &fates, &mut random).host;
        let survivor = 1 - dead;
        let (death, answers) = (scene.ended_at(dead), clients.seen.answers());
        let how = fates[dead]
            .as_ref()
            .map_or("killed", |fate| fate.split(':').next().unwrap());
        *died.entry(how.to_string()).or_insert(0) += 1;
        while clients.seen.answers() == answers {
            assert!(
                death.elapsed() < Duration::from_secs(600),
                "nobody answers: {}\n{}",
                said(),
                scene.logs()
            );
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(clients.seen.forgotten(), 0, "{}\n{}", said(), scene.logs());
        assert_eq!(
            clients.seen.wrong(),
            0,
            "a half checkpoint: {}\n{}",
            said(),
            scene.logs()
        );
        // The answer may have been on its way when the host died.
        scene.wait_until(survivor, "primary", |vm| vm.state != "armed");
        clients.hear(1);
        // A guest that was killed while it booted had answered nobody.
        if answers > 0 {
            outages.push(clients.seen.silence_after(death, Instant::now()));
        }
        fates[dead] = fate(&mut random);
        scene.start(dead, fates[dead].as_deref());
    }
    let seen = clients.seen.clone();
    let (_, by_tcp) = clients.stop();
    assert!(by_tcp > failovers, "{by_tcp} answers in the TCP connection");
    outages.sort();
    eprintln!(
        "{failovers} failovers in {:.0} s, seed {seed}, how: {died:?}; {} answers, {by_tcp} of them in one TCP \
         connection, none forgotten; from a death to the first answer of the survivor, {} times: median {:?}, p99 {:?}, \
         longest {:?}",
        begun.elapsed().as_secs_f64(),
        seen.answers(),
        outages.len(),
        outages[outages.len() / 2],
        outages[outages.len() * 99 / 100],
        outages[outages.len() - 1],
    );
}

/// Checks that a guest's QEMU runs as a user of its own without privileges, behind a seccomp
/// filter, and that its memory has no name and no other reader.
fn confined(process: u32) {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let field = |name: &str| {
        let value = status.lines().find_map(|line| line.strip_prefix(name));
        let value = value.unwrap_or_else(|| panic!("no {name} in {status}"));
        value.split_whitespace().collect::<Vec<_>>()
    };
    for numbers in [field("Uid:"), field("Gid:")] {
        let is_own = |number: &&str| number.parse::<u32>().unwrap() >= 0x7000_0000;
        assert!(numbers.iter().all(is_own), "{status}");
    }
    for none in ["CapEff:", "CapPrm:", "CapAmb:"] {
        assert_eq!(field(none), ["0000000000000000"]);
    }
    assert_eq!(field("NoNewPrivs:"), ["1"]);
    assert_eq!(field("Seccomp:"), ["2"]);
    let files = fs::read_dir(format!("/proc/{process}/fd")).unwrap();
    let mut memories = 0;
    for file in files.map(|file| file.unwrap().path()) {
        let target = fs::read_link(&file).unwrap_or_default();
        let target = target.to_string_lossy();
        assert!(!target.starts_with("/dev/shm"), "{target}");
        if target.starts_with("/memfd:laxity-guest-memory") {
            memories += 1;
            assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
        }
    }
    assert!(memories > 0, "its memory is not where it should be");
}

/// Whether a thread of this process may have a real-time priority, as not in every container.
fn may_be_prompt() -> bool {
    let lowest = libc::sched_param { sched_priority: 1 };
    // SAFETY: the call reads the structure alone, and is about a thread that ends.
    let allowed = || unsafe { libc::sched_setscheduler(0, libc::SCHED_RR, &lowest) } == 0;
    std::thread::scope(|scope| scope.spawn(allowed).join().unwrap())
}

/// The names of the threads of a process that have a real-time priority.
fn prompt(process: u32) -> BTreeSet<String> {
    /// Number of the scheduling policy among the fields behind the name.
    const POLICY: usize = 38;
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let stats = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("stat")).ok());
    let names = stats.filter_map(|stat| {
        let (head, fields) = stat.rsplit_once(')')?;
        let policy: i32 = fields.split_whitespace().nth(POLICY)?.parse().ok()?;
        (policy == libc::SCHED_RR).then(|| head.split_once('(').unwrap().1.to_string())
    });
    names.collect()
}

#[test]
fn the_life_of_a_guest() {
    let Some(_turn) = scene::turn() else { return };
    let mut scene = Scene::protected("life", &format!("{GUEST}\n{STEADY}"));
    let clients = Clients::start();

    for host in [0, 1] {
        for process in scene.children(host) {
            confined(process);
            assert_eq!(prompt(process), BTreeSet::new());
        }
        if may_be_prompt() {
            let by_which_hosts_hear = ["driver", "receive", "send"].map(String::from);
            assert_eq!(prompt(scene.daemon(host)), by_which_hosts_hear.into());
        }
    }

    let vm = || "counter".to_string();
    scene.order(0, &Request::Switchover { vm: vm() });
    scene.wait_for(1, "protected");
    scene.order_refused(0, &Request::Switchover { vm: vm() });

    // The standby is removed in order, and no host waits for it.
    scene.order(1, &Request::Unprotect { vm: vm() });
    scene.wait_for(1, "alone");
    scene.wait_for(0, "empty");
    scene.kill(0);
    clients.hear(20);
    scene.start(0, None);
    scene.order(1, &Request::Protect { vm: vm() });
    scene.wait_for(1, "protected");

    // Strangers on the other host's port do not prevent a new protection.
    let _strangers = Strangers::at(1);
    // The standby is lost: the primary is silent until the standby says that it has nothing.
    for step in STANDBY_STEPS {
        scene.kill(0);
        scene.wait_for(1, "waiting");
        let silent = Instant::now();
        std::thread::sleep(Duration::from_millis(200));
        let heard = clients.seen.answers_to_later(silent);
        assert_eq!(heard, 0, "it was heard without a standby");
        scene.start(0, Some(&format!("{step}:20")));
        scene.wait_for_end(0);
        scene.wait_for(1, "waiting");
        scene.start(0, None);
        scene.wait_for(1, "protected");
    }

    // The primary is stopped, overtaken, and continued: it does not know of the takeover, and is
    // not heard.
    scene.signal(1, Signal::SIGSTOP);
    scene.wait_until(0, "active", |vm| vm.state == "alone");
    clients.hear(20);
    scene.signal(1, Signal::SIGCONT);
    scene.wait_for(0, "protected");
    clients.hear(50);
    assert_eq!(
        (clients.seen.forgotten(), clients.seen.wrong()),
        (0, 0),
        "{}",
        scene.logs()
    );
    assert_eq!(scene.wait_until(0, "there", |_| true).pages_missed, 0);
    // What a process with all capabilities may see of another user's, the daemon may see of its guest.
    let logs = scene.logs();
    assert!(
        !logs.contains("cannot be inspected") || !may_look_at_others(),
        "{logs}"
    );
    clients.stop();

    // The guest ends by itself, and no host takes over.
    let socket = std::net::UdpSocket::bind("192.0.2.1:0").unwrap();
    socket
        .send_to(&POWER_OFF.to_le_bytes(), scene::GUEST)
        .unwrap();
    scene.wait_for(0, "off");
    scene.wait_for(1, "empty");
}

/// Connections a second of a flood.
const FLOOD_HZ: u64 = 1_000;
/// The host that the others connect to: a flood there is the worst.
const LISTENS: usize = 1;

/// A flood of strangers keeps no host out, and leaves nothing behind.
#[test]
fn a_flood_keeps_no_host_out() {
    let Some(_turn) = scene::turn() else { return };
    let mut scene = Scene::protected("flooded", &format!("{GUEST}\n{STEADY}"));
    scene.kill(0);
    scene.wait_for(LISTENS, "alone");
    scene.start(0, None);
    scene.wait_for(LISTENS, "protected");
    let before = scene.threads_and_files(LISTENS);
    let clients = Clients::start();
    let flood = Flood::at(LISTENS, FLOOD_HZ);
    scene.kill(0);
    scene.wait_for(LISTENS, "waiting");
    scene.start(0, None);
    scene.wait_for(LISTENS, "protected");
    clients.hear(20);
    let Flooded { connections, .. } = flood.stop();
    assert!(connections > 0, "there was no flood");
    let lost = (clients.seen.forgotten(), clients.seen.wrong());
    assert_eq!(lost, (0, 0), "{}", scene.logs());
    clients.stop();
    let deadline = Instant::now() + Duration::from_secs(600);
    loop {
        let after = scene.threads_and_files(LISTENS);
        if after
            .iter()
            .zip(before)
            .all(|(&after, before)| after <= before)
        {
            break;
        }
        assert!(
            Instant::now() < deadline,
            "{connections} strangers have left threads and files: {after:?}, before {before:?}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The effect of a flood: rounds with and without one, in turn. Run by `make flood`.
#[test]
#[ignore = "it measures, and takes minutes"]
fn flood() {
    /// What is asked: ratio of the times to acknowledgements, and additional time until a guest is
    /// protected again.
    const RATIO_MAX: f64 = 1.1;
    const LATER_MAX_S: f64 = 1.0;
    /// Part of the flood that must have reached the host for the measurements to say anything.
    const RATE_MIN: f64 = 0.9;
    let Some(_turn) = scene::turn() else { return };
    let (rounds, seconds) = (number("LAXITY_ROUNDS", 5), number("LAXITY_ROUND_S", 8));
    // Epochs of a constant length, each with changed pages, so that there are many alike.
    let vm = format!(
        "{}\ninterval = {{ minimum = \"25 ms\", maximum = \"25 ms\", pauses = 99 }}",
        GUEST.replace("quiet", "quiet dirty=64"),
    );
    let mut scene = Scene::new("flood", &vm);
    let mut primary = 0;
    scene.start(primary, None);
    // The rounds of each role of the flooded host, without and with a flood.
    let mut measured: [[Vec<Round>; 2]; 2] = Default::default();
    let (mut connections, mut refused, mut flooded_s) = (0, 0, 0.0);
    for round in 0..4 * rounds {
        let is_flooded = round / 2 % 2 == 1;
        let standby = 1 - primary;
        let flood = is_flooded.then(|| Flood::at(LISTENS, FLOOD_HZ));
        let begun = Instant::now();
        scene.start(standby, None);
        scene.wait_for(primary, "protected");
        let protected_s = begun.elapsed().as_secs_f64();
        let clients = Clients::start();
        std::thread::sleep(Duration::from_secs(seconds));
        // The primary has been one since this round's beginning, and so have its distributions.
        let vm = scene.wait_for(primary, "protected");
        if let Some(flood) = flood {
            let flooded = flood.stop();
            connections += flooded.connections;
            refused += flooded.refused;
            flooded_s += flooded.time.as_secs_f64();
        }
        clients.stop();
        let ms = |ns: u64| ns as f64 / 1e6;
        measured[usize::from(primary == LISTENS)][usize::from(is_flooded)].push(Round {
            protected_s,
            transfer_p50_ms: ms(vm.transfer.p50_ns),
            transfer_p99_ms: ms(vm.transfer.p99_ns),
            delay_p50_ms: ms(vm.delay.p50_ns),
        });
        scene.kill(primary);
        scene.wait_for(standby, "alone");
        primary = standby;
    }
    println!(
        "{connections} connections of strangers in {flooded_s:.0} s ({:.0} a second) and {refused} while no host listened; \
         {rounds} rounds of {seconds} s of each kind, medians",
        connections as f64 / flooded_s
    );
    println!("{:36}{:>9}{:>9}", "", "without", "flooded");
    let mut is_held = true;
    for (role, [without, with]) in ["standby", "primary"].iter().zip(&measured) {
        println!("the {role} is flooded");
        let mut row = |what: &str, of: fn(&Round) -> f64, asked: Option<Asked>| {
            let [without, with] = [without, with].map(|rounds| median(rounds.iter().map(of)));
            let verdict = match asked {
                None => String::new(),
                Some(Asked::Ratio(most)) => {
                    is_held &= with <= most * without;
                    format!("times {:.2}, asked {most}", with / without)
                }
                Some(Asked::Later(most)) => {
                    is_held &= with <= without + most;
                    format!("{:+.2}, asked {most}", with - without)
                }
            };
            println!("  {what:34}{without:9.2}{with:9.2}  {verdict}");
        };
        let ratio = || Some(Asked::Ratio(RATIO_MAX));
        row(
            "acknowledgement, median, ms",
            |round| round.transfer_p50_ms,
            ratio(),
        );
        row(
            "acknowledgement, p99, ms",
            |round| round.transfer_p99_ms,
            None,
        );
        row(
            "delay of output, median, ms",
            |round| round.delay_p50_ms,
            ratio(),
        );
        let later = Some(Asked::Later(LATER_MAX_S));
        row(
            "from a start to protected, s",
            |round| round.protected_s,
            later,
        );
    }
    assert!(
        connections as f64 >= RATE_MIN * FLOOD_HZ as f64 * flooded_s,
        "this machine is too busy for a flood of {FLOOD_HZ} connections a second"
    );
    assert!(is_held, "the flood did more than is allowed");
}

/// Measurements of a round.
#[derive(Debug)]
struct Round {
    protected_s: f64,
    transfer_p50_ms: f64,
    transfer_p99_ms: f64,
    delay_p50_ms: f64,
}

/// The most that a flood may do.
enum Asked {
    Ratio(f64),
    Later(f64),
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The witness decides which host goes on alone, and no host is heard while it cannot be asked.
#[test]
fn a_witness_decides() {
    let Some(_turn) = scene::turn() else { return };
    if !etcd::is_there() {
        eprintln!("SKIPPED: there is no etcd (Debian's etcd-server)");
        return;
    }
    let mut scene = Scene::new(
        "witness",
        &format!("{GUEST}\n{STEADY}\nstandby-lost = \"continue\""),
    );
    let endpoint = "http://127.0.0.1:2379";
    let mut member = Some(etcd::Member::start(endpoint, None));
    for host in 0..HOSTS.len() {
        let keys = "keys = \"keys\"";
        let witness = format!("witness = {{ endpoints = [{endpoint:?}] }}\n{keys}");
        scene.edit(host, keys, &witness);
        scene.start(host, None);
    }
    scene.wait_for(0, "protected");
    let clients = Clients::start();
    clients.hear(10);

    // The standby is gone, and the witness will not let it take over any more.
    scene.kill(1);
    scene.wait_for(0, "alone");
    clients.hear(10);
    scene.start(1, None);
    scene.wait_for(0, "protected");
    clients.hear(10);

    // The witness is gone, too: neither host may go on until the witness answers again.
    let stopped = member.take().unwrap().stop();
    scene.kill(0);
    scene.wait_for(1, "claiming");
    let silent = Instant::now();
    std::thread::sleep(Duration::from_secs(1));
    let heard = clients.seen.answers_to_later(silent);
    assert_eq!(heard, 0, "nobody may be heard");
    member = Some(stopped.start());
    scene.wait_for(1, "alone");
    clients.hear(10);
    scene.start(0, None);
    scene.wait_for(1, "protected");
    clients.hear(10);

    // The standby and the witness fail at once: the primary may not go on until the witness
    // answers, whatever becomes of the standby.
    let stopped = member.take().unwrap().stop();
    scene.kill(0);
    scene.wait_for(1, "waiting");
    let silent = Instant::now();
    std::thread::sleep(Duration::from_secs(1));
    let heard = clients.seen.answers_to_later(silent);
    assert_eq!(heard, 0, "nobody may be heard");
    let _member = stopped.start();
    scene.wait_for(1, "alone");
    clients.hear(10);
    let lost = (clients.seen.forgotten(), clients.seen.wrong());
    assert_eq!(lost, (0, 0), "{}", scene.logs());
    clients.stop();
}

/// A standby that answers heartbeats and nothing else is given up: the guest is heard again,
/// unprotected, until the standby works.
#[test]
fn a_standby_that_acknowledges_nothing_is_given_up() {
    let Some(_turn) = scene::turn() else { return };
    let settings = "standby-lost = \"continue\"";
    // Ten times this is how long an acknowledgement may take.
    let settings = format!("heartbeat = \"1 s\"\ndetection = \"3 s\"\n{settings}");
    let mut scene = Scene::new("stalled", &format!("{GUEST}\n{settings}"));
    scene.start(0, None);
    scene.start(1, None);
    let clients = Clients::start();
    // Silence of many seconds ends a connection that is being made: the guest cannot ask for its
    // peer's address, forgets the request, and refuses the peer that answers it later.
    clients.wait_for_connection();
    scene.kill(1);
    scene.start_with(1, &["--stall-at", "staged:40"]);
    scene.wait_for_log(0, "acknowledges nothing");
    scene.wait_for(0, "copying");
    clients.hear(20);
    let state = scene.wait_until(1, "there", |_| true).state;
    assert!(
        ["empty", "hanging"].contains(&&*state),
        "{state}: it has nothing to take over with"
    );
    is_protected_by_a_new_standby(&mut scene, clients);
}

/// The standby is replaced by one that works, and nothing that was seen is forgotten.
fn is_protected_by_a_new_standby(scene: &mut Scene, clients: Clients) {
    scene.kill(1);
    scene.start(1, None);
    scene.wait_for(0, "protected");
    assert_eq!(
        (clients.seen.forgotten(), clients.seen.wrong()),
        (0, 0),
        "{}",
        scene.logs()
    );
    clients.stop();
}

/// A standby that cannot put a checkpoint by, as with a disk that hangs, says so, and the guest is
/// heard again whatever the operator prefers when a standby is lost.
#[test]
fn a_standby_that_hangs_gives_itself_up() {
    let Some(_turn) = scene::turn() else { return };
    let settings = "standby-lost = \"stop\"";
    let mut scene = Scene::new("hangs", &format!("{GUEST}\n{STEADY}\n{settings}"));
    scene.start(0, None);
    scene.start(1, None);
    let clients = Clients::start();
    clients.wait_for_connection();
    scene.kill(1);
    scene.start_with(1, &["--stall-at", "staged:40"]);
    scene.wait_for(1, "hanging");
    scene.wait_until(0, "about to copy again", |vm| {
        vm.state == "alone" && vm.stalled
    });
    clients.hear(20);
    is_protected_by_a_new_standby(&mut scene, clients);
}

/// Whether this process may see what another user's process writes, which some machines keep from everybody.
fn may_look_at_others() -> bool {
    const OTHER_USER: u32 = 12_345;
    let mut other = Command::new("sleep")
        .arg("60")
        .uid(OTHER_USER)
        .spawn()
        .unwrap();
    let may = fs::File::open(format!("/proc/{}/pagemap", other.id())).is_ok();
    other.kill().unwrap();
    other.wait().unwrap();
    may
}

/// Output after the last checkpoint may be lost in No-Net mode, and no more than that.
#[test]
fn without_waiting_little_is_lost() {
    let Some(_turn) = scene::turn() else { return };
    let mut scene = Scene::protected(
        "no-net",
        &format!("{GUEST}\n{STEADY}\nmode = \"no-net\"\nlease = \"850 ms\""),
    );
    for primary in [0, 1] {
        let standby = 1 - primary;
        let before = ask_once(1);
        // Everything up to this point is part of a checkpoint.
        let number = scene.wait_until(primary, "there", |_| true).checkpoint;
        scene.wait_until(primary, "further", |vm| vm.checkpoint > number + 1);
        scene.kill(primary);
        let after = ask_once(2);
        assert!(
            after.count > before.count,
            "{before:?} {after:?}\n{}",
            scene.logs()
        );
        assert_eq!(after.wrong, 0, "a half checkpoint");
        scene.start(primary, None);
        scene.wait_for(standby, "protected");
    }
}

#[test]
fn what_cannot_be_protected_is_refused() {
    let Some(_turn) = scene::turn() else { return };
    let mut scene = Scene::new("refused", "memory = \"96 MiB\"\nqemu = \"/bin/false\"");
    scene.start(0, None);
    scene.wait_for_end(0);
    assert!(scene.logs().contains("QEMU"), "{}", scene.logs());

    for key in ["volumes", "disks"] {
        let vm = format!("{GUEST}\n{key} = [\"HOST.disk\"]");
        let mut scene = Scene::new("formats", &vm);
        let image = fs::OpenOptions::new()
            .write(true)
            .open(scene.disk(0))
            .unwrap();
        image.write_all_at(b"QFI\xfb", 0).unwrap();
        scene.start(0, None);
        scene.wait_for_end(0);
        let logs = scene.logs();
        for words in ["of the format qcow2", "qemu-img convert -O raw"] {
            assert!(logs.contains(words), "{logs}");
        }
        if key == "volumes" {
            // A guest that has run may have written that itself.
            fs::write(scene.record(0), "term 1\n").unwrap();
            scene.start(0, None);
            scene.wait_until(0, "there", |_| true);
        }
    }

    let mut scene = Scene::new("unlike", &format!("{GUEST}\n{STEADY}"));
    scene.edit(1, "96 MiB", "128 MiB");
    for host in 0..HOSTS.len() {
        scene.start(host, None);
    }
    scene.wait_for_log(0, "could not go on from the state of the guest here");
}

/// Protection for `LAXITY_SOAK_S` seconds with clients all the time: no takeover, no loss, and no
/// growth. Run by `make protect-soak SECONDS=3600`.
#[test]
#[ignore = "it takes as long as it is told to"]
fn soak() {
    let Some(_turn) = scene::turn() else { return };
    let seconds = number("LAXITY_SOAK_S", 60);
    let memory = number("LAXITY_MEMORY_MIB", 128);
    let interval = number("LAXITY_INTERVAL_MS", 25);
    let vm = format!(
        "memory = \"{memory} MiB\"\naccelerator = \"tcg\"\nappend = \"quiet no_timer_check dirty=64\"\n{}",
        scene::epochs_of(interval)
    );
    let scene = Scene::protected("soak", &vm);
    let clients = Clients::start();
    let begun = Instant::now();
    let mut memory_kib = [(0, 0); 2];
    for second in 0..seconds {
        std::thread::sleep(Duration::from_secs(1));
        let vm = scene.state(0).expect("the daemon answers");
        assert_eq!(
            (&*vm.state, vm.term, vm.pages_missed),
            ("protected", 1, 0),
            "{}",
            scene.logs()
        );
        for (host, (first, last)) in memory_kib.iter_mut().enumerate() {
            *last = scene.memory_kib(host);
            if second < 10 {
                *first = *last;
            }
        }
    }
    let vm = scene.state(0).unwrap();
    let elapsed_s = begun.elapsed().as_secs_f64();
    let (seen, ms) = (clients.seen.clone(), |ns: u64| ns as f64 / 1e6);
    let (mut by_udp, by_tcp) = clients.stop();
    by_udp.sort();
    eprintln!(
        "{elapsed_s:.0} s, {memory} MiB: {} checkpoints, one every {:.1} ms; pause median {:.2} ms, p99 {:.2}; output \
         delay median {:.2} ms, p99 {:.2}; answers by UDP median {:?}, p99 {:?}; {} by TCP; KiB of the daemons' own \
         memory after 10 s and at the end: {memory_kib:?}",
        vm.checkpoints,
        elapsed_s * 1e3 / vm.checkpoints as f64,
        ms(vm.pause.p50_ns),
        ms(vm.pause.p99_ns),
        ms(vm.delay.p50_ns),
        ms(vm.delay.p99_ns),
        by_udp[by_udp.len() / 2],
        by_udp[by_udp.len() * 99 / 100],
        by_tcp,
    );
    assert_eq!((seen.forgotten(), seen.wrong()), (0, 0), "{}", scene.logs());
}
