//! Schedules worked out by hand from `docs/explanation/policies.md`, a letter a millisecond.

use crate::support::{Also, MS, completions, domain, host, timeline};
use laxity_host::{Cost, Host, Policy, Settings};
use laxity_reference::{Refusal, simulate};

/// Its budget is kept until the work comes, and the next one follows at once: 4 ms in a row.
#[test]
fn deferrable_runs_back_to_back() {
    let a = domain(1, 2, 5).task(3, 4, 20);
    let b = domain(2, 10, 10).busy();
    //          A's work comes at 3, its second budget at 5
    //             v v
    let wanted = "BBBAAAABBB";
    assert_eq!(
        timeline(&host(Policy::Deferrable, 10, vec![a, b]), 0),
        wanted
    );
}

/// Both are equals. A's budget is used up at 5, just when it is replenished: it is behind B. At 10
/// that happens to B.
#[test]
fn a_budget_used_up_when_it_is_replenished_goes_behind_equals() {
    let a = domain(1, 5, 5).busy();
    let b = domain(1, 5, 10).busy();
    let wanted = "AAAAABBBBBAAAAABBBBB";
    assert_eq!(
        timeline(&host(Policy::Deferrable, 20, vec![a, b]), 0),
        wanted
    );
}

/// Equals. B is replenished at 4 with 1 left: it goes on, though A has been waiting since 3.
#[test]
fn a_budget_that_is_not_used_up_keeps_its_place() {
    let a = domain(1, 16, 16).task(3, 4, 100);
    let b = domain(1, 3, 4).task(2, 4, 100);
    let wanted = "..BBBBAAAA";
    let host = host(Policy::Deferrable, 10, vec![a, b]);
    assert_eq!(timeline(&host, 0), wanted);
}

/// The budget of 0 is gone when the job of 1 comes, that of 5 is dropped at 6 when it is done: the
/// job of 7 waits for 10. The job of 15 comes at the instant of a replenishment and is served.
#[test]
fn polling_loses_its_budget() {
    let a = (domain(1, 2, 5).task(1, 1, 20))
        .task(7, 1, 20)
        .task(15, 1, 20);
    let wanted = ".....A....A....A.";
    assert_eq!(timeline(&host(Policy::Polling, 17, vec![a]), 0), wanted);
}

/// At 5 A is replenished and its last job ends: it blocks now, and drops the new budget.
#[test]
fn polling_drops_a_budget_that_comes_as_the_last_job_ends() {
    let a = domain(1, 5, 5).task(0, 5, 20).task(6, 1, 20);
    let wanted = "AAAAA.....A.";
    assert_eq!(timeline(&host(Policy::Polling, 12, vec![a]), 0), wanted);
}

/// A's job ends at 5 and another arrives at 5: it never blocked.
#[test]
fn a_job_that_comes_as_the_last_one_ends_finds_the_vcpu_awake() {
    let a = domain(1, 8, 20)
        .task(0, 5, 20)
        .task(5, 2, 20)
        .task(8, 1, 20);
    let wanted = "AAAAAAA.............";
    assert_eq!(timeline(&host(Policy::Polling, 20, vec![a]), 0), wanted);
}

/// A's idle task comes before B.
#[test]
fn periodic_idles_its_budget_away() {
    let a = domain(1, 3, 6).task(1, 2, 12);
    let b = domain(2, 6, 6).busy();
    let wanted = ".AABBB...BBB.AABBB";
    assert_eq!(timeline(&host(Policy::Periodic, 18, vec![a, b]), 0), wanted);
}

/// B has budget at 0 and 12, and so waits for A's idle task. At 6 it has none, and runs on extra
/// time while A's budget runs down.
#[test]
fn periodic_gives_idled_time_to_extratime() {
    let a = domain(1, 3, 6).task(1, 2, 12);
    let b = domain(2, 1, 12).busy().extratime();
    let wanted = ".AABBBBBBBBB.AABBB";
    assert_eq!(timeline(&host(Policy::Periodic, 18, vec![a, b]), 0), wanted);
}

/// Equals. A's place is from 0, though it is blocked until 5: it comes first while its budget runs
/// down, and B waits. At 4 it has none; at 8 it is behind B, whose budget came at 0.
#[test]
fn periodic_keeps_its_place_while_blocked_and_loses_it_with_its_budget() {
    let a = domain(1, 4, 8).task(9, 2, 100);
    let b = domain(1, 8, 16).busy();
    //            A idles | B to 12 | A: 2 of work, 2 idle
    let wanted = "....BBBBBBBBAA..";
    assert_eq!(timeline(&host(Policy::Periodic, 16, vec![a, b]), 0), wanted);
}

/// Equals. A blocks at 1 and keeps its place: its idle task runs to 4 before B does.
#[test]
fn periodic_keeps_its_place_when_it_blocks() {
    let a = domain(1, 4, 8).task(0, 1, 100);
    let b = domain(1, 8, 16).busy();
    let wanted = "A...BBBBBBBB....";
    let host = host(Policy::Periodic, 16, vec![a, b]);
    assert_eq!(timeline(&host, 0), wanted);
}

/// A is preempted at 2: 2 come back at 10, the third at 14, one period after it was chosen for it,
/// and so on.
#[test]
fn sporadic_splits_its_replenishments() {
    let a = domain(2, 3, 10).busy();
    let b = domain(1, 5, 20).task(2, 2, 20);
    //            0    5    10   15   20
    let wanted = "AABBA.....AA..A.....AABBA";
    assert_eq!(timeline(&host(Policy::Sporadic, 25, vec![a, b]), 0), wanted);
}

/// The whole period is the budget: what is used up at 4 comes back at 4, behind the equal.
#[test]
fn sporadic_with_a_full_budget_gives_way_to_equals() {
    let a = domain(1, 4, 4).busy();
    let b = domain(1, 4, 4).busy();
    let wanted = "AAAABBBBAAAABBBB";
    assert_eq!(timeline(&host(Policy::Sporadic, 16, vec![a, b]), 0), wanted);
}

/// A uses its budget of 40 in 40 runs of 1 ms, 2 ms apart, each ended by blocking. 32 replenishments
/// can be pending: eight times the two neighbours are merged, the first in time, of which the first run's is late the
/// least, by the 1 ms between the two.
#[test]
fn sporadic_keeps_32_replenishments() {
    let a = domain(1, 40, 100).task(0, 1, 2);
    let full = "A.".repeat(40);
    // From 80 there is no budget, while jobs queue. What the runs chosen at 0 and 2 used would come at
    // 100 and 102, and comes at 101 and is used in 2 ms; and so on, up to those chosen at 28 and 30.
    // 1 ms comes back at 132, 134, … 178.
    let waiting = ".".repeat(21);
    let double = "AA..".repeat(7) + "AA.";
    let single = "A.".repeat(24);
    let wanted = format!("{full}{waiting}{double}{single}");
    assert_eq!(wanted.len(), 180);
    assert_eq!(timeline(&host(Policy::Sporadic, 180, vec![a]), 0), wanted);
}

/// Two of 1 ms each a little apart, and 31 runs of 2 ms far apart from them and from one another: the two are merged,
/// though the latest is elsewhere.
#[test]
fn sporadic_merges_what_is_close_in_time() {
    let a = (0..31).fold(
        domain(1, 64, 400)
            .task(0, 2, 1000)
            .task(20, 1, 1000)
            .task(22, 1, 1000),
        |domain, number| domain.task(30 + 10 * number, 2, 1000),
    );
    let a = a.task(402, 2, 1000);
    let host = host(Policy::Sporadic, 440, vec![a]);
    let ran = timeline(&host, 0);
    assert_eq!(&ran[..34], "AA..................A.A.......AA..");
    // The last of the 31, at 330, finds the budget of 64 used, and gets at 400 what was used first. The job of
    // 402 gets what was used next: 2 ms at 421, not 1 ms at 420 and 1 ms at 422.
    assert_eq!(
        &ran[328..],
        format!("{}AA{}AA{}", ".".repeat(72), ".".repeat(19), ".".repeat(17))
    );
}

/// At 5 A's period ends at 10, as B's: B has been eligible longer.
#[test]
fn sedf_takes_the_earlier_end_of_period() {
    let a = domain(1, 2, 5).busy();
    let b = domain(1, 4, 10).busy();
    let wanted = "AABBBBAA..AABBBBAA..";
    assert_eq!(timeline(&host(Policy::Sedf, 20, vec![a, b]), 0), wanted);
}

/// At 5 B is replenished with 1 left; its period now ends after A's, which preempts it. The same happens at
/// 10, and to A at 12.
#[test]
fn sedf_gives_way_when_its_own_period_ends() {
    let a = domain(1, 3, 4).busy();
    let b = domain(1, 3, 5).busy();
    let wanted = "AAABBAAABBAAB";
    assert_eq!(timeline(&host(Policy::Sedf, 13, vec![a, b]), 0), wanted);
}

/// B wakes at 15 with its slice of 5 in hand, and 5 to the end of the period: too much, a period begins, and ends
/// at 35. A's ends at 20.
#[test]
fn sedf_begins_a_period_when_too_much_is_left_at_a_wake() {
    let a = domain(1, 1, 4).task(0, 1, 4);
    let b = domain(1, 5, 20).task(15, 5, 100);
    let wanted = "A...A...A...A..BABBBAB..";
    assert_eq!(timeline(&host(Policy::Sedf, 24, vec![a, b]), 0), wanted);
}

/// At 5 the VCPU has 1 left of 4, and 5 to the end of the period of 10: it goes on with it. More comes at 10.
#[test]
fn sedf_goes_on_with_little_left() {
    let a = domain(1, 4, 10).task(0, 3, 100).task(5, 3, 100);
    assert_eq!(
        timeline(&host(Policy::Sedf, 14, vec![a]), 0),
        "AAA..A....AA.."
    );
}

/// The same with 2 of 4 left at 5: just too much, a period begins. At 9 it has used 4, and waits for 15.
#[test]
fn sedf_begins_a_period_when_as_much_is_left_as_fits() {
    let a = domain(1, 4, 10).task(0, 2, 100).task(5, 5, 100);
    assert_eq!(
        timeline(&host(Policy::Sedf, 18, vec![a]), 0),
        "AA...AAAA......A.."
    );
}

/// The period was over at 10; the one that begins at 13 gives 4 by 23, and no other by 20.
#[test]
fn sedf_begins_a_period_at_a_wake_after_the_last() {
    let a = domain(1, 4, 10).task(0, 4, 100).task(13, 6, 100);
    assert_eq!(
        timeline(&host(Policy::Sedf, 26, vec![a]), 0),
        "AAAA.........AAAA......AA."
    );
}

/// A waits for extra time from 2, C from 3. B's budget comes before both; A's turn is cut short by
/// nothing but it goes to the end. At 10 both have budgets again.
#[test]
fn extratime_is_never_ahead_of_a_budget() {
    let a = domain(2, 2, 10).busy().extratime();
    let b = domain(1, 2, 10).task(4, 2, 10);
    let c = domain(3, 1, 10).busy().extratime();
    let wanted = "AACABBCACAAAC";
    for policy in [Policy::Deferrable, Policy::Sporadic] {
        assert_eq!(
            timeline(&host(policy, 13, vec![a.clone(), b.clone(), c.clone()]), 0),
            wanted
        );
    }
}

/// Equals take turns of 2 ms; at 9 A's budget ends its turn early.
#[test]
fn a_quantum_rotates_equals() {
    let a = domain(1, 5, 10).busy();
    let b = domain(1, 5, 10).busy();
    let wanted = "AABBAABBABAABB";
    assert_eq!(
        timeline(
            &with_quantum(2, host(Policy::Deferrable, 14, vec![a, b])),
            0
        ),
        wanted
    );
}

/// Due at 4, 8 and 12; done at 6, 9 and 12.
#[test]
fn a_quantum_delays_replenishments() {
    let a = domain(1, 2, 4).busy();
    let wanted = "AA....AA.AA.AA";
    assert_eq!(
        timeline(&with_quantum(3, host(Policy::Deferrable, 14, vec![a])), 0),
        wanted
    );
}

fn with_quantum(quantum: i64, mut host: Host) -> Host {
    host.settings.quantum_ns = quantum * MS;
    host
}

/// Shorter period first; a late job goes on and the next one queues behind it.
#[test]
fn guests_are_rate_monotonic() {
    let a = domain(1, 10, 10).task(0, 3, 10).task(0, 2, 4);
    // Task 1 at 0-2, 4-6, 8-10; task 0 at 2-4, 6-7.
    let wanted = [
        (0, 0, Some(7)),
        (1, 0, Some(2)),
        (1, 1, Some(6)),
        (1, 2, Some(10)),
    ];
    assert_eq!(completions(&host(Policy::Deferrable, 10, vec![a])), wanted);
}

/// The job of 4 has the later deadline (14 against 8) until 8; equal ones go in the order of the file.
#[test]
fn guests_are_earliest_deadline_first() {
    let a = (domain(1, 20, 20).edf())
        .task(0, 6, 20)
        .deadline(8)
        .task(2, 2, 20)
        .deadline(6)
        .task(1, 2, 20)
        .deadline(5);
    // Absolute deadlines 8, 8, 6: task 2 preempts at 1, tasks 0 and 1 are equal.
    let wanted = [(0, 0, Some(8)), (1, 0, Some(10)), (2, 0, Some(3))];
    assert_eq!(completions(&host(Policy::Deferrable, 12, vec![a])), wanted);
}

fn credit(slice: i64, tick: i64, accounting: i64, mut host: Host) -> Host {
    host.settings = Settings {
        quantum_ns: 0,
        time_slice_ns: slice * MS,
        tick_ns: tick * MS,
        accounting_ns: accounting * MS,
        accounting_phase_ns: 0,
        jiffy_ns: 0,
        base_slice_ns: 0,
        run_queue_cpus: 0,
    };
    host
}

/// Both wake into boost. A's ends at 1, but not its turn, which lasts to 3. At 3 A gets what it was
/// charged; at 6 both get 1.5 ms: A has 1.5, B -1.5 and is over; at 9 both have 0, and so on.
#[test]
fn credit_makes_equals_alternate() {
    let a = domain(1, 1, 1).busy();
    let b = domain(1, 1, 1).busy();
    let wanted = "AAABBBAAABBBAAA";
    assert_eq!(
        timeline(&credit(3, 1, 3, host(Policy::Credit, 15, vec![a, b])), 0),
        wanted
    );
}

/// No tick falls into the run: everybody stays in boost, and turns are slices.
#[test]
fn credit_is_a_round_robin_within_a_class() {
    let a = domain(1, 1, 1).busy();
    let b = domain(1, 1, 1).busy();
    let c = domain(1, 1, 1).busy();
    let wanted = "AABBCCAABBCC";
    let host = host(Policy::Credit, 12, vec![a, b, c]);
    assert_eq!(timeline(&credit(2, 100, 100, host), 0), wanted);
}

/// A is alone until 5. Its slices of 4 are counted from 0: it runs to 8.
#[test]
fn credit_ends_turns_at_whole_slices() {
    let a = domain(1, 1, 1).busy();
    let b = domain(1, 1, 1).task(5, 2, 100);
    let wanted = "AAAAAAAABBAA";
    let host = host(Policy::Credit, 12, vec![a, b]);
    assert_eq!(timeline(&credit(4, 100, 100, host), 0), wanted);
}

/// B, never caught by a tick, wakes from under into boost. A, charged 15 and given 15 at 15, is
/// under from 5 on.
#[test]
fn credit_boosts_who_wakes() {
    let a = domain(1, 1, 1).busy();
    let b = domain(1, 1, 1).task(7, 1, 10);
    let wanted = "AAAAAAABAAAAAAAAABAA";
    assert_eq!(
        timeline(&credit(15, 5, 15, host(Policy::Credit, 20, vec![a, b])), 0),
        wanted
    );
}

/// Charged 2, given 1: over, and parked until the next 1 makes it 0.
#[test]
fn credit_parks_a_domain_over_its_cap() {
    let mut a = domain(1, 1, 1).busy();
    a.parameters.cap_percent = 50;
    let wanted = "AA..AA..AA";
    assert_eq!(
        timeline(&credit(2, 1, 2, host(Policy::Credit, 10, vec![a])), 0),
        wanted
    );
}

/// Credits are shared by weight: three of four milliseconds go to A.
#[test]
fn credit_shares_by_weight() {
    let mut a = domain(1, 1, 1).busy();
    a.parameters.weight = 768;
    let b = domain(1, 1, 1).busy();
    let host = credit(1, 1, 4, host(Policy::Credit, 4_000, vec![a, b]));
    let outcome = simulate(&host).expect("a host that is modelled");
    let share = outcome.vcpus[0].cpu_ns as f64 / host.duration_ns as f64;
    assert!((0.74..0.76).contains(&share), "A has {share}");
}

/// At 4 both have been charged 2. A is offered 3 and may take 2 of the 4; B gets the other 2 and is
/// under, so it has its turn at 6. With its own 1 it would be over, and A would go on.
#[test]
fn credit_gives_others_what_one_cannot_take() {
    let mut a = domain(1, 1, 1).busy();
    a.parameters.weight = 768;
    a.parameters.cap_percent = 50;
    let b = domain(1, 1, 1).busy();
    let host = host(Policy::Credit, 8, vec![a, b]);
    assert_eq!(timeline(&credit(2, 1, 4, host), 0), "AABBAABB");
}

/// A takes all credits at 2 and 4 while B is charged 3 ms. B keeps a debt of 2, pays 2 and is
/// charged 2 until 6, and has paid all when it is asleep at 8. At 10 C, charged 2, is over: at 11 B
/// wakes into boost and comes first.
#[test]
fn credit_keeps_a_debt_of_one_accounting_time() {
    let mut a = domain(1, 1, 1).task(0, 1, 100);
    a.parameters.weight = 65_535;
    let mut b = domain(1, 1, 1).task(0, 5, 100).task(11, 1, 100);
    b.parameters.weight = 1;
    let c = domain(1, 1, 1).task(8, 4, 100);
    let host = host(Policy::Credit, 13, vec![a, b, c]);
    assert_eq!(timeline(&credit(100, 1, 2, host), 0), "ABBBBB..CCCBC");
}

/// A sleeps from 4 on with 0 credits. At 8 it has 4, which is not above one accounting time: it is
/// still active at 12, and takes half of what B needs. B is over and does not wake into boost at 15.
#[test]
fn credit_shares_with_a_sleeper_until_it_has_more_than_one_accounting_time() {
    let a = domain(1, 1, 1).task(0, 4, 100);
    let b = domain(1, 1, 1).task(8, 4, 100).task(15, 1, 100);
    let c = domain(1, 1, 1).task(13, 3, 100);
    let host = host(Policy::Credit, 17, vec![a, b, c]);
    assert_eq!(timeline(&credit(100, 2, 4, host), 0), "AAAA....BBBB.CCCB");
}

/// Every turn is 4 long. C and D take nearly all credits: at 8 A and C are under, at 12 A and B are
/// over, C and D under, but D may not run on CPU 0. At 16 C waits on CPU 1, and CPU 0 takes it instead
/// of A.
#[test]
fn credit_steals_when_it_would_run_over() {
    let mut domains = vec![
        domain(1, 1, 1).busy().on(0, &[0]),
        domain(1, 1, 1).busy().on(0, &[0]),
        domain(1, 1, 1).busy().on(1, &[0, 1]),
        domain(1, 1, 1).busy().on(1, &[1]),
    ];
    for (domain, weight) in domains.iter_mut().zip([1, 1, 1000, 1000]) {
        domain.parameters.weight = weight;
    }
    let mut host = credit(4, 2, 4, host(Policy::Credit, 18, domains));
    host.cpus = 2;
    let timelines = [timeline(&host, 0), timeline(&host, 1)];
    assert_eq!(timelines, ["AAAABBBBAAAABBBBCC", "CCCCDDDDCCCCDDDDDD"]);
}

/// C blocks at 2: CPU 1 would idle, and takes B from CPU 0.
#[test]
fn credit_steals_when_it_would_idle() {
    let a = domain(1, 1, 1).busy().on(0, &[0, 1]);
    let b = domain(1, 1, 1).busy().on(0, &[0, 1]);
    let c = domain(1, 1, 1).task(0, 2, 100).on(1, &[1]);
    let mut host = credit(4, 4, 8, host(Policy::Credit, 4, vec![a, b, c]));
    host.cpus = 2;
    assert_eq!([timeline(&host, 0), timeline(&host, 1)], ["AAAA", "CCBB"]);
}

/// B wakes behind A, which is in boost as well: it kicks CPU 2, the first idle one where it may run.
#[test]
fn credit_kicks_an_idle_cpu() {
    let a = domain(1, 1, 1).busy().on(0, &[0]);
    let b = domain(1, 1, 1).task(1, 2, 100).on(0, &[0, 2]);
    let mut host = credit(4, 4, 8, host(Policy::Credit, 4, vec![a, b]));
    host.cpus = 3;
    let timelines = [0, 1, 2].map(|cpu| timeline(&host, cpu));
    assert_eq!(timelines, ["AAAA", "....", ".BB."]);
}

/// The tick at 4 finds A at work for 1 ms. Credit charges it 4, of which it gets 2 back, and parks it
/// until 8; scheduler S charges 1.
#[test]
fn scheduler_s_charges_what_was_used() {
    let mut a = domain(1, 1, 1).task(3, 1, 4);
    a.parameters.cap_percent = 50;
    for (policy, wanted) in [
        (Policy::Credit, "...A....A..A"),
        (Policy::SBase, "...A...A...A"),
    ] {
        let host = credit(100, 4, 4, host(policy, 12, vec![a.clone()]));
        assert_eq!(timeline(&host, 0), wanted, "{}", policy.name());
    }
}

/// At 8 A takes all credits, and B, charged 4, is over. At 13 B's other VCPU wakes: it has credits of its
/// own under credit, and is boosted, and half of B's debt under scheduler S.
#[test]
fn scheduler_s_spreads_the_credits_of_a_domain() {
    let mut a = domain(1, 1, 1).task(0, 4, 100).task(9, 6, 100);
    a.parameters.weight = 65_535;
    let mut b = domain(1, 1, 1).task(0, 5, 100).task(13, 1, 100);
    b.parameters.weight = 1;
    b.vcpus.push(b.vcpus[0].clone());
    b.tasks[1].vcpu = 1;
    for (policy, wanted) in [
        (Policy::Credit, "AAAABBBBBAAAABAA"),
        (Policy::SBase, "AAAABBBBBAAAAAAB"),
    ] {
        let host = credit(100, 4, 4, host(policy, 16, vec![a.clone(), b.clone()]));
        assert_eq!(timeline(&host, 0), wanted, "{}", policy.name());
    }
}

/// At 9 B waits, which ran for 2 the last time. C has the time to wait behind it, or has not.
#[test]
fn scheduler_s_puts_a_real_time_vcpu_where_it_can_wait() {
    for (laxity, wanted) in [
        (0, "AABBAABBAABBCAA"),
        (1, "AABBAABBAACBBAA"),
        (2, "AABBAABBAABBCAA"),
    ] {
        let a = domain(1, 1, 1).busy();
        let b = domain(1, 1, 1).busy();
        let c = domain(1, 1, 1).task(9, 1, 100).laxity(laxity);
        let host = credit(2, 100, 100, host(Policy::SA, 15, vec![a, b, c]));
        assert_eq!(timeline(&host, 0), wanted, "laxity {laxity}");
    }
}

/// A's turn is over at 4; it is under since the tick at 2. At 7 it gets another job: with B it runs at
/// once.
#[test]
fn scheduler_s_boosts_with_an_event() {
    for (policy, wanted) in [
        (Policy::SA, "AAAABBBBAAAA"),
        (Policy::SAb, "AAAABBBAAAAB"),
        (Policy::SAll, "AAAABBBBAAAA"),
        (Policy::SAbll, "AAAABBBAAAAB"),
    ] {
        let a = domain(1, 1, 1).task(0, 10, 100).task(7, 1, 100).laxity(50);
        let b = domain(1, 1, 1).task(0, 100, 100);
        let host = credit(4, 2, 100, host(policy, 12, vec![a, b]));
        assert_eq!(timeline(&host, 0), wanted, "{}", policy.name());
    }
}

/// At 6 D's turn ends. A waits on CPU 0 since 4, 2 ms longer than D.
#[test]
fn scheduler_s_steals_who_has_waited_longer() {
    for (policy, wanted) in [
        (Policy::SA, ["AAAABBBBAAAA", "CCDDDDDDDDDD"]),
        (Policy::SAl, ["AAAABBBBBBBB", "CCDDDDAAAADD"]),
    ] {
        let a = domain(1, 1, 1).busy().on(0, &[0, 1]);
        let b = domain(1, 1, 1).busy().on(0, &[0]);
        let c = domain(1, 1, 1).task(0, 2, 100).on(1, &[1]);
        let d = domain(1, 1, 1).task(0, 100, 100).on(1, &[1]);
        let mut host = credit(4, 100, 100, host(policy, 12, vec![a, b, c, d]));
        host.cpus = 2;
        let timelines = [timeline(&host, 0), timeline(&host, 1)];
        assert_eq!(timelines, wanted, "{}", policy.name());
    }
}

/// At 4 D's turn ends. A, which is real-time, waits on CPU 0 since then, too: L takes it, LL does not.
#[test]
fn scheduler_s_steals_real_time_vcpus_or_binds_them() {
    for (policy, wanted) in [
        (Policy::SAl, ["AAAABBBB", "CCCCAAAA"]),
        (Policy::SAll, ["AAAABBBB", "CCCCCCCC"]),
    ] {
        let a = domain(1, 1, 1).busy().laxity(50).on(0, &[0, 1]);
        let b = domain(1, 1, 1).busy().on(0, &[0]);
        let c = domain(1, 1, 1).busy().on(1, &[1]);
        let mut host = credit(4, 100, 100, host(policy, 8, vec![a, b, c]));
        host.cpus = 2;
        let timelines = [timeline(&host, 0), timeline(&host, 1)];
        assert_eq!(timelines, wanted, "{}", policy.name());
    }
}

/// A and B use 40 % of CPU 0 each, in turn. At 1 s A is to move; it runs where it woke, as CPU 0 decides
/// first, and wakes for CPU 1 from 1010 on.
#[test]
fn scheduler_s_balances_real_time_vcpus() {
    let a = domain(1, 1, 1).task(0, 4, 10).laxity(1).on(0, &[0, 1]);
    let b = domain(1, 1, 1).task(5, 4, 10).laxity(1).on(0, &[0, 1]);
    let mut host = credit(30, 10, 10, host(Policy::SAll, 3_000, vec![a, b]));
    host.cpus = 2;
    let outcome = simulate(&host).expect("a host that is modelled");
    for interval in outcome.intervals {
        let on_cpu = usize::from(interval.domain == 0 && interval.start_ns >= 1_010 * MS);
        assert_eq!(interval.cpu, on_cpu, "{interval:?}");
    }
}

/// B takes all credits, and A is over from 12 on, but with I.
#[test]
fn scheduler_s_gives_infinite_credit() {
    for (policy, wanted) in [
        (Policy::SAll, "AAAABBBBAAAABBBBBBBB"),
        (Policy::SAill, "AAAABBBBAAAABBBBAAAA"),
    ] {
        let mut a = domain(1, 1, 1).busy().laxity(50);
        a.parameters.weight = 1;
        let mut b = domain(1, 1, 1).busy();
        b.parameters.weight = 1000;
        let host = credit(4, 2, 4, host(policy, 20, vec![a, b]));
        assert_eq!(timeline(&host, 0), wanted, "{}", policy.name());
    }
}

/// B wakes at 5 beside A, which is boosted as well and runs until 10; both have been under. C has it run at once.
#[test]
fn scheduler_s_cuts_turns_short_for_real_time_vcpus() {
    for (policy, wanted) in [(Policy::SAll, "..AAAAAABB"), (Policy::SAllc, "..AAABBAAA")] {
        let a = domain(1, 1, 1).task(2, 6, 100);
        let b = domain(1, 1, 1).task(5, 2, 100).laxity(1);
        let host = credit(30, 30, 30, host(policy, 10, vec![a, b]));
        assert_eq!(timeline(&host, 0), wanted, "{}", policy.name());
    }
}

#[test]
fn what_is_not_modelled_is_refused() {
    let mut costly = host(Policy::Deferrable, 10, vec![domain(1, 1, 1)]);
    costly.costs.schedule = Cost::Constant { ns: 1 };
    assert_eq!(simulate(&costly), Err(Refusal::Costs));

    let mut late = host(Policy::Deferrable, 10, vec![domain(1, 1, 1)]);
    late.timer_latency_ns = 1;
    assert_eq!(simulate(&late), Err(Refusal::TimerLatency));

    let mut jittery = host(Policy::Deferrable, 10, vec![domain(1, 1, 1).task(0, 1, 5)]);
    jittery.domains[0].tasks[0].jitter_ns = 3;
    let refusal = simulate(&jittery).expect_err("jitter is not modelled");
    assert!(
        refusal
            .to_string()
            .contains("task task-0 of domain domain has 3 ns"),
        "{refusal}"
    );

    let mut long = host(Policy::Deferrable, 1_000, vec![domain(1, 1, 1)]);
    long.settings.quantum_ns = 1;
    assert_eq!(
        simulate(&long),
        Err(Refusal::Steps {
            steps: 1_000_000_000,
            unit_ns: 1
        })
    );
}

/// A has its own CPU, B the other one, and C none for ever, though B idles from 2 on.
#[test]
fn null_gives_each_cpu_away_once() {
    let a = domain(1, 1, 1).on(0, &[0, 1]).busy();
    let b = domain(1, 1, 1).on(0, &[0, 1]).task(0, 2, 8);
    let c = domain(1, 1, 1).on(1, &[0, 1]).busy();
    let mut host = host(Policy::Null, 6, vec![a, b, c]);
    host.cpus = 2;
    assert_eq!(timeline(&host, 0), "AAAAAA");
    assert_eq!(timeline(&host, 1), "BB....");
}

/// A has 0 to 2 of every 4 and B has 3 of every 8. Nobody uses 2, what A leaves from 5 on, or 7.
#[test]
fn arinc653_opens_windows_by_the_clock() {
    let a = domain(1, 2, 4).task(1, 2, 20);
    let mut b = domain(1, 1, 8).busy();
    b.parameters.phase_ns = 3 * MS;
    let wanted = ".A.BA......B....";
    assert_eq!(timeline(&host(Policy::Arinc653, 16, vec![a, b]), 0), wanted);
}

/// At 1 A goes a level down, behind B, which has a later deadline; from 3 on it has the CPU to itself. At 8 both
/// begin a period on level 0.
#[test]
fn rtds_gives_extra_time_on_lower_levels() {
    let a = domain(1, 1, 4).busy().extratime();
    let b = domain(1, 2, 8).busy();
    let wanted = "ABBAAAAAABBAAAAA";
    assert_eq!(timeline(&host(Policy::Rtds, 16, vec![a, b]), 0), wanted);
}

/// B may run on both CPUs. At 2 it is taken off CPU 0 by A and goes on with CPU 1, which idles.
#[test]
fn rtds_moves_who_is_preempted() {
    let a = domain(1, 2, 4).task(2, 2, 20);
    let b = domain(1, 10, 10).on(0, &[0, 1]).task(0, 4, 20);
    let mut host = host(Policy::Rtds, 6, vec![a, b]);
    host.cpus = 2;
    assert_eq!(timeline(&host, 0), "BBAA..");
    assert_eq!(timeline(&host, 1), "..BB..");
}

/// B, which has all of its credits, takes the CPU from A, which has 5 ms left, and goes on to its end.
#[test]
fn credit2_lets_more_credits_preempt() {
    let a = domain(1, 1, 1).busy();
    let b = domain(1, 1, 1).task(5, 2, 20);
    let wanted = "AAAAABBAAA";
    assert_eq!(timeline(&host(Policy::Credit2, 10, vec![a, b]), 0), wanted);
}

/// At 1 A and B have used their budgets up. C has one, and A comes first of the two that wait for extra time. From 2 on
/// all three take turns of 1 ms. D comes at 3 and has its own CPU, which no VCPU has.
#[test]
fn global_servers_share_extra_time_in_turns() {
    let busy = |cpu: u32| domain(1, 1, 20).on(cpu, &[0, 1]).busy().extratime();
    let d = domain(1, 3, 20).on(1, &[0, 1]).task(3, 2, 20);
    let mut host = host(
        Policy::GlobalDeferrable,
        8,
        vec![busy(0), busy(1), busy(0), d],
    );
    host.cpus = 2;
    assert_eq!(timeline(&host, 0), "ACBABCBA");
    assert_eq!(timeline(&host, 1), "BACDDACB");
}

/// At 2 A goes behind C, which has its CPU, and comes before B, which goes behind it.
#[test]
fn a_quantum_rotates_equals_on_all_cpus() {
    let busy = |cpu: u32| domain(1, 10, 20).on(cpu, &[0, 1]).busy();
    let mut host = with_quantum(
        2,
        host(Policy::GlobalSporadic, 8, vec![busy(0), busy(1), busy(0)]),
    );
    host.cpus = 2;
    assert_eq!(timeline(&host, 0), "AACCBBAA");
    assert_eq!(timeline(&host, 1), "BBAACCBB");
}

/// A may use 3 of every 10, and is parked a microsecond after that, which it pays for in the next 10. B preempts it at
/// 12. What A has left is then less than the millisecond for which it runs at least.
#[test]
fn credit2_parks_who_has_used_its_cap() {
    let mut a = domain(1, 1, 1).busy();
    a.parameters.cap_percent = 30;
    let b = domain(1, 1, 1).task(12, 1, 20);
    let wanted = "AAAA......AABAA.....";
    assert_eq!(timeline(&host(Policy::Credit2, 20, vec![a, b]), 0), wanted);
}

/// Credits burn by weight: three of four milliseconds go to A.
#[test]
fn credit2_shares_by_weight() {
    let mut a = domain(1, 1, 1).busy();
    a.parameters.weight = 768;
    let b = domain(1, 1, 1).busy();
    let host = host(Policy::Credit2, 4_000, vec![a, b]);
    let outcome = simulate(&host).expect("a host that is modelled");
    let share = outcome.vcpus[0].cpu_ns as f64 / host.duration_ns as f64;
    assert!((0.74..0.76).contains(&share), "A has {share}");
}
