//! The formats of events, as tracefs tells them.

use crate::error::KvmError;

/// Where a number stands in an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    offset: usize,
    bytes: usize,
}

impl Field {
    /// The number, sign-extended if it has more than 2 bytes; `None` if the event is shorter.
    pub fn of(self, event: &[u8]) -> Option<i64> {
        let bytes = event.get(self.offset..self.offset.checked_add(self.bytes)?)?;
        Some(match bytes.len() {
            1 => i64::from(bytes[0]),
            2 => i64::from(u16::from_le_bytes(*bytes.first_chunk()?)),
            4 => i64::from(i32::from_le_bytes(*bytes.first_chunk()?)),
            _ => i64::from_le_bytes(*bytes.first_chunk()?),
        })
    }
}

/// Where a text stands in an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextField {
    offset: usize,
    bytes: usize,
}

impl TextField {
    /// The text, up to the 0 that ends it; `None` if the event is shorter.
    pub fn of(self, event: &[u8]) -> Option<&[u8]> {
        let bytes = event.get(self.offset..self.offset.checked_add(self.bytes)?)?;
        bytes.split(|&byte| byte == 0).next()
    }
}

/// The number of an event, and where its fields stand.
pub struct Format<'a> {
    event: &'static str,
    text: &'a str,
}

impl<'a> Format<'a> {
    /// The format of an event among several.
    pub fn find(texts: &[&'a str], event: &'static str) -> Result<Format<'a>, KvmError> {
        let named = |text: &&&str| {
            text.lines()
                .any(|line| line.strip_prefix("name: ") == Some(event))
        };
        let text = texts.iter().find(named).ok_or(KvmError::Format {
            event,
            missing: "text",
        })?;
        Ok(Format { event, text })
    }

    pub fn number(&self) -> Result<u16, KvmError> {
        let number = |line: &str| line.strip_prefix("ID: ")?.trim().parse().ok();
        self.text
            .lines()
            .find_map(number)
            .ok_or(self.lacks("number"))
    }

    /// A field of 1, 2, 4 or 8 bytes.
    pub fn field(&self, name: &'static str) -> Result<Field, KvmError> {
        self.text
            .lines()
            .find_map(|line| field(line, name))
            .ok_or(self.lacks(name))
    }

    /// A field of the type `char`, with the number of its bytes behind its name.
    pub fn text(&self, name: &'static str) -> Result<TextField, KvmError> {
        let field = |line: &str| {
            let (declared, place) = place(line)?;
            let own = declared.strip_prefix("char ")?.split('[').next()?;
            (own == name).then_some(TextField {
                offset: place.offset,
                bytes: place.bytes,
            })
        };
        self.text.lines().find_map(field).ok_or(self.lacks(name))
    }

    fn lacks(&self, missing: &'static str) -> KvmError {
        let event = self.event;
        KvmError::Format { event, missing }
    }
}

/// A line as `field:pid_t prev_pid;  offset:24;  size:4;  signed:1;`, if it is that field.
fn field(line: &str, name: &str) -> Option<Field> {
    let (declared, field) = place(line)?;
    let is_it = declared.rsplit([' ', '*']).next()? == name && matches!(field.bytes, 1 | 2 | 4 | 8);
    is_it.then_some(field)
}

/// What such a line declares, and where it stands.
fn place(line: &str) -> Option<(&str, Field)> {
    let mut parts = line.trim().split(';').map(str::trim);
    let declared = parts.next()?.strip_prefix("field:")?;
    let offset = parts.next()?.strip_prefix("offset:")?.parse().ok()?;
    let bytes = parts.next()?.strip_prefix("size:")?.parse().ok()?;
    Some((declared, Field { offset, bytes }))
}
