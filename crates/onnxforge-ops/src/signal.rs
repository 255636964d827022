//! Signals: Fourier transforms, windows, mel filters, and the images that only arrive as files.

mod dft;
mod fft;
mod filter;

use super::def::{Category, OpDef};
use super::error::{OpError, invalid};
use super::infer_call::Infer;
use onnxforge_ir::dim::Dim;

/// The operators of this family.
pub static OPS: &[OpDef] = &[
    OpDef::new("DFT", Category::Math, dft::infer_dft, dft::dft).widening(),
    OpDef::new("STFT", Category::Math, dft::infer_stft, dft::stft).widening(),
    OpDef::new("HannWindow", Category::Constant, filter::infer_window, filter::hann),
    OpDef::new("HammingWindow", Category::Constant, filter::infer_window, filter::hamming),
    OpDef::new("BlackmanWindow", Category::Constant, filter::infer_window, filter::blackman),
    OpDef::new("MelWeightMatrix", Category::Constant, filter::infer_mel, filter::mel_weight_matrix),
    OpDef::unevaluated("ImageDecoder", Category::Manipulation, infer_image, "image formats are not decoded"),
];

/// Rows, columns and colours.
fn infer_image(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let colours = match cx.call.text("pixel_format")?.as_str() {
        "RGB" | "BGR" => 3,
        "Grayscale" => 1,
        other => return invalid(format!("the pixel format {other:?}")),
    };
    let shape = vec![cx.fresh(), cx.fresh(), Dim::from(colours)];
    cx.set_shape(0, shape);
    Ok(())
}
