//! The quantities of the host file that are not times.

use std::borrow::Cow;
use std::fmt;

use laxity_config::{Kind, PERCENT_PATTERN, parse_percent};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error, Visitor};

/// Bits a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bits;

impl Kind for Bits {
    const WHAT: &'static str = "a rate of bits";
    const EXAMPLE: &'static str = "1 Gbit/s";
    const UNITS: &'static [(&'static str, i64)] = &[
        ("bit/s", 1),
        ("kbit/s", 1_000),
        ("Mbit/s", 1_000_000),
        ("Gbit/s", 1_000_000_000),
    ];
    const MIN: (i64, &'static str) = (1_000, "1 kbit/s");
    const MAX: (i64, &'static str) = (1_000_000_000_000, "1000 Gbit/s");
}

/// Bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bytes;

impl Kind for Bytes {
    const WHAT: &'static str = "a size";
    const EXAMPLE: &'static str = "4 MiB";
    const UNITS: &'static [(&'static str, i64)] = &[
        ("B", 1),
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
    ];
    const MIN: (i64, &'static str) = (64, "64 B");
    const MAX: (i64, &'static str) = (1 << 40, "1024 GiB");
}

/// Millionths a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Often;

impl Kind for Often {
    const WHAT: &'static str = "how often something happens";
    const EXAMPLE: &'static str = "4 /s";
    // The base is the 3600th part of a millionth, so that all units are whole.
    const UNITS: &'static [(&'static str, i64)] = &[
        ("/h", 1_000_000),
        ("/min", 60_000_000),
        ("/s", 3_600_000_000),
    ];
    const MIN: (i64, &'static str) = (1_000_000, "1 /h");
    const MAX: (i64, &'static str) = (36_000_000_000_000, "10000 /s");
}

/// A load: a number above 0 and up to 1.5, or a percentage.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Load(pub f64);

impl Load {
    const MAX: f64 = 1.5;
}

impl<'de> Deserialize<'de> for Load {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct LoadVisitor;

        impl Visitor<'_> for LoadVisitor {
            type Value = Load;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a number such as 0.7, or \"70 %\"")
            }

            fn visit_f64<E: Error>(self, load: f64) -> Result<Load, E> {
                if load > 0.0 && load <= Load::MAX {
                    return Ok(Load(load));
                }
                Err(E::custom(
                    if load > Load::MAX && load <= 100.0 * Load::MAX {
                        format!(
                            "is too high: {load}\nwrite {} or \"{load} %\", if that is meant",
                            load / 100.0
                        )
                    } else {
                        format!(
                            "is out of bounds: {load}\nwrite a number above 0 and up to {}",
                            Load::MAX
                        )
                    },
                ))
            }

            fn visit_i64<E: Error>(self, load: i64) -> Result<Load, E> {
                self.visit_f64(load as f64)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Load, E> {
                let percent = parse_percent(text).ok_or_else(|| {
                    E::custom(format!(
                        "is not a percentage: {text:?}\nwrite a number such as 0.7, or \"70 %\""
                    ))
                })?;
                let load = percent / 100.0;
                if load > 0.0 && load <= Load::MAX {
                    return Ok(Load(load));
                }
                Err(E::custom(format!(
                    "is out of bounds: {text:?}\nwrite a percentage above 0 % and up to 150 %"
                )))
            }
        }

        deserializer.deserialize_any(LoadVisitor)
    }
}

impl JsonSchema for Load {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Load".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [
            { "type": "number", "exclusiveMinimum": 0, "maximum": Load::MAX },
            { "type": "string", "pattern": PERCENT_PATTERN, "examples": ["70 %"] },
        ] })
    }
}

/// Whole percent of one CPU, 0 to `MAX`: a number, or with a percent sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cap<const MAX: i64>(pub u32);

impl<'de, const MAX: i64> Deserialize<'de> for Cap<MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct CapVisitor<const MAX: i64>;

        impl<const MAX: i64> Visitor<'_> for CapVisitor<MAX> {
            type Value = Cap<MAX>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a whole number of percent, such as 40 or \"40 %\"")
            }

            fn visit_i64<E: Error>(self, percent: i64) -> Result<Cap<MAX>, E> {
                match u32::try_from(percent) {
                    Ok(percent) if i64::from(percent) <= MAX => Ok(Cap(percent)),
                    _ => Err(E::custom(format!(
                        "is out of bounds: {percent} %\nwrite 0 (no cap) to {MAX} (percent of one CPU)"
                    ))),
                }
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Cap<MAX>, E> {
                match parse_percent(text) {
                    Some(percent) if percent.fract() == 0.0 => self.visit_i64(percent as i64),
                    _ => Err(E::custom(
                        "must be a whole number of percent, such as 40 or \"40 %\"",
                    )),
                }
            }
        }

        deserializer.deserialize_any(CapVisitor)
    }
}

impl<const MAX: i64> JsonSchema for Cap<MAX> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Cap".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [
            { "type": "integer", "minimum": 0, "maximum": MAX },
            { "type": "string", "pattern": PERCENT_PATTERN, "examples": ["40 %"] },
        ] })
    }
}
