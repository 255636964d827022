//! Which branches of a model its runs take.
//!
//! A branch that no run takes may compute anything. The conditions of the graph's If nodes are watched, as outputs of a wider model, whatever computes it;
//! those inside of bodies are not.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};

use onnxforge_ir::{Model, ValueId};
use onnxforge_ops::infer::Inference;
use onnxforge_ops::{Array, Value};
use onnxforge_proto::schema::ValueInfoProto;

/// What is known of the branches of a model.
pub struct Branches(Vec<Condition>);

struct Condition {
    /// The If node, as people call it.
    node: String,
    /// The value that decides.
    name: String,
    /// Whether it was seen to be false, and to be true.
    seen: [bool; 2],
}

/// The model with conditions that nodes compute as outputs, and what is known of its branches, which is nothing yet.
pub fn watched(model: &Model) -> (Cow<'_, Model>, Branches) {
    let branching = model.nodes_in(model.main()).filter(|(_, node)| node.op().is("If"));
    let found: Vec<(String, ValueId)> =
        branching.filter_map(|(id, node)| Some((model.node_label(id), node.input(0)?))).collect();
    let is_hidden =
        |value: &ValueId| model.value(*value).node().is_some() && !model.value(*value).is_exposed();
    let hidden: BTreeSet<ValueId> = found.iter().map(|(_, value)| *value).filter(is_hidden).collect();
    let conditions = found.into_iter().map(|(node, value)| {
        let name = model.value(value).name().to_string();
        Condition { node, name, seen: [false; 2] }
    });
    let branches = Branches(conditions.collect());
    if hidden.is_empty() {
        return (Cow::Borrowed(model), branches);
    }
    let inference = Inference::of(model);
    let declare = |value: ValueId| ValueInfoProto {
        r#type: inference.declaration(value).map(Box::new),
        ..ValueInfoProto::default()
    };
    let hidden: Vec<ValueId> = hidden.into_iter().collect();
    (Cow::Owned(model.with_outputs(&hidden, &declare)), branches)
}

impl Branches {
    /// Remembers which branches a run took. Answers whether there is one that none took before.
    pub fn see(&mut self, inputs: &HashMap<String, Value>, outputs: &HashMap<String, Value>) -> bool {
        let mut is_new = false;
        for Condition { name, seen, .. } in &mut self.0 {
            let value = outputs.get(name).or_else(|| inputs.get(name));
            let decided = value.and_then(|value| truth(value.array().ok()?));
            if let Some(decided) = decided {
                is_new |= !std::mem::replace(&mut seen[usize::from(decided)], true);
            }
        }
        is_new
    }

    /// Branches that no run took, where it is known which one a run takes.
    pub fn untaken(&self) -> impl Iterator<Item = String> {
        self.0.iter().filter_map(|Condition { node, seen, .. }| match seen {
            [false, true] => Some(format!("else_branch of {node}")),
            [true, false] => Some(format!("then_branch of {node}")),
            _ => None,
        })
    }
}

fn truth(array: &Array) -> Option<bool> {
    array.to_f64s().ok()?.first().map(|&number| number != 0.0)
}
