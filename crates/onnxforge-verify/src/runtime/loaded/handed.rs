//! Models handed to ONNX Runtime without writing their weights anywhere.

use std::path::{Path, PathBuf};

use ort::value::DynValue;

use super::{RuntimeError, values};
use onnxforge_ir::io::message::to_message;
use onnxforge_ir::io::tensor::{Place, external_entries};
use onnxforge_ir::tensor::Data;
use onnxforge_ir::{Model, Tensor};
use onnxforge_ops::Array;
use onnxforge_proto::Str;
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
