//! Normalizations.

use onnxforge_ir::dim::Dim;
use onnxforge_ir::{NodeId, ValueId};
use onnxforge_ops::call::axis;

use super::arithmetic::FLOATS;
use super::{Arg, Var, Writer};
use crate::view::Why;

type Done = Result<(), Why>;

fn is_stored(w: &Writer<'_>, value: Option<ValueId>) -> bool {
    value.is_none_or(|value| w.model.constant(value).is_some())
}

/// The least number that the sum under a root may get in 16 bits is not 0.
fn epsilon(w: &mut Writer<'_>, value: f32, var: &Var) -> Var {
    let least = if var.elem == crate::coreml::schema::Elem::F16 { 5.97e-8 } else { 0.0 };
    w.number_like(f64::from(value).max(least), var.elem)
}

pub fn batch(w: &mut Writer<'_>, id: NodeId) -> Done {
    let (value, call) = (w.arg(id, 0)?, w.call(id)?);
    w.takes(value, FLOATS)?;
    if call.flag("training_mode")? {
        return Err("it is in training".into());
    }
    let stored = (1..5).all(|index| is_stored(w, w.node(id).input(index)));
    if !stored || !(3..=5).contains(&w.rank(value)?) {
        return Err("its statistics are computed, or its operand has no channels".into());
    }
    let x = w.input(id, 0)?;
    let [gamma, beta, mean, variance] = [1, 2, 3, 4].map(|index| w.input(id, index));
    let (gamma, beta, mean, variance) = (gamma?, beta?, mean?, variance?);
    let epsilon = epsilon(w, call.float("epsilon")?, &x);
    let y = w.result(id, 0)?;
    let inputs = [
        ("x", (&x).into()),
        ("mean", (&mean).into()),
        ("variance", (&variance).into()),
        ("gamma", (&gamma).into()),
        ("beta", (&beta).into()),
        ("epsilon", (&epsilon).into()),
    ];
    w.emit("batch_norm", &inputs, &[&y]);
    Ok(())
}

pub fn instance(w: &mut Writer<'_>, id: NodeId) -> Done {
    let (value, call) = (w.arg(id, 0)?, w.call(id)?);
    w.takes(value, FLOATS)?;
    let rank = w.rank(value)?;
    if rank < 3 {
        return Err("its operand has no places".into());
    }
    let x = w.input(id, 0)?;
    let (gamma, beta) = (w.arg(id, 1)?, w.arg(id, 2)?);
    if is_stored(w, Some(gamma)) && is_stored(w, Some(beta)) && rank <= 4 {
        let (gamma, beta, epsilon) = (w.read(gamma)?, w.read(beta)?, epsilon(w, call.float("epsilon")?, &x));
        let y = w.result(id, 0)?;
        let inputs = [
            ("x", (&x).into()),
            ("gamma", (&gamma).into()),
            ("beta", (&beta).into()),
            ("epsilon", (&epsilon).into()),
        ];
        w.emit("instance_norm", &inputs, &[&y]);
        return Ok(());
    }
    let axes: Vec<i64> = (2..rank as i64).collect();
    let normalized = standardized(w, id, &x, &axes, call.float("epsilon")?)?;
    let scale = along_channels(w, id, gamma, rank)?;
    let bias = along_channels(w, id, beta, rank)?;
    affine(w, id, normalized, Some(scale), Some(bias))
}

pub fn layer(w: &mut Writer<'_>, id: NodeId) -> Done {
    let (value, call) = (w.arg(id, 0)?, w.call(id)?);
    w.takes(value, FLOATS)?;
    let read = |index| w.node(id).output(index).is_some_and(|it| !w.model.value(it).uses().is_empty());
    if read(1) || read(2) {
        return Err("something reads its statistics".into());
    }
    let shape = w.shape(value)?;
    let first = axis(call.int("axis")?, shape.len())?;
    let axes: Vec<i64> = (first as i64..shape.len() as i64).collect();
    let (scale, bias) = (w.arg(id, 1)?, w.node(id).input(2));
    let fits = |value: Option<ValueId>| match value {
        Some(value) => {
            is_stored(w, Some(value)) && w.shape(value).is_ok_and(|it| w.same_shape(&it, &shape[first..]))
        }
        None => true,
    };
    let plain = fits(Some(scale)) && fits(bias);
    let x = w.input(id, 0)?;
    if plain {
        let gamma = w.read(scale)?;
        let beta = match bias {
            Some(bias) => Some(w.read(bias)?),
            None => None,
        };
        let (epsilon, axes) = (epsilon(w, call.float("epsilon")?, &x), w.list(&axes)?);
        let y = w.result(id, 0)?;
        let mut inputs: Vec<(&'static str, Arg<'_>)> = vec![
            ("x", (&x).into()),
            ("axes", (&axes).into()),
            ("gamma", (&gamma).into()),
            ("epsilon", (&epsilon).into()),
        ];
        if let Some(beta) = &beta {
            inputs.push(("beta", beta.into()));
        }
        w.emit("layer_norm", &inputs, &[&y]);
        return Ok(());
    }
    let normalized = standardized(w, id, &x, &axes, call.float("epsilon")?)?;
    let scale = w.read(scale)?;
    let bias = match bias {
        Some(bias) => Some(w.read(bias)?),
        None => None,
    };
    affine(w, id, normalized, Some(scale), bias)
}

pub fn group(w: &mut Writer<'_>, id: NodeId) -> Done {
    let (value, call) = (w.arg(id, 0)?, w.call(id)?);
    w.takes(value, FLOATS)?;
    let sizes = w.sizes(value)?;
    let groups = call.int("num_groups")?;
    if sizes.len() < 3 || groups < 1 || sizes[1] % groups != 0 {
        return Err("its channels make no groups".into());
    }
    let x = w.input(id, 0)?;
    let inner: i64 = sizes[1..].iter().product::<i64>() / groups;
    let (apart, whole) = (w.list(&[sizes[0], groups, inner])?, w.list(&sizes)?);
    let shape = super::dims(&[sizes[0], groups, inner]);
    let split = w.step(id, "reshape", &[("x", (&x).into()), ("shape", (&apart).into())], x.elem, shape);
    let normalized = standardized(w, id, &split, &[2], call.float("epsilon")?)?;
    let back = w.step(
        id,
        "reshape",
        &[("x", (&normalized).into()), ("shape", (&whole).into())],
        x.elem,
        super::dims(&sizes),
    );
    let scale = along_channels(w, id, w.arg(id, 1)?, sizes.len())?;
    let bias = along_channels(w, id, w.arg(id, 2)?, sizes.len())?;
    affine(w, id, back, Some(scale), Some(bias))
}

pub fn rms(w: &mut Writer<'_>, id: NodeId) -> Done {
    let (value, call) = (w.arg(id, 0)?, w.call(id)?);
    w.takes(value, FLOATS)?;
    let rank = w.rank(value)?;
    let first = axis(call.int("axis")?, rank)?;
    let axes: Vec<i64> = (first as i64..rank as i64).collect();
    let x = w.input(id, 0)?;
    let root = root(w, id, &x, &axes, call.float("epsilon")?)?;
    let normalized =
        w.step(id, "real_div", &[("x", (&x).into()), ("y", (&root).into())], x.elem, x.shape.clone());
    let scale = w.input(id, 1)?;
    affine(w, id, normalized, Some(scale), None)
}

/// The shape of what is left of a tensor.
fn reduced(shape: &[Dim], axes: &[i64]) -> Vec<Dim> {
    let mut shape = shape.to_vec();
    axes.iter().for_each(|&axis| shape[axis as usize] = Dim::ONE);
    shape
}

fn mean(w: &mut Writer<'_>, id: NodeId, x: &Var, axes: &[i64]) -> Result<Var, Why> {
    let shape = reduced(&x.shape, axes);
    let (axes, keep) = (w.list(axes)?, w.flag(true));
    let inputs = [("x", x.into()), ("axes", (&axes).into()), ("keep_dims", (&keep).into())];
    Ok(w.step(id, "reduce_mean", &inputs, x.elem, shape))
}

/// √(mean of x² + ε).
fn root(w: &mut Writer<'_>, id: NodeId, x: &Var, axes: &[i64], least: f32) -> Result<Var, Why> {
    let square = w.step(id, "square", &[("x", x.into())], x.elem, x.shape.clone());
    let mean = mean(w, id, &square, axes)?;
    let least = epsilon(w, least, x);
    let sum = w.step(id, "add", &[("x", (&mean).into()), ("y", (&least).into())], x.elem, mean.shape.clone());
    Ok(w.step(id, "sqrt", &[("x", (&sum).into())], x.elem, mean.shape.clone()))
}

/// Deviations from the mean, by their root mean square.
fn standardized(w: &mut Writer<'_>, id: NodeId, x: &Var, axes: &[i64], least: f32) -> Result<Var, Why> {
    let mean = mean(w, id, x, axes)?;
    let apart = w.step(id, "sub", &[("x", x.into()), ("y", (&mean).into())], x.elem, x.shape.clone());
    let root = root(w, id, &apart, axes, least)?;
    Ok(w.step(id, "real_div", &[("x", (&apart).into()), ("y", (&root).into())], x.elem, x.shape.clone()))
}

/// A vector along the second of so many axes.
fn along_channels(w: &mut Writer<'_>, id: NodeId, value: ValueId, rank: usize) -> Result<Var, Why> {
    let (vector, axes) = (w.read(value)?, w.list(&(1..rank as i64 - 1).collect::<Vec<_>>())?);
    let mut shape = vec![Dim::ONE; rank - 1];
    shape[0] = vector.shape.first().cloned().ok_or("a scale is no vector")?;
    Ok(w.step(id, "expand_dims", &[("x", (&vector).into()), ("axes", (&axes).into())], vector.elem, shape))
}

/// The result of a node: a tensor times a scale, plus a bias.
fn affine(w: &mut Writer<'_>, id: NodeId, x: Var, scale: Option<Var>, bias: Option<Var>) -> Done {
    let y = w.result(id, 0)?;
    let steps: Vec<(&'static str, Var)> =
        scale.map(|it| ("mul", it)).into_iter().chain(bias.map(|it| ("add", it))).collect();
    let mut at = x;
    for (index, (kind, by)) in steps.iter().enumerate() {
        let to = match index + 1 == steps.len() {
            true => y.clone(),
            false => w.scratch(id, y.elem, y.shape.clone()),
        };
        w.emit(kind, &[("x", (&at).into()), ("y", by.into())], &[&to]);
        at = to;
    }
    Ok(())
}

pub fn local_response(w: &mut Writer<'_>, id: NodeId) -> Done {
    let (value, call) = (w.arg(id, 0)?, w.call(id)?);
    w.takes(value, FLOATS)?;
    // An even window has its middle elsewhere.
    let size = call.int("size")?;
    w.demand(id, "size", size % 2 == 1)?;
    let x = w.input(id, 0)?;
    let [alpha, beta, k] = ["alpha", "beta", "bias"].map(|name| call.float(name));
    let [alpha, beta, k] = [alpha?, beta?, k?].map(|it| w.number_like(f64::from(it), x.elem));
    let (size, y) = (w.int(size)?, w.result(id, 0)?);
    let inputs = [
        ("x", (&x).into()),
        ("size", (&size).into()),
        ("alpha", (&alpha).into()),
        ("beta", (&beta).into()),
        ("k", (&k).into()),
    ];
    w.emit("local_response_norm", &inputs, &[&y]);
    Ok(())
}
