//! The identity card of a model: interface, operators, weights.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

use onnxforge_ir::io::external::Reference;
use onnxforge_ir::io::message::tensors;
use onnxforge_ir::model::Model;
use onnxforge_ir::scope::ScopeKind;
use onnxforge_ir::tensor::{Data, Storage, Tensor};
use onnxforge_ir::value::{Constant, Port};

/// Everything that `inspect` tells.
#[derive(Clone, Debug, Serialize)]
pub struct Inspection {
    /// Version of this layout.
    pub schema: u32,
    /// The file, when there is one.
    pub path: Option<String>,
    /// Bytes of the model file.
    pub file_bytes: Option<u64>,
    /// Data files that weights lie in.
    pub data_files: Vec<DataFile>,
    /// Version of the format.
    pub ir_version: Option<i64>,
    /// Operator sets by domain; the standard one is `ai.onnx`.
    pub opsets: BTreeMap<String, i64>,
    /// What made the model.
    pub producer: Option<String>,
    /// Name of the graph.
    pub graph: Option<String>,
    /// What the model takes.
    pub inputs: Vec<Interface>,
    /// What the model gives.
    pub outputs: Vec<Interface>,
    /// Nodes of the main graph.
    pub nodes: usize,
    /// Nodes of the whole model, bodies and functions included.
    pub nodes_total: usize,
    /// Bodies of control-flow nodes.
    pub bodies: usize,
    /// Local functions.
    pub functions: Vec<String>,
    /// How often each operator is called in the whole model, the most frequent first.
    pub operators: Vec<OperatorCount>,
    /// Number of initializers.
    pub initializers: usize,
    /// Number of elements of floating-point initializers.
    pub parameters: u64,
    /// Bytes of all stored tensors.
    pub weight_bytes: u64,
    /// Tensors and bytes by element type, the largest share first.
    pub dtypes: Vec<DTypeShare>,
    /// The largest initializers, the largest first.
    pub largest: Vec<TensorSize>,
    /// Keys of the model's metadata.
    pub metadata: Vec<String>,
}

/// A data file.
#[derive(Clone, Debug, Serialize)]
pub struct DataFile {
    /// Its name in the model.
    pub location: String,
    /// Bytes that the model uses of it.
    pub bytes: u64,
    /// Whether all of them can be read.
    pub available: bool,
}

/// An input or output.
#[derive(Clone, Debug, Serialize)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its type in the ONNX notation.
    #[serde(rename = "type")]
    pub ty: String,
    /// Whether it has a default that a caller may override.
    pub default: bool,
}

/// How often an operator is called.
#[derive(Clone, Debug, Serialize, PartialEq, Eq)]
pub struct OperatorCount {
    /// Operator, with its domain unless that is the standard one.
    pub op: String,
    /// Number of calls.
    pub count: usize,
}

/// What share of the weights has an element type.
#[derive(Clone, Debug, Serialize)]
pub struct DTypeShare {
    /// Element type.
    pub dtype: String,
    /// Number of tensors.
    pub tensors: usize,
    /// Their bytes.
    pub bytes: u64,
}

/// The size of a tensor.
#[derive(Clone, Debug, Serialize)]
pub struct TensorSize {
    /// Its name.
    pub name: String,
    /// Element type.
    pub dtype: String,
    /// Dimensions.
    pub shape: Vec<usize>,
    /// Bytes.
    pub bytes: u64,
}

/// How many of the largest tensors are listed.
const LARGEST: usize = 10;

/// Describes `model`.
pub fn inspect(model: &Model, path: Option<&Path>) -> Inspection {
    let main = model.scope(model.main());
    let header = model.header();
    let operators = model.operator_counts().into_iter();
    let mut operators: Vec<_> = operators.map(|(op, count)| OperatorCount { op, count }).collect();
    operators.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.op.cmp(&b.op)));

    let mut dtypes: BTreeMap<&str, (usize, u64)> = BTreeMap::new();
    for tensor in tensors(model) {
        let share = dtypes.entry(tensor.dtype().name()).or_default();
        share.0 += 1;
        share.1 = share.1.saturating_add(tensor.byte_len());
    }
    let mut dtypes: Vec<_> = dtypes
        .into_iter()
        .map(|(dtype, (tensors, bytes))| DTypeShare { dtype: dtype.to_owned(), tensors, bytes })
        .collect();
    dtypes.sort_by_key(|share| std::cmp::Reverse(share.bytes));

    let mut named: Vec<(&str, &Tensor)> = model
        .initializers()
        .filter_map(|(id, constant)| match constant {
            Constant::Dense(tensor) => Some((&**model.value(id).name(), tensor)),
            Constant::Sparse(_) => None,
        })
        .collect();
    named.sort_by(|a, b| b.1.byte_len().cmp(&a.1.byte_len()).then_with(|| a.0.cmp(b.0)));
    let float = |tensor: &&Tensor| tensor.dtype().kind() == onnxforge_ir::dtype::Kind::Float;

    let producer = [&header.producer_name, &header.producer_version].into_iter().flatten();
    let producer = producer.filter(|text| !text.is_empty()).map(|text| &**text).collect::<Vec<_>>().join(" ");
    let domain = |domain: &str| {
        if domain.is_empty() { "ai.onnx".to_owned() } else { domain.to_owned() }
    };
    Inspection {
        schema: 1,
        path: path.map(|path| path.display().to_string()),
        file_bytes: path.and_then(|path| std::fs::metadata(path).ok()).map(|metadata| metadata.len()),
        data_files: data_files(model),
        ir_version: header.ir_version,
        opsets: header
            .opset_import
            .iter()
            .map(|import| (domain(import.domain.as_deref().unwrap_or_default()), import.version.unwrap_or(0)))
            .collect(),
        producer: (!producer.is_empty()).then_some(producer),
        graph: main.name().map(ToString::to_string),
        inputs: main.inputs().iter().map(|port| interface(model, port)).collect(),
        outputs: main.outputs().iter().map(|port| interface(model, port)).collect(),
        nodes: main.node_count(),
        nodes_total: model.node_count(),
        bodies: model.scopes().filter(|(_, scope)| scope.holder().is_some()).count(),
        functions: model
            .functions()
            .iter()
            .filter_map(|&scope| match model.scope(scope).kind() {
                ScopeKind::Function(function) => {
                    let name = function.name.as_deref().unwrap_or_default();
                    Some(match function.domain.as_deref().unwrap_or_default() {
                        "" => name.to_owned(),
                        domain => format!("{domain}.{name}"),
                    })
                }
                _ => None,
            })
            .collect(),
        operators,
        initializers: model.initializers().count(),
        parameters: saturating_sum(
            named.iter().map(|(_, tensor)| tensor).filter(|t| float(t)).map(|t| t.len() as u64),
        ),
        weight_bytes: saturating_sum(dtypes.iter().map(|share| share.bytes)),
        dtypes,
        largest: named
            .iter()
            .take(LARGEST)
            .map(|(name, tensor)| TensorSize {
                name: (*name).to_owned(),
                dtype: tensor.dtype().name().to_owned(),
                shape: tensor.shape().to_vec(),
                bytes: tensor.byte_len(),
            })
            .collect(),
        metadata: header
            .metadata_props
            .iter()
            .filter_map(|entry| entry.key.as_deref())
            .map(str::to_owned)
            .collect(),
    }
}

/// A file may claim any sizes; their sum stays at the largest number instead of overflowing.
fn saturating_sum(sizes: impl Iterator<Item = u64>) -> u64 {
    sizes.fold(0, u64::saturating_add)
}

fn interface(model: &Model, port: &Port) -> Interface {
    let value = model.value(port.value);
    let default = matches!(value.def(), onnxforge_ir::Def::Input { default: Some(_), .. });
    Interface { name: value.name().to_string(), ty: port.declared().to_string(), default }
}

fn data_files(model: &Model) -> Vec<DataFile> {
    let mut files: BTreeMap<String, (u64, bool)> = BTreeMap::new();
    for tensor in tensors(model) {
        if let Storage::External(entries) = tensor.storage()
            && let Ok(reference) = Reference::parse(entries)
        {
            let file = files.entry(reference.location.to_string()).or_insert((0, true));
            file.0 = file.0.saturating_add(tensor.byte_len());
            file.1 &= !matches!(tensor.data(), Data::Unavailable(_));
        }
    }
    files.into_iter().map(|(location, (bytes, available))| DataFile { location, bytes, available }).collect()
}
