//! The uniform conversions at the border to Python: errors, JSON and traces.

use laxity_config::FileError;
use laxity_trace::Reader;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use std::fs::File;
use std::path::Path;

pyo3::create_exception!(
    laxity._core,
    HostError,
    PyValueError,
    "A host file, or an override, is wrong. `str()` shows where and what would be right; `problems` is the \
     same as a list of dictionaries; `render(colour, width)` is for terminals."
);

/// Rendered for a terminal, and as data: the arguments of [`HostError`].
pub fn host_error(error: &FileError) -> PyErr {
    let problems: Vec<serde_json::Value> = error
        .problems()
        .iter()
        .map(|problem| {
            serde_json::json!({
                "file": problem.file(),
                "line": problem.line(),
                "column": problem.column(),
                "message": problem.message(),
                "help": problem.help(),
            })
        })
        .collect();
    HostError::new_err((
        error.render(false, 100),
        serde_json::Value::from(problems).to_string(),
        error.render(true, 100),
    ))
}

/// A question that makes no sense for the host of a file, as an error of the file.
pub fn refused(
    document: &laxity_host::Document,
    overrides: &[String],
    refusal: &laxity_design::Refusal,
) -> FileError {
    let (path, message, help) = (&refusal.path, &refusal.message, &refusal.help);
    document.error_at(overrides, path, message, help)
}

/// A value as JSON text.
pub fn json<T: serde::Serialize>(value: &T) -> PyResult<String> {
    serde_json::to_string(value).map_err(|error| PyRuntimeError::new_err(error.to_string()))
}

/// Opens a trace; ValueError names the file that is none.
pub fn open(path: &str) -> PyResult<Reader<File>> {
    let refused = |error: String| PyValueError::new_err(format!("{path}: {error}"));
    let file =
        laxity_config::input::open(Path::new(path)).map_err(|error| refused(error.to_string()))?;
    Reader::new(file).map_err(|error| refused(error.to_string()))
}
