//! Named profiles of costs: files of this crate, one a machine.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use laxity_config::{Document, FileKind, Problems, suggest};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

/// A profile of costs. Its numbers are those of one machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Profile {
    /// What the costs are of.
    pub of: ProfileOf,
    /// The profile's name in host files.
    pub name: String,
    /// Where the numbers come from: measured, fitted or estimated, and on which machine.
    pub source: String,
}

/// What a profile gives the costs of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ProfileOf {
    /// Decisions and context switches: `costs` in a host file.
    Scheduling,
    /// What is done for packets: `network` in a host file.
    Packets,
}

/// A table of costs for which there are profiles.
pub(crate) trait Profiled {
    /// The names of the profiles.
    const PROFILES: &'static [&'static str];
    /// The table's keys.
    const KEYS: &'static [&'static str];
    /// The table as it may be written.
    const EXAMPLE: &'static str;
}

/// Costs as they are written: the name of a profile, or a table.
#[derive(Debug)]
pub(crate) enum Choice<T> {
    Profile(&'static str),
    Given(Box<T>),
}

impl<'de, T: Profiled + Deserialize<'de>> Deserialize<'de> for Choice<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ChoiceVisitor<T>(PhantomData<T>);

        impl<'de, T: Profiled + Deserialize<'de>> Visitor<'de> for ChoiceVisitor<T> {
            type Value = Choice<T>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(
                    formatter,
                    "a profile's name or a table, such as {}",
                    T::EXAMPLE
                )
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Choice<T>, E> {
                match T::PROFILES.iter().find(|name| **name == text) {
                    Some(name) => Ok(Choice::Profile(name)),
                    None => Err(E::custom(suggest::unknown(
                        text,
                        T::PROFILES.iter().copied(),
                    ))),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<Choice<T>, A::Error> {
                Box::deserialize(MapAccessDeserializer::new(entries)).map(Choice::Given)
            }
        }

        deserializer.deserialize_struct("Choice", T::KEYS, ChoiceVisitor(PhantomData))
    }
}

impl<T: Profiled + JsonSchema> JsonSchema for Choice<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("Choice_{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let table = generator.subschema_for::<T>();
        json_schema!({ "anyOf": [{ "enum": T::PROFILES }, table] })
    }
}

const PROFILE: FileKind = FileKind {
    noun: "profile",
    with_article: "a profile",
    least: "a profile has a source and costs",
    open: None,
    list: None,
    readers: "host files name it",
};

/// What `resolve` makes of a profile's file, and the file's `source`. Tests see to it that nothing is wrong with the
/// profiles, which are part of this crate.
pub(crate) fn read<T: Default + for<'de> Deserialize<'de>, R: Default>(
    text: &str,
    resolve: impl FnOnce(&T, &Problems) -> R,
) -> (R, String) {
    let Ok(mut profile) = Document::parse(text.as_bytes(), "profile", &PROFILE) else {
        return Default::default();
    };
    let source = profile.take_text("source").unwrap_or_default();
    let costs = profile.read(&[""; 0], |table, _, problems| resolve(table, problems));
    (costs.unwrap_or_default(), source.to_string())
}
