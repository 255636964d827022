//! Windows that slide over an image: the geometry that convolutions and pooling share.
//!
//! [`Sliding`] is what the attributes say. Inference asks it for symbolic output sizes; evaluation fits it to an image and
//! gets a [`Geometry`], which knows where each kernel element meets the image.

mod sliding;

use std::ops::Range;

pub use sliding::{Padding, Sliding, as_sizes, kernel_shape};

use crate::error::{OpError, invalid};

/// One spatial axis of a window that was fitted to an image.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    /// Elements of the image.
    pub input: usize,
    /// Positions of the window.
    pub output: usize,
    /// Elements of the kernel.
    pub kernel: usize,
    /// Distance of neighbouring positions.
    pub stride: usize,
    /// Distance of neighbouring kernel elements.
    pub dilation: usize,
    /// Padding before the image.
    pub pad: usize,
    /// Padding after the image.
    pub pad_end: usize,
}

impl Axis {
    /// The kernel elements that lie inside the image when the window stands at `position`.
    pub fn kernel_inside(&self, position: usize) -> Range<usize> {
        let start = position * self.stride;
        let first = self.pad.saturating_sub(start).div_ceil(self.dilation);
        let end = (self.input + self.pad).saturating_sub(start).div_ceil(self.dilation);
        let end = end.min(self.kernel);
        first.min(end)..end
    }

    /// The positions among `within` where kernel element `k` lies inside the image.
    fn positions_inside(&self, k: usize, within: &Range<usize>) -> Range<usize> {
        let shift = k * self.dilation;
        let first = self.pad.saturating_sub(shift).div_ceil(self.stride).max(within.start);
        let end = (self.input + self.pad).saturating_sub(shift).div_ceil(self.stride).min(within.end);
        first.min(end)..end
    }

    /// How many kernel elements lie inside the padded image when the window stands at `position`.
    pub fn kernel_inside_padded(&self, position: usize) -> usize {
        let room = (self.input + self.pad + self.pad_end).saturating_sub(position * self.stride);
        room.div_ceil(self.dilation).min(self.kernel)
    }
}

/// A stretch of positions, in one row, at which one kernel element lies inside the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The kernel element, row-major.
    pub kernel: usize,
    /// The positions, row-major.
    pub positions: Range<usize>,
    /// The element of the image under the first of them, row-major.
    pub input: usize,
    /// The distance between the elements under neighbouring positions.
    pub step: usize,
}

/// A window that was fitted to an image. The positions of the window form rows along the last axis.
#[derive(Clone, Debug)]
pub struct Geometry {
    axes: Vec<Axis>,
    /// Rows per step along each axis but the last.
    row_strides: Vec<usize>,
    input: usize,
    output: usize,
    kernel: usize,
}

impl Geometry {
    /// The window with these axes, of which there must be at least one.
    pub fn new(axes: Vec<Axis>) -> Result<Self, OpError> {
        let count = |size: fn(&Axis) -> usize| {
            let count = axes.iter().try_fold(1usize, |count, axis| count.checked_mul(size(axis)));
            count.ok_or(OpError::TooLarge { needed: u64::MAX, left: 0 })
        };
        let (input, output, kernel) =
            (count(|axis| axis.input)?, count(|axis| axis.output)?, count(|axis| axis.kernel)?);
        let outer: Vec<usize> = axes.iter().rev().skip(1).rev().map(|axis| axis.output).collect();
        if axes.is_empty() {
            return invalid("a window without axes");
        }
        Ok(Self { axes, row_strides: super::shape::strides(&outer), input, output, kernel })
    }

    /// The axes.
    pub fn axes(&self) -> &[Axis] {
        &self.axes
    }

    /// The shape that the positions of the window form.
    pub fn output_shape(&self) -> impl Iterator<Item = usize> {
        self.axes.iter().map(|axis| axis.output)
    }

    /// Elements of the image.
    pub fn input_len(&self) -> usize {
        self.input
    }

    /// Positions of the window.
    pub fn output_len(&self) -> usize {
        self.output
    }

    /// Elements of the kernel.
    pub fn kernel_len(&self) -> usize {
        self.kernel
    }

    /// Positions in a row.
    pub fn row_len(&self) -> usize {
        self.axes.last().map_or(1, |axis| axis.output)
    }

    /// Whether positions and elements of the image are the same.
    pub fn is_pointwise(&self) -> bool {
        self.kernel == 1 && self.axes.iter().all(|axis| axis.stride == 1 && axis.output == axis.input)
    }

    /// Every kernel element that meets the image at some of the positions `range`, row by row.
    pub fn for_each_run(&self, range: Range<usize>, visit: &mut impl FnMut(Run)) {
        let row_len = self.row_len();
        if self.input == 0 || range.is_empty() {
            return;
        }
        for row in range.start / row_len..range.end.div_ceil(row_len) {
            let first = row * row_len;
            let clip = range.start.max(first) - first..range.end.min(first + row_len) - first;
            self.runs_from(0, row, &clip, 0, 0, &mut |run| {
                let positions = first + run.positions.start..first + run.positions.end;
                visit(Run { positions, ..run });
            });
        }
    }

    /// The runs of row `row`, with positions counted along the row.
    pub fn row_runs(&self, row: usize) -> Vec<Run> {
        let mut runs = Vec::new();
        if self.input > 0 && self.output > 0 {
            self.runs_from(0, row, &(0..self.row_len()), 0, 0, &mut |run| runs.push(run));
        }
        runs
    }

    /// The runs of the axes from `depth` on, where `kernel` and `input` are the indices along the axes before.
    fn runs_from(
        &self,
        depth: usize,
        row: usize,
        clip: &Range<usize>,
        kernel: usize,
        input: usize,
        visit: &mut impl FnMut(Run),
    ) {
        let axis = &self.axes[depth];
        if depth + 1 < self.axes.len() {
            let position = row / self.row_strides[depth] % axis.output;
            for k in axis.kernel_inside(position) {
                let at = position * axis.stride + k * axis.dilation - axis.pad;
                let (kernel, input) = (kernel * axis.kernel + k, input * axis.input + at);
                self.runs_from(depth + 1, row, clip, kernel, input, visit);
            }
            return;
        }
        // The window moves forward, so its part inside the image moves backward.
        let elements = axis.kernel_inside(clip.end - 1).start..axis.kernel_inside(clip.start).end;
        let mut run = |k: usize, positions: Range<usize>| {
            let at = positions.start * axis.stride + k * axis.dilation - axis.pad;
            let (kernel, input) = (kernel * axis.kernel + k, input * axis.input + at);
            visit(Run { kernel, positions, input, step: axis.stride });
        };
        if elements.len() <= clip.len().saturating_mul(axis.input) {
            for k in elements {
                let positions = axis.positions_inside(k, clip);
                if !positions.is_empty() {
                    run(k, positions);
                }
            }
        } else {
            // Most elements of a kernel that is much larger than the image meet it nowhere.
            for position in clip.clone() {
                axis.kernel_inside(position).for_each(|k| run(k, position..position + 1));
            }
        }
    }
}

/// Combines each of `out` with the element of the image under it, for elements that lie `step` apart in `image`.
pub fn combine<T: Copy, U>(out: &mut [U], image: &[T], step: usize, mut f: impl FnMut(&mut U, T)) {
    if step == 1 {
        out.iter_mut().zip(image).for_each(|(out, &value)| f(out, value));
    } else {
        out.iter_mut().zip(image.iter().step_by(step)).for_each(|(out, &value)| f(out, value));
    }
}

#[cfg(test)]
mod tests {
    use super::sliding::MAX_EXTENT;
    use super::*;
    use onnxforge_ir::dim::{Dim, Symbols};

    fn sliding(stride: usize, dilation: usize, pads: [usize; 2], ceil: bool) -> Sliding {
        let padding = Padding::Explicit(vec![pads]);
        Sliding { strides: vec![stride], dilations: vec![dilation], padding, ceil }
    }

    /// Every window one element at a time: (position, kernel element, image element).
    fn slow(axis: &Axis) -> Vec<(usize, usize, usize)> {
        let mut found = Vec::new();
        for position in 0..axis.output {
            for k in 0..axis.kernel {
                let at = position * axis.stride + k * axis.dilation;
                if at >= axis.pad && at < axis.pad + axis.input {
                    found.push((position, k, at - axis.pad));
                }
            }
        }
        found
    }

    #[test]
    fn runs_meet_the_image_where_the_definition_says() {
        for (input, kernel, stride, dilation) in
            [(7, 3, 2, 1), (5, 2, 1, 3), (1, 4, 1, 1), (9, 1, 4, 1), (6, 3, 3, 2), (2, 9, 5, 1)]
        {
            for pads in [[0, 0], [1, 0], [2, 3], [9, 9]] {
                for ceil in [false, true] {
                    let Ok(geometry) = sliding(stride, dilation, pads, ceil).fit(&[input], &[kernel]) else {
                        continue;
                    };
                    let mut found = Vec::new();
                    for half in
                        [0..geometry.output_len() / 2, geometry.output_len() / 2..geometry.output_len()]
                    {
                        geometry.for_each_run(half, &mut |run| {
                            let first = run.positions.start;
                            found.extend(
                                run.positions.map(|p| (p, run.kernel, run.input + (p - first) * run.step)),
                            );
                        });
                    }
                    found.sort_unstable();
                    assert_eq!(found, slow(&geometry.axes()[0]));
                }
            }
        }
    }

    #[test]
    fn symbolic_sizes_agree_with_numbers() {
        let mut symbols = Symbols::default();
        let n = symbols.named("n");
        for (kernel, stride, dilation) in [(3, 2, 1), (1, 3, 1), (2, 3, 2), (5, 1, 2)] {
            for pads in [[0, 0], [1, 1], [0, 2], [2, 0]] {
                for ceil in [false, true] {
                    let sliding = sliding(stride, dilation, pads, ceil);
                    let dim = sliding.output_dim(0, &n.into(), &Dim::from(kernel), &symbols).unwrap();
                    for input in 0..20 {
                        if let Ok(size) = sliding.output_size(0, input, kernel as usize) {
                            assert_eq!(dim.evaluate(&|_| Some(input as i64)), Some(size as i64));
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn hostile_sizes_neither_overflow_nor_take_forever() {
        let huge = MAX_EXTENT;
        assert!(sliding(1, huge, [0, 0], false).fit(&[1], &[huge]).is_err());
        assert!(sliding(1, 1, [0, 0], false).fit(&[1], &[0]).is_err());
        assert!(sliding(1, 1, [0, 0], true).fit(&[0], &[1]).is_err());
        let geometry = sliding(huge / 4, 1, [huge, huge], false).fit(&[1], &[huge]).unwrap();
        let mut runs = 0;
        geometry.for_each_run(0..geometry.output_len(), &mut |_| runs += 1);
        assert_eq!(runs, 4);
    }
}
