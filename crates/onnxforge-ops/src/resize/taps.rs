//! Which elements of an axis make up each element of the resized axis.

use super::request::{AxisRequest, Filter, Nearest, Request, Transform};
use crate::error::{OpError, unsupported};
use crate::eval_call::Eval;
use crate::kernel::number::Float;

/// For each element of the resized axis, the elements it is made of and their weights.
pub struct Taps {
    /// Where the taps of each element begin, and one entry for the end of the last.
    starts: Vec<usize>,
    taps: Vec<(usize, f64)>,
    /// The elements whose place lies outside of the tensor; empty when there are none.
    outside: Vec<bool>,
}

impl Taps {
    pub fn of(cx: &Eval<'_>, request: &Request, axis: &AxisRequest) -> Result<Self, OpError> {
        let reach = Reach::of(request, axis);
        // Elements on both sides, of which there are not many more than the axis has.
        let most = 2.0 * reach.radius + 2.0;
        if most > 8.0 * axis.input as f64 + 16.0 {
            return unsupported(format!("a filter over {most} elements"));
        }
        cx.reserve::<(usize, f64)>(axis.output.saturating_mul(most as usize))?;
        let mut result = Self { starts: vec![0], taps: Vec::new(), outside: Vec::new() };
        for index in 0..axis.output {
            // Rounding decides which element is the nearest, so places are worked out in the 32 bits of runtimes.
            let place = match request.is_nearest() {
                true => place::<f32>(request.transform, axis, index).into(),
                false => place::<f64>(request.transform, axis, index),
            };
            if request.transform == Transform::TfCropAndResize
                && !(place >= 0.0 && place <= (axis.input - 1) as f64)
            {
                result.outside.resize(axis.output, false);
                result.outside[index] = true;
            }
            match request.filter {
                Filter::Nearest(mode) => {
                    let nearest = nearest(mode, axis.scale, place).clamp(0.0, (axis.input - 1) as f64);
                    result.taps.push((nearest as usize, 1.0));
                }
                filter => result.add(filter, &reach, request.exclude_outside, axis.input, place),
            }
            result.starts.push(result.taps.len());
        }
        Ok(result)
    }

    /// Adds the taps of a place between elements.
    fn add(&mut self, filter: Filter, reach: &Reach, exclude_outside: bool, input: usize, place: f64) {
        let last = (input - 1) as f64;
        // Farther out, the edge is all there is to see.
        let place = place.clamp(-reach.radius - 1.0, last + reach.radius + 1.0);
        let first = (place - reach.radius).floor() as i64 + 1;
        let end = (place + reach.radius).ceil() as i64;
        let begin = self.taps.len();
        let mut sum = 0.0;
        for near in first..end {
            let weight = reach.weight(filter, near as f64 - place);
            let clamped = (near as f64).clamp(0.0, last);
            if weight != 0.0 && !(exclude_outside && clamped != near as f64) {
                sum += weight;
                self.taps.push((clamped as usize, weight));
            }
        }
        if (exclude_outside || reach.normalise) && sum != 0.0 {
            self.taps[begin..].iter_mut().for_each(|(_, weight)| *weight /= sum);
        }
    }

    /// Elements of the resized axis.
    pub fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// The taps of one element.
    pub fn at(&self, index: usize) -> impl Iterator<Item = (usize, f64)> {
        self.taps[self.starts[index]..self.starts[index + 1]].iter().copied()
    }

    /// The taps of each element.
    pub fn iter(&self) -> impl Iterator<Item = impl Iterator<Item = (usize, f64)>> {
        self.starts.windows(2).map(|ends| self.taps[ends[0]..ends[1]].iter().copied())
    }

    /// The only tap of each element, for taps that pick elements.
    pub fn firsts(&self) -> impl Iterator<Item = usize> {
        self.taps.iter().map(|(at, _)| *at)
    }

    /// Whether some element's place lies outside of the tensor.
    pub fn leaves_tensor(&self) -> bool {
        !self.outside.is_empty()
    }

    /// Whether an element's place lies outside of the tensor.
    pub fn is_outside(&self, index: usize) -> bool {
        self.outside.get(index).copied().unwrap_or(false)
    }
}

/// How far a filter reaches.
struct Reach {
    /// The distance from which on weights are zero.
    radius: f64,
    /// By what distances are multiplied.
    squeeze: f64,
    /// The weights do not add up to 1 by themselves.
    normalise: bool,
}

impl Reach {
    fn of(request: &Request, axis: &AxisRequest) -> Self {
        let radius = if matches!(request.filter, Filter::Cubic(_)) { 2.0 } else { 1.0 };
        let squeeze = if request.antialias && !request.is_nearest() { axis.scale.min(1.0) } else { 1.0 };
        Self { radius: radius / squeeze, squeeze, normalise: squeeze != 1.0 }
    }

    fn weight(&self, filter: Filter, distance: f64) -> f64 {
        let x = (distance * self.squeeze).abs();
        match filter {
            Filter::Cubic(a) if x <= 1.0 => ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0,
            Filter::Cubic(a) if x < 2.0 => ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a,
            Filter::Cubic(_) => 0.0,
            _ => (1.0 - x).max(0.0),
        }
    }
}

/// The place in the tensor of an element of the resized axis, in the precision of `F`.
fn place<F: Float>(transform: Transform, axis: &AxisRequest, index: usize) -> F {
    let number = |value: f64| F::from_f64(value);
    let (x, half, one) = (number(index as f64), number(0.5), F::ONE);
    let (input, output, scale) = (number(axis.input as f64), number(axis.output as f64), number(axis.scale));
    // What the scale asks for, which need not be a whole number.
    let wanted = scale * input;
    match transform {
        Transform::HalfPixel => (x + half) / scale - half,
        Transform::PytorchHalfPixel if axis.output > 1 => (x + half) / scale - half,
        Transform::PytorchHalfPixel => F::ZERO,
        Transform::HalfPixelSymmetric => {
            let offset = input * half * (one - output / wanted);
            offset + (x + half) / scale - half
        }
        Transform::AlignCorners if wanted == one || axis.output == 1 => F::ZERO,
        Transform::AlignCorners => x * (input - one) / (wanted - one),
        Transform::Asymmetric => x / scale,
        Transform::TfHalfPixelForNn => (x + half) / scale,
        Transform::TfCropAndResize => {
            let [start, end] = axis.roi.map(number);
            if axis.output > 1 {
                start * (input - one) + x * (end - start) * (input - one) / (output - one)
            } else {
                half * (start + end) * (input - one)
            }
        }
    }
}

/// The element nearest to a place.
fn nearest(mode: Nearest, scale: f64, place: f64) -> f64 {
    match mode {
        Nearest::RoundPreferFloor => (place - 0.5).ceil(),
        Nearest::RoundPreferCeil => (place + 0.5).floor(),
        Nearest::Ceil => place.ceil(),
        Nearest::Simple if scale < 1.0 => place.ceil(),
        Nearest::Floor | Nearest::Simple => place.floor(),
    }
}
