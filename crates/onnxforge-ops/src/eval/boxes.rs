//! Regions of images among synthetic inputs.
//!
//! Corners of a region come in order. Kernels count on that: with the corners of random numbers, ONNX Runtime's RoiAlign reads memory that is not
//! its own.

use super::sample::handed_on;
use crate::eval_call::Memory;
use crate::kernel::convert::{Rounding, convert};
use crate::{Array, OpError};
use onnxforge_ir::value::Use;
use onnxforge_ir::{Model, ValueId};

/// The numbers of a value, as regions of images where they are read as such: rows of x and y of two corners, after the number of the image
/// for MaxRoiPool, which is 0 then.
pub fn ordered(model: &Model, id: ValueId, array: Array) -> Result<Array, OpError> {
    let reads = |op: &str| {
        handed_on(model, id)
            .into_iter()
            .flat_map(|id| model.value(id).uses())
            .any(|used| matches!(*used, Use::Input { node, index: 1 } if model.node(node).op().is(op)))
    };
    let columns = array.shape().last().copied();
    let corners = match columns {
        Some(4) if reads("RoiAlign") => 0,
        Some(5) if reads("MaxRoiPool") => 1,
        _ => return Ok(array),
    };
    let mut numbers = array.to_f64s()?;
    for row in numbers.chunks_exact_mut(corners + 4) {
        row[..corners].fill(0.0);
        let region = &mut row[corners..];
        for axis in 0..2 {
            let (start, size) = (region[axis].abs(), region[axis + 2].abs());
            (region[axis], region[axis + 2]) = (start, start + size);
        }
    }
    let wide = Array::new(array.shape().to_vec(), numbers)?;
    convert(&wide, array.dtype(), Rounding::default(), &Memory::new(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::super::sample::{Options, sample};
    use crate::Value;
    use onnxforge_ir::io::external::ExternalFiles;
    use onnxforge_ir::io::load::from_message;
    use onnxforge_ir::text;
    use std::collections::HashMap;

    #[test]
    fn regions_are_inside_of_images_that_are_there() {
        let graph = "<ir_version: 8, opset_import: [\"\" : 16]>
            g (float[N,3,8,8] x, float16[R,4] r, int64[R] b, float[R,5] p) => (float[R,3,2,2] y, float[R,3,2,2] z) {
            i = Identity(r)
            c = Cast<to = 1>(i)
            y = RoiAlign<output_height = 2, output_width = 2>(x, c, b)
            z = MaxRoiPool<pooled_shape = [2, 2]>(x, p)
        }";
        let model = from_message(text::parse(graph).unwrap(), &mut ExternalFiles::default()).unwrap();
        for seed in 0..8 {
            let dims = HashMap::from([("R".to_owned(), 9), ("N".to_owned(), 1)]);
            let options = Options { seed, dims, ..Options::default() };
            let made = sample(&model, &options, &HashMap::new()).unwrap();
            let numbers = |name: &str| match &made[name] {
                Value::Tensor(array) => array.to_f64s().unwrap(),
                other => panic!("{other:?}"),
            };
            assert!(numbers("b").iter().all(|&image| image == 0.0));
            assert!(numbers("x").iter().any(|&x| x < 0.0));
            let rows = numbers("p");
            let after_image = |row: &[f64]| {
                assert_eq!(row[0], 0.0);
                row[1..].to_vec()
            };
            let regions = numbers("r")
                .chunks(4)
                .map(<[f64]>::to_vec)
                .chain(rows.chunks(5).map(after_image))
                .collect::<Vec<_>>();
            assert_eq!(regions.len(), 18);
            assert!(regions.iter().all(|r| r[0] >= 0.0 && r[1] >= 0.0 && r[2] >= r[0] && r[3] >= r[1]));
        }
    }
}
