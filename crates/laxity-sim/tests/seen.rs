//! What no host file tells is as a trace shows it: the order of jobs that are released at one instant, and the ticks of
//! idle guests.

use laxity_host::Host;
use laxity_sim::{Watch, run, run_watched};
use laxity_trace::{Kind, OwnWake, Reader, Seen, Tie, Writer, seen};
use proptest::prelude::*;

const MS: i64 = 1_000_000;
const PERIODS: usize = 8;

/// Three guests whose jobs are released together each 10 ms, and are done before the next ones, under a policy that
/// serves VCPUs first in, first out.
fn host() -> Host {
    let domain = |name| {
        format!(
            r#"
            [[domain]]
            name = "{name}"
            tasks = [
                {{ name = "short", cost = "1 ms", period = "10 ms" }},
                {{ name = "long", cost = "1 ms", period = "20 ms", offset = "10 ms" }},
            ]
            "#
        )
    };
    let text = format!(
        "duration = \"{} ms\"\nhost = {{ cpus = 1, policy = \"fifo\" }}\n{}",
        10 * PERIODS - 1,
        ["a", "b", "c"].map(domain).concat()
    );
    laxity_host::load(&text, "host.toml", &[] as &[&str]).unwrap_or_else(|error| panic!("{error}"))
}

fn of_ties(ties: &[Tie]) -> Seen {
    Seen {
        ties: ties.to_vec(),
        own_wakes: Vec::new(),
    }
}

/// The file of the trace of a run in which all is as it was seen.
fn traced(host: &Host, seen: &Seen) -> Vec<u8> {
    let mut bytes = Vec::new();
    let metadata = laxity_run::metadata(host, "sim");
    let writer = Writer::new(&mut bytes, &metadata).expect("a Vec takes everything");
    let found = run_watched(host, seen, writer, &Watch::default()).expect("the policy takes it");
    let (_, writer) = found.expect("nobody cancels");
    writer.finish().expect("a Vec takes everything");
    bytes
}

fn reader(file: &[u8]) -> Reader<&[u8]> {
    Reader::new(file).expect("it was written here")
}

/// The domains whose turns there are, in order.
fn turns(file: &[u8]) -> Vec<u16> {
    reader(file)
        .map(|record| record.expect("it was written here"))
        .filter(|record| record.kind == Kind::Run)
        .map(|record| record.domain)
        .collect()
}

proptest! {
    /// The trace of a run has the ties that it was given, and turns in their order; a run that is given these again is
    /// the same to the byte.
    #[test]
    fn releases_of_an_instant_come_in_the_order_of_the_tie(
        orders in prop::collection::vec(Just(vec![0_u16, 1, 2]).prop_shuffle(), PERIODS),
    ) {
        let host = host();
        let given: Vec<Tie> = (0..)
            .zip(&orders)
            .map(|(number, order)| Tie {
                time_ns: 10 * MS * number,
                vcpus: order.iter().map(|&domain| (domain, 0)).collect(),
            })
            .collect();
        let given = of_ties(&given);
        let file = traced(&host, &given);
        prop_assert_eq!(&seen(reader(&file)).expect("it is sound"), &given);
        prop_assert_eq!(turns(&file), orders.concat());
        prop_assert_eq!(traced(&host, &seen(reader(&file)).expect("it is sound")), file);
    }
}

/// A VCPU that is not named comes after those that are, and instants without a tie are in the order of the host file.
#[test]
fn others_come_in_the_order_of_the_host_file() {
    let tie = |time_ns, vcpus: &[(u16, u16)]| Tie {
        time_ns,
        vcpus: vcpus.to_vec(),
    };
    let host = host();
    // The first of them is at an instant at which nothing is released.
    let given = [tie(5 * MS, &[(2, 0), (1, 0)]), tie(20 * MS, &[(2, 0)])];
    let file = traced(&host, &of_ties(&given));
    let mut expected = [0, 1, 2].repeat(PERIODS);
    expected[6..9].copy_from_slice(&[2, 0, 1]);
    assert_eq!(turns(&file), expected);
    let (_, records) = run(&host, Vec::new()).expect("the policy takes it");
    let without: Vec<_> = reader(&traced(&host, &Seen::default()))
        .map(Result::unwrap)
        .collect();
    assert_eq!(records, without);
}

/// The job is complete at 1.01 ms, so that the guest takes the tick of 2 ms, and no more until the job of 20 ms. It
/// takes that of 10 ms, too, if it was seen to wake for it. Other ticks are those of other VCPUs, or come too long
/// before a wake. The trace of such a run shows the same.
#[test]
fn an_idle_guest_takes_the_ticks_for_which_it_was_seen_to_wake() {
    let domain = |name| {
        format!(
            r#"
            [[domain]]
            name = "{name}"
            tick = {{ period = "4 ms", cost = "10 us", offset = "2 ms" }}
            tasks = [{{ name = "short", cost = "1 ms", period = "20 ms", offset = "10 us" }}]
            "#
        )
    };
    let text = format!(
        "duration = \"20 ms\"\nhost = {{ cpus = 2, policy = \"fifo\" }}\n{}",
        ["a", "b"].map(domain).concat()
    );
    let host = laxity_host::load(&text, "host.toml", &[] as &[&str])
        .unwrap_or_else(|error| panic!("{error}"));
    let wakes_us = |seen: &Seen| -> Vec<(i64, u16)> {
        reader(&traced(&host, seen))
            .map(Result::unwrap)
            .filter(|record| record.kind == Kind::Wake && record.time_ns > 2 * MS)
            .map(|record| (record.time_ns / 1000, record.domain))
            .collect()
    };
    assert_eq!(wakes_us(&Seen::default()), []);
    let own = |time_us: i64, domain: u16| OwnWake {
        time_ns: 1000 * time_us,
        vcpu: (domain, 0),
    };
    let given = Seen {
        own_wakes: vec![
            own(2_003, 0),
            own(5_999, 1),
            own(6_101, 0),
            own(10_003, 0),
            own(14_100, 1),
            own(18_000, 0),
            own(18_000, 1),
        ],
        ..Seen::default()
    };
    let expected = [(10_000, 0), (14_000, 1), (18_000, 0), (18_000, 1)];
    assert_eq!(wakes_us(&given), expected);
    let shown = seen(reader(&traced(&host, &given))).expect("it is sound");
    assert_eq!(wakes_us(&shown), expected);
}
