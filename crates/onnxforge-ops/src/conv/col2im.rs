//! The way back from columns to images: overlapping windows are added up.

use std::ops::Range;

use crate::array::{Array, each_number};
use crate::error::{OpError, invalid};
use crate::eval_call::{Eval, one};
use crate::infer_call::Infer;
use crate::kernel::number::Number;
use crate::kernel::parallel::PARALLEL;
use crate::kernel::window::{Geometry, Sliding, as_sizes};
use crate::value::Value;
use onnxforge_ir::dim::Dim;
use onnxforge_proto::parallel::for_each;

/// Adds columns to one plane: `columns` has a row per kernel element with the positions `range` in it.
pub fn fold<T: Number>(geometry: &Geometry, columns: &[T], range: Range<usize>, plane: &mut [T]) {
    let (first, width) = (range.start, range.len());
    geometry.for_each_run(range, &mut |run| {
        let from = &columns[run.kernel * width + run.positions.start - first..][..run.positions.len()];
        let to = plane[run.input..].iter_mut().step_by(run.step);
        to.zip(from).for_each(|(to, &from)| *to = to.add(from));
    });
}

pub fn col2im(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let x = cx.array(0)?;
    let (image, block) = (sizes(cx, 1)?, sizes(cx, 2)?);
    let &[batch, rows, positions] = x.shape() else {
        return invalid(format!("columns of the shape {:?}", x.shape()));
    };
    if image.is_empty() || image.len() != block.len() {
        return invalid(format!("blocks of {block:?} for an image of {image:?}"));
    }
    let geometry = Sliding::of(&cx.call, image.len())?.fit(&image, &block)?;
    let kernel = geometry.kernel_len();
    if geometry.output_len() != positions || rows % kernel != 0 {
        return invalid(format!(
            "columns of {:?} for blocks of {block:?} of an image of {image:?}",
            x.shape()
        ));
    }
    let shape: Vec<usize> = [batch, rows / kernel].into_iter().chain(image).collect();
    each_number!(x, T => {
        let (columns, mut out) = (x.slice::<T>()?, cx.zeros::<T>(&shape)?);
        if !out.is_empty() && !columns.is_empty() {
            let block = kernel * positions;
            let planes = out.chunks_exact_mut(geometry.input_len()).zip(columns.chunks_exact(block));
            for_each(planes, PARALLEL / block, |(plane, columns)| fold(&geometry, columns, 0..positions, plane));
        }
        one(Array::new(shape, out)?)
    })
}

fn sizes(cx: &Eval<'_>, index: usize) -> Result<Vec<usize>, OpError> {
    let given = cx.array(index)?.to_i64s()?;
    match given.iter().map(|&size| usize::try_from(size)).collect() {
        Ok(sizes) => Ok(sizes),
        Err(_) => invalid(format!("sizes of {given:?}")),
    }
}

pub fn infer(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let image = match (cx.dims(1), cx.shape(1)) {
        (Some(image), _) => Some(as_sizes(image)?),
        (None, Some([axes])) => match axes.as_const() {
            // More axes than any tensor has tell nothing.
            Some(axes @ 0..=64) => Some(cx.fresh_shape(axes as usize)),
            _ => None,
        },
        _ => None,
    };
    let Some(image) = image else { return Ok(()) };
    let block = cx.dims(2).and_then(|block| Dim::product(&block));
    let columns = cx.shape(0).map(<[Dim]>::to_vec);
    let (batch, channels) = match columns.as_deref() {
        Some([batch, rows, _]) => {
            let channels = block.and_then(|block| rows.floor_div(&block, cx.symbols));
            (batch.clone(), cx.or_fresh(channels))
        }
        Some(other) => return invalid(format!("columns with {} axes", other.len())),
        None => (cx.fresh(), cx.fresh()),
    };
    cx.set_shape(0, [batch, channels].into_iter().chain(image).collect());
    Ok(())
}
