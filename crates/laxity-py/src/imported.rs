//! Runs on real hosts: their trace buffers and their guests' reports, and traces held against each other.

use crate::border::{json, open};
use crate::interrupts::interruptible;
use laxity_config::input;
use laxity_kvmtrace::{KvmRun, Recording};
use laxity_replay::{Jobs, Summary, Vcpus, in_layers, with_deliveries, with_threads};
use laxity_trace::{DomainMetadata, Metadata, Record, Seen, Sink, Writer};
use laxity_xentrace::XenRun;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

/// Bytes of a dump of trace buffers: they are in memory together with what is made of them.
const DUMP_BYTES_MAX: usize = 4 << 30;

/// For each domain and task, int64 as little-endian bytes.
pub type Times = Vec<Vec<Vec<u8>>>;

/// Completion times, from bytes.
pub fn times(of: &Times) -> PyResult<Vec<Vec<Vec<i64>>>> {
    let task = |bytes: &Vec<u8>| {
        let (times, rest) = bytes.as_chunks();
        if !rest.is_empty() {
            let message = "completion times are int64, 8 bytes each";
            return Err(PyValueError::new_err(message));
        }
        Ok(times.iter().map(|time| i64::from_le_bytes(*time)).collect())
    };
    of.iter()
        .map(|tasks| tasks.iter().map(task).collect())
        .collect()
}

/// Makes a trace of a dump of Xen's trace buffers; returns the summary as JSON. `metadata` is that of the trace, JSON;
/// `domids` Xen's numbers of the domains by name, JSON; `completions`, for each domain and task, when the jobs
/// completed, ns from the start of the run as int64 bytes, the greatest int64 for those that did not. Nothing is
/// written if the dump is damaged.
#[pyfunction]
pub fn import_xen(
    py: Python<'_>,
    dump: &str,
    out: &str,
    metadata: &str,
    domids: &str,
    completions: Times,
    start_realtime_ns: i64,
) -> PyResult<String> {
    let metadata: Metadata = parsed("metadata", metadata)?;
    let domids = in_order(&metadata, parsed("domains' numbers", domids)?)?;
    import_from(py, dump, out, &metadata, &completions, |bytes, jobs| {
        let run = XenRun {
            jobs,
            domids: &domids,
            start_realtime_ns,
        };
        laxity_xentrace::import(bytes, &run).map_err(|error| error.to_string())
    })
}

/// Makes a trace, without jobs, of a dump of Xen's trace buffers and of one of dom0's kernel (guest/ftrace.h). The
/// domains of `metadata` (JSON) are those of Xen, with their numbers by name as in `import_xen`, and behind them the
/// programs of dom0, with the `threads` of each. The trace has the packets that waited for a domain for longer than
/// `delay_ns`; `workers` are the threads that take packets for a domain, and the domain's place. Returns the number of
/// switches that dom0's kernel did not trace, and those of packets that domains had.
#[pyfunction]
#[expect(
    clippy::too_many_arguments,
    reason = "each is a file of the run, or one fact of it"
)]
pub fn import_xen_packets(
    py: Python<'_>,
    dump: &str,
    kernel: &str,
    out: &str,
    metadata: &str,
    domids: &str,
    start_realtime_ns: i64,
    threads: Vec<Vec<i32>>,
    workers: Vec<(i32, u16)>,
    delay_ns: i64,
) -> PyResult<(u64, Vec<u64>)> {
    let metadata: Metadata = parsed("metadata", metadata)?;
    (metadata.sizes())
        .map_err(|reason| PyValueError::new_err(format!("the metadata: {reason}")))?;
    let (programs, own): (Vec<_>, Vec<_>) =
        (metadata.domains.iter().cloned()).partition(DomainMetadata::is_beside);
    let of_host = Metadata {
        domains: own,
        programs_in: None,
        ..metadata.clone()
    };
    let inside = Metadata {
        cpus: metadata.lanes() - metadata.cpus,
        domains: programs,
        ..of_host.clone()
    };
    let domids = in_order(&of_host, parsed("domains' numbers", domids)?)?;
    let (dump, kernel, out) = (dump.to_owned(), kernel.to_owned(), out.to_owned());
    interruptible(py, move || {
        let read = |path: &str| {
            input::read(Path::new(path), DUMP_BYTES_MAX).map_err(|error| at(path, error))
        };
        let wrong = |path: &str, error: &dyn std::fmt::Display| {
            PyValueError::new_err(format!("{path}: {error}"))
        };
        let (of_xen, of_kernel) = (read(&dump)?, read(&kernel)?);
        let completions_ns = vec![Vec::new(); of_host.domains.len()];
        let run = XenRun {
            jobs: Jobs {
                metadata: &of_host,
                completions_ns: &completions_ns,
            },
            domids: &domids,
            start_realtime_ns,
        };
        let in_xen = |error| wrong(&dump, &error);
        let (records, _) = laxity_xentrace::import(&of_xen, &run).map_err(in_xen)?;
        let clock = laxity_xentrace::clock(&of_xen, &run).map_err(in_xen)?;
        let in_kernel = |error| wrong(&kernel, &error);
        let recording = Recording::open(&of_kernel).map_err(in_kernel)?.by(clock);
        let of_threads = &threads[of_host.domains.len().min(threads.len())..];
        let (of_programs, _, guessed) =
            (recording.import_from(0, &inside, of_threads)).map_err(in_kernel)?;
        let in_both = |error| wrong(&kernel, &error);
        let records = with_threads(&metadata, records, of_programs, guessed).map_err(in_both)?;
        let known = (&records[..], delay_ns);
        let packets =
            (recording.packets(0, &metadata, &threads, &workers, known)).map_err(in_kernel)?;
        let late = in_layers(&metadata, &records, packets.late).map_err(in_both)?;
        let vcpus = Vcpus::new(&metadata).map_err(in_both)?;
        let records =
            with_deliveries(&vcpus, metadata.duration_ns, records, &late).map_err(in_both)?;
        let mut writer = Writer::new(
            File::create(&out).map_err(|error| at(&out, error))?,
            &metadata,
        )
        .map_err(|error| at(&out, error))?;
        records.into_iter().for_each(|record| writer.record(record));
        writer.finish().map_err(|error| at(&out, error))?;
        Ok((guessed, packets.counts))
    })?
}

/// Makes a trace of the trace buffers of a Linux host; returns the summary as JSON. `threads` are the threads of the
/// VCPUs of each domain by name, JSON; `start_ns` is the start of the run by the clock of the TSC; `policy` is the file
/// of what a policy of Laxity did to VCPUs, if one scheduled. All else is as in `import_xen`.
#[pyfunction]
#[pyo3(signature = (dump, out, metadata, threads, completions, start_ns, policy=None))]
#[expect(
    clippy::too_many_arguments,
    reason = "each is a file of the run, or one fact of it"
)]
pub fn import_kvm(
    py: Python<'_>,
    dump: &str,
    out: &str,
    metadata: &str,
    threads: &str,
    completions: Times,
    start_ns: i64,
    policy: Option<&str>,
) -> PyResult<String> {
    let metadata: Metadata = parsed("metadata", metadata)?;
    let threads = in_order(&metadata, parsed("threads", threads)?)?;
    let policy = policy
        .map(|path| input::read(Path::new(path), DUMP_BYTES_MAX).map_err(|error| at(path, error)))
        .transpose()?;
    import_from(py, dump, out, &metadata, &completions, |bytes, jobs| {
        let run = KvmRun {
            jobs,
            threads: &threads,
            start_ns,
            policy: policy.as_deref(),
        };
        laxity_kvmtrace::import(bytes, &run).map_err(|error| error.to_string())
    })
}

fn parsed<T: DeserializeOwned>(what: &str, text: &str) -> PyResult<T> {
    serde_json::from_str(text)
        .map_err(|error| PyValueError::new_err(format!("the {what}: {error}")))
}

/// Reads a dump, makes the records with `import`, and writes the trace.
fn import_from(
    py: Python<'_>,
    dump: &str,
    out: &str,
    metadata: &Metadata,
    completions: &Times,
    import: impl Send + Sync + Fn(&[u8], Jobs) -> Result<(Vec<Record>, Summary), String>,
) -> PyResult<String> {
    let completions_ns = times(completions)?;
    let summary = py.detach(|| {
        let bytes =
            input::read(Path::new(dump), DUMP_BYTES_MAX).map_err(|error| at(dump, error))?;
        let jobs = Jobs {
            metadata,
            completions_ns: &completions_ns,
        };
        let (records, summary) = import(&bytes, jobs)
            .map_err(|error| PyValueError::new_err(format!("{dump}: {error}")))?;
        let file = File::create(out).map_err(|error| at(out, error))?;
        let mut writer = Writer::new(file, metadata).map_err(|error| at(out, error))?;
        records.into_iter().for_each(|record| writer.record(record));
        writer.finish().map_err(|error| at(out, error))?;
        Ok::<_, PyErr>(summary)
    })?;
    json(&summary)
}

/// What names the domains on the host, in the order of the metadata; there must be one for each, and no others.
fn in_order<T>(metadata: &Metadata, mut named: BTreeMap<String, T>) -> PyResult<Vec<T>> {
    let mut ordered = Vec::with_capacity(metadata.domains.len());
    for domain in &metadata.domains {
        ordered.push(named.remove(&domain.name).ok_or_else(|| {
            PyValueError::new_err(format!("nothing names domain {}", domain.name))
        })?);
    }
    match named.keys().next() {
        Some(name) => Err(PyValueError::new_err(format!(
            "{name} is named, but it is not a domain of the run"
        ))),
        None => Ok(ordered),
    }
}

fn at(path: &str, error: std::io::Error) -> PyErr {
    PyOSError::new_err(format!("{path}: {error}"))
}

/// How far two traces of one host are apart, as JSON.
#[pyfunction]
pub fn agreement(py: Python<'_>, a: &str, b: &str) -> PyResult<String> {
    let (reader_a, reader_b) = (open(a)?, open(b)?);
    let agreement = interruptible(py, move || laxity_trace::agreement(reader_a, reader_b))?
        .map_err(|error| PyValueError::new_err(error.to_string()))?;
    json(&agreement)
}

/// What a trace shows of a run and no host file tells.
pub fn seen(py: Python<'_>, trace: &str) -> PyResult<Seen> {
    let reader = open(trace)?;
    interruptible(py, move || laxity_trace::seen(reader))?
        .map_err(|error| PyValueError::new_err(format!("{trace}: {error}")))
}

/// How many decisions and context switches a trace has, and how many its schedule needs, as JSON.
#[pyfunction]
pub fn needs(py: Python<'_>, trace: &str) -> PyResult<String> {
    let reader = open(trace)?;
    let needs = interruptible(py, move || laxity_trace::needs(reader))?
        .map_err(|error| PyValueError::new_err(format!("{trace}: {error}")))?;
    json(&needs)
}
