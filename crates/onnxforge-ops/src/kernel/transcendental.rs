//! Exponentials and what is made of them. In 32 bits they are polynomials without branches, which compilers turn into
//! vector code, and are right to about two units in the last place; in 64 bits they are those of the standard library.

use super::number::Float;

/// Exponential, hyperbolic tangent, error function and logistic function of whole tensors.
#[allow(missing_docs)]
pub trait Transcendental: Float {
    fn fast_exp(self) -> Self;
    fn fast_tanh(self) -> Self;
    fn fast_erf(self) -> Self;

    /// `1 / (1 + exp(-x))`.
    fn fast_sigmoid(self) -> Self {
        Self::ONE / (Self::ONE + (-self).fast_exp())
    }
}

impl Transcendental for f64 {
    fn fast_exp(self) -> Self {
        self.exp()
    }
    fn fast_tanh(self) -> Self {
        self.tanh()
    }
    fn fast_erf(self) -> Self {
        libm::erf(self)
    }
}

impl Transcendental for f32 {
    #[inline(always)]
    fn fast_exp(self) -> Self {
        exp(self)
    }
    #[inline(always)]
    fn fast_tanh(self) -> Self {
        tanh(self)
    }
    #[inline(always)]
    fn fast_erf(self) -> Self {
        erf(self)
    }
}

/// The polynomial with these coefficients, the constant last.
#[inline(always)]
fn polynomial<const N: usize>(x: f32, coefficients: [f32; N]) -> f32 {
    coefficients.into_iter().fold(0.0, |sum, c| sum * x + c)
}

/// Two to the power of `n`, which must lie between -126 and 127.
#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) as u32) << 23)
}

/// With `x = n·ln 2 + r` it is `2^n · exp(r)`, where `exp(r) = 1 + r + r²·p(r)`.
#[inline(always)]
fn exp(x: f32) -> f32 {
    /// Added to a float below 2^22 it leaves the nearest integer in the low bits.
    const ROUNDER: f32 = 12_582_912.0;
    /// ln 2 in two parts, the first so short that its multiples are exact.
    const LN_2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];
    // Beyond these it is 0 or infinite; not a number stays what it is.
    let x = if x > 89.0 { 89.0 } else { x };
    let x = if x < -104.0 { -104.0 } else { x };
    let shifted = x * std::f32::consts::LOG2_E + ROUNDER;
    let n = (shifted.to_bits() as i32).wrapping_sub(ROUNDER.to_bits() as i32);
    let whole = shifted - ROUNDER;
    let r = (x - whole * LN_2[0]) - whole * LN_2[1];
    let p = polynomial(r, [1.381_446_7e-3, 8.368_78e-3, 4.166_839_4e-2, 0.166_665_2, 0.499_999_93]);
    // Two factors, for results below the normal range.
    let half = n >> 1;
    (r * r * p + r + 1.0) * power_of_two(half) * power_of_two(n.wrapping_sub(half))
}

/// Near 0 it is `x + x³·p(x²)`, elsewhere `1 - 2 / (exp(2·|x|) + 1)` with the sign of `x`.
#[inline(always)]
fn tanh(x: f32) -> f32 {
    let (size, z) = (x.abs(), x * x);
    let p = polynomial(z, [-5.717_044_5e-3, 2.065_058_7e-2, -5.374_35e-2, 0.133_314_91, -0.333_332_84]);
    let near = size + size * (z * p);
    let far = 1.0 - 2.0 / (exp(2.0 * size) + 1.0);
    (if size < 0.625 { near } else { far }).copysign(x)
}

/// Below 1 it is `x·p(x²)`, elsewhere `1 - exp(q(|x|))` with the sign of `x`, which is 1 from 4 on.
#[inline(always)]
fn erf(x: f32) -> f32 {
    let z = x * x;
    let near = x * polynomial(
        z,
        [
            7.853_861e-5,
            -8.010_193_5e-4,
            5.188_327_7e-3,
            -2.685_381_2e-2,
            0.112_835_85,
            -0.376_126_26,
            std::f32::consts::FRAC_2_SQRT_PI,
        ],
    );
    let size = if x.abs() > 4.0 { 4.0 } else { x.abs() };
    let q = polynomial(
        size,
        [
            1.855_740_7e-4,
            -2.939_608e-3,
            2.180_532e-2,
            -0.103_037_37,
            -0.638_225_7,
            -1.127_04,
            -3.537_187_6e-4,
        ],
    );
    let far = (1.0 - exp(q)).copysign(x);
    if size < 1.0 { near } else { far }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The largest error of `f` in units of the last place of the true value, over floats of both signs.
    fn worst(f: fn(f32) -> f32, truth: fn(f64) -> f64, largest: f32) -> f64 {
        let mut worst = 0f64;
        for step in 0..200_000u32 {
            let x = largest * step as f32 / 200_000.0;
            for x in [x, -x, x * 1e-3] {
                let exact = truth(x.into());
                let rounded = exact as f32;
                let unit = f64::from(f32::from_bits(rounded.abs().to_bits() + 1)) - f64::from(rounded.abs());
                worst = worst.max((f64::from(f(x)) - exact).abs() / unit);
            }
        }
        worst
    }

    #[test]
    fn errors_are_a_few_units_in_the_last_place() {
        assert!(worst(exp, f64::exp, 86.0) < 2.0, "{}", worst(exp, f64::exp, 86.0));
        assert!(worst(tanh, f64::tanh, 12.0) < 3.0, "{}", worst(tanh, f64::tanh, 12.0));
        assert!(worst(erf, libm::erf, 5.0) < 3.0, "{}", worst(erf, libm::erf, 5.0));
        let sigmoid = |x: f32| x.fast_sigmoid();
        assert!(worst(sigmoid, |x| 1.0 / (1.0 + (-x).exp()), 80.0) < 3.0);
    }

    #[test]
    fn extremes() {
        assert_eq!((exp(f32::INFINITY), exp(f32::NEG_INFINITY)), (f32::INFINITY, 0.0));
        assert_eq!((exp(0.0), exp(88.8), exp(-110.0)), (1.0, f32::INFINITY, 0.0));
        assert!((exp(-100.0) - (-100f32).exp()).abs() <= 2e-45);
        assert_eq!(
            (tanh(f32::INFINITY), tanh(-1e30), tanh(-0.0).to_bits()),
            (1.0, -1.0, (-0.0f32).to_bits())
        );
        assert_eq!((erf(f32::INFINITY), erf(-5.0), erf(0.0)), (1.0, -1.0, 0.0));
        assert_eq!(((-200f32).fast_sigmoid(), 200f32.fast_sigmoid()), (0.0, 1.0));
        assert!([exp, tanh, erf].iter().all(|f| f(f32::NAN).is_nan()));
    }
}
