//! What ran within one of a trace's domains: the threads of its own kernel, as that recorded them by the same clock.
//!
//! A thread waits in two layers. Its kernel gives it a VCPU, and the host's kernel gives the VCPU a CPU. As long as the
//! VCPU waits for that, nothing in its domain goes on: what waits there then waits for the VCPU.

use crate::error::ReplayError;
use crate::packets::Delivery;
use laxity_trace::{Kind, Metadata, NONE, Record};
use std::collections::HashMap;

/// The most by which the clocks of two CPUs are taken to differ.
const CLOCKS_APART_NS_MAX: i64 = 100_000;

/// Adds the records of threads to those of the host. `inside` are made of a metadata whose domains are the last ones of
/// `metadata`, those of programs, and whose CPUs are the VCPUs of the domain in which they run. `guessed` switches were
/// not traced, so that their VCPU need not have had its CPU at the times which they have here.
///
/// # Errors
///
/// No programs run in a domain of `metadata`, or threads ran while the host says that their VCPU did not: the clocks of
/// the two kernels differ.
pub fn with_threads(
    metadata: &Metadata,
    host: Vec<Record>,
    inside: Vec<Record>,
    guessed: u64,
) -> Result<Vec<Record>, ReplayError> {
    let vcpus = Times::of_vcpus(metadata, &host)?;
    let programs = metadata.domains.iter().filter(|domain| domain.is_beside());
    let first = (metadata.domains.len() - programs.count()) as u16;
    let own = |record: &Record| Record {
        domain: record.domain + first,
        cpu: match record.cpu {
            NONE => NONE,
            vcpu => vcpu + metadata.cpus as u16,
        },
        ..*record
    };
    // The host's decisions are those of its own kernel.
    let inside = inside.iter().filter(|record| record.kind != Kind::Schedule);
    let mut records = Vec::with_capacity(host.len());
    let mut host = host.into_iter().peekable();
    let mut impossible = 0;
    for record in inside {
        let is_switch = matches!(record.kind, Kind::Run | Kind::Stop) && record.time_ns > 0;
        if is_switch && !vcpus[usize::from(record.cpu)].ran_at(record.time_ns) {
            impossible += 1;
            if impossible > guessed {
                return Err(ReplayError::Run(format!(
                    "the domain's kernel gave its VCPU {} to another thread at {} ns of the run, and that VCPU had no \
                     CPU then: the two kernels' clocks differ",
                    record.cpu, record.time_ns
                )));
            }
        }
        while let Some(earlier) = host.next_if(|earlier| earlier.time_ns <= record.time_ns) {
            records.push(earlier);
        }
        records.push(own(record));
    }
    records.extend(host);
    Ok(records)
}

/// Divides the places where packets waited for threads within a domain: while the VCPU of such a thread waits for its
/// CPU, they wait for the VCPU. `records` are those that [`with_threads`] made.
///
/// # Errors
///
/// No programs run in a domain of `metadata`.
pub fn in_layers(
    metadata: &Metadata,
    records: &[Record],
    mut deliveries: Vec<Delivery>,
) -> Result<Vec<Delivery>, ReplayError> {
    let domain = metadata.programs_in.ok_or_else(no_programs)?;
    let vcpus = Times::of_vcpus(metadata, records)?;
    let homes = homes(metadata, records);
    for delivery in &mut deliveries {
        let whole = std::mem::take(&mut delivery.places);
        let ends = whole.iter().skip(1).map(|&(_, _, since_ns)| since_ns);
        let ends = ends.chain([delivery.end_ns]).collect::<Vec<_>>();
        for ((place, who, since_ns), end_ns) in whole.into_iter().zip(ends) {
            delivery.places.push((place, who, since_ns));
            let homes = homes.get(&who).map_or(&[][..], Vec::as_slice);
            for (vcpu, from_ns, to_ns) in within(homes, since_ns, end_ns) {
                for (wait_ns, until_ns) in vcpus[usize::from(vcpu)].waits(from_ns, to_ns) {
                    delivery.places.push((place, (domain, vcpu), wait_ns));
                    delivery.places.push((place, who, until_ns));
                }
            }
        }
    }
    Ok(deliveries)
}

fn no_programs() -> ReplayError {
    ReplayError::Run("no programs run in a domain of the trace".into())
}

/// When a VCPU ran, and when it waited for a CPU: from and to, in order.
#[derive(Debug, Default)]
struct Times {
    ran: Vec<(i64, i64)>,
    waited: Vec<(i64, i64)>,
}

impl Times {
    /// Those of the VCPUs of the domain in which programs run.
    fn of_vcpus(metadata: &Metadata, records: &[Record]) -> Result<Vec<Times>, ReplayError> {
        let domain = metadata.programs_in.ok_or_else(no_programs)?;
        let count = metadata.lanes() - metadata.cpus;
        let mut vcpus: Vec<Times> = (0..count).map(|_| Times::default()).collect();
        // Since when each runs, and since when it waits.
        let mut since = vec![(None, None); count as usize];
        for record in records.iter().filter(|record| record.domain == domain) {
            let now_ns = record.time_ns;
            let times = &mut vcpus[usize::from(record.vcpu)];
            let (runs, waits) = &mut since[usize::from(record.vcpu)];
            let ended = |of: &mut Vec<(i64, i64)>, since: &mut Option<i64>| {
                of.extend(since.take().map(|since_ns| (since_ns, now_ns)));
            };
            match record.kind {
                Kind::Wake if runs.is_none() => *waits = Some(now_ns),
                Kind::Run => {
                    ended(&mut times.waited, waits);
                    *runs = Some(now_ns);
                }
                Kind::Stop => {
                    ended(&mut times.ran, runs);
                    *waits = (record.argument != 0).then_some(now_ns);
                }
                Kind::Block => ended(&mut times.waited, waits),
                _ => {}
            }
        }
        let end_ns = metadata.duration_ns;
        for (times, (runs, waits)) in vcpus.iter_mut().zip(since) {
            times.ran.extend(runs.map(|since_ns| (since_ns, end_ns)));
            times
                .waited
                .extend(waits.map(|since_ns| (since_ns, end_ns)));
        }
        Ok(vcpus)
    }

    /// Whether it ran at a time, as far as clocks of CPUs are alike.
    fn ran_at(&self, time_ns: i64) -> bool {
        let place = (self.ran).partition_point(|&(_, to_ns)| to_ns + CLOCKS_APART_NS_MAX < time_ns);
        (self.ran.get(place)).is_some_and(|&(from_ns, _)| from_ns - CLOCKS_APART_NS_MAX <= time_ns)
    }

    /// The parts of a time in which it waited.
    fn waits(&self, from_ns: i64, to_ns: i64) -> impl Iterator<Item = (i64, i64)> {
        let first = (self.waited).partition_point(|&(_, until_ns)| until_ns <= from_ns);
        (self.waited[first..].iter())
            .take_while(move |&&(wait_ns, _)| wait_ns < to_ns)
            .map(move |&(wait_ns, until_ns)| (wait_ns.max(from_ns), until_ns.min(to_ns)))
    }
}

/// The VCPUs in whose queues each thread of a program was, each with since when.
fn homes(metadata: &Metadata, records: &[Record]) -> HashMap<(u16, u16), Vec<(i64, u16)>> {
    let mut homes = HashMap::<_, Vec<(i64, u16)>>::new();
    let first = metadata.cpus as u16;
    for record in records.iter().filter(|record| record.cpu != NONE) {
        if let Some(vcpu) = record.cpu.checked_sub(first) {
            let of_thread = homes.entry((record.domain, record.vcpu)).or_default();
            if of_thread.last().is_none_or(|&(_, last)| last != vcpu) {
                of_thread.push((record.time_ns, vcpu));
            }
        }
    }
    homes
}

/// The VCPUs of a time, each with its part of it. The first one counts from the beginning.
fn within(homes: &[(i64, u16)], from_ns: i64, to_ns: i64) -> impl Iterator<Item = (u16, i64, i64)> {
    let first = homes.partition_point(|&(since_ns, _)| since_ns <= from_ns);
    let first = first.saturating_sub(1);
    let nexts = homes.iter().skip(first + 1).map(|&(since_ns, _)| since_ns);
    (homes[first.min(homes.len())..].iter().enumerate())
        .zip(nexts.chain([i64::MAX]))
        .map(move |((place, &(since_ns, vcpu)), next_ns)| {
            let since_ns = if place == 0 { from_ns } else { since_ns };
            (vcpu, since_ns, next_ns.min(to_ns))
        })
        .take_while(move |&(_, since_ns, _)| since_ns < to_ns)
}
