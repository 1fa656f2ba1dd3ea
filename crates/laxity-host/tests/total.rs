//! Whatever the input, `load` answers: a host or a message, never a panic. A failure prints the
//! input that repeats it.

use laxity_config::{FILE_BYTES_MAX, FileProblem, HOUR_NS, format_duration};
use laxity_host::{Document, Host, Policy, load};
use proptest::prelude::*;

const HOST: &str = r#"
duration = "1 s"
[host]
cpus = 2
policy = "sedf"
costs = { schedule = "1 us" }
[draw]
load = 0.5
[[domain]]
name = "control"
budget = "2 ms"
period = "10 ms"
tasks = [{ name = "loop", cost = "5 ms", period = "200 ms" }, { name = "a.b", cost = "1 ms", period = "2 ms" }]
[[domain]]
name = "batch"
vcpus = 3
budget = "2 ms"
period = "10 ms"
affinity = [1]
tasks = "drawn"
workload = { kind = "cpu-bound" }
tick = { period = "4 ms", cost = "44 us" }
"#;

/// What every [`Host`] promises.
fn assert_sound(host: &Host) {
    assert!(host.duration_ns >= 1 && host.cpus >= 1 && !host.domains.is_empty());
    assert_eq!(host.settings.accounting_ns % host.settings.tick_ns, 0);
    for domain in &host.domains {
        let parameters = &domain.parameters;
        if host.policy.has_budgets() {
            assert!((1..=parameters.period_ns).contains(&parameters.budget_ns));
        }
        assert!(parameters.priority >= 1 && parameters.weight >= 1);
        assert!(!domain.vcpus.is_empty());
        for vcpu in &domain.vcpus {
            assert!(vcpu.affinity.contains(&vcpu.cpu));
            assert!(vcpu.affinity.is_sorted_by(|one, next| one < next));
            assert!(vcpu.affinity.iter().all(|cpu| *cpu < host.cpus));
        }
        for task in &domain.tasks {
            assert!((task.vcpu as usize) < domain.vcpus.len());
            assert!(1 <= task.cost_ns && task.cost_ns <= task.deadline_ns);
            assert!(task.deadline_ns <= task.period_ns && task.period_ns <= HOUR_NS);
            assert!((0..task.period_ns).contains(&task.jitter_ns));
            assert!((0..host.duration_ns).contains(&task.offset_ns));
        }
        if let Some(tick) = &domain.tick {
            assert!((1..tick.period_ns).contains(&tick.cost_ns) && tick.period_ns <= HOUR_NS);
            assert!((0..tick.period_ns).contains(&tick.offset_ns));
            assert!((0..tick.period_ns).contains(&tick.min_delta_ns));
        }
    }
}

/// Loads; looks at the host, or shows the message as a terminal would have it.
fn load_and_look(text: &[u8], overrides: &[String]) {
    match load(text, "host.toml", overrides) {
        Ok(host) => assert_sound(&host),
        Err(error) => {
            assert!(!error.problems().is_empty());
            let has_place = |problem: &FileProblem| problem.line() > 0 && problem.column() > 0;
            assert!(error.problems().iter().all(has_place));
            assert!(!error.render(true, 80).is_empty());
            assert!(!error.to_string().is_empty());
        }
    }
}

/// One piece of the host file replaced, doubled or taken out, at any place.
fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        any::<Vec<u8>>(),
        "[a-z\\[\\]{}=\"., 0-9\n#'µ-]{0,12}".prop_map(String::into_bytes),
        any::<i64>().prop_map(|number| number.to_string().into_bytes()),
    ];
    (0..HOST.len(), 0..40_usize, piece).prop_map(|(at, length, piece)| {
        let end = (at + length).min(HOST.len());
        [&HOST.as_bytes()[..at], &piece, &HOST.as_bytes()[end..]].concat()
    })
}

fn any_path() -> impl Strategy<Value = String> {
    let step = prop_oneof![
        Just("domain".to_string()),
        Just("host".to_string()),
        Just("draw".to_string()),
        Just("control".to_string()),
        Just("batch".to_string()),
        Just("tasks".to_string()),
        Just("a.b".to_string()),
        Just("loop".to_string()),
        Just("vcpus".to_string()),
        Just("load".to_string()),
        Just("cost".to_string()),
        Just("costs".to_string()),
        Just("budget".to_string()),
        Just("period".to_string()),
        Just("name".to_string()),
        "[0-9]{1,2}",
        any::<String>(),
    ];
    prop::collection::vec(step, 0..5).prop_map(|steps| steps.join("."))
}

fn plausible() -> impl Strategy<Value = String> {
    let domain = prop_oneof![Just("control"), Just("batch")];
    let time = (1..30_i64, prop_oneof![Just("us"), Just("ms"), Just("s")]);
    let time = time.prop_map(|(count, unit)| format!("{count} {unit}"));
    let policy = prop::sample::select(&Policy::ALL);
    prop_oneof![
        (
            domain.clone(),
            prop_oneof![Just("budget"), Just("period"), Just("slice")],
            time.clone()
        )
            .prop_map(|(domain, key, time)| format!("domain.{domain}.{key}={time}")),
        (
            prop_oneof![Just("cost"), Just("period"), Just("offset"), Just("jitter")],
            time
        )
            .prop_map(|(key, time)| format!("domain.control.tasks.loop.{key}={time}")),
        (domain.clone(), 1..6).prop_map(|(domain, vcpus)| format!("domain.{domain}.vcpus={vcpus}")),
        (domain.clone(), 0..3)
            .prop_map(|(domain, cpu)| format!("domain.{domain}.affinity=[{cpu}]")),
        domain.prop_map(|domain| format!("domain.{domain}.tasks=drawn")),
        policy.prop_map(|policy| format!("host.policy={}", policy.name())),
        (1..5).prop_map(|cpus| format!("host.cpus={cpus}")),
        (1..150).prop_map(|percent| format!("draw.load={percent} %")),
        (1..9).prop_map(|tasks| format!("draw.tasks={tasks}")),
        any::<u32>().prop_map(|seed| format!("seed={seed}")),
    ]
}

fn any_value() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "[0-9.]{1,20} ?(ns|us|ms|s|h|%|)",
        any::<i64>().prop_map(|number| number.to_string()),
        any::<f64>().prop_map(|number| number.to_string()),
        "[\\[\\]{}\"a-z=, 0-9]{0,30}",
        Just("drawn".to_string()),
        Just("true".to_string()),
        Just("2011-10-09".to_string()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn any_bytes(text in any::<Vec<u8>>()) {
        load_and_look(&text, &[]);
    }

    #[test]
    fn any_text(text in any::<String>()) {
        load_and_look(text.as_bytes(), &[]);
    }

    #[test]
    fn any_mutation(text in mutated()) {
        load_and_look(&text, &[]);
    }

    #[test]
    fn any_override(overrides in prop::collection::vec((any_path(), any_value()), 1..4)) {
        let overrides: Vec<String> =
            overrides.into_iter().map(|(path, value)| format!("{path}={value}")).collect();
        load_and_look(HOST.as_bytes(), &overrides);
    }

    /// Values that fit their keys, so that many hosts come out.
    #[test]
    fn any_plausible_override(overrides in prop::collection::vec(plausible(), 1..6)) {
        load_and_look(HOST.as_bytes(), &overrides);
    }

    #[test]
    fn any_override_text(text in any::<String>()) {
        load_and_look(HOST.as_bytes(), &[text]);
    }

    #[test]
    fn a_document_gives_what_load_gives(budget_ns in 1..=HOUR_NS) {
        let document = Document::parse(HOST, "host.toml").unwrap();
        let set = [format!("domain.control.budget={}", format_duration(budget_ns))];
        match (document.host(&set), load(HOST, "host.toml", &set)) {
            (Ok(one), Ok(other)) => prop_assert_eq!(one, other),
            (Err(one), Err(other)) => prop_assert_eq!(one.to_string(), other.to_string()),
            (one, other) => prop_assert!(false, "{one:?} and {other:?}"),
        }
        // The document itself has not changed.
        prop_assert_eq!(document.host(&[""; 0]).unwrap(), load(HOST, "host.toml", &[""; 0]).unwrap());
    }
}

#[test]
fn what_is_no_text_is_refused() {
    let said = |text: &[u8]| {
        let error = load(text, "host.toml", &[""; 0]).unwrap_err();
        let problem = &error.problems()[0];
        (
            problem.line(),
            problem.column(),
            problem.message().to_string(),
        )
    };
    assert_eq!(
        said(b"\x7fELF\x02\0\0\0"),
        (1, 1, "this is a binary file: it contains NUL bytes".into())
    );
    assert_eq!(
        said(b"seed = 1\nname = \"\xe9t\xe9\""),
        (2, 9, "this file is not UTF-8: the byte here is 0xe9".into())
    );
    let huge = vec![b'#'; FILE_BYTES_MAX + 1];
    assert_eq!(
        said(&huge),
        (1, 1, "this file is too large: 4194305 bytes".into())
    );
}

#[test]
fn what_is_written_cannot_write_to_the_terminal() {
    let error = load("\"\\u001b[31mred\\nline\" = 1", "a\x1b[31mb", &[""; 0]).unwrap_err();
    let said = error.to_string();
    assert!(said.contains("unknown key"), "{said}");
    assert!(!said.contains('\x1b'), "{said:?}");
    assert!(!said.contains("red\nline"), "{said:?}");
    // A terminal may also obey the control characters of Latin-1, which TOML has in comments and texts.
    let text = "x = 1 # \u{9b}31m\ny = '\u{90}'\n'\u{9d}' = 1";
    let error = load(text, "a\u{9b}b", &["z=\u{9b}"]).unwrap_err();
    for said in [error.to_string(), error.render(true, 80)] {
        assert!(said.contains("unknown key `x`"), "{said}");
        assert!(
            !said.contains(|c| ('\u{80}'..='\u{9f}').contains(&c)),
            "{said:?}"
        );
    }
}

#[test]
fn what_is_far_too_long_is_still_refused_soon() {
    let started = std::time::Instant::now();
    let bytes = 1 << 19;
    for text in [
        "x = 1\n".repeat(bytes / 6),
        format!("x = \"{}\"", "y".repeat(bytes)),
        format!("x = {}", "[".repeat(bytes)),
        format!("{} = 1", "x.".repeat(bytes / 2)),
        (0..bytes / 12)
            .map(|line| format!("key-{line} = 1\n"))
            .collect(),
        format!("domain = [{}]", "{},".repeat(bytes / 3)),
        format!("domain = [{}]", "{}, 1\n,".repeat(bytes / 8)),
    ] {
        load_and_look(text.as_bytes(), &[]);
    }
    // A mistake in each of the most lines that there can be, and the most overrides.
    load_and_look("x\n".repeat(FILE_BYTES_MAX / 2).as_bytes(), &[]);
    let overrides = vec!["x=1".to_string(); FILE_BYTES_MAX / 4];
    load_and_look(HOST.as_bytes(), &overrides);
    // A minute where the machine is slow and busy; hours if anything were quadratic.
    assert!(
        started.elapsed().as_secs() < 1800,
        "{:?}",
        started.elapsed()
    );
}
