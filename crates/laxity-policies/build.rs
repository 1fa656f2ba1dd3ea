//! Makes the Rust side of `policy/policies.def` and `policy/parameters.def`.
//!
//! The files are C's to include, so this reads as much of C as stands in them: comments, `#define` of products of
//! integers, and rows `LAXITY_NAME(argument, …)` whose arguments are words, string literals, and products or
//! bitwise ors of words and integers. Anything else ends the build, with its line.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write;
use std::path::Path;
use std::{env, fs};

fn main() {
    let policy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policy");
    let mut made = String::new();
    let policies = read(&policy.join("policies.def"));
    let mut parameters = read(&policy.join("parameters.def"));
    // Rust has the simulator, which runs models, too.
    for row in &mut parameters.rows {
        row.name = row.name.replace("LAXITY_MODEL_", "LAXITY_");
    }
    write_limits(&mut made, &parameters);
    write_parameters(&mut made, &parameters);
    write_policies(&mut made, &policies, &parameters);
    let out = env::var("OUT_DIR").expect("cargo sets it");
    fs::write(Path::new(&out).join("tables.rs"), made).expect("OUT_DIR can be written");
}

/// What stands in a `.def` file.
struct Table {
    /// `#define NAME product`, in order.
    limits: Vec<(String, i64)>,
    rows: Vec<Row>,
}

impl Table {
    fn rows(&self, name: &str) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| row.name == name)
    }
}

/// `NAME(argument, …)`.
struct Row {
    name: String,
    arguments: Vec<Vec<Token>>,
    /// File and line, for messages.
    place: String,
    limits: HashMap<String, i64>,
}

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Word(String),
    Text(String),
    Number(i64),
    Sign(char),
}

impl Row {
    fn argument(&self, number: usize) -> &[Token] {
        let arguments = &self.arguments;
        arguments
            .get(number)
            .unwrap_or_else(|| panic!("{}: argument {} is missing", self.place, number + 1))
    }

    fn word(&self, number: usize) -> &str {
        match self.argument(number) {
            [Token::Word(word)] => word,
            other => panic!("{}: a word is expected, not {other:?}", self.place),
        }
    }

    /// Literals that follow one another are one, as in C.
    fn text(&self, number: usize) -> String {
        let part = |token: &Token| match token {
            Token::Text(text) => text.clone(),
            other => panic!("{}: a string is expected, not {other:?}", self.place),
        };
        self.argument(number).iter().map(part).collect()
    }

    fn number(&self, number: usize) -> i64 {
        product(self.argument(number), &self.limits, &self.place)
    }

    /// "A | B"
    fn words(&self, number: usize) -> Vec<String> {
        let word = |token: &Token| match token {
            Token::Word(word) => Some(word.clone()),
            Token::Sign('|') => None,
            other => panic!("{}: a word is expected, not {other:?}", self.place),
        };
        self.argument(number).iter().filter_map(word).collect()
    }
}

fn product(tokens: &[Token], limits: &HashMap<String, i64>, place: &str) -> i64 {
    let factor = |token: &Token| match token {
        Token::Number(number) => Some(*number),
        Token::Word(word) => match limits.get(word) {
            Some(limit) => Some(*limit),
            None => panic!("{place}: {word} is not defined above"),
        },
        Token::Sign('*' | '(' | ')') => None,
        other => panic!("{place}: a number is expected, not {other:?}"),
    };
    tokens.iter().filter_map(factor).product()
}

fn read(path: &Path) -> Table {
    println!("cargo::rerun-if-changed={}", path.display());
    let text =
        fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut table = Table {
        limits: Vec::new(),
        rows: Vec::new(),
    };
    let mut limits = HashMap::new();
    let mut pending: Vec<Token> = Vec::new();
    let mut started = String::new();
    for (number, line) in without_comments(&text).lines().enumerate() {
        let place = format!("{}:{}", path.display(), number + 1);
        if let Some(directive) = line.strip_prefix('#') {
            // Macros with arguments, and conditions, are for C alone.
            if let Some((name, value)) = limit(directive) {
                let value = product(&tokens(value, &place), &limits, &place);
                limits.insert(name.to_string(), value);
                table.limits.push((name.to_string(), value));
            }
            continue;
        }
        if pending.is_empty() {
            started.clone_from(&place);
        }
        pending.extend(tokens(line, &place));
        let depth: i32 = pending
            .iter()
            .map(|token| match token {
                Token::Sign('(') => 1,
                Token::Sign(')') => -1,
                _ => 0,
            })
            .sum();
        if depth == 0 && !pending.is_empty() {
            let tokens = std::mem::take(&mut pending);
            table.rows.push(row(&tokens, &started, &limits));
        }
    }
    assert!(pending.is_empty(), "{started}: this row does not end");
    table
}

fn without_comments(text: &str) -> String {
    let mut rest = text;
    let mut kept = String::new();
    while let Some(begin) = rest.find("/*") {
        let end = rest[begin..].find("*/").expect("a comment ends") + begin + 2;
        kept.push_str(&rest[..begin]);
        kept.extend(rest[begin..end].chars().filter(|&c| c == '\n'));
        rest = &rest[end..];
    }
    kept + rest
}

/// `define NAME value`, where NAME takes no arguments and has a value.
fn limit(directive: &str) -> Option<(&str, &str)> {
    let (name, value) = directive.strip_prefix("define ")?.trim().split_once(' ')?;
    (!name.contains('(')).then_some((name, value))
}

fn tokens(line: &str, place: &str) -> Vec<Token> {
    let mut found = Vec::new();
    let mut rest = line.trim_start();
    while let Some(first) = rest.chars().next() {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let length = match first {
            '"' => rest[1..].find('"').map(|end| end + 2),
            _ if is_part(first) => Some(rest.find(|c| !is_part(c)).unwrap_or(rest.len())),
            '(' | ')' | ',' | '|' | '*' => Some(1),
            _ => None,
        };
        let length = length.unwrap_or_else(|| panic!("{place}: {rest:?} is not understood"));
        let part = &rest[..length];
        found.push(match first {
            '"' => Token::Text(part[1..length - 1].to_string()),
            _ if first.is_ascii_digit() => Token::Number(
                part.parse()
                    .unwrap_or_else(|_| panic!("{place}: {part} is no number")),
            ),
            _ if is_part(first) => Token::Word(part.to_string()),
            sign => Token::Sign(sign),
        });
        rest = rest[length..].trim_start();
    }
    found
}

fn row(tokens: &[Token], place: &str, limits: &HashMap<String, i64>) -> Row {
    let [
        Token::Word(name),
        Token::Sign('('),
        arguments @ ..,
        Token::Sign(')'),
    ] = tokens
    else {
        panic!("{place}: NAME(…) is expected, not {tokens:?}");
    };
    Row {
        name: name.clone(),
        arguments: arguments
            .split(|token| *token == Token::Sign(','))
            .map(<[Token]>::to_vec)
            .collect(),
        place: place.to_string(),
        limits: limits.clone(),
    }
}

/// `TIME_SLICE` or `s_all`, as a type or variant of Rust.
fn camel(words: &str) -> String {
    words
        .split('_')
        .map(|word| word[..1].to_uppercase() + &word[1..].to_lowercase())
        .collect()
}

fn write_limits(made: &mut String, table: &Table) {
    for (name, value) in &table.limits {
        let name = name.strip_prefix("LAXITY_").unwrap_or(name);
        writeln!(
            made,
            "/// `LAXITY_{name}` of `policy/parameters.def`.\npub const {name}: i64 = {value};"
        )
        .unwrap();
    }
}

const POLICY: &str = "LAXITY_POLICY";
const MODEL: &str = "LAXITY_MODEL";
const VARIANT: &str = "LAXITY_VARIANT";
const OWN_OF: &str = "LAXITY_OWN_OF_";
const PARAMETER: &str = "LAXITY_PARAMETER";
const SETTING: &str = "LAXITY_SETTING";

fn write_parameters(made: &mut String, table: &Table) {
    let rows: Vec<&Row> = table.rows(PARAMETER).chain(table.rows(SETTING)).collect();
    made.push_str(
        "/// What policies go by: parameters of a domain and its VCPUs, then settings of a whole instance.\n\
         #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]\npub enum Parameter {\n",
    );
    for row in &rows {
        writeln!(made, "    /// {}\n    {},", row.text(8), camel(row.word(0))).unwrap();
    }
    write!(made, "}}\n\nimpl Parameter {{\n    /// In the order of tables.\n    pub const ALL: [Parameter; {}] = [", rows.len())
        .unwrap();
    for row in &rows {
        write!(made, "Parameter::{}, ", camel(row.word(0))).unwrap();
    }
    made.push_str("];\n\n    /// Its row of `policy/parameters.def`.\n    pub const fn facts(self) -> &'static Facts {\n        match self {\n");
    for row in &rows {
        writeln!(
            made,
            "            Parameter::{} => &{},",
            camel(row.word(0)),
            row.word(0)
        )
        .unwrap();
    }
    made.push_str("        }\n    }\n}\n\n");
    for row in &rows {
        writeln!(
            made,
            "/// `{name}`: {meaning}\npub const {constant}: Facts = Facts {{ name: {name:?}, field: {field:?}, \
             offset: std::mem::offset_of!({structure}, {field}), is_setting: {is_setting}, kind: ParameterKind::{kind}, least: {least}, most: {most}, \
             standard: {standard}, rule: {rule:?}, meaning: {meaning:?} }};",
            constant = row.word(0),
            field = row.word(1),
            name = row.text(2),
            is_setting = row.name == SETTING,
            structure = if row.name == SETTING { "Settings" } else { "Parameters" },
            kind = camel(row.word(3)),
            least = row.number(4),
            most = row.number(5),
            standard = row.number(6),
            rule = row.text(7),
            meaning = row.text(8),
        )
        .unwrap();
    }
    let about = "Parameters of a domain and its VCPUs (`struct laxity_parameters`). The default is each one's standard value.";
    write_structure(made, "Parameters", about, table.rows(PARAMETER));
    let about = "Settings of a whole instance (`struct laxity_settings`). The default is each one's standard value.";
    write_structure(made, "Settings", about, table.rows(SETTING));
}

/// The structure of C, field for field.
fn write_structure<'r>(
    made: &mut String,
    name: &str,
    about: &str,
    rows: impl Iterator<Item = &'r Row>,
) {
    let (mut fields, mut standards) = (String::new(), String::new());
    for row in rows {
        let (field, standard) = (row.word(1), row.number(6));
        let (kind, value) = match row.word(3) {
            "DURATION" => ("i64", standard.to_string()),
            "NUMBER" | "PERCENT" => ("u32", standard.to_string()),
            "FLAG" => ("bool", (standard != 0).to_string()),
            other => panic!("{}: the kind {other} is not known", row.place),
        };
        writeln!(fields, "    /// {}\n    pub {field}: {kind},", row.text(8)).unwrap();
        write!(standards, "{field}: {value}, ").unwrap();
    }
    writeln!(
        made,
        "/// {about}\n#[repr(C)]\n#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]\npub struct {name} {{\n{fields}}}\n\n\
         impl Default for {name} {{\n    fn default() -> Self {{\n        {name} {{ {standards} }}\n    }}\n}}\n"
    )
    .unwrap();
}

fn write_policies(made: &mut String, table: &Table, parameters: &Table) {
    let families: Vec<&Row> = table.rows("LAXITY_FAMILY").collect();
    write_enum(
        made,
        "Family",
        "What policies have in common.",
        &families,
        |row| format!("{}.", row.text(1)),
    );
    let rows: Vec<&Row> = (table.rows.iter())
        .filter(|row| [POLICY, MODEL].contains(&row.name.as_str()))
        .collect();
    made.push_str(
        "/// The scheduling policies of `policy/`.\n\
         #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]\npub enum Policy {\n",
    );
    for row in &rows {
        let (about, name, variant) = (row.text(6), row.text(1), camel(row.word(0)));
        writeln!(
            made,
            "    /// {about}\n    #[serde(rename = {name:?})]\n    {variant},"
        )
        .unwrap();
    }
    write!(made, "}}\n\nimpl Policy {{\n    /// Every policy, in the order of tables.\n    pub const ALL: [Policy; {}] = [", rows.len())
        .unwrap();
    for row in &rows {
        write!(made, "Policy::{}, ", camel(row.word(0))).unwrap();
    }
    made.push_str("];\n}\n\nconst POLICIES: [Row; Policy::ALL.len()] = [\n");
    let known: HashMap<String, String> =
        (parameters.rows(PARAMETER).chain(parameters.rows(SETTING)))
            .map(|row| (row.text(2), camel(row.word(0))))
            .collect();
    for row in &rows {
        let uses: String = row
            .text(5)
            .split_whitespace()
            .map(|name| match known.get(name) {
                Some(variant) => format!("Parameter::{variant}, "),
                None => panic!("{}: there is no parameter `{name}`", row.place),
            })
            .collect();
        let substrates: String = row
            .words(4)
            .iter()
            .map(|word| {
                let name = ["LAXITY_ON_", OWN_OF]
                    .iter()
                    .find_map(|prefix| word.strip_prefix(prefix))
                    .unwrap_or_else(|| panic!("{}: there is no substrate {word}", row.place));
                format!("Substrate::{}, ", camel(name))
            })
            .collect();
        let owners = row.words(4);
        let own_of = owners.iter().find_map(|word| word.strip_prefix(OWN_OF));
        assert_eq!(
            own_of.is_some(),
            row.name == MODEL,
            "{}: a model, and nothing else, is some substrate's own",
            row.place
        );
        let own_of = own_of.map_or("None".to_string(), |name| {
            format!("Some(Substrate::{})", camel(name))
        });
        writeln!(
            made,
            "    Row {{ name: {:?}, family: Family::{}, switch_group: {:?}, substrates: &[{substrates}], \
             own_of: {own_of}, parameters: &[{uses}], about: {:?} }},",
            row.text(1),
            camel(row.word(2)),
            row.word(3).replace('_', "-"),
            row.text(6),
        )
        .unwrap();
    }
    made.push_str("];\n\n");
    write_parts(made, table, &rows);
}

/// The parts of scheduler S, and those of each of its policies.
fn write_parts(made: &mut String, table: &Table, policies: &[&Row]) {
    let parts_of: HashMap<&str, Vec<String>> = (table.rows(VARIANT))
        .map(|row| {
            let part = |word: &String| match word.strip_prefix("S_") {
                Some("NONE") => None,
                Some(name) => Some(camel(name)),
                None => panic!("{}: there is no part {word}", row.place),
            };
            (row.word(0), row.words(1).iter().filter_map(part).collect())
        })
        .collect();
    let parts: BTreeSet<&String> = parts_of.values().flatten().collect();
    made.push_str(
        "/// The parts of scheduler S: `policy/src/scheduler_s.h` has what each is.\n\
         #[allow(missing_docs, reason = \"that file has them\")]\n\
         #[derive(Debug, Clone, Copy, PartialEq, Eq)]\npub enum Part {\n",
    );
    for part in parts {
        writeln!(made, "    {part},").unwrap();
    }
    made.push_str("}\n\nconst PARTS: [&[Part]; Policy::ALL.len()] = [\n");
    for row in policies {
        let parts = parts_of.get(row.word(0));
        assert_eq!(
            parts.is_some(),
            row.word(2) == "scheduler_s",
            "{}: scheduler S, and nothing else, has parts",
            row.place
        );
        let parts: String = (parts.into_iter().flatten())
            .map(|part| format!("Part::{part}, "))
            .collect();
        writeln!(made, "    &[{parts}],").unwrap();
    }
    made.push_str("];\n");
}

/// An enumeration with the names of its members.
fn write_enum(
    made: &mut String,
    name: &str,
    about: &str,
    rows: &[&Row],
    doc: impl Fn(&Row) -> String,
) {
    writeln!(
        made,
        "/// {about}\n#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]\npub enum {name} {{"
    )
    .unwrap();
    for row in rows {
        writeln!(made, "    /// {}\n    {},", doc(row), camel(row.word(0))).unwrap();
    }
    writeln!(made, "}}\n\nimpl {name} {{\n    /// In the order of tables.\n    pub const ALL: [{name}; {}] = [", rows.len()).unwrap();
    for row in rows {
        write!(made, "{name}::{}, ", camel(row.word(0))).unwrap();
    }
    made.push_str("];\n\n    /// Its name, in lower case with hyphens.\n    pub const fn name(self) -> &'static str {\n        match self {\n");
    for row in rows {
        writeln!(
            made,
            "            {name}::{} => {:?},",
            camel(row.word(0)),
            row.word(0).replace('_', "-")
        )
        .unwrap();
    }
    made.push_str("        }\n    }\n\n    /// What sentences call it.\n    pub const fn title(self) -> &'static str {\n        match self {\n");
    for row in rows {
        writeln!(
            made,
            "            {name}::{} => {:?},",
            camel(row.word(0)),
            row.text(1)
        )
        .unwrap();
    }
    made.push_str("        }\n    }\n}\n\n");
}
