//! A trace as lines of text: one a record.

use crate::{
    Exit, Kind, Metadata, NONE, Reader, Record, Spent, TraceError, hop_of, spent_of, task_of,
};
use std::fmt;
use std::io::{BufWriter, Read, Write};

/// Writes one line a record: time in ms, CPU, VCPU, what happened. Lines that begin with `#` say
/// what the run was.
///
/// # Errors
///
/// The trace is damaged, or `out` fails.
pub fn write<R: Read>(mut reader: Reader<R>, out: impl Write) -> Result<(), TraceError> {
    let mut out = BufWriter::new(out);
    let lines = Lines::new(reader.metadata());
    let metadata = reader.metadata().clone();
    let mut write = |line: fmt::Arguments| writeln!(out, "{line}").map_err(TraceError::Write);
    write(format_args!(
        "# substrate {}, policy {}, seed {}, duration {} ms, CPUs {}",
        metadata.substrate,
        metadata.policy,
        metadata.seed,
        Milliseconds(metadata.duration_ns),
        metadata.cpus,
    ))?;
    write(format_args!("{}", lines.heading()))?;
    for record in reader.by_ref() {
        write(format_args!("{}", lines.line(&metadata, &record?)))?;
    }
    out.flush().map_err(TraceError::Write)
}

/// The widths of the columns.
pub(crate) struct Lines {
    time: usize,
    vcpu: usize,
}

impl Lines {
    pub fn new(metadata: &Metadata) -> Self {
        let name_width = |(domain, vcpus): (&str, u32)| {
            domain.chars().count() + 1 + vcpus.saturating_sub(1).to_string().len()
        };
        let names = metadata
            .domains
            .iter()
            .map(|domain| (domain.name.as_str(), domain.vcpus));
        Lines {
            time: Milliseconds(metadata.duration_ns)
                .to_string()
                .len()
                .max("# time ms".len()),
            vcpu: names.map(name_width).max().unwrap_or(0).max("vcpu".len()),
        }
    }

    /// What the columns are.
    pub fn heading(&self) -> String {
        format!(
            "{:<time$}  cpu  {:<vcpu$}  event",
            "# time ms",
            "vcpu",
            time = self.time,
            vcpu = self.vcpu
        )
    }

    /// The record, without the line's end. It must be of the trace with that metadata.
    pub fn line(&self, metadata: &Metadata, record: &Record) -> String {
        let vcpu = match record.domain {
            NONE => "-".to_owned(),
            domain => metadata.vcpu_name(domain, record.vcpu),
        };
        let cpu = match record.cpu {
            NONE => "-".to_owned(),
            cpu => cpu.to_string(),
        };
        let detail = Detail { metadata, record }.to_string();
        format!(
            "{:>time$}  {cpu:>3}  {vcpu:<vcpu_width$}  {:<9}  {detail}",
            Milliseconds(record.time_ns).to_string(),
            record.kind.name(),
            time = self.time,
            vcpu_width = self.vcpu,
        )
        .trim_end()
        .to_owned()
    }
}

/// The meaning of a record's argument.
struct Detail<'a> {
    metadata: &'a Metadata,
    record: &'a Record,
}

impl fmt::Display for Detail<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Record {
            time_ns,
            argument,
            kind,
            domain,
            ..
        } = *self.record;
        if kind.is_of_job() {
            let (task, number) = task_of(argument);
            let task = self.metadata.task(domain, task);
            write!(f, "{} #{number}", task.name)?;
            let deadline_ns = task.deadline_of_job_ns(number);
            return match kind {
                Kind::Release => write!(f, ", deadline {} ms", Milliseconds(deadline_ns)),
                Kind::Complete => {
                    let response_ns = time_ns.saturating_sub(task.arrival_ns(number));
                    write!(f, ", response {} ms", Milliseconds(response_ns))?;
                    if time_ns > deadline_ns {
                        write!(f, ", late by {} ms", Milliseconds(time_ns - deadline_ns))?;
                    }
                    Ok(())
                }
                _ => Ok(()),
            };
        }
        match kind {
            Kind::Run if argument == i64::MAX => write!(f, "no limit"),
            Kind::Run => write!(f, "until {} ms", Milliseconds(argument)),
            Kind::Stop if argument == 0 => write!(f, "blocked"),
            Kind::Stop => write!(f, "preempted"),
            Kind::Schedule if domain == NONE => write!(f, "idle, cost {argument} ns"),
            Kind::Schedule => write!(f, "cost {argument} ns"),
            Kind::Replenish | Kind::Budget => {
                let what = if self.metadata.has_credits() {
                    "of credit"
                } else {
                    "left"
                };
                write!(f, "{} ms {what}", Milliseconds(argument))
            }
            Kind::Migrate => write!(f, "to CPU {argument}"),
            Kind::Class => write!(f, "{}", self.record.class_name().unwrap_or("unknown")),
            Kind::Hop => match hop_of(argument) {
                Some((place, ns)) => write!(f, "{} {} ms", place.name(), Milliseconds(ns)),
                None => write!(f, "unknown"),
            },
            Kind::Spent => match spent_of(argument) {
                Some((Spent::Work, ns)) => write!(f, "work {ns} ns"),
                Some((Spent::Pause, ns)) => write!(f, "pause {ns} ns"),
                None => write!(f, "unknown"),
            },
            Kind::Exit => write!(f, "{}", Exit::of(argument).map_or("unknown", Exit::name)),
            Kind::Packet => {
                let (stream, number) = task_of(argument);
                write!(f, "stream {stream} #{number}")
            }
            Kind::Message => {
                let (registration, number) = task_of(argument);
                write!(f, "registration {registration} #{number}")
            }
            _ => Ok(()),
        }
    }
}

/// A time in ms, exact to the ns.
struct Milliseconds(i64);

impl fmt::Display for Milliseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NS: u64 = 1_000_000;
        let sign = if self.0 < 0 { "-" } else { "" };
        let ns = self.0.unsigned_abs();
        write!(f, "{sign}{}.{:06}", ns / NS, ns % NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn the_sample_reads_well() {
        let file = sample::file(&sample::metadata(), &sample::records());
        let mut text = Vec::new();
        write(sample::reader(&file), &mut text).expect("the trace is whole");
        assert_eq!(
            String::from_utf8(text).expect("text"),
            include_str!("sample.txt")
        );
    }

    #[test]
    fn times_are_exact() {
        let text = |ns| Milliseconds(ns).to_string();
        assert_eq!(text(-1), "-0.000001");
        assert_eq!(text(1_234_567_890), "1234.567890");
        assert_eq!(text(i64::MIN), "-9223372036854.775808");
    }
}
