//! Why packets of voice and messages of registrations were late or lost, and domains out, on random hosts with calls.
//!
//! The packets are those that the run's own record of streams has late or lost, and arrive when that says. Each one's
//! causes sum to its lateness and its delays to its time on the way; the work on a packet that arrived is what the host
//! file says. Messages are late or lost exactly where phones sent them again, but for lost ones that another copy made
//! up for; and an outage lasts for as long as the run says. For some of each host the slow reference finds the same
//! parts.

use crate::reference::{self, Lines};
use crate::{file, trace};
use laxity_host::{ANSWER_WAITS_NS, Host, Policy};
use laxity_run::{LOST, Outcome};
use laxity_trace::{Kind, Metadata, Place, Reader, Record, text};
use laxity_trials::{Draw, seeds};
use laxity_why::{Account, Cause, Fate, Packet, Question, Subject, Watch, why};
use std::collections::{BTreeMap, BTreeSet};

/// Packets of each host that the reference explains, too.
const REFERENCED_PACKETS: usize = 3;

/// What is sent so long before the end or earlier is in the run's record of streams.
const RECORDED_NS: i64 = 1_000_000_000;

/// Between two packets of a stream.
const INTERVAL_NS: i64 = 20_000_000;

/// What a packet costs, in ns: a card with the bridge, netback with netfront and the thread, and out again.
const NETWORK: &str = r#"{ interrupt = "2 us", receive = "3 us", transmit = "2 us", netback-receive = "4 us",
    netback-transmit = "5 us", netfront-receive = "3 us", netfront-transmit = "2 us", socket-receive = "4 us",
    socket-send = "3 us", relay = "40 us" }"#;
const WORK_NS: i64 = 66_000;
/// Netfront's part of it, outwards.
const NETFRONT_NS: i64 = 2_000;
/// What a message of a registration costs beside that, in place of the relay's cost.
const SIGNALLING_NS: i64 = 2_000_000;
const MESSAGE_WORK_NS: i64 = WORK_NS - 40_000 + SIGNALLING_NS;
/// The same without the driver domain.
const BYPASS_WORK_NS: i64 = 52_000;

/// A random host with calls; `None` if its policy takes no such host.
fn host(seed: u64) -> Option<(Host, bool)> {
    let mut draw = Draw::new(seed);
    let policy = Policy::ALL[seed as usize % Policy::ALL.len()].name();
    let cpus = 1 + draw.below(3);
    let bypasses = draw.below(5) == 0;
    let nic = match (bypasses, draw.below(3)) {
        (true, _) => "domain = \"media\"",
        (false, 0) => "ring = 8",
        (false, 1) => "coalesce = { time = \"3 ms\", packets = 40 }\nrate = \"20 Mbit/s\"",
        (false, _) => "",
    };
    let costs = draw.one_of(&[
        "",
        "costs = { schedule = \"2 us\", context-switch = \"5 us\" }",
    ]);
    let mut more = String::new();
    if !bypasses && draw.below(3) == 0 {
        let mode = draw.one_of(&["net", "no-net"]);
        more += &format!(
            "[protect]\npause = \"2 ms\"\ncheckpoint = \"1 ms\"\nacknowledgement = \"1 ms\"\n\
             domains = [{{ domain = \"media\", mode = \"{mode}\", interval = \"15 ms\", held = 40 }}]\n",
        );
        if draw.below(3) == 0 {
            more += "failure = { at = \"60 ms\", detection = \"30 ms\" }\n";
        }
    } else if !bypasses && draw.below(3) == 0 {
        more += "[link]\nrate = \"100 Mbit/s\"\n\
                 agreements = [{ domain = \"media\", class = 1, maximum = \"4 Mbit/s\" }]\n";
    }
    let (streams, threads) = (20 + draw.below(180), 1 + draw.below(4));
    let (media_vcpus, limit_ms) = (1 + draw.below(2), 1 + draw.below(12));
    let busy = draw.one_of(&["", "run = \"7 ms\", idle = \"3 ms\""]);
    let separator = if busy.is_empty() { "" } else { ", " };
    let cap = draw.one_of(&["", "cap = 20", "weight = 64"]);
    let (mut signalling, mut registrations) = (String::new(), String::new());
    if !bypasses && draw.below(3) == 0 {
        signalling = format!(
            "[[domain]]\nname = \"sip\"\nbudget = \"1 ms\"\nperiod = \"12 ms\"\n\
             workload = {{ kind = \"signalling-server\", work = \"{SIGNALLING_NS} ns\", \
             threads = {} }}\n",
            1 + draw.below(3)
        );
        registrations = format!(
            "registrations = \"{} /s\"\nsignalling-server = \"sip\"",
            100 + draw.below(700)
        );
        more = more.replace(
            "held = 40 }]",
            "held = 40 }, { domain = \"sip\", interval = \"10 ms\", held = 60 }]",
        );
    }
    let text = format!(
        r#"
duration = "1149.9 ms"
seed = {seed}
[host]
cpus = {cpus}
policy = "{policy}"
{costs}
network = {NETWORK}
[[nic]]
name = "eth0"
{nic}
[[domain]]
name = "dom0"
budget = "2 ms"
period = "10 ms"
{cap}
workload = {{ kind = "driver" }}
[[domain]]
name = "media"
vcpus = {media_vcpus}
budget = "2 ms"
period = "11 ms"
workload = {{ kind = "media-server", threads = {threads} }}
[[domain]]
name = "busy"
budget = "3 ms"
period = "9 ms"
workload = {{ kind = "cpu-bound"{separator}{busy} }}
{signalling}
[calls]
{registrations}
streams = {streams}
media-server = "media"
sample = 1
acceptance = {{ delay = "{limit_ms} ms" }}
{more}"#
    );
    let overrides: &[&str] = &[];
    match laxity_host::load(&text, "host.toml", overrides) {
        Ok(host) => Some((host, bypasses)),
        Err(problems) => {
            // Some policies take no host whose CPUs are too few.
            assert!(
                ["null", "deadline", "arinc653"].contains(&policy),
                "seed {seed}, {policy}: {problems}"
            );
            None
        }
    }
}

fn packets(metadata: &Metadata, records: &[Record]) -> Vec<Packet> {
    let bytes = file(metadata, records);
    let reader = Reader::new(&bytes[..]).expect("a whole trace");
    let watch = Watch::of(reader).expect("a whole trace");
    let mut account = Account::new(metadata, false);
    account.watch(&watch);
    let mut packets = Vec::new();
    for record in records {
        account.record(record).expect("the backlog is small");
        packets.extend(account.take_packet());
    }
    packets
}

/// What is true of each packet, whatever the trace.
fn check_packet(packet: &Packet, limit_ns: i64, work_ns: i64) {
    let parts = || packet.parts.iter().map(|part| part.part);
    assert!(parts().all(|part| part.delay_ns > 0 && (0..=part.delay_ns).contains(&part.ns)));
    let shares_ns: i64 = parts().map(|part| part.ns).sum();
    assert_eq!(shares_ns, packet.late_ns, "the causes' sum: {packet:?}");
    let delays_ns: i64 = parts().map(|part| part.delay_ns).sum();
    let own_ns: i64 = (parts().filter(|part| part.cause == Cause::OwnWork))
        .map(|part| part.delay_ns)
        .sum();
    assert_eq!(packet.deadline_ns, packet.sent_ns + limit_ns);
    match packet.fate {
        Fate::Lost => assert_eq!(own_ns, 0, "{packet:?}"),
        Fate::Arrived | Fate::Unfinished => {
            assert_eq!(
                delays_ns,
                packet.end_ns - packet.sent_ns,
                "no gap: {packet:?}"
            );
            assert_eq!(packet.late_ns, delays_ns - limit_ns, "{packet:?}");
            assert!(packet.late_ns > 0);
            assert!(own_ns <= work_ns);
        }
    }
    if packet.fate == Fate::Arrived {
        // A thread that finds its ring full for want of credit leaves netfront's part out.
        let waited = parts().any(|part| part.cause == Cause::Rate);
        let may_be_less = waited && own_ns == work_ns - NETFRONT_NS;
        assert!(
            own_ns == work_ns || may_be_less,
            "all the work was done: {packet:?}"
        );
    }
}

/// How long the phone waits for the answer to this copy of a message.
fn wait_ns(packet: &Packet) -> i64 {
    ANSWER_WAITS_NS[packet.number as usize]
}

/// Phones send a message again, or give up, exactly where it was lost or its answer came late; only a lost one is told
/// although the answer to another copy came before the phone would have sent it again.
fn check_messages(host: &Host, outcome: &Outcome, packets: &[Packet]) {
    let registrations = outcome.result.telephony.as_ref();
    let again = (registrations.and_then(|telephony| telephony.registrations.as_ref()))
        .map_or(0, |registrations| registrations.retransmissions);
    let messages = || {
        packets
            .iter()
            .filter(|packet| packet.subject == Subject::Registration)
    };
    let numbers: BTreeSet<(u32, u64)> = messages()
        .map(|packet| (packet.stream, packet.number))
        .collect();
    assert_eq!(numbers.len(), messages().count(), "told once");
    let arrived = messages().filter(|packet| packet.fate == Fate::Arrived);
    let mut answered_ns = BTreeMap::<u32, i64>::new();
    for packet in arrived {
        let first_ns = answered_ns.entry(packet.stream).or_insert(i64::MAX);
        *first_ns = packet.end_ns.min(*first_ns);
    }
    let mut unanswered = 0;
    for packet in messages() {
        let answered_ns = answered_ns.get(&packet.stream);
        if answered_ns.is_some_and(|&answered_ns| answered_ns < packet.deadline_ns) {
            assert_eq!(packet.fate, Fate::Lost, "nobody waits for it: {packet:?}");
        } else if packet.number + 1 < ANSWER_WAITS_NS.len() as u64 {
            unanswered += u64::from(packet.deadline_ns <= host.duration_ns);
        }
    }
    assert_eq!(again, unanswered);
}

/// A server that falls ever further behind: phones send again what it answers too late, a second time and a third.
#[test]
fn messages_that_phones_send_again_and_again() {
    const SIGNALLING_NS: i64 = 30_000_000;
    let text = format!(
        r#"
duration = "9 s"
[host]
cpus = 2
policy = "credit"
network = {NETWORK}
[[nic]]
name = "eth0"
[[domain]]
name = "dom0"
workload = {{ kind = "driver" }}
[[domain]]
name = "media"
workload = {{ kind = "media-server" }}
[[domain]]
name = "sip"
workload = {{ kind = "signalling-server", work = "{SIGNALLING_NS} ns", threads = 1 }}
[calls]
streams = 1
media-server = "media"
registrations = "50 /s"
signalling-server = "sip"
"#
    );
    let overrides: &[&str] = &[];
    let host = laxity_host::load(&text, "host.toml", overrides).expect("the policy takes it");
    let (outcome, metadata, records) = trace(&host);
    let packets = packets(&metadata, &records);
    let mut fates = BTreeMap::<(u64, &str), u64>::new();
    for packet in &packets {
        assert_eq!(packet.subject, Subject::Registration);
        check_packet(packet, wait_ns(packet), WORK_NS - 40_000 + SIGNALLING_NS);
        let fate = match packet.fate {
            Fate::Arrived => "arrived",
            Fate::Lost => "lost",
            Fate::Unfinished => "unfinished",
        };
        *fates.entry((packet.number, fate)).or_default() += 1;
    }
    println!("{fates:?}");
    check_messages(&host, &outcome, &packets);
    let again = [0, 1].map(|number| fates.get(&(number, "arrived")));
    assert!(again.iter().all(Option::is_some), "{fates:?}");
}

/// The domains that were out, and for how long, are those of the result.
fn check_outages(host: &Host, outcome: &Outcome, packets: &[Packet]) {
    let results = &outcome
        .result
        .telephony
        .as_ref()
        .expect("it has calls")
        .protection;
    let mut told: BTreeMap<&str, &Packet> = BTreeMap::new();
    for packet in packets
        .iter()
        .filter(|packet| packet.subject == Subject::Outage)
    {
        let name = &*host.domains[usize::from(packet.domain)].name;
        assert!(told.insert(name, packet).is_none(), "each is out once");
    }
    let Some(failure) = host
        .network
        .as_ref()
        .and_then(|network| network.protect.as_ref().and_then(|protect| protect.failure))
    else {
        return assert!(told.is_empty());
    };
    assert_eq!(told.len(), results.len());
    for result in results {
        let packet = told[&*result.domain];
        assert_eq!(packet.sent_ns, failure.at_ns);
        let part = |cause| {
            let parts = packet.parts.iter().map(|part| part.part);
            parts
                .filter(|part| part.cause == cause)
                .map(|part| part.ns)
                .sum::<i64>()
        };
        let (silence_ns, activation_ns) = (part(Cause::Silence), part(Cause::Activation));
        assert_eq!(silence_ns + activation_ns, packet.late_ns);
        match result.outage_ns {
            Some(outage_ns) => {
                assert_eq!((packet.fate, packet.late_ns), (Fate::Arrived, outage_ns));
                assert_eq!(activation_ns, failure.activation_ns);
            }
            None => {
                assert_eq!(packet.fate, Fate::Unfinished);
                assert_eq!(packet.late_ns, host.duration_ns - failure.at_ns);
            }
        }
    }
}

/// The packets are those that the run's own record of streams has late or lost.
fn check_record(host: &Host, outcome: &Outcome, limit_ns: i64, packets: &[Packet]) {
    let voice = &outcome
        .result
        .telephony
        .as_ref()
        .expect("it has calls")
        .voice;
    let packets = || {
        packets
            .iter()
            .filter(|packet| packet.subject == Subject::Voice)
    };
    let lost = packets().filter(|packet| packet.fate == Fate::Lost);
    assert_eq!(lost.count() as u64, voice.lost);
    let mut told = BTreeMap::new();
    for packet in packets() {
        let before = told.insert((u64::from(packet.stream), packet.number), packet);
        assert!(before.is_none(), "told once: {packet:?}");
    }
    for kept in &outcome.kept {
        for (number, &arrived_ns) in (0..).zip(&kept.arrived_ns) {
            let sent_ns = kept.start_ns + number as i64 * INTERVAL_NS;
            let packet = told.remove(&(kept.stream, number));
            if arrived_ns == LOST {
                // One that had no time to arrive counts as lost there.
                let packet = packet.expect("a packet that did not arrive is told");
                assert_ne!(packet.fate, Fate::Arrived);
                assert_eq!(packet.sent_ns, sent_ns);
            } else if arrived_ns - sent_ns > limit_ns {
                let packet = packet.expect("a late packet is told");
                assert_eq!(
                    (packet.fate, packet.sent_ns, packet.end_ns),
                    (Fate::Arrived, sent_ns, arrived_ns)
                );
            } else {
                assert_eq!(packet, None, "one in time is not told");
            }
        }
    }
    let recorded_ns = host.duration_ns - RECORDED_NS;
    assert!(told.values().all(|packet| packet.sent_ns > recorded_ns));
}

#[test]
fn causes_of_late_packets_of_random_hosts() {
    let seeds = seeds(Policy::ALL.len() as u64);
    let hosts = seeds.end - seeds.start;
    let mut causes = BTreeMap::<Cause, u64>::new();
    let mut places = BTreeMap::<Option<Place>, u64>::new();
    let mut subjects = BTreeMap::<Subject, u64>::new();
    let (mut ran, mut referenced) = (0, 0);
    for seed in seeds {
        let Some((host, bypasses)) = host(seed) else {
            continue;
        };
        ran += 1;
        let (outcome, metadata, records) = trace(&host);
        let limit_ns = metadata.calls.as_ref().expect("it has calls").delay_ns;
        let packets = packets(&metadata, &records);
        println!(
            "seed {seed}: {}, {} packets",
            host.policy.name(),
            packets.len()
        );
        let work_ns = if bypasses { BYPASS_WORK_NS } else { WORK_NS };
        for packet in &packets {
            match packet.subject {
                Subject::Voice => check_packet(packet, limit_ns, work_ns),
                Subject::Registration => {
                    check_packet(packet, wait_ns(packet), MESSAGE_WORK_NS);
                }
                Subject::Outage => check_packet(packet, 0, 0),
            }
            *subjects.entry(packet.subject).or_default() += 1;
            for part in packet.parts.iter().filter(|part| part.part.ns > 0) {
                *causes.entry(part.part.cause).or_default() += 1;
            }
            if packet.fate == Fate::Lost {
                *places.entry(packet.lost_at).or_default() += 1;
            }
        }
        check_record(&host, &outcome, limit_ns, &packets);
        check_messages(&host, &outcome, &packets);
        check_outages(&host, &outcome, &packets);
        check_answer(&metadata, &records, &packets);

        let mut lines = Vec::new();
        let bytes = file(&metadata, &records);
        text::write(Reader::new(&bytes[..]).expect("a whole trace"), &mut lines)
            .expect("a Vec takes everything");
        let lines = Lines::parse(&String::from_utf8(lines).expect("text"), &metadata);
        // Early ones have few lines before them, which the reference reads again and again.
        let early = packets.len().min(60);
        let some = (packets.iter().take(early)).step_by((early / REFERENCED_PACKETS).max(1));
        let others = [Subject::Registration, Subject::Outage];
        let of_others = others.iter().filter_map(|&subject| {
            let last = |packet: &&Packet| packet.subject == subject;
            packets.iter().find(last)
        });
        for packet in some.chain(of_others) {
            let mut found: Vec<(String, i64)> = (packet.parts.iter())
                .map(|part| (reference::packet_part(&metadata, part), part.part.delay_ns))
                .collect();
            found.sort();
            assert_eq!(found, lines.explain_packet(&metadata, packet), "{packet:?}");
            referenced += 1;
        }
    }
    println!(
        "{ran} hosts with {subjects:?}; causes: {causes:?}; lost: {places:?}; referenced: {referenced}"
    );
    if hosts >= 60 {
        let every = [
            Cause::Budget,
            Cause::Cap,
            Cause::Cpu,
            Cause::Switch,
            Cause::Queue,
            Cause::Coalesced,
            Cause::Pause,
            Cause::Held,
            Cause::Rate,
            Cause::Link,
            Cause::Failure,
            Cause::Silence,
            Cause::Activation,
        ];
        assert!(
            every.iter().all(|cause| causes.contains_key(cause)),
            "{causes:?}"
        );
        assert!(places.len() >= 4, "{places:?}");
        assert_eq!(subjects.len(), 3, "{subjects:?}");
    }
}

/// The answer for people says the same as the packets it is made of.
fn check_answer(metadata: &Metadata, records: &[Record], packets: &[Packet]) {
    let bytes = file(metadata, records);
    let reader = || Reader::new(&bytes[..]).expect("a whole trace");
    let watch = Watch::of(reader()).expect("a whole trace");
    let answer = why(reader(), &watch, &Question::default()).expect("a whole trace");
    let ends = [Kind::Packet, Kind::Message, Kind::Outage];
    let told = records.iter().filter(|record| ends.contains(&record.kind));
    assert_eq!(told.count(), packets.len());
    assert_eq!(answer.late.len(), packets.len());
    assert_eq!(
        [
            answer.late_packets + answer.lost_packets,
            answer.late_messages + answer.lost_messages,
            answer.outages
        ],
        [Subject::Voice, Subject::Registration, Subject::Outage].map(|subject| {
            let of_subject = packets.iter().filter(|packet| packet.subject == subject);
            of_subject.count() as u64
        })
    );
    let sum_ns: i64 = packets.iter().map(|packet| packet.late_ns).sum();
    assert_eq!(answer.late_sum_ns, sum_ns);
    assert_eq!(
        answer.totals.iter().map(|total| total.ns).sum::<i64>(),
        sum_ns
    );
}
