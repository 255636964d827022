//! Recurrent layers: RNN, GRU and LSTM.

mod activation;
mod cell;

use activation::Activation;
use cell::{Cell, Kind, State};

use super::array::{Array, each_float};
use super::call::Call;
use super::def::{Category, OpDef};
use super::error::{OpError, invalid};
use super::eval_call::Eval;
use super::infer_call::Infer;
use super::kernel::gemm::{Matrix, gemm};
use super::kernel::number::Float;
use super::kernel::strided::transpose;
use super::value::Value;
use onnxforge_ir::dim::Dim;

/// The operators of this family.
pub static OPS: &[OpDef] = &[
    OpDef::new("RNN", Category::NeuralLayer, infer, eval).widening(),
    OpDef::new("GRU", Category::NeuralLayer, infer, eval).widening(),
    OpDef::new("LSTM", Category::NeuralLayer, infer, eval).widening(),
];

/// The directions in which the sequence is read: whether each goes from the end to the start.
fn directions(call: &Call<'_>) -> Result<&'static [bool], OpError> {
    // The first GRU misspells its default.
    match call.text("direction")?.as_str() {
        "forward" | "foward" => Ok(&[false]),
        "reverse" => Ok(&[true]),
        "bidirectional" => Ok(&[false, true]),
        other => invalid(format!("the direction {other:?}")),
    }
}

/// Whether the batch is the first axis, and not the sequence.
fn batch_first(call: &Call<'_>) -> Result<bool, OpError> {
    Ok(call.int_or("layout", 0)? != 0)
}

fn infer(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let axes = |input: usize| match cx.shape(input) {
        Some([a, b, c]) => Ok(Some([a.clone(), b.clone(), c.clone()])),
        Some(shape) => invalid(format!("input {input} of a recurrent layer with {} axes", shape.len())),
        None => Ok(None),
    };
    let (x, r) = (axes(0)?, axes(2)?);
    let batch_first = batch_first(&cx.call)?;
    let directions = Dim::from(directions(&cx.call)?.len() as i64);
    let hidden = match (r, cx.call.opt_int("hidden_size")?) {
        (Some([_, _, hidden]), _) => hidden,
        (None, Some(hidden)) => Dim::from(hidden),
        (None, None) => cx.fresh(),
    };
    let [first, second, _] = x.unwrap_or_else(|| [(); 3].map(|()| cx.fresh()));
    let state = |batch: Dim| {
        if batch_first {
            [batch, directions.clone(), hidden.clone()]
        } else {
            [directions.clone(), batch, hidden.clone()]
        }
    };
    let (y, state) = if batch_first {
        ([first.clone(), second, directions.clone(), hidden.clone()], state(first))
    } else {
        ([first, directions.clone(), second.clone(), hidden.clone()], state(second))
    };
    cx.set_shape(0, y.to_vec());
    for output in 1..cx.call.output_count() {
        cx.set_shape(output, state.to_vec());
    }
    Ok(())
}

/// The sizes of a call.
#[derive(Clone, Copy)]
struct Sizes {
    steps: usize,
    batch: usize,
    input: usize,
    hidden: usize,
    gates: usize,
    directions: usize,
}

impl Sizes {
    /// Checks that an input has the shape that the others ask for.
    fn expect(found: &Array, shape: &[usize]) -> Result<(), OpError> {
        if found.shape() == shape {
            return Ok(());
        }
        invalid(format!("an input of a recurrent layer of shape {:?}, not {shape:?}", found.shape()))
    }

    fn of(cx: &Eval<'_>, x: &Array, gates: usize, directions: usize) -> Result<Self, OpError> {
        let (w, r) = (cx.array(1)?, cx.array(2)?);
        let ([steps, batch, input], [_, _, hidden]) = (x.shape(), r.shape()) else {
            return invalid(format!("a recurrent layer of the shapes {:?} and {:?}", x.shape(), r.shape()));
        };
        if let Some(declared) = cx.call.opt_int("hidden_size")?
            && usize::try_from(declared) != Ok(*hidden)
        {
            return invalid(format!("{hidden} hidden elements where {declared} are declared"));
        }
        let rows = gates.saturating_mul(*hidden);
        Self::expect(w, &[directions, rows, *input])?;
        Self::expect(r, &[directions, rows, *hidden])?;
        if let Some(b) = cx.opt_array(3)? {
            Self::expect(b, &[directions, rows.saturating_mul(2)])?;
        }
        Ok(Self { steps: *steps, batch: *batch, input: *input, hidden: *hidden, gates, directions })
    }

    /// Elements of the state of one direction.
    fn state(&self) -> usize {
        self.batch * self.hidden
    }
}

fn eval(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let x = cx.array(0)?;
    each_float!(x, T => layer::<T>(cx))
}

/// The array with its axes in the order `order` where the batch is the first axis; else as it is.
fn turned(cx: &Eval<'_>, array: &Array, order: &[usize]) -> Result<Array, OpError> {
    if !batch_first(&cx.call)? {
        return Ok(array.clone());
    }
    if array.rank() != order.len() {
        return invalid(format!("an input of a recurrent layer with {} axes", array.rank()));
    }
    transpose(array, order, cx.memory())
}

fn layer<T: Float>(cx: &Eval<'_>) -> Result<Vec<Value>, OpError> {
    let kind = Kind::of(&cx.call)?;
    let directions = directions(&cx.call)?;
    let x = turned(cx, cx.array(0)?, &[1, 0, 2])?;
    let sizes = Sizes::of(cx, &x, kind.gates(), directions.len())?;
    let lengths = lengths(cx, sizes)?;
    let mut hidden = initial::<T>(cx, 5, sizes)?;
    let mut memory = if kind.has_memory() { initial::<T>(cx, 6, sizes)? } else { Vec::new() };
    let activations = Activation::list(&cx.call, kind.activations(), directions.len())?;
    let y_shape = [sizes.steps, sizes.directions, sizes.batch, sizes.hidden];
    let mut y = cx.zeros::<T>(&y_shape)?;
    if sizes.state() > 0 {
        for (index, &reverse) in directions.iter().enumerate() {
            let cell = cell(cx, kind, sizes, &activations[index], index)?;
            let range = index * sizes.state()..(index + 1) * sizes.state();
            let state = State {
                hidden: &mut hidden[range.clone()],
                memory: if kind.has_memory() { &mut memory[range] } else { &mut [] },
            };
            let run = Run { projected: project(cx, &cell, &x, index)?, lengths: &lengths, reverse };
            run.all_steps(cx, &cell, state, |step, row, hidden| {
                let at = ((step * sizes.directions + index) * sizes.batch + row) * sizes.hidden;
                y[at..][..sizes.hidden].copy_from_slice(hidden);
            })?;
        }
    }
    let state_shape = [sizes.directions, sizes.batch, sizes.hidden];
    let mut outputs = vec![turned(cx, &Array::new(y_shape, y)?, &[2, 0, 1, 3])?.into()];
    outputs.push(turned(cx, &Array::new(state_shape, hidden)?, &[1, 0, 2])?.into());
    if kind.has_memory() {
        outputs.push(turned(cx, &Array::new(state_shape, memory)?, &[1, 0, 2])?.into());
    }
    Ok(outputs)
}

/// One direction as it runs.
struct Run<'a, T> {
    /// What the inputs give to the gates, step after step.
    projected: Vec<T>,
    /// How many steps each row of the batch has.
    lengths: &'a [usize],
    reverse: bool,
}

impl<T: Float> Run<'_, T> {
    /// Takes the state through all steps; `give` gets each step, row and hidden state. A row without steps ends with
    /// zeros.
    fn all_steps(
        &self,
        cx: &Eval<'_>,
        cell: &Cell<'_, T>,
        mut state: State<'_, T>,
        mut give: impl FnMut(usize, usize, &[T]),
    ) -> Result<(), OpError> {
        let Sizes { steps, hidden, .. } = cell.sizes;
        let width = cell.sizes.gates * cell.sizes.state();
        let mut scratch = cell.scratch(cx)?;
        for step in 0..steps {
            cx.check_time()?;
            let step = if self.reverse { steps - 1 - step } else { step };
            let active = |row: &usize| step < self.lengths[*row];
            cell.step(&self.projected[step * width..][..width], &mut state, &mut scratch, active);
            for row in (0..cell.sizes.batch).filter(active) {
                give(step, row, &state.hidden[row * hidden..][..hidden]);
            }
        }
        for (row, _) in self.lengths.iter().enumerate().filter(|(_, length)| **length == 0) {
            state.hidden[row * hidden..][..hidden].fill(T::ZERO);
            if cell.kind.has_memory() {
                state.memory[row * hidden..][..hidden].fill(T::ZERO);
            }
        }
        Ok(())
    }
}

/// The parameters of one direction.
fn cell<'a, T: Float>(
    cx: &'a Eval<'_>,
    kind: Kind,
    sizes: Sizes,
    activations: &'a [Activation],
    index: usize,
) -> Result<Cell<'a, T>, OpError> {
    let part =
        |array: &'a Array| Ok::<_, OpError>(of_direction(array.slice::<T>()?, index, sizes.directions));
    let peepholes = if kind.has_memory() { cx.opt_array(7)? } else { None };
    if let Some(peepholes) = peepholes {
        Sizes::expect(peepholes, &[sizes.directions, sizes.hidden.saturating_mul(3)])?;
    }
    let clip = cx.call.opt_float("clip")?;
    if let Some(clip) = clip.filter(|clip| *clip < 0.0) {
        return invalid(format!("clip = {clip}"));
    }
    Ok(Cell {
        kind,
        sizes,
        activations,
        recurrence: part(cx.array(2)?)?,
        bias: cx.opt_array(3)?.map(part).transpose()?,
        peepholes: peepholes.map(part).transpose()?,
        clip: clip.map(|clip| T::from_f64(clip.into())),
    })
}

/// The part of a parameter that belongs to one direction.
fn of_direction<T>(data: &[T], index: usize, directions: usize) -> &[T] {
    let size = data.len() / directions;
    &data[index * size..][..size]
}

/// How many steps each row of the batch has.
fn lengths(cx: &Eval<'_>, sizes: Sizes) -> Result<Vec<usize>, OpError> {
    let Some(lengths) = cx.ints(4)? else {
        cx.reserve::<usize>(sizes.batch)?;
        return Ok(vec![sizes.steps; sizes.batch]);
    };
    let length = |&length: &i64| usize::try_from(length).ok().filter(|&length| length <= sizes.steps);
    match lengths.iter().map(length).collect::<Option<Vec<usize>>>() {
        Some(found) if found.len() == sizes.batch => Ok(found),
        _ => invalid(format!("{} lengths for {} sequences of {}", lengths.len(), sizes.batch, sizes.steps)),
    }
}

/// The state before the first step: input `index`, or zeros.
fn initial<T: Float>(cx: &Eval<'_>, index: usize, sizes: Sizes) -> Result<Vec<T>, OpError> {
    let shape = [sizes.directions, sizes.batch, sizes.hidden];
    let Some(given) = cx.opt_array(index)? else { return cx.zeros(&shape) };
    let given = turned(cx, given, &[1, 0, 2])?;
    Sizes::expect(&given, &shape)?;
    cx.reserve::<T>(given.len())?;
    given.into_vec()
}

/// What the inputs of all steps, and the biases, give to the gates: one product for the whole sequence.
fn project<T: Float>(cx: &Eval<'_>, cell: &Cell<'_, T>, x: &Array, index: usize) -> Result<Vec<T>, OpError> {
    let sizes = cell.sizes;
    let (rows, columns) = (sizes.steps * sizes.batch, sizes.gates * sizes.hidden);
    let mut projected = cx.zeros::<T>(&[rows, columns])?;
    let bias = cell.input_bias();
    projected.chunks_mut(columns).for_each(|row| row.copy_from_slice(&bias));
    let w = of_direction(cx.array(1)?.slice::<T>()?, index, sizes.directions);
    let x = Matrix::new(x.slice::<T>()?, rows, sizes.input);
    gemm(&mut projected, x, Matrix::transposed(w, sizes.input, columns), T::ONE, true, true);
    Ok(projected)
}
