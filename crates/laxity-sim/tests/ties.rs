//! Jobs of one instant are released in the order of the host file, or of a trace.

use laxity_host::Host;
use laxity_sim::{Watch, run, run_watched};
use laxity_trace::{Kind, Reader, Tie, Writer, ties};
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

/// The file of the trace of a run with these ties.
fn traced(host: &Host, of: &[Tie]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let metadata = laxity_run::metadata(host, "sim");
    let writer = Writer::new(&mut bytes, &metadata).expect("a Vec takes everything");
    let found = run_watched(host, of, writer, &Watch::default()).expect("the policy takes it");
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
        let file = traced(&host, &given);
        prop_assert_eq!(&ties(reader(&file)).expect("it is sound"), &given);
        prop_assert_eq!(turns(&file), orders.concat());
        prop_assert_eq!(traced(&host, &ties(reader(&file)).expect("it is sound")), file);
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
    let file = traced(&host, &given);
    let mut expected = [0, 1, 2].repeat(PERIODS);
    expected[6..9].copy_from_slice(&[2, 0, 1]);
    assert_eq!(turns(&file), expected);
    let (_, records) = run(&host, Vec::new()).expect("the policy takes it");
    let without: Vec<_> = reader(&traced(&host, &[])).map(Result::unwrap).collect();
    assert_eq!(records, without);
}
