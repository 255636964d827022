//! Models handed to ONNX Runtime without writing their weights anywhere.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use ort::value::DynValue;

use super::{RuntimeError, values};
use onnxforge_ir::io::message::to_message;
use onnxforge_ir::io::tensor::{Place, external_entries};
use onnxforge_ir::tensor::Data;
use onnxforge_ir::{Model, Tensor};
use onnxforge_ops::Array;
use onnxforge_proto::Str;
use onnxforge_proto::schema::{
    Dimension, TensorProto, TensorShapeProto, TensorType, TypeProto, ValueInfoProto,
};
use onnxforge_proto::wire;

/// Tensors of so many bytes are weights; smaller ones go with the graph.
const WEIGHT: u64 = 1024;
/// What `data_location` says of tensors that are elsewhere.
const EXTERNAL: i32 = 1;

/// A model as ONNX Runtime takes it.
pub struct Handed {
    /// The model without its weights.
    pub graph: Vec<u8>,
    /// Where files with weights lie.
    pub folder: Option<PathBuf>,
    /// Weights that are in no such file, by name.
    pub weights: Vec<(Str, DynValue)>,
}

impl Handed {
    pub fn new(model: &Model) -> Result<Self, RuntimeError> {
        let unreadable = |error: &dyn std::fmt::Display| RuntimeError::Unreadable(error.to_string());
        let folder = model.source().map(folder_of);
        let mut place = |tensor: &Tensor| {
            let beside = folder.as_deref().and_then(|folder| beside(tensor, folder));
            Ok(beside.map_or(Place::Inside, |(name, offset)| {
                Place::Beside(external_entries(&name, offset, tensor.byte_len()))
            }))
        };
        let mut message = to_message(model, &mut place).map_err(|error| unreadable(&error))?;
        let mut weights = Vec::new();
        let protos = message.graph.iter_mut().flat_map(|graph| &mut graph.initializer);
        let dense =
            model.initializers_in(model.main()).filter_map(|(id, constant)| Some((id, constant.dense()?)));
        for (proto, (id, tensor)) in protos.zip(dense) {
            if proto.data_location == Some(EXTERNAL) || tensor.byte_len() < WEIGHT {
                continue;
            }
            let Ok(array) = Array::from_tensor(tensor) else { continue };
            // Types that it does not take by itself go with the graph.
            let Ok(value) = values::given(array.into()) else { continue };
            proto.raw_data = None;
            (proto.float_data, proto.int32_data) = Default::default();
            (proto.int64_data, proto.double_data, proto.uint64_data) = Default::default();
            proto.data_location = Some(EXTERNAL);
            proto.external_data = external_entries("handed over", 0, tensor.byte_len());
            weights.push((model.value(id).name().clone(), value));
        }
        let mut graph = Vec::new();
        wire::encode(&message).write_to(&mut graph).map_err(RuntimeError::Folder)?;
        Ok(Self { graph, folder, weights })
    }
}

/// A model without its weights, which are inputs instead: small and quickly encoded, whatever the model's size. ONNX Runtime looks for the same
/// operators, versions and types in it.
pub fn without_weights(model: &Model) -> Result<Vec<u8>, RuntimeError> {
    let unreadable = |error: &dyn std::fmt::Display| RuntimeError::Unreadable(error.to_string());
    let mut message =
        to_message(model, &mut |_: &Tensor| Ok(Place::Inside)).map_err(|error| unreadable(&error))?;
    if let Some(graph) = &mut message.graph {
        let weights: HashSet<Str> = model
            .initializers_in(model.main())
            .filter(|(_, constant)| constant.dense().is_some_and(|tensor| tensor.byte_len() >= WEIGHT))
            .map(|(id, _)| model.value(id).name().clone())
            .collect();
        let listed: HashSet<Str> = graph.input.iter().filter_map(|port| port.name.clone()).collect();
        let is_weight =
            |tensor: &TensorProto| tensor.name.as_ref().is_some_and(|name| weights.contains(name));
        let (outside, inside): (Vec<_>, Vec<_>) =
            std::mem::take(&mut graph.initializer).into_iter().partition(is_weight);
        graph.initializer = inside;
        let ports = outside
            .into_iter()
            .filter(|tensor| tensor.name.as_ref().is_some_and(|name| !listed.contains(name)));
        graph.input.extend(ports.map(|tensor| port(&tensor)));
    }
    let mut bytes = Vec::new();
    wire::encode(&message).write_to(&mut bytes).map_err(RuntimeError::Folder)?;
    Ok(bytes)
}

/// An input of the type and shape of a tensor.
fn port(tensor: &TensorProto) -> ValueInfoProto {
    let dim = tensor.dims.iter().map(|&size| Dimension { dim_value: Some(size), ..Dimension::default() });
    let shape = TensorShapeProto { dim: dim.collect(), ..TensorShapeProto::default() };
    let held =
        TensorType { elem_type: tensor.data_type, shape: Some(Box::new(shape)), ..TensorType::default() };
    let r#type = TypeProto { tensor_type: Some(Box::new(held)), ..TypeProto::default() };
    ValueInfoProto { name: tensor.name.clone(), r#type: Some(Box::new(r#type)), ..ValueInfoProto::default() }
}

fn folder_of(path: &Path) -> PathBuf {
    let folder = onnxforge_ir::io::load::folder_of(path);
    std::path::absolute(&folder).unwrap_or(folder)
}

/// The file in the folder that holds the elements of a tensor, and where in it.
fn beside(tensor: &Tensor, folder: &Path) -> Option<(String, u64)> {
    let Data::Bytes(blob) = tensor.data() else { return None };
    let (file, offset) = blob.place().filter(|_| tensor.byte_len() >= WEIGHT)?;
    let path = std::path::absolute(file.path()).ok()?;
    let name = path.strip_prefix(folder).ok()?;
    let links = std::fs::symlink_metadata(&path).ok()?.file_type().is_symlink();
    (!links && file.is_at(&path)).then(|| (name.to_string_lossy().into_owned(), offset))
}
