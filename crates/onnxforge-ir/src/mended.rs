//! What a file says otherwise than the standard asks for, and was mended when it was loaded.

use std::fmt;

/// One thing that was mended while a model was loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mend {
    /// Nodes of a graph were not in topological order, and are now.
    Sorted {
        /// The graph or function.
        graph: String,
    },
    /// Nodes use a domain that was not imported.
    Imported {
        /// The domain.
        domain: String,
        /// The version that is imported now.
        version: i64,
    },
    /// A domain was imported several times; the last import holds.
    ImportedOnce {
        /// The domain; empty for ai.onnx.
        domain: String,
        /// The version that holds.
        version: i64,
    },
    /// The model uses what the declared version of the format does not have.
    IrVersion {
        /// The declared version.
        from: i64,
        /// The version that is declared now.
        to: i64,
        /// What needs it.
        why: &'static str,
    },
    /// Graphs had no name, and have one now.
    Named {
        /// How many.
        graphs: usize,
    },
    /// Outputs of the graph declared no type, and have the one that follows now.
    Typed {
        /// How many.
        outputs: usize,
    },
    /// Nodes had the name of another node of their graph, and have names of their own now.
    Renamed {
        /// How many.
        nodes: usize,
        /// The first name that was used twice.
        first: String,
    },
}

impl fmt::Display for Mend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sorted { graph } => {
                write!(f, "the nodes of graph {:?} were not in topological order; sorted them", cut(graph))
            }
            Self::Imported { domain, version } => {
                write!(f, "the domain {:?} was not imported; imported version {version}", cut(domain))
            }
            Self::ImportedOnce { domain, version } => {
                let domain = if domain.is_empty() { "ai.onnx" } else { cut(domain) };
                write!(
                    f,
                    "the domain {domain:?} was imported several times; kept version {version}, the last one"
                )
            }
            Self::IrVersion { from, to, why } => {
                write!(f, "{why}, which IR version {from} does not allow; declared IR version {to}")
            }
            Self::Named { graphs: 1 } => f.write_str("a graph had no name; named it"),
            Self::Named { graphs } => write!(f, "{graphs} graphs had no name; named them"),
            Self::Typed { outputs: 1 } => f.write_str("an output had no type; declared the one that follows"),
            Self::Typed { outputs } => {
                write!(f, "{outputs} outputs had no type; declared the ones that follow")
            }
            Self::Renamed { nodes: 1, first } => {
                write!(f, "two nodes had the name {:?}; renamed the second", cut(first))
            }
            Self::Renamed { nodes, first } => {
                write!(
                    f,
                    "{nodes} nodes had the name of another node, such as {:?}; renamed them",
                    cut(first)
                )
            }
        }
    }
}

/// The start of a name, for one line of text.
fn cut(name: &str) -> &str {
    name.char_indices().nth(200).and_then(|(end, _)| name.get(..end)).unwrap_or(name)
}
