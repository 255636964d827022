//! onnxforge as a WebAssembly module, for pages and for whatever else runs such modules.
//!
//! The module exchanges bytes with its host through one buffer in its memory: `onnxforge_reserve` makes it as long as what the host is
//! about to write there, a command replaces its contents by the result, and `onnxforge_start` and `onnxforge_length` tell where that is.
//! Functions take and return integers only, so a host needs nothing but the module itself. Commands return 0, or 1 when the buffer holds
//! an error message. There are no files, threads and clocks: weights must be in the model, and limits of time do not apply.

// A function that is called from outside must keep its name, and Rust counts that among unsafe attributes, because two functions of one
// name would be mixed up. The prefix makes these unique. There is no unsafe code here.
#![allow(unsafe_code)]

use std::sync::{Mutex, MutexGuard, PoisonError};

use onnxforge::io::{self, LoadOptions, Source};
use onnxforge::optimize::Verification;
use onnxforge::verify::engine::{Choice, Engine};
use onnxforge::{Options, load_valid};

static BUFFER: Mutex<Vec<u8>> = Mutex::new(Vec::new());

fn buffer() -> MutexGuard<'static, Vec<u8>> {
    BUFFER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes the buffer `length` bytes long, all zero; where it begins.
#[unsafe(no_mangle)]
pub extern "C" fn onnxforge_reserve(length: usize) -> usize {
    let mut buffer = buffer();
    *buffer = vec![0; length];
    buffer.as_ptr().addr()
}

/// Where the buffer begins.
#[unsafe(no_mangle)]
pub extern "C" fn onnxforge_start() -> usize {
    buffer().as_ptr().addr()
}

/// How many bytes the buffer has.
#[unsafe(no_mangle)]
pub extern "C" fn onnxforge_length() -> usize {
    buffer().len()
}

/// Optimizes the model in the buffer, as `onnxforge optimize` does. Unless `verify` is 0, this module's own evaluator compares the result
/// with the original.
#[unsafe(no_mangle)]
pub extern "C" fn onnxforge_optimize(verify: u32) -> u32 {
    let model = std::mem::take(&mut *buffer());
    let (result, code) = match optimize(model, verify != 0) {
        Ok(optimized) => (optimized, 0),
        Err(message) => (message.into_bytes(), 1),
    };
    *buffer() = result;
    code
}

/// The optimized model, with all weights in it.
fn optimize(model: Vec<u8>, verify: bool) -> Result<Vec<u8>, String> {
    let source =
        Source::from_bytes(model, None, &LoadOptions::default()).map_err(|error| error.to_string())?;
    let model = load_valid(source, &[]).map_err(|error| error.to_string())?;
    let verification = match verify {
        true => Verification { engine: Choice::This(Engine::Native), ..Verification::default() },
        false => Verification::off(),
    };
    let options = Options { verification, ..Options::default() };
    let optimized = onnxforge::optimize(model, &options).map_err(|error| error.to_string())?;
    if let Some(reverted) = optimized.report.verification.reverted.first() {
        return Err(format!("a faulty rewrite was reverted: {reverted:?}"));
    }
    io::to_bytes(&optimized.model).map_err(|error| error.to_string())
}
