//! What comes out of host files that are right.

use laxity_host::{
    Acceptance, ArrivalRate, Cache, Codec, Cost, Failure, GuestScheduler, Host, Link,
    LinkAgreement, LinkSharing, Nic, Parameters, Playout, Policy, Protect, ProtectMode, Protected,
    RUN_DURATION_NS_MAX, Server, Settings, Tick, Transport, Workload, load,
};

const MILLISECOND_NS: i64 = 1_000_000;

fn host(text: &str) -> Host {
    host_with(text, &[])
}

fn host_with(text: &str, overrides: &[&str]) -> Host {
    load(text, "host.toml", overrides).unwrap_or_else(|error| panic!("{error}"))
}

const FULL: &str = include_str!("every-key.toml");

#[test]
fn every_key_arrives() {
    let host = host(FULL);
    assert_eq!(
        (host.duration_ns, host.seed, host.cpus),
        (60_000 * MILLISECOND_NS, 3, 4)
    );
    assert_eq!(host.policy, Policy::Sedf);
    assert_eq!(
        host.settings,
        Settings {
            quantum_ns: MILLISECOND_NS,
            time_slice_ns: 5 * MILLISECOND_NS,
            tick_ns: 2 * MILLISECOND_NS,
            accounting_ns: 6 * MILLISECOND_NS,
            accounting_phase_ns: 4 * MILLISECOND_NS,
            jiffy_ns: MILLISECOND_NS,
            base_slice_ns: 3 * MILLISECOND_NS,
            run_queue_cpus: 2,
        }
    );
    assert_eq!(host.costs.schedule, Cost::Constant { ns: 120 });
    assert_eq!(
        host.costs.context_switch,
        Cost::Quantiles {
            median_ns: 1_000,
            p90_ns: None,
            p99_ns: 2_000,
            p999_ns: None,
            max_ns: 3_000
        }
    );
    let control = &host.domains[0];
    assert_eq!(
        control.parameters,
        Parameters {
            budget_ns: 1_500_000,
            period_ns: 10 * MILLISECOND_NS,
            laxity_ns: 10_000,
            priority: 2,
            extratime: true,
            weight: 512,
            cap_percent: 150,
            rt_priority: 50,
            quota_ns: 30 * MILLISECOND_NS,
            quota_period_ns: 50 * MILLISECOND_NS,
            quota_burst_ns: 10 * MILLISECOND_NS,
            phase_ns: 3 * MILLISECOND_NS,
            credit_ns: 4 * MILLISECOND_NS,
            reclaim: true,
        }
    );
    assert_eq!(control.guest, GuestScheduler::Edf);
    assert!(control.cpu_bound);
    assert_eq!(
        control.tick,
        Some(Tick {
            period_ns: 4 * MILLISECOND_NS,
            cost_ns: 44_000,
            offset_ns: 1_500_000,
            min_delta_ns: 100_000,
            wake_ns: 26_000,
        })
    );
    assert_eq!(
        control
            .vcpus
            .iter()
            .map(|vcpu| vcpu.cpu)
            .collect::<Vec<_>>(),
        [1, 3]
    );
    assert_eq!(control.vcpus[0].affinity, [1, 3]);
    assert_eq!(control.vcpus[0].soft_affinity, [1, 2]);
    let task = &control.tasks[0];
    assert_eq!((task.name.as_str(), task.vcpu), ("loop", 1));
    assert_eq!(
        [
            task.cost_ns,
            task.period_ns,
            task.deadline_ns,
            task.offset_ns,
            task.jitter_ns
        ],
        [5_000_000, 200_000_000, 100_000_000, 30_000, 1_000_000]
    );
    let task = &control.tasks[1];
    assert_eq!((task.vcpu, task.deadline_ns), (0, 200_000_000));
    let idle = &host.domains[1];
    assert!(idle.tasks.is_empty() && !idle.cpu_bound && idle.tick.is_none());
    assert_eq!(idle.vcpus[0].affinity, [0, 1, 2, 3]);
    assert_eq!(idle.vcpus[0].cpu, 0);
}

#[test]
fn every_key_of_telephony_arrives() {
    let host = host(FULL);
    let cache = |cpus: &[u32], mib: u64, refill_kib_ns| Cache {
        cpus: cpus.to_vec(),
        bytes: mib << 20,
        refill_kib_ns,
    };
    let caches = [cache(&[0, 1], 4, 2_000), cache(&[2, 3], 2, 1_600)];
    assert_eq!(host.caches, caches);
    assert_eq!(host.timer_latency_ns, 4_000);
    assert_eq!(host.domains[0].working_set_bytes, 512 << 10);
    let server = |threads, work| Server {
        threads,
        work,
        own_work: None,
        transcode: false,
        work_back: None,
        processing: Vec::new(),
    };
    let constant = |us: i64| Cost::Constant { ns: us * 1_000 };
    let relay = Cost::Quantiles {
        median_ns: 10_000,
        p90_ns: Some(14_000),
        p99_ns: 20_000,
        p999_ns: Some(25_000),
        max_ns: 30_000,
    };
    let plus = |cost: Cost, us: i64| cost.plus(constant(us));
    let workloads = [
        None,
        None,
        None,
        Some(Workload::Driver),
        Some(Workload::MediaServer(Server {
            // G.711 to Opus, and Opus to G.711.
            work_back: Some(plus(relay, 32 + 19 + 26 + 28)),
            processing: ["transcode-to", "srtp", "record"].map(Into::into).into(),
            ..server(3, plus(relay, 18 + 23 + 26 + 28))
        })),
        Some(Workload::SignallingServer(Server {
            own_work: Some(constant(100)),
            ..server(4, constant(100))
        })),
        Some(Workload::CallControl(server(4, constant(12)))),
        Some(Workload::Bursts {
            run_ns: 50 * MILLISECOND_NS,
            idle_ns: MILLISECOND_NS,
        }),
        Some(Workload::Sender {
            rate_bit_s: 50_000_000,
            frame_bytes: 256,
        }),
    ];
    let found: Vec<Option<Workload>> = (host.domains.iter())
        .map(|domain| domain.workload.clone())
        .collect();
    assert_eq!(found, workloads);

    let network = host.network.expect("a network");
    assert_eq!(network.driver, Some(3));
    let nic = |name: &str, rate_bit_s, domain, ring, coalesce_ns, coalesce_packets| Nic {
        name: name.into(),
        rate_bit_s,
        domain,
        ring,
        coalesce_ns,
        coalesce_packets,
    };
    let nics = [
        nic("eth0", 100_000_000, 3, 128, 40_000, 3),
        nic("eth1", 1_000_000_000, 4, 256, 0, 1),
    ];
    assert_eq!(network.nics, nics);
    let costs = network.costs;
    assert_eq!(costs.wake_up_latency, constant(16));
    assert_eq!(costs.after_send, constant(17));
    let told = [
        costs.interrupt,
        costs.receive,
        costs.transmit,
        costs.netback_receive,
        costs.netback_transmit,
        costs.netfront_receive,
        costs.netfront_transmit,
        costs.socket_receive,
        costs.socket_send,
    ];
    assert_eq!(told, [1, 2, 3, 4, 5, 6, 7, 8, 9].map(constant));
    let told = [
        costs.transcode,
        costs.signalling,
        costs.disk,
        costs.disk_latency,
        costs.look,
    ];
    assert_eq!(told, [11, 12, 13, 14_000, 15].map(constant));
    let agreement = |domain, class, minimum_bit_s, maximum_bit_s, weight| LinkAgreement {
        domain,
        class,
        minimum_bit_s,
        maximum_bit_s,
        weight,
    };
    let link = Link {
        rate_bit_s: 90_000_000,
        period_ns: 20 * MILLISECOND_NS,
        sharing: LinkSharing::ByClass,
        agreements: vec![
            agreement(5, 1, 10_000_000, 20_000_000, 1),
            agreement(8, 2, 0, 80_000_000, 3),
        ],
    };
    assert_eq!(network.link, Some(link));
    let protect = Protect {
        pause_ns: 2 * MILLISECOND_NS,
        page_pause_ns: 1_000,
        checkpoint_ns: 3 * MILLISECOND_NS,
        page_ns: 4_000,
        rate_bit_s: 2_000_000_000,
        acknowledgement_ns: 200_000,
        failure: Some(Failure {
            at_ns: 30_000 * MILLISECOND_NS,
            detection_ns: 100 * MILLISECOND_NS,
            activation_ns: 5 * MILLISECOND_NS,
        }),
        domains: vec![
            Protected {
                domain: 5,
                mode: ProtectMode::Net,
                interval_ns: 100 * MILLISECOND_NS,
                pages: 256,
                pages_per_packet: 0,
                pages_most: 262_144,
                held: 10_000,
            },
            Protected {
                domain: 6,
                mode: ProtectMode::NoNet,
                interval_ns: 25 * MILLISECOND_NS,
                pages: 100,
                pages_per_packet: 2,
                pages_most: 16_384,
                held: 500,
            },
        ],
    };
    assert_eq!(network.protect, Some(protect));

    let calls = host.calls.expect("calls");
    let per_s = |rate: Option<ArrivalRate>| rate.map(ArrivalRate::per_s);
    assert_eq!(per_s(calls.registrations), Some(5.0));
    assert_eq!(calls.registration_transport, Transport::TcpEach);
    let arrivals = (calls.streams, per_s(calls.rate), calls.hold_ns);
    assert_eq!(arrivals, (40, Some(2.5), 30_000 * MILLISECOND_NS));
    assert_eq!(calls.codec, Codec::G711);
    let servers = (
        calls.media_server,
        calls.signalling_server,
        calls.call_control,
    );
    assert_eq!(servers, (4, Some(5), Some(6)));
    assert_eq!((calls.through_media_server, calls.sample), (0.5, 2));
    assert_eq!(calls.playout, Playout::Adaptive);
    let acceptance = Acceptance {
        loss: 0.005,
        delay_ns: 100 * MILLISECOND_NS,
        mos: 3.9,
        failed: 0.002,
    };
    assert_eq!(calls.acceptance, acceptance);
}

#[test]
fn a_media_server_pays_for_all_that_it_does() {
    let work = |does: &str| {
        let text = format!(
            "duration = \"1 s\"
            [host]
            cpus = 1
            policy = \"credit\"
            [host.network]
            relay = \"1 us\"
            transcode = \"2 us\"
            decode-g711 = \"4 us\"
            encode-g711 = \"8 us\"
            decode-g729 = \"16 us\"
            encode-g729 = \"32 us\"
            decode-g722 = \"64 us\"
            encode-g722 = \"128 us\"
            mix = \"256 us\"
            srtp = \"512 us\"
            record = \"1024 us\"
            [[domain]]
            name = \"dom0\"
            workload = {{ kind = \"driver\" }}
            [[domain]]
            name = \"media\"
            workload = {{ kind = \"media-server\"{does} }}
            [calls]
            streams = 1
            media-server = \"media\""
        );
        let host = host(&text);
        let Some(Workload::MediaServer(server)) = &host.domains[1].workload else {
            panic!("{:?}", host.domains[1].workload);
        };
        let us = |cost: Cost| cost.max_ns() / 1_000;
        (us(server.work), server.work_back.map(us))
    };
    assert_eq!(work(""), (1, None));
    assert_eq!(
        work(", transcode-to = \"G.729\""),
        (1 + 4 + 32, Some(1 + 16 + 8))
    );
    assert_eq!(
        work(", transcode-to = \"G.722\""),
        (1 + 4 + 128, Some(1 + 64 + 8))
    );
    assert_eq!(work(", conference = true"), (1 + 4 + 256 + 8, None));
    assert_eq!(work(", transcode = true, srtp = true"), (1 + 2 + 512, None));
    assert_eq!(work(", record = true, srtp = false"), (1 + 1024, None));
    assert_eq!(work(", work = \"3 us\""), (3, None));
}

#[test]
fn defaults_of_telephony() {
    let text = r#"
        duration = "1 s"
        host = { cpus = 2, policy = "credit" }
        calls = { streams = 100, media-server = "media" }
        domain = [
            { name = "dom0", workload = { kind = "driver" } },
            { name = "media", workload = { kind = "media-server" } },
        ]
    "#;
    let host = host(text);
    let network = host.network.expect("a network");
    assert_eq!(network.nics.len(), 1);
    let nic = &network.nics[0];
    assert_eq!((nic.name.as_str(), nic.domain, nic.ring), ("eth0", 0, 256));
    assert_eq!((nic.coalesce_ns, nic.coalesce_packets), (0, 1));
    assert_eq!(nic.rate_bit_s, 1_000_000_000);
    assert!(network.costs.receive.max_ns() > 0);
    let calls = host.calls.expect("calls");
    assert_eq!((calls.streams, calls.rate), (100, None));
    assert_eq!(calls.acceptance, Acceptance::default());
    assert_eq!((calls.through_media_server, calls.sample), (1.0, 4));
    assert_eq!(calls.playout, Playout::Fixed);
    assert!(host.caches.is_empty());
    assert_eq!(host.timer_latency_ns, 0);
}

#[test]
fn one_file_runs_under_every_policy() {
    // Deadline does not admit two domains with only some CPUs in common, and arinc653 no windows that overlap.
    let refuse = [Policy::Deadline, Policy::Arinc653];
    for policy in (Policy::ALL.into_iter()).filter(|policy| !refuse.contains(policy)) {
        let host = host_with(FULL, &[&format!("host.policy={}", policy.name())]);
        assert_eq!(host.policy, policy);
        let budget_ns = if policy == Policy::Sedf {
            1_500_000
        } else {
            2_000_000
        };
        assert_eq!(host.domains[0].parameters.budget_ns, budget_ns);
    }
}

#[test]
fn nice_is_a_weight() {
    let weight = |nice: i64| {
        let text = format!(
            "duration = '1 s'\nhost = {{ cpus = 1, policy = 'eevdf' }}\ndomain = [{{ name = 'a', nice = {nice} }}]"
        );
        host(&text).domains[0].parameters.weight
    };
    assert_eq!([-20, -1, 0, 1, 19].map(weight), [22_204, 320, 256, 205, 4]);
}

#[test]
fn defaults() {
    let host = host(
        "duration = '10000 h'\nhost = { cpus = 1, policy = 'credit' }\ndomain = [{ name = 'a' }]",
    );
    assert_eq!((host.duration_ns, host.seed), (RUN_DURATION_NS_MAX, 1));
    assert_eq!(host.settings, Settings::default());
    assert!(host.costs.is_zero());
    let domain = &host.domains[0];
    assert_eq!(domain.vcpus.len(), 1);
    assert_eq!(
        domain.parameters,
        Parameters {
            budget_ns: 0,
            period_ns: 0,
            laxity_ns: 0,
            priority: 1,
            extratime: false,
            weight: 256,
            cap_percent: 0,
            rt_priority: 1,
            quota_ns: 0,
            quota_period_ns: 100_000_000,
            quota_burst_ns: 0,
            phase_ns: 0,
            credit_ns: 10_000_000,
            reclaim: false,
        }
    );
    assert_eq!(domain.guest, GuestScheduler::RateMonotonic);
}

#[test]
fn priorities_are_rate_monotonic_unless_given() {
    let text = r#"
        duration = "1 s"
        host = { cpus = 1, policy = "deferrable" }
        domain = [
            { name = "a", budget = "1 ms", period = "30 ms" },
            { name = "b", budget = "1 ms", period = "10 ms" },
            { name = "c", budget = "1 ms", period = "30 ms" },
            { name = "d", budget = "1 ms", period = "20 ms" },
        ]"#;
    let priorities = |host: &Host| -> Vec<u32> {
        host.domains
            .iter()
            .map(|domain| domain.parameters.priority)
            .collect()
    };
    assert_eq!(priorities(&host(text)), [3, 1, 4, 2]);
    let given = ["a", "b", "c", "d"].map(|name| format!("domain.{name}.priority=7"));
    let given: Vec<&str> = given.iter().map(String::as_str).collect();
    assert_eq!(priorities(&host_with(text, &given)), [7, 7, 7, 7]);
}

#[test]
fn tasks_go_to_the_vcpu_with_the_least_utilization() {
    let host = host(
        r#"
        duration = "1 s"
        host = { cpus = 1, policy = "credit" }
        [[domain]]
        name = "a"
        vcpus = 3
        tasks = [
            { name = "half", cost = "5 ms", period = "10 ms" },
            { name = "third", cost = "1 ms", period = "3 ms", vcpu = 1 },
            { name = "tenth", cost = "1 ms", period = "10 ms" },
            { name = "quarter", cost = "1 ms", period = "4 ms" },
            { name = "last", cost = "1 ms", period = "4 ms" },
        ]"#,
    );
    let vcpus: Vec<u32> = host.domains[0].tasks.iter().map(|task| task.vcpu).collect();
    assert_eq!(vcpus, [0, 1, 2, 2, 1]);
}

#[test]
fn vcpus_without_budget_are_spread_evenly() {
    let text = "duration = '1 s'\nhost = { cpus = 3, policy = 'credit' }\n\
                domain = [{ name = 'a', vcpus = 4 }, { name = 'b', affinity = [0, 2] }]";
    let cpus: Vec<u32> = host(text)
        .domains
        .iter()
        .flat_map(|domain| &domain.vcpus)
        .map(|vcpu| vcpu.cpu)
        .collect();
    assert_eq!(cpus, [0, 1, 2, 0, 2]);
}

const DRAWN: &str = r#"
duration = "1 s"
[host]
cpus = 1
policy = "deferrable"
costs = "emsoft-2011"
[draw]
load = "70 %"
tasks = 4
cost = ["2 ms", "3 ms"]
[[domain]]
name = "one"
budget = "2 ms"
period = "10 ms"
weight = 100
tasks = "drawn"
[[domain]]
name = "two"
budget = "6 ms"
period = "10 ms"
weight = 300
tasks = "drawn"
"#;

fn utilization(host: &Host, domain: usize) -> f64 {
    let tasks = &host.domains[domain].tasks;
    tasks
        .iter()
        .map(|task| task.cost_ns as f64 / task.period_ns as f64)
        .sum()
}

#[test]
fn drawn_tasks_make_up_the_load() {
    let host = host(DRAWN);
    assert_eq!(host.domains[0].tasks.len(), 4);
    assert!((utilization(&host, 0) - 0.7 * 0.2).abs() < 0.01);
    assert!((utilization(&host, 1) - 0.7 * 0.6).abs() < 0.05);
    assert!(host.domains[0].tasks.iter().all(|task| {
        [2, 3].contains(&(task.cost_ns / MILLISECOND_NS)) && task.period_ns % MILLISECOND_NS == 0
    }));
}

#[test]
fn drawn_tasks_depend_on_seed_and_domain_alone() {
    let drawn = |overrides: &[&str]| host_with(DRAWN, overrides).domains[0].tasks.clone();
    let first = drawn(&[]);
    assert_eq!(
        first,
        drawn(&["host.policy=credit", "domain.two.budget=1 ms"])
    );
    assert_ne!(first, drawn(&["seed=2"]));
    // Twice the load, half the periods, the same costs.
    let doubled = drawn(&["draw.load=1.4"]);
    for (one, two) in first.iter().zip(&doubled) {
        assert_eq!(one.cost_ns, two.cost_ns);
        assert!((one.period_ns - 2 * two.period_ns).abs() <= 2 * MILLISECOND_NS);
    }
}

#[test]
fn weights_are_the_share_where_there_is_no_budget() {
    let text: String = DRAWN
        .lines()
        .filter(|line| !line.starts_with("budget"))
        .map(|line| format!("{line}\n"))
        .collect();
    let host = host_with(&text, &["host.policy=credit"]);
    assert!((utilization(&host, 0) - 0.7 * 0.25).abs() < 0.02);
    assert!((utilization(&host, 1) - 0.7 * 0.75).abs() < 0.08);
}

#[test]
fn a_profile_of_costs_is_that_of_the_policy_in_force() {
    let median_ns = |policy: &str| {
        let set = format!("host.policy={policy}");
        host_with(DRAWN, &[&set]).costs.schedule.at(1 << 31)
    };
    assert_eq!(
        [
            median_ns("deferrable"),
            median_ns("periodic"),
            median_ns("credit")
        ],
        [121, 159, 108]
    );
}

#[test]
fn overrides_reach_everything() {
    let set = |overrides: &[&str]| host_with(FULL, overrides);
    assert_eq!(set(&["seed=9"]).seed, 9);
    assert_eq!(
        set(&["duration=1 min"]).duration_ns,
        60_000 * MILLISECOND_NS
    );
    assert_eq!(
        set(&["duration=\"1 min\""]).duration_ns,
        60_000 * MILLISECOND_NS
    );
    assert_eq!(
        set(&["host.costs=emsoft-2011"]).costs.schedule.max_ns(),
        322
    );
    assert_eq!(
        set(&["host.costs.schedule=1 us"]).costs.schedule,
        Cost::Constant { ns: 1_000 }
    );
    assert_eq!(
        set(&["domain.control.tasks.loop.cost=6 ms"]).domains[0].tasks[0].cost_ns,
        6_000_000
    );
    assert_eq!(
        set(&["domain.0.tasks.1.cost=6 ms"]).domains[0].tasks[1].cost_ns,
        6_000_000
    );
    assert!(
        set(&["domain.idle.extratime=true"]).domains[1]
            .parameters
            .extratime
    );
    assert_eq!(
        set(&["domain.idle.affinity=[2]"]).domains[1].vcpus[0].affinity,
        [2]
    );
    assert_eq!(
        set(&["domain.control.affinity.0=2"]).domains[0].vcpus[0].affinity,
        [1, 2]
    );
    assert_eq!(
        set(&["domain.control.name=steer", "domain.steer.weight=1"]).domains[0].name,
        "steer"
    );
    let drawn = set(&["domain.idle.tasks=drawn", "draw.load=50 %", "draw.tasks=2"]);
    assert_eq!(drawn.domains[1].tasks.len(), 2);
    // The last one holds.
    assert_eq!(set(&["seed=4", "seed=5"]).seed, 5);
}

#[test]
fn names_with_dots_are_found() {
    let text = "duration = '1 s'\nhost = { cpus = 1, policy = 'credit' }\n\
                domain = [{ name = 'a' }, { name = 'a.b' }]";
    let host = host_with(text, &["domain.a.weight=1", "domain.a.b.weight=2"]);
    let weights: Vec<u32> = host
        .domains
        .iter()
        .map(|domain| domain.parameters.weight)
        .collect();
    assert_eq!(weights, [1, 2]);
}

#[test]
fn helpers_are_domains_of_one_thread() {
    let text = r#"
        duration = "1 s"
        host = { cpus = 3, policy = "fifo" }
        [[domain]]
        name = "web"
        vcpus = 2
        affinity = [0, 2]
        rt-priority = 40
        weight = 512
        helpers = [
            { name = "emulator", cost = "0.3 ms", period = "4 ms", rt-priority = 50, affinity = [1] },
            { name = "io", cost = "50 us", period = "1 ms", offset = "2 ms", rt-priority = 30, budget = "100 us" },
        ]
        [[domain]]
        name = "other"
        "#;
    let host = host(text);
    let names: Vec<&str> = (host.domains.iter())
        .map(|domain| domain.name.as_str())
        .collect();
    assert_eq!(names, ["web", "other", "web:emulator", "web:io"]);
    let owners = host.domains.iter().map(|domain| domain.helper_of);
    assert_eq!(owners.collect::<Vec<_>>(), [None, None, Some(0), Some(0)]);
    let [.., emulator, io] = host.domains.as_slice() else {
        panic!("{names:?}")
    };
    assert_eq!(emulator.vcpus[0].affinity, [1]);
    assert_eq!(io.vcpus[0].affinity, [0, 2]);
    let of = |helper: &Parameters| (helper.rt_priority, helper.budget_ns, helper.weight);
    assert_eq!(of(&emulator.parameters), (50, 0, 512));
    assert_eq!(of(&io.parameters), (30, 100_000, 512));
    assert_eq!(io.parameters.period_ns, MILLISECOND_NS);
    let task = &io.tasks[0];
    assert_eq!(
        (
            task.cost_ns,
            task.period_ns,
            task.deadline_ns,
            task.offset_ns
        ),
        (50_000, MILLISECOND_NS, MILLISECOND_NS, 2 * MILLISECOND_NS)
    );
}

#[test]
fn files_from_other_systems_are_read() {
    let text = include_str!("every-key.toml");
    let expected = host(text);
    assert_eq!(host(&text.replace('\n', "\r\n")), expected);
    assert_eq!(host(&format!("\u{feff}{text}")), expected);
}
