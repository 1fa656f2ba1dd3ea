//! Checks that several sections make.

use std::collections::HashMap;

use laxity_config::{Duration, Field, Name, Problem, Problems, Span, format_duration};

/// Reports missing and duplicate names. `what` is the kind of thing that is named, such as "domain".
pub(crate) fn unique<'f>(
    what: &str,
    names: impl Iterator<Item = (&'f Field<Name>, Span)>,
    problems: &Problems,
) {
    let mut seen: HashMap<&str, Span> = HashMap::new();
    for (field, place) in names {
        if field.is_missing("name", place, problems) {
            problems.report(
                place,
                format!("a {what} has no name"),
                format!("write name = \"my-{what}\", say"),
            );
        }
        let Some((Name(name), span)) = field.given() else {
            continue;
        };
        if let Some(first) = seen.insert(name, span) {
            problems.push(Problem {
                help: Some(format!("give each {what} a name of its own")),
                related: Some((first, "the first one")),
                ..Problem::new(span, format!("two {what}s are named `{name}`"))
            });
        }
    }
}

/// Reports a time that is longer than the one which bounds it. `label` names the bound in the excerpt.
pub(crate) fn not_longer<const A: i64, const B: i64, const C: i64, const D: i64, const E: i64>(
    (name, field): (&str, &Field<Duration<A, B, E>>),
    (bound_name, bound): (&str, &Field<Duration<C, D>>),
    label: &'static str,
    problems: &Problems,
) {
    if let (Some((time, span)), Some((bound, bound_span))) = (field.given(), bound.given())
        && time.ns > bound.ns
    {
        let (time, bound) = (format_duration(time.ns), format_duration(bound.ns));
        problems.push(Problem {
            help: Some(format!(
                "write at most \"{bound}\", or a longer `{bound_name}`"
            )),
            related: Some((bound_span, label)),
            ..Problem::new(
                span,
                format!("`{name}` ({time}) is longer than `{bound_name}` ({bound})"),
            )
        });
    }
}

/// Reports a time that is not shorter than the one which bounds it. `label` names the bound in the excerpt.
pub(crate) fn shorter<const A: i64, const B: i64, const C: i64, const D: i64, const E: i64>(
    (name, field): (&str, &Field<Duration<A, B, E>>),
    (bound_name, bound): (&str, &Field<Duration<C, D>>),
    label: &'static str,
    problems: &Problems,
) {
    if let (Some((time, span)), Some((bound, bound_span))) = (field.given(), bound.given())
        && time.ns >= bound.ns
    {
        let (time, bound) = (format_duration(time.ns), format_duration(bound.ns));
        problems.push(Problem {
            help: Some(format!("write less than \"{bound}\"")),
            related: Some((bound_span, label)),
            ..Problem::new(
                span,
                format!("`{name}` ({time}) is not shorter than `{bound_name}` ({bound})"),
            )
        });
    }
}
