//! The model of senders, a link and who divides it.

use laxity_bandwidth::simulate::{Outcome, Scenario, record};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use rayon::prelude::*;

/// Runs scenarios (each as JSON, as `laxity_bandwidth::simulate` has them) on all CPUs for `duration_ms`; gives for
/// each what its machines did in every `every_ms`, as JSON.
#[pyfunction]
pub fn simulate_bandwidth(
    py: Python<'_>,
    scenarios: Vec<String>,
    duration_ms: u64,
    every_ms: u64,
) -> PyResult<Vec<String>> {
    let read = |text: &String| {
        let scenario: Result<Scenario, _> = serde_json::from_str(text);
        scenario.map_err(|error| PyValueError::new_err(format!("{text}: {error}")))
    };
    let scenarios: Vec<Scenario> = scenarios.iter().map(read).collect::<PyResult<_>>()?;
    let recorded: Vec<Vec<Vec<Outcome>>> = py.detach(|| {
        let all = scenarios.par_iter();
        all.map(|scenario| record(scenario, duration_ms, every_ms))
            .collect()
    });
    recorded.iter().map(crate::json).collect()
}
