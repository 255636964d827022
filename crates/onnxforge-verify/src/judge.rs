//! Rounding told from error, by float64 runs.

use std::collections::BTreeMap;

use super::Verdict;
use super::compare::{compare_numbers, numbers, parts, shapes, tensors, unequal, unit};
use onnxforge_ops::Value;

/// How much further from the float64 run than the first result the second may be.
const SLACK: f64 = 4.0;
/// Units in the last place, at the scale of a result, that count as rounding in any case.
pub const FEW: f64 = 4.0;
/// A difference of float64 runs, as a share of the scale, that no 32-bit weight can explain.
const SAME_IN_WIDE: f64 = 1e-9;
/// How much further it may be where both agree in 64 bits: what another order of summing can explain.
const REORDERED: f64 = 64.0;

/// Units in the last place up to which other results of a run excuse an output.
const MOST_LEVEL: f64 = 128.0;
/// The share of elements that a step may throw to its other side.
const STEPS: f64 = 1e-3;
/// Units in the last place by which float64 runs may differ where weights were rounded.
const WEIGHTS: f64 = 64.0;

/// What float64 runs say of results behind operators that make steps (Round, QuantizeLinear, TopK, a comparison): rounding in front of a step
/// becomes the whole step. Where the models agree in 64 bits at all but a few elements, that is what happened.
fn behind_steps(result: &Value, wide: [&Value; 2]) -> Verdict {
    // What has another size in 64 bits says nothing of what was chosen here.
    if wide.iter().any(|wide| shapes(result) != shapes(wide)) {
        return Verdict::Different;
    }
    let Some(apart) = apart(wide, unit(result)) else { return Verdict::Different };
    let count = apart.iter().filter(|&&apart| apart).count();
    let few = count as f64 <= STEPS * apart.len() as f64;
    if few { Verdict::Rounding } else { Verdict::Different }
}

/// Whether elements of two values are further apart than rounding of weights explains, each.
fn apart([a, b]: [&Value; 2], unit: Option<f64>) -> Option<Vec<bool>> {
    let Some(unit) = unit else {
        let pairs = tensors(a).into_iter().zip(tensors(b));
        let apart: Option<Vec<Vec<bool>>> = pairs.map(|(a, b)| unequal(a, b)).collect();
        return Some(apart?.concat());
    };
    let (a, b) = (numbers(a)?, numbers(b)?);
    let scale = a.iter().filter(|x| x.is_finite()).fold(0.0f64, |scale, x| scale.max(x.abs()));
    let same = |x: f64, y: f64| x == y || x.is_nan() && y.is_nan() || (x - y).abs() <= WEIGHTS * unit * scale;
    Some(a.iter().zip(&b).map(|(&x, &y)| !same(x, y)).collect())
}

/// Elements of tensors behind steps that are excused, over several runs.
#[derive(Debug, Default)]
pub struct Excused {
    /// How many there are at each index along each axis.
    along: BTreeMap<(usize, usize), usize>,
}

impl Excused {
    /// Adds the elements of a run at which both the results and the float64 runs differ.
    pub fn add(&mut self, results: [&Value; 2], wide: [&Value; 2]) {
        let (Value::Tensor(tensor), true) = (results[0], shapes(results[0]) == shapes(wide[0])) else {
            return;
        };
        let of = |values: [&Value; 2]| apart(values, unit(results[0])).unwrap_or_default();
        let both = of(results).into_iter().zip(of(wide)).map(|(here, wide)| here && wide);
        for (place, _) in both.enumerate().filter(|(_, apart)| *apart) {
            let mut rest = place;
            for (axis, &dim) in tensor.shape().iter().enumerate().rev() {
                *self.along.entry((axis, rest % dim.max(1))).or_default() += 1;
                rest /= dim.max(1);
            }
        }
    }

    /// Whether results of these shapes differ in most elements at one index of an axis: steps are taken here and there, but a wrong column is always wrong.
    pub fn are_in_line<'a>(&self, shapes: impl Iterator<Item = &'a [usize]> + Clone) -> bool {
        self.along.iter().any(|(&(axis, index), &count)| {
            let elements = |shape: &[usize]| match shape.get(axis) {
                Some(&dim) if index < dim => shape.iter().product::<usize>() / dim,
                _ => 0,
            };
            count > 1 && 2 * count > shapes.clone().map(elements).sum::<usize>()
        })
    }
}

/// What is said of a result: by what was judged, where other results of the run are this far from their float64 run; and behind steps by
/// the float64 runs alone.
pub fn said(judged: Option<&Judged>, level: f64, behind: Option<(&Value, [&Value; 2])>) -> Verdict {
    let verdict =
        judged.map_or(Verdict::Different, |judged| judged.verdict(FEW, level).max(judged.by_size(level)));
    match behind {
        Some((result, wide)) if verdict == Verdict::Different => behind_steps(result, wide),
        _ => verdict,
    }
}

/// What the float64 runs say of two results.
#[derive(Debug)]
pub struct Judged {
    /// How far the first result is from the float64 run of its model, as a share of the scale.
    pub first: f64,
    /// How far the second is from that same run.
    pub second: f64,
    /// The same for each part of the value.
    parts: Vec<Part>,
    /// The share of the scale that one unit in the last place of the type is.
    unit: f64,
}

/// What the float64 runs say of numbers that have one scale.
#[derive(Debug)]
struct Part {
    first: f64,
    second: f64,
    /// How far the float64 runs are apart.
    apart: f64,
    /// Where they are not the same: numbers of one size together, each time how far the first result and the other float64 run are
    /// from the float64 run of the first model.
    by_size: Vec<[f64; 2]>,
    /// The results differ where a float64 run has no finite number.
    is_blind: bool,
}

impl Judged {
    /// `None` where there is nothing to judge: results that are no floats, or that have another shape in 64 bits.
    pub fn of([first, second]: [&Value; 2], [wide, other_wide]: [&Value; 2]) -> Option<Self> {
        let values = [first, second, wide, other_wide];
        if values.into_iter().any(|value| shapes(value) != shapes(first)) {
            return None;
        }
        let unit = unit(first)?;
        let [first, second, wide, other] = values.map(parts);
        let (first, second) = (first?.into_iter(), second?.into_iter());
        let runs = first.zip(second).zip(wide?.into_iter().zip(other?));
        let judged =
            runs.map(|((first, second), (wide, other))| Part::of([first, second, wide, other], unit));
        let parts = judged.collect::<Option<Vec<Part>>>()?;
        let most = |of: fn(&Part) -> f64| parts.iter().map(of).fold(0.0, f64::max);
        Some(Self { first: most(|part| part.first), second: most(|part| part.second), parts, unit })
    }

    /// How much of the level of other results excuses an output.
    pub fn excused(&self, level: f64) -> f64 {
        level.min(MOST_LEVEL * self.unit)
    }

    /// What is said, where so many units in the last place count as rounding in any case. `level` is how far other results of the
    /// same run are from their float64 run: a single one may be closer by luck.
    pub fn verdict(&self, few: f64, level: f64) -> Verdict {
        let parts = self.parts.iter().map(|part| part.verdict(few, level, self.unit));
        parts.max().unwrap_or(Verdict::Rounding)
    }

    /// Why a result of this name is undetermined.
    pub fn why(&self, name: &str) -> String {
        if self.parts.iter().any(|part| part.is_blind) {
            return format!("where {name} differs, a float64 run has no finite number");
        }
        let noise = self.parts.iter().flat_map(|part| &part.by_size).map(|[first, _]| *first);
        let noise = noise.fold(self.first, f64::max);
        format!("the reference is unreliable: rounding alone moves {name} by {noise:.0e} of its scale")
    }

    /// What is said of the numbers at which the float64 runs are not the same, however small they are beside others: whether what the first result
    /// is off by explains how far the models are apart.
    fn by_size(&self, level: f64) -> Verdict {
        /// From this share of the size on, it is not rounding of weights that sets models apart.
        const MUCH: f64 = 1e-2;
        let weights = if self.unit > 1e-4 { FEW } else { WEIGHTS } * self.unit;
        let said = |&[first, apart]: &[f64; 2]| {
            if apart > first.max(level) * SLACK + weights {
                Verdict::Different
            } else if first > self.unit.sqrt() && apart > MUCH {
                Verdict::Undetermined
            } else {
                Verdict::Rounding
            }
        };
        self.parts.iter().flat_map(|part| &part.by_size).map(said).max().unwrap_or(Verdict::Rounding)
    }
}

impl Part {
    /// Elements that are no finite numbers in one of the runs say nothing; that both results agree about them is somebody else's affair.
    fn of([first, second, wide, other]: [Vec<f64>; 4], unit: f64) -> Option<Self> {
        let mut runs = [first, second, wide, other];
        let length = runs[0].len();
        if runs.iter().any(|run| run.len() != length) {
            return None;
        }
        let finite: Vec<bool> =
            (0..length).map(|place| runs.iter().all(|run| run[place].is_finite())).collect();
        let mut is_blind = false;
        if finite.contains(&false) {
            let [first, second, ..] = &runs;
            let differ = |(x, y): (&f64, &f64)| (x - y).abs() > FEW * unit * x.abs().max(y.abs());
            is_blind = first.iter().zip(second).zip(&finite).any(|(pair, finite)| !finite && differ(pair));
            for run in &mut runs {
                let mut kept = finite.iter();
                run.retain(|_| kept.next() == Some(&true));
            }
        }
        let [first, second, wide, other] = runs;
        let apart = |other: &[f64]| compare_numbers(&wide, other).ok().map(|difference| difference.max_rel);
        let by_size = by_size(&first, &wide, &other);
        Some(Self {
            first: apart(&first)?,
            second: apart(&second)?,
            apart: apart(&other)?,
            by_size,
            is_blind,
        })
    }

    fn verdict(&self, few: f64, level: f64, unit: f64) -> Verdict {
        let first = self.first.max(level);
        let no_further = self.second <= first * SLACK + few * unit;
        let reordered = self.apart <= SAME_IN_WIDE && self.second <= (first + unit) * REORDERED;
        // Where half of the digits of the first result are noise and the models do not agree in 64 bits either, being as far off says nothing.
        let is_noise = self.first > unit.sqrt() && self.apart > WEIGHTS * unit;
        match no_further || reordered {
            true if is_noise || self.is_blind => Verdict::Undetermined,
            true => Verdict::Rounding,
            false => Verdict::Different,
        }
    }
}

/// Of the numbers at which float64 runs are not the same, those of one size together: how far the first result and the other run are from the
/// first run, as shares of the largest of them.
fn by_size(first: &[f64], wide: &[f64], other: &[f64]) -> Vec<[f64; 2]> {
    /// What rounding in 64 bits may do to a number by itself.
    const SAME: f64 = 1e-12;
    /// How much smaller than numbers in front of it a result may be where they nearly cancel.
    const CANCELLED: f64 = 1e6;
    /// Numbers of one size are no further apart than this.
    const SPAN: f64 = 1e3;
    /// There are at least so many of them, or one in so many; fewer go with the next larger ones.
    const FEWEST: usize = 16;
    const ONE_IN: usize = 100;
    let size = |place: &usize| wide[*place].abs().max(other[*place].abs());
    let apart = |place: usize| (wide[place] - other[place]).abs();
    let mut places: Vec<usize> = (0..wide.len()).filter(|place| apart(*place) > SAME * size(place)).collect();
    let largest = wide.iter().fold(0.0f64, |largest, x| largest.max(x.abs()));
    let largest_apart = places.iter().map(size).fold(0.0, f64::max);
    let noise = REORDERED * f64::EPSILON * largest.min(CANCELLED * largest_apart);
    places.retain(|&place| apart(place) > noise);
    places.sort_by(|a, b| size(b).total_cmp(&size(a)));
    let fewest = FEWEST.max(places.len() / ONE_IN);
    let (mut found, mut rest) = (Vec::new(), places.as_slice());
    while let Some(scale) = rest.first().map(size) {
        let similar = rest.partition_point(|place| size(place) * SPAN >= scale);
        // What is left of too few goes with these.
        let next = rest.get(similar).map_or(0.0, size);
        let is_enough = rest.len() - similar >= fewest
            && rest[similar..].partition_point(|place| size(place) * SPAN >= next) >= fewest;
        let (these, others) = rest.split_at(if is_enough { similar } else { rest.len() });
        let furthest = |of: &dyn Fn(usize) -> f64| these.iter().map(|&place| of(place)).fold(0.0, f64::max);
        let off = furthest(&|place| (first[place] - wide[place]).abs());
        found.push([off / scale, furthest(&apart) / scale]);
        rest = others;
    }
    found
}
