//! Values that a file leaves open, and values that are written into a file's text.

use std::ops::Range;
use std::sync::Arc;

use crate::overrides;
use crate::problem::Span;
use crate::tree::{Entry, Node, Value};

/// A value that is left open is written so.
const OPEN: &str = "?";

/// A key whose value is left open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Open {
    /// The path, as overrides write it: `domain.control.budget`.
    pub path: String,
    /// The place of the value.
    pub span: Span,
}

/// Takes the keys whose values are left open out of the tree.
pub(crate) fn take(node: &mut Node) -> Vec<Open> {
    let mut taken = Vec::new();
    take_below(node, "", &mut taken);
    taken
}

fn is_open(node: &Node) -> bool {
    matches!(&node.value, Value::String(text) if &**text == OPEN)
}

/// Whether some key within has an open value, so that trees without any are not copied.
fn has_open(node: &Node) -> bool {
    match &node.value {
        Value::Table(entries) => entries
            .iter()
            .any(|entry| is_open(&entry.node) || has_open(&entry.node)),
        Value::Array(elements) => elements.iter().any(has_open),
        _ => false,
    }
}

fn take_below(node: &mut Node, path: &str, taken: &mut Vec<Open>) {
    if !has_open(node) {
        return;
    }
    let below = |step: &str| match path {
        "" => step.to_string(),
        _ => format!("{path}.{step}"),
    };
    match &mut node.value {
        Value::Table(entries) => {
            let entries = Arc::make_mut(entries);
            entries.retain(|entry| {
                let open = is_open(&entry.node);
                if open {
                    taken.push(Open {
                        path: below(&entry.key),
                        span: entry.node.span,
                    });
                }
                !open
            });
            for entry in entries {
                take_below(&mut entry.node, &below(&entry.key), taken);
            }
        }
        Value::Array(elements) => {
            for (index, element) in Arc::make_mut(elements).iter_mut().enumerate() {
                let step = overrides::name(element).map_or(index.to_string(), String::from);
                take_below(element, &below(&step), taken);
            }
        }
        _ => (),
    }
}

/// `text` with values put in, which are written as TOML. A key that is there gets the new value in its place. A key
/// that is not comes after its table's `name`, or after the first key of its table; comments and the order of all else
/// stay. An element after the last one of an array is added to it. `root` is the tree of `text`.
///
/// # Errors
///
/// The path that leads nowhere.
pub(crate) fn with_values(
    root: &Node,
    text: &str,
    values: &[(String, String)],
) -> Result<String, String> {
    let mut edits: Vec<(Range<usize>, String)> = Vec::new();
    for (number, (path, value)) in values.iter().enumerate() {
        // The last value of a key counts, in overrides too.
        if values[number + 1..].iter().any(|(later, _)| later == path) {
            continue;
        }
        let (range, new) = edit(root, text, path, value).ok_or_else(|| path.clone())?;
        edits.push((range, new));
    }
    // The sort is stable: what is inserted at one place keeps its order.
    edits.sort_by_key(|(range, _)| range.start);
    let mut written = String::with_capacity(text.len() + 64 * edits.len());
    let mut end = 0;
    for (range, new) in edits {
        written.push_str(&text[end..range.start]);
        written.push_str(&new);
        end = range.end;
    }
    written.push_str(&text[end..]);
    Ok(written)
}

fn edit(root: &Node, text: &str, path: &str, value: &str) -> Option<(Range<usize>, String)> {
    let mut node = root;
    let mut rest = path;
    loop {
        let (step, next) = match &node.value {
            Value::Table(entries) => {
                let step = rest.find('.').map_or(rest, |end| &rest[..end]);
                match entries.iter().find(|entry| &*entry.key == step) {
                    Some(entry) => (step, &entry.node),
                    None => return insertion(node, entries, text, rest, value),
                }
            }
            Value::Array(elements) if rest == overrides::after(elements) => {
                let array = path.strip_suffix(rest)?.strip_suffix('.')?;
                return addition(node, elements, text, array, value);
            }
            Value::Array(elements) => {
                let (step, index) = overrides::element(elements, rest, "", 0).ok()?;
                (step, &elements[index])
            }
            _ => return None,
        };
        node = next;
        rest = &rest[step.len()..];
        match rest.strip_prefix('.') {
            Some(below) => rest = below,
            None => return Some((node.span.range(), value.to_string())),
        }
    }
}

/// A new element after the last one of the array `node`, whose path is `array`.
fn addition(
    node: &Node,
    elements: &[Node],
    text: &str,
    array: &str,
    value: &str,
) -> Option<(Range<usize>, String)> {
    let Some(last) = elements.last() else {
        let at = node.span.range().start + 1;
        return Some((at..at, value.to_string()));
    };
    if !text[last.span.range()].starts_with("[[") {
        let at = last.span.range().end;
        return Some((at..at, format!(", {value}")));
    }
    // A table of an array of the whole file may stand at its end; one of a table's array may not.
    let Value::Table(mut entries) = overrides::parse_value(value, 0).value else {
        return None;
    };
    if array.contains('.') {
        return None;
    }
    Arc::make_mut(&mut entries).sort_by_key(|entry| entry.key_span.range().start);
    let mut new = match text.ends_with('\n') {
        true => format!("\n[[{array}]]\n"),
        false => format!("\n\n[[{array}]]\n"),
    };
    for entry in entries.iter() {
        new += &format!("{} = {}\n", entry.key, &value[entry.node.span.range()]);
    }
    Some((text.len()..text.len(), new))
}

/// A new key of the table `node`.
fn insertion(
    node: &Node,
    entries: &[Entry],
    text: &str,
    key: &str,
    value: &str,
) -> Option<(Range<usize>, String)> {
    let is_simple = |entry: &&Entry| !matches!(entry.node.value, Value::Table(_));
    let anchor = entries
        .iter()
        .find(|entry| &*entry.key == "name")
        .or_else(|| {
            let simple = entries.iter().filter(is_simple);
            simple.min_by_key(|entry| entry.key_span.range().start)
        });
    let new = format!("{key} = {value}");
    if text[node.span.range()].starts_with('{') {
        return Some(match anchor {
            Some(anchor) => {
                let at = anchor.node.span.range().end;
                (at..at, format!(", {new}"))
            }
            None => {
                let at = node.span.range().start + 1;
                (at..at, format!(" {new} "))
            }
        });
    }
    // What stands before the anchor's key is its indentation, and the rest of a dotted key.
    let (prefix, from) = match anchor {
        Some(anchor) => {
            let start = anchor.key_span.range().start;
            let line = text[..start].rfind('\n').map_or(0, |end| end + 1);
            (&text[line..start], anchor.node.span.range().end)
        }
        None => ("", node.span.range().end),
    };
    let at = text[from..].find('\n').map_or(text.len(), |end| from + end);
    let at = at - usize::from(text[..at].ends_with('\r'));
    Some((at..at, format!("\n{prefix}{new}")))
}
