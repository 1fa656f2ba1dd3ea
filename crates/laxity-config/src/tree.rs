//! A TOML document as a tree in which every value has its place, and its serde deserializer.
//!
//! The deserializer differs from those of other formats in two ways. It does not stop at the first problem: every value
//! that does not fit is reported to [`Problems`] with its place, and a [`Field`] takes the failure and continues, so
//! that one pass finds all problems of a file. And a field whose name begins with a dollar sign is a group: a struct
//! whose keys stand in the table itself, among the other keys.
//!
//! Cloning a tree is cheap (the nodes are shared) and changing one copies the path to the change
//! only: a sweep parses its host file once and applies overrides thousands of times.

use std::cell::RefCell;
use std::fmt::Display;
use std::rc::Rc;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::value::{StrDeserializer, U64Deserializer};
use serde::de::{
    DeserializeSeed, Deserializer, Expected, IntoDeserializer, MapAccess, SeqAccess, Unexpected,
    Visitor,
};
use serde::{Deserialize, forward_to_deserialize_any};
use toml::de::{DeTable, DeValue};

use crate::problem::{Problem, Problems, Span};
use crate::suggest;

/// A value and where it stands.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub span: Span,
    pub value: Value,
}

#[derive(Debug, Clone)]
pub(crate) enum Value {
    String(Arc<str>),
    Integer(i128),
    /// An integer beyond 128 bits.
    HugeInteger,
    Float(f64),
    Boolean(bool),
    Date,
    Array(Arc<Vec<Node>>),
    Table(Arc<Vec<Entry>>),
}

/// One key of a table, in the order of their names.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub key: Arc<str>,
    pub key_span: Span,
    pub node: Node,
}

impl Node {
    /// From the parser's tree, with `base` added to every position.
    pub fn from_toml(value: &toml::Spanned<DeValue<'_>>, base: usize) -> Node {
        Node {
            span: Span::new(value.span(), base),
            value: match value.get_ref() {
                DeValue::String(text) => Value::String(text.as_ref().into()),
                DeValue::Integer(integer) => {
                    match i128::from_str_radix(integer.as_str(), integer.radix()) {
                        Ok(integer) => Value::Integer(integer),
                        Err(_) => Value::HugeInteger,
                    }
                }
                // The grammar of TOML floats is a part of Rust's; what is too large is infinite.
                DeValue::Float(float) => Value::Float(float.as_str().parse().unwrap_or(f64::NAN)),
                DeValue::Boolean(boolean) => Value::Boolean(*boolean),
                DeValue::Datetime(_) => Value::Date,
                DeValue::Array(array) => Value::Array(Arc::new(
                    array
                        .iter()
                        .map(|element| Node::from_toml(element, base))
                        .collect(),
                )),
                DeValue::Table(table) => Value::from_table(table, base),
            },
        }
    }
}

impl Value {
    pub fn from_table(table: &DeTable<'_>, base: usize) -> Value {
        Value::Table(Arc::new(
            table
                .iter()
                .map(|(key, value)| Entry {
                    key: key.get_ref().as_ref().into(),
                    key_span: Span::new(key.span(), base),
                    node: Node::from_toml(value, base),
                })
                .collect(),
        ))
    }

    /// The value in words, for "not …".
    pub fn describe(&self) -> String {
        match self {
            Value::String(text) => format!("{text:?}"),
            Value::Integer(integer) => integer.to_string(),
            Value::HugeInteger => "a number of more than 38 digits".into(),
            Value::Float(float) => format!("{float:?}"),
            Value::Boolean(boolean) => format!("`{boolean}`"),
            Value::Date => "a date or time of day".into(),
            Value::Array(_) => "a list".into(),
            Value::Table(_) => "a table".into(),
        }
    }
}

/// What a key holds, if it is there and right.
#[derive(Debug, Clone)]
pub struct Field<T> {
    /// `None`: the key is absent.
    pub span: Option<Span>,
    /// `None`: absent, or wrong, which has been reported.
    pub value: Option<T>,
}

impl<T> Default for Field<T> {
    fn default() -> Self {
        Field {
            span: None,
            value: None,
        }
    }
}

impl<T> Field<T> {
    /// The value and its place, if there is one and it is right.
    pub fn given(&self) -> Option<(&T, Span)> {
        self.value.as_ref().zip(self.span)
    }

    /// Whether the key is not there.
    pub fn is_absent(&self) -> bool {
        self.span.is_none()
    }

    /// Whether the table at `table` lacks this field, whose name is `key`, and nothing has been reported about it: a
    /// key that is only misspelt has been.
    pub fn is_missing(&self, key: &'static str, table: Span, problems: &Problems) -> bool {
        self.is_absent() && !problems.is_misspelt(table, key)
    }
}

/// The name by which a [`Field`] asks [`Reader`] for its span.
const FIELD: &str = "$field";

/// What the name of a group begins with.
const GROUP: char = '$';

/// The keys of each of a table's groups, in the order of the groups, as far as they have been read.
type GroupKeys = Rc<RefCell<Vec<Vec<&'static str>>>>;

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Field<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FieldVisitor<T>(std::marker::PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for FieldVisitor<T> {
            type Value = Field<T>;

            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("a place and a value")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Field<T>, A::Error> {
                let span = parts.next_element::<u64>()?.map(Span::unpack);
                // An error here was reported where it arose.
                let value = parts.next_element::<T>().ok().flatten();
                Ok(Field { span, value })
            }
        }

        deserializer.deserialize_newtype_struct(FIELD, FieldVisitor(std::marker::PhantomData))
    }
}

impl<T: JsonSchema> JsonSchema for Field<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        T::schema_name()
    }

    fn schema_id() -> std::borrow::Cow<'static, str> {
        T::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

/// Why a value was refused. The text is a predicate ("is longer than an hour"), to which
/// [`Reader`] adds the key as the subject; what follows a line break is the help.
#[derive(Debug)]
pub(crate) enum Refusal {
    New(String),
    /// Said already, further inside.
    Reported,
}

impl Display for Refusal {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Refusal::New(text) => formatter.write_str(text),
            Refusal::Reported => formatter.write_str("is wrong"),
        }
    }
}

impl std::error::Error for Refusal {}

impl serde::de::Error for Refusal {
    fn custom<T: Display>(message: T) -> Self {
        Refusal::New(message.to_string())
    }

    /// The found value is left to [`Reader`], which can say more about it.
    fn invalid_type(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Refusal::New(format!("must be {expected}"))
    }
}

/// A node on its way into a type.
pub(crate) struct Reader<'t> {
    /// The key under which it stands; for elements of a list that of the list.
    pub key: &'t str,
    pub node: &'t Node,
    pub problems: &'t Problems,
    /// For a group: where its keys are noted, for the table that reports the unknown ones.
    group: Option<GroupKeys>,
}

impl<'t> Reader<'t> {
    pub fn new(key: &'t str, node: &'t Node, problems: &'t Problems) -> Reader<'t> {
        Reader {
            key,
            node,
            problems,
            group: None,
        }
    }

    fn report(&self, refusal: Refusal) -> Refusal {
        if let Refusal::New(text) = refusal {
            let (message, help) = match text.split_once('\n') {
                Some((message, help)) => (message, Some(help.to_string())),
                None => (text.as_str(), None),
            };
            let is_one_for_many =
                message.starts_with("must be a list") && matches!(self.node.value, Value::Table(_));
            let help = help.or_else(|| {
                is_one_for_many.then(|| format!("write [[{}]], in double brackets", self.key))
            });
            let not = if message.starts_with("must be") {
                format!(", not {}", self.node.value.describe())
            } else {
                String::new()
            };
            self.problems.push(Problem {
                help,
                ..Problem::new(self.node.span, format!("`{}` {message}{not}", self.key))
            });
        }
        Refusal::Reported
    }

    fn unknown_keys(&self, entries: &[Entry], known: &[&'static str]) {
        for entry in entries {
            if !known.contains(&&*entry.key) {
                if let Some(meant) = suggest::nearest(&entry.key, known.iter().copied()) {
                    self.problems.note_misspelt(self.node.span, meant);
                }
                self.problems.push(Problem {
                    help: Some(suggest::help(
                        &entry.key,
                        known.iter().copied(),
                        "known here",
                    )),
                    ..Problem::new(
                        entry.key_span,
                        format!("unknown key `{}`", entry.key.escape_debug()),
                    )
                });
            }
        }
    }

    /// `known`: report the other keys, and leave them out.
    fn visit<V: Visitor<'t>>(
        &self,
        known: Option<&'static [&'static str]>,
        visitor: V,
    ) -> Result<V::Value, Refusal> {
        match &self.node.value {
            Value::String(text) => visitor.visit_borrowed_str(text),
            Value::Integer(integer) => match i64::try_from(*integer) {
                Ok(integer) => visitor.visit_i64(integer),
                Err(_) => visitor.visit_i128(*integer),
            },
            Value::HugeInteger => visitor.visit_i128(i128::MAX),
            Value::Float(float) => visitor.visit_f64(*float),
            Value::Boolean(boolean) => visitor.visit_bool(*boolean),
            Value::Date => Err(serde::de::Error::invalid_type(
                Unexpected::Other("date"),
                &visitor,
            )),
            Value::Array(elements) => visitor.visit_seq(Elements {
                key: self.key,
                elements: elements.iter(),
                problems: self.problems,
            }),
            Value::Table(entries) => {
                let groups = GroupKeys::default();
                let value = visitor.visit_map(Entries {
                    known,
                    entries: entries.iter(),
                    value: None,
                    group_names: known.unwrap_or_default().iter(),
                    groups: groups.clone(),
                    table: self.node,
                    problems: self.problems,
                })?;
                if let Some(known) = known {
                    let groups = &mut groups.take().into_iter();
                    let keys = known.iter().flat_map(|key| match key.starts_with(GROUP) {
                        true => groups.next().unwrap_or_default(),
                        false => vec![*key],
                    });
                    let known: Vec<&'static str> = keys.collect();
                    match &self.group {
                        Some(group) => group.borrow_mut().push(known),
                        None => self.unknown_keys(entries, &known),
                    }
                }
                Ok(value)
            }
        }
    }
}

impl<'t> Deserializer<'t> for Reader<'t> {
    type Error = Refusal;

    fn deserialize_any<V: Visitor<'t>>(self, visitor: V) -> Result<V::Value, Refusal> {
        self.visit(None, visitor)
            .map_err(|refusal| self.report(refusal))
    }

    fn deserialize_struct<V: Visitor<'t>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refusal> {
        self.visit(Some(fields), visitor)
            .map_err(|refusal| self.report(refusal))
    }

    fn deserialize_newtype_struct<V: Visitor<'t>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Refusal> {
        if name == FIELD {
            visitor.visit_seq(FieldParts {
                span: Some(self.node.span),
                reader: Some(self),
            })
        } else {
            visitor.visit_newtype_struct(self)
        }
    }

    fn deserialize_enum<V: Visitor<'t>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refusal> {
        match &self.node.value {
            Value::String(text) if variants.contains(&&**text) => {
                let name: StrDeserializer<'_, Refusal> = (&**text).into_deserializer();
                visitor.visit_enum(name)
            }
            Value::String(text) => {
                let refusal = suggest::unknown(text, variants.iter().copied());
                Err(self.report(Refusal::New(refusal)))
            }
            _ => {
                let list = suggest::list(variants.iter().map(|name| format!("\"{name}\"")), "or");
                Err(self.report(Refusal::New(format!("must be {list}"))))
            }
        }
    }

    fn deserialize_ignored_any<V: Visitor<'t>>(self, visitor: V) -> Result<V::Value, Refusal> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        <V: Visitor<'t>>
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct seq tuple tuple_struct map identifier
    }
}

/// The two parts of a [`Field`]: its span and its value.
struct FieldParts<'t> {
    span: Option<Span>,
    reader: Option<Reader<'t>>,
}

impl<'t> SeqAccess<'t> for FieldParts<'t> {
    type Error = Refusal;

    fn next_element_seed<T: DeserializeSeed<'t>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Refusal> {
        if let Some(span) = self.span.take() {
            let packed: U64Deserializer<Refusal> = span.pack().into_deserializer();
            return seed.deserialize(packed).map(Some);
        }
        self.reader
            .take()
            .map(|reader| seed.deserialize(reader))
            .transpose()
    }
}

struct Elements<'t> {
    key: &'t str,
    elements: std::slice::Iter<'t, Node>,
    problems: &'t Problems,
}

impl<'t> SeqAccess<'t> for Elements<'t> {
    type Error = Refusal;

    fn next_element_seed<T: DeserializeSeed<'t>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Refusal> {
        let Some(node) = self.elements.next() else {
            return Ok(None);
        };
        seed.deserialize(Reader::new(self.key, node, self.problems))
            .map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.elements.len())
    }
}

struct Entries<'t> {
    known: Option<&'static [&'static str]>,
    entries: std::slice::Iter<'t, Entry>,
    value: Option<Reader<'t>>,
    /// The names of the groups still to come, among other names.
    group_names: std::slice::Iter<'static, &'static str>,
    groups: GroupKeys,
    /// The table itself, which is also what its groups are read from.
    table: &'t Node,
    problems: &'t Problems,
}

impl<'t> MapAccess<'t> for Entries<'t> {
    type Error = Refusal;

    fn next_key_seed<K: DeserializeSeed<'t>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Refusal> {
        let known = self.known;
        let is_known = |entry: &&Entry| {
            known.is_none_or(|known| known.contains(&&*entry.key) && !entry.key.starts_with(GROUP))
        };
        let (name, reader) = if let Some(entry) = self.entries.find(is_known) {
            let reader = Reader::new(&entry.key, &entry.node, self.problems);
            (&*entry.key, reader)
        } else if let Some(name) = self.group_names.find(|name| name.starts_with(GROUP)) {
            let mut reader = Reader::new(name, self.table, self.problems);
            reader.group = Some(self.groups.clone());
            (*name, reader)
        } else {
            return Ok(None);
        };
        self.value = Some(reader);
        let key: StrDeserializer<'_, Refusal> = name.into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'t>>(&mut self, seed: V) -> Result<V::Value, Refusal> {
        match self.value.take() {
            Some(reader) => seed.deserialize(reader),
            None => Err(serde::de::Error::custom("has no value")),
        }
    }
}
