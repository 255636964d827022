//! Whether one quantity goes with another.

/// The correlation of pairs: 1 or −1 on a line, about 0 where one tells nothing of the other. Nothing for fewer than three pairs, or where
/// one of both is the same throughout.
pub fn pearson(pairs: &[(f64, f64)]) -> Option<f64> {
    let (_, _, spread_x, spread_y, both) = moments(pairs);
    let spread = (spread_x * spread_y).sqrt();
    (pairs.len() >= 3 && spread > 0.0).then(|| both / spread)
}

/// The same of ranks: 1 or −1 where one grows or falls with the other, along whatever curve.
pub fn spearman(pairs: &[(f64, f64)]) -> Option<f64> {
    let (x, y): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
    pearson(&ranks(&x).into_iter().zip(ranks(&y)).collect::<Vec<_>>())
}

/// The line that is closest to the pairs: where it begins, and how steep it is.
pub fn regression(pairs: &[(f64, f64)]) -> Option<(f64, f64)> {
    let (x, y, spread, _, both) = moments(pairs);
    (pairs.len() >= 3 && spread > 0.0).then(|| (y - both / spread * x, both / spread))
}

/// Means, sums of squares of deviations from them, and the sum of their products.
fn moments(pairs: &[(f64, f64)]) -> (f64, f64, f64, f64, f64) {
    let count = pairs.len() as f64;
    let x = pairs.iter().map(|pair| pair.0).sum::<f64>() / count;
    let y = pairs.iter().map(|pair| pair.1).sum::<f64>() / count;
    let sum = |of: &dyn Fn(f64, f64) -> f64| pairs.iter().map(|pair| of(pair.0 - x, pair.1 - y)).sum::<f64>();
    (x, y, sum(&|x, _| x * x), sum(&|_, y| y * y), sum(&|x, y| x * y))
}

/// The place of each value among all; equal ones share the mean of theirs.
fn ranks(values: &[f64]) -> Vec<f64> {
    let rank = |value: &f64| {
        let smaller = values.iter().filter(|other| *other < value).count();
        let equal = values.iter().filter(|other| *other == value).count();
        smaller as f64 + (equal + 1) as f64 / 2.0
    };
    values.iter().map(rank).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_samples() {
        let line = [(1.0, 5.0), (2.0, 7.0), (3.0, 9.0)];
        assert!((pearson(&line).unwrap() - 1.0).abs() < 1e-12);
        let (start, slope) = regression(&line).unwrap();
        assert!((start - 3.0).abs() < 1e-12 && (slope - 2.0).abs() < 1e-12);
        let curve = [(1.0, 1.0), (2.0, 0.5), (3.0, 0.1), (4.0, 0.01)];
        assert!((spearman(&curve).unwrap() + 1.0).abs() < 1e-12);
        assert!(pearson(&curve).unwrap() > -0.99);
        // Anscombe's first set.
        let x = [10.0, 8.0, 13.0, 9.0, 11.0, 14.0, 6.0, 4.0, 12.0, 7.0, 5.0];
        let y = [8.04, 6.95, 7.58, 8.81, 8.33, 9.96, 7.24, 4.26, 10.84, 4.82, 5.68];
        let pairs: Vec<(f64, f64)> = x.into_iter().zip(y).collect();
        assert!((pearson(&pairs).unwrap() - 0.816_42).abs() < 1e-4);
        assert!((spearman(&pairs).unwrap() - 0.818_18).abs() < 1e-4);
        let (start, slope) = regression(&pairs).unwrap();
        assert!((start - 3.0).abs() < 1e-2 && (slope - 0.5).abs() < 1e-3);
    }

    #[test]
    fn what_does_not_vary_is_not_correlated() {
        assert_eq!(pearson(&[(1.0, 2.0), (2.0, 1.0)]), None);
        assert_eq!(pearson(&[(1.0, 2.0), (1.0, 3.0), (1.0, 4.0)]), None);
        assert_eq!(ranks(&[3.0, 1.0, 3.0]), [2.5, 1.0, 2.5]);
    }
}
