//! The kinds of files that Laxity reads, and the recognition of each.

use crate::problem::Problem;
use crate::tree::{Node, Value};

/// What messages say about a kind of file.
#[derive(Debug, Clone, Copy)]
pub struct FileKind {
    /// "host file"
    pub noun: &'static str,
    /// "a host file"
    pub with_article: &'static str,
    /// What such a file has at least. It is the help for an empty file.
    pub least: &'static str,
    /// What finds values that are left open, written "?", as a help: "laxity design finds a value". `None`: no file of
    /// this kind leaves values open.
    pub open: Option<&'static str>,
    /// The list of tables that every file of this kind has and no other kind has. `None`: such files are not
    /// recognized where another kind is read, and no other is recognized in their place.
    pub list: Option<&'static str>,
    /// The commands that read such files, as a help.
    pub readers: &'static str,
}

/// A host, for the simulator and the analysis.
pub const HOST: FileKind = FileKind {
    noun: "host file",
    with_article: "a host file",
    least: "a host file has at least a duration, [host] with cpus and policy, and a [[domain]]",
    open: Some("write a value; `laxity design` finds one"),
    list: Some("domain"),
    readers: "`laxity check`, `laxity run` and most other commands read it",
};

/// Hosts, and guests that are placed on them.
pub const FLEET: FileKind = FileKind {
    noun: "fleet file",
    with_article: "a fleet file",
    least: "a fleet file has at least a duration, a [[host]] with cpus and policy, and a [[guest]]",
    open: None,
    list: Some("guest"),
    readers: "`laxity design` reads it",
};

/// Hosts whose guests are protected, and the site that these guests are.
pub const SITE: FileKind = FileKind {
    noun: "site file",
    with_article: "a site file",
    least: "a site file has at least two [[host]] with name and address, and a [[vm]]",
    open: None,
    list: Some("vm"),
    readers: "`laxity site` and `laxity protect` read it",
};

/// Agreements about a link.
pub const AGREEMENTS: FileKind = FileKind {
    noun: "agreements file",
    with_article: "an agreements file",
    least: "an agreements file has at least [link] with interface and rate, and an [[agreement]]",
    open: None,
    list: Some("agreement"),
    readers: "`laxity bandwidth` reads it",
};

const RECOGNIZED: [FileKind; 4] = [HOST, FLEET, SITE, AGREEMENTS];

/// The one problem of a file of another kind, in place of all that a reader of `kind` would find wrong with it.
pub(crate) fn of_another(root: &Node, kind: &FileKind) -> Option<Problem> {
    let Value::Table(entries) = &root.value else {
        return None;
    };
    let is_list =
        |node: &Node| matches!(&node.value, Value::Array(elements) if !elements.is_empty());
    let list =
        |name: &str| (entries.iter()).find(|entry| &*entry.key == name && is_list(&entry.node));
    let own = kind.list?;
    if list(own).is_some() {
        return None;
    }
    let others = RECOGNIZED
        .iter()
        .filter_map(|other| Some((other, list(other.list?)?)));
    let (other, entry) = others.min_by_key(|(_, entry)| entry.key_span)?;
    Some(Problem {
        help: Some(other.readers.into()),
        ..Problem::new(
            entry.key_span,
            format!("this is {}, not {}", other.with_article, kind.with_article),
        )
    })
}
