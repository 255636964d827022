//! What is known of a resized tensor before it is computed.

use super::request::{
    AxisRequest, Policy, Source, check_scales, fit_sizes, fraction, resized_axes, scaled_size,
};
use crate::error::{OpError, invalid};
use crate::infer_call::Infer;
use crate::kernel::window::as_sizes;
use onnxforge_ir::dim::{Dim, Symbols};

/// `floor(dim * scale)`, if it is known to be an expression.
fn scaled_dim(dim: &Dim, scale: f32, symbols: &Symbols) -> Option<Dim> {
    if let Some(size) = dim.as_const() {
        return i64::try_from(scaled_size(usize::try_from(size).ok()?, scale)).ok().map(Dim::from);
    }
    let (numerator, denominator) = fraction(scale)?;
    dim.mul(&Dim::from(numerator))?.floor_div(&Dim::from(denominator), symbols)
}

pub fn infer(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let Some(rank) = rank(cx)? else { return Ok(()) };
    let shape = cx.shape(0).map_or_else(|| cx.fresh_shape(rank), <[Dim]>::to_vec);
    let resized = resized_axes(&cx.call, rank)?;
    let mut output = shape.clone();
    for &axis in &resized {
        output[axis] = cx.fresh();
    }
    match known_target(cx)? {
        Some(Known::Scales(scales)) if scales.len() == resized.len() => {
            check_scales(&cx.call, &scales)?;
            for (&axis, scale) in resized.iter().zip(scales) {
                let dim = scaled_dim(&shape[axis], scale, cx.symbols);
                output[axis] = cx.or_fresh(dim);
            }
        }
        Some(Known::Sizes(sizes)) if sizes.len() == resized.len() => {
            let policy = Policy::of(&cx.call)?;
            if policy == Policy::Stretch {
                resized.iter().zip(as_sizes(sizes)?).for_each(|(&axis, size)| output[axis] = size);
            } else if let Some(fitted) = fitted_dims(policy, &resized, &shape, &sizes)? {
                output = fitted;
            }
        }
        Some(_) => return invalid(format!("scales or sizes do not match the {} axes", resized.len())),
        None => {}
    }
    cx.set_shape(0, output);
    Ok(())
}

/// The number of axes, from the tensor or from what speaks of each of its axes.
fn rank(cx: &Infer<'_>) -> Result<Option<usize>, OpError> {
    if let Some(rank) = cx.rank(0) {
        return Ok(Some(rank));
    }
    let from_target = match known_target(cx)? {
        Some(Known::Scales(scales)) => Some(scales.len()),
        Some(Known::Sizes(sizes)) => Some(sizes.len()),
        None => None,
    };
    Ok(from_target.filter(|_| cx.call.attr("axes").is_none()))
}

/// Scales or sizes, where inference knows them.
enum Known {
    Scales(Vec<f32>),
    Sizes(Vec<Dim>),
}

fn known_target(cx: &Infer<'_>) -> Result<Option<Known>, OpError> {
    let (scales, sizes) = match Source::of(&cx.call)? {
        Source::Attribute(scales) => return Ok(Some(Known::Scales(scales))),
        Source::Inputs { scales, sizes } => (scales, sizes),
    };
    let is_empty = |index: usize| matches!(cx.shape(index), Some([Dim::ZERO]));
    if let Some(sizes) = sizes.filter(|&sizes| cx.has(sizes) && !is_empty(sizes)) {
        return Ok(cx.dims(sizes).filter(|sizes| !sizes.is_empty()).map(Known::Sizes));
    }
    let Some(scales) = cx.constant(scales) else { return Ok(None) };
    let scales: Vec<f32> = scales.to_f64s()?.into_iter().map(|scale| scale as f32).collect();
    Ok((!scales.is_empty()).then_some(Known::Scales(scales)))
}

/// The sizes that a policy makes of given ones, if all numbers are known.
fn fitted_dims(
    policy: Policy,
    resized: &[usize],
    shape: &[Dim],
    sizes: &[Dim],
) -> Result<Option<Vec<Dim>>, OpError> {
    let size = |dim: &Dim| dim.as_const().and_then(|size| usize::try_from(size).ok());
    let keep = |axis: usize| {
        let known = size(&shape[axis]);
        // The sizes of other axes do not matter.
        let input = if resized.contains(&axis) { known } else { Some(known.unwrap_or(1)) };
        input.map(|input| AxisRequest { input, output: input, scale: 1.0, roi: [0.0, 1.0] })
    };
    let requests: Option<Vec<AxisRequest>> = (0..shape.len()).map(keep).collect();
    let sizes: Option<Vec<i64>> = sizes.iter().map(Dim::as_const).collect();
    let (Some(mut requests), Some(sizes)) = (requests, sizes) else { return Ok(None) };
    fit_sizes(policy, resized, &sizes, &mut requests)?;
    let mut output = shape.to_vec();
    resized.iter().for_each(|&axis| output[axis] = Dim::from(requests[axis].output as i64));
    Ok(Some(output))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbolic_sizes_follow_scales() {
        let mut symbols = Symbols::default();
        let n = symbols.named("n");
        for scale in [1.0, 2.0, 0.5, 1.5, 0.375] {
            let dim = scaled_dim(&n.into(), scale, &symbols).unwrap();
            for size in 0..50 {
                assert_eq!(dim.evaluate(&|_| Some(size)), Some(scaled_size(size as usize, scale) as i64));
            }
        }
        assert_eq!(scaled_dim(&n.into(), 0.7, &symbols), None);
    }
}
