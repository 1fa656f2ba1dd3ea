//! Escapes text from untrusted sources, such as a guest's name or its output, for terminals and
//! logs.

use std::fmt::Write as _;
use std::io::{self, Write};

/// Whether a terminal or a line reader could interpret a character as anything but itself: control
/// characters, line separators, and characters that change the direction of text.
fn is_active(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

/// The text with all active characters written out, such as `\n` and `\u{1b}`.
pub fn line(text: &str) -> String {
    lines(text, "\\n")
}

/// The text with all active characters written out, and with `newline` in place of each end of a
/// line.
pub fn lines(text: &str, newline: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' => escaped.push_str(newline),
            _ if is_active(character) => {
                let _ = write!(escaped, "{}", character.escape_default());
            }
            _ => escaped.push(character),
        }
    }
    escaped
}

/// A log writer that takes one record a call. All lines of a record but the first are indented, so
/// that no text inside a record can look like a record of its own.
pub struct Records<W>(pub W);

impl<W: Write> Write for Records<W> {
    fn write(&mut self, record: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(record);
        let escaped = lines(text.strip_suffix('\n').unwrap_or(&text), "\n    ");
        self.0.write_all(format!("{escaped}\n").as_bytes())?;
        Ok(record.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[test]
    fn active_characters_are_written_out() {
        assert_eq!(line("média 7 µs"), "média 7 µs");
        assert_eq!(line("a\u{1b}[2J\n\r\u{9b}b"), "a\\u{1b}[2J\\n\\r\\u{9b}b");
        assert_eq!(line("\u{202e}txt.exe"), "\\u{202e}txt.exe");
        assert_eq!(lines("a\nb\t", "\n"), "a\nb\\t");
    }

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// A name and an output with which a hostile guest tries to forge a log record.
    const HOSTILE: &str = "web\n2026-01-01T00:00:00Z  INFO forged \u{1b}[31mred";

    fn logged(as_json: bool) -> String {
        let kept = Kept::default();
        let writer = kept.clone();
        let log = crate::log_to(as_json, move || writer.clone());
        tracing::subscriber::with_default(log, || {
            tracing::warn!(vm = HOSTILE, "it says {HOSTILE}");
            tracing::warn!(vm = %HOSTILE, "shown");
        });
        let bytes = kept.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_hostile_name_forges_no_record_and_moves_no_cursor() {
        for as_json in [false, true] {
            let log = logged(as_json);
            assert!(!log.contains('\u{1b}'), "{log:?}");
            let begins_a_record = |line: &&str| !line.starts_with(' ');
            let records: Vec<&str> = log.lines().filter(begins_a_record).collect();
            assert_eq!(records.len(), 2, "{log}");
            for record in records {
                assert!(record.contains("WARN"), "{log}");
            }
        }
    }
}
