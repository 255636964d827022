//! One step of a recurrent layer.

use super::Sizes;
use super::activation::Activation;
use crate::call::Call;
use crate::error::{OpError, unsupported};
use crate::eval_call::Eval;
use crate::kernel::gemm::{Matrix, gemm};
use crate::kernel::number::Float;

/// Which cell it is.
#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
    Simple,
    Gru {
        /// The reset gate applies after the product, not before it.
        linear_before_reset: bool,
    },
    Lstm {
        /// What is not kept of the memory makes room for as much that is new.
        input_forget: bool,
    },
}

impl Kind {
    pub fn of(call: &Call<'_>) -> Result<Self, OpError> {
        match call.def.name {
            "RNN" => Ok(Self::Simple),
            "GRU" => Ok(Self::Gru { linear_before_reset: call.flag("linear_before_reset")? }),
            "LSTM" => Ok(Self::Lstm { input_forget: call.flag("input_forget")? }),
            other => unsupported(format!("the recurrent layer {other}")),
        }
    }

    pub fn gates(self) -> usize {
        match self {
            Self::Simple => 1,
            Self::Gru { .. } => 3,
            Self::Lstm { .. } => 4,
        }
    }

    /// The functions that one direction has where the node names none.
    pub fn activations(self) -> &'static [&'static str] {
        match self {
            Self::Simple => &["Tanh"],
            Self::Gru { .. } => &["Sigmoid", "Tanh"],
            Self::Lstm { .. } => &["Sigmoid", "Tanh", "Tanh"],
        }
    }

    pub fn has_memory(self) -> bool {
        matches!(self, Self::Lstm { .. })
    }
}

/// One direction of a layer.
pub struct Cell<'a, T> {
    pub kind: Kind,
    pub sizes: Sizes,
    /// As many as the kind has.
    pub activations: &'a [Activation],
    /// `gates · hidden` rows of `hidden` weights.
    pub recurrence: &'a [T],
    /// The biases of the inputs, then those of the recurrence.
    pub bias: Option<&'a [T]>,
    /// Weights of the input, output and forget gates for the memory.
    pub peepholes: Option<&'a [T]>,
    /// The bound on what gates are computed from.
    pub clip: Option<T>,
}

/// What goes from one step to the next: `batch` rows of `hidden` elements each.
pub struct State<'a, T> {
    pub hidden: &'a mut [T],
    pub memory: &'a mut [T],
}

/// Buffers that every step uses.
pub struct Scratch<T> {
    /// What the recurrence gives to the gates.
    gates: Vec<T>,
    /// The hidden state after the reset gate.
    reset: Vec<T>,
}

impl<T: Float> Cell<'_, T> {
    pub fn scratch(&self, cx: &Eval<'_>) -> Result<Scratch<T>, OpError> {
        let Sizes { batch, hidden, gates, .. } = self.sizes;
        Ok(Scratch { gates: cx.zeros(&[gates, batch, hidden])?, reset: cx.zeros(&[batch, hidden])? })
    }

    /// The biases that are added before the recurrence is.
    pub fn input_bias(&self) -> Vec<T> {
        let width = self.sizes.gates * self.sizes.hidden;
        let Some(bias) = self.bias else { return vec![T::ZERO; width] };
        let (input, recurrence) = bias.split_at(width);
        let late = self.kind == Kind::Gru { linear_before_reset: true };
        let with = if late { 2 * self.sizes.hidden } else { width };
        let both = input.iter().zip(recurrence).enumerate();
        both.map(|(index, (&w, &r))| if index < with { w + r } else { w }).collect()
    }

    /// The function `index` of a gate.
    fn gate(&self, index: usize, x: T) -> T {
        self.activations[index].of(match self.clip {
            Some(clip) if x > clip => clip,
            Some(clip) if x < -clip => -clip,
            _ => x,
        })
    }

    /// `out = state · Rᵀ` for the rows of `R` that begin at gate `first`.
    fn recur(&self, out: &mut [T], state: &[T], first: usize, gates: usize) {
        let Sizes { batch, hidden, .. } = self.sizes;
        let r = &self.recurrence[first * hidden * hidden..];
        let r = Matrix::transposed(r, hidden, gates * hidden);
        gemm(out, Matrix::new(state, batch, hidden), r, T::ONE, false, true);
    }

    /// Advances the state of the rows that are `active`. `projected` is what the inputs of the step give to the gates.
    pub fn step(
        &self,
        projected: &[T],
        state: &mut State<'_, T>,
        scratch: &mut Scratch<T>,
        active: impl Fn(&usize) -> bool,
    ) {
        match self.kind {
            Kind::Simple => self.simple(projected, state, scratch, active),
            Kind::Gru { linear_before_reset } => {
                self.gru(projected, state, scratch, active, linear_before_reset);
            }
            Kind::Lstm { input_forget } => self.lstm(projected, state, scratch, active, input_forget),
        }
    }

    fn simple(
        &self,
        projected: &[T],
        state: &mut State<'_, T>,
        scratch: &mut Scratch<T>,
        active: impl Fn(&usize) -> bool,
    ) {
        self.recur(&mut scratch.gates, state.hidden, 0, 1);
        let n = self.sizes.hidden;
        for row in (0..self.sizes.batch).filter(&active) {
            let at = row * n..(row + 1) * n;
            let inputs = projected[at.clone()].iter().zip(&scratch.gates[at.clone()]);
            for (h, (&x, &r)) in state.hidden[at].iter_mut().zip(inputs) {
                *h = self.gate(0, x + r);
            }
        }
    }

    fn gru(
        &self,
        projected: &[T],
        state: &mut State<'_, T>,
        scratch: &mut Scratch<T>,
        active: impl Fn(&usize) -> bool,
        linear_before_reset: bool,
    ) {
        let (n, batch) = (self.sizes.hidden, self.sizes.batch);
        let (update_reset, candidate) = scratch.gates.split_at_mut(2 * batch * n);
        self.recur(update_reset, state.hidden, 0, 2);
        // Both gates in place of what they are computed from.
        for row in 0..batch {
            let x = &projected[row * 3 * n..][..2 * n];
            for (gate, &x) in update_reset[row * 2 * n..][..2 * n].iter_mut().zip(x) {
                *gate = self.gate(0, *gate + x);
            }
        }
        let reset_of = |row: usize| &update_reset[row * 2 * n + n..][..n];
        if linear_before_reset {
            self.recur(candidate, state.hidden, 2, 1);
            let bias = self.bias.map(|bias| &bias[5 * n..][..n]);
            for (row, candidate) in candidate.chunks_mut(n).enumerate() {
                for (index, (c, &reset)) in candidate.iter_mut().zip(reset_of(row)).enumerate() {
                    *c = reset * (*c + bias.map_or(T::ZERO, |bias| bias[index]));
                }
            }
        } else {
            for (row, to) in scratch.reset.chunks_mut(n).enumerate() {
                let both = state.hidden[row * n..].iter().zip(reset_of(row));
                to.iter_mut().zip(both).for_each(|(to, (&h, &reset))| *to = h * reset);
            }
            self.recur(candidate, &scratch.reset, 2, 1);
        }
        for row in (0..batch).filter(&active) {
            let x = &projected[row * 3 * n + 2 * n..][..n];
            let update = &update_reset[row * 2 * n..][..n];
            let candidate = &candidate[row * n..][..n];
            for (index, h) in state.hidden[row * n..][..n].iter_mut().enumerate() {
                let (z, new) = (update[index], self.gate(1, x[index] + candidate[index]));
                *h = (T::ONE - z) * new + z * *h;
            }
        }
    }

    fn lstm(
        &self,
        projected: &[T],
        state: &mut State<'_, T>,
        scratch: &mut Scratch<T>,
        active: impl Fn(&usize) -> bool,
        input_forget: bool,
    ) {
        self.recur(&mut scratch.gates, state.hidden, 0, 4);
        let n = self.sizes.hidden;
        // Gates lie in the order input, output, forget, cell; peepholes in the order input, output, forget.
        let peep = |gate: usize, index: usize, memory: T| {
            self.peepholes.map_or(T::ZERO, |weights| weights[gate * n + index] * memory)
        };
        for row in (0..self.sizes.batch).filter(&active) {
            let (x, r) = (&projected[row * 4 * n..][..4 * n], &scratch.gates[row * 4 * n..][..4 * n]);
            let sum = |gate: usize, index: usize| x[gate * n + index] + r[gate * n + index];
            let (hidden, memory) = (&mut state.hidden[row * n..][..n], &mut state.memory[row * n..][..n]);
            for (index, (hidden, memory)) in hidden.iter_mut().zip(memory).enumerate() {
                let input = self.gate(0, sum(0, index) + peep(0, index, *memory));
                let forget = if input_forget {
                    T::ONE - input
                } else {
                    self.gate(0, sum(2, index) + peep(2, index, *memory))
                };
                *memory = forget * *memory + input * self.gate(1, sum(3, index));
                let output = self.gate(0, sum(1, index) + peep(1, index, *memory));
                *hidden = output * self.activations[2].of(*memory);
            }
        }
    }
}
