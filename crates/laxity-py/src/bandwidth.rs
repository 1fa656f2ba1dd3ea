//! The model of senders, a link and who divides it.

use crate::border::json;
use laxity_bandwidth::simulate::{Measured, Outcome, Scenario, record};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use rayon::prelude::*;

/// A machine for Python's allocators: class, minimum, maximum and measured rate, rates in bit/s.
type Seen = (u32, u64, u64, u64);

/// Runs scenarios (each as JSON, as `laxity_bandwidth::simulate` has them) on all CPUs for `duration_ms`; gives for
/// each what its machines did in every `every_ms`, as JSON. After each period of the regime `given`, calls
/// `rates(link_bit_s, machines)`, which returns the machines' new rates in bit/s.
#[pyfunction]
pub fn simulate_bandwidth(
    py: Python<'_>,
    scenarios: Vec<String>,
    duration_ms: u64,
    every_ms: u64,
    rates: Py<PyAny>,
) -> PyResult<Vec<String>> {
    let read = |text: &String| {
        let scenario: Result<Scenario, _> = serde_json::from_str(text);
        scenario.map_err(|error| PyValueError::new_err(format!("{text}: {error}")))
    };
    let scenarios: Vec<Scenario> = scenarios.iter().map(read).collect::<PyResult<_>>()?;
    let recorded: Vec<Vec<Vec<Outcome>>> = py.detach(|| {
        let all = scenarios.par_iter();
        all.map(|scenario| {
            let mut failed = None;
            let outcomes = record(scenario, duration_ms, every_ms, |machines| {
                given(&rates, scenario.link_bit_s, machines).unwrap_or_else(|error| {
                    failed.get_or_insert(error);
                    vec![0; machines.len()]
                })
            });
            failed.map_or(Ok(outcomes), Err)
        })
        .collect::<PyResult<_>>()
    })?;
    recorded.iter().map(json).collect()
}

fn given(rates: &Py<PyAny>, link_bit_s: u64, machines: &[Measured]) -> PyResult<Vec<u64>> {
    let seen = machines.iter().map(|machine| {
        let agreement = machine.agreement;
        let bounds = (agreement.minimum_bit_s, agreement.maximum_bit_s);
        (agreement.class, bounds.0, bounds.1, machine.measured_bit_s)
    });
    let seen: Vec<Seen> = seen.collect();
    let found: Vec<u64> = Python::attach(|py| rates.call1(py, (link_bit_s, seen))?.extract(py))?;
    if found.len() != machines.len() {
        let (some, all) = (found.len(), machines.len());
        let message = format!("{some} rates were given for {all} machines");
        return Err(PyValueError::new_err(message));
    }
    Ok(found)
}
