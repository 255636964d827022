//! Weights as floats of 16 bits, which become 32 bits when a file is loaded.

use std::io::{self, Write};
use std::sync::Arc;

use half::f16;
use onnxforge_ir::{DType, Tensor as Constant};
use onnxforge_proto::blob::{Payload, Stream};

use super::Writer;
use crate::format::Weights;
use crate::tflite::schema;
use crate::view::Why;

/// Whether a constant is one that is stored in 16 bits: a list of floats, none of which becomes infinite there.
pub fn suits(weights: Weights, constant: &Constant) -> bool {
    if weights != Weights::Float16 || constant.dtype() != DType::F32 || constant.len() < 2 {
        return false;
    }
    let mut largest = Largest::default();
    constant.payload().is_ok_and(|payload| payload.write_to(&mut Floats::new(&mut largest)).is_ok())
        && !largest.overflows
}

impl Writer<'_> {
    /// A constant in 16 bits, and what makes 32 of them.
    pub(super) fn halved(&mut self, name: &str, constant: &Constant) -> Result<i32, Why> {
        let half = self.stored(&format!("{name}/float16"), constant)?;
        let source = constant.payload().map_err(|error| Why::from(error.to_string()))?;
        let shape = constant.shape().iter().map(|&size| (size as i64).into()).collect::<Vec<_>>();
        if let Some(tensor) = self.graph.tensors.get_mut(half as usize) {
            tensor.dtype = super::code(DType::F16)?;
            tensor.data = Some(Payload::Stream(Arc::new(Halves { source })));
        }
        let whole = self.computed(name, DType::F32, &shape)?;
        self.emit(schema::DEQUANTIZE, 3, vec![], &[half], &[whole]);
        Ok(whole)
    }
}

/// Floats of 32 bits as such of 16.
#[derive(Debug)]
struct Halves {
    source: Payload,
}

impl Stream for Halves {
    fn byte_len(&self) -> u64 {
        self.source.byte_len() / 2
    }

    fn write_to(&self, out: &mut dyn Write) -> io::Result<()> {
        self.source.write_to(&mut Floats::new(&mut Rounded(out)))
    }
}

/// What takes floats, a few at a time.
trait Sink {
    fn take(&mut self, floats: &[[u8; 4]]) -> io::Result<()>;
}

/// Bytes as floats, wherever they are cut.
struct Floats<'a> {
    sink: &'a mut dyn Sink,
    rest: Vec<u8>,
}

impl<'a> Floats<'a> {
    fn new(sink: &'a mut dyn Sink) -> Self {
        Self { sink, rest: Vec::new() }
    }
}

impl Write for Floats<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut bytes = &bytes[..bytes.len().min(1 << 20)];
        let taken = bytes.len();
        if !self.rest.is_empty() {
            let missing = (4 - self.rest.len()).min(bytes.len());
            self.rest.extend_from_slice(&bytes[..missing]);
            bytes = &bytes[missing..];
            if self.rest.len() == 4 {
                self.sink.take(self.rest.as_chunks().0)?;
                self.rest.clear();
            }
        }
        let (floats, rest) = bytes.as_chunks();
        self.sink.take(floats)?;
        self.rest.extend_from_slice(rest);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Rounded<'a>(&'a mut dyn Write);

impl Sink for Rounded<'_> {
    fn take(&mut self, floats: &[[u8; 4]]) -> io::Result<()> {
        let halves: Vec<u8> =
            floats.iter().flat_map(|&bytes| f16::from_f32(f32::from_le_bytes(bytes)).to_le_bytes()).collect();
        self.0.write_all(&halves)
    }
}

#[derive(Default)]
struct Largest {
    overflows: bool,
}

impl Sink for Largest {
    fn take(&mut self, floats: &[[u8; 4]]) -> io::Result<()> {
        self.overflows |= floats.iter().any(|&bytes| {
            let float = f32::from_le_bytes(bytes);
            float.is_finite() && f16::from_f32(float).is_infinite()
        });
        Ok(())
    }
}
