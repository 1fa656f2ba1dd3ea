//! What people read when two opinions part.

use crate::support::{Also, domain, host};
use laxity_host::Policy;
use laxity_reference::{difference, simulate};

#[test]
fn a_difference_is_told_with_its_host() {
    let a = domain(1, 2, 5).task(3, 4, 10);
    let host = host(Policy::Deferrable, 20, vec![a]);
    let expected = simulate(&host).expect("a host that is modelled").jobs;
    assert_eq!(difference(17, &host, &expected, &expected), None);

    let mut found = expected.clone();
    found[0].completion_ns = Some(8_500_000);
    found.remove(1);
    let wanted = "\
seed 17: domain 0 task 0 job 0 arrived at 3 ms and completed at 8500 us, expected: arrived at 3 ms and completed at 7 ms
seed 17: domain 0 task 0 job 1 does not exist, expected: arrived at 13 ms and completed at 17 ms
deferrable on 1 CPUs for 20 ms, quantum 0 ms
  domain 0: 2 ms every 5 ms, priority 1, RateMonotonic
    vcpu 0 on CPU 0 of [0]
    task 0 on vcpu 0: 4 ms every 10 ms from 3 ms, deadline 10 ms
";
    assert_eq!(
        difference(17, &host, &expected, &found).as_deref(),
        Some(wanted)
    );
}
