//! Convolutions and pools.

use onnxforge_ir::dim::Dim;
use onnxforge_ir::{NodeId, ValueId};
use onnxforge_ops::call::Call;

use super::arithmetic::FLOATS;
use super::{Arg, Var, Writer};
use crate::view::Why;

type Done = Result<(), Why>;

/// A window that moves over an image.
struct Window {
    kernel: Vec<i64>,
    strides: Vec<i64>,
    dilations: Vec<i64>,
    /// What lies before and after each axis.
    pads: Vec<[i64; 2]>,
}

impl Window {
    fn of(w: &Writer<'_>, call: &Call<'_>, x: ValueId, kernel: Vec<i64>) -> Result<Self, Why> {
        let spatial = kernel.len();
        if !(1..=3).contains(&spatial) || w.rank(x)? != spatial + 2 {
            return Err(format!("windows have 1 to 3 axes, not {spatial}").into());
        }
        let list = |name: &str| -> Result<Vec<i64>, Why> {
            let given = call.opt_ints(name)?.filter(|given| given.len() == spatial);
            Ok(given.unwrap_or_else(|| vec![1; spatial]))
        };
        let (strides, dilations) = (list("strides")?, list("dilations")?);
        let kind = call.text("auto_pad")?;
        let pads = match &*kind {
            "VALID" => vec![[0, 0]; spatial],
            "NOTSET" => {
                let given = call.opt_ints("pads")?.filter(|given| given.len() == 2 * spatial);
                let given = given.unwrap_or_else(|| vec![0; 2 * spatial]);
                (0..spatial).map(|axis| [given[axis], given[axis + spatial]]).collect()
            }
            _ => {
                let sizes = w.shape(x)?;
                let pad = |axis: usize| -> Result<[i64; 2], Why> {
                    let reach = (kernel[axis] - 1) * dilations[axis] + 1;
                    let stride = strides[axis];
                    // With a stride of 1, it does not depend on the size.
                    let size = match (sizes[axis + 2].as_const(), stride) {
                        (Some(size), _) => size,
                        (None, 1) => 1,
                        _ => {
                            return Err(Why::from("its padding depends on a size that is not known")
                                .hinting("--set-dim"));
                        }
                    };
                    let steps = (size + stride - 1) / stride;
                    let all = ((steps - 1) * stride + reach - size).max(0);
                    let less = all / 2;
                    Ok(if kind == "SAME_LOWER" { [all - less, less] } else { [less, all - less] })
                };
                (0..spatial).map(pad).collect::<Result<_, _>>()?
            }
        };
        if pads.iter().flatten().any(|&pad| pad < 0) {
            return Err("padding that cuts off".into());
        }
        Ok(Self { kernel, strides, dilations, pads })
    }

    fn pads(&self) -> Vec<i64> {
        self.pads.iter().flatten().copied().collect()
    }
}

/// The sizes of weights behind the first two axes.
fn kernel_of(w: &Writer<'_>, weights: ValueId) -> Result<Vec<i64>, Why> {
    Ok(w.sizes(weights)?.get(2..).unwrap_or_default().to_vec())
}

/// Operands and parameters of a convolution.
struct Layer {
    strides: Var,
    dilations: Var,
    pads: Var,
    kind: Var,
    groups: Var,
    image: Var,
    weight: Var,
    bias: Option<Var>,
}

impl Layer {
    fn of(w: &mut Writer<'_>, id: NodeId, window: &Window, groups: i64) -> Result<Self, Why> {
        Ok(Self {
            strides: w.list(&window.strides)?,
            dilations: w.list(&window.dilations)?,
            pads: w.list(&window.pads())?,
            kind: w.text("custom"),
            groups: w.int(groups)?,
            image: w.input(id, 0)?,
            weight: w.input(id, 1)?,
            bias: match w.node(id).input(2) {
                Some(bias) if w.is_fixed(bias) || w.since(17) => Some(w.read(bias)?),
                Some(_) => return Err(Why::from("its bias is computed").hinting("--ios 17")),
                None => None,
            },
        })
    }

    fn inputs(&self) -> Vec<(&'static str, Arg<'_>)> {
        let mut inputs = vec![
            ("x", (&self.image).into()),
            ("weight", (&self.weight).into()),
            ("strides", (&self.strides).into()),
            ("pad_type", (&self.kind).into()),
            ("pad", (&self.pads).into()),
            ("dilations", (&self.dilations).into()),
            ("groups", (&self.groups).into()),
        ];
        if let Some(bias) = &self.bias {
            inputs.push(("bias", bias.into()));
        }
        inputs
    }
}

pub fn conv(w: &mut Writer<'_>, id: NodeId) -> Done {
    let (x, weights, call) = (w.arg(id, 0)?, w.arg(id, 1)?, w.call(id)?);
    w.takes(x, FLOATS)?;
    let kernel = kernel_of(w, weights)?;
    let window = Window::of(w, &call, x, kernel)?;
    let layer = Layer::of(w, id, &window, call.int("group")?)?;
    let y = w.result(id, 0)?;
    w.emit("conv", &layer.inputs(), &[&y]);
    Ok(())
}

pub fn conv_transpose(w: &mut Writer<'_>, id: NodeId) -> Done {
    let (x, weights, call) = (w.arg(id, 0)?, w.arg(id, 1)?, w.call(id)?);
    w.takes(x, FLOATS)?;
    if !w.is_fixed(weights) && !w.since(17) {
        return Err(Why::from("its weights are computed").hinting("--ios 17"));
    }
    let kernel = kernel_of(w, weights)?;
    let spatial = kernel.len();
    let output = w.out(id, 0)?;
    let kind = call.text("auto_pad")?;
    let plain = kind == "NOTSET" && call.opt_ints("output_shape")?.is_none();
    if !plain && kind != "VALID" {
        return Err("its padding follows from the size of its result".into());
    }
    let mut window = Window::of(w, &call, x, kernel)?;
    if window.kernel.len() == 3 && window.dilations.iter().any(|&it| it != 1) {
        return Err("the operator has no dilations along three axes".into());
    }
    // What is added behind is what is cut off less.
    let more = call.opt_ints("output_padding")?.filter(|more| more.len() == spatial);
    for (pads, more) in window.pads.iter_mut().zip(more.unwrap_or_default()) {
        pads[1] -= more;
        if pads[1] < 0 {
            return Err("the operator has no output_padding beyond what is cut off".into());
        }
    }
    let layer = Layer::of(w, id, &window, call.int("group")?)?;
    let shape = match w.sizes(output).ok() {
        Some(sizes) => Some(w.list(&sizes)?),
        None => None,
    };
    let y = w.result(id, 0)?;
    let mut inputs = layer.inputs();
    if let Some(shape) = &shape {
        inputs.push(("output_shape", shape.into()));
    }
    w.emit("conv_transpose", &inputs, &[&y]);
    Ok(())
}

pub fn pool(w: &mut Writer<'_>, id: NodeId) -> Done {
    let (x, call) = (w.arg(id, 0)?, w.call(id)?);
    w.takes(x, FLOATS)?;
    let is_max = w.node(id).op().is("MaxPool");
    if w.node(id).output(1).is_some_and(|places| !w.model.value(places).uses().is_empty()) {
        return Err("something reads where the largest numbers are".into());
    }
    let kernel = call.opt_ints("kernel_shape")?.unwrap_or_default();
    let mut window = Window::of(w, &call, x, kernel)?;
    if window.dilations.iter().any(|&it| it != 1) {
        return Err("the operator has no dilations".into());
    }
    let counts = !is_max && call.flag("count_include_pad")?;
    if call.flag("ceil_mode")? {
        round_up(w, x, &mut window, counts)?;
    }
    if window.pads.iter().zip(&window.kernel).any(|(pads, kernel)| pads.iter().any(|pad| pad >= kernel)) {
        return Err("padding as large as the window".into());
    }
    let (kernel, strides, pads) =
        (w.list(&window.kernel)?, w.list(&window.strides)?, w.list(&window.pads())?);
    let (kind, up) = (w.text("custom"), w.flag(false));
    let image = w.input(id, 0)?;
    let y = w.result(id, 0)?;
    let apart = w.flag(!counts);
    let mut inputs = vec![
        ("x", (&image).into()),
        ("kernel_sizes", (&kernel).into()),
        ("strides", (&strides).into()),
        ("pad_type", (&kind).into()),
        ("pad", (&pads).into()),
        ("ceil_mode", (&up).into()),
    ];
    if !is_max {
        inputs.push(("exclude_padding_from_average", (&apart).into()));
    }
    w.emit(if is_max { "max_pool" } else { "avg_pool" }, &inputs, &[&y]);
    Ok(())
}

/// Counts places up: as many as there are with more padding behind.
fn round_up(w: &Writer<'_>, x: ValueId, window: &mut Window, counts: bool) -> Done {
    let sizes = w.shape(x)?;
    for (axis, pads) in window.pads.iter_mut().enumerate() {
        let (kernel, stride) = (window.kernel[axis], window.strides[axis]);
        let size = sizes.get(axis + 2).and_then(Dim::as_const);
        let size = match size {
            Some(size) => size + pads[0] + pads[1],
            None if stride == 1 => continue,
            None => {
                return Err(
                    Why::from("how it rounds up depends on a size that is not known").hinting("--set-dim")
                );
            }
        };
        let mut steps = (size - kernel + stride - 1) / stride + 1;
        // No window begins in the padding behind.
        if (steps - 1) * stride >= size - pads[1] {
            steps -= 1;
        }
        let more = ((steps - 1) * stride + kernel - size).max(0);
        if more > 0 && counts {
            return Err("it counts padding, and rounds up".into());
        }
        pads[1] += more;
    }
    Ok(())
}

pub fn global_pool(w: &mut Writer<'_>, id: NodeId) -> Done {
    let x = w.arg(id, 0)?;
    w.takes(x, FLOATS)?;
    let axes: Vec<i64> = (2..w.rank(x)? as i64).collect();
    let kind = if w.node(id).op().is("GlobalAveragePool") { "reduce_mean" } else { "reduce_max" };
    super::layers::reduced(w, id, kind, &axes, true)
}
