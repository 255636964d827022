//! The structural checker: a model that breaks no rule, and for each rule models that break it.

use std::path::{Path, PathBuf};

use onnxforge::blob::Blob;
use onnxforge::check::{Problem, Rule, Severity, check};
use onnxforge::io::external::{ExternalFiles, LinkPolicy};
use onnxforge::proto::schema::*;
use onnxforge::proto::wire::{Packed, PackedFixed, decode};

const FLOAT: i32 = 1;
const INT64: i32 = 7;
const BOOL: i32 = 9;

// Kinds of attributes.
const F: i32 = 1;
const I: i32 = 2;
const T: i32 = 4;
const G: i32 = 5;

fn names(list: &str) -> Vec<onnxforge::proto::Str> {
    match list.trim() {
        "" => Vec::new(),
        list => list.split(',').map(|name| name.trim().into()).collect(),
    }
}

/// `a, b = Op(c, , d)`; a domain stands before the operator and a colon.
fn node(text: &str) -> NodeProto {
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

fn attribute(name: &str, kind: i32) -> AttributeProto {
    AttributeProto { name: Some(name.into()), r#type: Some(kind), ..Default::default() }
}

fn with(mut node: NodeProto, attributes: impl IntoIterator<Item = AttributeProto>) -> NodeProto {
    node.attribute.extend(attributes);
    node
}

fn float(name: &str, value: f32) -> AttributeProto {
    AttributeProto { f: Some(value), ..attribute(name, F) }
}

fn int(name: &str, value: i64) -> AttributeProto {
    AttributeProto { i: Some(value), ..attribute(name, I) }
}

fn body(name: &str, graph: GraphProto) -> AttributeProto {
    AttributeProto { g: Some(Box::new(graph)), ..attribute(name, G) }
}

fn tensor_type(dtype: i32, dims: &[i64]) -> TypeProto {
    let dim = |&size: &i64| Dimension { dim_value: Some(size), ..Default::default() };
    let shape = TensorShapeProto { dim: dims.iter().map(dim).collect(), ..Default::default() };
    let tensor = TensorType { elem_type: Some(dtype), shape: Some(shape.into()), ..Default::default() };
    TypeProto { tensor_type: Some(tensor.into()), ..Default::default() }
}

fn value(name: &str, dtype: i32, dims: &[i64]) -> ValueInfoProto {
    ValueInfoProto {
        name: Some(name.into()),
        r#type: Some(tensor_type(dtype, dims).into()),
        ..Default::default()
    }
}

/// A value of a body, which needs no type.
fn untyped(name: &str) -> ValueInfoProto {
    ValueInfoProto { name: Some(name.into()), ..Default::default() }
}

/// Zeros.
fn tensor(name: &str, dims: &[i64]) -> TensorProto {
    let bytes = vec![0; 4 * dims.iter().product::<i64>() as usize];
    TensorProto {
        name: Some(name.into()),
        dims: dims.to_vec(),
        data_type: Some(FLOAT),
        raw_data: Some(Blob::from(bytes).into()),
        ..Default::default()
    }
}

fn indices(dims: &[i64], values: &[i64]) -> TensorProto {
    TensorProto {
        dims: dims.to_vec(),
        data_type: Some(INT64),
        int64_data: Packed(values.to_vec()),
        ..Default::default()
    }
}

fn sparse(indices: TensorProto) -> SparseTensorProto {
    SparseTensorProto {
        values: Some(tensor("s", &[2]).into()),
        indices: Some(indices.into()),
        dims: vec![2, 3],
        ..Default::default()
    }
}

fn entry(key: &str, value: &str) -> StringStringEntryProto {
    StringStringEntryProto { key: Some(key.into()), value: Some(value.into()), ..Default::default() }
}

fn import(domain: &str, version: i64) -> OperatorSetIdProto {
    OperatorSetIdProto { domain: Some(domain.into()), version: Some(version), ..Default::default() }
}

fn graph(name: &str, nodes: Vec<NodeProto>, outputs: Vec<ValueInfoProto>) -> GraphProto {
    GraphProto { name: Some(name.into()), node: nodes, output: outputs, ..Default::default() }
}

/// Nothing is wrong with it: an initializer, an If whose branches read outer values, a call of a function.
fn sound() -> ModelProto {
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

fn main_graph(model: &mut ModelProto) -> &mut GraphProto {
    model.graph.as_mut().unwrap()
}

fn then_branch(model: &mut ModelProto) -> &mut GraphProto {
    main_graph(model).node[1].attribute[0].g.as_mut().unwrap()
}

/// A model with one more node in the main graph.
fn plus(model: &mut ModelProto, node: NodeProto) {
    main_graph(model).node.push(node);
}

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data").join(name)
}

fn problems(model: &ModelProto) -> Vec<Problem> {
    check(model, &mut ExternalFiles::new(Some(data("")), LinkPolicy::default()))
}

fn list(problems: &[Problem]) -> String {
    problems.iter().map(|problem| format!("{problem}\n")).collect()
}

/// One way to break a rule: what is reported, and where.
struct Case {
    rule: Rule,
    severity: Severity,
    place: &'static str,
    message: &'static str,
    edit: fn(&mut ModelProto),
}

const fn error(rule: Rule, place: &'static str, message: &'static str, edit: fn(&mut ModelProto)) -> Case {
    Case { rule, severity: Severity::Error, place, message, edit }
}

const fn warning(rule: Rule, place: &'static str, message: &'static str, edit: fn(&mut ModelProto)) -> Case {
    Case { rule, severity: Severity::Warning, place, message, edit }
}

/// Asserts that each case is reported, and that nothing else is an error.
#[track_caller]
fn assert_reported(cases: &[Case]) {
    for case in cases {
        let mut model = sound();
        (case.edit)(&mut model);
        let found = problems(&model);
        let expected = |problem: &&Problem| {
            problem.rule == case.rule
                && problem.severity == case.severity
                && problem.place.to_string() == case.place
                && problem.message.contains(case.message)
        };
        let report = list(&found);
        let wanted = format!("{}[{}] {}: …{}", case.severity, case.rule, case.place, case.message);
        assert!(found.iter().any(|problem| expected(&problem)), "expected\n{wanted}\nin\n{report}");
        let other = |problem: &&Problem| problem.severity == Severity::Error && problem.rule != case.rule;
        assert!(!found.iter().any(|problem| other(&problem)), "expected only\n{wanted}\nin\n{report}");
    }
}

/// Asserts that a change of the sound model leaves nothing to report.
#[track_caller]
fn assert_sound(edit: impl Fn(&mut ModelProto)) {
    let mut model = sound();
    edit(&mut model);
    assert_eq!(list(&problems(&model)), "");
}

fn model_cases() -> Vec<Case> {
    use Rule::*;
    vec![
        error(MissingGraph, "model", "no graph", |m| m.graph = None),
        error(IrVersion, "model", "does not say", |m| m.ir_version = None),
        error(IrVersion, "model", "newer than 14", |m| m.ir_version = Some(15)),
        error(IrVersion, "model", "-1 does not exist", |m| m.ir_version = Some(-1)),
        error(IrFeature, "function \"local.Leak\"", "from IR version 8", |m| m.ir_version = Some(7)),
        warning(IrFeature, "opset import 0", "came with IR version 8", |m| m.ir_version = Some(7)),
        warning(IrFeature, "graph \"main\" / node 0 \"first\" (Add)", "from IR version 10", |m| {
            m.ir_version = Some(9);
            main_graph(m).node[0].metadata_props.push(entry("a", "b"));
        }),
        error(OpsetImport, "opset import 0", "has no version", |m| m.opset_import[0].version = None),
        error(OpsetImport, "opset import 0", "0 does not exist", |m| {
            m.opset_import[0].version = Some(0);
            m.functions.clear();
            main_graph(m).node[2] = node("y = local:Leak(either)");
        }),
        error(OpsetImport, "opset import \"ai.onnx\"", "different versions", |m| {
            m.opset_import.push(import("ai.onnx", 17));
        }),
        warning(OpsetImport, "opset import \"ai.onnx\"", "imported twice", |m| {
            m.opset_import.push(import("ai.onnx", 18));
        }),
        warning(OpsetImport, "opset import \"ai.onnx.ml\"", "newer than", |m| {
            m.opset_import.push(import("ai.onnx.ml", 1000));
        }),
        error(DomainImport, "graph \"main\" / node 2 (local.Leak)", "\"local\"", |m| {
            m.opset_import.pop();
        }),
        error(DomainImport, "function \"local.Leak\" / node 0 (LeakyRelu)", "function's opset", |m| {
            m.functions[0].opset_import.clear();
        }),
        error(DomainImport, "graph \"main\" / node 0 \"first\" (ai.onnx.Add)", "leave it empty", |m| {
            main_graph(m).node[0].domain = Some("ai.onnx".into());
        }),
        error(DuplicateMetadata, "model", "the key \"k\"", |m| {
            m.metadata_props = vec![entry("k", "1"), entry("k", "2")];
        }),
        warning(DuplicateMetadata, "graph \"main\"", "the key \"k\"", |m| {
            main_graph(m).metadata_props = vec![entry("k", "1"), entry("k", "2")];
        }),
        error(Training, "training 0 / update_binding", "no initializer", |m| {
            m.training_info
                .push(TrainingInfoProto { update_binding: vec![entry("v", "y")], ..Default::default() });
        }),
        error(Training, "training 0 / update_binding", "no output", |m| {
            m.training_info
                .push(TrainingInfoProto { update_binding: vec![entry("w", "sum")], ..Default::default() });
        }),
        error(DeviceConfiguration, "device configuration \"pair\"", "3 devices are named", |m| {
            m.ir_version = Some(11);
            m.configuration.push(DeviceConfigurationProto {
                name: Some("pair".into()),
                num_devices: Some(2),
                device: names("a, b, c"),
                ..Default::default()
            });
        }),
        error(
            DeviceConfiguration,
            "graph \"main\" / node 0 \"first\" (Add) / device configuration \"pair\"",
            "no device configuration",
            |m| {
                m.ir_version = Some(11);
                main_graph(m).node[0].device_configurations.push(NodeDeviceConfigurationProto {
                    configuration_id: Some("pair".into()),
                    ..Default::default()
                });
            },
        ),
    ]
}

fn function_cases() -> Vec<Case> {
    use Rule::*;
    vec![
        error(FunctionIdentity, "function \"local.Leak\"", "same domain", |m| {
            m.functions.push(m.functions[0].clone());
        }),
        error(FunctionIdentity, "function 1", "no name", |m| m.functions.push(FunctionProto::default())),
        error(FunctionParameter, "function \"local.Leak\"", "\"slope\" is declared twice", |m| {
            m.functions[0].attribute_proto.push(float("slope", 1.0));
        }),
        error(FunctionParameter, "function \"local.Leak\" / output \"bb\"", "nothing defines", |m| {
            m.functions[0].output.push("bb".into());
        }),
        error(FunctionRecursion, "function \"local.Leak\"", "calls itself", |m| {
            m.functions[0].opset_import.push(import("local", 1));
            m.functions[0].node.push(node("d = local:Leak(a)"));
        }),
        error(FunctionRecursion, "function \"local.Leak\"", "through local.Other", |m| {
            m.functions[0].opset_import.push(import("local", 1));
            let other = FunctionProto {
                name: Some("Other".into()),
                attribute: Vec::new(),
                node: vec![node("b = local:Leak(a)")],
                ..m.functions[0].clone()
            };
            m.functions[0].node.push(node("d = local:Other(a)"));
            m.functions.push(other);
        }),
        error(FunctionOpset, "function \"local.Leak\" / node 0 (LeakyRelu)", "another operator", |m| {
            m.functions[0].opset_import[0].version = Some(15);
        }),
        error(
            AttributeReference,
            "graph \"main\" / node 3 (LeakyRelu) / attribute \"alpha\"",
            "outside",
            |m| {
                let alpha = AttributeProto { ref_attr_name: Some("slope".into()), ..attribute("alpha", F) };
                plus(m, with(node("z = LeakyRelu(x)"), [alpha]));
            },
        ),
        error(
            AttributeReference,
            "function \"local.Leak\" / node 0 (LeakyRelu) / attribute \"alpha\"",
            "no attribute \"slop\"; did you mean \"slope\"?",
            |m| m.functions[0].node[0].attribute[0].ref_attr_name = Some("slop".into()),
        ),
        error(DanglingName, "function \"local.Leak\" / node 0 (LeakyRelu)", "its own inputs", |m| {
            m.functions[0].node[0].input[0] = "x".into();
        }),
        error(Arity, "graph \"main\" / node 2 (local.Leak)", "2 inputs; the local function has 1", |m| {
            main_graph(m).node[2].input.push("x".into());
        }),
        error(
            AttributeUnknown,
            "graph \"main\" / node 2 (local.Leak) / attribute \"slop\"",
            "\"slope\"?",
            |m| {
                main_graph(m).node[2].attribute[0].name = Some("slop".into());
            },
        ),
    ]
}

fn graph_cases() -> Vec<Case> {
    use Rule::*;
    vec![
        error(MissingName, "graph", "no name", |m| main_graph(m).name = None),
        error(MissingName, "graph \"main\" / initializer 1", "no name", |m| {
            main_graph(m).initializer.push(tensor("", &[1]));
        }),
        error(
            Ssa,
            "graph \"main\" / node 3 (Relu)",
            "\"sum\" is already defined by node 0 \"first\" (Add)",
            |m| {
                plus(m, node("sum = Relu(x)"));
            },
        ),
        error(Ssa, "graph \"main\" / input \"x\"", "already defined by an input", |m| {
            main_graph(m).input.push(value("x", FLOAT, &[2]));
        }),
        error(Ssa, "graph \"main\" / initializer \"w\"", "another initializer", |m| {
            main_graph(m).initializer.push(tensor("w", &[2]));
        }),
        error(
            Shadowing,
            "graph \"main\" / node 1 (If) / attribute \"then_branch\" / graph \"yes\" / node 0 (Relu)",
            "defined by node 0 \"first\" (Add)",
            |m| {
                then_branch(m).node[0].output[0] = "sum".into();
                then_branch(m).node[0].input[0] = "x".into();
                then_branch(m).output[0].name = Some("sum".into());
            },
        ),
        error(DanglingName, "graph \"main\" / node 0 \"first\" (Add)", "\"weigth\", which nothing", |m| {
            main_graph(m).node[0].input[1] = "weigth".into();
        }),
        error(DanglingName, "graph \"main\" / node 3 (Relu)", "did you mean \"either\"?", |m| {
            plus(m, node("z = Relu(eihter)"));
        }),
        error(
            TopologicalOrder,
            "graph \"main\" / node 0 (Relu)",
            "before node 1 \"first\" (Add) defines it",
            |m| {
                main_graph(m).node.insert(0, node("z = Relu(sum)"));
            },
        ),
        error(
            TopologicalOrder,
            "graph \"main\" / node 0 (If) / attribute \"then_branch\" / graph \"yes\" / node 0 (Relu)",
            "before node 1 \"first\" (Add) defines it",
            |m| main_graph(m).node.swap(0, 1),
        ),
        error(
            Cycle,
            "graph \"main\" / node 3 (Add)",
            "node 3 (Add), node 4 (Relu), and the first again",
            |m| {
                plus(m, node("p = Add(x, q)"));
                plus(m, node("q = Relu(p)"));
            },
        ),
        error(Cycle, "graph \"main\" / node 3 (Relu)", "its own output", |m| plus(m, node("p = Relu(p)"))),
        error(GraphOutput, "graph \"main\" / output \"yy\"", "nothing defines", |m| {
            main_graph(m).output.push(value("yy", FLOAT, &[2]));
        }),
        error(
            GraphOutput,
            "graph \"main\" / node 1 (If) / attribute \"then_branch\" / graph \"yes\" / output \"sum\"",
            "Identity",
            |m| then_branch(m).output[0].name = Some("sum".into()),
        ),
        error(InitializerInput, "graph \"main\" / initializer \"w\"", "not an input", |m| {
            m.ir_version = Some(3);
            m.functions.clear();
        }),
        error(
            InitializerInput,
            "graph \"main\" / node 3 (local.Body) / attribute \"body\" / graph \"g\" / initializer \"i\"",
            "which its node fills",
            |m| {
                let mut inner = graph("g", Vec::new(), vec![untyped("i")]);
                inner.input.push(untyped("i"));
                inner.initializer.push(tensor("i", &[1]));
                plus(m, with(node("z = local:Body(x)"), [body("body", inner)]));
            },
        ),
        warning(ValueInfo, "graph \"main\" / value_info \"gone\"", "no value", |m| {
            main_graph(m).value_info.push(value("gone", FLOAT, &[2]));
        }),
        warning(ValueInfo, "graph \"main\" / value_info \"sum\"", "another entry", |m| {
            main_graph(m).value_info.push(value("sum", FLOAT, &[2]));
        }),
        warning(
            QuantizationAnnotation,
            "graph \"main\" / quantization annotation \"w\"",
            "SCALE_TENSOR is \"ws\"",
            |m| {
                main_graph(m).quantization_annotation.push(TensorAnnotation {
                    tensor_name: Some("w".into()),
                    quant_parameter_tensor_names: vec![entry("SCALE_TENSOR", "ws")],
                    ..Default::default()
                });
            },
        ),
    ]
}

fn node_cases() -> Vec<Case> {
    use Rule::*;
    vec![
        error(OpType, "graph \"main\" / node 3", "no operator", |m| {
            plus(m, NodeProto { op_type: None, ..node("z = Relu(x)") });
        }),
        error(UnknownOperator, "graph \"main\" / node 3 (Reul)", "did you mean \"Relu\"?", |m| {
            plus(m, node("z = Reul(x)"));
        }),
        error(UnknownOperator, "graph \"main\" / node 3 (Gelu)", "comes with version 20", |m| {
            plus(m, node("z = Gelu(x)"));
        }),
        error(UnknownOperator, "graph \"main\" / node 3 (Normalizer)", "\"ai.onnx.ml\" has it", |m| {
            plus(m, node("z = Normalizer(x)"));
        }),
        error(DeprecatedOperator, "graph \"main\" / node 3 (Upsample)", "withdrawn in version 10", |m| {
            plus(m, node("z = Upsample(x, w)"));
        }),
        warning(DuplicateNodeName, "graph \"main\" / node 3 \"first\" (Relu)", "node 0 has the name", |m| {
            plus(m, NodeProto { name: Some("first".into()), ..node("z = Relu(x)") });
        }),
        error(Arity, "graph \"main\" / node 3 (Relu)", "2 inputs; Relu takes 1", |m| {
            plus(m, node("z = Relu(x, x)"))
        }),
        error(Arity, "graph \"main\" / node 3 (BatchNormalization)", "1 or 3", |m| {
            plus(m, node("p, q = BatchNormalization(x, w, w, w, w)"));
        }),
        error(RequiredValue, "graph \"main\" / node 3 (Add)", "input 1 (B) is empty", |m| {
            plus(m, NodeProto { input: vec!["x".into(), "".into()], ..node("z = Add()") });
        }),
        error(NoOutputs, "graph \"main\" / node 3 (local.Op)", "neither inputs nor outputs", |m| {
            plus(m, node("= local:Op()"));
        }),
        warning(NoOutputs, "graph \"main\" / node 3 (local.Op)", "no outputs", |m| {
            plus(m, node("= local:Op(x)"))
        }),
        error(AttributeForm, "graph \"main\" / node 3 (local.Op) / attribute \"a\"", "two values", |m| {
            plus(m, with(node("z = local:Op(x)"), [AttributeProto { i: Some(1), ..float("a", 1.0) }]));
        }),
        error(
            AttributeForm,
            "graph \"main\" / node 3 (local.Op) / attribute \"a\"",
            "no type; its value",
            |m| {
                plus(m, with(node("z = local:Op(x)"), [AttributeProto { r#type: None, ..float("a", 1.0) }]));
            },
        ),
        error(AttributeForm, "graph \"main\" / node 3 (local.Op) / attribute \"a\"", "holds none", |m| {
            plus(m, with(node("z = local:Op(x)"), [attribute("a", T)]));
        }),
        error(
            AttributeDuplicate,
            "graph \"main\" / node 3 (local.Op) / attribute \"a\"",
            "two attributes",
            |m| {
                plus(m, with(node("z = local:Op(x)"), [int("a", 1), int("a", 1)]));
            },
        ),
        error(
            AttributeUnknown,
            "graph \"main\" / node 3 (LeakyRelu) / attribute \"alhpa\"",
            "\"alpha\"?",
            |m| {
                plus(m, with(node("z = LeakyRelu(x)"), [float("alhpa", 1.0)]));
            },
        ),
        error(
            AttributeType,
            "graph \"main\" / node 3 (LeakyRelu) / attribute \"alpha\"",
            "takes float",
            |m| {
                plus(m, with(node("z = LeakyRelu(x)"), [int("alpha", 1)]));
            },
        ),
        error(AttributeMissing, "graph \"main\" / node 3 (Concat)", "\"axis\" (int)", |m| {
            plus(m, node("z = Concat(x, w)"));
        }),
        error(AttributeMissing, "graph \"main\" / node 3 (Constant)", "exactly one", |m| {
            plus(m, node("z = Constant()"))
        }),
        error(BodyArity, "graph \"main\" / node 1 (If) / attribute \"then_branch\"", "0 outputs", |m| {
            then_branch(m).output.clear();
        }),
        error(
            BodyArity,
            "graph \"main\" / node 3 (Loop) / attribute \"body\"",
            "2 inputs; Loop hands it 3",
            |m| {
                let mut inner = graph("g", vec![node("k = Identity(g)")], vec![untyped("k"), untyped("k")]);
                inner.input = vec![untyped("i"), untyped("g")];
                let call = NodeProto { input: vec!["".into(), "c".into(), "x".into()], ..node("z = Loop()") };
                plus(m, with(call, [body("body", inner)]));
            },
        ),
        warning(Utf8, "graph \"main\" / node 3 (local.Op) / attribute \"a\"", "UTF-8", |m| {
            let text = AttributeProto { s: Some(Blob::from(vec![0xff])), ..attribute("a", 3) };
            plus(m, with(node("z = local:Op(x)"), [text]));
        }),
    ]
}

fn value_cases() -> Vec<Case> {
    use Rule::*;
    vec![
        error(TypeForm, "graph \"main\" / input \"x\"", "type is missing", |m| {
            main_graph(m).input[0].r#type = None
        }),
        error(TypeForm, "graph \"main\" / input \"x\"", "shape is missing", |m| {
            let ty = main_graph(m).input[0].r#type.as_mut().unwrap();
            ty.tensor_type.as_mut().unwrap().shape = None;
        }),
        error(TypeForm, "graph \"main\" / value_info \"sum\"", "element type 99", |m| {
            main_graph(m).value_info[0] = value("sum", 99, &[2]);
        }),
        warning(TypeForm, "graph \"main\" / value_info \"sum\"", "element type is missing", |m| {
            main_graph(m).value_info[0] = value("sum", 0, &[2]);
        }),
        error(TypeMismatch, "graph \"main\" / node 3 (Relu)", "input 0 (X) is bool; Relu takes float", |m| {
            plus(m, node("z = Relu(c)"));
        }),
        error(
            TypeMismatch,
            "graph \"main\" / node 3 (Add)",
            "input 1 (B) is int64 and input 0 (A) is float",
            |m| {
                main_graph(m).input.push(value("n", INT64, &[2]));
                plus(m, node("z = Add(x, n)"));
            },
        ),
        error(
            TypeMismatch,
            "graph \"main\" / node 1 (If) / attribute \"then_branch\" / graph \"yes\" / node 0 (Relu)",
            "input 0 (X) is bool",
            |m| then_branch(m).node[0].input[0] = "c".into(),
        ),
        error(TypeConflict, "graph \"main\" / initializer \"w\"", "dimension 0 is 3 there, 2 here", |m| {
            main_graph(m).input.push(value("w", FLOAT, &[3]));
        }),
        error(
            TypeConflict,
            "graph \"main\" / value_info \"w\"",
            "int64 here and float as an initializer",
            |m| {
                main_graph(m).value_info.push(value("w", INT64, &[2]));
            },
        ),
        warning(TypeConflict, "graph \"main\" / value_info \"y\"", "1 dimensions there, 2 here", |m| {
            main_graph(m).value_info.push(value("y", FLOAT, &[2, 2]));
        }),
        error(Dimension, "graph \"main\" / value_info \"sum\"", "dimension 0 is -5", |m| {
            main_graph(m).value_info[0] = value("sum", FLOAT, &[-5]);
        }),
        warning(Dimension, "graph \"main\" / value_info \"sum\"", "dimension 0 is -1", |m| {
            main_graph(m).value_info[0] = value("sum", FLOAT, &[-1]);
        }),
        error(Tensor, "graph \"main\" / initializer \"w\"", "needs 8 bytes, 4 are there", |m| {
            main_graph(m).initializer[0].raw_data = tensor("", &[1]).raw_data;
        }),
        error(Tensor, "graph \"main\" / initializer \"w\"", "stored twice", |m| {
            main_graph(m).initializer[0].float_data = PackedFixed::Collected(vec![0; 8]);
        }),
        error(Tensor, "graph \"main\" / initializer \"w\"", "no data type", |m| {
            main_graph(m).initializer[0].data_type = None;
        }),
        error(Tensor, "graph \"main\" / node 3 (Constant) / attribute \"value\"", "needs 4 bytes", |m| {
            let mut constant = tensor("", &[]);
            constant.raw_data = None;
            let constant = AttributeProto { t: Some(constant.into()), ..attribute("value", T) };
            plus(m, with(node("z = Constant()"), [constant]));
        }),
        error(ExternalData, "graph \"main\" / initializer \"w\"", "missing.data cannot be read", |m| {
            let weight = &mut main_graph(m).initializer[0];
            weight.raw_data = None;
            weight.data_location = Some(1);
            weight.external_data = vec![entry("location", "missing.data")];
        }),
        error(
            SparseTensor,
            "graph \"main\" / sparse initializer \"s\"",
            "index 1 is 6, outside 0 to 5",
            |m| {
                main_graph(m).sparse_initializer.push(sparse(indices(&[2], &[1, 6])));
            },
        ),
        error(
            SparseTensor,
            "graph \"main\" / sparse initializer \"s\"",
            "index 1 does not come after",
            |m| {
                main_graph(m).sparse_initializer.push(sparse(indices(&[2, 2], &[1, 0, 0, 2])));
            },
        ),
        error(SparseTensor, "graph \"main\" / sparse initializer \"s\"", "it is [2] or [2, 2]", |m| {
            main_graph(m).sparse_initializer.push(sparse(indices(&[3], &[1, 2, 3])));
        }),
        error(SparseTensor, "graph \"main\" / sparse initializer \"s\"", "they are int64", |m| {
            main_graph(m).sparse_initializer.push(sparse(tensor("", &[2])));
        }),
    ]
}

#[test]
fn a_sound_model_has_no_problems() {
    assert_sound(|_| {});
}

#[test]
fn broken_models_are_reported_with_their_place() {
    assert_reported(&model_cases());
    assert_reported(&function_cases());
    assert_reported(&graph_cases());
    assert_reported(&node_cases());
    assert_reported(&value_cases());
}

#[test]
fn every_rule_is_broken_by_some_test() {
    let cases = [model_cases(), function_cases(), graph_cases(), node_cases(), value_cases()].concat();
    for &rule in Rule::ALL {
        // Nesting has a test of its own.
        assert!(rule == Rule::Nesting || cases.iter().any(|case| case.rule == rule), "{rule}");
    }
}

impl Clone for Case {
    fn clone(&self) -> Self {
        Self { ..*self }
    }
}

#[test]
fn ids_are_distinct_and_kebab_case() {
    let mut ids: Vec<_> = Rule::ALL.iter().map(|rule| rule.id()).collect();
    let fits = |id: &&str| id.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    assert!(ids.iter().all(|id| fits(&id)));
    assert!(Rule::ALL.iter().all(|rule| rule.about().ends_with('.')));
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), Rule::ALL.len());
}

#[test]
fn a_problem_serializes_under_stable_names() {
    let mut model = sound();
    model.graph = None;
    let json = serde_json::to_value(&problems(&model)[0]).unwrap();
    let expected = serde_json::json!({
        "rule": "missing-graph", "severity": "error", "place": "model", "message": "the model has no graph"
    });
    assert_eq!(json, expected);
}

#[test]
fn an_initializer_may_be_the_default_of_an_input() {
    assert_sound(|m| main_graph(m).input.push(value("w", FLOAT, &[2])));
    // Up to IR version 3 it has to be.
    assert_sound(|m| {
        m.ir_version = Some(3);
        m.opset_import = vec![import("", 8)];
        m.functions.clear();
        let main = main_graph(m);
        main.input.push(value("w", FLOAT, &[2]));
        main.node.truncate(1);
        main.output = vec![value("sum", FLOAT, &[2])];
    });
}

#[test]
fn a_body_may_use_names_that_are_defined_later_outside() {
    assert_sound(|m| plus(m, node("yes = Relu(x)")));
    assert_sound(|m| {
        then_branch(m).node[0].output[0] = "either".into();
        then_branch(m).output[0].name = Some("either".into());
    });
}

#[test]
fn values_and_outputs_that_are_left_out_are_fine() {
    assert_sound(|m| plus(m, NodeProto { input: vec!["x".into(), "".into()], ..node("z = Clip()") }));
    assert_sound(|m| plus(m, NodeProto { output: vec!["".into(), "k".into()], ..node("= local:Op(x)") }));
    assert_sound(|m| main_graph(m).value_info.clear());
}

#[test]
fn operators_of_unknown_domains_are_opaque() {
    assert_sound(|m| {
        m.opset_import.push(import("com.example", 3));
        let call = with(node("p, q = com.example:Anything(x, c, w)"), [int("a", 1), float("b", 2.0)]);
        plus(m, call);
    });
}

#[test]
fn attributes_of_implementations_are_ignored() {
    assert_sound(|m| plus(m, with(node("z = Relu(x)"), [int("__internal", 1)])));
}

#[test]
fn names_are_found_through_all_levels_of_bodies() {
    assert_sound(|m| {
        let inner = graph("inner", vec![node("deep = Add(x, sum)")], vec![untyped("deep")]);
        let other = graph("other", vec![node("deep2 = Add(sum, w)")], vec![untyped("deep2")]);
        let nested = with(node("yes = If(c)"), [body("then_branch", inner), body("else_branch", other)]);
        then_branch(m).node = vec![nested];
    });
}

#[test]
fn a_cycle_through_a_body_is_found() {
    let mut model = sound();
    then_branch(&mut model).node[0].input[0] = "y".into();
    let found = problems(&model);
    assert_eq!(found.len(), 1, "{}", list(&found));
    assert_eq!(found[0].rule, Rule::Cycle);
    assert!(found[0].message.contains("node 1 (If), node 2 (local.Leak)"), "{}", found[0]);
}

#[test]
fn all_problems_are_listed() {
    let mut model = sound();
    for i in 0..1000 {
        plus(&mut model, node(&format!("z{i} = Relu(missing{i})")));
    }
    let dangling = problems(&model).into_iter().filter(|problem| problem.rule == Rule::DanglingName);
    assert_eq!(dangling.count(), 1000);
}

#[test]
fn places_of_nested_problems_can_be_followed() {
    let mut model = sound();
    then_branch(&mut model).node[0].input[0] = "nowhere".into();
    then_branch(&mut model).node[0].name = Some("inner\n".into());
    let found = problems(&model);
    let place = "graph \"main\" / node 1 (If) / attribute \"then_branch\" / graph \"yes\" / node 0 \"inner\\n\" (Relu)";
    assert_eq!(found[0].place.to_string(), place);
}

#[test]
fn long_names_are_cut() {
    let mut model = sound();
    main_graph(&mut model).node[0].input[0] = "n".repeat(1_000_000).into();
    main_graph(&mut model).name = Some("g".repeat(1_000_000).into());
    assert!(problems(&model)[0].to_string().len() < 1000);
}

#[test]
fn nesting_beyond_reason_is_reported() {
    let mut model = sound();
    let mut inner = graph("g", Vec::new(), Vec::new());
    for depth in 0..150 {
        let outer = with(node(&format!("n{depth} = local:Op(x)")), [body("body", inner)]);
        inner = graph("g", vec![outer], Vec::new());
    }
    main_graph(&mut model).node.extend(inner.node);
    let found = problems(&model);
    assert_eq!(found.iter().map(|problem| problem.rule).collect::<Vec<_>>(), [Rule::Nesting]);

    let mut ty = tensor_type(FLOAT, &[1]);
    for _ in 0..150 {
        let element = ElementType { elem_type: Some(ty.into()), ..Default::default() };
        ty = TypeProto { sequence_type: Some(element.into()), ..Default::default() };
    }
    let mut model = sound();
    main_graph(&mut model).input.push(ValueInfoProto { r#type: Some(ty.into()), ..untyped("s") });
    assert!(problems(&model).iter().any(|problem| problem.rule == Rule::Nesting));
}

#[test]
fn the_models_of_the_repository_are_valid() {
    let mut count = 0;
    for folder in [data(""), data("../../examples")] {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "onnx") {
                continue;
            }
            let model: ModelProto = decode(&Blob::from(std::fs::read(&path).unwrap())).unwrap();
            let found = check(&model, &mut ExternalFiles::new(Some(folder.clone()), LinkPolicy::default()));
            let errors: Vec<_> =
                found.into_iter().filter(|problem| problem.severity == Severity::Error).collect();
            assert!(errors.is_empty(), "{}:\n{}", path.display(), list(&errors));
            count += 1;
        }
    }
    assert!(count > 10);
}

/// Bytes changed at random: whatever still decodes can be checked.
#[test]
fn damaged_models_do_not_panic() {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    let mut checked = 0;
    for name in ["every_field.onnx", "functions.onnx", "loop.torchscript.onnx", "sequence_optional.onnx"] {
        let original = std::fs::read(data(name)).unwrap();
        for _ in 0..1500 {
            let mut bytes = original.clone();
            for _ in 0..=random(3) {
                let at = random(bytes.len());
                bytes[at] = random(256) as u8;
            }
            if let Ok(model) = decode::<ModelProto>(&Blob::from(bytes)) {
                list(&problems(&model));
                checked += 1;
            }
        }
    }
    assert!(checked > 500);
}
