//! JSON Schemas of what the functions of this module, and `laxity-media --json`, give back: Python's types are made of
//! them.

use pyo3::prelude::*;
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;

/// A JSON Schema whose `$defs` are the types that `add` adds, and those that they are made of.
fn definitions(add: impl FnOnce(&mut SchemaGenerator)) -> String {
    let mut generator = SchemaSettings::draft2020_12()
        .for_serialize()
        .into_generator();
    add(&mut generator);
    serde_json::json!({ "$defs": generator.take_definitions(true) }).to_string()
}

/// The JSON Schema of what traces have and what is made of them, and of what is measured beside them.
#[pyfunction]
pub fn trace_schema() -> String {
    definitions(|of| {
        of.subschema_for::<laxity_trace::Metadata>();
        of.subschema_for::<laxity_trace::Timeline>();
        of.subschema_for::<laxity_trace::Agreement>();
        of.subschema_for::<laxity_trace::Needs>();
        of.subschema_for::<laxity_replay::Summary>();
        of.subschema_for::<laxity_run::Measured>();
    })
}

/// The JSON Schema of what is observed of a host.
#[pyfunction]
pub fn observation_schema() -> String {
    definitions(|of| {
        of.subschema_for::<laxity_observe::Observation>();
        of.subschema_for::<laxity_kvmtrace::Survey>();
    })
}

/// The JSON Schema of the reports of `laxity-media`.
#[pyfunction]
pub fn media_schema() -> String {
    definitions(|of| {
        of.subschema_for::<laxity_media::report::Report>();
    })
}
