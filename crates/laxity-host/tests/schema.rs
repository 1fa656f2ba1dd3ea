//! The schema for editors has all that the parser has. That it says the same of files is python/tests/test_schema.py's.

use serde_json::Value;

fn schema() -> Value {
    serde_json::from_str(&laxity_host::schema()).unwrap()
}

/// Follows `$ref`s.
fn resolve<'s>(schema: &'s Value, node: &'s Value) -> &'s Value {
    match node["$ref"].as_str() {
        Some(reference) => schema.pointer(reference.trim_start_matches('#')).unwrap(),
        None => node,
    }
}

/// Every table of the file, by its path.
fn tables(schema: &Value) -> Vec<(String, Value)> {
    let mut tables = vec![("".to_string(), schema.clone())];
    for (name, table) in schema["$defs"].as_object().unwrap() {
        if table["type"] == "object" {
            tables.push((name.clone(), table.clone()));
        }
    }
    tables
}

#[test]
fn it_is_a_schema_of_the_draft_that_editors_know() {
    let schema = schema();
    assert_eq!(
        schema["$schema"],
        "https://json-schema.org/draft/2020-12/schema"
    );
    assert_eq!(schema["title"], "Laxity host file");
    assert_eq!(
        schema["required"],
        serde_json::json!(["duration", "host", "domain"])
    );
}

#[test]
fn every_key_is_described_and_no_other_is_allowed() {
    let tables = tables(&schema());
    assert!(tables.len() >= 8, "{tables:?}");
    for (path, table) in tables {
        assert_eq!(table["additionalProperties"], false, "{path}");
        for (key, value) in table["properties"].as_object().unwrap() {
            assert!(!key.contains('_'), "{path}.{key}");
            assert!(
                value["description"].is_string(),
                "{path}.{key} has no description"
            );
        }
    }
}

#[test]
fn it_knows_choices_bounds_and_defaults() {
    let schema = schema();
    let host = resolve(&schema, &schema["properties"]["host"]);
    let cpus = &host["properties"]["cpus"];
    assert_eq!(
        (&cpus["minimum"], &cpus["maximum"]),
        (&1.into(), &1024.into())
    );
    assert_eq!(host["properties"]["tick"]["default"], "10 ms");
    let policies = host["properties"]["policy"].to_string()
        + &resolve(&schema, &host["properties"]["policy"]).to_string();
    for policy in laxity_host::Policy::ALL {
        assert!(
            policies.contains(&format!("\"{}\"", policy.name())),
            "{policies}"
        );
    }
    let domains = &schema["properties"]["domain"];
    assert_eq!(
        (&domains["type"], &domains["minItems"]),
        (&"array".into(), &1.into())
    );
    let domain = resolve(&schema, &domains["items"]);
    assert_eq!(domain["required"], serde_json::json!(["name"]));
    assert_eq!(domain["properties"]["budget"]["type"], "string");
    assert!(domain["properties"]["budget"]["pattern"].is_string());
    assert_eq!(domain["properties"]["extratime"]["type"], "boolean");
}

const EVERY_KEY: &str = include_str!("every-key.toml");

#[test]
fn the_file_with_every_key_has_every_key() {
    laxity_host::load(EVERY_KEY, "every-key.toml", &[""; 0]).unwrap();
    let written = |key: &str| {
        EVERY_KEY.contains(&format!("{key} = ")) || EVERY_KEY.contains(&format!("{key}]"))
    };
    for (path, table) in tables(&schema()) {
        for key in table["properties"].as_object().unwrap().keys() {
            assert!(written(key), "every-key.toml lacks {key} of {path}");
        }
    }
}
