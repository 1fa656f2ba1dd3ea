//! Protection by checkpoint in a simulated host: what leaves when, what a failure takes, and that nothing is lost
//! unaccounted for.

use laxity_run::{LOST, Outcome, ProtectionResult, Telephony};

const MS: i64 = 1_000_000;

/// A media server and a signalling server; packets cost what next to nothing does.
const HOST: &str = r#"
duration = "4 s"

[host]
cpus = 4
policy = "credit"
network = { relay = "2 us", signalling = "50 us", disk-latency = "1 ms" }

[[domain]]
name = "dom0"
vcpus = 2
affinity = [0, 1]
workload = { kind = "driver" }

[[domain]]
name = "media"
affinity = [2]
workload = { kind = "media-server" }

[[domain]]
name = "signalling"
affinity = [3]
workload = { kind = "signalling-server" }

[calls]
streams = 40
sample = 1
media-server = "media"
signalling-server = "signalling"
"#;

/// 2 ms of pause and 256 pages: 8.39 ms on the link to the standby.
const PROTECT: &str = r#"
[protect]
pause = "2 ms"
checkpoint = "1 ms"
acknowledgement = "200 us"
domains = [{ domain = "media", interval = "50 ms" }]
"#;

fn run(text: &str, overrides: &[&str]) -> Outcome {
    let host =
        laxity_host::load(text, "host.toml", overrides).unwrap_or_else(|error| panic!("{error}"));
    laxity_sim::run(&host, laxity_trace::Off)
        .expect("the policy takes it")
        .0
}

fn telephony(outcome: &Outcome) -> &Telephony {
    outcome
        .result
        .telephony
        .as_ref()
        .expect("the host has calls")
}

fn protection(outcome: &Outcome) -> &ProtectionResult {
    &telephony(outcome).protection[0]
}

fn protected(overrides: &[&str]) -> Outcome {
    run(&format!("{HOST}{PROTECT}"), overrides)
}

/// Every packet of a run: its stream and number, when it was sent, and when it arrived.
fn packets(outcome: &Outcome) -> impl Iterator<Item = ((u64, usize), i64, i64)> {
    outcome.kept.iter().flat_map(|stream| {
        let sent_ns = move |number: usize| stream.start_ns + 20 * MS * number as i64;
        let arrived = stream.arrived_ns.iter().enumerate();
        arrived.map(move |(number, &at_ns)| ((stream.stream, number), sent_ns(number), at_ns))
    })
}

fn assert_all_is_accounted_for(outcome: &Outcome) {
    let telephony = telephony(outcome);
    let voice = &telephony.voice;
    assert_eq!(telephony.drops.total(), voice.lost, "{:?}", telephony.drops);
    assert_eq!(voice.sent, voice.received + voice.lost + voice.on_their_way);
    for each in &telephony.protection {
        let ProtectionResult {
            held,
            released,
            lost,
            waiting,
            ..
        } = *each;
        assert_eq!(held, released + lost + waiting, "{each:?}");
        // A packet on its way waits for its checkpoint, or is in the hands of a VCPU or on a wire.
        assert!(voice.on_their_way <= waiting + 8, "{voice:?} {each:?}");
    }
}

/// A checkpoint of 256 pages on the link to the standby, at 1 Gbit/s.
const CARRIED_NS: i64 = 256 * 4096 * 8;

/// When the checkpoints begin, stop and are acknowledged, as one computes it by hand.
fn epochs(interval_ns: i64) -> impl Iterator<Item = (i64, i64, i64)> {
    (1..).map(move |number| {
        let began_ns = number * interval_ns;
        let resumed_ns = began_ns + 2 * MS;
        let acknowledged_ns = resumed_ns + MS.max(CARRIED_NS) + MS / 5;
        (began_ns, resumed_ns, acknowledged_ns)
    })
}

/// What a packet takes without protection, at most: wires, steps and switches, and packets of other streams.
const WAY_NS: i64 = MS / 2;

#[test]
fn in_net_mode_a_packet_leaves_when_the_checkpoint_of_its_epoch_is_acknowledged() {
    // At most 220 packets at a time: the card's ring holds 256.
    for interval_ms in [20, 50, 110] {
        let interval = format!("protect.domains.0.interval=\"{interval_ms} ms\"");
        let outcome = protected(&[&interval]);
        assert_all_is_accounted_for(&outcome);
        let mut looked_at = 0;
        for (_, sent_ns, arrived_ns) in packets(&outcome) {
            // It is put out as it comes, unless the domain stands still. A packet that comes within a packet's way of
            // the beginning of a checkpoint may be in either epoch.
            let near = |(began_ns, resumed_ns, _): &(i64, i64, i64)| {
                (began_ns - WAY_NS..=resumed_ns + WAY_NS).contains(&sent_ns)
            };
            let next = |(began_ns, ..): &(i64, i64, i64)| *began_ns > sent_ns;
            let interval_ns = interval_ms * MS;
            let one = epochs(interval_ns).take(1000).any(|epoch| near(&epoch));
            let (.., acknowledged_ns) = epochs(interval_ns).find(next).expect("endless");
            if one || arrived_ns == LOST || sent_ns > 3_700 * MS {
                continue;
            }
            looked_at += 1;
            let after_ns = arrived_ns - acknowledged_ns;
            assert!(
                (0..WAY_NS).contains(&after_ns),
                "{interval_ms} ms: sent at {sent_ns}, arrived {after_ns} ns after the acknowledgement"
            );
        }
        assert!(looked_at > 4_000, "{looked_at}");
        assert_eq!(telephony(&outcome).voice.lost, 0);
    }
}

#[test]
fn in_no_net_mode_a_packet_waits_for_the_pause_alone() {
    let outcome = protected(&["protect.domains.0.mode=\"no-net\""]);
    assert_all_is_accounted_for(&outcome);
    assert_eq!(protection(&outcome).held, 0);
    let mut waited = 0;
    for (_, sent_ns, arrived_ns) in packets(&outcome) {
        if sent_ns > 3_900 * MS {
            continue;
        }
        let still = epochs(50 * MS)
            .take_while(|(began_ns, ..)| *began_ns <= sent_ns + WAY_NS)
            .find(|(_, resumed_ns, _)| sent_ns <= *resumed_ns);
        let from_ns = still.map_or(sent_ns, |(_, resumed_ns, _)| resumed_ns.max(sent_ns));
        waited += u64::from(from_ns > sent_ns);
        assert!(
            arrived_ns - from_ns < WAY_NS,
            "sent at {sent_ns}, arrived at {arrived_ns}"
        );
    }
    assert!(waited > 100, "{waited}");
}

#[test]
fn a_domain_stands_still_as_long_as_its_pages_say() {
    let costs = [
        "protect.page-pause=\"1 us\"",
        "protect.domains.0.pages-per-packet=2",
    ];
    let outcome = protected(&[&costs[..], &["calls.streams=100"]].concat());
    assert_all_is_accounted_for(&outcome);
    let found = protection(&outcome);
    // 100 streams: 5,000 packets a second, and 250 an epoch of 50 ms.
    let expected = found.checkpoints * (256 + 2 * 250);
    assert!(
        found.checkpoints == 80 && found.pages.abs_diff(expected) < expected / 100,
        "{found:?}"
    );
    let pause_ns = found.checkpoints as i64 * 2 * MS + 1_000 * found.pages as i64;
    assert_eq!(found.paused_ns, pause_ns);
    // More than all of its memory does not change.
    let small = protected(&[&costs[..], &["protect.domains.0.memory=\"1200 KiB\""]].concat());
    let found = protection(&small);
    assert_eq!(found.pages, found.checkpoints * 300, "{found:?}");
}

#[test]
fn a_standby_that_is_too_slow_makes_epochs_longer() {
    // 256 pages take 83.9 ms.
    let outcome = protected(&["protect.rate=\"100 Mbit/s\""]);
    assert_all_is_accounted_for(&outcome);
    let found = protection(&outcome);
    assert_eq!(
        found.acknowledged_after_ns_max,
        2 * MS + 256 * 4096 * 80 + MS / 5
    );
    assert_eq!(found.checkpoints, (4_000 - 50) / 87 + 1);
}

#[test]
fn the_driver_domain_copies_and_others_wait_for_it() {
    let costs = ["protect.checkpoint=\"20 ms\"", "domain.dom0.vcpus=1"];
    let without = run(HOST, &costs[1..]);
    let outcome = protected(&costs);
    assert_all_is_accounted_for(&outcome);
    let used_ns = |outcome: &Outcome| outcome.result.domains[0].cpu_ns;
    let copied_ns = protection(&outcome).acknowledged as i64 * 20 * MS;
    let more_ns = used_ns(&outcome) - used_ns(&without);
    assert!(
        (more_ns - copied_ns).abs() < 60 * MS,
        "{more_ns} {copied_ns}"
    );
}

#[test]
fn a_failure_takes_what_was_not_released_and_the_outage() {
    const AT_NS: i64 = 1_999 * MS;
    // The last that the standby hears is a heartbeat.
    const HEARD_NS: i64 = 1_980 * MS;
    for (mode, first_lost_ns) in [
        // The checkpoint of 1,950 ms has been acknowledged: what was put out since then is lost.
        ("net", 1_950 * MS),
        ("no-net", AT_NS),
    ] {
        let mode = format!("protect.domains.0.mode=\"{mode}\"");
        let failure =
            "protect.failure={ at = \"1999 ms\", detection = \"300 ms\", activation = \"4 ms\" }";
        let outcome = protected(&[&mode, failure]);
        assert_all_is_accounted_for(&outcome);
        let end_ns = HEARD_NS + 304 * MS;
        let mut lost = 0;
        for (packet, sent_ns, arrived_ns) in packets(&outcome) {
            if (first_lost_ns + 3 * MS..end_ns - WAY_NS).contains(&sent_ns) {
                assert_eq!(arrived_ns, LOST, "{packet:?} sent at {sent_ns}");
            } else if sent_ns < first_lost_ns - WAY_NS || (end_ns..3_700 * MS).contains(&sent_ns) {
                assert_ne!(arrived_ns, LOST, "{packet:?} sent at {sent_ns}");
            }
            lost += u64::from(arrived_ns == LOST && sent_ns < 3_700 * MS);
        }
        // Each stream loses what was sent meanwhile, within one packet.
        let each = (end_ns - first_lost_ns) / (20 * MS);
        assert!(lost.abs_diff(40 * each as u64) <= 40, "{lost}, {each} each");
        assert_eq!(
            telephony(&outcome).drops.failure,
            telephony(&outcome).voice.lost
        );
        assert_eq!(protection(&outcome).outage_ns, Some(end_ns - AT_NS));
        // Afterwards nothing is held.
        assert_eq!(protection(&outcome).waiting, 0);
    }
}

#[test]
fn in_no_net_mode_the_standby_waits_until_the_lease_has_run_out() {
    // Two intervals, and the drift of clocks, from the acknowledgement of the checkpoint of 1,600 ms on.
    let promised_ns = 1_602 * MS + CARRIED_NS;
    let waits_ns = 800 * MS + 800 * MS * 200 / 1_000_000 + 1;
    let outcome = protected(&[
        "protect.domains.0.mode=\"no-net\"",
        "protect.domains.0.interval=\"400 ms\"",
        "protect.failure={ at = \"1999 ms\" }",
    ]);
    let outage_ns = promised_ns + waits_ns + 4 * MS - 1_999 * MS;
    assert_eq!(protection(&outcome).outage_ns, Some(outage_ns));
    // With a short one it does not wait for it.
    let outcome = protected(&[
        "protect.domains.0.mode=\"no-net\"",
        "protect.failure={ at = \"2 s\" }",
    ]);
    assert_eq!(protection(&outcome).outage_ns, Some(304 * MS));
}

#[test]
fn a_run_that_ends_with_its_failure_is_the_beginning_of_one_that_goes_on() {
    for mode in ["net", "no-net"] {
        // A lease of 300 ms, that of a host without a failure, would end before it is renewed.
        let run = |others: &[&str]| {
            let mode = format!("protect.domains.0.mode=\"{mode}\"");
            let outcome = protected(&[&["protect.rate=\"20 Mbit/s\"", &*mode], others].concat());
            let early = packets(&outcome).filter(|&(_, sent_ns, _)| sent_ns < 2_900 * MS);
            let arrived_ns: Vec<i64> = early.map(|(_, _, arrived_ns)| arrived_ns).collect();
            (outcome, arrived_ns)
        };
        let failure = "protect.failure={ at = \"4 s\", detection = \"600 ms\" }";
        let (short, of_short) = run(&[failure]);
        let (long, of_long) = run(&[failure, "duration=\"6 s\""]);
        assert_eq!(of_short, of_long);
        assert_eq!(telephony(&short).drops.failure, 0);
        assert_eq!(protection(&short).outage_ns, None);
        assert!(telephony(&long).drops.failure > 0);
        let (_, of_other) = run(&[]);
        assert_eq!(of_short == of_other, mode == "net");
    }
}

#[test]
fn in_no_net_mode_output_ends_with_a_lease_that_is_not_renewed() {
    // A checkpoint takes 419 ms to the standby, and a lease lasts about as long as the detection of a failure, 300 ms.
    let outcome = protected(&[
        "protect.rate=\"20 Mbit/s\"",
        "protect.domains.0.mode=\"no-net\"",
    ]);
    assert_all_is_accounted_for(&outcome);
    let lost = telephony(&outcome).drops.held;
    for (packet, sent_ns, arrived_ns) in packets(&outcome) {
        // The lease of the run's first checkpoint: the next one is acknowledged when its own is over.
        if !(290 * MS..=310 * MS).contains(&sent_ns) && sent_ns < 3_900 * MS {
            assert_eq!(
                arrived_ns != LOST,
                sent_ns < 300 * MS,
                "{packet:?} at {sent_ns}"
            );
        }
    }
    assert!(lost > 40 * 50 * 3, "{lost}");
}

#[test]
fn a_checkpoint_that_the_standby_has_is_not_forgotten_though_its_acknowledgement_never_came() {
    let text = format!(
        "{}\nregistrations = \"1000 /s\"\n{}",
        HOST.replace("streams = 40\n", ""),
        PROTECT.replace("\"media\"", "\"signalling\"")
    );
    let forgotten = |at_ms: u32| {
        let failure = format!("protect.failure={{ at = \"{at_ms} ms\" }}");
        let overrides = [
            "protect.domains.0.mode=\"no-net\"",
            "protect.acknowledgement=\"20 ms\"",
            &failure,
        ];
        protection(&run(&text, &overrides)).forgotten
    };
    // The end of the checkpoint of 2,000 ms comes at 2,010.4, its acknowledgement at 2,030.4.
    for (at_ms, expected) in [(2_009, 59), (2_012, 12), (2_029, 29), (2_032, 32)] {
        let found = forgotten(at_ms);
        assert!(found.abs_diff(expected) <= 2, "{at_ms} ms: {found}");
    }
}

/// Users who register through a failure.
fn registrations(mode: &str, transport: &str, seed: u32) -> Outcome {
    let text = format!(
        "{}\nregistrations = \"1000 /s\"\n{}",
        HOST.replace("streams = 40\n", ""),
        PROTECT.replace("\"media\"", "\"signalling\"")
    );
    run(
        &text,
        &[
            "duration=\"8 s\"",
            &format!("seed={seed}"),
            &format!("calls.registration-transport={transport:?}"),
            &format!("protect.domains.0.mode={mode:?}"),
            "protect.failure={ at = \"2030 ms\" }",
        ],
    )
}

#[test]
fn every_user_is_registered_through_a_failure_and_in_net_mode_none_is_forgotten() {
    for transport in ["udp", "tcp", "tcp-each"] {
        for mode in ["net", "no-net"] {
            let outcome = registrations(mode, transport, 3);
            let found = telephony(&outcome)
                .registrations
                .as_ref()
                .expect("they come");
            assert_eq!(found.failed, 0);
            // The last ones have not been answered.
            assert!(
                found.offered == 8_001 && found.succeeded > 7_800,
                "{found:?}"
            );
            // The standby hears the end of the checkpoint of 2,000 ms, and nothing after it.
            assert!(found.retransmissions >= 284, "{found:?}");
            let forgotten = protection(&outcome).forgotten;
            if mode == "net" {
                assert_eq!(forgotten, 0, "{transport}");
            } else {
                // Since the checkpoint of 2,000 ms, which was acknowledged, at 1,000 a second.
                assert!(forgotten.abs_diff(30) <= 2, "{transport}: {forgotten}");
            }
        }
    }
}

#[test]
fn a_connection_each_takes_nine_segments() {
    let packets = |transport: &str| {
        let text = HOST.replace("streams = 40\n", "");
        let transport = format!("calls.registration-transport={transport:?}");
        let text = format!("{text}\nregistrations = \"1000 /s\"\n");
        let outcome = run(&text, &[&transport]);
        let nic = &telephony(&outcome).nics[0];
        (nic.received + nic.sent) as f64 / 4_000.0
    };
    for (transport, expected) in [("udp", 2.0), ("tcp", 3.0), ("tcp-each", 9.0)] {
        let found = packets(transport);
        assert!((found - expected).abs() < 0.02, "{transport}: {found}");
    }
}
