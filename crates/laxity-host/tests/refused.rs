//! Every host file of `refused.md` is refused with exactly the message that stands below it, where a list of all
//! policies reads `(the policies)`.

use std::path::Path;

/// A file, its overrides and what is said about it.
struct Case {
    title: String,
    text: String,
    overrides: Vec<String>,
    expected: String,
}

/// A line outside cases, or a case.
enum Part {
    Line(String),
    Case(Case),
}

fn block<'l>(lines: &mut impl Iterator<Item = &'l str>) -> String {
    lines
        .take_while(|line| *line != "```")
        .map(|line| format!("{line}\n"))
        .collect()
}

fn parse(document: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut title = String::new();
    let mut lines = document.lines();
    while let Some(line) = lines.next() {
        if let Some(text) = line.strip_prefix("### ") {
            title = text.to_string();
        }
        let Some(overrides) = line.strip_prefix("```toml") else {
            parts.push(Part::Line(line.to_string()));
            continue;
        };
        let overrides = overrides
            .split(" --set ")
            .skip(1)
            .map(|text| text.trim().trim_matches('\'').to_string())
            .collect();
        let text = block(&mut lines);
        assert_eq!(
            (lines.next(), lines.next()),
            (Some(""), Some("```text")),
            "after {title}"
        );
        let expected = block(&mut lines);
        parts.push(Part::Case(Case {
            title: title.clone(),
            text,
            overrides,
            expected,
        }));
    }
    parts
}

fn without_policies(said: String) -> String {
    let names = laxity_host::Policy::ALL.map(laxity_host::Policy::name);
    let (last, others) = names.split_last().unwrap();
    let quoted = format!("\"{}\"", others.join("\", \""));
    [
        format!("{quoted} and \"{last}\""),
        format!("{quoted} or \"{last}\""),
        names.join(", "),
    ]
    .iter()
    .fold(said, |said, list| said.replace(list, "(the policies)"))
}

#[test]
fn refused_files_are_refused_with_these_words() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/refused.md");
    let document = std::fs::read_to_string(&path).unwrap();
    let mut blessed = String::new();
    let mut wrong = Vec::new();
    let mut count = 0;
    for part in parse(&document) {
        let case = match part {
            Part::Line(line) => {
                blessed += &format!("{line}\n");
                continue;
            }
            Part::Case(case) => case,
        };
        count += 1;
        let said = match laxity_host::load(&case.text, "host.toml", &case.overrides) {
            Err(error) => without_policies(format!("{error}\n")),
            Ok(_) => panic!("{} is not refused", case.title),
        };
        if said != case.expected {
            wrong.push(format!(
                "{}\nexpected:\n{}\nsaid:\n{said}",
                case.title, case.expected
            ));
        }
        let sets: String = case
            .overrides
            .iter()
            .map(|text| format!(" --set '{text}'"))
            .collect();
        blessed += &format!("```toml{sets}\n{}```\n\n```text\n{said}```\n", case.text);
    }
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, blessed).unwrap();
    } else {
        assert!(
            wrong.is_empty(),
            "{} of {count} differ:\n\n{}",
            wrong.len(),
            wrong.join("\n")
        );
    }
    assert!(count >= 40, "only {count} cases were found");
}
