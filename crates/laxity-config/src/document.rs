//! A parsed configuration file, and the values read from it.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Deserialize;
use toml::de::DeTable;

use crate::kinds::{self, FileKind};
use crate::open::{self, Open};
use crate::overrides;
use crate::problem::{FileError, Problem, Problems, Sources, Span, line_and_column};
use crate::tree::{Node, Reader, Value};

/// The largest file, in bytes.
pub const FILE_BYTES_MAX: usize = 4 << 20;

/// A file that has been parsed and not yet checked: [`Document::read`] reads it, with different overrides, without
/// parsing it again.
#[derive(Debug, Clone)]
pub struct Document {
    sources: Sources,
    root: Node,
    /// [`FileKind::open`].
    open: Option<&'static str>,
}

impl Document {
    /// Parses the text of a file. `name` is what messages call it.
    ///
    /// # Errors
    ///
    /// If it is not text or not TOML, or empty, or above [`FILE_BYTES_MAX`], or a file of another kind.
    pub fn parse(text: &[u8], name: &str, kind: &FileKind) -> Result<Document, FileError> {
        let text = readable_text(text, name, kind)?;
        let sources = Sources {
            name: name.into(),
            text: text.into(),
            overrides: Vec::new(),
        };
        let (table, errors) = DeTable::parse_recoverable(text);
        if !errors.is_empty() {
            let problems = Problems::default();
            if let Some(problem) = no_toml(text, &errors, kind) {
                problems.push(problem);
                return Err(problems.into_error(&sources));
            }
            for error in errors {
                problems.push(syntax_problem(text, &error));
            }
            return Err(problems.into_error(&sources));
        }
        if table.get_ref().is_empty() {
            let message = format!("this {} is empty", kind.noun);
            return Err(FileError::whole_file(name, message, kind.least.into()));
        }
        let root = Node {
            span: Span::new(0..0, 0),
            value: Value::from_table(table.get_ref(), 0),
        };
        if let Some(problem) = kinds::of_another(&root, kind) {
            let problems = Problems::default();
            problems.push(problem);
            return Err(problems.into_error(&sources));
        }
        Ok(Document {
            sources,
            root,
            open: kind.open,
        })
    }

    /// What messages call the file.
    pub fn name(&self) -> &str {
        &self.sources.name
    }

    /// The text of the file.
    pub fn text(&self) -> &str {
        &self.sources.text
    }

    /// Whether the file itself gives a value at a path of keys, such as "host.costs".
    pub fn gives(&self, path: &str) -> bool {
        self.value(path).is_some()
    }

    /// Whether that value is a list.
    pub fn gives_list(&self, path: &str) -> bool {
        matches!(self.value(path), Some(Value::Array(_)))
    }

    fn value(&self, path: &str) -> Option<&Value> {
        path.split('.').try_fold(&self.root.value, |value, key| {
            let Value::Table(entries) = value else {
                return None;
            };
            let entry = entries.iter().find(|entry| &*entry.key == key)?;
            Some(&entry.node.value)
        })
    }

    /// Removes a key of the top level and returns its text, if it has one: for files whose other keys are names.
    pub fn take_text(&mut self, key: &str) -> Option<Arc<str>> {
        let Value::Table(entries) = &mut self.root.value else {
            return None;
        };
        let entries = Arc::make_mut(entries);
        let place = entries.iter().position(|entry| &*entry.key == key)?;
        match entries.remove(place).node.value {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// Reads the file, with `overrides` ("domain.control.budget=3 ms") applied in their order, into a `T`, all fields
    /// of which are [`Field`](crate::Field)s, and lets `resolve` make of it what is meant. `resolve` gets the table,
    /// the place at which keys missing from the top level are reported, and the collection of problems.
    ///
    /// An override names an element of a list by its `name` or its number from 0. Its value is taken as TOML if it is a
    /// number, a boolean, a list or a table, and as text otherwise.
    ///
    /// # Errors
    ///
    /// All that is wrong, as `T` and `resolve` found it.
    pub fn read<T: Default + for<'t> Deserialize<'t>, R>(
        &self,
        overrides: &[impl AsRef<str>],
        resolve: impl FnOnce(&T, Span, &Problems) -> R,
    ) -> Result<R, FileError> {
        let (sources, mut root, problems) = self.overridden(overrides)?;
        if let Some(help) = self.open {
            for open in open::take(&mut root) {
                let key = open.path.rsplit('.').next().unwrap_or_default();
                problems.report(open.span, format!("`{key}` is left open"), help);
            }
            if !problems.is_empty() {
                return Err(problems.into_error(&sources));
            }
        }
        read_tree(&sources, &root, problems, resolve)
    }

    /// Reads the file as [`Document::read`] does, with the keys whose values are left open left out; `resolve` gets
    /// them first.
    ///
    /// # Errors
    ///
    /// All that is wrong, as `T` and `resolve` found it.
    pub fn read_open<T: Default + for<'t> Deserialize<'t>, R>(
        &self,
        overrides: &[impl AsRef<str>],
        resolve: impl FnOnce(&[Open], &T, Span, &Problems) -> R,
    ) -> Result<R, FileError> {
        let (sources, mut root, problems) = self.overridden(overrides)?;
        let open = open::take(&mut root);
        let resolve = |table: &T, span, problems: &_| resolve(&open, table, span, problems);
        read_tree(&sources, &root, problems, resolve)
    }

    /// The paths of all keys whose values are left open with "?".
    ///
    /// # Errors
    ///
    /// Overrides that lead nowhere.
    pub fn open_paths(&self, overrides: &[impl AsRef<str>]) -> Result<Vec<String>, FileError> {
        let (sources, mut root, problems) = self.overridden(overrides)?;
        let open = open::take(&mut root);
        match problems.is_empty() {
            true => Ok(open.into_iter().map(|key| key.path).collect()),
            false => Err(problems.into_error(&sources)),
        }
    }

    /// What is wrong with the value at a path, as overrides have it: the error names the place where the file or an
    /// override gives it, or of the innermost value around it that is there.
    pub fn error_at(
        &self,
        overrides: &[impl AsRef<str>],
        path: &str,
        message: &str,
        help: &str,
    ) -> FileError {
        let (sources, root, problems) = match self.overridden(overrides) {
            Ok(overridden) => overridden,
            Err(error) => return error,
        };
        problems.report(overrides::innermost(&root, path).span, message, help);
        problems.into_error(&sources)
    }

    /// The text of the file with values put in, each a path as overrides have it and a value in TOML. All else stays as
    /// it is, comments and order too.
    ///
    /// # Errors
    ///
    /// A path under which the file has no place for a value.
    pub fn with_values(&self, values: &[(String, String)]) -> Result<String, FileError> {
        open::with_values(&self.root, &self.sources.text, values).map_err(|path| {
            FileError::whole_file(
                &self.sources.name,
                format!("there is no place for `{path}`"),
                "write the key into the file yourself".into(),
            )
        })
    }

    /// The document with overrides in it, as [`Document::read`] takes them.
    ///
    /// # Errors
    ///
    /// Overrides that lead nowhere.
    pub fn with_overrides(&self, overrides: &[impl AsRef<str>]) -> Result<Document, FileError> {
        let (sources, root, problems) = self.overridden(overrides)?;
        match problems.is_empty() {
            true => Ok(Document {
                sources,
                root,
                open: self.open,
            }),
            false => Err(problems.into_error(&sources)),
        }
    }

    /// The same as a file of another kind.
    #[must_use]
    pub fn of_kind(mut self, kind: &FileKind) -> Document {
        self.open = kind.open;
        self
    }

    /// The tree.
    pub(crate) fn root(&self) -> &Node {
        &self.root
    }

    /// Another tree, of the same sources.
    pub(crate) fn with_root(&self, root: Node) -> Document {
        Document {
            root,
            ..self.clone()
        }
    }

    /// The tree with overrides applied, and what was wrong with them.
    fn overridden(
        &self,
        overrides: &[impl AsRef<str>],
    ) -> Result<(Sources, Node, Problems), FileError> {
        let mut sources = self.sources.clone();
        let mut root = self.root.clone();
        let problems = Problems::default();
        let mut base = sources.next_base();
        for text in overrides {
            let text = text.as_ref();
            if base + text.len() > 2 * FILE_BYTES_MAX {
                return Err(FileError::whole_file(
                    "--set",
                    "the overrides are too long".into(),
                    format!("write at most {FILE_BYTES_MAX} bytes, or a host file of their own"),
                ));
            }
            sources.overrides.push(text.into());
            overrides::apply(&mut root, text, base, &problems);
            // One byte lies between two texts.
            base += text.len() + 1;
        }
        Ok((sources, root, problems))
    }
}

fn read_tree<T: Default + for<'t> Deserialize<'t>, R>(
    sources: &Sources,
    root: &Node,
    problems: Problems,
    resolve: impl FnOnce(&T, Span, &Problems) -> R,
) -> Result<R, FileError> {
    let reader = Reader::new("the file", root, &problems);
    // The root is a table, and so never wrong as a whole.
    let table = T::deserialize(reader).unwrap_or_default();
    let resolved = resolve(&table, root.span, &problems);
    if problems.is_empty() {
        Ok(resolved)
    } else {
        Err(problems.into_error(sources))
    }
}

/// Parses and reads a file that takes no overrides, as [`Document::parse`] and [`Document::read`] do.
///
/// # Errors
///
/// All that is wrong, as the parser, `T` and `resolve` found it.
pub fn read<T: Default + for<'t> Deserialize<'t>, R>(
    text: &[u8],
    name: &str,
    kind: &FileKind,
    resolve: impl FnOnce(&T, Span, &Problems) -> R,
) -> Result<R, FileError> {
    Document::parse(text, name, kind)?.read(&[""; 0], resolve)
}

/// The bytes as text: not binary, not too large, UTF-8.
fn readable_text<'t>(bytes: &'t [u8], name: &str, kind: &FileKind) -> Result<&'t str, FileError> {
    let help = || format!("{} is text, in TOML and UTF-8", kind.with_article);
    if bytes.len() > FILE_BYTES_MAX {
        return Err(FileError::whole_file(
            name,
            format!("this file is too large: {} bytes", bytes.len()),
            format!("{} has at most {FILE_BYTES_MAX} bytes", kind.with_article),
        ));
    }
    if bytes.contains(&0) {
        let message = "this is a binary file: it contains NUL bytes".into();
        return Err(FileError::whole_file(name, message, help()));
    }
    std::str::from_utf8(bytes).map_err(|error| {
        let (valid, invalid) = bytes.split_at(error.valid_up_to());
        let before = String::from_utf8_lossy(valid);
        FileError::without_excerpt(
            name,
            line_and_column(&before, before.len()),
            format!(
                "this file is not UTF-8: the byte here is 0x{:02x}",
                invalid[0]
            ),
            help(),
        )
    })
}

/// The only problem reported for a text that is not TOML, such as prose, in place of each of the parser's errors.
fn no_toml(text: &str, errors: &[toml::de::Error], kind: &FileKind) -> Option<Problem> {
    /// A TOML file may well have fewer mistakes.
    const ERRORS_MIN: usize = 5;
    /// A text in which one line in this many has a mistake is taken for prose; empty lines do not count.
    const LINES_FOR_ONE: usize = 4;
    let lines = text.lines().filter(|line| !line.trim().is_empty()).count();
    // Every line may have a mistake: counting the lines before each would take the square of their number.
    let line_ends: Vec<usize> = text.match_indices('\n').map(|(end, _)| end).collect();
    let line_of = |start: usize| line_ends.partition_point(|end| *end < start);
    let starts = errors
        .iter()
        .filter_map(|error| Some(error.span()?.start.min(text.len())));
    let wrong = starts.map(line_of).collect::<BTreeSet<_>>().len();
    let is_other = wrong >= ERRORS_MIN && wrong * LINES_FOR_ONE > lines;
    is_other.then(|| Problem {
        help: Some(format!(
            "{} has [tables] and lines such as key = value",
            kind.with_article
        )),
        ..Problem::new(
            Span::new(errors[0].span().unwrap_or(0..0), 0),
            format!("this is not TOML: {wrong} of {lines} lines are not valid, and this is the first of them"),
        )
    })
}

/// The parser's message, rewritten in the terms of host files where that is known.
fn syntax_problem(text: &str, error: &toml::de::Error) -> Problem {
    let range = error.span().unwrap_or(0..0);
    let span = Span::new(range.clone(), 0);
    let written = text.get(range).unwrap_or_default().trim();
    let (message, help) = match error.message() {
        message if message.starts_with("string values must be quoted") => match written {
            "" => (
                "a value is missing here".into(),
                Some("write one after the equals sign".into()),
            ),
            _ => (
                "this is not a value".into(),
                Some(format!("write it in quotes: {written:?}")),
            ),
        },
        "duplicate key" => (
            format!("the key `{written}` is given twice"),
            Some("keep one of them".into()),
        ),
        message if message.starts_with("key with no value") => (
            "this key has no value".into(),
            Some("write key = value".into()),
        ),
        message => (message.into(), None),
    };
    Problem {
        help,
        ..Problem::new(span, message)
    }
}
