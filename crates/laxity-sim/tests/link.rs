//! Agreements about the link in a simulated host: minima and maxima hold, what is too much is dropped in the guest, and
//! nothing is lost unaccounted for.

use laxity_run::{AgreementResult, InterfaceResult, NetworkResult, Outcome, Telephony};

/// A media server with calls beside two virtual machines that send, together more than the card carries.
const HOST: &str = r#"
duration = "2 s"

[host]
cpus = 4
policy = "credit"
# As cheap as a card of 1 Gbit/s needs it.
network = { interrupt = "1 us", receive = "1 us", transmit = "500 ns", netback-receive = "1 us", netback-transmit = "1 us", netfront-receive = "500 ns", netfront-transmit = "500 ns", socket-receive = "500 ns", socket-send = "1 us", relay = "2 us", look = "20 us" }

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
name = "web"
affinity = [2]
workload = { kind = "sender", rate = "700 Mbit/s" }

[[domain]]
name = "batch"
affinity = [3]
workload = { kind = "sender", rate = "700 Mbit/s" }

[[nic]]
name = "eth0"
ring = 2048        # with the queue before it: what netback takes in a window comes at once

[calls]
streams = 400
media-server = "media"
"#;

const LINK: &str = r#"
[link]
rate = "950 Mbit/s"
agreements = [
    { domain = "media", class = 1, minimum = "60 Mbit/s", maximum = "200 Mbit/s" },
    { domain = "web", class = 2, minimum = "300 Mbit/s", maximum = "900 Mbit/s" },
    { domain = "batch", class = 3, maximum = "250 Mbit/s" },
]
"#;

const FRAME_BITS: u64 = 1514 * 8;

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

fn interface<'o>(outcome: &'o Outcome, domain: &str) -> &'o InterfaceResult {
    let mut interfaces = telephony(outcome).interfaces.iter();
    interfaces
        .find(|each| each.domain == domain)
        .expect("it has an interface")
}

fn cpu_ns(outcome: &Outcome, domain: &str) -> i64 {
    let mut domains = outcome.result.domains.iter();
    domains
        .find(|each| each.name == domain)
        .expect("it is there")
        .cpu_ns
}

/// Rate of a sender over the 2 s, in Mbit/s.
fn mbit_s(outcome: &Outcome, domain: &str) -> u64 {
    interface(outcome, domain).sent * FRAME_BITS / 2 / 1_000_000
}

#[test]
fn calls_have_their_minimum_beside_senders_and_do_not_without_a_link() {
    let with = run(&format!("{HOST}{LINK}"), &[]);
    let voice = &telephony(&with).voice;
    assert!(voice.received > 0);
    assert_eq!((voice.lost, telephony(&with).drops.nic_transmit), (0, 0));
    // 950 less what calls send (34) and batch's maximum.
    assert!(
        (640..=670).contains(&mbit_s(&with, "web")),
        "{}",
        mbit_s(&with, "web")
    );
    assert!(
        (240..=252).contains(&mbit_s(&with, "batch")),
        "{}",
        mbit_s(&with, "batch")
    );

    let without = run(HOST, &[]);
    assert!(telephony(&without).voice.loss_ratio > 0.05);
    assert!(interface(&without, "media").dropped_at_card > 0);
    // What is dropped in the guest does not cost the driver domain anything.
    assert!(cpu_ns(&with, "dom0") < cpu_ns(&without, "dom0") * 9 / 10);
}

#[test]
fn every_packet_of_a_guest_is_somewhere() {
    for (seed, link) in (1..).zip(["", LINK, "", LINK]) {
        for cap in ["0", "60"] {
            let overrides = [
                format!("seed={seed}"),
                format!("domain.dom0.cap={cap}"),
                format!("domain.web.workload.size=\"{} B\"", 64 << seed),
                "duration=\"300 ms\"".to_string(),
            ];
            let overrides: Vec<&str> = overrides.iter().map(String::as_str).collect();
            let outcome = run(&format!("{HOST}{link}"), &overrides);
            let drops = &telephony(&outcome).drops;
            for each in &telephony(&outcome).interfaces {
                let gone = each.dropped_in_guest + each.dropped_at_card + each.sent;
                // In the ring, the queue before it, and netback's hands.
                let on_their_way = each.offered - gone;
                assert!(on_their_way <= 256 + 1_000 + 1, "seed {seed}: {each:?}");
            }
            let sum = |of: fn(&InterfaceResult) -> u64| -> u64 {
                telephony(&outcome).interfaces.iter().map(of).sum()
            };
            assert_eq!(
                sum(|each| each.dropped_in_guest),
                drops.netfront,
                "seed {seed}"
            );
            assert_eq!(
                sum(|each| each.dropped_at_card),
                drops.nic_transmit,
                "seed {seed}"
            );
        }
    }
}

#[test]
fn a_sender_alone_gets_its_maximum_and_no_more() {
    let text = format!("{HOST}{LINK}");
    for (maximum, expected) in [("50 Mbit/s", 50), ("300 Mbit/s", 300)] {
        let outcome = run(
            &text,
            &[
                &format!("link.agreements.2.maximum=\"{maximum}\""),
                "domain.web.workload.rate=\"1 Mbit/s\"",
            ],
        );
        let found = mbit_s(&outcome, "batch");
        // A burst of 128 KiB may come on top.
        assert!(
            (expected * 97 / 100..=expected + 2).contains(&found),
            "{found}"
        );
    }
}

#[test]
fn a_driver_domain_without_a_cpu_looks_late_and_credit_holds() {
    // What dom0 has left of a CPU is too little to carry what is allowed, and looks are missed.
    let outcome = run(&format!("{HOST}{LINK}"), &["domain.dom0.cap=20"]);
    assert!(mbit_s(&outcome, "batch") <= 252);
}

/// The host without calls and without whom they go through, and a task beside its senders.
fn without_calls() -> String {
    let (_, calls) = HOST.split_once("[calls]").expect("it has calls");
    let media = "workload = { kind = \"media-server\" }";
    let tasks = "tasks = [{ name = \"loop\", cost = \"1 ms\", period = \"10 ms\" }]";
    HOST.replace(&format!("[calls]{calls}"), "")
        .replace(media, tasks)
}

fn network(outcome: &Outcome) -> &NetworkResult {
    assert!(outcome.result.telephony.is_none() && outcome.kept.is_empty());
    let network = outcome.result.network.as_ref();
    network.expect("the host sends, and has no calls")
}

/// Agreements of the two senders on 900 Mbit/s.
const SENDERS: &str = r#"
[link]
rate = "900 Mbit/s"
agreements = [
    { domain = "batch", class = 2, minimum = "100 Mbit/s", maximum = "250 Mbit/s" },
    { domain = "web", class = 1, minimum = "600 Mbit/s", maximum = "650 Mbit/s" },
]
"#;

#[test]
fn agreements_are_held_without_calls() {
    let outcome = run(&format!("{}{SENDERS}", without_calls()), &[]);
    let network = network(&outcome);
    let [batch, web] = &network.agreements[..] else {
        panic!("{:?}", network.agreements);
    };
    assert_eq!((&*batch.domain, &*web.domain), ("batch", "web"));
    assert!(batch.is_held && web.is_held, "{:?}", network.agreements);
    let mbit_s = |each: &AgreementResult| each.sent_bit_s / 1_000_000;
    // Both have their maxima.
    assert!((240..=252).contains(&mbit_s(batch)), "{batch:?}");
    assert!((630..=652).contains(&mbit_s(web)), "{web:?}");
    assert_eq!(network.drops.nic_transmit, 0);
    let sent: u64 = network.interfaces.iter().map(|each| each.sent).sum();
    assert_eq!(network.nics[0].sent, sent);
    // The task beside the senders has all its jobs.
    assert_eq!(outcome.result.domains[1].jobs, 200);
}

#[test]
fn an_agreement_that_is_not_held_is_reported() {
    // The card carries less than the link was said to.
    let overrides = ["nic.0.rate=\"500 Mbit/s\""];
    let outcome = run(&format!("{}{SENDERS}", without_calls()), &overrides);
    let agreements = &network(&outcome).agreements;
    assert!(
        agreements.iter().any(|each| !each.is_held),
        "{agreements:?}"
    );
}

#[test]
fn senders_without_calls_and_link_fill_the_card() {
    let outcome = run(&without_calls(), &[]);
    let network = network(&outcome);
    assert!(network.agreements.is_empty());
    assert!(network.drops.nic_transmit > 0);
    let sent = |at: usize| network.interfaces[at].sent * FRAME_BITS / 2 / 1_000_000;
    // Both offer 700 Mbit/s to a card of 1 Gbit/s, which also carries what is around each frame.
    let sum = sent(0) + sent(1);
    assert!((960..=1_000).contains(&sum), "{sum}");
}

#[test]
fn senders_send_at_their_rate() {
    let outcome = run(HOST, &["domain.web.workload.rate=\"123 Mbit/s\""]);
    for (domain, mbit_s) in [("web", 123), ("batch", 700)] {
        let expected = 2 * mbit_s * 1_000_000 / FRAME_BITS;
        let offered = interface(&outcome, domain).offered;
        // The packets that its socket holds may wait at the end; intervals are whole nanoseconds.
        let room = 130 + expected / 10_000;
        assert!(
            offered.abs_diff(expected) <= room,
            "{domain}: {offered}, not {expected}"
        );
    }
}

#[test]
fn what_is_dropped_in_the_guest_costs_it_a_system_call() {
    let text = format!("{HOST}{LINK}");
    let outcome = run(&text, &["domain.batch.workload.rate=\"400 Mbit/s\""]);
    let batch = interface(&outcome, "batch");
    assert!(batch.dropped_in_guest > batch.offered / 4, "{batch:?}");
    // 1 us for the socket, and for netfront 0.5 us only of what goes there.
    let expected = batch.offered * 1_000 + (batch.offered - batch.dropped_in_guest) * 500;
    let found = cpu_ns(&outcome, "batch") as u64;
    assert!(
        found.abs_diff(expected) <= expected / 200,
        "{found}, not {expected}"
    );
}

#[test]
fn looks_cost_the_driver_domain_their_time() {
    let text = format!("{HOST}{LINK}");
    // The packets are few enough that it does not matter how many come at once.
    let quiet = [
        "calls.streams=1",
        "domain.batch.workload.rate=\"1 Mbit/s\"",
        "domain.web.workload.rate=\"1 Mbit/s\"",
    ];
    let driver_ns = |look: &str| {
        let text = text.replace("look = \"20 us\"", &format!("look = \"{look}\""));
        cpu_ns(&run(&text, &quiet), "dom0")
    };
    // 199 looks in 2 s, at three domains.
    let expected = 199 * 3 * 400_000;
    let found = driver_ns("420 us") - driver_ns("20 us");
    assert!(
        (found - expected).abs() <= expected / 50,
        "{found}, not {expected}"
    );
}
