//! Medians, and how sure they are.

use serde::Serialize;

/// How sure an interval is to be, at least.
const SURE: f64 = 0.95;
/// The fewest observations that allow for that: all six are on the same side of the median in 2 of 64 cases.
pub const FEWEST: usize = 6;

/// The median of independent observations, with an interval that contains the median of what they are drawn from in
/// [`confidence`] of all cases, however that is distributed: the k-th smallest and the k-th largest observation, where k is as
/// large as a fair coin allows.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The median.
    pub median: f64,
    /// Where the interval begins.
    pub low: f64,
    /// Where it ends.
    pub high: f64,
}

impl Estimate {
    /// The estimate from [`FEWEST`] observations or more; fewer tell nothing.
    pub fn of(observations: &[f64]) -> Option<Self> {
        let mut sorted = observations.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (rank, _) = interval(sorted.len())?;
        let low = *sorted.get(rank)?;
        let high = *sorted.get(sorted.len() - 1 - rank)?;
        Some(Self { median: median(&sorted), low, high })
    }

    /// The estimate of what this is the logarithm of.
    pub fn exp(self) -> Self {
        Self { median: self.median.exp(), low: self.low.exp(), high: self.high.exp() }
    }
}

/// How sure the intervals of this many observations are.
pub fn confidence(count: usize) -> Option<f64> {
    interval(count).map(|(_, confidence)| confidence)
}

/// How many observations at either end lie outside of the interval, and how sure that is.
fn interval(count: usize) -> Option<(usize, f64)> {
    // The chance that exactly `outside` observations are below the median, and that at most so many are.
    let mut chance = 0.5f64.powi(i32::try_from(count).ok()?);
    let mut below = 0.0;
    let mut found = None;
    for outside in 0..count {
        below += chance;
        let confidence = 1.0 - 2.0 * below;
        if confidence < SURE {
            break;
        }
        found = Some((outside, confidence));
        chance *= (count - outside) as f64 / (outside + 1) as f64;
    }
    found
}

/// The value in the middle; the mean of both where there are two.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match (sorted.get(sorted.len().saturating_sub(1) / 2), sorted.get(sorted.len() / 2)) {
        (Some(lower), Some(upper)) => f64::midpoint(*lower, *upper),
        _ => f64::NAN,
    }
}

/// Logarithms of how many times as long as the second the first takes, round by round.
pub fn ratio(first: &[f64], second: &[f64]) -> Vec<f64> {
    first.iter().zip(second).map(|(first, second)| (first / second).ln()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_values() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn intervals_are_those_of_the_tables() {
        // Observations that lie outside at either end, of tables of the sign test.
        for (count, outside) in [(6, 0), (8, 0), (9, 1), (12, 2), (20, 5), (25, 7), (100, 39)] {
            assert_eq!(interval(count).map(|(outside, _)| outside), Some(outside), "{count}");
        }
        assert_eq!(confidence(6), Some(1.0 - 2.0 / 64.0));
        assert_eq!(confidence(9), Some(1.0 - 20.0 / 512.0));
        assert_eq!(confidence(FEWEST - 1), None);
        assert_eq!(confidence(0), None);
    }

    #[test]
    fn known_samples() {
        let sample = [9.0, 1.0, 8.0, 2.0, 7.0, 3.0, 6.0, 4.0, 5.0];
        assert_eq!(Estimate::of(&sample), Some(Estimate { median: 5.0, low: 2.0, high: 8.0 }));
        assert_eq!(Estimate::of(&sample[..6]), Some(Estimate { median: 5.0, low: 1.0, high: 9.0 }));
        assert_eq!(Estimate::of(&sample[..5]), None);
        let sure = Estimate::of(&[0.0; 6]).map(Estimate::exp);
        assert_eq!(sure, Some(Estimate { median: 1.0, low: 1.0, high: 1.0 }));
    }
}
