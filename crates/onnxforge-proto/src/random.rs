//! Random numbers that are the same on every machine.

/// How far the state of a generator moves with each call.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A generator (SplitMix64): small, fast, and good enough for weights, test data and random operators.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The generator of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The generator as it is after so many calls of [`bits`](Self::bits).
    pub fn after(&self, calls: u64) -> Self {
        Self(self.0.wrapping_add(STEP.wrapping_mul(calls)))
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `0.0..1.0`.
    pub fn uniform(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A number below `limit`; 0 when `limit` is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(limit)) >> 64) as u64
    }

    /// A normally distributed number, mean 0 and deviation 1: two calls of [`bits`](Self::bits).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_can_be_left_out() {
        let mut random = Random::new(7);
        let later = random.after(6);
        for _ in 0..3 {
            random.normal();
        }
        assert_eq!(random.bits(), later.clone().bits());
    }

    #[test]
    fn numbers_have_their_distribution() {
        let mut random = Random::new(1);
        let count = 100_000;
        let mean = |numbers: &[f64]| numbers.iter().sum::<f64>() / f64::from(count);
        let uniform: Vec<f64> = (0..count).map(|_| random.uniform()).collect();
        assert!(uniform.iter().all(|x| (0.0..1.0).contains(x)));
        assert!((mean(&uniform) - 0.5).abs() < 0.01);
        let normal: Vec<f64> = (0..count).map(|_| random.normal()).collect();
        let squares: Vec<f64> = normal.iter().map(|x| x * x).collect();
        assert!(mean(&normal).abs() < 0.02 && (mean(&squares) - 1.0).abs() < 0.02);
    }
}
