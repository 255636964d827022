//! What somebody recorded of a model: the JSON of a module table, with or without the origins of nodes.
//!
//! Three forms are read: the bare table `{path: {class, …}}`, the same under `modules` with `origins` beside it, and the sidecar that `tag` writes.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::marker::PhantomData;

use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value as Json;

use super::module::{Module, ModuleTable, TableError};
use super::tag::Policy;

/// A module table, and what else was recorded with it.
#[derive(Clone, Debug, Default)]
pub struct Recorded {
    /// The modules.
    pub table: ModuleTable,
    /// Paths of the modules that nodes come from, by the names of the nodes.
    pub origins: HashMap<String, Vec<String>>,
    /// The fingerprint of the graph that all of this belongs to.
    pub fingerprint: Option<String>,
    /// Facts about nodes by the names of their outputs, from a sidecar or from a model that was tagged.
    pub anchors: HashMap<String, Anchor>,
    /// What tags were made under.
    pub policy: Option<Policy>,
}

/// What a sidecar tells of a node.
#[derive(Clone, Debug, Deserialize)]
pub struct Anchor {
    /// Paths of its modules.
    pub modules: Vec<String>,
    /// What that was known from.
    #[serde(default)]
    pub evidence: Option<String>,
}

/// Why a file of modules cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RecordedError {
    /// It is no JSON, or not the JSON that is read.
    #[error("no table of modules: {0}")]
    Json(#[from] serde_json::Error),
    /// The table contradicts itself.
    #[error("{0}")]
    Table(#[from] TableError),
    /// A later version of this program wrote it.
    #[error("layout version {0:?} is not known here; a newer onnxforge wrote it")]
    Version(String),
}

/// The layout that this version writes; another first number is another layout.
pub const SCHEMA_VERSION: &str = "1.0";

/// Reads a table in any of its forms.
pub fn read(json: &[u8]) -> Result<Recorded, RecordedError> {
    let keys: HashMap<String, IgnoredAny> = serde_json::from_slice(json)?;
    if keys.contains_key("") || !keys.contains_key("modules") {
        let bare: Ordered<Entry> = serde_json::from_slice(json)?;
        return Ok(Recorded { table: table(bare)?, ..Recorded::default() });
    }
    let full: Full = serde_json::from_slice(json)?;
    if let Some(version) = full.schema_version
        && version.split('.').next() != SCHEMA_VERSION.split('.').next()
    {
        return Err(RecordedError::Version(version));
    }
    let nodes = full.nodes.unwrap_or_default().0.into_iter();
    let anchors = nodes.flat_map(|(_, node)| {
        let anchor = Anchor { modules: node.modules, evidence: node.evidence };
        node.outputs.into_iter().map(move |output| (output, anchor.clone())).collect::<Vec<_>>()
    });
    let paths: Vec<&String> = full.modules.0.iter().map(|(path, _)| path).collect();
    let numbered = full.anchors.into_iter().map(|(output, modules)| {
        let modules = modules.iter().filter_map(|&index| paths.get(index).map(ToString::to_string)).collect();
        (output, Anchor { modules, evidence: None })
    });
    let mut anchors: HashMap<String, Anchor> = anchors.chain(numbered).collect();
    for (evidence, outputs) in full.weak {
        for output in outputs {
            if let Some(anchor) = anchors.get_mut(&output) {
                anchor.evidence = Some(evidence.clone());
            }
        }
    }
    Ok(Recorded {
        table: table(full.modules)?,
        origins: full.origins.into_iter().flatten().map(|(node, paths)| (node, paths.into())).collect(),
        fingerprint: full.fingerprint,
        anchors,
        policy: full.policy,
    })
}

/// The table of listed modules.
fn table(listed: Ordered<Entry>) -> Result<ModuleTable, RecordedError> {
    let modules = listed.0.into_iter().map(|(path, entry)| Module {
        path: path.into(),
        class: entry.qualified_class.or(entry.class).map(Into::into),
        alias_of: entry.alias_of.map(Into::into),
        forward_args: entry.forward_args,
        forward_defaults: entry.forward_defaults,
        direct_parameters: entry.direct_parameters,
        direct_buffers: entry.direct_buffers,
        children: entry.children.0,
    });
    Ok(ModuleTable::new(modules.collect())?)
}

#[derive(Deserialize)]
struct Full {
    #[serde(default)]
    schema_version: Option<String>,
    #[serde(default)]
    fingerprint: Option<String>,
    #[serde(default)]
    policy: Option<Policy>,
    modules: Ordered<Entry>,
    #[serde(default)]
    origins: Option<HashMap<String, Paths>>,
    #[serde(default)]
    nodes: Option<Ordered<Node>>,
    /// Modules by their number, for the first result of each node.
    #[serde(default)]
    anchors: HashMap<String, Vec<usize>>,
    /// Results whose modules are known from less than exact evidence.
    #[serde(default)]
    weak: BTreeMap<String, Vec<String>>,
}

#[derive(Deserialize)]
struct Entry {
    #[serde(default)]
    class: Option<String>,
    /// The class with the Python module that defines it, where `class` is without.
    #[serde(default)]
    qualified_class: Option<String>,
    #[serde(default)]
    alias_of: Option<String>,
    #[serde(default)]
    forward_args: Vec<String>,
    #[serde(default)]
    forward_defaults: serde_json::Map<String, Json>,
    #[serde(default)]
    direct_parameters: Vec<String>,
    #[serde(default)]
    direct_buffers: Vec<String>,
    #[serde(default)]
    children: Ordered<String>,
}

#[derive(Deserialize)]
struct Node {
    #[serde(default)]
    outputs: Vec<String>,
    #[serde(default)]
    modules: Vec<String>,
    #[serde(default)]
    evidence: Option<String>,
}

/// One path, or several.
#[derive(Deserialize)]
#[serde(untagged)]
enum Paths {
    One(String),
    Several(Vec<String>),
}

impl From<Paths> for Vec<String> {
    fn from(paths: Paths) -> Self {
        match paths {
            Paths::One(path) => vec![path],
            Paths::Several(paths) => paths,
        }
    }
}

/// The entries of a JSON object, in their order.
struct Ordered<T>(Vec<(String, T)>);

impl<T> Default for Ordered<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Ordered<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Entries<T> {
            type Value = Ordered<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Ordered(entries))
            }
        }
        deserializer.deserialize_map(Entries(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::super::module::ModuleId;
    use super::*;

    #[test]
    fn all_forms_and_their_order() {
        let bare = br#"{"": {"class": "m.Net", "children": {"b": "B", "a": "A"}}, "b": {}, "a": {"direct_parameters": ["weight"]}, "b.10": {}, "b.9": {}}"#;
        let read_bare = read(bare).unwrap().table;
        let paths: Vec<&str> = read_bare.iter().map(|(_, module)| &*module.path).collect();
        assert_eq!(paths, ["", "b", "b.10", "b.9", "a"]);
        assert_eq!(
            read_bare.get(ModuleId::ROOT).children,
            [("b".into(), "B".into()), ("a".into(), "A".into())]
        );
        let full = br#"{"modules": {"a": {"class": "A"}}, "origins": {"/a/Relu": "a", "x": ["a", ""]}}"#;
        let full = read(full).unwrap();
        assert_eq!(
            (full.table.len(), full.origins["x"].len(), full.origins["/a/Relu"][0].as_str()),
            (2, 2, "a")
        );
    }

    #[test]
    fn contradictions_are_told() {
        let says = |json: &str| read(json.as_bytes()).unwrap_err().to_string();
        assert!(says("[]").contains("no table of modules"));
        assert!(says(r#"{"a": 3}"#).contains("line 1"));
        assert!(says(r#"{"a": {}, "a": {}}"#).contains("listed twice"));
        assert!(says(r#"{"a": {"alias_of": "b"}, "b": {"alias_of": "a"}}"#).contains("alias of itself"));
        assert!(says(r#"{"a": {"alias_of": "a"}}"#).contains("alias of itself"));
        assert!(says(r#"{"a": {"alias_of": "c"}}"#).contains("does not have"));
        assert!(says(r#"{"schema_version": "9.0", "modules": {}}"#).contains("newer"));
        assert!(says(&format!(r#"{{"{}": {{}}}}"#, "a.".repeat(5000))).contains("levels"));
    }
}
