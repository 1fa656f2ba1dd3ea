//! Values that a file leaves open, and values that are written into a file's text.

use std::ops::Range;
use std::sync::Arc;

use toml::de::DeTable;

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
    let mut text = text.to_string();
    let mut root = root.clone();
    // Tables are a place for values that come later, and take the place of earlier ones: each is put in by itself.
    let together = |one: &(String, String), next: &(String, String)| {
        !has_tables(&one.1) && !has_tables(&next.1)
    };
    let mut batches = values.chunk_by(together).peekable();
    while let Some(batch) = batches.next() {
        text = with_batch(&root, &text, batch)?;
        if batches.peek().is_some() {
            let table = DeTable::parse(&text).map_err(|_| batch[0].0.clone())?;
            root.value = Value::from_table(table.get_ref(), 0);
        }
    }
    Ok(text)
}

fn has_tables(value: &str) -> bool {
    match overrides::parse_value(value, 0).value {
        Value::Table(_) => true,
        Value::Array(elements) => {
            elements.is_empty()
                || (elements.iter()).any(|node| matches!(node.value, Value::Table(_)))
        }
        _ => false,
    }
}

/// The same for values none of which is within another.
fn with_batch(root: &Node, text: &str, values: &[(String, String)]) -> Result<String, String> {
    let mut edits: Vec<(Edit, &str)> = Vec::new();
    for (number, (path, value)) in values.iter().enumerate() {
        // The last value of a key counts, in overrides too.
        if values[number + 1..].iter().any(|(later, _)| later == path) {
            continue;
        }
        let of_value = edits_of(root, text, path, value).ok_or_else(|| path.clone())?;
        edits.extend(of_value.into_iter().map(|edit| (edit, &**path)));
    }
    // The sort is stable: what is inserted at one place keeps its order.
    edits.sort_by_key(|((range, _), _)| range.start);
    let mut written = String::with_capacity(text.len() + 64 * edits.len());
    let mut end = 0;
    for ((range, new), path) in edits {
        written.push_str(text.get(end..range.start).ok_or(path)?);
        written.push_str(&new);
        end = range.end;
    }
    written.push_str(&text[end..]);
    Ok(written)
}

/// What takes the place of a part of the text.
type Edit = (Range<usize>, String);

fn edits_of(root: &Node, text: &str, path: &str, value: &str) -> Option<Vec<Edit>> {
    let mut node = root;
    let mut rest = path;
    let mut is_inline = false;
    loop {
        let (step, next) = match &node.value {
            Value::Table(entries) => {
                let step = rest.find('.').map_or(rest, |end| &rest[..end]);
                match entries.iter().find(|entry| &*entry.key == step) {
                    Some(entry) => (step, &entry.node),
                    None if is_inline && is_apart(node, text) => return None,
                    None => return Some(vec![insertion(root, node, text, rest, value)?]),
                }
            }
            Value::Array(elements) if rest == overrides::after(elements) => {
                let array = path.strip_suffix(rest)?.strip_suffix('.')?;
                return Some(vec![addition(node, elements, text, array, value)?]);
            }
            Value::Array(elements) => {
                let (step, index) = overrides::element(elements, rest, "", 0).ok()?;
                (step, &elements[index])
            }
            _ => return None,
        };
        let parent = std::mem::replace(&mut node, next);
        is_inline |= !std::ptr::eq(parent, root) && !is_apart(parent, text);
        rest = &rest[step.len()..];
        match rest.strip_prefix('.') {
            Some(below) => rest = below,
            None if !is_apart(node, text) => {
                return Some(vec![(node.span.range(), value.to_string())]);
            }
            None if is_inline => return None,
            None => return replacement(root, parent, node, text, step, value),
        }
    }
}

/// Whether it is a table that begins with a header.
fn has_header(node: &Node, text: &str) -> bool {
    matches!(node.value, Value::Table(_)) && text[node.span.range()].starts_with('[')
}

/// Whether a value is written under headers or with dotted keys, in lines of its own.
fn is_apart(node: &Node, text: &str) -> bool {
    match &node.value {
        Value::Table(_) => !text[node.span.range()].starts_with('{'),
        Value::Array(elements) => elements.first().is_some_and(|each| has_header(each, text)),
        _ => false,
    }
}

/// A new value of a key whose value is written in lines of its own: under headers, if the old one was and the new one
/// can be, and as one key of its table otherwise.
fn replacement(
    root: &Node,
    parent: &Node,
    node: &Node,
    text: &str,
    key: &str,
    value: &str,
) -> Option<Vec<Edit>> {
    let mut parts = Vec::new();
    take_parts(node, text, false, &mut parts);
    parts.sort_by_key(|lines| lines.start);
    let new = overrides::parse_value(value, 0);
    let under_headers = match (&node.value, &new.value) {
        (Value::Array(old), Value::Array(new)) => {
            let is_table = |node: &Node| matches!(node.value, Value::Table(_));
            let fits = !new.is_empty() && new.iter().all(is_table);
            fits.then(|| (&old[0], new.iter().collect()))
        }
        (_, Value::Table(_)) if has_header(node, text) => Some((node, vec![&new])),
        _ => None,
    };
    let mut edits = Vec::new();
    if let Some((headed, tables)) = under_headers {
        let header = &text[headed.span.range()];
        let written: Vec<String> = (tables.into_iter())
            .map(|table| format!("{header}\n{}", lines_of(table, value, "")))
            .collect();
        edits.push((parts.remove(0), written.join("\n")));
    } else if matches!(parent.value, Value::Table(_)) {
        edits.push(insertion(root, parent, text, key, value)?);
    } else {
        return None;
    }
    for part in parts {
        // One blank line stays of those around a part.
        let before = text[..part.start].trim_end_matches(['\n', '\r']).len();
        let start = text[before..part.start]
            .find('\n')
            .map_or(part.start, |end| before + end + 1);
        edits.push((start..part.end, String::new()));
    }
    Some(edits)
}

/// The keys of a table that is written in `text`, each in a line behind `prefix`, in their order there.
fn lines_of(table: &Node, text: &str, prefix: &str) -> String {
    let Value::Table(entries) = &table.value else {
        return String::new();
    };
    let mut entries: Vec<&Entry> = entries.iter().collect();
    entries.sort_by_key(|entry| entry.key_span.range().start);
    let line = |entry: &Entry| {
        let key = format!("{prefix}{}", &text[entry.key_span.range()]);
        match is_apart(&entry.node, text) {
            true => lines_of(&entry.node, text, &format!("{key}.")),
            false => format!("{key} = {}\n", &text[entry.node.span.range()]),
        }
    };
    entries.into_iter().map(line).collect()
}

/// The lines of a value that is written apart: those under each of its headers, and each dotted key that is under none
/// of them (`is_below` says that a header of the value stands above).
fn take_parts(node: &Node, text: &str, is_below: bool, parts: &mut Vec<Range<usize>>) {
    let lines = |range: Range<usize>| {
        let start = text[..range.start].rfind('\n').map_or(0, |end| end + 1);
        let end = text[range.end..]
            .find('\n')
            .map_or(text.len(), |end| range.end + end + 1);
        start..end
    };
    match &node.value {
        Value::Array(elements) => {
            for element in elements.iter() {
                take_parts(element, text, is_below, parts);
            }
        }
        Value::Table(entries) => {
            let is_headed = has_header(node, text);
            if is_headed {
                let header = node.span.range();
                parts.push(lines(
                    header.start..header.end.max(end_of_keys(entries, text)),
                ));
            }
            for entry in entries.iter() {
                if is_apart(&entry.node, text) {
                    take_parts(&entry.node, text, is_below || is_headed, parts);
                } else if !is_below && !is_headed {
                    parts.push(lines(
                        entry.key_span.range().start..entry.node.span.range().end,
                    ));
                }
            }
        }
        _ => (),
    }
}

/// Where the last of the keys ends that stand under a table's own header; 0 if none does.
fn end_of_keys(entries: &[Entry], text: &str) -> usize {
    let end = |entry: &Entry| match &entry.node.value {
        _ if !is_apart(&entry.node, text) => entry.node.span.range().end,
        Value::Table(below) if !has_header(&entry.node, text) => end_of_keys(below, text),
        _ => 0,
    };
    entries.iter().map(end).max().unwrap_or(0)
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
    if !has_header(last, text) {
        let at = last.span.range().end;
        return Some((at..at, format!(", {value}")));
    }
    // A table of an array of the whole file may stand at its end; one of a table's array may not.
    let new = overrides::parse_value(value, 0);
    if !matches!(new.value, Value::Table(_)) || array.contains('.') {
        return None;
    }
    let break_before = if text.ends_with('\n') { "\n" } else { "\n\n" };
    let new = format!("{break_before}[[{array}]]\n{}", lines_of(&new, value, ""));
    Some((text.len()..text.len(), new))
}

/// A new key of the table `node`.
fn insertion(root: &Node, node: &Node, text: &str, key: &str, value: &str) -> Option<Edit> {
    let Value::Table(entries) = &node.value else {
        return None;
    };
    let anchors = || (entries.iter()).filter(|entry| !is_apart(&entry.node, text));
    let anchor = (anchors().find(|entry| &*entry.key == "name"))
        .or_else(|| anchors().min_by_key(|entry| entry.key_span.range().start));
    let new = format!("{key} = {value}");
    let is_root = std::ptr::eq(node, root);
    if !is_root && !is_apart(node, text) {
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
        None if is_root => return Some((0..0, format!("{new}\n\n"))),
        None if has_header(node, text) => ("", node.span.range().end),
        // It has no lines but those of tables within it.
        None => return None,
    };
    let at = text[from..].find('\n').map_or(text.len(), |end| from + end);
    let at = at - usize::from(text[..at].ends_with('\r'));
    Some((at..at, format!("\n{prefix}{new}")))
}
