//! A host that is complete, and what is asked of one: its run, what that takes, and what its traces say.

use crate::border::json;
use crate::{imported, runs};
use laxity_host::Host;
use laxity_run::{KeptStream, Measured, Outcome, Responses};
use laxity_trace::Seen;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyByteArray;

/// A kept stream: its number, its call, when its first packet was sent, and when each arrived, as int64
/// bytes of this machine.
pub type Kept = (u64, Option<u64>, i64, Vec<u8>);

/// Response times of a task as int64 bytes of this machine: each of them, or, with how many there are of each, the
/// lengths that occur.
type Times = (Py<PyByteArray>, Option<Py<PyByteArray>>);

/// A result as JSON, the response times of each domain and task, and the kept streams.
type ResultAndTimes = (String, Vec<Vec<Times>>, Vec<Kept>);

/// A host file with overrides: the host that results, which has been checked.
#[pyclass(frozen, module = "laxity._core")]
pub struct CompleteHost(pub Host);

#[pymethods]
impl CompleteHost {
    /// The host in base units, as JSON.
    fn json(&self) -> PyResult<String> {
        json(&self.0)
    }

    /// What its run takes, as JSON.
    fn estimate(&self) -> PyResult<String> {
        json(&laxity_sim::estimate(&self.0))
    }

    /// Runs the host; returns the result as JSON, the response times of each domain's and task's completed jobs, and
    /// the streams whose packets were kept. Writes a trace to a path, if one is given. Calls `progress(done_ns)` a few
    /// times a second. What the trace `seen`, if one is given, shows of a run of the host elsewhere is as there: the
    /// order in which jobs of one instant are released, and the ticks of idle guests.
    #[pyo3(signature = (trace=None, progress=None, seen=None))]
    fn run(
        &self,
        py: Python<'_>,
        trace: Option<&str>,
        progress: Option<Py<PyAny>>,
        seen: Option<&str>,
    ) -> PyResult<ResultAndTimes> {
        let seen = seen.map_or_else(|| Ok(Seen::default()), |path| imported::seen(py, path))?;
        let outcome = runs::one(py, &self.0, &seen, trace, progress.as_ref())?;
        result_and_times(py, &outcome)
    }

    /// What a trace of the host says about the run before its first record, as JSON.
    fn trace_metadata(&self, substrate: &str) -> PyResult<String> {
        json(&laxity_run::metadata(&self.0, substrate))
    }

    /// The result of a run that was not simulated, as `run` gives it: by the same rules. `completions` is, for each
    /// domain and task, when the jobs completed, ns from the start of the run as int64 bytes, the greatest int64 for
    /// those that did not; `measured` (JSON) has `cpu_ns` of each domain, `schedule_calls`, `context_switches`,
    /// `schedule_ns` and `context_switch_ns`, which are null if they were not measured, `events` and `wall_ns`.
    fn result_of_jobs(
        &self,
        py: Python<'_>,
        substrate: &str,
        completions: imported::Times,
        measured: &str,
    ) -> PyResult<ResultAndTimes> {
        let measured: Measured = serde_json::from_str(measured)
            .map_err(|error| PyValueError::new_err(format!("what was measured: {error}")))?;
        let completions_ns = imported::times(&completions)?;
        let outcome = laxity_run::outcome_of_jobs(&self.0, substrate, &completions_ns, &measured)
            .map_err(|error| PyValueError::new_err(error.to_string()))?;
        result_and_times(py, &outcome)
    }
}

fn result_and_times(py: Python<'_>, outcome: &Outcome) -> PyResult<ResultAndTimes> {
    let times = |responses: &Responses| {
        Ok(match responses {
            Responses::Each(times) => (array(py, times)?, None),
            Responses::Counted(counted) => {
                let lengths = counted.lengths();
                let (ns, jobs): (Vec<i64>, Vec<i64>) =
                    lengths.map(|(ns, jobs)| (ns, jobs.cast_signed())).unzip();
                (array(py, &ns)?, Some(array(py, &jobs)?))
            }
        })
    };
    let responses = (outcome.responses.iter())
        .map(|tasks| tasks.iter().map(times).collect())
        .collect::<PyResult<_>>()?;
    Ok((json(&outcome.result)?, responses, kept(outcome)))
}

/// The streams whose packets were kept.
pub fn kept(outcome: &Outcome) -> Vec<Kept> {
    let of_stream = |kept: &KeptStream| {
        let mut arrived = vec![0; size_of_val(&kept.arrived_ns[..])];
        fill(&mut arrived, &kept.arrived_ns);
        (kept.stream, kept.call, kept.start_ns, arrived)
    };
    outcome.kept.iter().map(of_stream).collect()
}

/// An object that NumPy takes as an array that can be changed, without a copy.
fn array(py: Python<'_>, times: &[i64]) -> PyResult<Py<PyByteArray>> {
    let made = PyByteArray::new_with(py, size_of_val(times), |bytes| {
        fill(bytes, times);
        Ok(())
    });
    made.map(Bound::unbind)
}

fn fill(bytes: &mut [u8], times: &[i64]) {
    for (to, time) in bytes.chunks_exact_mut(size_of::<i64>()).zip(times) {
        to.copy_from_slice(&time.to_ne_bytes());
    }
}
