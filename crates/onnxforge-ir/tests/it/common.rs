//! Small models for tests, written down as messages, and what every test asks of a model.

pub mod random;

use onnxforge_ir::io::{load_bytes, to_bytes};
use onnxforge_ir::origin::Fate;
use onnxforge_ir::{Def, EditError, Model, NodeId, Rewrite, ScopeId, ValueId};
use onnxforge_proto::blob::Blob;
use onnxforge_proto::schema::{
    AttributeProto, Dimension, FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto,
    TensorProto, TensorShapeProto, TensorType, TypeProto, ValueInfoProto,
};
use onnxforge_proto::wire;

/// `a, b = Op(c, , d)`; an optional operand is left out between commas.
pub fn node(text: &str) -> NodeProto {
    let (outputs, call) = text.split_once('=').unwrap();
    let (op, inputs) = call.trim().strip_suffix(')').unwrap().split_once('(').unwrap();
    let names = |list: &str| match list.trim() {
        "" => Vec::new(),
        list => list.split(',').map(|name| name.trim().into()).collect(),
    };
    NodeProto {
        input: names(inputs),
        output: names(outputs),
        op_type: Some(op.into()),
        name: Some(format!("node_{}", outputs.split(',').next().unwrap().trim()).into()),
        ..NodeProto::default()
    }
}

/// A node with bodies.
pub fn node_with(text: &str, bodies: Vec<(&str, GraphProto)>) -> NodeProto {
    let attribute = bodies
        .into_iter()
        .map(|(name, graph)| AttributeProto {
            name: Some(name.into()),
            r#type: Some(5),
            g: Some(Box::new(graph)),
            ..AttributeProto::default()
        })
        .collect();
    NodeProto { attribute, ..node(text) }
}

/// `If` with its two bodies.
pub fn if_node(text: &str, then_branch: GraphProto, else_branch: GraphProto) -> NodeProto {
    node_with(text, vec![("then_branch", then_branch), ("else_branch", else_branch)])
}

/// A value of type `float[2]`.
pub fn info(name: &str) -> ValueInfoProto {
    let dim = vec![Dimension { dim_value: Some(2), ..Dimension::default() }];
    let shape = Some(Box::new(TensorShapeProto { dim, ..TensorShapeProto::default() }));
    let tensor = TensorType { elem_type: Some(1), shape, ..TensorType::default() };
    let ty = TypeProto { tensor_type: Some(Box::new(tensor)), ..TypeProto::default() };
    ValueInfoProto { name: Some(name.into()), r#type: Some(Box::new(ty)), ..ValueInfoProto::default() }
}

/// A graph; constants are written `name: value value`.
pub fn graph(inputs: &[&str], constants: &[&str], nodes: Vec<NodeProto>, outputs: &[&str]) -> GraphProto {
    GraphProto {
        name: Some("g".into()),
        node: nodes,
        input: inputs.iter().map(|name| info(name)).collect(),
        initializer: constants.iter().map(|text| constant(text)).collect(),
        output: outputs.iter().map(|name| info(name)).collect(),
        ..GraphProto::default()
    }
}

/// `name: value value`, a `float[n]`.
pub fn constant(text: &str) -> TensorProto {
    let (name, values) = text.split_once(':').unwrap();
    let values: Vec<f32> = values.split_whitespace().map(|value| value.parse().unwrap()).collect();
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    TensorProto {
        name: Some(name.trim().into()),
        dims: vec![values.len() as i64],
        data_type: Some(1),
        raw_data: Some(Blob::from(bytes).into()),
        ..TensorProto::default()
    }
}

pub fn function(name: &str, inputs: &[&str], nodes: Vec<NodeProto>, outputs: &[&str]) -> FunctionProto {
    FunctionProto {
        name: Some(name.into()),
        domain: Some("local".into()),
        input: inputs.iter().map(|&name| name.into()).collect(),
        output: outputs.iter().map(|&name| name.into()).collect(),
        node: nodes,
        opset_import: vec![opset("", 21)],
        ..FunctionProto::default()
    }
}

fn opset(domain: &str, version: i64) -> OperatorSetIdProto {
    OperatorSetIdProto {
        domain: Some(domain.into()),
        version: Some(version),
        ..OperatorSetIdProto::default()
    }
}

pub fn message(graph: GraphProto) -> ModelProto {
    ModelProto {
        ir_version: Some(10),
        opset_import: vec![opset("", 21), opset("local", 1)],
        graph: Some(Box::new(graph)),
        ..ModelProto::default()
    }
}

pub fn encoded(message: &ModelProto) -> Vec<u8> {
    let mut bytes = Vec::new();
    wire::encode(message).write_to(&mut bytes).unwrap();
    bytes
}

pub fn loaded(message: &ModelProto) -> Model {
    let model = load_bytes(encoded(message), None, &Default::default()).unwrap();
    model.validate().unwrap();
    model
}

pub fn model(graph: GraphProto) -> Model {
    loaded(&message(graph))
}

/// The only value of this name.
pub fn value(model: &Model, name: &str) -> ValueId {
    let mut found = model.values().filter(|(_, value)| &**value.name() == name).map(|(id, _)| id);
    let first = found.next().unwrap_or_else(|| panic!("no value {name:?}"));
    assert_eq!(found.next(), None, "more than one value {name:?}");
    first
}

/// The node that computes the value of this name.
pub fn producer(model: &Model, name: &str) -> NodeId {
    model.value(value(model, name)).node().unwrap()
}

/// Names of the outputs of a scope.
pub fn outputs(model: &Model, scope: ScopeId) -> Vec<String> {
    model.scope(scope).outputs().iter().map(|port| model.value(port.value).name().to_string()).collect()
}

/// The nodes of a scope as text, in their order.
pub fn listing(model: &Model, scope: ScopeId) -> Vec<String> {
    let names = |values: &[Option<ValueId>]| {
        let names: Vec<&str> =
            values.iter().map(|value| value.map_or("", |id| model.value(id).name())).collect();
        names.join(", ")
    };
    let nodes = model.nodes_in(scope);
    nodes
        .map(|(_, node)| format!("{} = {}({})", names(node.outputs()), node.op(), names(node.inputs())))
        .collect()
}

/// Bytes of all constants, defaults of inputs not counted.
pub fn constant_bytes(model: &Model) -> i64 {
    model.values().filter_map(|(_, value)| value.constant()).map(|constant| constant.byte_len() as i64).sum()
}

pub fn fate(model: &Model, node: NodeId) -> Fate {
    model.fates().into_iter().find(|(id, _)| *id == node).unwrap().1
}

/// Every source node has exactly one fate, and it is the right one.
pub fn check_fates(model: &Model) {
    let fates = model.fates();
    let nodes: Vec<NodeId> = fates.iter().map(|(id, _)| *id).collect();
    assert_eq!(nodes, model.source_nodes().collect::<Vec<_>>(), "each node of the file once");
    for (id, fate) in fates {
        assert_eq!(fate == Fate::Kept, model.node(id).is_live(), "{id:?}: {fate:?}");
        let lives_in = |origin| model.origins().sources(origin).contains(&id);
        let nodes: Vec<NodeId> = model
            .nodes()
            .filter(|(other, node)| *other != id && lives_in(node.origin()))
            .map(|(id, _)| id)
            .collect();
        let values: Vec<ValueId> = model
            .values()
            .filter(|(_, value)| matches!(value.def(), Def::Constant { origin: Some(origin), .. } if lives_in(*origin)))
            .map(|(id, _)| id)
            .collect();
        match fate {
            Fate::Kept => {}
            Fate::Merged(found) => assert_eq!(found, nodes, "{id:?}"),
            Fate::Folded(found) => {
                assert!(nodes.is_empty() && found == values, "{id:?}: {found:?} or {values:?}");
            }
            Fate::Dead => {
                assert!(nodes.is_empty() && values.is_empty(), "{id:?} lives on in {nodes:?} {values:?}");
            }
        }
    }
}

/// The model can be written, and what is written means the same again.
pub fn check_saved(model: &Model) {
    let bytes = to_bytes(model).unwrap();
    let again =
        load_bytes(bytes.clone(), None, &Default::default()).unwrap_or_else(|error| panic!("{error}"));
    again.validate().unwrap();
    assert!(to_bytes(&again).unwrap() == bytes, "saving is stable");
    // A function has no list of constants: each is saved as a node that makes it.
    let made: usize = model.functions().iter().map(|&scope| model.constants_in(scope).count()).sum();
    assert_eq!(again.node_count(), model.node_count() + made);
    if made > 0 {
        let constants = again.nodes().filter(|(_, node)| node.op().is("Constant")).count();
        return assert!(constants >= made, "every constant is saved");
    }
    assert_eq!(constant_bytes(&again), constant_bytes(model), "every constant is saved");
    let shape = |m: &Model| m.scopes().map(|(id, _)| (outputs(m, id), listing(m, id))).collect::<Vec<_>>();
    let (mut written, mut read) = (shape(model), shape(&again));
    written.sort();
    read.sort();
    assert_eq!(written, read, "nodes stand in an order that needs no sorting");
}

/// Commits, and checks everything that must hold after any edit.
pub fn commit(model: &mut Model, rewrite: Rewrite) -> usize {
    let (nodes, bytes, entries) = (model.node_count() as i64, constant_bytes(model), model.journal().len());
    let before = model.clone();
    let live: Vec<NodeId> = model.nodes().map(|(id, _)| id).collect();
    let made = model.journal().iter().flat_map(|entry| entry.produced.iter().copied());
    let known: Vec<NodeId> = model.source_nodes().chain(made).collect();
    let names: Vec<_> = model.values().map(|(id, value)| (id, value.name().clone())).collect();
    let index = model.commit(rewrite).unwrap_or_else(|error| panic!("refused: {error}"));
    model.validate().unwrap_or_else(|error| panic!("broken: {error}"));
    assert_eq!((index, model.journal().len()), (entries, entries + 1));
    let entry = &model.journal()[index];
    assert_eq!(entry.nodes, model.node_count() as i64 - nodes, "journalled change of nodes");
    assert_eq!(entry.bytes, constant_bytes(model) - bytes, "journalled change of bytes");
    for &gone in &entry.consumed {
        assert!(live.contains(&gone) && !model.node(gone).is_live());
    }
    for &new in &entry.produced {
        assert!(!known.contains(&new) && model.node(new).is_live(), "{new:?} was used before");
    }
    assert_eq!(entry.nodes, entry.produced.len() as i64 - entry.consumed.len() as i64);
    for (id, name) in names {
        assert!(!model.value(id).is_live() || *model.value(id).name() == name, "{id:?} was {name:?}");
    }
    let functions = model.functions();
    assert_eq!(
        interface(model, functions),
        interface(&before, functions),
        "inputs and outputs keep their names and types"
    );
    check_fates(model);
    check_saved(model);
    index
}

/// Names and types of the inputs and outputs of the graph and these functions.
fn interface(model: &Model, functions: &[ScopeId]) -> Vec<(String, String)> {
    let scopes = std::iter::once(model.main()).chain(functions.iter().copied());
    scopes
        .flat_map(|scope| model.scope(scope).inputs().iter().chain(model.scope(scope).outputs()))
        .map(|port| (model.value(port.value).name().to_string(), port.declared().to_string()))
        .collect()
}

/// The edit is refused and nothing has changed.
pub fn refused(model: &mut Model, rewrite: Rewrite) -> EditError {
    let (bytes, entries) = (to_bytes(model).unwrap(), model.journal().len());
    let error = model.commit(rewrite).expect_err("the edit should be refused");
    model.validate().unwrap();
    assert!(to_bytes(model).unwrap() == bytes, "a refused edit changes nothing");
    assert_eq!(model.journal().len(), entries);
    check_fates(model);
    error
}

/// Either the edit is made and everything holds, or it is refused and nothing has changed.
pub fn sound(model: &mut Model, rewrite: Rewrite) {
    let mut tried = model.clone();
    match tried.commit(rewrite.clone()) {
        Ok(_) => drop(commit(model, rewrite)),
        Err(_) => drop(refused(model, rewrite)),
    }
}
