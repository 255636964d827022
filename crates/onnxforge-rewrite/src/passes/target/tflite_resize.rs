//! tflite_resize: Resize becomes RESIZE_BILINEAR or RESIZE_NEAREST_NEIGHBOR, which want channels last and sizes.
//!
//! **Matches** Resize of height and width of an image: to the nearest pixel, rounded down where sizes grow evenly, and linear interpolation between
//! corners, or between the middles of pixels. Sizes are known, or whole multiples of what they are. For files of TensorFlow Lite.
//! **Accuracy** `Rounding`: interpolation takes its weights from sizes rather than from a factor.
//! **Proof** Where the result is f times as large, sizes give the same places as the factor. To the nearest pixel, an image that grows by a whole number
//! repeats each of its pixels, whether places are asymmetric and rounded down, or those of middles and rounded to the nearest.
//! **Bound** Linear interpolation takes two weights of each axis; each is a quotient of sizes, rounded once, as the product with the factor is. The four
//! terms are summed in another order. The 16 ulps leave room for places that differ by a rounding, times the number of pixels.
//! **Never** other axes; cubic interpolation, antialiasing, regions; other numbers than floats of 32 bits; factors that are no whole numbers where sizes are
//! not known.

use super::tflite_conv::{channels_first, channels_last};
use crate::passes::pass;
use crate::passes::targets::TFLITE_FILE;
use crate::{At, Change, Cx, Reason, Skip};
use onnxforge_ir::dim::Dim;
use onnxforge_ir::edit::Operand;
use onnxforge_ir::{Accuracy, Attr, DType, NodeId};

pass!(tflite_resize { stage: Target, needs: ["Resize"], runs: Only(&[&TFLITE_FILE]), rules: [RESIZE] });

static RESIZE: At =
    At { name: "resize", accuracy: Accuracy::Rounding { ulps: 16.0 }, ops: &["Resize"], apply: resize };

fn resize(cx: &Cx<'_>, id: NodeId) -> Result<Change, Skip> {
    let (x, y, call) = (cx.input(id, 0)?, cx.output(id)?, cx.call(id)?);
    let ([batch, channels, height, width], [new_batch, new_channels, tall, wide]) =
        (cx.shape(x)?, cx.shape(y)?)
    else {
        return Err(Skip::NOT_HERE);
    };
    if cx.dtype(x)? != DType::F32 {
        return Err(Skip::at(Reason::Type, x));
    }
    if call.since() < 13 || !cx.same_dim(batch, new_batch) || !cx.same_dim(channels, new_channels) {
        return Err(Skip::because("it changes other axes than height and width"));
    }
    let factors = [(height, tall), (width, wide)].map(|(from, to)| factor(cx, from, to));
    let grows = factors.iter().all(|factor| factor.is_some_and(|factor| factor >= 1));
    // A factor that is given says where pixels lie; where it is no quotient of the sizes, these do not.
    if let Some(scales) = cx.node(id).input(2).filter(|_| cx.node(id).input(3).is_none()) {
        let scales = cx.floats(scales)?;
        let sizes =
            [(height, tall), (width, wide)].map(|(from, to)| Some((from.as_const()?, to.as_const()?)));
        let fits = |axis: usize| {
            let scale = scales.get(scales.len().checked_sub(2)? + axis)?;
            let whole = factors[axis].is_some_and(|factor| factor as f64 == *scale);
            Some(whole || sizes[axis].is_some_and(|(from, to)| from as f64 * scale == to as f64))
        };
        if fits(0) != Some(true) || fits(1) != Some(true) {
            return Err(Reason::Rule("the sizes are no multiples by the factors").into());
        }
    }
    let (mode, places) = (call.text("mode")?, call.text("coordinate_transformation_mode")?);
    let rounding = call.text("nearest_mode")?;
    let known = match (&*mode, &*places) {
        ("nearest", "asymmetric") => rounding == "floor",
        ("nearest", "half_pixel") => grows && rounding.starts_with("round"),
        ("linear", "half_pixel" | "align_corners" | "asymmetric") => true,
        // Which differ where the result is one pixel wide.
        ("linear", "pytorch_half_pixel") => {
            [tall, wide].iter().all(|size| size.provably_different(&Dim::ONE, cx.symbols()))
        }
        _ => false,
    };
    if !known || call.opt_int("antialias")?.is_some_and(|flag| flag != 0) {
        return Err(Reason::Attribute("coordinate_transformation_mode").into());
    }
    let mut change = cx.change(&[id]);
    let sizes = sizes(cx, &mut change, id, factors)?;
    let image = channels_last(&mut change, x, 4, [0; 4]);
    let (places, rounding) = match &*mode {
        "nearest" => ("asymmetric", "floor"),
        _ if places == "pytorch_half_pixel" => ("half_pixel", "floor"),
        _ => (&*places, "floor"),
    };
    let attrs: [Attr; 3] = [
        ("coordinate_transformation_mode", places).into(),
        ("mode", &*mode).into(),
        ("nearest_mode", rounding).into(),
    ];
    let resized = change.tflite("Resize2D", [image, sizes], attrs);
    let back = channels_first(&mut change, resized, 4);
    change.replace(y, back);
    Ok(change)
}

/// The whole number by which a size grows.
fn factor(cx: &Cx<'_>, from: &Dim, to: &Dim) -> Option<i64> {
    match (from.as_const(), to.as_const()) {
        (Some(from @ 1..), Some(to)) if to % from == 0 => Some(to / from),
        (Some(_), Some(_)) => None,
        _ => (1..=16).find(|&factor| from.mul(&factor.into()).is_some_and(|it| cx.same_dim(&it, to))),
    }
}

/// Height and width of the result.
fn sizes(cx: &Cx<'_>, change: &mut Change, id: NodeId, factors: [Option<i64>; 2]) -> Result<Operand, Skip> {
    let (x, y) = (cx.input(id, 0)?, cx.output(id)?);
    if let [_, _, tall, wide] = cx.shape(y)?
        && let (Some(tall), Some(wide)) = (tall.as_const(), wide.as_const())
    {
        return Ok(change.ints("sizes", &[tall, wide]));
    }
    let [Some(down), Some(along)] = factors else { return Err(Skip::at(Reason::UnknownShape, y)) };
    let sizes = change.op("Shape", [x.into()], [("start", 2).into(), ("end", 4).into()]);
    let factors = change.ints("factors", &[down, along]);
    Ok(change.op("Mul", [sizes, factors], []))
}
