//! LinearAttention: a state that each token changes and reads.

use crate::array::{Array, each_float};
use crate::call::Call;
use crate::error::{OpError, invalid};
use crate::eval_call::Eval;
use crate::infer_call::Infer;
use crate::kernel::convert::to_float;
use crate::kernel::number::Float;
use crate::kernel::parallel::each_piece;
use crate::kernel::widen::{narrow, widen};
use crate::value::Value;
use onnxforge_ir::dim::Dim;

/// The numbers of heads of queries and of keys.
fn head_counts(call: &Call<'_>) -> Result<[usize; 2], OpError> {
    let [q, kv] = [call.int("q_num_heads")?, call.int("kv_num_heads")?];
    match (usize::try_from(q), usize::try_from(kv)) {
        (Ok(q), Ok(kv)) if kv > 0 && q > 0 && q % kv == 0 => Ok([q, kv]),
        _ => invalid(format!("{q} heads of queries and {kv} of keys")),
    }
}

pub fn infer(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let [q_heads, kv_heads] = head_counts(&cx.call)?.map(|count| Dim::from(count as i64));
    if !cx.has(3) {
        cx.copy_dtype(1, 0);
    }
    let mut axes = |input: usize, heads: &Dim| match cx.shape(input) {
        Some([b, t, hidden]) => {
            let size = hidden.floor_div(heads, cx.symbols);
            Ok([b.clone(), t.clone(), cx.or_fresh(size)])
        }
        Some(shape) => invalid(format!("queries, keys or values with {} axes", shape.len())),
        None => Ok([(); 3].map(|()| cx.fresh())),
    };
    let ([b, t, key_size], [.., value_size]) = (axes(0, &q_heads)?, axes(2, &kv_heads)?);
    let hidden = cx.or_fresh(q_heads.mul(&value_size));
    cx.set_shape(0, vec![b.clone(), t, hidden]);
    cx.set_shape(1, vec![b, kv_heads, key_size, value_size]);
    Ok(())
}

/// How a token changes the state.
struct Rule {
    gated: bool,
    delta: bool,
}

impl Rule {
    fn of(cx: &Eval<'_>) -> Result<Self, OpError> {
        let name = cx.call.text("update_rule")?;
        let rule = match name.as_str() {
            "linear" => Self { gated: false, delta: false },
            "gated" => Self { gated: true, delta: false },
            "delta" => Self { gated: false, delta: true },
            "gated_delta" => Self { gated: true, delta: true },
            _ => return invalid(format!("the update rule {name:?}")),
        };
        if cx.has(4) != rule.gated || cx.has(5) != rule.delta {
            return invalid(format!("decay or beta do not fit the update rule {name:?}"));
        }
        Ok(rule)
    }
}

/// The sizes of a call.
#[derive(Clone, Copy)]
struct Sizes {
    batch: usize,
    tokens: usize,
    q_heads: usize,
    kv_heads: usize,
    key: usize,
    value: usize,
}

impl Sizes {
    fn of(cx: &Eval<'_>) -> Result<Self, OpError> {
        let [q_heads, kv_heads] = head_counts(&cx.call)?;
        let shapes = [cx.array(0)?.shape(), cx.array(1)?.shape(), cx.array(2)?.shape()];
        let ([b, t, q], [kb, kt, k], [vb, vt, v]) = (shapes[0], shapes[1], shapes[2]) else {
            return invalid(format!("queries, keys and values of the shapes {shapes:?}"));
        };
        let divides = q % q_heads == 0 && k % kv_heads == 0 && v % kv_heads == 0;
        if [b, b, t, t] != [kb, vb, kt, vt] || !divides || q / q_heads != k / kv_heads {
            return invalid(format!("queries, keys and values of the shapes {shapes:?}"));
        }
        Ok(Self { batch: *b, tokens: *t, q_heads, kv_heads, key: q / q_heads, value: v / kv_heads })
    }

    /// Checks the shape of decay or beta, whose last axis has one of these sizes; answers how many elements each head
    /// has, 0 for one that all heads share.
    fn per_head(&self, gate: &Array, shared: bool) -> Result<usize, OpError> {
        match gate.shape() {
            [b, t, width] if *b == self.batch && *t == self.tokens => match *width {
                width if width == self.kv_heads => Ok(1),
                1 if shared => Ok(0),
                width if !shared && width == self.kv_heads * self.key => Ok(self.key),
                width => invalid(format!("{width} gates for {} heads", self.kv_heads)),
            },
            shape => invalid(format!("gates of shape {shape:?}")),
        }
    }
}

pub fn eval(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let (rule, sizes) = (Rule::of(cx)?, Sizes::of(cx)?);
    let query = cx.array(0)?;
    let state_type = cx.opt_array(3)?.unwrap_or(query).dtype();
    let wide = widen(query)?;
    let (y, state) = each_float!(&wide, T => attend::<T>(cx, &rule, sizes))?;
    Ok(vec![narrow(&y, query.dtype())?.into(), narrow(&state, state_type)?.into()])
}

/// What the heads read, all of them for each token.
struct Inputs<'a, T> {
    query: &'a [T],
    key: &'a [T],
    value: &'a [T],
    /// With the number of elements that each head has, which may share one.
    decay: Option<(&'a [T], usize)>,
    beta: Option<(&'a [T], usize)>,
    scale: T,
}

fn attend<T: Float>(cx: &Eval<'_>, rule: &Rule, sizes: Sizes) -> Result<(Array, Array), OpError> {
    let state_shape = [sizes.batch, sizes.kv_heads, sizes.key, sizes.value];
    let shape = [sizes.batch, sizes.tokens, sizes.q_heads.saturating_mul(sizes.value)];
    let input = |index: usize| to_float::<T>(&widen(cx.array(index)?)?);
    let mut states = match cx.opt_array(3)? {
        Some(past) if past.shape() == state_shape => {
            cx.reserve::<T>(past.len())?;
            input(3)?.into_vec::<T>()?
        }
        Some(past) => return invalid(format!("a state of shape {:?}, not {state_shape:?}", past.shape())),
        None => cx.zeros(&state_shape)?,
    };
    let mut out = cx.zeros::<T>(&shape)?;
    if !states.is_empty() && !out.is_empty() {
        let (query, key, value) = (input(0)?, input(1)?, input(2)?);
        let decay = if rule.gated { Some((input(4)?, sizes.per_head(cx.array(4)?, false)?)) } else { None };
        let beta = if rule.delta { Some((input(5)?, sizes.per_head(cx.array(5)?, true)?)) } else { None };
        let scale = match f64::from(cx.call.float("scale")?) {
            0.0 => 1.0 / (sizes.key as f64).sqrt(),
            scale => scale,
        };
        let inputs = Inputs {
            query: query.slice::<T>()?,
            key: key.slice::<T>()?,
            value: value.slice::<T>()?,
            decay: gate(&decay)?,
            beta: gate(&beta)?,
            scale: T::from_f64(scale),
        };
        cx.reserve::<T>(out.len())?;
        let mut heads: Vec<Head<'_, T>> =
            states.chunks_mut(sizes.key * sizes.value).map(|state| Head { state, out: Vec::new() }).collect();
        let cost = sizes.tokens * sizes.key * sizes.value;
        each_piece(&mut heads, 1, cost, &|index, heads| {
            heads.iter_mut().for_each(|head| head.run(&inputs, sizes, index));
        });
        let group = sizes.q_heads / sizes.kv_heads * sizes.value;
        for (index, out) in out.chunks_mut(group).enumerate() {
            let (row, head) = (index / sizes.kv_heads, index % sizes.kv_heads);
            let (batch, token) = (row / sizes.tokens, row % sizes.tokens);
            out.copy_from_slice(&heads[batch * sizes.kv_heads + head].out[token * group..][..group]);
        }
    }
    Ok((Array::new(shape, out)?, Array::new(state_shape, states)?))
}

fn gate<T: Float>(gate: &Option<(Array, usize)>) -> Result<Option<(&[T], usize)>, OpError> {
    gate.as_ref().map(|(array, width)| Ok((array.slice()?, *width))).transpose()
}

/// A head of keys.
struct Head<'a, T> {
    /// Rows of values, one for each element of a key.
    state: &'a mut [T],
    /// What its queries read, token after token.
    out: Vec<T>,
}

impl<T: Float> Head<'_, T> {
    /// Runs the head, which is counted over all batches, through its tokens.
    fn run(&mut self, inputs: &Inputs<'_, T>, sizes: Sizes, index: usize) {
        let Self { state, out } = self;
        let (batch, head) = (index / sizes.kv_heads, index % sizes.kv_heads);
        let group = sizes.q_heads / sizes.kv_heads;
        out.reserve_exact(sizes.tokens * group * sizes.value);
        let mut written = vec![T::ZERO; sizes.value];
        for token in batch * sizes.tokens..(batch + 1) * sizes.tokens {
            let place = token * sizes.kv_heads + head;
            let key = &inputs.key[place * sizes.key..][..sizes.key];
            if let Some((decay, width)) = inputs.decay {
                let decay = &decay[place * width..][..width];
                for (row, state) in state.chunks_mut(sizes.value).enumerate() {
                    let factor = decay[if width == 1 { 0 } else { row }].exp();
                    state.iter_mut().for_each(|x| *x *= factor);
                }
            }
            written.copy_from_slice(&inputs.value[place * sizes.value..][..sizes.value]);
            if let Some((beta, width)) = inputs.beta {
                let beta = beta[if width == 0 { token } else { place }];
                for (state, &key) in state.chunks(sizes.value).zip(key) {
                    written.iter_mut().zip(state).for_each(|(w, &s)| *w -= s * key);
                }
                written.iter_mut().for_each(|w| *w *= beta);
            }
            for (state, &key) in state.chunks_mut(sizes.value).zip(key) {
                state.iter_mut().zip(&written).for_each(|(s, &w)| *s += key * w);
            }
            for query in 0..group {
                let at = (token * sizes.q_heads + head * group + query) * sizes.key;
                let start = out.len();
                out.resize(start + sizes.value, T::ZERO);
                for (state, &q) in state.chunks(sizes.value).zip(&inputs.query[at..]) {
                    out[start..].iter_mut().zip(state).for_each(|(o, &s)| *o += q * s);
                }
                out[start..].iter_mut().for_each(|o| *o *= inputs.scale);
            }
        }
    }
}
