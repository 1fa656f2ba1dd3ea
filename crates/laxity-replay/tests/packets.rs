//! Late packets of a host whose kernel is traced: their causes are those that a second look finds, which asks at each
//! nanosecond where the thread was that handled the packet.

use laxity_replay::{Decision, Event, Jobs, Replay, Vcpus, Way, What, Who, with_packets};
use laxity_trace::{CallsMetadata, DomainMetadata, Metadata, NONE, Reader, Sink as _, Writer};
use laxity_why::{Account, Cause, Packet, Question, Rule, Watch, why};
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
struct Moment {
    on_cpu: [Who; CPUS],
    state: [State; VCPUS],
    queue: [Option<usize>; VCPUS],
}

/// The host from one event to the next, and at each ns of the past.
struct Host {
    now: Moment,
    past: Vec<Moment>,
    events: Vec<Event>,
}

impl Host {
    fn new() -> Host {
        let now = Moment {
            on_cpu: [Who::Idle; CPUS],
            state: [State::Blocked; VCPUS],
            queue: [None; VCPUS],
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
        let (cpu, vcpu) = (usize::from(cpu) % CPUS, usize::from(whom) % VCPUS);
        if how % 3 == 0 {
            if self.now.state[vcpu] == State::Blocked {
                self.now.state[vcpu] = State::Waits;
                // Some kernels do not say into whose queue it goes.
                let is_told = how % 2 == 0;
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
            _ if how % 2 == 0 => Who::Idle,
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

/// The causes of a packet, a nanosecond at a time.
fn looked_at(host: &Host, way: &Way) -> BTreeMap<Told, i64> {
    let mut causes = BTreeMap::new();
    let mut add = |cause, at, who: Option<(u16, u16)>, rule, ns| {
        if ns > 0 {
            *causes
                .entry((cause, at, format!("{who:?}"), rule))
                .or_default() += ns;
        }
    };
    let place = (0..VCPUS)
        .find(|&place| name(place) == way.vcpu)
        .expect("it is a VCPU");
    let at = Some(way.vcpu);
    let mut ran_ns = 0;
    for time_ns in way.sent_ns..way.heard_ns {
        if !(way.arrived_ns..way.left_ns).contains(&time_ns) {
            add(Cause::Link, None, None, None, 1);
            continue;
        }
        let Moment {
            on_cpu,
            state,
            queue,
        } = &host.past[time_ns as usize];
        match (state[place], queue[place].map(|cpu| on_cpu[cpu])) {
            (State::Runs, _) => ran_ns += 1,
            (State::Blocked, _) => add(Cause::Blocked, at, None, None, 1),
            (State::Waits, Some(Who::Vcpu(other))) => {
                let (domain, vcpu) = name(other as usize);
                let is_phones = domain == 2;
                let rule = if is_phones { Rule::Order } else { Rule::Turn };
                // Threads of phones are not told apart.
                let who = (domain, if is_phones { 0 } else { vcpu });
                add(Cause::Cpu, at, Some(who), Some(rule), 1);
            }
            (State::Waits, _) => add(Cause::Idle, at, None, None, 1),
        }
    }
    let own_ns = way.work_ns.min(ran_ns);
    add(Cause::OwnWork, None, None, None, own_ns);
    add(Cause::Queue, at, at, None, ran_ns - own_ns);
    causes
}

fn found(packet: &Packet) -> BTreeMap<Told, i64> {
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

proptest! {
    #[test]
    fn causes_are_those_of_each_nanosecond(
        steps in prop::collection::vec(any::<Step>(), 1..400),
        drawn in prop::collection::vec(any::<Drawn>(), 1..20),
    ) {
        let mut host = Host::new();
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

        let completions_ns = vec![Vec::new(); DOMAINS.len()];
        let jobs = Jobs { metadata: &metadata, completions_ns: &completions_ns };
        let vcpus = Vcpus::new(&metadata).expect("the metadata is valid");
        let replay = Replay::new(&jobs).expect("there are no jobs");
        let (records, _) = replay.run(&vcpus, &host.events, CPUS).expect("nothing contradicts");
        let records =
            with_packets(&vcpus, duration_ns, records, &late).expect("they are of the run");
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes, &metadata).expect("a Vec takes everything");
        records.iter().for_each(|&record| writer.record(record));
        writer.finish().expect("a Vec takes everything");
        let reader = || Reader::new(&bytes[..]).expect("a whole trace");

        let watch = Watch::of(reader()).expect("a whole trace");
        let mut account = Account::new(&metadata, false);
        account.watch(&watch);
        let mut packets = BTreeMap::new();
        for record in reader() {
            account.record(&record.expect("a whole trace")).expect("there are no jobs");
            if let Some(packet) = account.take_packet() {
                packets.insert((u64::from(packet.stream), packet.number), packet);
            }
        }
        prop_assert_eq!(packets.len(), late.len());
        for way in &late {
            let packet = &packets[&(way.stream, way.number)];
            prop_assert_eq!((packet.sent_ns, packet.end_ns), (way.sent_ns, way.heard_ns));
            prop_assert_eq!(found(packet), looked_at(&host, way));
            let shares_ns: i64 = packet.parts.iter().map(|part| part.part.ns).sum();
            prop_assert_eq!(shares_ns, packet.late_ns);
            prop_assert_eq!(packet.late_ns, way.heard_ns - way.sent_ns - LIMIT_NS);
        }
        let answer = why(reader(), &watch, &Question::default()).expect("a whole trace");
        prop_assert_eq!(answer.late_packets, late.len() as u64);
        prop_assert_eq!(answer.not_seen, ["what is drawn"]);
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
