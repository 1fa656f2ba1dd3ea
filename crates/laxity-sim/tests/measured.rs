//! A run that is told by its jobs and counters alone has the outcome that the simulator gives.

use laxity_run::{Measured, Outcome, outcome_of_jobs};
use laxity_trace::Kind;

/// Overloaded, so that jobs complete late and not at all; the second task's last deadline is the end.
const HOST: &str = r#"
    duration = "1 s"
    [host]
    cpus = 1
    policy = "deferrable"
    [[domain]]
    name = "control"
    budget = "5 ms"
    period = "10 ms"
    tasks = [
        { name = "loop", cost = "8 ms", period = "15 ms", offset = "1 ms" },
        { name = "log", cost = "3 ms", period = "100 ms", deadline = "50 ms", offset = "50 ms" },
    ]
    [[domain]]
    name = "batch"
    budget = "5 ms"
    period = "10 ms"
    workload = { kind = "cpu-bound" }
"#;

fn measured(outcome: &Outcome) -> Measured {
    let result = &outcome.result;
    Measured {
        cpu_ns: result.domains.iter().map(|domain| domain.cpu_ns).collect(),
        schedule_calls: result.overhead.schedule_calls,
        context_switches: result.overhead.context_switches,
        schedule_ns: result.overhead.schedule_ns,
        context_switch_ns: result.overhead.context_switch_ns,
        events: result.engine.events,
        wall_ns: result.engine.wall_ns,
    }
}

#[test]
fn a_simulated_run_told_by_its_jobs_has_the_same_outcome() {
    let host = laxity_host::load(HOST, "host.toml", &[] as &[&str]).expect("it is right");
    let (mut simulated, trace) = laxity_sim::run(&host, Vec::new()).expect("the policy takes it");
    for domain in &mut simulated.result.domains {
        domain.waits = None; // jobs do not tell them
    }
    let mut completions_ns: Vec<Vec<Vec<i64>>> = host
        .domains
        .iter()
        .map(|domain| vec![vec![]; domain.tasks.len()])
        .collect();
    for record in trace.iter().filter(|record| record.kind == Kind::Complete) {
        let (task, _) = laxity_trace::task_of(record.argument);
        completions_ns[usize::from(record.domain)][task as usize].push(record.time_ns);
    }
    // Real guests go on behind the end.
    completions_ns[0][0].push(host.duration_ns + 1);
    let found = outcome_of_jobs(&host, "sim", &completions_ns, &measured(&simulated))
        .expect("it is of this host");
    assert_eq!(found.result, simulated.result);
    assert_eq!(found.responses, simulated.responses);
    let unfinished = found.result.domains[0].tasks[0].unfinished;
    assert!(unfinished > 0, "the host is overloaded");
}

#[test]
fn what_is_of_another_host_is_refused() {
    let host = laxity_host::load(HOST, "host.toml", &[] as &[&str]).expect("it is right");
    let (outcome, _) = laxity_sim::run(&host, laxity_trace::Off).expect("the policy takes it");
    let mut measured = measured(&outcome);
    let error = |completions_ns: &[Vec<Vec<i64>>], measured: &Measured| {
        let error = outcome_of_jobs(&host, "xen", completions_ns, measured);
        error.expect_err("it is of another host").to_string()
    };
    assert!(error(&[vec![vec![], vec![]]], &measured).contains("domains and tasks"));
    let early = [vec![vec![0], vec![]], vec![]];
    assert!(error(&early, &measured).contains("task control.loop: job 0 cannot"));
    measured.cpu_ns.push(0);
    assert_eq!(
        error(&[vec![vec![], vec![]], vec![]], &measured),
        "3 CPU times were measured; the host file has 2 domains"
    );
}
