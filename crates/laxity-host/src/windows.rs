//! The windows that Xen's arinc653 accepts: `docs/explanation/policies.md`, "Arinc653".

use std::collections::BTreeMap;

use laxity_config::{Problem, Problems, Span, format_duration};
use laxity_policies::Parameters;

use crate::sections::domain::{Domain, DomainTable};

/// The most entries of a schedule of Xen's (`ARINC653_MAX_DOMAINS_PER_SCHEDULE`).
const VCPUS_MAX: usize = 64;

/// Reports windows of one CPU that overlap, and a CPU with too many. `domains` have been placed on CPUs.
pub(crate) fn check(domains: &[Domain], tables: &[(&DomainTable, Span)], problems: &Problems) {
    let place = |domain: usize| {
        let (table, span) = tables[domain];
        table.parameters.phase.span.unwrap_or(span)
    };
    let mut of_cpu: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (number, domain) in domains.iter().enumerate() {
        for vcpu in &domain.vcpus {
            of_cpu.entry(vcpu.cpu).or_default().push(number);
        }
    }
    for (cpu, owners) in of_cpu {
        if let Some(&last_straw) = owners.get(VCPUS_MAX) {
            problems.report(
                tables[last_straw].1,
                format!(
                    "with domain `{}` CPU {cpu} has windows of more than {VCPUS_MAX} VCPUs",
                    domains[last_straw].name
                ),
                "arinc653 supports no more on one CPU: move some to other CPUs",
            );
            return;
        }
        for (number, &later) in owners.iter().enumerate() {
            let overlapping = owners[..number].iter().find_map(|&earlier| {
                let clear = overlap(&domains[earlier].parameters, &domains[later].parameters);
                clear.map(|phase_ns| (earlier, phase_ns))
            });
            let Some((earlier, phase_ns)) = overlapping else {
                continue;
            };
            problems.push(overlap_problem(
                cpu,
                [earlier, later],
                phase_ns,
                domains,
                &place,
            ));
            return;
        }
    }
}

fn overlap_problem(
    cpu: u32,
    [earlier, later]: [usize; 2],
    phase_ns: Option<i64>,
    domains: &[Domain],
    place: &dyn Fn(usize) -> Span,
) -> Problem {
    let name = |domain: usize| &domains[domain].name;
    if earlier == later {
        let message = format!(
            "domain `{}` has two VCPUs on CPU {cpu}, whose windows are the same",
            name(later)
        );
        let help = "give each VCPU a separate CPU or a separate domain";
        return Problem {
            help: Some(help.into()),
            ..Problem::new(place(later), message)
        };
    }
    let help = phase_ns.map_or_else(
        || "no phase avoids the overlap: write lower budgets, or periods that are multiples of each other".into(),
        |ns| format!("phase = \"{}\" avoids the overlap", format_duration(ns)),
    );
    let message = format!(
        "on CPU {cpu} windows of domain `{}` overlap those of domain `{}`",
        name(later),
        name(earlier)
    );
    Problem {
        help: Some(help),
        related: Some((place(earlier), "the other one")),
        ..Problem::new(place(later), message)
    }
}

/// Whether some window of the one is open while some window of the other is, and then a phase of the other at which
/// none is, if there is one. Openings of the one and of the other differ by every multiple of the greatest common
/// divisor of the periods, and by nothing in between.
fn overlap(one: &Parameters, other: &Parameters) -> Option<Option<i64>> {
    let divisor_ns = greatest_common_divisor(one.period_ns, other.period_ns);
    let after_ns = (other.phase_ns - one.phase_ns).rem_euclid(divisor_ns);
    if after_ns >= one.budget_ns && divisor_ns - after_ns >= other.budget_ns {
        return None;
    }
    let phase_ns = (one.phase_ns + one.budget_ns) % divisor_ns;
    let has_room = one.budget_ns + other.budget_ns <= divisor_ns;
    Some(has_room.then_some(phase_ns))
}

fn greatest_common_divisor(one: i64, other: i64) -> i64 {
    match other {
        0 => one,
        _ => greatest_common_divisor(other, one % other),
    }
}
