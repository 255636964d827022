//! Products, reductions and what works along axes.

use onnxforge_ir::dim::Dim;
use onnxforge_ir::{DType, NodeId};
use onnxforge_ops::call::{axes, axis};

use super::arithmetic::{FLOATS, NUMBERS, broadcast, copy};
use super::{Var, Writer};
use crate::view::Why;

type Done = Result<(), Why>;

pub fn matmul(w: &mut Writer<'_>, id: NodeId) -> Done {
    let (a, b) = (w.arg(id, 0)?, w.arg(id, 1)?);
    w.takes(a, FLOATS)?;
    if w.rank(a)? == 0 || w.rank(b)? == 0 {
        return Err("products are of tensors with axes".into());
    }
    let (mut x, mut z) = (w.input(id, 0)?, w.input(id, 1)?);
    // A vector is a row in front, and a column behind.
    let vectors = [x.shape.len() == 1, z.shape.len() == 1];
    let widened = |w: &mut Writer<'_>, var: &Var, at: i64, shape: Vec<Dim>| -> Result<Var, Why> {
        let axes = w.list(&[at])?;
        Ok(w.step(id, "expand_dims", &[("x", var.into()), ("axes", (&axes).into())], var.elem, shape))
    };
    if vectors[0] {
        x = widened(w, &x, 0, vec![Dim::ONE, x.shape[0].clone()])?;
    }
    if vectors[1] {
        z = widened(w, &z, 1, vec![z.shape[0].clone(), Dim::ONE])?;
    }
    let no = w.flag(false);
    let y = w.result(id, 0)?;
    let to = match vectors {
        [false, false] => y.clone(),
        _ => {
            let cut = |shape: &[Dim]| shape[..shape.len() - 2].to_vec();
            let mut shape = broadcast(w, &cut(&x.shape), &cut(&z.shape))?;
            shape.push(x.shape[x.shape.len() - 2].clone());
            shape.push(z.shape[z.shape.len() - 1].clone());
            w.scratch(id, y.elem, shape)
        }
    };
    let inputs = [
        ("x", (&x).into()),
        ("y", (&z).into()),
        ("transpose_x", (&no).into()),
        ("transpose_y", (&no).into()),
    ];
    w.emit("matmul", &inputs, &[&to]);
    let rank = to.shape.len() as i64;
    let extra: Vec<i64> =
        [(vectors[0], rank - 2), (vectors[1], rank - 1)].iter().filter(|it| it.0).map(|it| it.1).collect();
    if !extra.is_empty() {
        let axes = w.list(&extra)?;
        w.emit("squeeze", &[("x", (&to).into()), ("axes", (&axes).into())], &[&y]);
    }
    Ok(())
}

pub fn gemm(w: &mut Writer<'_>, id: NodeId) -> Done {
    let (a, b, call) = (w.arg(id, 0)?, w.arg(id, 1)?, w.call(id)?);
    w.takes(a, FLOATS)?;
    let (alpha, beta) = (f64::from(call.float("alpha")?), f64::from(call.float("beta")?));
    let (turn_a, turn_b) = (call.flag("transA")?, call.flag("transB")?);
    let bias = w.node(id).input(2);
    let is_stored = |value| w.is_fixed(value);
    let has_row = match bias {
        Some(bias) => {
            is_stored(bias) && w.rank(bias)? == 1 && w.shape(bias)?[0] == w.shape(w.out(id, 0)?)?[1]
        }
        None => true,
    };
    if !turn_a && turn_b && is_stored(b) && has_row && alpha == 1.0 && (beta == 1.0 || bias.is_none()) {
        let (x, weight) = (w.input(id, 0)?, w.input(id, 1)?);
        let bias = match bias {
            Some(bias) => Some(w.read(bias)?),
            None => None,
        };
        let y = w.result(id, 0)?;
        let mut inputs = vec![("x", (&x).into()), ("weight", (&weight).into())];
        if let Some(bias) = &bias {
            inputs.push(("bias", bias.into()));
        }
        w.emit("linear", &inputs, &[&y]);
        return Ok(());
    }
    let (x, z) = (w.input(id, 0)?, w.input(id, 1)?);
    let (turn_x, turn_y) = (w.flag(turn_a), w.flag(turn_b));
    let y = w.result(id, 0)?;
    let whole = || y.shape.clone();
    let inputs = [
        ("x", (&x).into()),
        ("y", (&z).into()),
        ("transpose_x", (&turn_x).into()),
        ("transpose_y", (&turn_y).into()),
    ];
    let scaled = |w: &mut Writer<'_>, var: Var, factor: f64| {
        if factor == 1.0 {
            return var;
        }
        let by = w.number_like(factor, var.elem);
        w.step(id, "mul", &[("x", (&var).into()), ("y", (&by).into())], var.elem, var.shape.clone())
    };
    if bias.is_none() && alpha == 1.0 {
        w.emit("matmul", &inputs, &[&y]);
        return Ok(());
    }
    let product = w.step(id, "matmul", &inputs, y.elem, whole());
    let product = scaled(w, product, alpha);
    match bias {
        Some(bias) => {
            let bias = w.read(bias)?;
            let bias = scaled(w, bias, beta);
            w.emit("add", &[("x", (&product).into()), ("y", (&bias).into())], &[&y]);
        }
        None => w.emit("identity", &[("x", (&product).into())], &[&y]),
    }
    Ok(())
}

pub fn softmax(w: &mut Writer<'_>, id: NodeId) -> Done {
    let (value, call) = (w.arg(id, 0)?, w.call(id)?);
    w.takes(value, FLOATS)?;
    let rank = w.rank(value)?;
    if rank == 0 {
        return Err("it has no axes".into());
    }
    let along = axis(call.int("axis")?, rank)?;
    let (x, y) = (w.input(id, 0)?, w.result(id, 0)?);
    if w.node(id).op().is("Softmax") {
        let axis = w.int(along as i64)?;
        w.emit("softmax", &[("x", (&x).into()), ("axis", (&axis).into())], &[&y]);
        return Ok(());
    }
    // x − max − log(Σ exp(x − max)).
    let (axes, keep) = (w.list(&[along as i64])?, w.flag(true));
    let mut one = x.shape.clone();
    one[along] = Dim::ONE;
    let reduced = |w: &mut Writer<'_>, kind: &'static str, var: &Var| {
        let inputs = [("x", var.into()), ("axes", (&axes).into()), ("keep_dims", (&keep).into())];
        w.step(id, kind, &inputs, x.elem, one.clone())
    };
    let most = reduced(w, "reduce_max", &x);
    let low = w.step(id, "sub", &[("x", (&x).into()), ("y", (&most).into())], x.elem, x.shape.clone());
    let powers = w.step(id, "exp", &[("x", (&low).into())], x.elem, x.shape.clone());
    let sum = reduced(w, "reduce_sum", &powers);
    let zero = w.number_like(0.0, x.elem);
    let log = w.step(id, "log", &[("x", (&sum).into()), ("epsilon", (&zero).into())], x.elem, one.clone());
    w.emit("sub", &[("x", (&low).into()), ("y", (&log).into())], &[&y]);
    Ok(())
}

pub fn reduce(w: &mut Writer<'_>, id: NodeId) -> Done {
    let (x, call) = (w.arg(id, 0)?, w.call(id)?);
    let rank = w.rank(x)?;
    let (kind, types) = match &*w.node(id).op().name {
        "ReduceMean" => ("reduce_mean", FLOATS),
        "ReduceSum" => ("reduce_sum", NUMBERS),
        "ReduceMax" => ("reduce_max", NUMBERS),
        "ReduceMin" => ("reduce_min", NUMBERS),
        "ReduceProd" => ("reduce_prod", NUMBERS),
        "ReduceL1" => ("reduce_l1_norm", FLOATS),
        "ReduceL2" => ("reduce_l2_norm", FLOATS),
        "ReduceSumSquare" => ("reduce_sum_square", FLOATS),
        "ReduceLogSum" => ("reduce_log_sum", FLOATS),
        _ => ("reduce_log_sum_exp", FLOATS),
    };
    w.takes(x, types)?;
    let given = match w.node(id).input(1) {
        Some(_) => Some(w.fixed_ints(id, 1)?),
        None => call.opt_ints("axes")?,
    };
    let given = match given.filter(|given| !given.is_empty()) {
        Some(given) => axes(&given, rank)?,
        None if call.opt_int("noop_with_empty_axes")?.is_some_and(|flag| flag != 0) => {
            return match kind {
                "reduce_mean" | "reduce_sum" | "reduce_max" | "reduce_min" | "reduce_prod" => copy(w, id),
                _ => Err("it reduces no axes".into()),
            };
        }
        None => (0..rank).collect(),
    };
    if given.is_empty() {
        return match kind {
            "reduce_mean" | "reduce_sum" | "reduce_max" | "reduce_min" | "reduce_prod" => copy(w, id),
            _ => Err("it reduces a scalar".into()),
        };
    }
    let given: Vec<i64> = given.into_iter().map(|axis| axis as i64).collect();
    reduced(w, id, kind, &given, call.flag("keepdims")?)
}

pub fn reduced(w: &mut Writer<'_>, id: NodeId, kind: &'static str, axes: &[i64], keeps: bool) -> Done {
    let (axes, keep) = (w.list(axes)?, w.flag(keeps));
    let (x, y) = (w.input(id, 0)?, w.result(id, 0)?);
    w.emit(kind, &[("x", (&x).into()), ("axes", (&axes).into()), ("keep_dims", (&keep).into())], &[&y]);
    Ok(())
}

pub fn arg_extreme(w: &mut Writer<'_>, id: NodeId) -> Done {
    let (value, call) = (w.arg(id, 0)?, w.call(id)?);
    w.takes(value, NUMBERS)?;
    let last = call.flag("select_last_index")?;
    w.demand(id, "select_last_index", !last)?;
    let along = axis(call.int("axis")?, w.rank(value)?)?;
    let (axis, keep) = (w.int(along as i64)?, w.flag(call.flag("keepdims")?));
    let kind = if w.node(id).op().is("ArgMax") { "reduce_argmax" } else { "reduce_argmin" };
    let (x, y) = (w.input(id, 0)?, w.result(id, 0)?);
    w.emit(kind, &[("x", (&x).into()), ("axis", (&axis).into()), ("keep_dims", (&keep).into())], &[&y]);
    Ok(())
}

pub fn top_k(w: &mut Writer<'_>, id: NodeId) -> Done {
    let (value, call) = (w.arg(id, 0)?, w.call(id)?);
    w.takes(value, &[DType::F32, DType::F16, DType::I32, DType::I64])?;
    let along = axis(call.int("axis")?, w.rank(value)?)?;
    let count = w.fixed_ints(id, 1)?.first().copied().ok_or("how many it takes is not known")?;
    let (axis, k, up) = (w.int(along as i64)?, w.int(count)?, w.flag(!call.flag("largest")?));
    let x = w.input(id, 0)?;
    let mut shape = x.shape.clone();
    shape[along] = Dim::from(count);
    let values = match w.node(id).output(0) {
        Some(_) => w.result(id, 0)?,
        None => w.scratch(id, x.elem, shape.clone()),
    };
    let places = match w.node(id).output(1) {
        Some(_) => w.result(id, 1)?,
        None => w.scratch(id, crate::coreml::schema::Elem::I32, shape),
    };
    let inputs =
        [("x", (&x).into()), ("k", (&k).into()), ("axis", (&axis).into()), ("ascending", (&up).into())];
    w.emit("topk", &inputs, &[&values, &places]);
    Ok(())
}
