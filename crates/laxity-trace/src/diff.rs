//! The first difference of two traces.

use crate::text::Lines;
use crate::{Kind, Metadata, Reader, Record, TraceError};
use serde::Serialize;
use std::collections::VecDeque;
use std::fmt;
use std::io::Read;

/// Records that are shown before the first that differs.
const CONTEXT_RECORDS: usize = 5;

/// How two traces differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// What differs about the runs. The substrate may: that is what traces are compared for.
    pub metadata: Vec<MetadataDifference>,
    /// The first record that differs; `None` if all are equal.
    pub first: Option<FirstDifference>,
    /// For each kind that is in either trace, how many records are of it.
    pub counts: Vec<KindCount>,
}

/// Something about the runs that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MetadataDifference {
    /// What.
    pub what: String,
    /// In the first trace.
    pub a: String,
    /// In the second trace.
    pub b: String,
}

/// The first record that differs, as text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FirstDifference {
    /// The record's number, from 0.
    pub index: u64,
    /// In the first trace; `None` if it ends here.
    pub a: Option<String>,
    /// In the second trace; `None` if it ends here.
    pub b: Option<String>,
    /// The last records before, which are in both.
    pub context: Vec<String>,
}

/// How many records are of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct KindCount {
    /// The kind.
    pub kind: Kind,
    /// In the first trace.
    pub a: u64,
    /// In the second trace.
    pub b: u64,
}

/// The one of two traces that could not be read, and why.
#[derive(Debug, thiserror::Error)]
#[error("the {} trace: {error}", if *.second { "second" } else { "first" })]
pub struct DiffError {
    /// Whether it is the second of the two.
    pub second: bool,
    /// Why.
    #[source]
    pub error: TraceError,
}

impl Difference {
    /// Whether the traces are of the same run and say the same.
    pub fn is_empty(&self) -> bool {
        self.metadata.is_empty() && self.first.is_none()
    }
}

/// Compares two traces to their ends.
///
/// # Errors
///
/// One of them is damaged.
pub fn diff<A: Read, B: Read>(mut a: Reader<A>, mut b: Reader<B>) -> Result<Difference, DiffError> {
    let metadata_a = a.metadata().clone();
    let metadata_b = b.metadata().clone();
    let mut next_a = || {
        a.next().transpose().map_err(|error| DiffError {
            second: false,
            error,
        })
    };
    let mut next_b = || {
        b.next().transpose().map_err(|error| DiffError {
            second: true,
            error,
        })
    };

    let mut counts = Kind::ALL.map(|kind| KindCount { kind, a: 0, b: 0 });
    let mut count = |a: Option<Record>, b: Option<Record>| {
        if let Some(record) = a {
            counts[record.kind as usize - 1].a += 1;
        }
        if let Some(record) = b {
            counts[record.kind as usize - 1].b += 1;
        }
    };

    let mut context = VecDeque::with_capacity(CONTEXT_RECORDS);
    let mut index = 0;
    let first = loop {
        let (record_a, record_b) = (next_a()?, next_b()?);
        count(record_a, record_b);
        if record_a != record_b {
            let line = |metadata: &Metadata, record| Lines::new(metadata).line(metadata, &record);
            break Some(FirstDifference {
                index,
                a: record_a.map(|record| line(&metadata_a, record)),
                b: record_b.map(|record| line(&metadata_b, record)),
                context: context
                    .into_iter()
                    .map(|record| line(&metadata_a, record))
                    .collect(),
            });
        }
        let Some(record) = record_a else {
            break None;
        };
        if context.len() == CONTEXT_RECORDS {
            context.pop_front();
        }
        context.push_back(record);
        index += 1;
    };
    if first.is_some() {
        while let Some(record) = next_a()? {
            count(Some(record), None);
        }
        while let Some(record) = next_b()? {
            count(None, Some(record));
        }
    }
    Ok(Difference {
        metadata: metadata_differences(&metadata_a, &metadata_b),
        first,
        counts: counts
            .into_iter()
            .filter(|count| count.a + count.b > 0)
            .collect(),
    })
}

fn metadata_differences(a: &Metadata, b: &Metadata) -> Vec<MetadataDifference> {
    let mut differences = Differences(Vec::new());
    differences.compare("policy", &a.policy, &b.policy);
    differences.compare("seed", a.seed, b.seed);
    differences.compare("duration in ns", a.duration_ns, b.duration_ns);
    differences.compare("CPUs", a.cpus, b.cpus);
    differences.compare("number of domains", a.domains.len(), b.domains.len());
    for (index, (a, b)) in a.domains.iter().zip(&b.domains).enumerate() {
        differences.compare(format!("name of domain {index}"), &a.name, &b.name);
        let of = |what| format!("{what} of domain {}", a.name);
        differences.compare(of("VCPUs"), a.vcpus, b.vcpus);
        differences.compare(of("budget in ns"), a.budget_ns, b.budget_ns);
        differences.compare(of("period in ns"), a.period_ns, b.period_ns);
        differences.compare(of("number of tasks"), a.tasks.len(), b.tasks.len());
        let domain = &a.name;
        for (index, (a, b)) in a.tasks.iter().zip(&b.tasks).enumerate() {
            differences.compare(
                format!("name of task {index} of domain {domain}"),
                &a.name,
                &b.name,
            );
            let of = |what| format!("{what} of task {domain}.{}", a.name);
            differences.compare(of("VCPU"), a.vcpu, b.vcpu);
            differences.compare(of("cost in ns"), a.cost_ns, b.cost_ns);
            differences.compare(of("period in ns"), a.period_ns, b.period_ns);
            differences.compare(of("deadline in ns"), a.deadline_ns, b.deadline_ns);
            differences.compare(of("offset in ns"), a.offset_ns, b.offset_ns);
        }
    }
    differences.0
}

struct Differences(Vec<MetadataDifference>);

impl Differences {
    fn compare<T: PartialEq + ToString>(&mut self, what: impl Into<String>, a: T, b: T) {
        if a != b {
            let (a, b) = (a.to_string(), b.to_string());
            self.0.push(MetadataDifference {
                what: what.into(),
                a,
                b,
            });
        }
    }
}

/// The text for people: lines, the first trace's with `-`, the second's with `+`.
impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for MetadataDifference { what, a, b } in &self.metadata {
            writeln!(f, "{what}: {a} / {b}")?;
        }
        match &self.first {
            None => writeln!(f, "all records are equal")?,
            Some(first) => {
                writeln!(
                    f,
                    "the first record that differs is record {}:",
                    first.index
                )?;
                for line in &first.context {
                    writeln!(f, "  {line}")?;
                }
                let end = "(the trace ends)";
                writeln!(f, "- {}", first.a.as_deref().unwrap_or(end))?;
                writeln!(f, "+ {}", first.b.as_deref().unwrap_or(end))?;
            }
        }
        writeln!(f, "{:<9}  {:>12}  {:>12}", "records", "first", "second")?;
        for KindCount { kind, a, b } in &self.counts {
            writeln!(f, "{:<9}  {a:>12}  {b:>12}", kind.name())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    fn compare(a: &[u8], b: &[u8]) -> Difference {
        diff(sample::reader(a), sample::reader(b)).expect("both traces are whole")
    }

    #[test]
    fn equal_traces_are_equal_on_any_substrate() {
        let a = sample::file(&sample::metadata(), &sample::records());
        let xen = Metadata {
            substrate: "xen".into(),
            ..sample::metadata()
        };
        let b = sample::file(&xen, &sample::records());
        let difference = compare(&a, &b);
        assert!(difference.is_empty());
        assert!(difference.counts.iter().all(|count| count.a == count.b));
        assert!(difference.counts.contains(&KindCount {
            kind: Kind::Schedule,
            a: 7,
            b: 7
        }));
    }

    #[test]
    fn the_first_record_that_differs_is_shown_after_its_context() {
        let a = sample::records();
        let mut b = a.clone();
        b[7].argument = 0;
        b[9].cpu = 0;
        b.truncate(20);
        let metadata = sample::metadata();
        let difference = compare(&sample::file(&metadata, &a), &sample::file(&metadata, &b));
        assert!(!difference.is_empty() && difference.metadata.is_empty());
        let first = difference.first.expect("record 7 differs");
        assert_eq!(first.index, 7);
        assert!(first.a.expect("record 7").ends_with("stop       preempted"));
        assert!(first.b.expect("record 7").ends_with("stop       blocked"));
        assert_eq!(first.context.len(), CONTEXT_RECORDS);
        assert!(first.context[0].contains("batch/0"));
        assert!(first.context[4].ends_with("exhaust"));
        assert_eq!(
            difference.counts.iter().map(|count| count.a).sum::<u64>(),
            34
        );
        assert_eq!(
            difference.counts.iter().map(|count| count.b).sum::<u64>(),
            20
        );
    }

    #[test]
    fn a_trace_that_ends_earlier_differs() {
        let metadata = sample::metadata();
        let a = sample::file(&metadata, &sample::records()[..1]);
        let b = sample::file(&metadata, &[]);
        let difference = compare(&a, &b);
        let first = difference.first.as_ref().expect("record 0 differs");
        assert_eq!((first.index, &first.b), (0, &None));
        assert_eq!(
            difference.to_string(),
            "the first record that differs is record 0:\n\
             - 0.000000    -  control/0  release    loop #0, deadline 5.000000 ms\n\
             + (the trace ends)\n\
             records           first        second\n\
             release               1             0\n"
                .replace("- 0.000000", "-  0.000000")
        );
    }

    #[test]
    fn hosts_that_differ_are_told() {
        let mut other = sample::metadata();
        other.seed = 2;
        other.domains[1].budget_ns += 1;
        other.domains[0].tasks[0].cost_ns = 1;
        let a = sample::file(&sample::metadata(), &[]);
        let difference = compare(&a, &sample::file(&other, &[]));
        let what: Vec<_> = difference
            .metadata
            .iter()
            .map(|difference| difference.what.as_str())
            .collect();
        assert_eq!(
            what,
            [
                "seed",
                "cost in ns of task control.loop",
                "budget in ns of domain batch"
            ]
        );
        assert!(!difference.is_empty() && difference.first.is_none());
    }

    #[test]
    fn a_damaged_trace_is_named() {
        let whole = sample::file(&sample::metadata(), &sample::records());
        let cut = &whole[..whole.len() - 1];
        let error = diff(sample::reader(&whole), sample::reader(cut)).expect_err("it is cut");
        assert!(
            error
                .to_string()
                .starts_with("the second trace: the trace ends within record 33")
        );
    }
}
