//! Who looks over the driver's shoulder.

use onnxforge_ir::{Model, Rewrite};
use onnxforge_ops::infer::Inference;

/// Sees every change, before and after it is made.
pub trait Witness {
    /// The change is about to be made.
    fn before(&mut self, model: &Model, facts: &Inference, rewrite: &Rewrite);

    /// The change is made, as the last entry of the journal, or it could not be made and the model is as it was. `false`: it is
    /// wrong, and nothing more shall be changed.
    fn after(&mut self, model: &Model, facts: &Inference, is_made: bool) -> bool;

    /// A pass has made changes and is done for now. `false`: they are wrong, and nothing more shall be changed.
    fn passed(&mut self, model: &Model, pass: &'static str) -> bool {
        let _ = (model, pass);
        true
    }
}
