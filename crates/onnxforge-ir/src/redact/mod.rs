//! Models without their weights, to share; and the way back with weights drawn from the same distributions.
//!
//! A redacted tensor keeps its name, type and shape. Its elements become a reference to a data file that does not exist,
//! and a [`Recipe`] in its metadata says what they looked like from afar.

mod generate;
mod names;
mod recipe;

use std::collections::HashSet;
use std::sync::Arc;

pub use generate::Generator;
pub use recipe::Recipe;

use crate::io::external::ExternalFiles;
pub use crate::io::tensor::RECIPE_KEY;
use crate::io::tensor::{StoredTensorError, external_entries, from_proto};
use crate::tensor::{Data, TensorError, element_count};
use crate::{DType, Tensor};
use onnxforge_proto::blob::{Blob, Payload, Stream};
use onnxforge_proto::schema::{AttributeProto, ModelProto, StringStringEntryProto, TensorProto};
use onnxforge_proto::walk::{Visitor, walk};

/// The data file that redacted tensors refer to; it does not exist.
pub const LOCATION: &str = "weights-redacted";

/// How to redact.
#[derive(Clone, Debug)]
pub struct RedactOptions {
    /// Tensors with fewer bytes stay as they are: axes, shapes, epsilons.
    pub keep_below: u64,
    /// Replace names by hashes of them (with this text mixed in) and drop documentation and metadata.
    pub hash_names: Option<String>,
}

impl Default for RedactOptions {
    fn default() -> Self {
        Self { keep_below: 512, hash_names: None }
    }
}

/// What redacting took out, or materializing put in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Redacted {
    /// Tensors and lists with other elements, or none.
    pub tensors: usize,
    /// Bytes that they had.
    pub bytes: u64,
}

/// Why a model cannot be redacted or given weights.
#[derive(Debug, thiserror::Error)]
pub enum RedactError {
    /// A stored tensor that makes no sense.
    #[error("tensor {name:?}: {source}")]
    Stored {
        /// The tensor.
        name: String,
        /// What is wrong with it.
        source: StoredTensorError,
    },
    /// The elements of a tensor cannot be had.
    #[error("tensor {name:?}: {source}")]
    Elements {
        /// The tensor.
        name: String,
        /// Why not.
        source: TensorError,
    },
    /// A recipe cannot be read.
    #[error("tensor {name:?}: its recipe cannot be read: {why}")]
    Recipe {
        /// The tensor.
        name: String,
        /// Why not.
        why: String,
    },
    /// There is nothing to fill in.
    #[error("the model has no redacted tensor; it has its weights already")]
    NothingRedacted,
}

/// Takes the weights out of `model`.
pub fn redact(
    model: &mut ModelProto,
    files: &mut ExternalFiles,
    options: &RedactOptions,
) -> Result<Redacted, RedactError> {
    let mut redactor = Redactor { files, options, offset: 0, done: Redacted::default(), failure: None };
    walk(model, &mut redactor);
    let done = match redactor.failure {
        Some(error) => return Err(error),
        None => redactor.done,
    };
    if let Some(salt) = &options.hash_names {
        names::hash(model, salt);
    }
    Ok(done)
}

struct Redactor<'a> {
    files: &'a mut ExternalFiles,
    options: &'a RedactOptions,
    offset: u64,
    done: Redacted,
    failure: Option<RedactError>,
}

impl Visitor for Redactor<'_> {
    fn tensor(&mut self, tensor: &mut TensorProto) {
        if self.failure.is_none() {
            let Self { files, options, offset, done, .. } = self;
            self.failure = redact_tensor(tensor, files, options, offset, done).err();
        }
    }

    /// Attributes have no other place for elements, so long lists get other elements right here. Integers stay: they
    /// are the structure of trees and the axes of operators.
    fn attribute(&mut self, attribute: &mut AttributeProto) {
        let mut taken = 0;
        if attribute.floats.len() as u64 * 4 >= self.options.keep_below {
            let other = Tensor::from_f32s([attribute.floats.len()], &attribute.floats)
                .and_then(|floats| Recipe::measure(&floats))
                .ok()
                .and_then(|recipe| Generator::new(recipe, DType::F32, attribute.floats.len(), 0, taken).ok())
                .and_then(|generator| {
                    let mut bytes = Vec::new();
                    generator.write_to(&mut bytes).ok()?;
                    Some(bytes.as_chunks().0.iter().map(|chunk| f32::from_le_bytes(*chunk)).collect())
                });
            taken += attribute.floats.len() as u64 * 4;
            attribute.floats = other.unwrap_or_else(|| vec![0.0; attribute.floats.len()]);
        }
        // A list with repetitions is a list of modes; one without is a vocabulary.
        let bytes: u64 = attribute.strings.iter().map(|text| text.len() as u64).sum();
        let distinct: HashSet<&[u8]> = attribute.strings.iter().map(|text| &**text).collect();
        if bytes >= self.options.keep_below && distinct.len() == attribute.strings.len() {
            taken += bytes;
            attribute.strings = numbered(attribute.strings.len());
        }
        if taken > 0 {
            self.done.tensors += 1;
            self.done.bytes = self.done.bytes.saturating_add(taken);
        }
    }
}

/// Strings that say nothing but their position.
fn numbered(count: usize) -> Vec<Blob> {
    (0..count).map(|i| format!("s{i}").as_str().into()).collect()
}

fn redact_tensor(
    proto: &mut TensorProto,
    files: &mut ExternalFiles,
    options: &RedactOptions,
    offset: &mut u64,
    done: &mut Redacted,
) -> Result<(), RedactError> {
    let name = proto.name.as_deref().unwrap_or_default().to_owned();
    if recipe_of(proto).is_some() {
        return Ok(());
    }
    let tensor = from_proto(proto.clone(), files)
        .map_err(|source| RedactError::Stored { name: name.clone(), source })?;
    let bytes = tensor.byte_len();
    if tensor.dtype() == DType::String {
        if bytes >= options.keep_below || options.hash_names.is_some() {
            proto.string_data = numbered(proto.string_data.len());
            done.tensors += 1;
            done.bytes = done.bytes.saturating_add(bytes);
        }
        return Ok(());
    }
    if bytes < options.keep_below && !matches!(tensor.data(), Data::Unavailable(_)) {
        inline(proto, &tensor);
        return Ok(());
    }
    let recipe =
        Recipe::measure(&tensor).map_err(|source| RedactError::Elements { name: name.clone(), source })?;
    let recipe =
        serde_json::to_string(&recipe).map_err(|e| RedactError::Recipe { name, why: e.to_string() })?;
    clear_elements(proto);
    proto.external_data = external_entries(LOCATION, *offset, bytes);
    proto.data_location = Some(1);
    proto.metadata_props.push(StringStringEntryProto {
        key: Some(RECIPE_KEY.into()),
        value: Some(recipe.into()),
        ..StringStringEntryProto::default()
    });
    *offset = offset.saturating_add(bytes).checked_next_multiple_of(64).unwrap_or(u64::MAX);
    done.tensors += 1;
    done.bytes = done.bytes.saturating_add(bytes);
    Ok(())
}

/// Small external tensors move into the skeleton, which has no data file.
fn inline(proto: &mut TensorProto, tensor: &Tensor) {
    if proto.data_location == Some(1)
        && let Ok(payload) = tensor.payload()
    {
        clear_elements(proto);
        proto.raw_data = Some(payload);
    }
}

fn clear_elements(proto: &mut TensorProto) {
    let TensorProto { dims, data_type, segment, name, doc_string, metadata_props, unknown, .. } =
        std::mem::take(proto);
    *proto = TensorProto {
        dims,
        data_type,
        segment,
        name,
        doc_string,
        metadata_props,
        unknown,
        ..TensorProto::default()
    };
}

/// The recipe of a redacted tensor, as stored.
pub fn recipe_of(proto: &TensorProto) -> Option<&str> {
    proto.metadata_props.iter().find(|entry| entry.key.as_deref() == Some(RECIPE_KEY))?.value.as_deref()
}

/// Gives every redacted tensor elements after its recipe. They are made while the model is saved, the same ones for the
/// same seed on every machine.
pub fn materialize(model: &mut ModelProto, seed: u64) -> Result<Redacted, RedactError> {
    let mut done = Redacted::default();
    let mut failure = None;
    walk(model, &mut |proto: &mut TensorProto| {
        if failure.is_none() {
            failure = materialize_tensor(proto, seed, &mut done).err();
        }
    });
    match failure {
        Some(error) => Err(error),
        None if done.tensors == 0 => Err(RedactError::NothingRedacted),
        None => Ok(done),
    }
}

fn materialize_tensor(proto: &mut TensorProto, seed: u64, done: &mut Redacted) -> Result<(), RedactError> {
    let Some(text) = recipe_of(proto) else {
        return Ok(());
    };
    let name = proto.name.as_deref().unwrap_or_default().to_owned();
    let unreadable = |why: String| RedactError::Recipe { name: name.clone(), why };
    let recipe: Recipe = serde_json::from_str(text).map_err(|error| unreadable(error.to_string()))?;
    let dtype = DType::from_code(proto.data_type.unwrap_or(0))
        .ok_or_else(|| unreadable("unknown data type".into()))?;
    let shape: Option<Vec<usize>> = proto.dims.iter().map(|&dim| usize::try_from(dim).ok()).collect();
    let count =
        shape.as_deref().and_then(element_count).ok_or_else(|| unreadable("impossible shape".into()))?;
    let generator = Generator::new(recipe, dtype, count, seed, done.tensors as u64).map_err(unreadable)?;
    done.tensors += 1;
    done.bytes = done.bytes.saturating_add(dtype.byte_len(count).unwrap_or(0) as u64);
    clear_elements(proto);
    proto.metadata_props.retain(|entry| entry.key.as_deref() != Some(RECIPE_KEY));
    proto.raw_data = Some(Payload::Stream(Arc::new(generator)));
    Ok(())
}
