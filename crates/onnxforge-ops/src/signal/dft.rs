//! Fourier transforms along an axis, of whole signals and of frames.

use num_complex::Complex;

use super::fft::{Fft, buffer_len};
use crate::array::{Array, each_float};
use crate::call::{self, Call};
use crate::error::{OpError, invalid};
use crate::eval_call::{Eval, one};
use crate::infer_call::Infer;
use crate::kernel::number::{Float, Number};
use crate::kernel::shape::around;
use crate::value::Value;
use onnxforge_ir::dim::Dim;
use onnxforge_proto::parallel::{for_each, thread_count};

/// What is computed of a spectrum.
#[derive(Clone, Copy)]
struct Form {
    inverse: bool,
    onesided: bool,
}

impl Form {
    fn of(call: &Call<'_>) -> Result<Self, OpError> {
        Ok(Self { inverse: call.flag("inverse")?, onesided: call.flag("onesided")? })
    }

    /// Whether a real signal is made of one half of its spectrum.
    fn is_real(self) -> bool {
        self.inverse && self.onesided
    }

    /// Numbers per element of the result.
    fn parts(self) -> usize {
        if self.is_real() { 1 } else { 2 }
    }

    /// Elements of the result for a transform of this length.
    fn output_len(self, len: usize) -> usize {
        if self.onesided && !self.inverse { len / 2 + 1 } else { len }
    }

    /// Whether elements of so many numbers can be transformed.
    fn takes(self, parts: usize) -> bool {
        match parts {
            1 => !self.is_real(),
            2 => self.inverse || !self.onesided,
            _ => false,
        }
    }
}

/// The scalar integer at input `index`, if it is given.
fn scalar(cx: &Eval<'_>, index: usize) -> Result<Option<i64>, OpError> {
    cx.opt_array(index)?.map(Array::to_i64).transpose()
}

/// A length, which must be at least 1.
fn length(value: i64) -> Result<usize, OpError> {
    match usize::try_from(value) {
        Ok(value @ 1..) => Ok(value),
        _ => invalid(format!("a transform or step of {value} elements")),
    }
}

/// The axis of a signal of `rank` axes, of which the last holds the parts of complex numbers.
fn signal_axis(axis: i64, rank: usize) -> Result<usize, OpError> {
    match call::axis(axis, rank)? {
        found if found + 1 < rank => Ok(found),
        _ => invalid(format!("the axis {axis} of {rank}, which holds real and imaginary parts")),
    }
}

pub fn dft(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let (x, form) = (cx.array(0)?, Form::of(&cx.call)?);
    let axis = if cx.call.since() < 20 { cx.call.int("axis")? } else { scalar(cx, 2)?.unwrap_or(-2) };
    let axis = signal_axis(axis, x.rank())?;
    let parts = x.shape().last().copied().unwrap_or(0);
    if !form.takes(parts) {
        return invalid(format!("a transform of a signal of {:?}", x.shape()));
    }
    let size = x.shape()[axis];
    let default = if form.is_real() { 2 * (size as i64 - 1) } else { size as i64 };
    let len = length(scalar(cx, 1)?.unwrap_or(default))?;
    let mut shape = x.shape().to_vec();
    shape[axis] = form.output_len(len);
    if let Some(last) = shape.last_mut() {
        *last = form.parts();
    }
    each_float!(x, T => {
        let mut out = cx.zeros::<T>(&shape)?;
        let (_, size, inner) = around(x.shape(), axis);
        let lines = Lines { len, form, size, inner: inner / parts, parts };
        if !out.is_empty() {
            lines.transform(cx, x.slice::<T>()?, &mut out)?;
        }
        one(Array::new(shape, out)?)
    })
}

/// Signals of `size` elements that lie `inner` elements of `parts` numbers apart.
struct Lines {
    len: usize,
    form: Form,
    size: usize,
    inner: usize,
    parts: usize,
}

impl Lines {
    fn transform<T: Float>(&self, cx: &Eval<'_>, x: &[T], out: &mut [T]) -> Result<(), OpError> {
        cx.reserve::<Complex<f64>>(buffer_len(self.len).saturating_mul(thread_count()))?;
        let fft = Fft::new(self.len);
        let (from, to) = (self.size * self.inner * self.parts, out.len() / self.outer(out.len()));
        for_each(out.chunks_exact_mut(to).enumerate(), 1, |(outer, out)| {
            let x = &x[outer * from..][..from];
            let mut line = vec![Complex::ZERO; self.len];
            for inner in 0..self.inner {
                self.read(x, inner, &mut line);
                fft.transform(&mut line, self.form.inverse);
                self.write(&line, inner, out);
            }
        });
        Ok(())
    }

    /// How many blocks of `inner` lines make up an output of `count` numbers.
    fn outer(&self, count: usize) -> usize {
        count / (self.form.output_len(self.len) * self.inner * self.form.parts())
    }

    /// A line, cut off or filled up with zeros; the half of a spectrum with the other half.
    fn read<T: Float>(&self, x: &[T], inner: usize, line: &mut [Complex<f64>]) {
        let used = if self.form.is_real() { self.len / 2 + 1 } else { self.len };
        line.fill(Complex::ZERO);
        let elements = x.chunks_exact(self.parts).skip(inner).step_by(self.inner);
        for (to, from) in line.iter_mut().zip(elements).take(used) {
            *to = Complex::new(from[0].to_f64(), from.get(1).map_or(0.0, |&part| part.to_f64()));
        }
        if self.form.is_real() {
            for index in used..self.len {
                line[index] = line[self.len - index].conj();
            }
        }
    }

    fn write<T: Float>(&self, line: &[Complex<f64>], inner: usize, out: &mut [T]) {
        let scale = if self.form.inverse { 1.0 / self.len as f64 } else { 1.0 };
        let elements = out.chunks_exact_mut(self.form.parts()).skip(inner).step_by(self.inner);
        for (to, from) in elements.zip(line) {
            let parts = [from.re * scale, from.im * scale];
            to.iter_mut().zip(parts).for_each(|(to, part)| *to = T::from_f64(part));
        }
    }
}

pub fn stft(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let (signal, window) = (cx.array(0)?, cx.opt_array(2)?);
    let form = Form { inverse: false, onesided: cx.call.flag("onesided")? };
    let &[batch, size, parts] = signal.shape() else {
        return invalid(format!("a signal of {:?}", signal.shape()));
    };
    let Some(step) = scalar(cx, 1)? else { return invalid("the frame step is missing") };
    let step = length(step)?;
    let default = window.map_or(size, Array::len);
    let len = length(scalar(cx, 3)?.unwrap_or(default as i64))?;
    if !form.takes(parts) || len > size || window.is_some_and(|window| window.shape() != [len]) {
        return invalid(format!("frames of {len} elements of a signal of {:?}", signal.shape()));
    }
    let frames = (size - len) / step + 1;
    let shape = [batch, frames, form.output_len(len), 2];
    each_float!(signal, T => {
        let mut out = cx.zeros::<T>(&shape)?;
        cx.reserve::<Complex<f64>>(buffer_len(len).saturating_mul(thread_count()))?;
        let window = window.map(Array::slice::<T>).transpose()?;
        if !out.is_empty() {
            let (fft, signal) = (Fft::new(len), signal.slice::<T>()?);
            let lines = Lines { len, form, size: len, inner: 1, parts };
            for_each(out.chunks_exact_mut(form.output_len(len) * 2).enumerate(), 1, |(index, out)| {
                let first = (index / frames * size + index % frames * step) * parts;
                let mut line = vec![Complex::ZERO; len];
                lines.read(&signal[first..][..len * parts], 0, &mut line);
                if let Some(window) = window {
                    line.iter_mut().zip(window).for_each(|(value, &weight)| *value *= weight.to_f64());
                }
                fft.transform(&mut line, false);
                lines.write(&line, 0, out);
            });
        }
        one(Array::new(shape, out)?)
    })
}

/// The single integer at input `index` as an expression, if it is known.
fn known_scalar(cx: &Infer<'_>, index: usize) -> Option<Dim> {
    match cx.dims(index)?.as_slice() {
        [value] => Some(value.clone()),
        _ => None,
    }
}

/// Elements of the half of a spectrum that says all about a real signal.
fn half(cx: &Infer<'_>, len: &Dim) -> Option<Dim> {
    len.floor_div(&Dim::from(2), cx.symbols)?.add(&Dim::ONE)
}

pub fn infer_dft(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let form = Form::of(&cx.call)?;
    let Some(shape) = cx.shape(0) else { return Ok(()) };
    let axis = match cx.call.since() {
        ..20 => Some(cx.call.int("axis")?),
        _ if !cx.has(2) => Some(-2),
        _ => cx.ints(2).and_then(|axis| axis.first().copied()),
    };
    let mut output = match axis {
        Some(axis) => {
            let axis = signal_axis(axis, shape.len())?;
            let given = if cx.has(1) { known_scalar(cx, 1) } else { default_len(form, &shape[axis]) };
            let len =
                if form.onesided && !form.inverse { given.and_then(|len| half(cx, &len)) } else { given };
            let mut output = shape.to_vec();
            output[axis] = cx.or_fresh(len);
            output
        }
        None => cx.fresh_shape(shape.len()),
    };
    if let Some(last) = output.last_mut() {
        *last = Dim::from(form.parts() as i64);
    }
    cx.set_shape(0, output);
    Ok(())
}

fn default_len(form: Form, size: &Dim) -> Option<Dim> {
    if form.is_real() { size.sub(&Dim::ONE)?.mul(&Dim::from(2)) } else { Some(size.clone()) }
}

pub fn infer_stft(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let signal = cx.shape(0).map_or_else(|| cx.fresh_shape(3), <[Dim]>::to_vec);
    let [batch, size, _] = &signal[..] else {
        return invalid(format!("a signal with {} axes", signal.len()));
    };
    let window = cx.shape(2).and_then(|window| window.first().cloned());
    let len = match (cx.has(3), cx.has(2)) {
        (true, _) => known_scalar(cx, 3).or(window),
        (false, true) => window,
        (false, false) => Some(size.clone()),
    };
    let frames = len.as_ref().and_then(|len| {
        let step = known_scalar(cx, 1)?;
        size.sub(len)?.floor_div(&step, cx.symbols)?.add(&Dim::ONE)
    });
    let bins = if cx.call.flag("onesided")? { len.and_then(|len| half(cx, &len)) } else { len };
    let shape = vec![batch.clone(), cx.or_fresh(frames), cx.or_fresh(bins), Dim::from(2)];
    cx.set_shape(0, shape);
    Ok(())
}
