//! Quantities as people write them: times with a unit, whole numbers within bounds, percentages.
//!
//! The types hold only values within their bounds. Their refusals are predicates and, after a line break, the help, as
//! `tree::Refusal` says.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error, Visitor};

use crate::suggest;
use crate::tree::Field;

/// One microsecond.
pub const MICROSECOND_NS: i64 = 1_000;
/// One millisecond.
pub const MILLISECOND_NS: i64 = 1_000_000;
/// One second.
pub const SECOND_NS: i64 = 1_000_000_000;
/// One minute.
pub const MINUTE_NS: i64 = 60 * SECOND_NS;

/// One hour.
pub const HOUR_NS: i64 = 60 * MINUTE_NS;

/// The units of time, shortest first.
const UNITS: [(&str, i64); 6] = [
    ("ns", 1),
    ("us", MICROSECOND_NS),
    ("ms", MILLISECOND_NS),
    ("s", SECOND_NS),
    ("min", MINUTE_NS),
    ("h", HOUR_NS),
];

/// Other ways in which people write a unit, for the suggestion of the right one.
const MISTAKEN_UNITS: [(&str, &[&str]); 6] = [
    ("ns", &["nsec", "nanosecond", "nanoseconds", "nanos"]),
    (
        "us",
        &["usec", "microsecond", "microseconds", "micros", "mcs"],
    ),
    (
        "ms",
        &[
            "msec",
            "msecs",
            "millisecond",
            "milliseconds",
            "millis",
            "m",
        ],
    ),
    ("s", &["sec", "secs", "second", "seconds"]),
    ("min", &["mins", "minute", "minutes"]),
    ("h", &["hr", "hrs", "hour", "hours"]),
];

const UNIT_LIST: &str = "the units are ns, us (or µs), ms, s, min and h";

/// What [`parse_duration`] accepts, for editors.
const DURATION_PATTERN: &str = r"^\s*[0-9]+(\.[0-9]+)?\s*(ns|us|µs|μs|ms|s|min|h)\s*$";

/// A time as people write it, "1.5 ms", in nanoseconds: a decimal number and one of the units ns, us
/// (or µs), ms, s, min, h, with or without a space between them.
///
/// `usual_ns` is one unit of time, such as [`MILLISECOND_NS`]: the unit in which most such times are written. It is
/// proposed if the text has none.
///
/// # Errors
///
/// What is wrong, as a predicate ("has no unit"), and after a line break what would be right. Times
/// that are negative, beyond `i64` or not a whole number of nanoseconds are refused.
pub fn parse_duration(text: &str, usual_ns: i64) -> Result<i64, String> {
    let help = || {
        format!(
            "write a number and a unit, such as \"{}\"",
            example(usual_ns)
        )
    };
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return Err(format!("is empty\n{}", help()));
    }
    if trimmed.starts_with(['-', '\u{2212}']) && trimmed.contains(|c: char| c.is_ascii_digit()) {
        return Err(format!("is negative: {text:?}\na time is 0 or more"));
    }
    let number_end = trimmed
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(trimmed.len());
    let (number, unit) = (&trimmed[..number_end], trimmed[number_end..].trim_start());
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if whole.is_empty() || fraction.is_empty() || fraction.contains('.') {
        return Err(format!("is not a time: {text:?}\n{}", help()));
    }
    let (_, unit_ns) = UNITS
        .into_iter()
        .find(|(name, _)| *name == unit || *name == "us" && matches!(unit, "µs" | "μs"))
        .ok_or_else(|| unit_refusal(number, unit, usual_ns))?;
    scale(whole, fraction, i128::from(unit_ns)).map_err(|reason| match reason {
        ScaleError::TooFine => {
            format!("is finer than a nanosecond: {text:?}\ntimes are whole numbers of nanoseconds")
        }
        ScaleError::TooLarge => format!("is too long: {text:?}\nthe longest time is 292 years"),
    })
}

/// A time in that unit, as an example.
fn example(usual_ns: i64) -> String {
    format!("2 {}", unit_name(usual_ns))
}

/// The name of the unit that has so many nanoseconds.
fn unit_name(unit_ns: i64) -> &'static str {
    let found = UNITS.into_iter().find(|(_, ns)| *ns == unit_ns);
    found.map_or("ms", |(name, _)| name)
}

pub(crate) enum ScaleError {
    TooFine,
    TooLarge,
}

/// `whole`.`fraction` × `unit`, exactly. Both are ASCII digits.
pub(crate) fn scale(whole: &str, fraction: &str, unit: i128) -> Result<i64, ScaleError> {
    // 10^20 × an hour is far below i128's end, and beyond these a number is wrong anyway.
    const DIGITS_MAX: usize = 20;
    let whole = whole.trim_start_matches('0');
    let fraction = fraction.trim_end_matches('0');
    if whole.len() > DIGITS_MAX {
        return Err(ScaleError::TooLarge);
    }
    if fraction.len() > DIGITS_MAX {
        return Err(ScaleError::TooFine);
    }
    let digits = |text: &str| {
        text.bytes().fold(0, |value: i128, digit| {
            value * 10 + i128::from(digit - b'0')
        })
    };
    let parts = 10_i128.pow(fraction.len() as u32);
    let fraction = digits(fraction) * unit;
    if fraction % parts != 0 {
        return Err(ScaleError::TooFine);
    }
    i64::try_from(digits(whole) * unit + fraction / parts).map_err(|_| ScaleError::TooLarge)
}

fn unit_refusal(number: &str, unit: &str, usual_ns: i64) -> String {
    let usual = unit_name(usual_ns);
    if unit.is_empty() {
        return format!("has no unit: \"{number}\"\nwrite \"{number} {usual}\", say; {UNIT_LIST}");
    }
    if unit.starts_with(',') {
        return format!("contains a comma\nwrite a decimal point: \"2.5 {usual}\"; {UNIT_LIST}");
    }
    let lowercase = unit.to_lowercase();
    // A line break would end the message.
    let unit = unit.escape_debug().to_string();
    let unit = unit.as_str();
    let meant = MISTAKEN_UNITS
        .into_iter()
        .find(|(_, names)| names.contains(&lowercase.as_str()))
        .map(|(name, _)| name)
        .or_else(|| suggest::nearest(unit, UNITS.into_iter().map(|(name, _)| name)));
    match meant {
        // Not only the nearest: "m" may be short for either.
        Some("ms") if lowercase == "m" => {
            format!("has the unknown unit `{unit}`\nwrite \"{number} ms\" or \"{number} min\"")
        }
        Some(meant) => {
            format!("has the unknown unit `{unit}`\nwrite \"{number} {meant}\"; {UNIT_LIST}")
        }
        None => format!("has the unknown unit `{unit}`\n{UNIT_LIST}"),
    }
}

/// A time with the unit that reads best, exactly: [`parse_duration`] gives `ns` back. Negative times
/// have a minus sign, which it refuses.
pub fn format_duration(ns: i64) -> String {
    if ns == 0 {
        return "0 ns".into();
    }
    let reads_well = |unit: &str, unit_ns: i64| match unit {
        "h" | "min" => ns % unit_ns == 0,
        "ns" => true,
        // At most three decimals, and not "0.5 s".
        _ => ns.unsigned_abs() >= unit_ns as u64 && ns % (unit_ns / 1000) == 0,
    };
    let (unit, unit_ns) = UNITS
        .into_iter()
        .rev()
        .find(|(unit, unit_ns)| reads_well(unit, *unit_ns))
        .unwrap_or(UNITS[0]);
    let sign = if ns < 0 { "-" } else { "" };
    let (whole, rest) = (
        ns.unsigned_abs() / unit_ns as u64,
        ns.unsigned_abs() % unit_ns as u64,
    );
    if rest == 0 {
        return format!("{sign}{whole} {unit}");
    }
    let thousandths = rest / (unit_ns as u64 / 1000);
    let decimals = format!("{thousandths:03}");
    format!("{sign}{whole}.{} {unit}", decimals.trim_end_matches('0'))
}

/// A time of `MIN_NS` to `MAX_NS` nanoseconds, most often written in the unit of `USUAL_NS` nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Duration<const MIN_NS: i64, const MAX_NS: i64, const USUAL_NS: i64 = MILLISECOND_NS> {
    /// The time.
    pub ns: i64,
}

impl<const MIN_NS: i64, const MAX_NS: i64, const USUAL_NS: i64>
    Field<Duration<MIN_NS, MAX_NS, USUAL_NS>>
{
    /// The time in nanoseconds, or `default_ns` if there is none that is right.
    pub fn ns_or(&self, default_ns: i64) -> i64 {
        self.value.map_or(default_ns, |time| time.ns)
    }
}

impl<'de, const MIN_NS: i64, const MAX_NS: i64, const USUAL_NS: i64> Deserialize<'de>
    for Duration<MIN_NS, MAX_NS, USUAL_NS>
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (min_ns, max_ns) = (MIN_NS, MAX_NS);
        let usual_ns = USUAL_NS;
        let ns = deserializer.deserialize_any(DurationVisitor {
            min_ns,
            max_ns,
            usual_ns,
        })?;
        Ok(Duration { ns })
    }
}

struct DurationVisitor {
    min_ns: i64,
    max_ns: i64,
    usual_ns: i64,
}

impl DurationVisitor {
    fn without_unit<E: Error, N: fmt::Display + PartialOrd + Default>(&self, number: N) -> E {
        E::custom(if number < N::default() {
            let example = example(self.usual_ns);
            format!("is negative: {number}\nwrite a time with its unit, such as \"{example}\"")
        } else {
            let unit = unit_name(self.usual_ns);
            format!("has no unit: {number}\nwrite \"{number} {unit}\", say; {UNIT_LIST}")
        })
    }
}

impl Visitor<'_> for DurationVisitor {
    type Value = i64;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let example = example(self.usual_ns);
        write!(formatter, "a time with its unit, such as \"{example}\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<i64, E> {
        let ns = parse_duration(text, self.usual_ns).map_err(E::custom)?;
        if ns == 0 && self.min_ns > 0 {
            return Err(E::custom("is zero\nwrite more than 0"));
        }
        if ns < self.min_ns {
            return Err(E::custom(format!(
                "is too short: {}\nwrite at least \"{}\"",
                format_duration(ns),
                format_duration(self.min_ns)
            )));
        }
        if ns > self.max_ns {
            return Err(E::custom(format!(
                "is too long: {}\nwrite at most \"{}\"",
                format_duration(ns),
                format_duration(self.max_ns)
            )));
        }
        Ok(ns)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<i64, E> {
        Err(self.without_unit(number))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<i64, E> {
        Err(self.without_unit(number))
    }
}

impl<const MIN_NS: i64, const MAX_NS: i64, const USUAL_NS: i64> JsonSchema
    for Duration<MIN_NS, MAX_NS, USUAL_NS>
{
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn schema_id() -> Cow<'static, str> {
        format!("Duration-{MIN_NS}-{MAX_NS}-{USUAL_NS}").into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": DURATION_PATTERN, "examples": ["2 ms", "10 us"] })
    }
}

/// An integer of `MIN` to `MAX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Whole<const MIN: i64, const MAX: i64>(pub i64);

impl<const MIN: i64, const MAX: i64> Field<Whole<MIN, MAX>> {
    /// The number, or `default` if there is none that is right.
    pub fn or(&self, default: i64) -> i64 {
        self.value.map_or(default, |number| number.0)
    }
}

impl<'de, const MIN: i64, const MAX: i64> Deserialize<'de> for Whole<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct WholeVisitor<const MIN: i64, const MAX: i64>;

        impl<const MIN: i64, const MAX: i64> Visitor<'_> for WholeVisitor<MIN, MAX> {
            type Value = Whole<MIN, MAX>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, "a whole number from {MIN} to {MAX}")
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
                if (MIN..=MAX).contains(&number) {
                    Ok(Whole(number))
                } else {
                    self.visit_i128(number.into())
                }
            }

            fn visit_i128<E: Error>(self, _: i128) -> Result<Self::Value, E> {
                Err(E::custom(format!(
                    "must be a whole number from {MIN} to {MAX}"
                )))
            }
        }

        deserializer.deserialize_any(WholeVisitor::<MIN, MAX>)
    }
}

impl<const MIN: i64, const MAX: i64> JsonSchema for Whole<MIN, MAX> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Whole".into()
    }

    fn schema_id() -> Cow<'static, str> {
        format!("Whole-{MIN}-{MAX}").into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer", "minimum": MIN, "maximum": MAX })
    }
}

/// "70 %" is 70.
pub fn parse_percent(text: &str) -> Option<f64> {
    let number = text.trim().strip_suffix('%')?.trim_end();
    let plain = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    number.parse().ok().filter(|_| plain)
}

/// What [`parse_percent`] accepts, for editors.
pub const PERCENT_PATTERN: &str = r"^\s*[0-9]+(\.[0-9]+)?\s*%\s*$";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_value() -> impl Strategy<Value = String> {
        prop_oneof![any::<String>(), "[0-9.]{1,20} ?(ns|us|ms|s|h|%|)"]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..Default::default() })]

        #[test]
        fn a_time_that_is_written_is_read_back(ns in 0..=i64::MAX) {
            prop_assert_eq!(parse_duration(&format_duration(ns), MILLISECOND_NS), Ok(ns));
        }

        #[test]
        fn a_round_time_is_read_back(count in 0..4000_i64, exponent in 0..12_u32) {
            let ns = count * 10_i64.pow(exponent);
            prop_assert_eq!(parse_duration(&format_duration(ns), MILLISECOND_NS), Ok(ns));
        }

        #[test]
        fn any_text_is_a_time_or_not(text in any_value()) {
            if let Ok(ns) = parse_duration(&text, SECOND_NS) {
                prop_assert!(ns >= 0);
            }
        }
    }

    #[test]
    fn the_usual_unit_is_proposed() {
        let help = |text: &str, usual_ns| parse_duration(text, usual_ns).unwrap_err();
        assert!(help("10", SECOND_NS).contains("write \"10 s\", say"));
        assert!(help("10", MICROSECOND_NS).contains("write \"10 us\", say"));
        assert!(help("2,5 ms", MICROSECOND_NS).contains("\"2.5 us\""));
        assert!(help("", MILLISECOND_NS).contains("such as \"2 ms\""));
    }
}
