//! Rounding told from error, by float64 runs.

use super::Verdict;
use super::compare::{compare_numbers, numbers, shapes, unit};
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
fn behind_steps(result: &Value, [wide, other]: [&Value; 2]) -> Verdict {
    let (Some(a), Some(b)) = (numbers(wide), numbers(other)) else { return Verdict::Different };
    // What has another size in 64 bits says nothing of what was chosen here.
    if shapes(result) != shapes(wide) || shapes(result) != shapes(other) {
        return Verdict::Different;
    }
    let unit = unit(result).unwrap_or(0.0);
    let scale = a.iter().filter(|x| x.is_finite()).fold(0.0f64, |scale, x| scale.max(x.abs()));
    let same = |x: f64, y: f64| x == y || x.is_nan() && y.is_nan() || (x - y).abs() <= WEIGHTS * unit * scale;
    let apart = a.iter().zip(&b).filter(|&(&x, &y)| !same(x, y)).count();
    let few = apart as f64 <= STEPS * a.len() as f64;
    if few { Verdict::Rounding } else { Verdict::Different }
}

/// What is said of a result: by what was judged, where other results of the run are this far from their float64 runs; and behind steps by
/// the float64 runs alone.
pub fn said(judged: Option<&Judged>, level: f64, behind: Option<(&Value, [&Value; 2])>) -> Verdict {
    let verdict = judged.map_or(Verdict::Different, |judged| judged.verdict(FEW, level));
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
    /// How far the float64 runs are apart.
    apart: f64,
    /// The share of the scale that one unit in the last place of the type is.
    unit: f64,
}

impl Judged {
    /// `None` where there is nothing to judge: results that are no floats, or that have another shape in 64 bits. Elements that
    /// are no finite numbers in one of the runs say nothing; that both results agree about them is somebody else's affair.
    pub fn of([first, second]: [&Value; 2], [wide, other_wide]: [&Value; 2]) -> Option<Self> {
        let shape = shapes(first);
        if [second, wide, other_wide].into_iter().any(|value| shapes(value) != shape) {
            return None;
        }
        let unit = unit(first)?;
        let [mut first, mut second, mut wide, mut other] =
            [numbers(first)?, numbers(second)?, numbers(wide)?, numbers(other_wide)?];
        let runs = [&first, &second, &wide, &other];
        let finite: Vec<bool> = (0..wide.len())
            .map(|place| runs.iter().all(|run| run.get(place).is_some_and(|x| x.is_finite())))
            .collect();
        if finite.contains(&false) {
            for run in [&mut first, &mut second, &mut wide, &mut other] {
                let mut place = 0;
                run.retain(|_| {
                    place += 1;
                    finite.get(place - 1) == Some(&true)
                });
            }
        }
        let apart = |other: &[f64]| compare_numbers(&wide, other).ok().map(|difference| difference.max_rel);
        Some(Self { first: apart(&first)?, second: apart(&second)?, apart: apart(&other)?, unit })
    }

    /// How much of the level of other results excuses an output.
    pub fn excused(&self, level: f64) -> f64 {
        level.min(MOST_LEVEL * self.unit)
    }

    /// What is said, where so many units in the last place count as rounding in any case. `level` is how far other results of the
    /// same run are from their float64 run: a single one may be closer by luck.
    pub fn verdict(&self, few: f64, level: f64) -> Verdict {
        let first = self.first.max(level);
        let no_further = self.second <= first * SLACK + few * self.unit;
        let reordered = self.apart <= SAME_IN_WIDE && self.second <= (first + self.unit) * REORDERED;
        // Where half of the digits of the first result are noise and the models do not agree in 64 bits either, being as far off says nothing.
        let is_noise = self.first > self.unit.sqrt() && self.apart > WEIGHTS * self.unit;
        match no_further || reordered {
            true if is_noise => Verdict::Undetermined,
            true => Verdict::Rounding,
            false => Verdict::Different,
        }
    }
}
