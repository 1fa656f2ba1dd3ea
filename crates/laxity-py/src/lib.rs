//! The Python extension module `laxity._core`: every crate's functions, with text and JSON across the border.
//!
//! What Python people use is in `python/laxity`, which wraps this. Nothing is decided here.

mod bandwidth;
mod border;
mod complete;
mod fleet;
mod imported;
mod interrupts;
mod observe;
mod policies;
mod runs;
mod schemas;
mod sweep;
mod voice;

use border::{HostError, host_error, json, open, refused};
use complete::{CompleteHost, Kept, kept};
use interrupts::interruptible;
use laxity_host::{Document, Host, Open};
use laxity_run::Outcome;
use laxity_trace::{Reader, TraceError};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::num::NonZeroUsize;
use std::sync::Arc;

/// Stretches of a trace, each from and to, ns, with its bytes; and the overview.
type Levels = (Vec<(i64, i64, Vec<u8>)>, Vec<u8>);

/// A domain and its task; no task stands for the budget and the period that are given to the domain.
type Demand = (String, Option<String>);

/// What is asked of a design.
#[derive(serde::Deserialize)]
struct Question {
    growth: Option<f64>,
    most_room: bool,
    any_phase: bool,
    values_only: bool,
}

impl Question {
    fn request(&self) -> laxity_design::Request {
        let aim = match self.growth {
            _ if self.most_room => laxity_design::Aim::MostRoom,
            Some(factor) => laxity_design::Aim::Room(factor),
            None => laxity_design::Aim::LeastTime,
        };
        laxity_design::Request {
            aim,
            any_phase: self.any_phase,
            values_only: self.values_only,
        }
    }
}

/// A host file, parsed once; its methods take overrides (`a.b=value`) and check the host that results.
/// [`CompleteHost`] answers several questions about one host, which is checked once.
#[pyclass(frozen, module = "laxity._core")]
struct HostFile {
    document: Arc<Document>,
}

impl HostFile {
    fn resolve(&self, overrides: &[String]) -> PyResult<Host> {
        self.document
            .host(overrides)
            .map_err(|error| host_error(&error))
    }

    fn opened(&self, overrides: &[String], demands: Option<Vec<Demand>>) -> PyResult<(Host, Open)> {
        let opened = self.document.open(overrides);
        let (host, open) = opened.map_err(|error| host_error(&error))?;
        Ok(match demands {
            Some(demands) => laxity_design::with_only(&host, &open, &demands),
            None => (host, open),
        })
    }
}

#[pymethods]
impl HostFile {
    #[new]
    fn new(text: &[u8], name: &str) -> PyResult<HostFile> {
        let document = Document::parse(text, name).map_err(|error| host_error(&error))?;
        Ok(HostFile {
            document: Arc::new(document),
        })
    }

    /// What makes the same object elsewhere: Python's `pickle` asks for it.
    fn __getnewargs__(&self) -> (Vec<u8>, &str) {
        let (text, name) = self.document.source();
        (text.as_bytes().to_vec(), name)
    }

    /// The host that results.
    fn complete(&self, overrides: Vec<String>) -> PyResult<CompleteHost> {
        Ok(CompleteHost(self.resolve(&overrides)?))
    }

    /// The schedulability analysis, as JSON.
    fn check(&self, py: Python<'_>, overrides: Vec<String>) -> PyResult<String> {
        let host = self.resolve(&overrides)?;
        json(&interruptible(py, move || laxity_analysis::check(&host))?)
    }

    /// The smallest budget for each domain at its period, as JSON.
    fn minimum_budgets(&self, py: Python<'_>, overrides: Vec<String>) -> PyResult<String> {
        let host = self.resolve(&overrides)?;
        json(&interruptible(py, move || {
            laxity_analysis::minimum_budgets(&host)
        })?)
    }

    /// Values for what the file leaves open, with which every deadline is guaranteed, as JSON. `question` (JSON) has
    /// the fields of [`Question`]. Each of `demands`, if given, is a domain with a task, or with none for what is given
    /// to it, and all others are left out. Raises HostError if the question makes no sense for the host.
    fn design(
        &self,
        py: Python<'_>,
        overrides: Vec<String>,
        question: &str,
        demands: Option<Vec<Demand>>,
    ) -> PyResult<String> {
        let question: Question = serde_json::from_str(question)
            .map_err(|error| PyValueError::new_err(format!("what is asked: {error}")))?;
        let (host, open) = self.opened(&overrides, demands)?;
        let answer = interruptible(py, move || {
            laxity_design::design(&host, &open, question.request())
        })?;
        let answer = answer.map_err(|refusal| refused(&self.document, &overrides, &refusal));
        json(&answer.map_err(|error| host_error(&error))?)
    }

    /// What the file leaves open, as JSON: `host`, with placeholders; the names of the `policies` that may be chosen;
    /// for each domain its `path`, whether its CPUs are open (`affinity`), whether its budget and period are given
    /// (`is_given`), the part of a CPU that is `needed` at least, and the least `share` with which it holds by itself
    /// (null if there is none). `demands` and errors are as those of `design`.
    fn open(
        &self,
        py: Python<'_>,
        overrides: Vec<String>,
        any_phase: bool,
        demands: Option<Vec<Demand>>,
    ) -> PyResult<String> {
        let (host, open) = self.opened(&overrides, demands)?;
        if let Some(refusal) = laxity_design::refusal(&host, &open) {
            return Err(host_error(&refused(&self.document, &overrides, &refusal)));
        }
        let request = laxity_design::Request {
            any_phase,
            ..laxity_design::Request::default()
        };
        let (host, open, shares) = interruptible(py, move || {
            let shares = laxity_design::least_shares(&host, &open, request);
            (host, open, shares)
        })?;
        let domains: Vec<serde_json::Value> = (open.domains.iter().zip(shares).enumerate())
            .map(|(number, (domain, share))| {
                serde_json::json!({
                    "path": domain.path,
                    "affinity": domain.affinity,
                    "is_given": domain.is_given(),
                    "needed": laxity_design::needed(&host, &open, number),
                    "share": share,
                })
            })
            .collect();
        json(&serde_json::json!({
            "host": host,
            "policies": laxity_design::policy_names(&host, &open),
            "domains": domains,
        }))
    }

    /// The host, with placeholders for what the file leaves open, as JSON.
    fn placeholders(&self, overrides: Vec<String>) -> PyResult<String> {
        json(&self.opened(&overrides, None)?.0)
    }

    /// The paths of all values that are left open with "?".
    fn open_paths(&self, overrides: Vec<String>) -> PyResult<Vec<String>> {
        let found = self.document.open_paths(&overrides);
        found.map_err(|error| host_error(&error))
    }

    /// Whether the file gives a value at a path of keys, such as "host.costs", right or wrong.
    fn gives(&self, path: &str) -> bool {
        self.document.gives(path)
    }

    /// The text of the file with values, each a path and TOML, in place of those that are there or open.
    fn with_values(&self, values: Vec<(String, String)>) -> PyResult<String> {
        self.document
            .with_values(&values)
            .map_err(|error| host_error(&error))
    }

    /// What the runs of one host for each list of overrides take, as JSON. All hosts are checked.
    fn estimate(&self, py: Python<'_>, overrides: Vec<Vec<String>>) -> PyResult<String> {
        json(&runs::estimate(py, &self.document, overrides)?)
    }

    /// Runs one host for each list of overrides, on that many threads or else on all CPUs; returns the results as JSON,
    /// in order, and with `streams` those whose packets were kept. `estimate` comes before it, and checks them. Calls
    /// `progress(done)` a few times a second.
    #[pyo3(signature = (overrides, progress=None, streams=false, threads=None))]
    fn run_many(
        &self,
        py: Python<'_>,
        overrides: Vec<Vec<String>>,
        progress: Option<Py<PyAny>>,
        streams: bool,
        threads: Option<NonZeroUsize>,
    ) -> PyResult<Vec<(String, Vec<Kept>)>> {
        let keep = |outcome: &Outcome| {
            let kept = if streams { kept(outcome) } else { Vec::new() };
            Ok((serde_json::to_string(&outcome.result)?, kept))
        };
        let progress = progress.as_ref();
        runs::many(py, &self.document, &overrides, progress, threads, keep)
    }

    /// Runs as `run_many` does; returns the columns of a table with a row for each run and domain, as
    /// [`sweep::Columns`] has them.
    #[pyo3(signature = (overrides, progress=None, threads=None))]
    fn sweep(
        &self,
        py: Python<'_>,
        overrides: Vec<Vec<String>>,
        progress: Option<Py<PyAny>>,
        threads: Option<NonZeroUsize>,
    ) -> PyResult<sweep::Columns> {
        let (document, progress) = (&self.document, progress.as_ref());
        let rows = runs::many(py, document, &overrides, progress, threads, |outcome| {
            sweep::rows(&outcome.result)
        })?;
        Ok(py.detach(|| sweep::columns(rows)))
    }
}

fn write_to(
    py: Python<'_>,
    trace: &str,
    out: &str,
    write: impl FnOnce(Reader<File>, &mut BufWriter<File>) -> Result<(), TraceError> + Send + 'static,
) -> PyResult<()> {
    let reader = open(trace)?;
    let mut file = BufWriter::new(
        File::create(out).map_err(|error| PyOSError::new_err(format!("{out}: {error}")))?,
    );
    let (trace, out) = (trace.to_owned(), out.to_owned());
    interruptible(py, move || {
        write(reader, &mut file)
            .map_err(|error| PyValueError::new_err(format!("{trace}: {error}")))?;
        file.flush()
            .map_err(|error| PyOSError::new_err(format!("{out}: {error}")))
    })?
}

/// Writes a trace as Perfetto's TrackEvent protobuf.
#[pyfunction]
fn write_perfetto(py: Python<'_>, trace: &str, out: &str) -> PyResult<()> {
    write_to(py, trace, out, |reader, file| {
        laxity_trace::perfetto::write(reader, file)
    })
}

/// Writes a trace as text, a line a record.
#[pyfunction]
fn write_text(py: Python<'_>, trace: &str, out: &str) -> PyResult<()> {
    write_to(py, trace, out, |reader, file| {
        laxity_trace::text::write(reader, file)
    })
}

/// The words for the kinds of records, in the order of their numbers, from 1.
#[pyfunction]
fn trace_kinds() -> Vec<&'static str> {
    laxity_trace::Kind::ALL.map(laxity_trace::Kind::name).into()
}

/// The words for the reasons of exits, in the order of their numbers, from 0.
#[pyfunction]
fn trace_exits() -> Vec<&'static str> {
    laxity_trace::Exit::ALL.map(laxity_trace::Exit::name).into()
}

/// What a trace says about its run before its first record, as JSON.
#[pyfunction]
fn trace_metadata(trace: &str) -> PyResult<String> {
    json(open(trace)?.metadata())
}

/// The timeline of a window of a trace as JSON: runs, budgets and jobs, in at most so many cells if a number is given.
#[pyfunction]
#[pyo3(signature = (trace, from_ns, to_ns, cells=None))]
fn timeline(
    py: Python<'_>,
    trace: &str,
    from_ns: i64,
    to_ns: i64,
    cells: Option<NonZeroUsize>,
) -> PyResult<String> {
    let reader = open(trace)?;
    let timeline = interruptible(py, move || {
        let whole = laxity_trace::timeline(reader, from_ns, to_ns)?;
        Ok(match cells {
            Some(cells) => whole.coarser(cells.get()),
            None => whole,
        })
    })?
    .map_err(|error: TraceError| PyValueError::new_err(format!("{trace}: {error}")))?;
    json(&timeline)
}

/// A whole trace for a picture that zooms, as `laxity_trace::levels` encodes it: stretches of about so many records,
/// each with where it begins and ends, ns; and the overview.
#[pyfunction]
fn timeline_levels(py: Python<'_>, trace: &str, records: NonZeroUsize) -> PyResult<Levels> {
    let reader = open(trace)?;
    let levels = interruptible(py, move || laxity_trace::levels(reader, records.get()))?
        .map_err(|error: TraceError| PyValueError::new_err(format!("{trace}: {error}")))?;
    let stretches = (levels.stretches.into_iter())
        .map(|stretch| (stretch.from_ns, stretch.to_ns, stretch.bytes))
        .collect();
    Ok((stretches, levels.overview))
}

/// Why jobs of a trace were late, as JSON: those of one task, by the places of its domain and of itself, or of all; the
/// worst so many, or all; with `every_job` also those that were in time.
#[pyfunction]
#[pyo3(signature = (trace, task=None, worst=None, every_job=false))]
fn why(
    py: Python<'_>,
    trace: &str,
    task: Option<(u16, u32)>,
    worst: Option<usize>,
    every_job: bool,
) -> PyResult<String> {
    let (first, reader) = (open(trace)?, open(trace)?);
    let question = laxity_why::Question {
        task,
        worst,
        every_job,
    };
    let answer = interruptible(py, move || {
        let watch = laxity_why::Watch::of(first)?;
        laxity_why::why(reader, &watch, &question)
    })?
    .map_err(|error: laxity_why::WhyError| PyValueError::new_err(format!("{trace}: {error}")))?;
    json(&answer)
}

/// Where two traces part: whether they are equal, for people, and as JSON.
#[pyfunction]
fn diff(py: Python<'_>, a: &str, b: &str) -> PyResult<(bool, String, String)> {
    let (reader_a, reader_b) = (open(a)?, open(b)?);
    let difference = interruptible(py, move || laxity_trace::diff(reader_a, reader_b))?
        .map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok((
        difference.is_empty(),
        difference.to_string(),
        json(&difference)?,
    ))
}

/// A time as people write it ("1.5 ms"), in ns.
#[pyfunction]
fn parse_duration(text: &str) -> PyResult<i64> {
    laxity_config::parse_duration(text, laxity_config::SECOND_NS).map_err(PyValueError::new_err)
}

/// The JSON Schema of host files.
#[pyfunction]
fn host_schema() -> String {
    laxity_host::schema()
}

/// The JSON Schema of resolved hosts, which `CompleteHost.json` returns.
#[pyfunction]
fn resolved_host_schema() -> String {
    laxity_host::resolved_schema()
}

/// The JSON Schema of results.
#[pyfunction]
fn result_schema() -> String {
    laxity_run::schema()
}

#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("HostError", module.py().get_type::<HostError>())?;
    module.add_class::<HostFile>()?;
    module.add_class::<CompleteHost>()?;
    module.add_class::<fleet::FleetFile>()?;
    module.add_function(wrap_pyfunction!(fleet::fleet_schema, module)?)?;
    module.add_function(wrap_pyfunction!(fleet::is_fleet, module)?)?;
    module.add_function(wrap_pyfunction!(write_perfetto, module)?)?;
    module.add_function(wrap_pyfunction!(write_text, module)?)?;
    module.add_function(wrap_pyfunction!(trace_kinds, module)?)?;
    module.add_function(wrap_pyfunction!(trace_exits, module)?)?;
    module.add_function(wrap_pyfunction!(trace_metadata, module)?)?;
    module.add_function(wrap_pyfunction!(timeline, module)?)?;
    module.add_function(wrap_pyfunction!(timeline_levels, module)?)?;
    module.add_function(wrap_pyfunction!(diff, module)?)?;
    module.add_function(wrap_pyfunction!(why, module)?)?;
    module.add_function(wrap_pyfunction!(imported::import_xen, module)?)?;
    module.add_function(wrap_pyfunction!(imported::import_xen_packets, module)?)?;
    module.add_function(wrap_pyfunction!(imported::import_kvm, module)?)?;
    module.add_function(wrap_pyfunction!(observe::observe, module)?)?;
    module.add_function(wrap_pyfunction!(observe::observed_jobs, module)?)?;
    module.add_function(wrap_pyfunction!(observe::recorded_threads, module)?)?;
    module.add_function(wrap_pyfunction!(observe::import_recorded, module)?)?;
    module.add_function(wrap_pyfunction!(imported::agreement, module)?)?;
    module.add_function(wrap_pyfunction!(imported::needs, module)?)?;
    module.add_function(wrap_pyfunction!(voice::rtp_streams, module)?)?;
    module.add_function(wrap_pyfunction!(voice::mixing_ns, module)?)?;
    module.add_function(wrap_pyfunction!(bandwidth::simulate_bandwidth, module)?)?;
    module.add_function(wrap_pyfunction!(parse_duration, module)?)?;
    module.add_function(wrap_pyfunction!(host_schema, module)?)?;
    module.add_function(wrap_pyfunction!(policies::policies, module)?)?;
    module.add_function(wrap_pyfunction!(policies::parameters, module)?)?;
    module.add_function(wrap_pyfunction!(resolved_host_schema, module)?)?;
    module.add_function(wrap_pyfunction!(result_schema, module)?)?;
    module.add_function(wrap_pyfunction!(schemas::trace_schema, module)?)?;
    module.add_function(wrap_pyfunction!(schemas::observation_schema, module)?)?;
    module.add_function(wrap_pyfunction!(schemas::media_schema, module)?)?;
    module.add("HOST_FILE_BYTES_MAX", laxity_config::FILE_BYTES_MAX)?;
    module.add("LOST", laxity_run::LOST)?;
    module.add("TIME_NS_MAX", laxity_sim::TIME_NS_MAX)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    Ok(())
}
