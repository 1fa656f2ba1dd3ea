//! Packets through a simulated host: nothing is lost unaccounted for, queues behave as theory says, and every way in
//! which a host can be too slow shows where it should.

use laxity_run::{LOST, Outcome, Telephony};

/// Four CPUs, Dom0 with four VCPUs, a media server with two.
const HOST: &str = r#"
duration = "5 s"

[host]
cpus = 4
policy = "credit"
costs = "emsoft-2011"
network = "iptcomm-2009"

[[domain]]
name = "dom0"
vcpus = 4
workload = { kind = "driver" }

[[domain]]
name = "media"
vcpus = 2
workload = { kind = "media-server" }

[[domain]]
name = "signalling"
workload = { kind = "signalling-server" }

[[domain]]
name = "control"
workload = { kind = "call-control" }

[[domain]]
name = "batch"
vcpus = 4
workload = { kind = "cpu-bound", run = "40 ms", idle = "3 ms" }

[calls]
streams = 300
rate = "20 /s"
hold = "1 s"
through-media-server = "50 %"
media-server = "media"
signalling-server = "signalling"
call-control = "control"
"#;

fn run(overrides: &[&str]) -> Outcome {
    let host =
        laxity_host::load(HOST, "host.toml", overrides).unwrap_or_else(|error| panic!("{error}"));
    laxity_sim::run(&host, laxity_trace::Off)
        .expect("the policy takes it")
        .0
}

fn telephony(overrides: &[&str]) -> Telephony {
    run(overrides).result.telephony.expect("the host has calls")
}

/// A media server with its own card and nothing beside it, whose packets cost only `work`.
const ALONE: &str = r#"
duration = "20 s"

[host]
cpus = 1
policy = "credit"

[host.network]
relay = "10 us"

[[domain]]
name = "media"
workload = { kind = "media-server" }

[[nic]]
name = "eth0"
domain = "media"

[calls]
streams = 1
media-server = "media"
"#;

fn alone(overrides: &[&str]) -> Telephony {
    let host =
        laxity_host::load(ALONE, "host.toml", overrides).unwrap_or_else(|error| panic!("{error}"));
    let (outcome, _) = laxity_sim::run(&host, laxity_trace::Off).expect("the policy takes it");
    outcome.result.telephony.expect("the host has calls")
}

#[test]
fn every_packet_is_received_lost_somewhere_or_on_its_way() {
    let policies = (laxity_host::Policy::ALL.into_iter())
        .filter(|policy| policy.uses(laxity_host::Parameter::Cap));
    for (seed, policy) in (1..).zip(policies.map(laxity_host::Policy::name)) {
        let outcome = run(&[
            &format!("seed={seed}"),
            &format!("host.policy={policy}"),
            "domain.media.laxity=10 us",
            "domain.media.cap=30",
        ]);
        let telephony = outcome.result.telephony.expect("the host has calls");
        let voice = &telephony.voice;
        assert!(
            voice.lost > 0,
            "seed {seed}: a media server with 30 % of a CPU is too slow"
        );
        assert_eq!(
            voice.sent,
            voice.received + voice.lost + voice.on_their_way,
            "seed {seed}"
        );
        assert!(
            telephony.drops.total() >= voice.lost,
            "seed {seed}: {:?}",
            telephony.drops
        );
        assert_eq!(voice.delay_ns.count, voice.received, "seed {seed}");
        let calls = telephony.calls.expect("there is a signalling server");
        assert!(
            calls.answered + calls.failed <= calls.offered,
            "seed {seed}"
        );
        assert_eq!(calls.setup_ns.count, calls.answered, "seed {seed}");
    }
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_one_another() {
    let run = |seed: &str| {
        let mut outcome = run(&["duration=1 s", seed]);
        outcome.result.engine.wall_ns = 0;
        (
            serde_json::to_string(&outcome.result).expect("JSON"),
            outcome.kept,
        )
    };
    assert_eq!(run("seed=1"), run("seed=1"));
    assert_ne!(run("seed=1"), run("seed=2"));
}

#[test]
fn a_lone_packet_takes_its_wire_and_its_work() {
    let telephony = alone(&[]);
    let delay_ns = telephony.voice.delay_ns;
    // 238 bytes at 1 Gbit/s, twice; an interrupt and a reception of 1 ns, the least that a step takes.
    let expected_ns = 2 * 1_904 + 2 + 10_000;
    assert_eq!(
        (delay_ns.min, delay_ns.max),
        (Some(expected_ns), Some(expected_ns))
    );
    assert_eq!(telephony.voice.jitter_ns_max, Some(0));
    assert_eq!(telephony.voice.sent, 1000);
    assert_eq!(telephony.drops.total(), 0);
}

#[test]
fn many_streams_wait_for_each_other_as_in_a_queue_of_periodic_arrivals() {
    // 1,600 streams at random phases, 10 us each: 80 % of a CPU. Such arrivals wait less than Poisson arrivals would,
    // which wait rho / (2 (1 - rho)) services in the mean (Pollaczek and Khinchine), and no less than half of it at
    // this size.
    let busy = alone(&[
        "calls.streams=1600",
        "host.network.relay=10 us",
        "duration=2 s",
    ]);
    let delay_ns = busy.voice.delay_ns.mean.expect("packets");
    let wait_ns = delay_ns - (2.0 * 1_904.0 + 2.0 + 10_000.0);
    let poisson_ns = 0.8 / (2.0 * 0.2) * 10_000.0;
    assert!(
        (0.5..1.0).contains(&(wait_ns / poisson_ns)),
        "{wait_ns} of {poisson_ns}"
    );
}

#[test]
fn what_is_too_slow_shows_where_packets_are_dropped() {
    // A server that needs more than the CPU has: its sockets overflow, and it carries what fits.
    let slow = alone(&["calls.streams=200", "host.network.relay=200 us"]);
    assert!(
        slow.drops.socket > 0 && slow.drops.total() == slow.drops.socket,
        "{:?}",
        slow.drops
    );
    let carried = slow.voice.received as f64 / slow.voice.sent as f64;
    assert!((0.49..0.57).contains(&carried), "{carried}");
    // A driver domain without a CPU: the card's ring overflows.
    let starved = telephony(&["domain.dom0.cap=1", "duration=2 s"]);
    assert!(
        starved.drops.nic_receive > starved.drops.total() / 2,
        "{:?}",
        starved.drops
    );
    // A media server without a CPU: netback finds no room.
    let starved = telephony(&["domain.media.cap=1", "duration=2 s"]);
    assert!(
        starved.drops.netback > starved.drops.total() / 2,
        "{:?}",
        starved.drops
    );
    // A wire that is too thin.
    let thin = telephony(&[
        "calls.streams=500",
        "nic=[{ name = \"eth0\", rate = \"30 Mbit/s\" }]",
    ]);
    assert!(thin.drops.wire > thin.drops.total() / 2, "{:?}", thin.drops);
}

/// One VCPU handles the card: it has no time for all threads as well, and need not, as the other one has.
#[test]
fn threads_leave_the_vcpu_that_handles_the_card() {
    let overrides = [
        "host.cpus=2",
        "domain.media.vcpus=2",
        "host.network.receive='9 us'",
        "host.network.relay='18 us'",
        "calls.streams=800",
        "duration='5 s'",
    ];
    let telephony = alone(&overrides);
    assert_eq!(telephony.voice.lost, 0, "{:?}", telephony.drops);
}

#[test]
fn coalescing_saves_interrupts_and_costs_delay() {
    let nic = |coalesce: &str| {
        let nic = format!("nic=[{{ name = \"eth0\"{coalesce} }}]");
        telephony(&[&nic, "domain.batch.cap=1", "duration=2 s"])
    };
    let each = nic("");
    let few = nic(", coalesce = { time = \"80 us\", packets = 6 }");
    assert!(few.nics[0].interrupts < each.nics[0].interrupts * 2 / 3);
    assert!(few.voice.delay_ns.p50 > each.voice.delay_ns.p50);
}

#[test]
fn a_card_of_its_own_leaves_the_driver_domain_out() {
    let through = run(&["domain.batch.cap=1", "duration=2 s"]);
    let nics = "nic=[{ name = \"eth0\" }, { name = \"eth1\", domain = \"media\" }]";
    let past = run(&["domain.batch.cap=1", "duration=2 s", nics]);
    let dom0_ns = |outcome: &Outcome| outcome.result.domains[0].cpu_ns;
    assert!(dom0_ns(&past) * 5 < dom0_ns(&through));
    let delay_ns = |outcome: &Outcome| {
        outcome
            .result
            .telephony
            .as_ref()
            .expect("calls")
            .voice
            .delay_ns
            .p50
    };
    assert!(delay_ns(&past) < delay_ns(&through));
}

#[test]
fn calls_are_set_up_speak_and_end() {
    let outcome = run(&["domain.batch.cap=1", "duration=10 s", "calls.sample=1"]);
    let telephony = outcome.result.telephony.expect("calls");
    let calls = telephony.calls.expect("there is a signalling server");
    assert_eq!(
        (calls.offered, calls.failed, calls.retransmissions),
        (201, 0, 0)
    );
    assert!(calls.answered >= 199);
    // The disk takes 6 ms of it, messages the rest.
    assert!(calls.setup_ns.min > Some(6_000_000) && calls.setup_ns.max < Some(12_000_000));
    // Half of the calls, two streams each, for 1 s; and those that are always there.
    let of_calls = outcome.kept.iter().filter(|kept| kept.call.is_some());
    assert_eq!(telephony.voice.streams, 300 + 2 * (calls.answered / 2));
    assert!(telephony.voice.streams_most >= 320 && telephony.voice.streams_most <= 324);
    for kept in of_calls.filter(|kept| kept.start_ns < 7_000_000_000) {
        assert_eq!(kept.arrived_ns.len(), 50);
        for (sent_ns, &arrived_ns) in (kept.start_ns..).step_by(20_000_000).zip(&kept.arrived_ns) {
            assert!(arrived_ns != LOST && (0..1_000_000).contains(&(arrived_ns - sent_ns)));
        }
    }
}

#[test]
fn a_signalling_server_that_never_answers_fails_calls_after_seven_tries() {
    let telephony = telephony(&[
        "domain.signalling.workload.work=5 s",
        "calls.streams=1",
        "duration=60 s",
        "calls.rate=1 /s",
    ]);
    let calls = telephony.calls.expect("there is a signalling server");
    assert!(
        calls.failed > 0 && calls.retransmissions > 6 * calls.failed,
        "{calls:?}"
    );
}

/// Wire, as many servers as there are, one queue before them, wire: when each of some packets has left, in the order in
/// which they came, if each goes to the server that is free first (Lindley for one server, Kiefer and Wolfowitz for
/// several).
fn queue(sent_ns: &[i64], wire_ns: i64, work_ns: i64, servers: usize) -> Vec<i64> {
    let (mut wire, mut free, mut out) = (0, vec![0; servers], 0);
    let mut left_ns = Vec::new();
    for &sent_ns in sent_ns {
        wire = sent_ns.max(wire) + wire_ns;
        let first = free.iter_mut().min().expect("there are servers");
        *first = wire.max(*first) + work_ns;
        out = out.max(*first) + wire_ns;
        left_ns.push(out);
    }
    left_ns
}

#[test]
fn every_packet_leaves_when_a_queue_on_paper_lets_it_go() {
    let hosts = [
        (1, 50),
        (1, 400),
        (1, 800),
        (1, 990),
        (2, 400),
        (2, 990),
        (3, 990),
    ];
    for (seed, (vcpus, streams)) in (1..).zip(hosts) {
        let overrides = [
            format!("seed={seed}"),
            format!("calls.streams={streams}"),
            "calls.sample=1".into(),
            "duration=2 s".into(),
            format!("host.network.relay={} us", 18 * vcpus),
            format!("host.cpus={vcpus}"),
            format!("domain.media.vcpus={vcpus}"),
            // Those that are idle are where they were last, be that one busy or not.
            format!("domain.media.workload.threads={}", 3 * vcpus - 2),
        ];
        let host = laxity_host::load(ALONE, "host.toml", &overrides).expect("it is right");
        let (outcome, _) = laxity_sim::run(&host, laxity_trace::Off).expect("the policy takes it");
        // No more than 1,000 can be kept, and here all must be.
        let kept = &outcome.kept;
        assert_eq!(kept.len(), streams);
        let mut packets: Vec<(i64, i64)> = kept
            .iter()
            .flat_map(|kept| {
                (kept.start_ns..)
                    .step_by(20_000_000)
                    .zip(kept.arrived_ns.iter().copied())
            })
            .collect();
        packets.sort_unstable();
        let sent_ns: Vec<i64> = packets.iter().map(|(sent_ns, _)| *sent_ns).collect();
        let expected_ns = queue(&sent_ns, 1_904, 18_000 * vcpus as i64, vcpus);
        for ((_, arrived_ns), expected_ns) in packets.iter().zip(expected_ns) {
            // Interrupts and receptions of 1 ns each, of all that come meanwhile, and one more where one is
            // interrupted.
            let behind_ns = arrived_ns - expected_ns;
            assert!((0..2_000).contains(&behind_ns), "seed {seed}: {behind_ns}");
        }
    }
}

/// A stream through processes of the host's own kernel: every packet takes what its steps and its two wires take.
const NATIVE: &str = r#"
duration = "2 s"

[host]
cpus = 1
policy = "eevdf"
native = true

[host.network]
receive = "10 us"
wake-up-latency = "20 us"
socket-receive = "1 us"
relay = "2 us"
socket-send = "3 us"
after-send = "4 us"
interrupt = "100 us"
netback-receive = "100 us"
netfront-receive = "100 us"

[[domain]]
name = "kernel"
workload = { kind = "driver" }

[[domain]]
name = "media"
workload = { kind = "media-server", threads = 2 }

[calls]
streams = 1
media-server = "media"
"#;

#[test]
fn a_native_server_pays_for_its_own_steps_alone() {
    let run = |overrides: &[&str]| {
        let host = laxity_host::load(NATIVE, "host.toml", overrides)
            .unwrap_or_else(|error| panic!("{error}"));
        let outcome = laxity_sim::run(&host, laxity_trace::Off).expect("the policy takes it");
        outcome.0.result
    };
    let delays_ns = |result: &laxity_run::RunResult| {
        let voice = &result.telephony.as_ref().expect("it has calls").voice;
        assert_eq!(voice.lost, 0);
        (voice.delay_ns.min, voice.delay_ns.max)
    };
    let result = run(&[]);
    // 172 octets, their headers and what a frame has around it, there and back.
    let wire_ns = 2 * (172 + 42 + 24) * 8;
    let expected = Some(36_000 + wire_ns);
    assert_eq!(delays_ns(&result), (expected, expected));
    let packets = result.telephony.as_ref().expect("it has calls").voice.sent as i64;
    let used_ns: Vec<i64> = result.domains.iter().map(|domain| domain.cpu_ns).collect();
    assert_eq!(used_ns[0], 0, "the kernel's work is no domain's");
    assert!(
        (0..=10_000).contains(&(packets * 10_000 - used_ns[1])),
        "{used_ns:?}"
    );
    // A thread that is at work finds the next packet without being woken.
    let busy = run(&["calls.streams=600", "host.network.relay=16 us"]);
    let waking = run(&[
        "calls.streams=600",
        "host.network.relay=16 us",
        "host.network.wake-up-latency=0 us",
    ]);
    let mean_ns = |result: &laxity_run::RunResult| {
        let voice = &result.telephony.as_ref().expect("it has calls").voice;
        voice.delay_ns.mean.expect("packets came")
    };
    let more_ns = mean_ns(&busy) - mean_ns(&waking);
    assert!((0.0..20_000.0).contains(&more_ns), "{more_ns}");
}
