//! The schema for editors says the same as the parser.

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

/// What the schema says of a host file, as an editor would ask it.
fn is_valid(text: &str) -> Result<(), String> {
    let file: toml::Value = toml::from_str(text).map_err(|error| error.to_string())?;
    let file = serde_json::to_value(file).unwrap();
    let validator = jsonschema::validator_for(&schema()).unwrap();
    match validator.iter_errors(&file).next() {
        None => Ok(()),
        Some(error) => Err(format!("{}: {error}", error.instance_path())),
    }
}

const EVERY_KEY: &str = include_str!("every-key.toml");

#[test]
fn what_the_parser_takes_the_schema_takes() {
    laxity_host::load(EVERY_KEY, "every-key.toml", &[""; 0]).unwrap();
    is_valid(EVERY_KEY).unwrap();
    let written = |key: &str| {
        EVERY_KEY.contains(&format!("{key} = ")) || EVERY_KEY.contains(&format!("{key}]"))
    };
    for (path, table) in tables(&schema()) {
        for key in table["properties"].as_object().unwrap().keys() {
            assert!(written(key), "every-key.toml lacks {key} of {path}");
        }
    }
}

#[test]
fn what_one_value_alone_makes_wrong_the_schema_refuses() {
    for (right, wrong) in [
        ("cpus = 4", "cpus = 0"),
        ("cpus = 4", "cpus = \"four\""),
        ("policy = \"sedf\"", "policy = \"fifo\""),
        ("quantum = \"1 ms\"", "quantum = \"1 fortnight\""),
        ("quantum = \"1 ms\"", "quantum = 1"),
        ("quantum = \"1 ms\"", "quamtum = \"1 ms\""),
        ("load = \"70 %\"", "load = 70"),
        ("name = \"control\"", "name = \"the control\""),
        ("extratime = true", "extratime = \"yes\""),
        ("weight = 512", "weight = 0"),
        ("affinity = [3, 1]", "affinity = [3, 3]"),
        ("kind = \"cpu-bound\"", "kind = \"gpu-bound\""),
        ("tasks = \"drawn\"", "tasks = \"draw\""),
        ("duration = \"60 s\"", ""),
    ] {
        assert!(EVERY_KEY.contains(right), "{right}");
        let text = EVERY_KEY.replacen(right, wrong, 1);
        assert!(is_valid(&text).is_err(), "the schema takes {wrong}");
        assert!(
            laxity_host::load(&text, "host.toml", &[""; 0]).is_err(),
            "`load` takes {wrong}"
        );
    }
}

#[test]
fn the_examples_are_right() {
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    for entry in std::fs::read_dir(examples).into_iter().flatten() {
        let path = entry.unwrap().path();
        // A site file is no host file: laxity-protect reads it.
        let is_host_file = path
            .extension()
            .is_some_and(|extension| extension == "toml")
            && !path.ends_with("site.toml");
        if is_host_file {
            let text = std::fs::read_to_string(&path).unwrap();
            let name = path.display().to_string();
            laxity_host::load(&text, &name, &[""; 0]).unwrap_or_else(|error| panic!("{error}"));
            is_valid(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }
}
