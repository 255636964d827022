//! Models that draw random numbers, compared around the draws: what nodes draw becomes an input, which is the same for both models.

use std::collections::{BTreeSet, HashMap};

use super::{VerifyError, paired_outputs};
use onnxforge_ir::{Def, Model, NodeId, ValueId};
use onnxforge_ops::callee::{Callee, Functions};
use onnxforge_ops::infer::Inference;
use onnxforge_ops::signature::AttributeDef;
use onnxforge_proto::schema::ValueInfoProto;

/// Two models whose random numbers come in as inputs.
pub struct Apart {
    /// The models.
    pub models: [Model; 2],
    /// Outputs that belong together: those of the original models, and what their random nodes take.
    pub pairs: Vec<(String, String)>,
    /// What inputs of the first model are called in the second, where that differs.
    pub renamed: HashMap<String, String>,
    /// What is drawn in another way: its name in the first model, and how.
    pub differs: Option<(String, String)>,
}

/// Whether the model draws random numbers. Dropout does so in training only.
pub fn is_random(model: &Model) -> bool {
    !random_nodes(model).is_empty()
}

/// Nodes that draw random numbers, wherever they stand.
fn random_nodes(model: &Model) -> Vec<NodeId> {
    let functions = Functions::of(model);
    let trains = |id: NodeId, opset: i64| {
        let node = model.node(id);
        let off = |value: ValueId| {
            model.constant(value).is_some_and(|tensor| tensor.bytes().is_ok_and(|b| *b == [0]))
        };
        node.input(2).is_some_and(|value| !off(value)) || opset < 7 && node.attr_int("is_test") != Some(1)
    };
    let is_random = |id: NodeId| match functions.callee(model, id, None) {
        Callee::Operator(call) => {
            call.def.random && (!model.node(id).op().is("Dropout") || trains(id, call.opset))
        }
        _ => false,
    };
    model.nodes().map(|(id, _)| id).filter(|&id| is_random(id)).collect()
}

/// Takes the random nodes out of both models. `None` where neither has any.
pub fn apart(first: &Model, second: &Model) -> Result<Option<Apart>, VerifyError> {
    let random = [first, second].map(random_nodes);
    if random.iter().all(Vec::is_empty) {
        return Ok(None);
    }
    let undetermined = |why: &str| Err(VerifyError::Undetermined(why.to_owned()));
    for (model, nodes) in [first, second].into_iter().zip(&random) {
        if nodes.iter().any(|&node| model.node(node).scope() != model.main()) {
            return undetermined("random numbers are drawn inside of a body or function");
        }
    }
    let drawn = |model: &Model, node: NodeId| {
        model.node(node).output(0).map(|value| model.value(value).name().to_string())
    };
    let [of_first, of_second] = &random;
    let named = |&b: &NodeId| {
        let name = drawn(second, b)?;
        of_first.iter().copied().find(|&a| drawn(first, a).is_some_and(|other| other == name)).map(|a| (a, b))
    };
    let by_name: Option<Vec<(NodeId, NodeId)>> = of_second.iter().map(named).collect();
    let by_order = || of_first.iter().copied().zip(of_second.iter().copied()).collect::<Vec<_>>();
    let is_alike = |&(a, b): &(NodeId, NodeId)| other_parameter(first, second, [a, b]).is_none();
    let nodes = match by_name {
        // Names of draws mean nothing where their order fits better.
        Some(nodes) if !nodes.iter().all(is_alike) && by_order().iter().all(is_alike) => by_order(),
        Some(nodes) => nodes,
        None if of_first.len() == of_second.len() => by_order(),
        None => return undetermined("the models draw random numbers at different places"),
    };
    if nodes.iter().any(|&(a, b)| first.node(a).op() != second.node(b).op()) {
        return undetermined("the models draw different random numbers");
    }
    let mut differs = nodes.iter().find_map(|&(a, b)| {
        Some((drawn(first, a).unwrap_or_default(), other_parameter(first, second, [a, b])?))
    });
    let mut pairs = paired_outputs(first, second)?;
    let mut renamed = HashMap::new();
    let mut taken: [Vec<ValueId>; 2] = Default::default();
    for &(a, b) in &nodes {
        for (x, y) in first.node(a).outputs().iter().zip(second.node(b).outputs()) {
            if let (Some(x), Some(y)) = (*x, *y) {
                renamed.insert(first.value(x).name().to_string(), second.value(y).name().to_string());
            }
        }
        let [of_first, of_second] = [first.node(a).inputs(), second.node(b).inputs()];
        for place in 0..of_first.len().max(of_second.len()) {
            let of = |inputs: &[Option<ValueId>]| inputs.get(place).copied().flatten();
            let (x, y) = match (of(of_first), of(of_second)) {
                (Some(x), Some(y)) => (x, y),
                (None, None) => continue,
                _ => {
                    let how =
                        || format!("only one of the models gives input {place} of {}", first.node_label(a));
                    differs.get_or_insert_with(|| (drawn(first, a).unwrap_or_default(), how()));
                    continue;
                }
            };
            let named = [first.value(x).name().to_string(), second.value(y).name().to_string()];
            match [first.constant(x), second.constant(y)] {
                [Some(x), Some(y)] if x.same_bits(y) => {}
                [Some(_), Some(_)] => {
                    let how = || format!("input {place} of {} has another value", first.node_label(a));
                    differs.get_or_insert_with(|| (drawn(first, a).unwrap_or_default(), how()));
                }
                _ if is_input(first, x) && is_input(second, y) && named[0] == named[1] => {}
                _ => {
                    let [named_x, named_y] = named;
                    pairs.push((named_x, named_y));
                    taken[0].push(x);
                    taken[1].push(y);
                }
            }
        }
    }
    let mut seen = BTreeSet::new();
    pairs.retain(|pair| seen.insert(pair.clone()));
    let [of_first, of_second] = random;
    let [taken_first, taken_second] = taken;
    let models = [without(first, &of_first, &taken_first), without(second, &of_second, &taken_second)];
    Ok(Some(Apart { models, pairs, renamed, differs }))
}

/// Whether a value comes into the model.
fn is_input(model: &Model, value: ValueId) -> bool {
    matches!(model.value(value).def(), Def::Input { .. })
}

/// A parameter of a draw that the models do not have in common, where both versions of the operator know it.
fn other_parameter(first: &Model, second: &Model, nodes: [NodeId; 2]) -> Option<String> {
    let parameters = |model: &Model, id: NodeId| -> Vec<(&'static str, Option<String>)> {
        let functions = Functions::of(model);
        let Callee::Operator(call) = functions.callee(model, id, None) else { return Vec::new() };
        let known = call.signature.map(|signature| signature.attributes.as_slice()).unwrap_or_default();
        let value = |def: &AttributeDef| match model.node(id).attr(def.name) {
            Some(value) => Some(format!("{value:?}")),
            None => def.default.as_ref().map(|value| format!("{value:?}")),
        };
        known.iter().map(|def| (def.name, value(def))).collect()
    };
    let of_second = parameters(second, nodes[1]);
    let other = parameters(first, nodes[0]).into_iter().find(|(name, value)| {
        // The element type may be said or left to the input.
        let is_optional = |found: &Option<String>| *name == "dtype" && (found.is_none() || value.is_none());
        let found = of_second.iter().find(|(other, _)| other == name);
        found.is_some_and(|(_, found)| found != value && !is_optional(found))
    })?;
    Some(format!("{} draws with another {}", first.node_label(nodes[0]), other.0))
}

/// The model without these nodes, whose results become inputs; `more` values are outputs, too.
fn without(model: &Model, random: &[NodeId], more: &[ValueId]) -> Model {
    let inference = Inference::of(model);
    let main = model.scope(model.main());
    let nodes: Vec<NodeId> =
        model.nodes_in(model.main()).map(|(id, _)| id).filter(|id| !random.contains(id)).collect();
    let mut outputs: Vec<ValueId> = main.outputs().iter().map(|port| port.value).collect();
    outputs.extend(more.iter().copied().filter(|value| !outputs.contains(value)).collect::<Vec<_>>());
    let ports: HashMap<ValueId, &ValueInfoProto> =
        main.inputs().iter().chain(main.outputs()).map(|port| (port.value, &*port.info)).collect();
    let declare = |value: ValueId| match ports.get(&value) {
        Some(&info) => info.clone(),
        None => {
            ValueInfoProto { r#type: inference.declaration(value).map(Box::new), ..ValueInfoProto::default() }
        }
    };
    model.cut(&nodes, &outputs, &declare).model
}
