//! Values that many files have: lists, names, flags.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::value::SeqAccessDeserializer;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};

use crate::tree::Field;

/// A list that takes note of what is wrong with each element.
pub type List<T> = ListOf<Field<T>>;

/// See [`List`].
#[derive(Debug, JsonSchema)]
#[schemars(transparent, inline)]
pub struct ListOf<T>(pub Vec<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for ListOf<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ListVisitor<T>(std::marker::PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for ListVisitor<T> {
            type Value = ListOf<T>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, elements: A) -> Result<ListOf<T>, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(elements)).map(ListOf)
            }
        }

        deserializer.deserialize_any(ListVisitor(std::marker::PhantomData))
    }
}

/// A name of letters, digits, `-`, `_` and `.`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name(pub String);

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        written(deserializer, "a name in quotes", |text| {
            let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            if !text.is_empty() && text.chars().all(allowed) {
                return Ok(Name(text.into()));
            }
            let help = "a name is made of letters, digits, `-`, `_` and `.`";
            Err(match text.chars().find(|c| !allowed(*c)) {
                None => format!("is empty\n{help}"),
                Some(wrong) => format!("cannot contain {wrong:?}\n{help}"),
            })
        })
    }
}

impl JsonSchema for Name {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Name".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^[A-Za-z0-9._-]+$" })
    }
}

/// Reads what is written as a string.
///
/// # Errors
///
/// If it is no string, which `expected` describes, or `parse` refuses it: with what is wrong, and in a second line what
/// would be right.
pub fn written<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    expected: &'static str,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Result<T, D::Error> {
    struct Reader<F>(&'static str, F);

    impl<T, F: FnOnce(&str) -> Result<T, String>> Visitor<'_> for Reader<F> {
        type Value = T;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str(self.0)
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
            self.1(text).map_err(E::custom)
        }
    }

    deserializer.deserialize_any(Reader(expected, parse))
}

/// `true` or `false`.
#[derive(Debug, Clone, Copy, JsonSchema)]
#[schemars(transparent, inline)]
pub struct Flag(pub bool);

impl<'de> Deserialize<'de> for Flag {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FlagVisitor;

        impl Visitor<'_> for FlagVisitor {
            type Value = Flag;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("`true` or `false`")
            }

            fn visit_bool<E: Error>(self, value: bool) -> Result<Flag, E> {
                Ok(Flag(value))
            }
        }

        deserializer.deserialize_any(FlagVisitor)
    }
}
