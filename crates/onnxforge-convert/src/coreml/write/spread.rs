//! Resize.

use onnxforge_ir::NodeId;
use onnxforge_ir::dim::Dim;
use onnxforge_ops::Array;
use onnxforge_ops::call::axes;

use super::Writer;
use super::arithmetic::{FLOATS, copy};
use crate::coreml::schema::Elem;
use crate::view::Why;

pub fn resize(w: &mut Writer<'_>, id: NodeId) -> Result<(), Why> {
    let (value, call) = (w.arg(id, 0)?, w.call(id)?);
    w.takes(value, FLOATS)?;
    let shape = w.shape(value)?;
    let rank = shape.len();
    let named = match call.opt_ints("axes")? {
        Some(given) => axes(&given, rank)?,
        None => (0..rank).collect(),
    };
    let mut scales = vec![Some(1.0f64); rank];
    let whole = w.shape(w.out(id, 0)?)?;
    match (w.node(id).input(2), w.node(id).input(3)) {
        (Some(given), None) => {
            let constant = w.model.constant(given).ok_or("its scales are computed")?;
            let given = Array::from_tensor(constant)?.to_f64s()?;
            for (&axis, scale) in named.iter().zip(given) {
                scales[axis] = Some(scale);
            }
        }
        _ => {
            w.demand(id, "keep_aspect_ratio_policy", call.text("keep_aspect_ratio_policy")? == "stretch")?;
            for (axis, scale) in scales.iter_mut().enumerate() {
                *scale = match (shape[axis].as_const(), whole[axis].as_const()) {
                    _ if w.same(&shape[axis], &whole[axis]) => Some(1.0),
                    (Some(from @ 1..), Some(to)) => Some(to as f64 / from as f64),
                    // Twice a size that is not known is still twice.
                    _ => shape[axis]
                        .as_const()
                        .is_none()
                        .then(|| multiple(&shape[axis], &whole[axis]))
                        .flatten(),
                };
            }
        }
    }
    if scales.iter().all(|&scale| scale == Some(1.0)) {
        return copy(w, id);
    }
    if !(3..=4).contains(&rank) || scales[..rank.saturating_sub(2)].iter().any(|&scale| scale != Some(1.0)) {
        return Err("the operator resizes the last two of three or four axes".into());
    }
    let places = call.text("coordinate_transformation_mode")?;
    let antialias = call.flag("antialias")?;
    w.demand(id, "antialias", !antialias)?;
    let factors = [scales[rank - 2], scales[rank - 1]];
    let sizes = [whole[rank - 2].as_const(), whole[rank - 1].as_const()];
    let x = w.input(id, 0)?;
    if call.text("mode")? == "nearest" {
        let rounding = call.text("nearest_mode")?;
        let is_floor = places == "asymmetric" && rounding == "floor";
        let is_middle = matches!(&*places, "half_pixel" | "pytorch_half_pixel" | "half_pixel_symmetric")
            && rounding.starts_with("round");
        if !is_floor && !is_middle {
            return Err(format!("the operator has no nearest neighbours by {places} and {rounding}").into());
        }
        let whole_number =
            |factor: Option<f64>| factor.filter(|it| it.fract() == 0.0 && *it >= 1.0).map(|it| it as i64);
        let [Some(up), Some(along)] = factors.map(whole_number) else {
            return Err("nearest neighbours are repeated a whole number of times".into());
        };
        let (up, along) = (w.int(up)?, w.int(along)?);
        let y = w.result(id, 0)?;
        let inputs = [
            ("x", (&x).into()),
            ("scale_factor_height", (&up).into()),
            ("scale_factor_width", (&along).into()),
        ];
        w.emit("upsample_nearest_neighbor", &inputs, &[&y]);
        return Ok(());
    }
    w.demand(id, "mode", call.text("mode")? == "linear")?;
    let kind = match &*places {
        "half_pixel" | "half_pixel_symmetric" => "UNALIGN_CORNERS",
        "pytorch_half_pixel" if sizes.iter().all(|size| size.is_some_and(|size| size > 1)) => {
            "UNALIGN_CORNERS"
        }
        "align_corners" if sizes.iter().all(|size| size.is_some_and(|size| size > 1)) => {
            "STRICT_ALIGN_CORNERS"
        }
        "asymmetric" => "DEFAULT",
        _ => return Err(format!("the operator has no {places}").into()),
    };
    // Scales that were rounded on the way to sizes are not those of the sizes.
    let exact = |axis: usize| {
        let (from, to) = (shape[axis].as_const(), whole[axis].as_const());
        let scale = scales[axis];
        matches!((from, to, scale), (Some(from), Some(to), Some(scale)) if from as f64 * scale == to as f64)
    };
    if let ([Some(height), Some(width)], true) = (sizes, exact(rank - 2) && exact(rank - 1)) {
        let (height, width, kind) = (w.int(height)?, w.int(width)?, w.text(kind));
        let y = w.result(id, 0)?;
        let inputs = [
            ("x", (&x).into()),
            ("target_size_height", (&height).into()),
            ("target_size_width", (&width).into()),
            ("sampling_mode", (&kind).into()),
        ];
        w.emit("resize_bilinear", &inputs, &[&y]);
        return Ok(());
    }
    let ([Some(up), Some(along)], true, "UNALIGN_CORNERS") = (factors, w.since(16), kind) else {
        return Err(Why::from("how much it resizes depends on sizes that are not known").hinting("--set-dim"));
    };
    let (up, along) = (w.number_like(up, Elem::F32), w.number_like(along, Elem::F32));
    let (corners, middles) = (w.flag(false), w.flag(true));
    let y = w.result(id, 0)?;
    let inputs = [
        ("x", (&x).into()),
        ("scale_factor_height", (&up).into()),
        ("scale_factor_width", (&along).into()),
        ("align_corners", (&corners).into()),
        ("half_pixel_centers", (&middles).into()),
    ];
    w.emit("upsample_bilinear", &inputs, &[&y]);
    Ok(())
}

/// How many times one size is another.
fn multiple(from: &Dim, to: &Dim) -> Option<f64> {
    let times = to.divide_exact(from)?.as_const()?;
    Some(times as f64)
}
