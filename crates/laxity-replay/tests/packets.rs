//! Late packets of a host whose kernel is traced: their causes are those that a second look finds, which asks at each
//! nanosecond where the thread was that handled the packet; also where that is a thread within a domain.

use laxity_replay::{
    Decision, Delivery, Event, Jobs, Replay, Vcpus, Way, What, Who, in_layers, with_deliveries,
    with_packets, with_threads,
};
use laxity_trace::{
    CallsMetadata, DomainMetadata, Kind, Metadata, NONE, Place, Reader, Record, Sink as _, Writer,
};
use laxity_why::{Account, Cause, Fate, Packet, Question, Rule, Watch, why};
use proptest::prelude::*;
use std::collections::BTreeMap;

const CPUS: usize = 2;
/// Media server, computing neighbour, phones.
const DOMAINS: [(&str, u32, bool); 3] = [
    ("media", 2, false),
    ("busy", 1, false),
    ("(phones)", 2, true),
];
const VCPUS: usize = 5;
const LIMIT_NS: i64 = 30;

/// What a step does: after how long, which CPU, whom, and how.
type Step = (u8, u8, u8, u8);

/// What a packet needs: its times as distances from each other, its work and its thread.
type Drawn = (u16, u8, u8, u8, u8, bool);

/// The domain and number of the VCPU at a place among all.
fn name(place: usize) -> (u16, u16) {
    [(0, 0), (0, 1), (1, 0), (2, 0), (2, 1)][place]
}

fn metadata(duration_ns: i64) -> Metadata {
    let domain = |(name, vcpus, real_time): (&str, u32, bool)| DomainMetadata {
        name: name.into(),
        vcpus,
        budget_ns: 0,
        period_ns: 0,
        real_time,
        tasks: Vec::new(),
    };
    Metadata {
        substrate: "linux".into(),
        policy: "eevdf".into(),
        seed: 1,
        duration_ns,
        cpus: CPUS as u32,
        domains: DOMAINS.map(domain).into(),
        programs_in: None,
        calls: Some(CallsMetadata {
            delay_ns: LIMIT_NS,
            answer_waits_ns: Vec::new(),
            not_seen: vec!["what is drawn".into()],
        }),
    }
}

/// State of a thread.
#[derive(Clone, Copy, PartialEq)]
enum State {
    Blocked,
    Waits,
    Runs,
}

/// State of all threads at one instant.
#[derive(Clone, Copy)]
struct Moment<const N: usize> {
    on_cpu: [Who; CPUS],
    state: [State; N],
    queue: [Option<usize>; N],
}

/// A host with so many threads, from one event to the next, and at each ns of the past.
struct Host<const N: usize> {
    now: Moment<N>,
    past: Vec<Moment<N>>,
    events: Vec<Event>,
}

impl<const N: usize> Host<N> {
    fn new() -> Host<N> {
        let now = Moment {
            on_cpu: [Who::Idle; CPUS],
            state: [State::Blocked; N],
            queue: [None; N],
        };
        Host {
            now,
            past: Vec::new(),
            events: Vec::new(),
        }
    }

    fn pass(&mut self, ns: u8) {
        for _ in 0..ns {
            self.past.push(self.now);
        }
    }

    fn event(&mut self, cpu: usize, what: What) {
        let time_ns = self.past.len() as i64;
        self.events.push(Event {
            cycles: time_ns as u64,
            time_ns,
            offset: 0,
            cpu: cpu as u16,
            what,
        });
    }

    fn step(&mut self, (ns, cpu, whom, how): Step) {
        self.pass(ns % 16);
        self.act(cpu, whom, how);
    }

    fn act(&mut self, cpu: u8, whom: u8, how: u8) {
        let (cpu, vcpu) = (usize::from(cpu) % CPUS, usize::from(whom) % N);
        if how.is_multiple_of(3) {
            if self.now.state[vcpu] == State::Blocked {
                self.now.state[vcpu] = State::Waits;
                // Some kernels do not say into whose queue it goes.
                let is_told = how.is_multiple_of(2);
                if is_told {
                    self.now.queue[vcpu] = Some(cpu);
                }
                let what = What::Wake {
                    vcpu: vcpu as u32,
                    state: true,
                    cpu: if is_told { cpu as u16 } else { NONE },
                };
                self.event(cpu, what);
            }
            return;
        }
        let after = match self.now.state[vcpu] {
            State::Waits => Who::Vcpu(vcpu as u32),
            _ if how.is_multiple_of(2) => Who::Idle,
            _ => Who::Foreign,
        };
        let before = std::mem::replace(&mut self.now.on_cpu[cpu], after);
        if before == after {
            return;
        }
        let blocks = how % 5 < 3;
        if let Who::Vcpu(left) = before {
            self.now.state[left as usize] = if blocks { State::Blocked } else { State::Waits };
        }
        if let Who::Vcpu(comes) = after {
            self.now.state[comes as usize] = State::Runs;
            self.now.queue[comes as usize] = Some(cpu);
        }
        let decision = Decision {
            until_ns: i64::MAX,
            cost_ns: 0,
        };
        let what = What::Switch {
            before,
            after,
            blocks,
            decision,
        };
        self.event(cpu, what);
    }
}

/// A cause, where, who, and by which rule.
type Told = (Cause, Option<(u16, u16)>, String, Option<Rule>);

/// Causes, each for how long.
type Causes = BTreeMap<Told, i64>;

fn add(causes: &mut Causes, (cause, at, who, rule): Reason, ns: i64) {
    if ns > 0 {
        let told = (cause, at, format!("{who:?}"), rule);
        *causes.entry(told).or_default() += ns;
    }
}

/// A cause, at which VCPU, who, and by which rule.
type Reason = (Cause, Option<(u16, u16)>, Option<(u16, u16)>, Option<Rule>);

/// Adds why a VCPU did not have a packet from one time to another, a nanosecond at a time; returns how long it ran.
fn waited(
    host: &Host<VCPUS>,
    vcpu: (u16, u16),
    (from_ns, to_ns): (i64, i64),
    causes: &mut Causes,
) -> i64 {
    let place = (0..VCPUS)
        .find(|&place| name(place) == vcpu)
        .expect("it is a VCPU");
    let (at, vcpu_domain) = (Some(vcpu), vcpu.0);
    let mut ran_ns = 0;
    for time_ns in from_ns..to_ns {
        let Moment {
            on_cpu,
            state,
            queue,
        } = &host.past[time_ns as usize];
        match (state[place], queue[place].map(|cpu| on_cpu[cpu])) {
            (State::Runs, _) => ran_ns += 1,
            (State::Blocked, _) => add(causes, (Cause::Blocked, at, None, None), 1),
            (State::Waits, Some(Who::Vcpu(other))) => {
                let (domain, vcpu) = name(other as usize);
                let is_phones = domain == 2;
                // Phones alone are real-time.
                let rule = if is_phones && vcpu_domain != 2 {
                    Rule::Order
                } else {
                    Rule::Turn
                };
                // Threads of phones are not told apart.
                let who = (domain, if is_phones { 0 } else { vcpu });
                add(causes, (Cause::Cpu, at, Some(who), Some(rule)), 1);
            }
            (State::Waits, _) => add(causes, (Cause::Idle, at, None, None), 1),
        }
    }
    ran_ns
}

/// The causes of a packet.
fn looked_at(host: &Host<VCPUS>, way: &Way) -> Causes {
    let mut causes = Causes::new();
    let on_wires_ns = way.arrived_ns - way.sent_ns + way.heard_ns - way.left_ns;
    add(&mut causes, (Cause::Link, None, None, None), on_wires_ns);
    let ran_ns = waited(host, way.vcpu, (way.arrived_ns, way.left_ns), &mut causes);
    let own_ns = way.work_ns.min(ran_ns);
    add(&mut causes, (Cause::OwnWork, None, None, None), own_ns);
    let at = Some(way.vcpu);
    add(&mut causes, (Cause::Queue, at, at, None), ran_ns - own_ns);
    causes
}

/// The causes of a packet that the kernel saw.
fn looked_at_places(host: &Host<VCPUS>, delivery: &Delivery) -> Causes {
    let mut causes = Causes::new();
    let ends = delivery.places[1..].iter().map(|place| place.2);
    let places = delivery.places.iter().zip(ends.chain([delivery.end_ns]));
    for (&(_, vcpu, from_ns), to_ns) in places {
        let ran_ns = waited(host, vcpu, (from_ns, to_ns), &mut causes);
        add(
            &mut causes,
            (Cause::Queue, Some(vcpu), Some(vcpu), None),
            ran_ns,
        );
    }
    causes
}

fn found(packet: &Packet) -> Causes {
    let mut causes = BTreeMap::new();
    for part in &packet.parts {
        let who = match part.part.who {
            laxity_why::Who::Vcpu(domain, vcpu) => Some((domain, vcpu)),
            laxity_why::Who::Nobody => None,
            laxity_why::Who::Task(..) => panic!("there are no tasks"),
        };
        let told = (part.part.cause, part.at, format!("{who:?}"), part.part.rule);
        *causes.entry(told).or_default() += part.part.delay_ns;
    }
    causes
}

fn replayed<const N: usize>(metadata: &Metadata, host: &Host<N>) -> (Vcpus, Vec<Record>) {
    let completions_ns = vec![Vec::new(); metadata.domains.len()];
    let jobs = Jobs {
        metadata,
        completions_ns: &completions_ns,
    };
    let vcpus = Vcpus::new(metadata).expect("the metadata is valid");
    let replay = Replay::new(&jobs).expect("there are no jobs");
    let (records, _) = replay
        .run(&vcpus, &host.events, CPUS)
        .expect("nothing contradicts");
    (vcpus, records)
}

fn written(metadata: &Metadata, records: &[Record]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, metadata).expect("a Vec takes everything");
    records.iter().for_each(|&record| writer.record(record));
    writer.finish().expect("a Vec takes everything");
    bytes
}

fn reader(bytes: &[u8]) -> Reader<&[u8]> {
    Reader::new(bytes).expect("a whole trace")
}

/// The packets of a trace by their streams and numbers.
fn explained(metadata: &Metadata, bytes: &[u8]) -> BTreeMap<(u64, u64), Packet> {
    let watch = Watch::of(reader(bytes)).expect("a whole trace");
    let mut account = Account::new(metadata, false);
    account.watch(&watch);
    let mut packets = BTreeMap::new();
    for record in reader(bytes) {
        account
            .record(&record.expect("a whole trace"))
            .expect("there are no jobs");
        if let Some(packet) = account.take_packet() {
            packets.insert((u64::from(packet.stream), packet.number), packet);
        }
    }
    packets
}

proptest! {
    #[test]
    fn causes_are_those_of_each_nanosecond(
        steps in prop::collection::vec(any::<Step>(), 1..400),
        drawn in prop::collection::vec(any::<Drawn>(), 1..20),
    ) {
        let mut host = Host::<VCPUS>::new();
        steps.into_iter().for_each(|step| host.step(step));
        // The last packet may be heard after all events.
        host.pass(255);
        let duration_ns = host.past.len() as i64;
        let metadata = metadata(duration_ns);
        let ways: Vec<Way> = (0..).zip(drawn).map(|(number, drawn)| {
            let (sent, wire, served, back, work, thread) = drawn;
            let sent_ns = i64::from(sent) % duration_ns;
            let arrived_ns = (sent_ns + i64::from(wire) % 9).min(duration_ns);
            let left_ns = (arrived_ns + i64::from(served)).min(duration_ns);
            let heard_ns = (left_ns + i64::from(back) % 5).min(duration_ns);
            Way {
                stream: number % 3,
                number,
                vcpu: (0, thread.into()),
                sent_ns,
                arrived_ns,
                left_ns,
                heard_ns,
                work_ns: work.into(),
            }
        }).collect();
        let late: Vec<Way> = (ways.iter().copied())
            .filter(|way| way.heard_ns - way.sent_ns > LIMIT_NS)
            .collect();

        let (vcpus, records) = replayed(&metadata, &host);
        let records =
            with_packets(&vcpus, duration_ns, records, &late).expect("they are of the run");
        let bytes = written(&metadata, &records);
        let packets = explained(&metadata, &bytes);
        prop_assert_eq!(packets.len(), late.len());
        for way in &late {
            let packet = &packets[&(way.stream, way.number)];
            prop_assert_eq!((packet.sent_ns, packet.end_ns), (way.sent_ns, way.heard_ns));
            prop_assert_eq!(found(packet), looked_at(&host, way));
            let shares_ns: i64 = packet.parts.iter().map(|part| part.part.ns).sum();
            prop_assert_eq!(shares_ns, packet.late_ns);
            prop_assert_eq!(packet.late_ns, way.heard_ns - way.sent_ns - LIMIT_NS);
        }
        let watch = Watch::of(reader(&bytes)).expect("a whole trace");
        let answer = why(reader(&bytes), &watch, &Question::default()).expect("a whole trace");
        prop_assert_eq!(answer.late_packets, late.len() as u64);
        prop_assert_eq!(answer.not_seen, ["what is drawn"]);
    }

    #[test]
    fn causes_at_several_places_are_those_of_each_nanosecond(
        steps in prop::collection::vec(any::<Step>(), 1..400),
        drawn in prop::collection::vec(any::<(u16, u8, u8, u8, u8, bool)>(), 1..20),
    ) {
        let mut host = Host::<VCPUS>::new();
        steps.into_iter().for_each(|step| host.step(step));
        host.pass(255);
        let duration_ns = host.past.len() as i64;
        let metadata = metadata(duration_ns);
        let deliveries: Vec<Delivery> = (0..).zip(drawn).map(|(number, drawn)| {
            let (since, first, second, worker, vcpu, has_worker) = drawn;
            let since_ns = i64::from(since) % duration_ns;
            let taken_ns = (since_ns + i64::from(first)).min(duration_ns);
            let own = (0, u16::from(vcpu) % 2);
            let worker = name(usize::from(worker) % VCPUS);
            let places = if has_worker {
                vec![(Place::ToGuest, worker, since_ns), (Place::Socket, own, taken_ns)]
            } else {
                vec![(Place::Socket, own, since_ns)]
            };
            let end_ns = (taken_ns + i64::from(second)).min(duration_ns);
            Delivery {
                domain: 0,
                stream: number % 3,
                number,
                places,
                end_ns,
                is_unfinished: end_ns == duration_ns,
            }
        }).collect();
        let (vcpus, records) = replayed(&metadata, &host);
        let records = with_deliveries(&vcpus, duration_ns, records, &deliveries)
            .expect("they are of the run");
        let packets = explained(&metadata, &written(&metadata, &records));
        prop_assert_eq!(packets.len(), deliveries.len());
        for delivery in &deliveries {
            let packet = &packets[&(delivery.stream, delivery.number)];
            let times = (packet.sent_ns, packet.end_ns);
            prop_assert_eq!(times, (delivery.since_ns(), delivery.end_ns));
            prop_assert_eq!(found(packet), looked_at_places(&host, delivery));
            let waited_ns = delivery.end_ns - delivery.since_ns();
            prop_assert_eq!(packet.late_ns, (waited_ns - LIMIT_NS).max(0));
            let shares_ns: i64 = packet.parts.iter().map(|part| part.part.ns).sum();
            prop_assert_eq!(shares_ns, packet.late_ns);
            let fate = if delivery.is_unfinished { Fate::Unfinished } else { Fate::Arrived };
            prop_assert_eq!(packet.fate, fate);
        }
    }
}

/// A host whose dom0 has threads of its own, as the VCPUs and the threads of `INSIDE` and `OUTSIDE` are named.
fn layered(duration_ns: i64) -> Metadata {
    let mut metadata = metadata(duration_ns);
    let named = [
        ("dom0", 2),
        ("guest", 1),
        ("(load, real-time)", 2),
        ("(netback)", 1),
    ];
    metadata.domains = (named.into_iter())
        .map(|(name, vcpus)| DomainMetadata {
            name: name.into(),
            vcpus,
            real_time: name.contains("real-time"),
            ..metadata.domains[0].clone()
        })
        .collect();
    // A policy without turns, so that those of threads are told by the threads' kernel.
    metadata.policy = "deferrable".into();
    metadata.programs_in = Some(0);
    metadata
}

/// The domains of the host, and those of dom0's programs, whose CPUs are its VCPUs.
fn halves(whole: &Metadata) -> [Metadata; 2] {
    let half = |domains: &[DomainMetadata]| Metadata {
        domains: domains.into(),
        programs_in: None,
        ..whole.clone()
    };
    [half(&whole.domains[..2]), half(&whole.domains[2..])]
}

const OUTSIDE: [(u16, u16); 3] = [(0, 0), (0, 1), (1, 0)];
const INSIDE: [(u16, u16); 3] = [(2, 0), (2, 1), (3, 0)];
const LOAD: u16 = 2;

/// The causes of a packet for which threads of dom0 were to work.
fn looked_at_layers(host: &Host<3>, kernel: &Host<3>, delivery: &Delivery) -> Causes {
    let mut causes = Causes::new();
    let place = |names: [(u16, u16); 3], who| names.iter().position(|&name| name == who);
    let outside = |causes: &mut Causes, vcpu: usize, time_ns: i64| {
        let Moment {
            on_cpu,
            state,
            queue,
        } = host.past[time_ns as usize];
        let at = Some(OUTSIDE[vcpu]);
        let reason = match (state[vcpu], queue[vcpu].map(|cpu| on_cpu[cpu])) {
            (State::Runs, _) => (Cause::Queue, at, at, None),
            (State::Blocked, _) => (Cause::Blocked, at, None, None),
            (State::Waits, Some(Who::Vcpu(other))) => {
                let other = OUTSIDE[other as usize];
                (Cause::Cpu, at, Some(other), Some(Rule::Order))
            }
            (State::Waits, _) => (Cause::Idle, at, None, None),
        };
        add(causes, reason, 1);
    };
    let ends = delivery.places[1..].iter().map(|place| place.2);
    let places = delivery.places.iter().zip(ends.chain([delivery.end_ns]));
    for (&(_, who, from_ns), to_ns) in places {
        let Some(thread) = place(INSIDE, who) else {
            let vcpu = place(OUTSIDE, who).expect("it is a VCPU");
            (from_ns..to_ns).for_each(|time_ns| outside(&mut causes, vcpu, time_ns));
            continue;
        };
        for time_ns in from_ns..to_ns {
            let Moment {
                on_cpu,
                state,
                queue,
            } = kernel.past[time_ns as usize];
            // Before it is known where it is, it is where it is seen first.
            let home = kernel.past[time_ns as usize..]
                .iter()
                .find_map(|moment| moment.queue[thread]);
            if let Some(vcpu) = home
                && host.past[time_ns as usize].state[vcpu] == State::Waits
            {
                outside(&mut causes, vcpu, time_ns);
                continue;
            }
            let at = Some(who);
            let reason = match (state[thread], queue[thread].map(|vcpu| on_cpu[vcpu])) {
                (State::Runs, _) => (Cause::Queue, at, at, None),
                (State::Blocked, _) => (Cause::Blocked, at, None, None),
                (State::Waits, Some(Who::Vcpu(other))) => {
                    let (program, _) = INSIDE[other as usize];
                    let comes_first = program == LOAD && who.0 != LOAD;
                    let rule = if comes_first { Rule::Order } else { Rule::Turn };
                    (Cause::Cpu, at, Some((program, 0)), Some(rule))
                }
                (State::Waits, _) => (Cause::Idle, at, None, None),
            };
            add(&mut causes, reason, 1);
        }
    }
    causes
}

proptest! {
    #[test]
    fn causes_in_two_layers_are_those_of_each_nanosecond(
        steps in prop::collection::vec(any::<(bool, Step)>(), 1..600),
        drawn in prop::collection::vec(any::<(u16, u8, u8, u8)>(), 1..20),
    ) {
        let (mut host, mut kernel) = (Host::<3>::new(), Host::<3>::new());
        for (is_inside, (ns, cpu, whom, how)) in steps {
            host.pass(ns % 16);
            kernel.pass(ns % 16);
            if !is_inside {
                host.act(cpu, whom, how);
            } else if host.now.state[usize::from(cpu) % CPUS] == State::Runs {
                kernel.act(cpu, whom, how);
            }
        }
        host.pass(255);
        kernel.pass(255);
        let duration_ns = host.past.len() as i64;
        let metadata = layered(duration_ns);
        let deliveries: Vec<Delivery> = (0..).zip(drawn).map(|(number, drawn)| {
            let (since, first, second, thread) = drawn;
            let since_ns = i64::from(since) % duration_ns;
            let taken_ns = (since_ns + i64::from(first)).min(duration_ns);
            let end_ns = (taken_ns + i64::from(second)).min(duration_ns);
            let thread = INSIDE[usize::from(thread) % INSIDE.len()];
            Delivery {
                domain: 1,
                stream: 0,
                number,
                places: vec![(Place::ToGuest, thread, since_ns), (Place::Socket, (1, 0), taken_ns)],
                end_ns,
                is_unfinished: false,
            }
        }).collect();
        let [of_host, of_programs] = halves(&metadata);
        let (_, outside) = replayed(&of_host, &host);
        let (_, inside) = replayed(&of_programs, &kernel);
        let records = with_threads(&metadata, outside, inside, 0).expect("the clocks are one");
        let divided = in_layers(&metadata, &records, deliveries.clone()).expect("they are programs");
        let vcpus = Vcpus::new(&metadata).expect("the metadata is valid");
        let records = with_deliveries(&vcpus, duration_ns, records, &divided)
            .expect("they are of the run");
        let packets = explained(&metadata, &written(&metadata, &records));
        prop_assert_eq!(packets.len(), deliveries.len());
        for delivery in &deliveries {
            let packet = &packets[&(0, delivery.number)];
            let times = (packet.sent_ns, packet.end_ns);
            prop_assert_eq!(times, (delivery.since_ns(), delivery.end_ns));
            prop_assert_eq!(found(packet), looked_at_layers(&host, &kernel, delivery));
        }
    }
}

/// A VCPU that is paused while it waits for a CPU does not wait for it.
#[test]
fn packets_wait_for_a_vcpu_as_long_as_it_waits() {
    let metadata = layered(10);
    let record = |time_ns, kind, argument, cpu| Record {
        time_ns,
        argument,
        cpu,
        domain: 0,
        vcpu: 1,
        kind,
    };
    let outside = vec![
        record(1, Kind::Wake, 0, NONE),
        record(1, Kind::Run, 0, 0),
        record(3, Kind::Stop, 1, 0),
        record(4, Kind::Block, 0, NONE),
        record(6, Kind::Wake, 0, NONE),
        record(7, Kind::Run, 0, 1),
    ];
    let inside = vec![Record {
        domain: 1,
        vcpu: 0,
        ..record(2, Kind::Run, 0, 1)
    }];
    let records = with_threads(&metadata, outside, inside, 0).expect("the clocks are one");
    let (netback, vcpu) = ((3, 0), (0, 1));
    let delivery = Delivery {
        domain: 1,
        stream: 0,
        number: 0,
        places: vec![(Place::ToGuest, netback, 2), (Place::Socket, (1, 0), 9)],
        end_ns: 10,
        is_unfinished: false,
    };
    let divided = in_layers(&metadata, &records, vec![delivery]).expect("they are programs");
    let places: Vec<_> = (divided[0].places.iter())
        .map(|&(_, who, since_ns)| (who, since_ns))
        .collect();
    let waits = [
        (netback, 2),
        (vcpu, 3),
        (netback, 4),
        (vcpu, 6),
        (netback, 7),
        ((1, 0), 9),
    ];
    assert_eq!(places, waits);
}

/// A thread that comes to a VCPU which has no CPU is of another time.
#[test]
fn clocks_that_differ_are_refused() {
    let metadata = layered(10_000_000);
    let record = |time_ns, kind, domain, vcpu, cpu| Record {
        time_ns,
        argument: 0,
        cpu,
        domain,
        vcpu,
        kind,
    };
    let outside = [
        record(1_000_000, Kind::Wake, 0, 1, NONE),
        record(1_000_000, Kind::Run, 0, 1, 0),
        record(3_000_000, Kind::Stop, 0, 1, 0),
    ];
    let came_of = |guessed, time_ns, vcpu| {
        let inside = vec![record(time_ns, Kind::Run, 1, 0, vcpu)];
        with_threads(&metadata, outside.into(), inside, guessed)
    };
    let came = |time_ns, vcpu| came_of(0, time_ns, vcpu);
    // In the order of time, with dom0's VCPU 1 as the fourth CPU, behind two physical ones.
    let records = came(2_000_000, 1).expect("it has the CPU then");
    let netback = record(2_000_000, Kind::Run, 3, 0, 3);
    assert_eq!(records, [outside[0], outside[1], netback, outside[2]]);
    assert!(came(950_000, 1).is_ok() && came(3_050_000, 1).is_ok());
    for (time_ns, vcpu) in [(850_000, 1), (3_150_000, 1), (2_000_000, 0)] {
        let error = came(time_ns, vcpu).expect_err("it has none");
        assert!(error.to_string().contains("clocks differ"), "{error}");
        // When a switch was that nobody traced is not known.
        assert!(came_of(1, time_ns, vcpu).is_ok());
    }
    let flat = Metadata {
        programs_in: None,
        ..metadata
    };
    assert!(with_threads(&flat, Vec::new(), Vec::new(), 0).is_err());
    assert!(in_layers(&flat, &[], Vec::new()).is_err());
}

#[test]
fn packets_of_other_runs_are_refused() {
    let metadata = metadata(1_000);
    let vcpus = Vcpus::new(&metadata).expect("the metadata is valid");
    let delivery = |places: &[(u16, u16, i64)]| Delivery {
        domain: 0,
        stream: 1,
        number: 7,
        places: (places.iter())
            .map(|&(domain, vcpu, ns)| (Place::Socket, (domain, vcpu), ns))
            .collect(),
        end_ns: 1_000,
        is_unfinished: false,
    };
    let told = |delivery| with_deliveries(&vcpus, 1_000, Vec::new(), &[delivery]);
    let right = delivery(&[(2, 1, 0), (0, 1, 1_000)]);
    assert_eq!(told(right.clone()).expect("it is of the run").len(), 4);
    let wrong = [
        delivery(&[]),
        delivery(&[(2, 2, 0)]),
        delivery(&[(3, 0, 0)]),
        delivery(&[(2, 1, -1)]),
        delivery(&[(2, 1, 10), (0, 1, 9)]),
        delivery(&[(2, 1, 1_001)]),
        Delivery {
            end_ns: 1_001,
            ..right.clone()
        },
        Delivery {
            domain: 3,
            ..right.clone()
        },
        Delivery {
            number: 1 << 40,
            ..right
        },
    ];
    for delivery in wrong {
        assert!(told(delivery.clone()).is_err(), "{delivery:?}");
    }
}

/// A kernel's stamp of arrival may be a little before the packet was sent, and a system call may end after its packet
/// was heard.
#[test]
fn times_of_other_clocks_are_put_in_order() {
    let metadata = metadata(1_000);
    let vcpus = Vcpus::new(&metadata).expect("the metadata is valid");
    let way = Way {
        stream: 0,
        number: 7,
        vcpu: (0, 1),
        sent_ns: 100,
        arrived_ns: 95,
        left_ns: 310,
        heard_ns: 300,
        work_ns: 40,
    };
    let ordered = Way {
        arrived_ns: 100,
        left_ns: 300,
        ..way
    };
    let told = |way| with_packets(&vcpus, 1_000, Vec::new(), &[way]);
    assert_eq!(told(way), told(ordered));
    assert!(told(way).is_ok());
    let wrong = [
        Way { sent_ns: -1, ..way },
        Way {
            heard_ns: 1_001,
            ..way
        },
        Way {
            vcpu: (0, 2),
            ..way
        },
        Way {
            vcpu: (3, 0),
            ..way
        },
        Way { work_ns: -1, ..way },
    ];
    for way in wrong {
        assert!(told(way).is_err(), "{way:?}");
    }
}
