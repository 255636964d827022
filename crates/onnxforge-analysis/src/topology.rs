//! Whether two models have the same topology, and where they first differ.
//!
//! There are three answers, from the strongest ([`Sameness`]):
//!
//! - **Identical**: equal once `metadata_props` and `doc_string` are removed everywhere. Names, orders, attributes, types, shapes,
//!   `value_info` and the bits of weights count; where and in which field a tensor's elements are stored does not. The order of nodes is
//!   that in which they are saved.
//! - **Equal**: there is a pairing of nodes and values that keeps what each node calls, its attributes, the order of its inputs and
//!   outputs, its bodies, constants bit for bit, and the interface of the model: names, order, types and shapes of inputs and outputs,
//!   names of dimensions included. Names inside, the order of nodes, initializers and functions, and what follows from the nodes
//!   (`value_info`) do not count; neither do unused imports, annotations and training information. Nothing is simplified: swapped
//!   inputs of an Add and a default that is written out are differences.
//! - **Different**: with a report.
//!
//! Inputs of nodes are ordered, so the pairing is forced from the outputs back to the inputs: it is found without search, and is the
//! proof. Only nodes that no output depends on have to be searched for: equal ones are told apart by what is around them, and a
//! bounded number of ways is tried, so that a riddle made of such nodes may be called different although it has a solution. What is
//! called equal is equal: hashes group and order, they prove nothing.

mod content;
mod exact;
mod hashes;
mod pair;
mod report;

use serde::Serialize;

use onnxforge_ir::io::message::tensors;
use onnxforge_ir::tensor::Data;
use onnxforge_ir::{Model, NodeId};
pub use report::{
    ConstantDifference, Differences, Few, NodeDifference, OperatorDifference, OpsetDifference, PortDifference,
};

/// One of the two models.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The first one.
    First,
    /// The second one.
    Second,
}

/// How far two models are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Sameness {
    /// Not even the structure is.
    Different,
    /// The structure is, up to names and order inside.
    Equal,
    /// Everything is but metadata.
    Identical,
}

/// What a comparison found.
#[derive(Clone, Debug, Serialize)]
pub struct Topology {
    /// The answer.
    pub sameness: Sameness,
    /// Nodes of the models, bodies and functions included.
    pub nodes: [usize; 2],
    /// Tensors of each model whose elements cannot be read. They count as equal where both models say that they lie at the same
    /// place.
    pub unread: [usize; 2],
    /// The first thing that keeps the models from being identical.
    pub not_identical: Option<String>,
    /// What keeps them from being equal.
    pub differences: Option<Differences>,
}

/// Names the module that a node belongs to, where that is known.
pub type Label<'a> = dyn Fn(Side, NodeId) -> Option<String> + 'a;

/// Compares the topology of two models.
pub fn compare(a: &Model, b: &Model, label: &Label<'_>) -> Topology {
    let unread = |model| tensors(model).filter(|t| matches!(t.data(), Data::Unavailable(_))).count();
    let mut contents = content::Contents::default();
    let not_identical = exact::first_difference(a, b, &mut contents);
    let differences = not_identical.as_ref().and_then(|_| report::differences(a, b, label, &mut contents));
    Topology {
        sameness: match (&not_identical, &differences) {
            (None, _) => Sameness::Identical,
            (_, None) => Sameness::Equal,
            _ => Sameness::Different,
        },
        nodes: [a.node_count(), b.node_count()],
        unread: [unread(a), unread(b)],
        not_identical,
        differences,
    }
}
