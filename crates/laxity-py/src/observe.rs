//! The workloads of a trace's domains, and the completion times of the jobs of known tasks; traces of Linux hosts as
//! trace-cmd records them.

use crate::border::{json, open};
use crate::interrupts::interruptible;
use laxity_config::input;
use laxity_kvmtrace::{KvmError, Recording};
use laxity_observe::Kernel;
use laxity_replay::{Vcpus, Way, with_deliveries, with_packets};
use laxity_trace::{Kind, Metadata, NONE, Record, Sink, TraceError, Writer};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::fs::File;
use std::path::Path;

/// Records that are held in memory: 3 GiB of them.
const RECORDS_MAX: usize = 1 << 27;

/// Jobs of observed tasks: each has two records.
const JOBS_MAX: i64 = 1 << 26;

fn read(trace: &str) -> PyResult<(Metadata, Vec<Record>)> {
    let reader = open(trace)?;
    let metadata = reader.metadata().clone();
    let at = |error: TraceError| PyValueError::new_err(format!("{trace}: {error}"));
    let mut records = Vec::new();
    for record in reader {
        if records.len() == RECORDS_MAX {
            let message = format!(
                "{trace}: a trace of more than {RECORDS_MAX} records; observe for a shorter time"
            );
            return Err(PyValueError::new_err(message));
        }
        records.push(record.map_err(at)?);
    }
    Ok((metadata, records))
}

/// What the domains of a trace do, whatever it says of jobs, as JSON. `kernel` (JSON) is what is known of the
/// kernels of its guests.
#[pyfunction]
pub fn observe(py: Python<'_>, trace: &str, kernel: &str) -> PyResult<String> {
    let kernel: Kernel = serde_json::from_str(kernel)
        .map_err(|error| PyValueError::new_err(format!("the kernel: {error}")))?;
    let trace = trace.to_owned();
    let found = interruptible(py, move || {
        let (metadata, records) = read(&trace)?;
        Ok::<_, PyErr>(laxity_observe::observe(&metadata, &records, &kernel))
    })?;
    json(&found?)
}

/// Writes a trace with the jobs of the tasks of `metadata` (JSON) in place of those that it has. Returns for each
/// domain and task when its jobs completed, ns as int64 bytes, the greatest int64 for those that did not, and what the
/// trace says as a whole, as JSON: `cpu_ns` of each domain, `decisions`, `switches` and `records`.
#[pyfunction]
pub fn observed_jobs<'py>(
    py: Python<'py>,
    trace: &str,
    out: &str,
    metadata: &str,
) -> PyResult<(Vec<Vec<Bound<'py, PyBytes>>>, String)> {
    let metadata: Metadata = serde_json::from_str(metadata)
        .map_err(|error| PyValueError::new_err(format!("the metadata: {error}")))?;
    (metadata.sizes())
        .map_err(|reason| PyValueError::new_err(format!("the metadata: {reason}")))?;
    let (trace, out) = (trace.to_owned(), out.to_owned());
    let (completions, told) = interruptible(py, move || jobs(&trace, &out, &metadata))??;
    let bytes = |times: &Vec<i64>| {
        let bytes: Vec<u8> = times.iter().flat_map(|time| time.to_le_bytes()).collect();
        PyBytes::new(py, &bytes)
    };
    let completions = completions
        .iter()
        .map(|tasks| tasks.iter().map(bytes).collect())
        .collect();
    Ok((completions, told.to_string()))
}

/// When the jobs of each domain and task completed, ns, and what the trace says as a whole.
type Jobs = (Vec<Vec<Vec<i64>>>, serde_json::Value);

fn jobs(trace: &str, out: &str, metadata: &Metadata) -> PyResult<Jobs> {
    let (own, records) = read(trace)?;
    let shape = |metadata: &Metadata| -> Vec<(String, u32)> {
        (metadata.domains.iter())
            .map(|domain| (domain.name.clone(), domain.vcpus))
            .collect()
    };
    if shape(&own) != shape(metadata)
        || own.cpus != metadata.cpus
        || own.duration_ns != metadata.duration_ns
    {
        let message = format!(
            "{trace}: the trace is of a host with other CPUs, domains or VCPUs, or another duration"
        );
        return Err(PyValueError::new_err(message));
    }
    let jobs: i64 = (metadata.domains.iter().flat_map(|domain| &domain.tasks))
        .map(|task| metadata.duration_ns / task.period_ns.max(1))
        .fold(0, i64::saturating_add);
    if jobs > JOBS_MAX {
        let message = format!(
            "{trace}: {jobs} jobs of tasks are more than the {JOBS_MAX} that are held in memory; observe for a shorter time"
        );
        return Err(PyValueError::new_err(message));
    }
    let completions_ns = laxity_observe::completions_ns(metadata, &records);
    laxity_run::released_jobs(metadata, &completions_ns)
        .map_err(|error| PyValueError::new_err(format!("{trace}: {error}")))?;
    let traced = laxity_observe::with_jobs(metadata, &records, &completions_ns);
    let at = |error| PyOSError::new_err(format!("{out}: {error}"));
    let mut writer = Writer::new(File::create(out).map_err(at)?, metadata).map_err(at)?;
    traced.iter().for_each(|&record| writer.record(record));
    writer.finish().map_err(at)?;
    let told = whole(metadata, &records, traced.len());
    Ok((completions_ns, told))
}

fn whole(metadata: &Metadata, records: &[Record], traced: usize) -> serde_json::Value {
    let cpu_ns: Vec<i64> = (laxity_observe::seen(metadata, records).iter())
        .map(|vcpus| vcpus.iter().map(laxity_observe::Seen::work_ns).sum())
        .collect();
    let mut running = vec![(NONE, NONE); metadata.cpus as usize];
    let (mut decisions, mut switches) = (0_u64, 0_u64);
    for record in records
        .iter()
        .filter(|record| record.kind == Kind::Schedule)
    {
        decisions += 1;
        let who = (record.domain, record.vcpu);
        switches += u64::from(std::mem::replace(&mut running[usize::from(record.cpu)], who) != who);
    }
    serde_json::json!({ "cpu_ns": cpu_ns, "decisions": decisions, "switches": switches, "records": traced })
}

/// Bytes of a file of trace-cmd: they are in memory together with what is made of them.
const RECORDING_BYTES_MAX: usize = 4 << 30;

/// Hands the recording of a file to `use_it`.
fn recording<T>(file: &str, use_it: impl FnOnce(&Recording) -> Result<T, KvmError>) -> PyResult<T> {
    let bytes = input::read(Path::new(file), RECORDING_BYTES_MAX)
        .map_err(|error| PyOSError::new_err(format!("{file}: {error}")))?;
    (Recording::open(&bytes).and_then(|recording| use_it(&recording)))
        .map_err(|error| PyValueError::new_err(format!("{file}: {error}")))
}

/// The threads of a file of trace-cmd, the number of CPUs, and the times of its first and last event, as JSON.
#[pyfunction]
pub fn recorded_threads(py: Python<'_>, file: &str) -> PyResult<String> {
    let file = file.to_owned();
    json(&interruptible(py, move || {
        recording(&file, |recording| Ok(recording.survey().clone()))
    })??)
}

/// Writes the trace, without jobs, of a file of trace-cmd. `metadata` (JSON) is that of the trace; `threads` are those
/// of the VCPUs of each domain. The trace begins at `start_ns` of the recording's clock, or with the first event.
/// `packets` are late ones, each as nine int64: stream, number there, domain and VCPU that handled it, and, in ns from
/// the start, when it was sent, arrived at the server, left it and was heard, and the CPU time of its own. With
/// `delay_ns`, those are late, too, that the recording has and that waited for longer; `workers` are then threads that
/// take packets for the VCPUs of a domain, and the domain's place. Returns the number of switches that the kernel did
/// not trace, and with `delay_ns` those of packets that domains had.
#[pyfunction]
#[pyo3(signature = (
    file, out, metadata, threads, start_ns=None, packets=Vec::new(), delay_ns=None, workers=Vec::new()
))]
#[expect(
    clippy::too_many_arguments,
    reason = "each is one fact of the recording or the run, and Python names them"
)]
pub fn import_recorded(
    py: Python<'_>,
    file: &str,
    out: &str,
    metadata: &str,
    threads: Vec<Vec<i32>>,
    start_ns: Option<i64>,
    packets: Vec<u8>,
    delay_ns: Option<i64>,
    workers: Vec<(i32, u16)>,
) -> PyResult<(u64, Option<Vec<u64>>)> {
    let ways = ways(&packets)?;
    let metadata: Metadata = serde_json::from_str(metadata)
        .map_err(|error| PyValueError::new_err(format!("the metadata: {error}")))?;
    let (file, out) = (file.to_owned(), out.to_owned());
    interruptible(py, move || {
        let (records, guessed, counts) = recording(&file, |recording| {
            let start_ns = start_ns.unwrap_or(recording.survey().from_ns);
            let (records, _, guessed) = recording.import_from(start_ns, &metadata, &threads)?;
            let vcpus = Vcpus::new(&metadata)?;
            let end_ns = metadata.duration_ns;
            let (mut late, mut counts) = (Vec::new(), None);
            if let Some(delay_ns) = delay_ns {
                let known = (&records[..], delay_ns);
                let packets = recording.packets(start_ns, &metadata, &threads, &workers, known)?;
                (late, counts) = (packets.late, Some(packets.counts));
            }
            let records = with_packets(&vcpus, end_ns, records, &ways)?;
            let records = with_deliveries(&vcpus, end_ns, records, &late)?;
            Ok((records, guessed, counts))
        })?;
        let at = |error| PyOSError::new_err(format!("{out}: {error}"));
        let mut writer = Writer::new(File::create(&out).map_err(at)?, &metadata).map_err(at)?;
        records.into_iter().for_each(|record| writer.record(record));
        writer.finish().map_err(at)?;
        Ok((guessed, counts))
    })?
}

/// Packets, from bytes.
fn ways(bytes: &[u8]) -> PyResult<Vec<Way>> {
    const NUMBERS: usize = 9;
    let (rows, rest) = bytes.as_chunks::<{ 8 * NUMBERS }>();
    let refused = || PyValueError::new_err("a packet is nine int64, none of which is too large");
    if !rest.is_empty() {
        return Err(refused());
    }
    let way = |row: &[u8; 8 * NUMBERS]| {
        let (words, _) = row.as_chunks();
        let mut numbers = [0; NUMBERS];
        for (number, word) in numbers.iter_mut().zip(words) {
            *number = i64::from_le_bytes(*word);
        }
        let [
            stream,
            number,
            domain,
            vcpu,
            sent_ns,
            arrived_ns,
            left_ns,
            heard_ns,
            work_ns,
        ] = numbers;
        Some(Way {
            stream: stream.try_into().ok()?,
            number: number.try_into().ok()?,
            vcpu: (domain.try_into().ok()?, vcpu.try_into().ok()?),
            sent_ns,
            arrived_ns,
            left_ns,
            heard_ns,
            work_ns,
        })
    };
    (rows.iter().map(way).collect::<Option<_>>()).ok_or_else(refused)
}
