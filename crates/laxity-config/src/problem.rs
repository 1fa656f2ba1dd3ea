//! Problems of a file: the message, the place, and the remedy of each.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::fmt::{self, Display};
use std::ops::Range;
use std::sync::Arc;

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{
    AnnotationKind, Element, Level, Origin, Renderer, Snippet, normalize_untrusted_str,
};
use serde::Serialize;

/// A place in a file or, beyond its end, in an override.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    start: u32,
    end: u32,
}

impl Span {
    /// `base` is where the text begins in which `range` counts. Files and overrides are limited
    /// in length, so that positions fit.
    pub(crate) fn new(range: Range<usize>, base: usize) -> Span {
        let position = |at: usize| u32::try_from(at + base).unwrap_or(u32::MAX);
        Span {
            start: position(range.start),
            end: position(range.end),
        }
    }

    /// The bytes of the file's text, for a place that is not in an override.
    pub(crate) fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    pub(crate) fn pack(self) -> u64 {
        u64::from(self.start) << 32 | u64::from(self.end)
    }

    pub(crate) fn unpack(packed: u64) -> Span {
        Span {
            start: (packed >> 32) as u32,
            end: packed as u32,
        }
    }
}

/// A problem before its place is known in lines and columns.
#[derive(Debug)]
pub struct Problem {
    /// The place of the problem.
    pub span: Span,
    /// What is wrong.
    pub message: String,
    /// What would be right.
    pub help: Option<String>,
    /// Another place that plays a part, and what it is.
    pub related: Option<(Span, &'static str)>,
}

impl Problem {
    /// Without help and a second place.
    pub fn new(span: Span, message: impl Into<String>) -> Problem {
        Problem {
            span,
            message: message.into(),
            help: None,
            related: None,
        }
    }
}

/// Collects problems. Those beyond [`Problems::KEPT_MAX`] are only counted.
#[derive(Debug, Default)]
pub struct Problems {
    kept: RefCell<Vec<Problem>>,
    count: Cell<usize>,
    misspelt: RefCell<HashSet<(Span, &'static str)>>,
}

impl Problems {
    const KEPT_MAX: usize = 100;

    /// Takes one more problem.
    pub fn push(&self, problem: Problem) {
        self.count.set(self.count.get() + 1);
        if self.count.get() <= Self::KEPT_MAX {
            self.kept.borrow_mut().push(problem);
        }
    }

    /// Takes a problem with its help, as [`Problems::push`] does.
    pub fn report(&self, span: Span, message: impl Into<String>, help: impl Into<String>) {
        self.push(Problem {
            help: Some(help.into()),
            ..Problem::new(span, message)
        });
    }

    /// Remembers that the table at `table` has an unknown key in place of `meant`, probably.
    pub(crate) fn note_misspelt(&self, table: Span, meant: &'static str) {
        self.misspelt.borrow_mut().insert((table, meant));
    }

    /// Whether an unknown key of the table was reported as a misspelling of `key`, whose absence then needs no report.
    pub fn is_misspelt(&self, table: Span, key: &'static str) -> bool {
        self.misspelt.borrow().contains(&(table, key))
    }

    /// Whether nothing is wrong so far.
    pub fn is_empty(&self) -> bool {
        self.count.get() == 0
    }

    pub(crate) fn into_error(self, sources: &Sources) -> FileError {
        let mut kept = self.kept.into_inner();
        kept.sort_by_key(|problem| problem.span);
        FileError {
            problems: kept
                .into_iter()
                .map(|problem| sources.locate(problem))
                .collect(),
            count: self.count.get(),
        }
    }
}

/// The texts that something is read from.
#[derive(Debug, Clone)]
pub(crate) struct Sources {
    pub name: Arc<str>,
    pub text: Arc<str>,
    /// The overrides, as given.
    pub overrides: Vec<Arc<str>>,
}

impl Sources {
    /// Where positions of the next override to be added begin. One byte lies between two texts, so
    /// that the end of one is not the beginning of the next.
    pub fn next_base(&self) -> usize {
        self.text.len()
            + 1
            + self
                .overrides
                .iter()
                .map(|text| text.len() + 1)
                .sum::<usize>()
    }

    fn locate(&self, problem: Problem) -> FileProblem {
        let primary = self.place(problem.span);
        let (line, column) = line_and_column(&primary.text, primary.range.start);
        FileProblem {
            file: primary.file.to_string(),
            line,
            column,
            message: problem.message,
            help: problem.help,
            excerpt: Some(Excerpt {
                primary,
                related: problem
                    .related
                    .map(|(span, label)| (self.place(span), label)),
            }),
        }
    }

    /// The text that a span is in, and the span's range there, on whole characters.
    fn place(&self, span: Span) -> Place {
        let mut start = span.start as usize;
        let length = (span.end as usize).saturating_sub(start);
        let mut file = &self.name;
        let mut text = &self.text;
        let override_name: Arc<str> = "--set".into();
        for next in &self.overrides {
            if start <= text.len() {
                break;
            }
            start -= text.len() + 1;
            (file, text) = (&override_name, next);
        }
        let end = floor_char_boundary(text, start + length);
        let range = floor_char_boundary(text, start)..end;
        Place {
            file: file.clone(),
            text: text.clone(),
            range,
        }
    }
}

fn floor_char_boundary(text: &str, at: usize) -> usize {
    let at = at.min(text.len());
    (0..=at)
        .rev()
        .find(|&at| text.is_char_boundary(at))
        .unwrap_or(0)
}

/// The line and the column of a position, both from 1. Columns are characters.
pub(crate) fn line_and_column(text: &str, at: usize) -> (usize, usize) {
    let before = &text[..at];
    let line_start = before.rfind('\n').map_or(0, |end| end + 1);
    (
        before.matches('\n').count() + 1,
        before[line_start..].chars().count() + 1,
    )
}

/// A file was refused: everything that was found wrong with it.
///
/// `Display` shows all of it as `rustc` would, without colour; serialized it is a list of problems
/// with `file`, `line`, `column`, `message` and `help`.
#[derive(Debug, Clone)]
pub struct FileError {
    problems: Vec<FileProblem>,
    count: usize,
}

impl Serialize for FileError {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.problems.serialize(serializer)
    }
}

/// One thing that is wrong.
#[derive(Debug, Clone, Serialize)]
pub struct FileProblem {
    file: String,
    line: usize,
    column: usize,
    message: String,
    help: Option<String>,
    #[serde(skip)]
    excerpt: Option<Excerpt>,
}

impl FileProblem {
    /// The file's name as it was given, or `--set` for an override.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// From 1.
    pub fn line(&self) -> usize {
        self.line
    }

    /// In characters, from 1.
    pub fn column(&self) -> usize {
        self.column
    }

    /// What is wrong.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What would be right.
    pub fn help(&self) -> Option<&str> {
        self.help.as_deref()
    }
}

/// What a rendering shows of the texts.
#[derive(Debug, Clone)]
struct Excerpt {
    primary: Place,
    /// Another place that plays a part, and what it is.
    related: Option<(Place, &'static str)>,
}

#[derive(Debug, Clone)]
struct Place {
    file: Arc<str>,
    text: Arc<str>,
    range: Range<usize>,
}

impl Place {
    /// Whether one excerpt shows both places well.
    fn is_near(&self, other: &Place) -> bool {
        const BYTES_MAX: usize = 4_000;
        Arc::ptr_eq(&self.text, &other.text)
            && self.range.start.abs_diff(other.range.start) < BYTES_MAX
    }

    /// The lines that the marks touch; only file, line and column, if these lines are too long for
    /// anyone to read. All marks are in the text of this place.
    fn show(&self, marks: &[(AnnotationKind, &Place, &'static str)]) -> Element<'_> {
        const BYTES_MAX: usize = 20_000;
        let start = marks
            .iter()
            .map(|(_, place, _)| place.range.start)
            .min()
            .unwrap_or(0);
        let end = marks
            .iter()
            .map(|(_, place, _)| place.range.end)
            .max()
            .unwrap_or(0);
        let start = self.text[..start]
            .rfind('\n')
            .map_or(0, |line_end| line_end + 1);
        let end = self.text[end..]
            .find('\n')
            .map_or(self.text.len(), |length| end + length);
        if end - start > BYTES_MAX {
            let (line, column) = line_and_column(&self.text, self.range.start);
            return Origin::path(normalize_untrusted_str(&self.file))
                .line(line)
                .char_column(column)
                .into();
        }
        let annotations = marks.iter().map(|(kind, place, label)| {
            let span = place.range.start - start..place.range.end - start;
            kind.span(span).label((!label.is_empty()).then_some(*label))
        });
        Snippet::source(&self.text[start..end])
            .line_start(line_and_column(&self.text, start).0)
            .path(normalize_untrusted_str(&self.file))
            .annotations(annotations)
            .into()
    }
}

impl FileError {
    /// An error about a whole file, which has no line worth showing.
    pub(crate) fn whole_file(name: &str, message: String, help: String) -> FileError {
        FileError::without_excerpt(name, (1, 1), message, help)
    }

    /// An error at a line and column of what cannot be shown.
    pub(crate) fn without_excerpt(
        name: &str,
        (line, column): (usize, usize),
        message: String,
        help: String,
    ) -> FileError {
        FileError {
            problems: vec![FileProblem {
                file: name.into(),
                line,
                column,
                message,
                help: Some(help),
                excerpt: None,
            }],
            count: 1,
        }
    }

    /// What is wrong, in the order of the file, then of the overrides; at least one, and at most the first hundred.
    pub fn problems(&self) -> &[FileProblem] {
        &self.problems
    }

    /// Shows the problems in the layout of `rustc`: message, place, the line with a marker, help. `colour` adds the
    /// codes of a terminal; lines longer than `width` columns are cut. The last line has no line break.
    pub fn render(&self, colour: bool, width: usize) -> String {
        /// The number of problems that fit a screen.
        const SHOWN_MAX: usize = 20;
        /// The narrowest excerpt that can be read.
        const WIDTH_MIN: usize = 40;
        let renderer = if colour {
            Renderer::styled()
        } else {
            Renderer::plain()
        };
        let renderer = renderer
            .decor_style(DecorStyle::Ascii)
            .term_width(width.max(WIDTH_MIN));
        let mut shown: Vec<String> = self
            .problems
            .iter()
            .take(SHOWN_MAX)
            .map(|problem| problem.render(&renderer))
            .collect();
        let more = self.count - shown.len();
        if more > 0 {
            shown.push(format!("and {more} more problems"));
        }
        // The renderer writes out all control characters but these, which a terminal may obey, too.
        let is_control = |c| ('\u{80}'..='\u{9f}').contains(&c);
        shown.join("\n\n").replace(is_control, "\u{fffd}")
    }
}

impl FileProblem {
    fn render(&self, renderer: &Renderer) -> String {
        let mut group = Level::ERROR
            .primary_title(self.message.as_str())
            .elements(None::<Origin<'_>>);
        match &self.excerpt {
            None => {
                let origin = Origin::path(normalize_untrusted_str(&self.file))
                    .line(self.line)
                    .char_column(self.column);
                group = group.element(origin);
            }
            Some(Excerpt { primary, related }) => {
                let mark = (AnnotationKind::Primary, primary, "");
                group = match related {
                    None => group.element(primary.show(&[mark])),
                    Some((place, label)) => {
                        let context = (AnnotationKind::Context, place, *label);
                        if primary.is_near(place) {
                            group.element(primary.show(&[mark, context]))
                        } else {
                            group
                                .element(primary.show(&[mark]))
                                .element(place.show(&[context]))
                        }
                    }
                };
            }
        }
        if let Some(help) = &self.help {
            group = group.element(Level::HELP.message(normalize_untrusted_str(help)));
        }
        renderer.render(&[group])
    }
}

impl Display for FileError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        const WIDTH: usize = 120;
        formatter.write_str(&self.render(false, WIDTH))
    }
}

impl std::error::Error for FileError {}
