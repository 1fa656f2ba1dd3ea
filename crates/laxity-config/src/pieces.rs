//! Documents that are put together from pieces of others, and written as text.
//!
//! A piece keeps its place: problems of the document that it is put into are shown where the piece was written.

use std::fmt::Write;
use std::sync::Arc;

use crate::document::Document;
use crate::problem::Span;
use crate::tree::{Entry, Node, Value};

/// A value of a file, with its place.
#[derive(Debug, Clone)]
pub struct Piece(Node);

impl Piece {
    /// A list of pieces.
    pub fn list(pieces: impl IntoIterator<Item = Piece>) -> Piece {
        let elements = pieces.into_iter().map(|piece| piece.0).collect();
        Piece(Node {
            span: Span::new(0..0, 0),
            value: Value::Array(Arc::new(elements)),
        })
    }

    /// The elements of a list; none of what is no list.
    pub fn elements(&self) -> Vec<Piece> {
        match &self.0.value {
            Value::Array(elements) => elements.iter().cloned().map(Piece).collect(),
            _ => Vec::new(),
        }
    }

    /// Whether it is a table with this key.
    pub fn has(&self, key: &str) -> bool {
        match &self.0.value {
            Value::Table(entries) => entries.iter().any(|entry| &*entry.key == key),
            _ => false,
        }
    }

    /// A table without some of its keys.
    #[must_use]
    pub fn without(mut self, keys: &[&str]) -> Piece {
        if let Value::Table(entries) = &mut self.0.value {
            Arc::make_mut(entries).retain(|entry| !keys.contains(&&*entry.key));
        }
        self
    }

    /// A table with the keys of another that it does not have itself.
    #[must_use]
    pub fn over(mut self, other: &Piece) -> Piece {
        if let (Value::Table(own), Value::Table(others)) = (&mut self.0.value, &other.0.value) {
            let own = Arc::make_mut(own);
            for entry in others.iter() {
                if !own.iter().any(|known| known.key == entry.key) {
                    own.push(entry.clone());
                }
            }
        }
        self
    }

    /// The same, also within tables that both have.
    #[must_use]
    pub fn over_all(self, other: &Piece) -> Piece {
        let mut merged = self.over(other);
        if let (Value::Table(own), Value::Table(others)) = (&mut merged.0.value, &other.0.value) {
            for entry in Arc::make_mut(own) {
                if let Some(other) = others.iter().find(|other| other.key == entry.key) {
                    entry.node = Piece(entry.node.clone())
                        .over_all(&Piece(other.node.clone()))
                        .0;
                }
            }
        }
        merged
    }

    /// The value as TOML, in one line.
    pub fn to_toml(&self) -> String {
        let mut text = String::new();
        write_value(&mut text, &self.0.value);
        text
    }
}

impl Document {
    /// The value of a key of the top level.
    pub fn piece(&self, key: &str) -> Option<Piece> {
        let Value::Table(entries) = &self.root().value else {
            return None;
        };
        let entry = entries.iter().find(|entry| &*entry.key == key)?;
        Some(Piece(entry.node.clone()))
    }

    /// A document of these keys, as a file with the `name` of this one would have them.
    #[must_use]
    pub fn of_pieces(&self, pieces: impl IntoIterator<Item = (&'static str, Piece)>) -> Document {
        let entries = pieces.into_iter().map(|(key, piece)| Entry {
            key: key.into(),
            key_span: piece.0.span,
            node: piece.0,
        });
        self.with_root(Node {
            span: Span::new(0..0, 0),
            value: Value::Table(Arc::new(entries.collect())),
        })
    }

    /// The document as text: a table of the top level and each table of a list there in lines of its own, and what is
    /// within them in one line.
    pub fn to_toml(&self) -> String {
        let Value::Table(entries) = &self.root().value else {
            return String::new();
        };
        let mut text = String::new();
        let mut tables = String::new();
        for entry in entries.iter() {
            match &entry.node.value {
                Value::Table(of_table) => {
                    write_table(&mut tables, &format!("[{}]", key(&entry.key)), of_table);
                }
                Value::Array(elements) if is_tables(elements) => {
                    for element in elements.iter() {
                        if let Value::Table(of_table) = &element.value {
                            let header = format!("[[{}]]", key(&entry.key));
                            write_table(&mut tables, &header, of_table);
                        }
                    }
                }
                value => write_line(&mut text, &entry.key, value),
            }
        }
        text + &tables
    }
}

fn is_tables(elements: &[Node]) -> bool {
    !elements.is_empty() && (elements.iter()).all(|node| matches!(node.value, Value::Table(_)))
}

fn write_table(text: &mut String, header: &str, entries: &[Entry]) {
    let _ = write!(text, "\n{header}\n");
    // A name says of what all else is.
    for first in [true, false] {
        for entry in entries {
            if (&*entry.key == "name") == first {
                write_line(text, &entry.key, &entry.node.value);
            }
        }
    }
}

fn write_line(text: &mut String, name: &str, value: &Value) {
    let _ = write!(text, "{} = ", key(name));
    write_value(text, value);
    text.push('\n');
}

fn write_value(text: &mut String, value: &Value) {
    let _ = match value {
        Value::String(value) => write!(text, "{}", quoted(value)),
        Value::Integer(value) => write!(text, "{value}"),
        Value::Float(value) => write!(text, "{value:?}"),
        Value::Boolean(value) => write!(text, "{value}"),
        // No key of any file takes them, so none is in a document that was read.
        Value::HugeInteger | Value::Date => Ok(()),
        Value::Array(elements) => {
            text.push('[');
            for (index, element) in elements.iter().enumerate() {
                text.push_str(if index == 0 { "" } else { ", " });
                write_value(text, &element.value);
            }
            text.push(']');
            Ok(())
        }
        Value::Table(entries) => {
            text.push_str("{ ");
            for (index, entry) in entries.iter().enumerate() {
                let _ = write!(
                    text,
                    "{}{} = ",
                    ["", ", "][usize::from(index > 0)],
                    key(&entry.key)
                );
                write_value(text, &entry.node.value);
            }
            text.push_str(if entries.is_empty() { "}" } else { " }" });
            Ok(())
        }
    };
}

/// A key as TOML has it: bare where it can be.
fn key(name: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    match !name.is_empty() && name.chars().all(is_bare) {
        true => name.into(),
        false => quoted(name),
    }
}

/// A basic string of TOML.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        let _ = match c {
            '"' | '\\' => write!(quoted, "\\{c}"),
            c if c.is_control() => write!(quoted, "\\u{:04x}", u32::from(c)),
            c => write!(quoted, "{c}"),
        };
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use crate::{Document, FileKind};

    type Flags = BTreeMap<String, BTreeMap<String, bool>>;

    const KIND: FileKind = FileKind {
        noun: "file",
        with_article: "a file",
        least: "a file has something",
        open: None,
        list: None,
        readers: "everybody reads it",
    };

    fn parsed(text: &str) -> Document {
        Document::parse(text.as_bytes(), "a.toml", &KIND).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn what_is_written_says_the_same() {
        let text = r#"
            seed = 7
            share = 0.5
            names = ["a\"b", 'c\d', "e\u0007"]
            [host]
            on = true
            "odd key" = { deep = [[1, 2], []], none = {} }
            [[domain]]
            budget = "2 ms"
            name = "one"
            [[domain]]
            name = "two"
            [[domain.task]]
            name = "t"
        "#;
        let written = parsed(text).to_toml();
        let table = |text: &str| {
            text.parse::<toml::Table>()
                .map_err(|error| error.to_string())
        };
        assert_eq!(table(&written), table(text), "{written}");
        assert!(
            written.contains("[[domain]]\nname = \"one\"\nbudget = \"2 ms\"\n"),
            "{written}"
        );
    }

    #[test]
    fn a_piece_keeps_its_place() {
        let document = parsed("[a]\nx = 1\n[b]\nx = 2\ny = 3\n");
        let (a, b) = (document.piece("a"), document.piece("b"));
        let (Some(a), Some(b)) = (a, b) else {
            panic!("both are there");
        };
        let merged = document.of_pieces([("c", a.over(&b).without(&["x"]))]);
        assert_eq!(merged.to_toml(), "\n[c]\ny = 3\n");
        let read = merged.read(&[""; 0], |_: &Flags, _, _| ());
        let Err(error) = read else {
            panic!("y is no boolean");
        };
        assert_eq!(error.problems()[0].line(), 5, "{error}");
    }
}
