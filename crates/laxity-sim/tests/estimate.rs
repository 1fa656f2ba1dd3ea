//! What is told before a run is near what comes of it, on every example and under every policy.

use laxity_host::{Host, Policy, load};
use laxity_sim::{Estimate, estimate, run};

fn example(name: &str, overrides: &[&str]) -> Host {
    let path = format!("{}/../../examples/{name}.toml", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).expect("the example is there");
    load(text, &path, overrides).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn events_are_of_the_right_order() {
    let mut hosts = Vec::new();
    for name in ["flat", "integrator", "overload", "rt-xen"] {
        // Deadline does not admit some of the budgets, and arinc653 no windows that overlap. Under fifo an endless
        // loop lets nobody else run, and eevdf's ticks leave no records.
        let others = [
            Policy::Deadline,
            Policy::Fifo,
            Policy::Eevdf,
            Policy::Arinc653,
        ];
        for policy in (Policy::ALL.into_iter()).filter(|policy| !others.contains(policy)) {
            let policy = format!("host.policy={}", policy.name());
            hosts.push(example(name, &[&policy, "duration=2 s"]));
        }
        hosts.push(example(name, &["host.quantum=100 us", "duration=2 s"]));
    }
    for name in ["link", "protect", "telephony", "telephony-xen"] {
        hosts.push(example(name, &["duration=6 s"]));
    }
    let mut wrong = Vec::new();
    for host in hosts {
        let (outcome, trace) = run(&host, Vec::new()).expect("the policy takes it");
        let told = estimate(&host);
        let mut near = |told: u64, found: u64, what: &str| {
            let factor = told as f64 / found as f64;
            if !(0.4..4.0).contains(&factor) {
                wrong.push(format!(
                    "{factor:.2} times {found} {what}: {:?}, {} domains, quantum {} ns",
                    host.policy,
                    host.domains.len(),
                    host.settings.quantum_ns
                ));
            }
        };
        near(told.events, outcome.result.engine.events, "events");
        let trace_bytes = laxity_trace::Record::BYTES * trace.len();
        near(told.trace_bytes, trace_bytes as u64, "bytes of trace");
        if let Some(telephony) = &outcome.result.telephony {
            near(told.packets, telephony.voice.sent, "packets");
        }
    }
    assert!(wrong.is_empty(), "told:\n{}", wrong.join("\n"));
}

#[test]
fn what_no_machine_can_do_is_told_at_once() {
    let host = example("flat", &["duration=10000 h", "host.quantum=1 ns"]);
    let told = estimate(&host);
    assert!(told.cpu_ns > laxity_sim::TIME_NS_MAX, "{told:?}");
    let twice = told.and(told);
    assert_eq!((twice.runs, twice.memory_bytes), (2, told.memory_bytes));
    assert!(twice.cpu_ns > told.cpu_ns);
    assert_eq!(told.and(Estimate::default()), told);
}
