//! `--set a.b=value`: changes to a file's tree before it is checked.
//!
//! An override puts a value at a path and nothing more; whether the key and the value make sense is
//! checked with everything else, so that its mistakes are found and shown as those of the file are.

use std::sync::Arc;

use toml::de::DeValue;

use crate::problem::{Problem, Problems, Span};
use crate::suggest;
use crate::tree::{Entry, Node, Value};

/// Applies one override, whose text begins at position `base`.
pub(crate) fn apply(root: &mut Node, text: &str, base: usize, problems: &Problems) {
    let Some((path, value)) = text.split_once('=') else {
        let help = "write the key, an equals sign and the value: --set host.policy=credit";
        problems.report(
            Span::new(0..text.len(), base),
            "this override has no value",
            help,
        );
        return;
    };
    let value = parse_value(value, base + path.len() + 1);
    if let Err(problem) = put(root, path.trim_end(), base, value) {
        problems.push(problem);
    }
}

/// TOML where it is a number, a boolean, a list or a table; otherwise text, so that nobody has to
/// quote for both TOML and the shell.
pub(crate) fn parse_value(text: &str, base: usize) -> Node {
    let skipped = text.len() - text.trim_start().len();
    let trimmed = text.trim();
    let span = Span::new(skipped..skipped + trimmed.len(), base);
    match DeValue::parse(trimmed) {
        Ok(value) if !value.get_ref().is_datetime() => Node {
            span,
            ..Node::from_toml(&value, base + skipped)
        },
        _ => Node {
            span,
            value: Value::String(trimmed.into()),
        },
    }
}

fn put(root: &mut Node, path: &str, base: usize, value: Node) -> Result<(), Problem> {
    let mut node = root;
    let mut at = 0;
    let mut parent = "the file";
    loop {
        let rest = &path[at..];
        let (step, next_node) = match &mut node.value {
            Value::Table(entries) => {
                let step = rest.find('.').map_or(rest, |end| &rest[..end]);
                let span = Span::new(at..at + step.len(), base);
                if step.is_empty() {
                    return Err(Problem {
                        help: Some("join keys by single dots: domain.control.budget".into()),
                        ..Problem::new(Span::new(at..at, base), "a key is missing in this override")
                    });
                }
                (step, entry(Arc::make_mut(entries), step, span))
            }
            Value::Array(elements) if rest == after(elements) => {
                Arc::make_mut(elements).push(value);
                return Ok(());
            }
            Value::Array(elements) => {
                let (step, index) = element(elements, rest, parent, base + at)?;
                (step, &mut Arc::make_mut(elements)[index])
            }
            other => {
                return Err(Problem {
                    help: Some(format!("end the path at `{parent}`")),
                    ..Problem::new(
                        Span::new(at..path.len(), base),
                        format!(
                            "`{parent}` is {}, which has nothing inside",
                            other.describe()
                        ),
                    )
                });
            }
        };
        at += step.len();
        node = next_node;
        if at == path.len() {
            *node = value;
            return Ok(());
        }
        parent = step;
        // The dot.
        at += 1;
    }
}

/// The value at a path, or the innermost one on the way to it that is there.
pub(crate) fn innermost<'t>(root: &'t Node, path: &str) -> &'t Node {
    let (mut node, mut rest) = (root, path);
    loop {
        let (step, next) = match &node.value {
            Value::Table(entries) => {
                let step = rest.find('.').map_or(rest, |end| &rest[..end]);
                match entries.iter().find(|entry| &*entry.key == step) {
                    Some(entry) => (step, &entry.node),
                    None => return node,
                }
            }
            Value::Array(elements) => match element(elements, rest, "", 0) {
                Ok((step, index)) => (step, &elements[index]),
                Err(_) => return node,
            },
            _ => return node,
        };
        node = next;
        match rest[step.len()..].strip_prefix('.') {
            Some(below) => rest = below,
            None => return node,
        }
    }
}

/// The step of a path to the element that comes after the last one.
pub(crate) fn after(elements: &[Node]) -> String {
    elements.len().to_string()
}

/// The value of a key; an empty table, if the key is new.
fn entry<'t>(entries: &'t mut Vec<Entry>, key: &str, span: Span) -> &'t mut Node {
    let index = entries
        .iter()
        .position(|entry| &*entry.key == key)
        .unwrap_or_else(|| {
            let node = Node {
                span,
                value: Value::Table(Arc::default()),
            };
            entries.push(Entry {
                key: key.into(),
                key_span: span,
                node,
            });
            entries.len() - 1
        });
    &mut entries[index].node
}

/// The element that the path `rest` begins with, by its `name` or its number from 0: the step of the path, and the
/// index. Names may have dots in them: the longest that fits is meant.
pub(crate) fn element<'p>(
    elements: &[Node],
    rest: &'p str,
    parent: &str,
    base: usize,
) -> Result<(&'p str, usize), Problem> {
    let names = || elements.iter().filter_map(name);
    let fits = |name: &str| {
        rest.strip_prefix(name)
            .is_some_and(|after| after.is_empty() || after.starts_with('.'))
    };
    let named = elements.iter().enumerate().filter_map(|(index, node)| {
        name(node)
            .filter(|name| fits(name))
            .map(|name| (&rest[..name.len()], index))
    });
    // The first of equal ones is taken: two of the same name are refused later.
    if let Some(found) = named.rev().max_by_key(|(name, _)| name.len()) {
        return Ok(found);
    }
    let step = rest.find('.').map_or(rest, |end| &rest[..end]);
    let span = Span::new(0..step.len(), base);
    match step.parse::<usize>() {
        Ok(index) if index < elements.len() => Ok((step, index)),
        Ok(index) => Err(Problem {
            help: Some(format!("it has {}, counted from 0", elements.len())),
            ..Problem::new(span, format!("`{parent}` has no element {index}"))
        }),
        Err(_) => Err(Problem {
            help: Some(suggest::help(
                step,
                names().collect::<Vec<_>>().into_iter(),
                "it has",
            )),
            ..Problem::new(
                span,
                format!("there is no `{}` in `{parent}`", step.escape_debug()),
            )
        }),
    }
}

pub(crate) fn name(node: &Node) -> Option<&str> {
    let Value::Table(entries) = &node.value else {
        return None;
    };
    entries
        .iter()
        .find(|entry| &*entry.key == "name")
        .and_then(|entry| match &entry.node.value {
            Value::String(name) if !name.is_empty() => Some(&**name),
            _ => None,
        })
}
