//! Attention: products, a softmax between them, and what may come with it.

use onnxforge_ir::NodeId;
use onnxforge_ir::dim::Dim;

use super::arithmetic::{FLOATS, broadcast};
use super::{Var, Writer};
use crate::coreml::schema::Elem;
use crate::view::Why;

type Done = Result<(), Why>;

pub fn attention(w: &mut Writer<'_>, id: NodeId) -> Done {
    let call = w.call(id)?;
    w.takes(w.arg(id, 0)?, FLOATS)?;
    if w.node(id).output(3).is_some_and(|scores| !w.model.value(scores).uses().is_empty()) {
        return Err("something reads its scores".into());
    }
    if call.float("softcap")? != 0.0 || w.node(id).input(6).is_some() {
        return Err("scores that are capped, or keys that are padded".into());
    }
    let heads = [call.opt_int("q_num_heads")?, call.opt_int("kv_num_heads")?];
    let rank = w.rank(w.arg(id, 0)?)?;
    let query = w.input(id, 0)?;
    let query = by_heads(w, id, query, heads[0])?;
    let mut sides = Vec::new();
    for (index, past, present) in [(1, 4, 1), (2, 5, 2)] {
        let side = w.input(id, index)?;
        let mut side = by_heads(w, id, side, heads[1])?;
        if w.node(id).input(past).is_some() {
            let before = w.input(id, past)?;
            side = joined(w, id, &before, &side)?;
        }
        if w.node(id).output(present).is_some() {
            let output = w.result(id, present)?;
            w.emit("identity", &[("x", (&side).into())], &[&output]);
        }
        let side = repeated(w, id, side, &query)?;
        sides.push(side);
    }
    let [key, value] = &sides[..] else { return Err("keys or values are missing".into()) };
    let size = query.shape[3].as_const();
    let scale = match call.opt_float("scale")? {
        Some(scale) => f64::from(scale),
        None => 1.0 / (size.ok_or("the size of a head is not known")? as f64).sqrt(),
    };
    let (elem, factor) = (query.elem, w.number_like(scale, query.elem));
    let scaled =
        w.step(id, "mul", &[("x", (&query).into()), ("y", (&factor).into())], elem, query.shape.clone());
    let mut shape = query.shape.clone();
    shape[3] = key.shape[2].clone();
    let (no, yes) = (w.flag(false), w.flag(true));
    let inputs = [
        ("x", (&scaled).into()),
        ("y", key.into()),
        ("transpose_x", (&no).into()),
        ("transpose_y", (&yes).into()),
    ];
    let mut scores = w.step(id, "matmul", &inputs, elem, shape.clone());
    if w.node(id).input(3).is_some() {
        let mask = w.input(id, 3)?;
        let mask = summand(w, id, mask, elem);
        let whole = broadcast(w, &scores.shape, &mask.shape)?;
        if !w.same_shape(&whole, &shape) {
            return Err("its mask is larger than its scores".into());
        }
        scores = w.step(id, "add", &[("x", (&scores).into()), ("y", (&mask).into())], elem, shape.clone());
    }
    if call.flag("is_causal")? {
        let mask = causal(w, id, &shape, elem)?;
        scores = w.step(id, "add", &[("x", (&scores).into()), ("y", (&mask).into())], elem, shape.clone());
    }
    let axis = w.int(-1)?;
    let weights = w.step(id, "softmax", &[("x", (&scores).into()), ("axis", (&axis).into())], elem, shape);
    let inputs = [
        ("x", (&weights).into()),
        ("y", value.into()),
        ("transpose_x", (&no).into()),
        ("transpose_y", (&no).into()),
    ];
    if rank == 4 {
        let y = w.result(id, 0)?;
        w.emit("matmul", &inputs, &[&y]);
        return Ok(());
    }
    let mut shape = query.shape.clone();
    shape[3] = value.shape[3].clone();
    let result = w.step(id, "matmul", &inputs, elem, shape.clone());
    shape.swap(1, 2);
    let perm = w.list(&[0, 2, 1, 3])?;
    let turned = w.step(id, "transpose", &[("x", (&result).into()), ("perm", (&perm).into())], elem, shape);
    let y = w.result(id, 0)?;
    let target = one_open(&y.shape)?;
    let target = w.list(&target)?;
    w.emit("reshape", &[("x", (&turned).into()), ("shape", (&target).into())], &[&y]);
    Ok(())
}

/// Sizes, at most one of which is not known and follows from the others.
fn one_open(shape: &[Dim]) -> Result<Vec<i64>, Why> {
    let open = shape.iter().filter(|size| size.as_const().is_none()).count();
    match open {
        0 | 1 => Ok(shape.iter().map(|size| size.as_const().unwrap_or(-1)).collect()),
        _ => Err(Why::from("more than one of its sizes is not known").hinting("--set-dim")),
    }
}

/// Queries, keys or values with an axis for heads.
fn by_heads(w: &mut Writer<'_>, id: NodeId, x: Var, heads: Option<i64>) -> Result<Var, Why> {
    if x.shape.len() == 4 {
        return Ok(x);
    }
    let (Some(heads @ 1..), [batch, length, size]) = (heads, &x.shape[..]) else {
        return Err("how many heads it has is not known".into());
    };
    let size = size.as_const().ok_or("the size of a head is not known")? / heads;
    let mut shape = vec![batch.clone(), length.clone(), Dim::from(heads), Dim::from(size)];
    let target = one_open(&shape)?;
    let target = w.list(&target)?;
    let apart =
        w.step(id, "reshape", &[("x", (&x).into()), ("shape", (&target).into())], x.elem, shape.clone());
    shape.swap(1, 2);
    let perm = w.list(&[0, 2, 1, 3])?;
    Ok(w.step(id, "transpose", &[("x", (&apart).into()), ("perm", (&perm).into())], x.elem, shape))
}

/// What was there before, and what is new, along the third axis.
fn joined(w: &mut Writer<'_>, id: NodeId, before: &Var, new: &Var) -> Result<Var, Why> {
    let mut shape = new.shape.clone();
    shape[2] = before.shape.get(2).and_then(|size| size.add(&new.shape[2])).ok_or("the past has no axes")?;
    let (axis, apart) = (w.int(2)?, w.flag(false));
    let values = [before.clone(), new.clone()];
    let inputs =
        [("values", (&values[..]).into()), ("axis", (&axis).into()), ("interleave", (&apart).into())];
    Ok(w.step(id, "concat", &inputs, new.elem, shape))
}

/// Keys or values as often as several queries share them.
fn repeated(w: &mut Writer<'_>, id: NodeId, side: Var, query: &Var) -> Result<Var, Why> {
    let (Some(own), Some(all)) = (side.shape[1].as_const(), query.shape[1].as_const()) else {
        return Err("how many heads it has is not known".into());
    };
    if own == all {
        return Ok(side);
    }
    let [batch, _, length, size] = &side.shape[..] else { return Err("keys have no axes".into()) };
    let group =
        |times: i64| vec![batch.clone(), Dim::from(own), Dim::from(times), length.clone(), size.clone()];
    let (axes, times) = (w.list(&[2])?, w.list(&[1, 1, all / own, 1, 1])?);
    let apart =
        w.step(id, "expand_dims", &[("x", (&side).into()), ("axes", (&axes).into())], side.elem, group(1));
    let tiled =
        w.step(id, "tile", &[("x", (&apart).into()), ("reps", (&times).into())], side.elem, group(all / own));
    let whole = vec![batch.clone(), Dim::from(all), length.clone(), size.clone()];
    let target = one_open(&whole)?;
    let target = w.list(&target)?;
    Ok(w.step(id, "reshape", &[("x", (&tiled).into()), ("shape", (&target).into())], side.elem, whole))
}

/// A mask as what is added to scores: nothing, or so little that nothing is left.
fn summand(w: &mut Writer<'_>, id: NodeId, mask: Var, elem: Elem) -> Var {
    if mask.elem != Elem::Bool {
        return w.cast(&mask, elem);
    }
    // log 1 = 0, log 0 = −∞.
    let number = w.cast(&mask, elem);
    let zero = w.number_like(0.0, elem);
    w.step(id, "log", &[("x", (&number).into()), ("epsilon", (&zero).into())], elem, mask.shape)
}

/// The mask of what comes later.
fn causal(w: &mut Writer<'_>, id: NodeId, shape: &[Dim], elem: Elem) -> Result<Var, Why> {
    let (Some(queries), Some(keys)) = (shape[2].as_const(), shape[3].as_const()) else {
        return Err(Why::from("what comes later depends on sizes that are not known").hinting("--set-dim"));
    };
    let past = match w.node(id).input(4) {
        Some(past) => {
            w.shape(past)?.get(2).and_then(Dim::as_const).ok_or("the size of the past is not known")?
        }
        None => 0,
    };
    let value = |row: i64, column: i64| if column <= row + past { 0.0 } else { f64::NEG_INFINITY };
    let all = (0..queries).flat_map(|row| (0..keys).map(move |column| value(row, column)));
    let bytes = match elem {
        Elem::F16 => all.flat_map(|it| half::f16::from_f64(it).to_le_bytes()).collect(),
        _ => all.flat_map(|it| (it as f32).to_le_bytes()).collect(),
    };
    let sizes = [queries, keys];
    Ok(w.needed(elem, &sizes, bytes))
}
