//! For each rule, ways to break it in the sound model.

use onnxforge_ops::check::{Rule, Severity};
use onnxforge_proto::blob::Blob;
use onnxforge_proto::schema::*;
use onnxforge_proto::wire::PackedFixed;

use super::build::*;

/// One way to break a rule: what is reported, and where.
#[derive(Clone, Copy)]
pub struct Case {
    pub rule: Rule,
    pub severity: Severity,
    pub place: &'static str,
    pub message: &'static str,
    pub edit: fn(&mut ModelProto),
}

const fn error(rule: Rule, place: &'static str, message: &'static str, edit: fn(&mut ModelProto)) -> Case {
    Case { rule, severity: Severity::Error, place, message, edit }
}

const fn warning(rule: Rule, place: &'static str, message: &'static str, edit: fn(&mut ModelProto)) -> Case {
    Case { rule, severity: Severity::Warning, place, message, edit }
}

/// Every case.
pub fn all() -> Vec<Case> {
    [model_cases(), function_cases(), graph_cases(), node_cases(), value_cases()].concat()
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
        warning(OpsetImport, "opset import 0", "imported again", |m| {
            let standard = m.opset_import[0].clone();
            m.opset_import[0].version = Some(0);
            m.opset_import.push(standard);
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
        error(DomainSpelling, "graph \"main\" / node 0 \"first\" (ai.onnx.Add)", "leave it empty", |m| {
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
        warning(
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
            RequiredValue,
            "graph \"main\" / node 2 (local.Leak)",
            "input 0 is missing; LeakyRelu in the local function requires it",
            |m| main_graph(m).node[2].input.clear(),
        ),
        warning(
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
        error(GraphName, "graph", "no name", |m| main_graph(m).name = None),
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
        error(
            RuntimeOperator,
            "graph \"main\" / node 3 (SimplifiedLayerNormalization)",
            "operator of ONNX Runtime",
            |m| {
                plus(m, node("z = SimplifiedLayerNormalization(x, x)"));
            },
        ),
        error(DeprecatedOperator, "graph \"main\" / node 3 (Upsample)", "withdrawn in version 10", |m| {
            plus(m, node("z = Upsample(x, w)"));
        }),
        error(DuplicateNodeName, "graph \"main\" / node 3 \"first\" (Relu)", "node 0 has the name", |m| {
            plus(m, NodeProto { name: Some("first".into()), ..node("z = Relu(x)") });
        }),
        error(Arity, "graph \"main\" / node 3 (Relu)", "2 inputs; Relu takes 1", |m| {
            plus(m, node("z = Relu(x, x)"));
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
            plus(m, node("= local:Op(x)"));
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
            plus(m, node("z = Constant()"));
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
            main_graph(m).input[0].r#type = None;
        }),
        error(MissingShape, "graph \"main\" / input \"x\"", "shape is missing", |m| {
            let ty = main_graph(m).input[0].r#type.as_mut().unwrap();
            ty.tensor_type.as_mut().unwrap().shape = None;
        }),
        error(MissingType, "graph \"main\" / output \"y\"", "type is missing", |m| {
            main_graph(m).output[0].r#type = None;
        }),
        error(MissingType, "graph \"main\" / output \"y\"", "element type is missing", |m| {
            let ty = main_graph(m).output[0].r#type.as_mut().unwrap();
            ty.tensor_type.as_mut().unwrap().elem_type = None;
        }),
        error(TypeMismatch, "graph \"main\" / node 4 (Mul)", "is float and input 0 (A) is int64", |m| {
            plus(m, node("whole = Shape(x)"));
            plus(m, node("z = Mul(whole, x)"));
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
