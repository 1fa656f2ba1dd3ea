//! Values that are left open, and values that are written into a file.

use laxity_config::{Document, Field, FileKind, List, Name};

const KIND: FileKind = FileKind {
    noun: "file",
    with_article: "a file",
    least: "a file has names",
    open: Some("write a value"),
    list: None,
    readers: "everybody reads it",
};

#[derive(Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a table")]
struct Part {
    name: Field<Name>,
    size: Field<Name>,
}

#[derive(Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a table")]
struct File {
    part: Field<List<Part>>,
    whole: Field<Part>,
}

fn written(text: &str, values: &[(&str, &str)]) -> String {
    let values: Vec<(String, String)> = values
        .iter()
        .map(|(path, value)| (path.to_string(), value.to_string()))
        .collect();
    let document = Document::parse(text.as_bytes(), "a.toml", &KIND).unwrap();
    document.with_values(&values).unwrap()
}

#[test]
fn values_are_written_where_they_belong() {
    let text = "# sizes\n[whole]\n  # indented\n  name = \"w\"  # the whole\n\n[[part]]\nname = \"a\"\nsize = \"?\" # open\n\
                [[part]]\nname = \"b\" # no size\r\n";
    let values = [
        ("whole.size", "\"9\""),
        ("part.a.size", "\"1\""),
        ("part.b.size", "\"2\""),
        ("part.b.size", "\"3\""),
    ];
    let expected = "# sizes\n[whole]\n  # indented\n  name = \"w\"  # the whole\n  size = \"9\"\n\n[[part]]\nname = \"a\"\n\
                    size = \"1\" # open\n[[part]]\nname = \"b\" # no size\nsize = \"3\"\r\n";
    assert_eq!(written(text, &values), expected);
}

#[test]
fn values_are_written_into_inline_tables_and_dotted_keys() {
    let text = "part = [\n  { name = \"a\", size = '?' }, # one\n  {name = \"b\"},\n]\nwhole.name = \"w\"\n";
    let values = [
        ("part.a.size", "\"1\""),
        ("part.1.size", "\"2\""),
        ("whole.size", "\"3\""),
    ];
    let expected = "part = [\n  { name = \"a\", size = \"1\" }, # one\n  {name = \"b\", size = \"2\"},\n]\nwhole.name = \"w\"\n\
                    whole.size = \"3\"\n";
    assert_eq!(written(text, &values), expected);
}

#[test]
fn a_table_without_keys_gets_some() {
    assert_eq!(
        written("[whole] # here\n", &[("whole.name", "\"w\"")]),
        "[whole] # here\nname = \"w\"\n"
    );
    assert_eq!(
        written("whole = {}\n", &[("whole.name", "\"w\"")]),
        "whole = { name = \"w\" }\n"
    );
}

#[test]
fn elements_are_added_to_arrays() {
    let value = [("part.1", "{ size = \"2\", name = \"b\" }")];
    assert_eq!(
        written("[[part]]\nname = \"a\"\n\n[whole]\nname = \"w\"", &value),
        "[[part]]\nname = \"a\"\n\n[whole]\nname = \"w\"\n\n[[part]]\nsize = \"2\"\nname = \"b\"\n"
    );
    assert_eq!(
        written("part = [\n  { name = \"a\" },\n]\n", &value),
        "part = [\n  { name = \"a\" }, { size = \"2\", name = \"b\" },\n]\n"
    );
    assert_eq!(
        written("part = []\n", &[("part.0", "{ name = \"a\" }")]),
        "part = [{ name = \"a\" }]\n"
    );
    let document = Document::parse(b"[[part]]\nname = \"a\"\n", "a.toml", &KIND).unwrap();
    let names = |file: &File| -> Vec<Name> {
        let parts = &file.part.value.as_ref().unwrap().0;
        parts
            .iter()
            .map(|part| part.value.as_ref().unwrap().name.value.clone().unwrap())
            .collect()
    };
    let read = document.read(&["part.1={ name = \"b\" }"], |file: &File, _, _| {
        names(file)
    });
    assert_eq!(read.unwrap(), [Name("a".into()), Name("b".into())]);
}

/// What is written says what the same overrides say, however the file is written.
#[test]
fn written_values_are_those_of_overrides() {
    let texts = [
        "# parts\n[[part]]\nname = \"a\" # first\n\n[part.sub]\nx = 1\n\n# whole\n[whole]\nname = \"w\"\n\n\
         [[part]]\nname = \"b\"\nsub.y = 2\n\n# end\n",
        "\nseed = 1\npart = [{ name = \"a\", sub.x = 1 }, {name = \"b\"}]\nwhole = { name = \"w\" }",
        "whole.name = \"w\"\nwhole.sub.x = 1\n[[part]]\n[part.sub]\nx = 1\n[[part]]\nname = \"b\"",
        "[whole.sub]\nx = 1\n[[part]]\nname = \"a\"\n[[part.sub]]\nx = 1\n[[part.sub]]\nx = 2\n",
        "part = [[1, 2], [3]]\nwhole = []\n",
    ];
    let tables = "part=[{ name = \"c\", sub.x = 1, \"odd key\" = { y = 2 } }, { name = \"d\" }]";
    let changes: &[&[&str]] = &[
        &["seed=7"],
        &[tables],
        &[
            tables,
            "part.c.name=e",
            "part.2={ name = \"f\" }",
            "part.f.size=1",
        ],
        &["part.b.name=c", "part=[]"],
        &["part=[]", "part.0={ name = \"a\" }"],
        &["part=[1, 2]"],
        &["whole={ size = 1 }", "whole.name=v"],
        &["whole.name=v", "whole={ size = 1 }", "seed=7"],
        &["whole=1"],
        &["whole.size=2"],
        &["whole.sub.z=[3]"],
        &["part.0={ size = 1 }"],
        &["part.0.sub={ z = 3 }"],
        &["part.0.sub=[{ x = 3 }, { z = 4 }]"],
        &["part.0.sub.z=3", "part.1.sub={}"],
        &["new.table={ x = 1 }", "new.other=\"2\""],
    ];
    let table = |text: &str| text.parse::<toml::Table>();
    let mut written = 0;
    for text in texts {
        let document = Document::parse(text.as_bytes(), "a.toml", &KIND).unwrap();
        for overrides in changes {
            let values: Vec<(String, String)> = (overrides.iter())
                .map(|change| change.split_once('=').unwrap())
                .map(|(path, value)| match value {
                    "c" | "e" | "v" => (path.into(), format!("{value:?}")),
                    _ => (path.into(), value.into()),
                })
                .collect();
            let overridden = document.with_overrides(overrides);
            match (document.with_values(&values), overridden) {
                (Ok(new), Ok(overridden)) => {
                    written += 1;
                    let expected = table(&overridden.to_toml()).unwrap();
                    assert_eq!(
                        table(&new).as_ref(),
                        Ok(&expected),
                        "{overrides:?} in\n{text}\ngave\n{new}"
                    );
                }
                (Ok(new), Err(error)) => panic!("{error}: {overrides:?} in\n{text}\ngave\n{new}"),
                (Err(error), _) => println!("{error}: {overrides:?} in\n{text}"),
            }
        }
    }
    assert_eq!(written, 66, "changes that have a place");
}

#[test]
fn lists_of_sections_are_written_as_sections() {
    let text = "# first\n[[part]]\nname = \"a\"\n# of a\nsize = \"1\"\n\n[[part]]\nname = \"b\"\n\n# whole\n[whole]\nname = \"w\"\n";
    assert_eq!(
        written(
            text,
            &[("part", "[{ name = \"c\" }, { size = \"2\", name = \"d\" }]")]
        ),
        "# first\n[[part]]\nname = \"c\"\n\n[[part]]\nsize = \"2\"\nname = \"d\"\n\n# whole\n[whole]\nname = \"w\"\n"
    );
    assert_eq!(
        written(text, &[("part", "[]")]),
        "part = []\n\n# first\n\n# whole\n[whole]\nname = \"w\"\n"
    );
}

#[test]
fn a_path_without_a_place_is_named() {
    let document = Document::parse(b"[[part]]\nname = \"a\"\n", "a.toml", &KIND).unwrap();
    let error = document
        .with_values(&[("part.c.size".into(), "1".into())])
        .unwrap_err();
    let message = error.problems()[0].message().to_string();
    assert_eq!(message, "there is no place for `part.c.size`");
}

#[test]
fn open_values_are_refused_unless_they_are_asked_for() {
    let text = b"[[part]]\nname = \"a\"\nsize = \"?\"\n[whole]\nname = \"?\"\n";
    let document = Document::parse(text, "a.toml", &KIND).unwrap();
    let error = document.read(&[""; 0], |_: &File, _, _| ()).unwrap_err();
    let messages: Vec<&str> = error
        .problems()
        .iter()
        .map(|problem| problem.message())
        .collect();
    assert_eq!(messages, ["`size` is left open", "`name` is left open"]);
    let overrides = ["part.a.size=s", "whole.name=w"];
    let size = |file: &File| {
        file.part.value.as_ref()?.0[0]
            .value
            .as_ref()?
            .size
            .value
            .clone()
    };
    let read = document.read(&overrides, |file: &File, _, _| size(file));
    assert_eq!(read.unwrap(), Some(Name("s".into())));
    let open = document.read_open(&overrides[..1], |open, file: &File, _, _| {
        let absent = file
            .whole
            .value
            .as_ref()
            .is_some_and(|whole| whole.name.is_absent());
        (open.to_vec(), absent)
    });
    let (open, absent) = open.unwrap();
    assert_eq!(
        (open.len(), open[0].path.as_str(), absent),
        (1, "whole.name", true)
    );
}
