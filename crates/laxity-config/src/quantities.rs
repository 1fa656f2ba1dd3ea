//! Quantities with units other than times, such as rates and sizes, and fractions.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error, Visitor};

use crate::suggest;
use crate::units::{PERCENT_PATTERN, ScaleError, parse_percent, scale};

/// A quantity that is written with a unit. The type that implements it has one field, whose name says the base unit:
/// `struct BitRate { bit_s: i64 }`.
pub trait Quantity: Sized {
    /// The quantity in messages: "a rate".
    const WHAT: &'static str;
    /// A value as it is written.
    const EXAMPLE: &'static str;
    /// The units, smallest first, each with how many of the base unit it is.
    const UNITS: &'static [(&'static str, i64)];
    /// The least value: in the base unit, and as it is written.
    const MIN: (i64, &'static str);
    /// The greatest value, likewise.
    const MAX: (i64, &'static str);

    /// The quantity of so many of the base unit.
    fn of(base: i64) -> Self;

    /// The value of so many of the base unit as it is written: in the largest unit that makes it a whole number.
    fn text(base: i64) -> String {
        let whole = |(_, factor): &&(&str, i64)| base % factor == 0;
        let (unit, factor) = Self::UNITS
            .iter()
            .rev()
            .find(whole)
            .unwrap_or(&Self::UNITS[0]);
        format!("{} {unit}", base / factor)
    }
}

/// A quantity in a file: `Field<Measured<BitRate>>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measured<Q>(pub Q);

/// `text` as a quantity; the refusals are predicates with their help, as in `units`.
fn parse<Q: Quantity>(text: &str) -> Result<Q, String> {
    let trimmed = text.trim();
    if trimmed.starts_with(['-', '\u{2212}']) && trimmed.contains(|c: char| c.is_ascii_digit()) {
        return Err(format!("is negative: {text:?}\n{} is 0 or more", Q::WHAT));
    }
    let end = trimmed
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(trimmed.len());
    let (number, unit) = (&trimmed[..end], trimmed[end..].trim_start());
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let example = Q::EXAMPLE;
    if whole.is_empty() || fraction.is_empty() || fraction.contains('.') {
        return Err(format!(
            "is not {}: {text:?}\nwrite a number and a unit, such as {example:?}",
            Q::WHAT
        ));
    }
    let names = || Q::UNITS.iter().map(|(name, _)| *name);
    let Some((_, factor)) = Q::UNITS.iter().find(|(name, _)| *name == unit) else {
        let all = suggest::list(names().map(str::to_string), "and");
        if unit.is_empty() {
            return Err(format!(
                "has no unit: {text:?}\nwrite {example:?}, say; the units are {all}"
            ));
        }
        let unit = unit.escape_debug().to_string();
        if unit.ends_with("B/s") {
            return Err(format!(
                "is in bytes: {text:?}\nrates are in bits, eight to a byte; the units are {all}"
            ));
        }
        // "MB" is meant to be MiB rather than B.
        let initial = |text: &str| text.chars().next().map(|first| first.to_ascii_lowercase());
        let alike = names().find(|name| initial(name) == initial(&unit));
        return Err(match alike.or_else(|| suggest::nearest(&unit, names())) {
            Some(meant) => format!(
                "has the unknown unit `{unit}`\nwrite \"{number} {meant}\"; the units are {all}"
            ),
            None => format!("has the unknown unit `{unit}`\nthe units are {all}"),
        });
    };
    let value = scale(whole, fraction, i128::from(*factor)).map_err(|error| match error {
        ScaleError::TooFine => format!(
            "is too fine: {text:?}\nwrite a whole number of {}",
            Q::UNITS[0].0
        ),
        ScaleError::TooLarge => format!("is too much: {text:?}\nwrite at most {:?}", Q::MAX.1),
    })?;
    if value < Q::MIN.0 {
        return Err(format!(
            "is too little: {text:?}\nwrite at least {:?}",
            Q::MIN.1
        ));
    }
    if value > Q::MAX.0 {
        return Err(format!(
            "is too much: {text:?}\nwrite at most {:?}",
            Q::MAX.1
        ));
    }
    Ok(Q::of(value))
}

impl<'de, Q: Quantity> Deserialize<'de> for Measured<Q> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MeasuredVisitor<Q>(PhantomData<Q>);

        impl<Q: Quantity> MeasuredVisitor<Q> {
            fn without_unit<E: Error, N: fmt::Display>(number: N) -> E {
                E::custom(format!(
                    "has no unit: {number}\nwrite {:?}, say",
                    Q::EXAMPLE
                ))
            }
        }

        impl<Q: Quantity> Visitor<'_> for MeasuredVisitor<Q> {
            type Value = Measured<Q>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(
                    formatter,
                    "{} with its unit, such as {:?}",
                    Q::WHAT,
                    Q::EXAMPLE
                )
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                parse(text).map(Measured).map_err(E::custom)
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
                Err(Self::without_unit(number))
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<Self::Value, E> {
                Err(Self::without_unit(number))
            }
        }

        deserializer.deserialize_any(MeasuredVisitor(PhantomData))
    }
}

impl<Q: Quantity> JsonSchema for Measured<Q> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        Q::WHAT.into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let units: Vec<&str> = Q::UNITS.iter().map(|(name, _)| *name).collect();
        let pattern = format!(r"^\s*[0-9]+(\.[0-9]+)?\s*({})\s*$", units.join("|"));
        json_schema!({ "type": "string", "pattern": pattern, "examples": [Q::EXAMPLE] })
    }
}

/// A fraction, 0 to 1: a number, or a percentage.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Part(pub f64);

impl<'de> Deserialize<'de> for Part {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PartVisitor;

        impl Visitor<'_> for PartVisitor {
            type Value = Part;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a fraction, such as 0.01 or \"1 %\"")
            }

            fn visit_f64<E: Error>(self, part: f64) -> Result<Part, E> {
                if (0.0..=1.0).contains(&part) {
                    return Ok(Part(part));
                }
                Err(E::custom(format!(
                    "is out of bounds: {part}\nwrite a number from 0 to 1, or \"1 %\", say"
                )))
            }

            fn visit_i64<E: Error>(self, part: i64) -> Result<Part, E> {
                self.visit_f64(part as f64)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Part, E> {
                match parse_percent(text) {
                    Some(percent) if percent <= 100.0 => Ok(Part(percent / 100.0)),
                    _ => Err(E::custom(format!(
                        "is not a percentage up to 100 %: {text:?}\nwrite \"1 %\", say"
                    ))),
                }
            }
        }

        deserializer.deserialize_any(PartVisitor)
    }
}

impl JsonSchema for Part {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Part".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [
            { "type": "number", "minimum": 0, "maximum": 1 },
            { "type": "string", "pattern": PERCENT_PATTERN, "examples": ["1 %"] },
        ] })
    }
}
