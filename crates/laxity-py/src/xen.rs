//! Runs on real Xen: its trace buffers and its guests' reports, and traces held against each other.

use crate::{json, open};
use laxity_config::input;
use laxity_trace::{Metadata, Sink, Writer};
use laxity_xentrace::{XenRun, import};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

/// Bytes of a dump of Xen's trace buffers: they are in memory together with what is made of them.
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
    let invalid = |what: &str, error| PyValueError::new_err(format!("the {what}: {error}"));
    let metadata: Metadata =
        serde_json::from_str(metadata).map_err(|error| invalid("metadata", error))?;
    let domids: BTreeMap<String, u16> =
        serde_json::from_str(domids).map_err(|error| invalid("domains' numbers", error))?;
    let domids = in_order(&metadata, domids)?;
    let completions_ns = times(&completions)?;
    let summary = py.detach(|| {
        let bytes =
            input::read(Path::new(dump), DUMP_BYTES_MAX).map_err(|error| at(dump, error))?;
        let run = XenRun {
            metadata: &metadata,
            domids: &domids,
            start_realtime_ns,
            completions_ns: &completions_ns,
        };
        let (records, summary) = import(&bytes, &run)
            .map_err(|error| PyValueError::new_err(format!("{dump}: {error}")))?;
        let file = File::create(out).map_err(|error| at(out, error))?;
        let mut writer = Writer::new(file, &metadata).map_err(|error| at(out, error))?;
        records.into_iter().for_each(|record| writer.record(record));
        writer.finish().map_err(|error| at(out, error))?;
        Ok::<_, PyErr>(summary)
    })?;
    json(&summary)
}

/// Xen's numbers in the order of the metadata; there must be one for each domain, and no others.
fn in_order(metadata: &Metadata, mut domids: BTreeMap<String, u16>) -> PyResult<Vec<u16>> {
    let mut ordered = Vec::with_capacity(metadata.domains.len());
    for domain in &metadata.domains {
        let domid = domids.remove(&domain.name).ok_or_else(|| {
            PyValueError::new_err(format!("there is no number of domain {}", domain.name))
        })?;
        ordered.push(domid);
    }
    match domids.keys().next() {
        Some(name) => Err(PyValueError::new_err(format!(
            "there is a number of {name}, which is no domain of the run"
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
    let agreement = py
        .detach(|| laxity_trace::agreement(reader_a, reader_b))
        .map_err(|error| PyValueError::new_err(error.to_string()))?;
    json(&agreement)
}

/// How many decisions and context switches a trace has, and how many its schedule needs, as JSON.
#[pyfunction]
pub fn needs(py: Python<'_>, trace: &str) -> PyResult<String> {
    let reader = open(trace)?;
    let needs = py
        .detach(|| laxity_trace::needs(reader))
        .map_err(|error| PyValueError::new_err(format!("{trace}: {error}")))?;
    json(&needs)
}
