//! A host file that has been parsed, and the hosts that it makes with different overrides.

use laxity_config::{FileError, kinds};

use crate::file::Host;
use crate::open::{self, Open};
use crate::order;

/// A host file that has been parsed and not yet checked: [`Document::host`] makes hosts of it, with
/// different overrides, without parsing it again.
#[derive(Debug, Clone)]
pub struct Document(pub(crate) laxity_config::Document);

impl Document {
    /// Parses the text of a host file. `name` is what messages call it.
    ///
    /// # Errors
    ///
    /// If it is not text or not TOML, or empty, or too large.
    pub fn parse(text: impl AsRef<[u8]>, name: &str) -> Result<Document, FileError> {
        laxity_config::Document::parse(text.as_ref(), name, &kinds::HOST).map(Document)
    }

    /// The text of the file, and what messages call it: [`Document::parse`] makes the same document of them.
    pub fn source(&self) -> (&str, &str) {
        (self.0.text(), self.0.name())
    }

    /// Whether the file itself gives a value at a path of keys, such as "host.costs".
    pub fn gives(&self, path: &str) -> bool {
        self.0.gives(path)
    }

    /// The host, with `overrides` ("domain.control.budget=3 ms") applied in their order, as
    /// [`laxity_config::Document::read`] says.
    ///
    /// # Errors
    ///
    /// All that is wrong with the file and the overrides.
    pub fn host(&self, overrides: &[impl AsRef<str>]) -> Result<Host, FileError> {
        self.host_of(&texts(overrides))
    }

    /// [`Document::host`] for one type of overrides, so that all that reads a host file is compiled
    /// here, and not in each crate that calls it.
    fn host_of(&self, overrides: &[&str]) -> Result<Host, FileError> {
        self.0.read(overrides, order::resolve)
    }

    /// The host, with what the file and `overrides` leave open. Open values are harmless placeholders in the host: a
    /// budget of 1 ns, a period of 1 h, different priorities, all CPUs, the deferrable server.
    ///
    /// # Errors
    ///
    /// All that is wrong with what is not open.
    pub fn open(&self, overrides: &[impl AsRef<str>]) -> Result<(Host, Open), FileError> {
        self.open_of(&texts(overrides))
    }

    /// [`Document::open`] for one type of overrides, as [`Document::host_of`].
    fn open_of(&self, overrides: &[&str]) -> Result<(Host, Open), FileError> {
        let open = self.0.read_open(overrides, open::open_values)?;
        let given = overrides.iter().map(ToString::to_string);
        let all: Vec<String> = given.chain(open.placeholders()).collect();
        let resolve = |_: &[_], file: &_, root, problems: &_| order::resolve(file, root, problems);
        Ok((self.0.read_open(&all, resolve)?, open))
    }

    /// The paths of all values that the file and `overrides` leave open with "?".
    ///
    /// # Errors
    ///
    /// Overrides that lead nowhere.
    pub fn open_paths(&self, overrides: &[impl AsRef<str>]) -> Result<Vec<String>, FileError> {
        self.0.open_paths(overrides)
    }

    /// What is wrong with the value at a path, as [`laxity_config::Document::error_at`] says.
    pub fn error_at(
        &self,
        overrides: &[impl AsRef<str>],
        path: &str,
        message: &str,
        help: &str,
    ) -> FileError {
        self.0.error_at(overrides, path, message, help)
    }

    /// A document that was made of pieces, as the text of a file.
    pub fn to_toml(&self) -> String {
        self.0.to_toml()
    }

    /// The text of the file with values put in, as [`laxity_config::Document::with_values`] says.
    ///
    /// # Errors
    ///
    /// A path under which the file has no place for a value.
    pub fn with_values(&self, values: &[(String, String)]) -> Result<String, FileError> {
        self.0.with_values(values)
    }
}

/// Overrides as the texts that they are.
pub(crate) fn texts(overrides: &[impl AsRef<str>]) -> Vec<&str> {
    overrides.iter().map(AsRef::as_ref).collect()
}
