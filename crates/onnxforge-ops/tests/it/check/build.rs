//! Small models, written down as messages.

use onnxforge_proto::blob::Blob;
use onnxforge_proto::schema::*;
use onnxforge_proto::wire::Packed;

pub const FLOAT: i32 = 1;
pub const INT64: i32 = 7;
pub const BOOL: i32 = 9;

// Kinds of attributes.
pub const F: i32 = 1;
pub const I: i32 = 2;
pub const T: i32 = 4;
pub const G: i32 = 5;

pub fn names(list: &str) -> Vec<onnxforge_proto::Str> {
    match list.trim() {
        "" => Vec::new(),
        list => list.split(',').map(|name| name.trim().into()).collect(),
    }
}

/// `a, b = Op(c, , d)`; a domain stands before the operator and a colon.
pub fn node(text: &str) -> NodeProto {
    let (outputs, call) = text.split_once('=').unwrap();
    let (op, inputs) = call.trim().strip_suffix(')').unwrap().split_once('(').unwrap();
    let (domain, op) = op.split_once(':').unwrap_or(("", op));
    NodeProto {
        input: names(inputs),
        output: names(outputs),
        op_type: Some(op.into()),
        domain: Some(domain.into()),
        ..Default::default()
    }
}

pub fn attribute(name: &str, kind: i32) -> AttributeProto {
    AttributeProto { name: Some(name.into()), r#type: Some(kind), ..Default::default() }
}

pub fn with(mut node: NodeProto, attributes: impl IntoIterator<Item = AttributeProto>) -> NodeProto {
    node.attribute.extend(attributes);
    node
}

pub fn float(name: &str, value: f32) -> AttributeProto {
    AttributeProto { f: Some(value), ..attribute(name, F) }
}

pub fn int(name: &str, value: i64) -> AttributeProto {
    AttributeProto { i: Some(value), ..attribute(name, I) }
}

pub fn body(name: &str, graph: GraphProto) -> AttributeProto {
    AttributeProto { g: Some(Box::new(graph)), ..attribute(name, G) }
}

pub fn tensor_type(dtype: i32, dims: &[i64]) -> TypeProto {
    let dim = |&size: &i64| Dimension { dim_value: Some(size), ..Default::default() };
    let shape = TensorShapeProto { dim: dims.iter().map(dim).collect(), ..Default::default() };
    let tensor = TensorType { elem_type: Some(dtype), shape: Some(shape.into()), ..Default::default() };
    TypeProto { tensor_type: Some(tensor.into()), ..Default::default() }
}

pub fn value(name: &str, dtype: i32, dims: &[i64]) -> ValueInfoProto {
    ValueInfoProto {
        name: Some(name.into()),
        r#type: Some(tensor_type(dtype, dims).into()),
        ..Default::default()
    }
}

/// A value of a body, which needs no type.
pub fn untyped(name: &str) -> ValueInfoProto {
    ValueInfoProto { name: Some(name.into()), ..Default::default() }
}

/// Zeros.
pub fn tensor(name: &str, dims: &[i64]) -> TensorProto {
    let bytes = vec![0; 4 * dims.iter().product::<i64>() as usize];
    TensorProto {
        name: Some(name.into()),
        dims: dims.to_vec(),
        data_type: Some(FLOAT),
        raw_data: Some(Blob::from(bytes).into()),
        ..Default::default()
    }
}

pub fn indices(dims: &[i64], values: &[i64]) -> TensorProto {
    TensorProto {
        dims: dims.to_vec(),
        data_type: Some(INT64),
        int64_data: Packed(values.to_vec()),
        ..Default::default()
    }
}

pub fn sparse(indices: TensorProto) -> SparseTensorProto {
    SparseTensorProto {
        values: Some(tensor("s", &[2]).into()),
        indices: Some(indices.into()),
        dims: vec![2, 3],
        ..Default::default()
    }
}

pub fn entry(key: &str, value: &str) -> StringStringEntryProto {
    StringStringEntryProto { key: Some(key.into()), value: Some(value.into()), ..Default::default() }
}

pub fn import(domain: &str, version: i64) -> OperatorSetIdProto {
    OperatorSetIdProto { domain: Some(domain.into()), version: Some(version), ..Default::default() }
}

pub fn graph(name: &str, nodes: Vec<NodeProto>, outputs: Vec<ValueInfoProto>) -> GraphProto {
    GraphProto { name: Some(name.into()), node: nodes, output: outputs, ..Default::default() }
}

/// Nothing is wrong with it: an initializer, an If whose branches read outer values, a call of a function.
pub fn sound() -> ModelProto {
    let branch = |text: &str, output: &str| graph(output, vec![node(text)], vec![untyped(output)]);
    let alpha = AttributeProto { ref_attr_name: Some("slope".into()), ..attribute("alpha", F) };
    let function = FunctionProto {
        name: Some("Leak".into()),
        domain: Some("local".into()),
        input: names("a"),
        output: names("b"),
        attribute: names("slope"),
        node: vec![with(node("b = LeakyRelu(a)"), [alpha])],
        opset_import: vec![import("", 18)],
        ..Default::default()
    };
    let main = GraphProto {
        input: vec![value("x", FLOAT, &[2]), value("c", BOOL, &[])],
        initializer: vec![tensor("w", &[2])],
        value_info: vec![value("sum", FLOAT, &[2])],
        ..graph(
            "main",
            vec![
                NodeProto { name: Some("first".into()), ..node("sum = Add(x, w)") },
                with(
                    node("either = If(c)"),
                    [
                        body("then_branch", branch("yes = Relu(sum)", "yes")),
                        body("else_branch", branch("no = Neg(sum)", "no")),
                    ],
                ),
                with(node("y = local:Leak(either)"), [float("slope", 0.5)]),
            ],
            vec![value("y", FLOAT, &[2])],
        )
    };
    ModelProto {
        ir_version: Some(10),
        opset_import: vec![import("", 18), import("local", 1)],
        graph: Some(main.into()),
        functions: vec![function],
        ..Default::default()
    }
}

pub fn main_graph(model: &mut ModelProto) -> &mut GraphProto {
    model.graph.as_mut().unwrap()
}

pub fn then_branch(model: &mut ModelProto) -> &mut GraphProto {
    main_graph(model).node[1].attribute[0].g.as_mut().unwrap()
}

/// A model with one more node in the main graph.
pub fn plus(model: &mut ModelProto, node: NodeProto) {
    main_graph(model).node.push(node);
}
