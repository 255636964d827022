//! Products with weights of a few bits, quantized in blocks.

use crate::array::each_float;
use crate::error::{OpError, invalid, unsupported};
use crate::eval_call::{Eval, one};
use crate::infer_call::Infer;
use crate::kernel::gemm::{Matrix, gemm};
use crate::kernel::number::Float;
use crate::quant::floats;
use crate::{Array, Value};
use onnxforge_ir::dim::Dim;

pub(super) fn infer(cx: &mut Infer<'_>) -> Result<(), OpError> {
    cx.copy_dtype(0, 0);
    let columns = Dim::from(cx.call.int("N")?);
    if let Some([outer @ .., _]) = cx.shape(0) {
        let mut shape = outer.to_vec();
        shape.push(columns);
        cx.set_shape(0, shape);
    }
    Ok(())
}

/// How the weights are stored: for each of `columns` columns, `blocks` blocks of `block` numbers of `bits` bits.
struct Layout {
    columns: usize,
    depth: usize,
    block: usize,
    blocks: usize,
    bits: usize,
}

impl Layout {
    fn new(cx: &Eval<'_>) -> Result<Self, OpError> {
        let read = |name: &str| {
            let value = cx.call.int(name)?;
            usize::try_from(value).or_else(|_| invalid(format!("the attribute {name} is {value}")))
        };
        let (columns, depth, block) = (read("N")?, read("K")?, read("block_size")?);
        let bits = cx.call.int_or("bits", 4)?;
        if !block.is_power_of_two() || block < 16 {
            return invalid(format!("blocks of {block}"));
        }
        match bits {
            2 | 4 | 8 => {
                Ok(Self { columns, depth, block, blocks: depth.div_ceil(block), bits: bits as usize })
            }
            _ => unsupported(format!("weights of {bits} bits")),
        }
    }

    /// Bytes of one block.
    fn blob(&self) -> usize {
        self.block / 8 * self.bits
    }

    /// Number `index` of those that are packed into the bytes from the lowest bits on.
    fn unpack(&self, bytes: &[u8], index: usize) -> u8 {
        let first = index * self.bits;
        let shifted = bytes[first / 8] >> (first % 8);
        shifted & (0xff >> (8 - self.bits))
    }
}

pub(super) fn eval(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    if cx.has(4) {
        return unsupported("weights in groups by index");
    }
    if cx.call.int_or("weight_prepacked", 0)? != 0 {
        return unsupported("weights that are packed for a device");
    }
    let a = cx.array(0)?;
    each_float!(a, T => compute::<T>(cx, a))
}

fn compute<T: Float>(cx: &Eval<'_>, a: &Array) -> Result<Vec<Value>, OpError> {
    let layout = Layout::new(cx)?;
    let Some((&depth, outer)) = a.shape().split_last() else { return invalid("a product with a scalar") };
    if depth != layout.depth {
        return invalid(format!("a factor of shape {:?} where K is {}", a.shape(), layout.depth));
    }
    let weights = weights::<T>(cx, &layout)?;
    let mut shape = outer.to_vec();
    shape.push(layout.columns);
    let mut out = cx.zeros::<T>(&shape)?;
    let rows = cx.count(outer)?;
    let a = Matrix::new(a.slice()?, rows, depth);
    gemm(&mut out, a, Matrix::transposed(&weights, depth, layout.columns), T::ONE, false, true);
    if let Some(bias) = cx.opt_array(5)? {
        let bias = floats::<T>(bias)?;
        if bias.len() != layout.columns {
            return invalid(format!("a bias of {} elements for {} columns", bias.len(), layout.columns));
        }
        out.iter_mut().zip(bias.iter().cycle()).for_each(|(out, &bias)| *out += bias);
    }
    one(Array::new(shape, out)?)
}

/// The weights as numbers, one row for each column of the product.
fn weights<T: Float>(cx: &Eval<'_>, layout: &Layout) -> Result<Vec<T>, OpError> {
    let Layout { columns, depth, block, blocks, .. } = *layout;
    let (packed, scales) = (cx.array(1)?.slice::<u8>()?, floats::<T>(cx.array(2)?)?);
    let zeros = Zeros::<T>::new(cx.opt_array(3)?, layout)?;
    let count = columns.checked_mul(blocks);
    let bytes = count.and_then(|count| count.checked_mul(layout.blob()));
    if bytes != Some(packed.len()) || count != Some(scales.len()) {
        return invalid(format!(
            "{} bytes and {} scales for K {depth}, N {columns}",
            packed.len(),
            scales.len()
        ));
    }
    let mut out = cx.zeros::<T>(&[columns, depth])?;
    for (column, row) in out.chunks_mut(depth.max(1)).enumerate() {
        for (part, numbers) in row.chunks_mut(block).enumerate() {
            let at = column * blocks + part;
            let (bytes, scale) = (&packed[at * layout.blob()..][..layout.blob()], scales[at]);
            let zero = zeros.at(column, part, layout);
            for (index, number) in numbers.iter_mut().enumerate() {
                *number = (T::from_f64(layout.unpack(bytes, index).into()) - zero) * scale;
            }
        }
    }
    Ok(out)
}

/// The zero point of each block.
enum Zeros<'a, T> {
    /// The middle of the range.
    Middle(T),
    /// Packed like the weights.
    Packed(&'a [u8]),
    /// As numbers.
    Numbers(Vec<T>),
}

impl<'a, T: Float> Zeros<'a, T> {
    fn new(array: Option<&'a Array>, layout: &Layout) -> Result<Self, OpError> {
        let Some(array) = array else {
            return Ok(Self::Middle(T::from_f64(f64::from(1u32 << (layout.bits - 1)))));
        };
        let per_column = match array.slice::<u8>() {
            Ok(_) => (layout.blocks * layout.bits).div_ceil(8),
            Err(_) => layout.blocks,
        };
        if layout.columns.checked_mul(per_column) != Some(array.len()) {
            return invalid(format!("zero points of shape {:?}", array.shape()));
        }
        match array.slice::<u8>() {
            Ok(bytes) => Ok(Self::Packed(bytes)),
            Err(_) => Ok(Self::Numbers(floats(array)?)),
        }
    }

    fn at(&self, column: usize, block: usize, layout: &Layout) -> T {
        match self {
            Self::Middle(zero) => *zero,
            Self::Numbers(zeros) => zeros[column * layout.blocks + block],
            Self::Packed(bytes) => {
                let width = (layout.blocks * layout.bits).div_ceil(8);
                T::from_f64(layout.unpack(&bytes[column * width..][..width], block).into())
            }
        }
    }
}
