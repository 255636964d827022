//! Models to files: atomic, streaming, and with weights where they should be.
//!
//! Data files are complete, and on the disk when a model is replaced, before the model file that refers to them takes
//! its place, by rename. A data file that the model being replaced refers to is never overwritten, so at every moment the
//! old or the new model is whole. What is saved has data files of its own, unless sharing is asked for.

use std::io;
use std::path::Path;

use super::load::folder_of;
use super::message::{to_inline_message, to_message};
use super::plan::DataPlan;
use super::request::MESSAGE_LIMIT;
pub use super::request::{External, SaveError, SaveOptions, Saved};
use super::staged::Staged;
use crate::model::Model;
use crate::tensor::TensorError;
use onnxforge_proto::progress::{Progress, Silent, Unit};
use onnxforge_proto::schema::ModelProto;
use onnxforge_proto::wire;

/// Writes `model` to `path`.
pub fn save(model: &Model, path: &Path, options: &SaveOptions) -> Result<Saved, SaveError> {
    save_with(model, path, options, &Silent)
}

/// Writes `model` to `path` and tells `progress` about the bytes on their way.
pub fn save_with(
    model: &Model,
    path: &Path,
    options: &SaveOptions,
    progress: &dyn Progress,
) -> Result<Saved, SaveError> {
    require_folder(path)?;
    let tensor_error = |source| SaveError::Tensor { path: path.to_owned(), source };
    let mut plan = DataPlan::new(path, options.external, model)?;
    let message = to_message(model, &mut |tensor| plan.place(tensor)).map_err(tensor_error)?;
    let encoded = wire::encode(&message);
    drop(message);
    if encoded.byte_len() >= MESSAGE_LIMIT {
        if matches!(options.external, External::Keep | External::Share | External::Auto) {
            // Weights that were, or were thought to fit, inside do not fit there.
            return save_with(model, path, &SaveOptions { external: External::Split }, progress);
        }
        return Err(SaveError::TooLarge { path: path.to_owned(), size: encoded.byte_len() });
    }

    // All files are written in full before the first one takes its place.
    let size = encoded.byte_len();
    let durable = replaces(path);
    let total = plan.files.iter().fold(size, |total, file| total.saturating_add(file.end));
    progress.begin("writing", total, Unit::Bytes);
    let written =
        plan.files.iter().map(|file| file.write(durable, progress)).collect::<Result<Vec<_>, _>>().and_then(
            |mut staged| {
                staged.push(Staged::write(path, size, durable, progress, |out| {
                    out.copy_all(encoded.pieces().map(|piece| (None, piece)))
                })?);
                Ok(staged)
            },
        );
    progress.end();

    let mut saved = Staged::persist_all(written?)?;
    saved.shared = plan.shared;
    for old in plan.obsolete {
        // The new model does not need it and the old one is gone; leaving it behind is no error.
        drop(std::fs::remove_file(old));
    }
    Ok(saved)
}

/// Whether the folder of `path` exists; worth asking before long work. Saving asks by itself and makes no folder: a path
/// with a typo in it is an error.
pub fn require_folder(path: &Path) -> Result<(), SaveError> {
    let folder = folder_of(path);
    match folder.metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(SaveError::NoFolder { path: path.to_owned(), folder })
        }
        // Other problems have errors of their own when the file is written.
        _ => Ok(()),
    }
}

/// Whether there is something to lose: then the new file is on the disk before it takes the old one's place. A new file
/// gets there in the system's own time, as with `cp`.
fn replaces(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// Writes a message as it is; its external data is not touched.
pub fn save_message(message: &ModelProto, path: &Path) -> Result<Saved, SaveError> {
    let encoded = wire::encode(message);
    let size = encoded.byte_len();
    if size >= MESSAGE_LIMIT {
        return Err(SaveError::TooLarge { path: path.to_owned(), size });
    }
    require_folder(path)?;
    let staged = Staged::write(path, size, replaces(path), &Silent, |out| {
        out.copy_all(encoded.pieces().map(|piece| (None, piece)))
    })?;
    Staged::persist_all(vec![staged])
}

/// Writes a file in one step: it is there in full, or not at all.
pub fn write_file(
    path: &Path,
    write: impl FnOnce(&mut dyn io::Write) -> io::Result<()>,
) -> Result<Saved, SaveError> {
    require_folder(path)?;
    let staged = Staged::write(path, 0, replaces(path), &Silent, |out| write(out))?;
    let mut saved = Staged::persist_all(vec![staged])?;
    for (path, size) in &mut saved.files {
        *size = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    }
    Ok(saved)
}

/// Encodes `model` with all weights in it.
pub fn to_bytes(model: &Model) -> Result<Vec<u8>, TensorError> {
    let message = to_inline_message(model)?;
    let encoded = wire::encode(&message);
    if encoded.byte_len() >= MESSAGE_LIMIT {
        return Err(TensorError::Unavailable(
            "the model would have 2 GiB or more, the limit of the format".into(),
        ));
    }
    let mut bytes = Vec::with_capacity(encoded.byte_len() as usize);
    encoded.write_to(&mut bytes).map_err(|error| TensorError::Unavailable(error.to_string().into()))?;
    Ok(bytes)
}
