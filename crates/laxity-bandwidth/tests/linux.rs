//! The daemon with the kernel's traffic control and real packets, in network namespaces of its own.
//!
//! Rates are compared with room for a busy machine; what is asserted to the letter is state.

mod scene;

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use laxity_bandwidth::agreements::{self, Port};
use laxity_bandwidth::control::Limits;
use laxity_bandwidth::linux::{Inwards, Links, Tree};
use laxity_bandwidth::report::Snapshot;
use laxity_bandwidth::shaper::{Counters, Shaper as _};
use nix::sys::signal::Signal;
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
use scene::{
    OUTSIDE, PAYLOAD_BYTES, Pace, Scene, constant, expedite, expedited_flood, flood, once,
    socket_in,
};

/// A scene, or `None` where this machine does not support it, which the test then reports.
fn scene(name: &str, machines: usize) -> Option<Scene> {
    if let Some(reason) = scene::what_is_missing() {
        eprintln!("SKIPPED: {reason}");
        return None;
    }
    Some(Scene::new(name, machines))
}

const HEAD: &str = "
period = \"10 ms\"
absent = \"wait\"

[link]
interface = \"up0\"
rate = \"40 Mbit/s\"
reserve = \"1 Mbit/s\"
";

fn agreement(at: usize, class: u32, minimum: &str, maximum: &str, more: &str) -> String {
    format!(
        "[[agreement]]\nname = \"vm{at}\"\ninterface = \"vif{at}\"\nclass = {class}\n\
         minimum = \"{minimum} Mbit/s\"\nmaximum = \"{maximum} Mbit/s\"\n{more}\n"
    )
}

/// Agreements on 40 Mbit/s: minima of 12 and 4 go first; the remaining 24 are divided by weights 1,
/// 1 and 2.
fn three() -> String {
    [
        HEAD.to_string(),
        agreement(0, 1, "12", "20", ""),
        agreement(1, 2, "4", "40", ""),
        agreement(2, 3, "0", "40", "weight = 2"),
    ]
    .concat()
}

const EXPECTED: [f64; 3] = [18.0, 10.0, 12.0];
const MINIMA: [f64; 3] = [12.0, 4.0, 0.0];
const MAXIMA: [f64; 3] = [20.0, 40.0, 40.0];
const WHILE: Duration = Duration::from_millis(1_500);
/// Tolerance of a rate, as a part of it, for a machine that does other work, too.
const ROOM: f64 = 0.15;

fn holds_the_agreement(rates: &[f64]) -> Result<(), String> {
    for (at, rate) in rates.iter().enumerate() {
        require(
            *rate >= MINIMA[at] * (1.0 - ROOM),
            "a minimum is not held",
            rates,
        )?;
        require(
            *rate <= MAXIMA[at] * (1.0 + ROOM / 3.0),
            "a maximum is exceeded",
            rates,
        )?;
    }
    let sum: f64 = rates.iter().sum();
    require(sum >= 40.0 * (1.0 - ROOM), "the link idles", rates)
}

fn require(is_so: bool, otherwise: &str, rates: &[f64]) -> Result<(), String> {
    if is_so {
        Ok(())
    } else {
        Err(format!("{otherwise}: {rates:?}"))
    }
}

/// Bytes that the kernel has counted for the first machine's class.
fn sent_bytes(scene: &Scene) -> u64 {
    let classes = scene.tc("-s class show dev up0");
    let (_, class) = classes.split_once("class htb 1a7c:10 ").unwrap();
    let (_, sent) = class.split_once("Sent ").unwrap();
    sent.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn agreements_hold_through_the_daemons_life_and_death() {
    let Some(mut scene) = scene("life", 3) else {
        return;
    };
    let file = scene.write("agreements.toml", &three());
    let listener = scene.listen();
    // A sender that marks all its packets as expedited gets no more than one that marks none.
    let _senders = [
        scene.send(0, expedited_flood()),
        scene.send(1, flood()),
        scene.send(2, expedited_flood()),
    ];
    scene.start(&file);
    std::thread::sleep(Duration::from_millis(500));

    listener.mbit_s_once(WHILE, |rates| {
        holds_the_agreement(rates)?;
        let is_near = |(rate, expected): (&f64, f64)| (rate - expected).abs() <= expected * ROOM;
        let are_near = rates.iter().zip(EXPECTED).all(is_near);
        require(are_near, &format!("not {EXPECTED:?}"), rates)
    });
    scene.wait_for("all to be held back", |snapshot| {
        snapshot.holders[..3]
            .iter()
            .all(|each| each.throttled_ns > 100_000_000)
    });
    // A busy machine's kernel may not send for a while, which is a violation.
    once(|| {
        let violations = || {
            let snapshot = scene.wait_for("a look", |_| true);
            let holders = snapshot.holders[..3].iter();
            holders.map(|each| each.violations).collect::<Vec<_>>()
        };
        let before = violations();
        std::thread::sleep(WHILE);
        let after = violations();
        if before == after {
            Ok(())
        } else {
            Err(format!("minima were not held: {before:?}, then {after:?}"))
        }
    });

    // The kernel goes on enforcing after the daemon is killed.
    scene.signal(Signal::SIGKILL);
    assert!(!scene.wait());
    listener.mbit_s_once(WHILE, holds_the_agreement);

    // A new daemon takes over the existing tree, whose counters continue.
    let before = sent_bytes(&scene);
    assert!(before > 1_000_000);
    scene.start(&file);
    assert!(sent_bytes(&scene) >= before);
    listener.mbit_s_once(WHILE, holds_the_agreement);

    // A daemon that is told to stop removes everything it made.
    scene.signal(Signal::SIGTERM);
    assert!(scene.wait());
    assert!(!scene.tc("qdisc show dev up0").contains("htb"));
    assert!(!scene.socket().exists());
}

/// A daemon is killed at random moments (from `LAXITY_SEED`) while it applies other agreements or
/// takes over from a killed one. The kernel enforces at every moment what both agreements have in
/// common.
#[test]
fn agreements_hold_whenever_the_daemon_is_killed() {
    const ROUNDS: usize = 8;
    const MOMENT_US: u64 = 40_000;
    let Some(mut scene) = scene("kill", 3) else {
        return;
    };
    let seed = std::env::var("LAXITY_SEED").map_or(1, |text| text.parse().unwrap());
    println!("LAXITY_SEED={seed}");
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut moment = || Duration::from_micros(random.next_u64() % MOMENT_US);
    // The first two holders have the same minima and maxima as before; the other agreements change.
    let others = [
        three(),
        [
            HEAD.to_string(),
            agreement(0, 1, "12", "20", "weight = 5"),
            agreement(1, 2, "4", "40", "burst = \"40 KiB\""),
        ]
        .concat(),
    ];
    let file = scene.write("agreements.toml", &others[0]);
    let listener = scene.listen();
    let _senders: Vec<_> = (0..3).map(|at| scene.send(at, flood())).collect();
    scene.start(&file);
    std::thread::sleep(Duration::from_millis(500));
    let mut counted = sent_bytes(&scene);
    for round in 0..ROUNDS {
        once(|| {
            let rates = std::thread::scope(|threads| {
                let rates = threads.spawn(|| listener.mbit_s(WHILE / 2));
                scene.write("agreements.toml", &others[(round + 1) % 2]);
                std::thread::sleep(moment());
                scene.signal(Signal::SIGKILL);
                assert!(!scene.wait());
                // The next daemon usually dies while it takes over.
                scene.spawn(&file);
                std::thread::sleep(moment());
                scene.signal(Signal::SIGKILL);
                scene.wait();
                scene.start(&file);
                rates.join().unwrap()
            });
            let holds = |(at, rate): (usize, &f64)| {
                (MINIMA[at] * (1.0 - ROOM)..=MAXIMA[at] * (1.0 + ROOM)).contains(rate)
            };
            let all_hold = rates[..2].iter().enumerate().all(holds);
            require(
                all_hold,
                &format!("LAXITY_SEED={seed}, round {round}"),
                &rates,
            )
        });
        // The class has kept its counters, so no queue was lost.
        let now = sent_bytes(&scene);
        assert!(now > counted, "LAXITY_SEED={seed}, round {round}");
        counted = now;
    }
    scene.signal(Signal::SIGTERM);
    assert!(scene.wait());
    assert!(!scene.tc("qdisc show dev up0").contains("htb"));
}

#[test]
fn new_agreements_are_taken_on_and_bad_ones_are_not() {
    let Some(mut scene) = scene("reload", 3) else {
        return;
    };
    let file = scene.write("agreements.toml", &three());
    scene.start(&file);
    let ceiling = |scene: &Scene, class: &str| -> String {
        let classes = scene.tc("class show dev up0");
        let class = classes
            .split_once(&format!("class htb 1a7c:{class} "))
            .map(|(_, rest)| rest);
        let ceiling = class.and_then(|class| class.split_once("ceil "));
        ceiling
            .map_or("none", |(_, rest)| rest.split_whitespace().next().unwrap())
            .into()
    };
    assert_eq!(ceiling(&scene, "10"), "20Mbit");

    // All threads of the daemon keep only the capabilities for shaping (CAP_NET_ADMIN and CAP_BPF).
    for task in std::fs::read_dir(format!("/proc/{}/task", scene.daemon())).unwrap() {
        let status = std::fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        let permitted = status.lines().find(|line| line.starts_with("CapPrm:"));
        assert_eq!(permitted, Some("CapPrm:\t0000008000001000"));
    }

    // A changed file is noticed.
    scene.write(
        "agreements.toml",
        &three().replace("20 Mbit/s", "25 Mbit/s"),
    );
    scene.wait_for("the reload", |snapshot| snapshot.reloads == 1);
    assert_eq!(ceiling(&scene, "10"), "25Mbit");

    // A wrong file is refused with the place of the mistake, and changes nothing.
    scene.write("agreements.toml", &three().replace("20 Mbit/s", "2 Mbit/s"));
    scene.wait_for("the refusal", |snapshot| snapshot.reloads_refused == 1);
    assert_eq!(ceiling(&scene, "10"), "25Mbit");
    assert!(
        scene.log().contains("agreements.toml:13:11"),
        "{}",
        scene.log()
    );

    // Removing the first agreement removes its class; the others keep theirs.
    let two = three().replace(&agreement(0, 1, "12", "20", ""), "");
    scene.write("agreements.toml", &two);
    scene.wait_for("the reload", |snapshot| snapshot.reloads == 2);
    assert_eq!(ceiling(&scene, "10"), "none");
    assert_eq!(ceiling(&scene, "11"), "40Mbit");

    // SIGHUP reads the file again and changes nothing.
    scene.signal(Signal::SIGHUP);
    let snapshot = scene.wait_for("a period", |snapshot| snapshot.periods > 20);
    assert_eq!((snapshot.reloads, snapshot.reloads_refused), (2, 1));
    scene.signal(Signal::SIGINT);
    assert!(scene.wait());
}

/// A pace that sends as many packets at once as it is told, each time.
fn as_told(told: Receiver<u64>) -> Pace {
    Box::new(move |socket, _| {
        for count in told {
            for _ in 0..count {
                let _ = socket.send(&[0; PAYLOAD_BYTES]);
            }
        }
    })
}

/// A read asks only about machines that have sent or still have a queue, names them all, and finds
/// the same as a read of all. `LAXITY_SEED` decides who sends how much when.
#[test]
fn a_look_at_those_who_have_sent_misses_nobody() {
    const MACHINES: usize = 5;
    const LOOKS: usize = 60;
    const BURSTS_MAX: u64 = 1_000;
    let Some(scene) = scene("looks", MACHINES) else {
        return;
    };
    let seed = std::env::var("LAXITY_SEED").map_or(1, |text| text.parse().unwrap());
    println!("LAXITY_SEED={seed}");
    let agreements = (0..MACHINES).map(|at| agreement(at, 1, "1", "4", ""));
    let text = HEAD.to_string() + &agreements.collect::<String>();
    let (tell, told): (Vec<_>, Vec<_>) = (0..MACHINES).map(|_| channel::<u64>()).unzip();
    let senders: Vec<_> = (told.into_iter().enumerate())
        .map(|(at, told)| scene.send(at, as_told(told)))
        .collect();
    let look = || {
        scene::enter(&scene.host());
        let (mut tree, holders) = scene::tree(&text);
        // The counters as whoever takes only those of the holders that a read names has them.
        let mut known = vec![Counters::default(); holders + 1];
        let mut read = Vec::new();
        let mut look = |tree: &mut Tree| {
            tree.read(&mut read).unwrap();
            for &holder in &read {
                known[holder] = tree.counters(holder);
            }
            (known.clone(), read.len())
        };
        assert_eq!(
            look(&mut tree).1,
            holders + 1,
            "the first read is one of all"
        );
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        for _ in 0..LOOKS {
            for tell in &tell {
                // Most bursts are empty; some take longer than one read's interval to leave.
                let count = [0, 0, 0, 0, 1, 20][random.next_u64() as usize % 6];
                tell.send(count).unwrap();
            }
            std::thread::sleep(Duration::from_millis(random.next_u64() % 8));
            look(&mut tree);
        }
        let all =
            |tree: &Tree| -> Vec<Counters> { (0..=holders).map(|at| tree.counters(at)).collect() };
        let is_waiting = |tree: &Tree| all(tree).iter().any(|each| each.backlog_bytes > 0);
        // The last read of some burst finds a queue, which only later ones find empty. A burst leaves
        // in 60 ms, and this thread may not run for longer.
        let mut bursts = 0;
        while !is_waiting(&tree) {
            assert!(bursts < BURSTS_MAX, "no read finds a queue");
            tell[0].send(20).unwrap();
            bursts += 1;
            let until = std::time::Instant::now() + Duration::from_millis(10 * bursts);
            while !is_waiting(&tree) && std::time::Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
                look(&mut tree);
            }
        }
        drop(tell);
        drop(senders);
        // The loop runs until all queues are empty and no class is read any more.
        while is_waiting(&tree) {
            std::thread::sleep(Duration::from_millis(1));
            look(&mut tree);
        }
        // The reads are compared where the kernel has counted nothing meanwhile, such as packets that
        // it still had on their way, or its own questions for neighbours.
        let known = loop {
            std::thread::sleep(Duration::from_millis(100));
            let before = scene.classes();
            look(&mut tree);
            let (known, _) = look(&mut tree);
            let (_, active) = look(&mut tree);
            tree.read_all().unwrap();
            if scene.classes() == before {
                assert_eq!(
                    active, 0,
                    "a read of nobody follows the one after the last packet"
                );
                break known;
            }
        };
        assert_eq!(known, all(&tree), "LAXITY_SEED={seed}");
        assert!(known[..holders].iter().all(|each| each.bytes > 0));
        tree.close().unwrap();
    };
    // The thread enters the host's namespace, and ends.
    std::thread::scope(|threads| threads.spawn(look).join().unwrap());
}

/// The same holds for what machines are sent. One of them loses its interface meanwhile and gets
/// another, and the agreements are taken on again in another order.
#[test]
fn a_look_at_those_who_were_sent_something_misses_nobody() {
    const MACHINES: usize = 4;
    const LOOKS: usize = 60;
    let Some(scene) = scene("looks-inwards", MACHINES) else {
        return;
    };
    let seed = std::env::var("LAXITY_SEED").map_or(1, |text| text.parse().unwrap());
    println!("LAXITY_SEED={seed}");
    let text = |order: &[usize]| {
        let receive = "receive = { minimum = \"1 Mbit/s\", maximum = \"4 Mbit/s\" }";
        let each = order.iter().map(|&at| agreement(at, 1, "1", "4", receive));
        HEAD.replace("reserve", "receive-rate = \"40 Mbit/s\"\nreserve") + &each.collect::<String>()
    };
    let (tell, told): (Vec<_>, Vec<_>) = (0..MACHINES).map(|_| channel::<u64>()).unzip();
    let senders: Vec<_> = (told.into_iter().enumerate())
        .map(|(at, told)| scene.send_inwards(at, as_told(told)))
        .collect();
    let look = || {
        scene::enter(&scene.host());
        let mut inwards = Inwards::open().unwrap();
        let configure = |inwards: &mut Inwards, order: &[usize]| {
            let text = text(order);
            let agreements =
                agreements::load(text.as_bytes(), "a.toml", &|_, _| Port::Usable).unwrap();
            let interfaces = Links::open().unwrap().all().unwrap();
            inwards.configure(&agreements).unwrap();
            let limits = Limits {
                rate_bit_s: 1_000_000,
                ceiling_bit_s: 4_000_000,
            };
            for (holder, at) in order.iter().enumerate() {
                let interface = interfaces[&format!("vif{at}")].index;
                inwards.bind(holder, Some(interface)).unwrap();
                assert!(inwards.apply(&[(holder, limits)]).is_empty());
            }
            inwards.tidy().unwrap();
        };
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        for order in [[0, 1, 2, 3], [3, 1, 0, 2]] {
            configure(&mut inwards, &order);
            // The counters as whoever takes only those of the holders that a read names has them.
            let mut known = [Counters::default(); MACHINES];
            let mut read = Vec::new();
            let mut look = |inwards: &mut Inwards| {
                inwards.read(&mut read).unwrap();
                for &holder in &read {
                    known[holder] = inwards.counters(holder);
                }
                (known, read.len())
            };
            assert_eq!(
                look(&mut inwards).1,
                MACHINES,
                "the first read is one of all"
            );
            let mut are_some_idle = false;
            for number in 0..LOOKS {
                for tell in &tell {
                    let count = [0, 0, 0, 0, 1, 20][random.next_u64() as usize % 6];
                    tell.send(count).unwrap();
                }
                std::thread::sleep(Duration::from_millis(random.next_u64() % 8));
                are_some_idle |= look(&mut inwards).1 < MACHINES;
                if number == LOOKS / 2 {
                    inwards.bind(1, None).unwrap();
                    scene.unplug(1);
                    scene.plug(1);
                    configure(&mut inwards, &order);
                }
            }
            assert!(are_some_idle, "LAXITY_SEED={seed}");
            let sent = |at: &usize| {
                let text = scene.tc(&format!("-s qdisc show dev vif{at} root"));
                let (_, sent) = text.split_once("Sent ").unwrap();
                sent.split(' ').next().unwrap().parse::<u64>().unwrap()
            };
            let (known, sent) = once(|| {
                std::thread::sleep(Duration::from_millis(100));
                let before: Vec<u64> = order.iter().map(sent).collect();
                look(&mut inwards);
                look(&mut inwards);
                let (known, active) = look(&mut inwards);
                let after: Vec<u64> = order.iter().map(sent).collect();
                let is_quiet = before == after && active == 0;
                is_quiet
                    .then_some((known, after))
                    .ok_or("packets come".into())
            });
            assert_eq!(known.map(|each| each.bytes)[..], sent, "LAXITY_SEED={seed}");
            assert!(sent.iter().all(|&bytes| bytes > 0));
        }
        drop(tell);
        drop(senders);
        inwards.close().unwrap();
    };
    // The thread enters the host's namespace, and ends.
    std::thread::scope(|threads| threads.spawn(look).join().unwrap());
}

/// In a guest that sends voice and bulk, expedited packets leave before packets that have waited
/// longer, and both wait in short queues of their own.
#[test]
fn expedited_packets_go_before_those_that_wait() {
    const PORT: u16 = 6_000;
    const BULK: usize = 80;
    const VOICE: usize = 10;
    const VOICE_BYTES: usize = 200;
    let Some(mut scene) = scene("voice", 1) else {
        return;
    };
    // The rate is so low that the bulk would wait for minutes, however late the voice comes.
    let text = HEAD
        .replace("40 Mbit/s", "5 kbit/s")
        .replace("1 Mbit/s", "100 bit/s");
    let text = text
        + "[[agreement]]\nname = \"vm0\"\ninterface = \"vif0\"\nclass = 1\n\
           minimum = \"4 kbit/s\"\nmaximum = \"5 kbit/s\"\n";
    let file = scene.write("agreements.toml", &text);
    scene.start(&file);

    let queues = scene.tc("qdisc show dev up0");
    let shortcoming = scene.wait_for("a look", |_| true).shortcoming;
    for leaf in ["5010", "a010", "5002", "a002"] {
        let of_leaf = queues
            .lines()
            .find(|line| line.contains(&format!("parent 1a7c:{leaf} ")));
        let of_leaf = of_leaf.unwrap_or_else(|| panic!("{leaf} has no queue of ours: {queues}"));
        let expected = match shortcoming {
            None => ["qdisc fq_codel ", "limit 1000p flows 128"],
            Some(_) => ["qdisc bfifo ", "limit 128Kb"],
        };
        assert!(
            expected.iter().all(|text| of_leaf.contains(text)),
            "{of_leaf}"
        );
    }

    let (outside, machine) = (scene.outside(), scene.machine(0));
    let (ready, is_ready) = channel();
    let listening = std::thread::spawn(move || {
        let socket = socket_in(&outside, (OUTSIDE, PORT));
        socket
            .set_read_timeout(Some(Duration::from_secs(600)))
            .unwrap();
        ready.send(()).unwrap();
        let mut sizes = Vec::new();
        let mut buffer = [0; 2048];
        while sizes.iter().filter(|bytes| **bytes == VOICE_BYTES).count() < VOICE {
            sizes.push(socket.recv(&mut buffer).unwrap());
        }
        sizes.len() - VOICE
    });
    is_ready.recv().unwrap();
    let sending = std::thread::spawn(move || {
        let [bulk, voice] = [0, 1].map(|_| {
            let socket = socket_in(&machine, ("0.0.0.0", 0));
            socket.connect((OUTSIDE, PORT)).unwrap();
            socket
        });
        expedite(&voice);
        for _ in 0..BULK {
            bulk.send(&[0; PAYLOAD_BYTES]).unwrap();
        }
        for _ in 0..VOICE {
            voice.send(&[0; VOICE_BYTES]).unwrap();
        }
    });
    sending.join().unwrap();
    let bulk_before = listening.join().unwrap();
    assert!(bulk_before < BULK / 2, "{bulk_before} of {BULK} went first");
    let classes = scene.tc("-s class show dev up0");
    let (_, voice) = classes.split_once("class htb 1a7c:5010 ").unwrap();
    assert!(voice.contains(&format!(" {VOICE} pkt")), "{voice}");
    scene.signal(Signal::SIGTERM);
    assert!(scene.wait());
}

/// Sends a stream of voice beside whatever else the first machine sends. Returns how many of its
/// packets left by the link, out of [`VOICE`].
fn voice_that_leaves(scene: &Scene, is_marked: bool) -> usize {
    const PORT: u16 = 6_001;
    const VOICE_BYTES: usize = 200;
    const END_BYTES: usize = 201;
    let (outside, machine) = (scene.outside(), scene.machine(0));
    let (ready, is_ready) = channel();
    let is_over = Arc::new(AtomicBool::new(false));
    let ends = is_over.clone();
    let listening = std::thread::spawn(move || {
        let socket = socket_in(&outside, (OUTSIDE, PORT));
        let patience = Some(Duration::from_secs(600));
        socket.set_read_timeout(patience).unwrap();
        ready.send(()).unwrap();
        let mut buffer = [0; 2048];
        let mut count = 0;
        // The end takes the same way, and comes after all that has not been dropped.
        let heard = loop {
            match socket.recv(&mut buffer) {
                Ok(END_BYTES) => break Ok(count),
                Ok(bytes) => count += usize::from(bytes == VOICE_BYTES),
                Err(error) => break Err(error),
            }
        };
        // Also where nothing came for ten minutes: the sender would never end.
        ends.store(true, Ordering::SeqCst);
        heard.unwrap()
    });
    is_ready.recv().unwrap();
    let sending = std::thread::spawn(move || {
        let socket = socket_in(&machine, ("0.0.0.0", 0));
        socket.connect((OUTSIDE, PORT)).unwrap();
        if is_marked {
            expedite(&socket);
        }
        for _ in 0..VOICE {
            socket.send(&[0; VOICE_BYTES]).unwrap();
            std::thread::sleep(Duration::from_millis(2));
        }
        while !is_over.load(Ordering::SeqCst) {
            socket.send(&[0; END_BYTES]).unwrap();
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    sending.join().unwrap();
    listening.join().unwrap()
}

const VOICE: usize = 400;

/// A machine's voice within its minimum loses nothing to the machine's own bulk nor to that of
/// others. Without the mark it is one flow of many, which fq_codel protects and one queue does not.
#[test]
fn voice_loses_nothing_beside_bulk() {
    let Some(mut scene) = scene("bulk", 2) else {
        return;
    };
    let text = [
        HEAD.replace("40 Mbit/s", "10 Mbit/s"),
        agreement(0, 1, "2", "10", ""),
        agreement(1, 1, "2", "10", ""),
    ];
    let file = scene.write("agreements.toml", &text.concat());
    let shortcoming = scene.start(&file).shortcoming;
    let bulk = [0, 1].map(|machine| scene.send(machine, constant(40_000_000)));
    let dropped = |scene: &Scene| {
        let of = |holder: &laxity_bandwidth::report::HolderState| holder.dropped_packets;
        let snapshot = scene.wait_for("a look", |_| true);
        [0, 1].map(|machine| of(&snapshot.holders[machine]))
    };
    once(|| {
        let before = dropped(&scene);
        let marked = voice_that_leaves(&scene, true);
        let after = dropped(&scene);
        let has_lost = after
            .iter()
            .zip(&before)
            .all(|(after, before)| after > before);
        match (marked, has_lost) {
            (VOICE, true) => Ok(()),
            _ => Err(format!(
                "{marked} of {VOICE}; dropped {before:?}, {after:?}"
            )),
        }
    });
    once(|| {
        let unmarked = voice_that_leaves(&scene, false);
        let is_one_of_many = shortcoming.is_none();
        if (unmarked == VOICE) == is_one_of_many {
            Ok(())
        } else {
            Err(format!("{unmarked} of {VOICE} without a mark"))
        }
    });
    drop(bulk);
    scene.signal(Signal::SIGTERM);
    assert!(scene.wait());
}

/// A second daemon is refused, and changes that others make to the tree are undone and logged.
#[test]
fn a_link_has_one_daemon_which_keeps_its_tree() {
    let Some(mut scene) = scene("alone", 3) else {
        return;
    };
    let file = scene.write("agreements.toml", &three());
    let started = scene.start(&file);
    let other = scene.write("other.toml", &three().replace("20 Mbit/s", "30 Mbit/s"));
    let other_socket = scene.socket().with_file_name("other.sock");
    let words = [
        "run",
        other.to_str().unwrap(),
        "--socket",
        other_socket.to_str().unwrap(),
    ];
    let refused = scene.command(&words).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    let said = String::from_utf8(refused.stderr).unwrap();
    let holder = format!("process {} with {}", scene.daemon(), file.display());
    assert!(said.contains(&holder), "{said}");
    assert!(!other_socket.exists());

    // All settings in the kernel except counters and ceilings, which change all the time.
    let told = |scene: &Scene| {
        let classes = scene.tc("class show dev up0");
        // Text after the ceiling only follows from it. Fair queues show their flows as classes,
        // which are left out.
        let classes = classes
            .lines()
            .filter(|line| line.starts_with("class htb "));
        let classes = classes.map(|line| {
            let (before, _) = line.split_once("ceil ").unwrap();
            before.to_string()
        });
        let mut classes: Vec<String> = classes.collect();
        classes.sort();
        let queues = scene.tc("qdisc show dev up0");
        let filters = scene.tc("filter show dev up0");
        (classes, queues.lines().count(), filters.lines().count())
    };
    let before = told(&scene);
    // The daemon's own changes are not reported as foreign.
    let _senders: Vec<_> = (0..3).map(|at| scene.send(at, flood())).collect();
    let calm = scene.wait_for("changes", |snapshot| {
        snapshot.periods > started.periods + 50 && snapshot.holders[0].throttled_ns > 100_000_000
    });
    assert_eq!(calm.restored, 0);
    for (times, disturbance) in [
        "qdisc del dev up0 root",
        "class change dev up0 parent 1a7c:1 classid 1a7c:10 htb rate 1mbit ceil 1mbit",
        "filter del dev up0",
        "qdisc replace dev up0 root handle 7: htb",
        "class add dev up0 parent 1a7c:1 classid 1a7c:4000 htb rate 1mbit",
        "qdisc replace dev up0 parent 1a7c:a010 handle 7: pfifo",
    ]
    .into_iter()
    .enumerate()
    {
        scene.tc(disturbance);
        let snapshot = scene.wait_for(disturbance, |snapshot| snapshot.restored > times as u64);
        assert_eq!(told(&scene), before, "{disturbance}");
        assert_eq!(snapshot.restored, times as u64 + 1, "{disturbance}");
    }
    let said = "another program removed or changed the shaping";
    assert!(scene.log().contains(said), "{}", scene.log());
    // Changes of other parts of the link's traffic control are ignored.
    scene.tc("qdisc add dev up0 ingress");
    let snapshot = scene.wait_for("a look", |_| true);
    let later = scene.wait_for("some looks", |later| later.periods > snapshot.periods + 5);
    assert_eq!(later.restored, snapshot.restored);

    // The lock ends with its holder.
    scene.signal(Signal::SIGKILL);
    assert!(!scene.wait());
    scene.start(&other);
    scene.signal(Signal::SIGTERM);
    assert!(scene.wait());
}

#[test]
fn interfaces_come_and_go() {
    let Some(mut scene) = scene("hotplug", 2) else {
        return;
    };
    scene.unplug(1);
    let text = [
        HEAD.to_string(),
        agreement(0, 1, "12", "40", ""),
        agreement(1, 2, "4", "8", ""),
    ];
    let file = scene.write("agreements.toml", &text.concat());
    scene.start(&file);
    let is_there = |expected| {
        move |snapshot: &laxity_bandwidth::report::Snapshot| {
            snapshot.holders[1].is_present == expected
        }
    };
    scene.wait_for("its absence", is_there(false));
    let listener = scene.listen();
    let _other = scene.send(0, constant(5_000_000));
    for _ in 0..2 {
        scene.plug(1);
        scene.wait_for("the interface", is_there(true));
        let sender = scene.send(1, flood());
        std::thread::sleep(Duration::from_millis(300));
        // The machine is held to its maximum, because its packets are classified by the new
        // interface.
        listener.mbit_s_once(WHILE, |rates| {
            require((rates[1] - 8.0).abs() <= 8.0 * ROOM, "not 8", rates)
        });
        drop(sender);
        scene.unplug(1);
        scene.wait_for("its absence", is_there(false));
    }
    assert!(!scene.log().contains("ERROR"), "{}", scene.log());
    scene.signal(Signal::SIGTERM);
    assert!(scene.wait());
}

/// A stand-in for virsh tells what a file says of a domain, so that it can be late, wrong for a while,
/// and silent. `python/tests/test_bandwidth_libvirt.py` has the real one.
const VIRSH: &str = "#!/bin/sh
directory=${0%/*}
for domain; do :; done
[ ! -e \"$directory/silent\" ] || exec sleep 60
[ -e \"$directory/$domain.cards\" ] || { echo \"error: failed to get domain '$domain'\" >&2; exit 1; }
printf ' Interface   Type     Source   Model    MAC\\n-----------------\\n'
cat \"$directory/$domain.cards\"
";

#[test]
fn domains_of_libvirt_keep_their_agreements() {
    let Some(mut scene) = scene("domains", 3) else {
        return;
    };
    let virsh = scene.write("virsh", VIRSH);
    std::fs::set_permissions(&virsh, PermissionsExt::from_mode(0o755)).unwrap();
    let path = std::env::var("PATH").unwrap();
    let path = format!("PATH={}:{path}", virsh.parent().unwrap().display());
    let under: &[&str] = &["env", &path];
    let cards = |scene: &Scene, second: &str| {
        let line = |name: &str| format!(" {name}   bridge   br0   virtio   52:54:00:00:00:01\n");
        scene.write("media.cards", &(line("-") + &line(second)));
    };
    let domain = agreement(1, 2, "4", "8", "")
        .replace("interface = \"vif1\"", "domain = \"media\"\ncard = 2");
    let text = [HEAD.to_string(), agreement(0, 1, "12", "40", ""), domain].concat();
    let at = |expected: Option<&'static str>| {
        move |snapshot: &laxity_bandwidth::report::Snapshot| {
            let holder = &snapshot.holders[1];
            holder.is_present == expected.is_some()
                && expected.is_none_or(|name| holder.interface == name)
        }
    };

    // A domain that has to be there and is not.
    let strict = scene.write("strict.toml", &text.replace("absent = \"wait\"", ""));
    let refuses = |scene: &Scene, file: &Path, what: &str| {
        let mut command = scene.command_under(under, &["run", file.to_str().unwrap(), "--dry-run"]);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            said.contains(what) && said.contains("strict.toml:"),
            "{said}"
        );
        assert_eq!(output.status.code(), Some(2));
    };
    refuses(&scene, &strict, "failed to get domain 'media'");
    cards(&scene, "-");
    refuses(
        &scene,
        &strict,
        "card 2 of the domain \"media\" has no interface now",
    );
    std::fs::remove_file(strict.with_file_name("media.cards")).unwrap();

    let file = scene.write("agreements.toml", &text);
    scene.spawn_under(under, &file, &[]);
    scene.wait_for("its absence", at(None));
    // It is known only later, with no new interface to tell of it.
    cards(&scene, "vif1");
    scene.wait_for("the first interface", at(Some("vif1")));
    let listener = scene.listen();
    let _other = scene.send(0, constant(5_000_000));
    let is_held = |listener: &scene::Listener, scene: &Scene, machine: usize| {
        let sender = scene.send(machine, flood());
        std::thread::sleep(Duration::from_millis(300));
        listener.mbit_s_once(WHILE, |rates| {
            require((rates[machine] - 8.0).abs() <= 8.0 * ROOM, "not 8", rates)
        });
        drop(sender);
    };
    is_held(&listener, &scene, 1);

    // The domain starts again, with an interface of another name, of which libvirt tells later.
    scene.unplug(1);
    cards(&scene, "-");
    scene.wait_for("its absence", at(None));
    scene.unplug(2);
    scene.plug(2);
    std::thread::sleep(Duration::from_millis(200));
    assert!(at(None)(&scene.snapshot().unwrap()));
    cards(&scene, "vif2");
    scene.wait_for("the second interface", at(Some("vif2")));
    is_held(&listener, &scene, 2);
    // The old name is nobody's now.
    scene.plug(1);
    let sender = scene.send(1, flood());
    listener.mbit_s_once(WHILE, |rates| require(rates[1] > 12.0, "held", rates));
    drop(sender);
    assert!(at(Some("vif2"))(&scene.snapshot().unwrap()));

    // The file is read again: the domain keeps its interface, and another card has none.
    let before = scene.snapshot().unwrap().reloads;
    scene.write(
        "agreements.toml",
        &text.replace("\"8 Mbit/s\"", "\"9 Mbit/s\""),
    );
    scene.wait_for("the reload", |snapshot| snapshot.reloads > before);
    assert!(at(Some("vif2"))(&scene.snapshot().unwrap()));
    scene.write("agreements.toml", &text.replace("card = 2", "card = 1"));
    scene.wait_for("the other card", at(None));
    scene.write("agreements.toml", &text);
    scene.wait_for("the card", at(Some("vif2")));

    // libvirt does not answer, and the daemon goes on; after the answer all is well.
    let silent = scene.write("silent", "");
    scene.unplug(2);
    scene.wait_for("its absence", at(None));
    let looks = scene.snapshot().unwrap().periods;
    scene.wait_for("looks", |snapshot| snapshot.periods > looks + 100);
    scene.plug(2);
    scene.wait_for("an error", |_| {
        scene.log().contains("libvirt has not answered")
    });
    std::fs::remove_file(silent).unwrap();
    scene.wait_for("the second interface", at(Some("vif2")));
    assert!(!scene.log().contains("ERROR"), "{}", scene.log());

    // libvirt says what the file contradicts.
    for taken in ["vif0", "up0"] {
        scene.unplug(2);
        scene.wait_for("its absence", at(None));
        cards(&scene, taken);
        scene.plug(2);
        let error = format!("interface=\"{taken}\"");
        scene.wait_for("an error", |_| {
            let log = scene.log();
            let mut errors = log.lines().filter(|line| line.contains("ERROR"));
            errors.any(|line| line.contains("has for something else") && line.contains(&error))
        });
        let snapshot = scene.snapshot().unwrap();
        assert!(at(None)(&snapshot));
        assert!(snapshot.holders[0].is_present);
        cards(&scene, "vif2");
        scene.wait_for("the second interface", at(Some("vif2")));
    }

    scene.signal(Signal::SIGTERM);
    assert!(scene.wait());
}

/// Everybody on the host may ask for metrics as often as they like, and must not take CPUs from guests
/// by it.
#[test]
fn whoever_answers_strangers_has_no_real_time_priority() {
    const UNIT: &str = include_str!("../systemd/laxity-bandwidth.service");
    const ORDINARY: &str = "0";
    const ROUND_ROBIN: &str = "2";
    let Some(mut scene) = scene("priority", 1) else {
        return;
    };
    let text = [HEAD, &agreement(0, 1, "1", "4", "")].concat();
    let file = scene.write("agreements.toml", &text);
    // The unit's settings, as systemd would make them.
    assert!(UNIT.contains("\nCPUSchedulingPolicy=rr\nCPUSchedulingPriority=10\n"));
    let mut under = vec!["chrt"];
    if UNIT.contains("\nCPUSchedulingResetOnFork=yes\n") {
        under.push("--reset-on-fork");
    }
    under.extend(["--rr", "10"]);
    scene.spawn_under(&under, &file, &["--metrics", "127.0.0.1:0"]);
    scene.wait_for("the daemon", |snapshot| snapshot.periods > 0);
    let mut threads = Vec::new();
    for thread in std::fs::read_dir(format!("/proc/{}/task", scene.daemon())).unwrap() {
        let stat = std::fs::read_to_string(thread.unwrap().path().join("stat")).unwrap();
        let (head, rest) = stat.rsplit_once(") ").unwrap();
        let (_, name) = head.split_once('(').unwrap();
        let policy = rest.split_whitespace().nth(38).unwrap();
        threads.push((name.to_string(), policy.to_string()));
    }
    threads.sort();
    let expected = [
        ("laxity-bandwidt", ROUND_ROBIN),
        ("metrics", ORDINARY),
        ("status", ORDINARY),
    ];
    // A thread that answers this test's own question may still be there.
    threads.dedup();
    assert_eq!(
        threads,
        expected.map(|(name, policy)| (name.to_string(), policy.to_string()))
    );
    scene.signal(Signal::SIGTERM);
    assert!(scene.wait());
}

#[test]
fn what_is_received_is_held_at_the_interface() {
    let Some(mut scene) = scene("receive", 2) else {
        return;
    };
    let head = HEAD.replace("reserve", "receive-rate = \"40 Mbit/s\"\nreserve");
    let receive = "receive = { minimum = \"4 Mbit/s\", maximum = \"10 Mbit/s\" }";
    let text = [
        head,
        agreement(0, 1, "12", "40", receive),
        agreement(1, 2, "4", "40", ""),
    ];
    let file = scene.write("agreements.toml", &text.concat());
    scene.start(&file);
    let flooded = scene.send_inwards(0, scene::flood());
    let snapshot = scene.wait_for("it to be held back", |snapshot| {
        snapshot.holders.iter().any(|each| {
            (&*each.name, &*each.direction) == ("vm0", "receive") && each.throttled_ns > 10_000_000
        })
    });
    assert_eq!(snapshot.holders.len(), 5);
    once(|| {
        let (before, begun) = (scene.received_bytes(0), std::time::Instant::now());
        std::thread::sleep(WHILE);
        let bits = (scene.received_bytes(0) - before) as f64 * 8.0;
        let mbit_s = bits / begun.elapsed().as_secs_f64() / 1e6;
        require(
            (mbit_s - 10.0).abs() <= 10.0 * 2.0 * ROOM,
            "not 10",
            &[mbit_s],
        )
    });
    // What counts packets is restored like the rest, or the machine would seem to get nothing.
    scene.tc("filter delete dev vif0 parent 1a7c:");
    let restored = scene.wait_for("the filter", |snapshot| snapshot.restored > 0);
    let throttled_ns = |snapshot: &Snapshot| {
        let mut inwards = snapshot.holders.iter();
        let vm0 = inwards.find(|each| (&*each.name, &*each.direction) == ("vm0", "receive"));
        vm0.unwrap().throttled_ns
    };
    let before_ns = throttled_ns(&restored);
    scene.wait_for("it to be held back again", |snapshot| {
        throttled_ns(snapshot) > before_ns + 100_000_000
    });
    drop(flooded);
    scene.signal(Signal::SIGTERM);
    assert!(scene.wait());
    for interface in ["up0", "vif0", "vif1"] {
        assert!(
            !scene
                .tc(&format!("qdisc show dev {interface}"))
                .contains("htb")
        );
    }
}

#[test]
fn what_cannot_be_is_refused_and_nothing_is_changed() {
    let Some(scene) = scene("refused", 3) else {
        return;
    };
    let socket = scene.socket();
    let said = |text: &str| {
        let file = scene.write("agreements.toml", text);
        let words = [
            "run",
            file.to_str().unwrap(),
            "--socket",
            socket.to_str().unwrap(),
        ];
        let output = scene.command(&words).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap()
    };
    let bad = three()
        .replace("absent = \"wait\"", "")
        .replace("vif2", "vif9");
    assert!(said(&bad).contains("there is no interface `vif9`"));
    assert!(!scene.tc("qdisc show dev up0").contains("htb"));
    // Shaping by another program is left alone.
    scene.tc("qdisc add dev up0 root handle 7: htb");
    assert!(
        said(&three())
            .contains("cannot shape up0: it already has a root qdisc of another program, htb 7:")
    );
    assert!(scene.tc("qdisc show dev up0").contains("htb 7:"));
    scene.tc("qdisc delete dev up0 root");

    // A dry run prints what it would do.
    let file = scene.write("agreements.toml", &three());
    let words = ["run", file.to_str().unwrap(), "--dry-run"];
    let output = scene.command(&words).output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("nothing was changed"), "{text}");
    assert!(!scene.tc("qdisc show dev up0").contains("htb"));
}

/// An Ethernet frame: tags (a type and a number each), and a packet of UDP in IPv4 or IPv6, or of
/// neither, with `payload` bytes. Only its header says where it goes, as no machine has to take it.
fn frame(tags: &[(u16, u16)], version: u8, dscp: u8, payload: usize) -> Vec<u8> {
    const TO: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const FROM: [u8; 6] = [2, 0, 0, 0, 0, 2];
    const HOPS: u8 = 64;
    const UDP: u8 = 17;
    let mut frame = [TO, FROM].concat();
    for (kind, number) in tags {
        frame.extend([kind.to_be_bytes(), number.to_be_bytes()].concat());
    }
    let class = dscp << 2;
    let header = match version {
        4 => {
            let length = (20 + payload as u16).to_be_bytes();
            let mut header = vec![
                0x45, class, length[0], length[1], 0, 0, 0, 0, HOPS, UDP, 0, 0,
            ];
            header.extend([192, 0, 2, 10, 192, 0, 2, 1]);
            let words = header
                .chunks(2)
                .map(|two| u32::from(u16::from_be_bytes([two[0], two[1]])));
            let sum: u32 = words.sum();
            let check = !((sum & 0xffff) + (sum >> 16)) as u16;
            header[10..12].copy_from_slice(&check.to_be_bytes());
            frame.extend([0x08, 0x00]);
            header
        }
        6 => {
            let length = (payload as u16).to_be_bytes();
            let first = [
                0x60 | class >> 4,
                class << 4,
                0,
                0,
                length[0],
                length[1],
                UDP,
                HOPS,
            ];
            let address = |last: u8| {
                [
                    0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last,
                ]
            };
            frame.extend([0x86, 0xdd]);
            [&first[..], &address(10), &address(1)].concat()
        }
        // A type for local experiments (IEEE 802).
        _ => {
            frame.extend([0x88, 0xb5]);
            Vec::new()
        }
    };
    frame.extend(header);
    frame.extend(vec![0; payload]);
    frame
}

/// Frames of a guest behind a tap count for its agreement, whatever is in them.
#[test]
fn tagged_frames_and_ipv6_belong_to_their_agreement() {
    const EACH: u64 = 10;
    const VLAN: (u16, u16) = (0x8100, 7);
    const SERVICE: (u16, u16) = (0x88a8, 9);
    const EXPEDITED: u8 = 46;
    let Some(mut scene) = scene("tags", 1) else {
        return;
    };
    scene.unplug(0);
    let mut tap = scene.plug_tap(0);
    let text = HEAD
        .replace("40 Mbit/s", "100 kbit/s")
        .replace("1 Mbit/s", "1 kbit/s");
    let text = text
        + "[[agreement]]\nname = \"vm0\"\ninterface = \"vif0\"\nclass = 1\n\
           minimum = \"90 kbit/s\"\nmaximum = \"95 kbit/s\"\n";
    let file = scene.write("agreements.toml", &text);
    scene.start(&file);

    // The DSCP of the last three is not looked for.
    let all = [
        frame(&[], 4, EXPEDITED, 40),
        frame(&[], 6, EXPEDITED, 40),
        frame(&[VLAN], 4, EXPEDITED, 40),
        frame(&[VLAN], 6, EXPEDITED, 40),
        frame(&[SERVICE, VLAN], 4, EXPEDITED, 40),
        frame(&[SERVICE, VLAN], 6, EXPEDITED, 40),
        frame(&[VLAN], 0, EXPEDITED, 40),
    ];
    for frame in &all {
        for _ in 0..EACH {
            tap.write_all(frame).unwrap();
        }
    }
    let told = || ["10", "5010", "a010"].map(|class| scene.sent_packets(class));
    let expected = [7 * EACH, 4 * EACH, 3 * EACH];
    let deadline = std::time::Instant::now() + Duration::from_secs(600);
    while told()[0] < expected[0] && std::time::Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(told(), expected, "{}", scene.tc("-s class show dev up0"));

    // They are limited: their queue overflows.
    let large = frame(&[VLAN], 6, 0, 1_400);
    for _ in 0..1_500 {
        tap.write_all(&large).unwrap();
    }
    scene.wait_for("drops", |snapshot| snapshot.holders[0].dropped_packets > 0);
    scene.signal(Signal::SIGTERM);
    assert!(scene.wait());
}

/// What the host routes for a machine on a bridge is nobody's, which the operator is told.
#[test]
fn a_bridge_from_which_the_host_routes_is_warned_of() {
    let Some(mut scene) = scene("routes", 1) else {
        return;
    };
    let file = scene.write(
        "agreements.toml",
        &[HEAD, &agreement(0, 1, "1", "2", "")].concat(),
    );
    for is_on in [false, true] {
        scene.set_routing(is_on);
        scene.start(&file);
        scene.signal(Signal::SIGTERM);
        assert!(scene.wait());
        let is_told = scene.log().contains("no agreement limits such packets");
        assert_eq!(is_told, is_on, "{}", scene.log());
    }
}

/// A card sends a frame that is shorter than the shortest of Ethernet as long as that: what a machine
/// sends must not take more of the link for being in shorter frames.
#[test]
fn frames_shorter_than_any_count_as_the_shortest() {
    const MAXIMUM_BIT_S: f64 = 1e6;
    const SHORTEST_BITS: f64 = 60.0 * 8.0;
    let Some(mut scene) = scene("short", 1) else {
        return;
    };
    scene.unplug(0);
    let mut tap = scene.plug_tap(0);
    let file = scene.write(
        "agreements.toml",
        &[HEAD, &agreement(0, 1, "0.25", "1", "")].concat(),
    );
    scene.start(&file);
    let running = Arc::new(AtomicBool::new(true));
    let goes_on = running.clone();
    let sender = std::thread::spawn(move || {
        // A header of Ethernet with nothing in it.
        let frame = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5];
        while goes_on.load(Ordering::Relaxed) {
            tap.write_all(&frame).unwrap();
        }
    });
    scene.wait_for("drops", |snapshot| snapshot.holders[0].dropped_packets > 0);
    // However busy the machine is, more time has passed than between the two counts.
    let begun = std::time::Instant::now();
    let before = scene.sent_packets("10");
    std::thread::sleep(WHILE);
    let frames = scene.sent_packets("10") - before;
    let bit_s = frames as f64 * SHORTEST_BITS / begun.elapsed().as_secs_f64();
    assert!(
        bit_s <= MAXIMUM_BIT_S * (1.0 + ROOM),
        "{bit_s} bit/s of the link"
    );
    // The machine gets its minimum, which its frames alone would not add up to.
    let snapshot = scene.wait_for("two seconds of asking", |snapshot| {
        snapshot.holders[0].throttled_ns > 2_000_000_000
    });
    running.store(false, Ordering::Relaxed);
    sender.join().unwrap();
    assert_eq!(snapshot.holders[0].violations, 0, "{}", scene.log());
    scene.signal(Signal::SIGTERM);
    assert!(scene.wait());
}

/// Where the host itself takes a machine's packets apart, by VLAN for one, the kernel says that they
/// came by the interface of the part.
#[test]
fn what_enters_by_an_interface_upon_a_machines_own_belongs_to_the_machine() {
    const PACKETS: u64 = 50;
    let Some(mut scene) = scene("stacked", 2) else {
        return;
    };
    let stack = |scene: &Scene| {
        scene.ip("link set vif0 nomaster");
        scene.ip("link add link vif0 name part0 type macvlan mode passthru");
        scene.ip("link set part0 master br0");
        scene.ip("link set part0 up");
    };
    let send = |scene: &Scene| {
        let sender = scene.send(
            0,
            Box::new(|socket, _| {
                for _ in 0..PACKETS {
                    let _ = socket.send(&[0; 100]);
                }
            }),
        );
        drop(sender);
    };
    let text = [
        HEAD.to_string(),
        agreement(0, 1, "12", "20", ""),
        agreement(1, 2, "4", "40", ""),
    ];
    let file = scene.write("agreements.toml", &text.concat());
    stack(&scene);
    scene.start(&file);
    for round in 1..=2 {
        // The first packets may wait for an answer of ARP, and be dropped.
        let before = scene.sent_packets("10");
        let deadline = std::time::Instant::now() + Duration::from_secs(600);
        while scene.sent_packets("10") < before + PACKETS {
            assert!(
                std::time::Instant::now() < deadline,
                "round {round}: {}",
                scene.tc("-s class show dev up0")
            );
            send(&scene);
            std::thread::sleep(Duration::from_millis(20));
        }
        // An interface that comes while the daemon runs is one of the machine's, too.
        scene.ip("link delete part0");
        stack(&scene);
    }
    // An agreement about the upper interface itself goes before.
    let own = text
        .concat()
        .replace("interface = \"vif1\"", "interface = \"part0\"");
    scene.write("agreements.toml", &own);
    scene.wait_for("the reload", |snapshot| snapshot.reloads == 1);
    // What the first agreement's packets were before, they stay until they have left.
    scene.wait_until_quiet();
    let before = ["10", "11"].map(|class| scene.sent_packets(class));
    let deadline = std::time::Instant::now() + Duration::from_secs(600);
    let now = loop {
        send(&scene);
        let now = ["10", "11", "12"].map(|class| scene.sent_packets(class));
        if now[1] + now[2] >= before[1] + PACKETS || std::time::Instant::now() > deadline {
            break now;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(now[0], before[0], "{}", scene.tc("-s class show dev up0"));
    assert!(!scene.log().contains("ERROR"), "{}", scene.log());
    scene.signal(Signal::SIGTERM);
    assert!(scene.wait());
}

#[test]
fn ports_whose_packets_cannot_be_known_are_refused() {
    let Some(mut scene) = scene("ports", 3) else {
        return;
    };
    // A port of a bridge carries none of them.
    scene.ip("link set up0 nomaster");
    scene.ip("link add link up0 name tap9 type macvtap mode bridge");
    scene.ip("link add link up0 name part9 type macvlan mode bridge");
    let socket = scene.socket();
    let said = |text: &str, more: &[&str]| {
        let file = scene.write("agreements.toml", text);
        let mut words = vec!["run", file.to_str().unwrap()];
        words.extend(["--socket", socket.to_str().unwrap()]);
        words.extend(more);
        let output = scene.command(&words).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(!scene.tc("qdisc show dev up0").contains("htb"));
        String::from_utf8(output.stderr).unwrap()
    };
    for (from, to, words) in [
        ("\"vif2\"", "\"tap9\"", "`tap9` is a macvtap"),
        ("\"vif2\"", "\"part9\"", "`part9` is stacked on the link"),
        ("\"up0\"", "\"br0\"", "`vif2` is a port of the link"),
    ] {
        let text = three().replace(from, to);
        for more in [&[][..], &["--dry-run"]] {
            let said = said(&text, more);
            assert!(
                said.contains(words) && said.contains("agreements.toml:"),
                "{said}"
            );
        }
    }
    // One that comes later is left alone, with a word in the log.
    scene.ip("link delete tap9");
    let file = scene.write("agreements.toml", &three().replace("vif2", "tap9"));
    scene.start(&file);
    scene.ip("link add link up0 name tap9 type macvtap mode bridge");
    let deadline = std::time::Instant::now() + Duration::from_secs(600);
    while !scene.log().contains("is a macvtap") {
        assert!(std::time::Instant::now() < deadline, "{}", scene.log());
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(!scene.wait_for("a look", |_| true).holders[2].is_present);
    scene.signal(Signal::SIGTERM);
    assert!(scene.wait());
}
