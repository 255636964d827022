//! Fourier transforms of any length in O(n log n).

use std::f64::consts::{PI, TAU};

use num_complex::Complex;

/// What a transform of one length needs.
pub struct Fft {
    len: usize,
    /// The roots of unity for transforms of the padded length.
    roots: Vec<Complex<f64>>,
    /// For lengths that are not powers of two.
    chirp: Option<Chirp>,
}

/// A transform as a convolution with a chirp, which powers of two can compute (Bluestein).
struct Chirp {
    /// `exp(-πi k² / len)`.
    factors: Vec<Complex<f64>>,
    /// The transform of the conjugate chirp.
    spectrum: Vec<Complex<f64>>,
}

/// The power of two that a transform of this length is computed with.
fn padded_len(len: usize) -> usize {
    if len.is_power_of_two() {
        len
    } else {
        len.saturating_mul(2).checked_next_power_of_two().unwrap_or(usize::MAX)
    }
}

/// How many complex numbers a transform of this length holds, data included.
pub fn buffer_len(len: usize) -> usize {
    padded_len(len).saturating_mul(4)
}

impl Fft {
    /// The transform of `len` numbers, at least one; [`buffer_len`] tells what memory it takes.
    pub fn new(len: usize) -> Self {
        let padded = padded_len(len);
        let root = |k: usize| Complex::cis(-TAU * k as f64 / padded as f64);
        let roots: Vec<_> = (0..padded / 2).map(root).collect();
        let mut fft = Self { len, roots, chirp: None };
        if padded != len {
            // The square modulo 2·len keeps the angle exact.
            let factor = |k: usize| {
                let square = (k as u128 * k as u128 % (2 * len as u128)) as f64;
                Complex::cis(-PI * square / len as f64)
            };
            let factors: Vec<_> = (0..len).map(factor).collect();
            let mut spectrum = vec![Complex::ZERO; padded];
            for (k, factor) in factors.iter().enumerate() {
                spectrum[k] = factor.conj();
                spectrum[(padded - k) % padded] = factor.conj();
            }
            fft.power_of_two(&mut spectrum);
            fft.chirp = Some(Chirp { factors, spectrum });
        }
        fft
    }

    /// The transform of `data` in place, or the inverse without its factor.
    pub fn transform(&self, data: &mut [Complex<f64>], inverse: bool) {
        let conjugate = |data: &mut [Complex<f64>]| data.iter_mut().for_each(|z| *z = z.conj());
        if inverse {
            conjugate(data);
        }
        match &self.chirp {
            None => self.power_of_two(data),
            Some(chirp) => self.convolve(chirp, data),
        }
        if inverse {
            conjugate(data);
        }
    }

    fn convolve(&self, chirp: &Chirp, data: &mut [Complex<f64>]) {
        let padded = chirp.spectrum.len();
        let mut work = vec![Complex::ZERO; padded];
        for ((work, value), factor) in work.iter_mut().zip(data.iter()).zip(&chirp.factors) {
            *work = value * factor;
        }
        self.power_of_two(&mut work);
        work.iter_mut().zip(&chirp.spectrum).for_each(|(work, factor)| *work = (*work * factor).conj());
        self.power_of_two(&mut work);
        for ((value, work), factor) in data.iter_mut().zip(&work).zip(&chirp.factors).take(self.len) {
            *value = work.conj() * factor / padded as f64;
        }
    }

    /// The transform of a power of two of numbers, for which the roots were made.
    fn power_of_two(&self, data: &mut [Complex<f64>]) {
        let len = data.len();
        let bits = len.trailing_zeros();
        for index in 0..len {
            let mirrored = index.reverse_bits().checked_shr(usize::BITS - bits).unwrap_or(0);
            if index < mirrored {
                data.swap(index, mirrored);
            }
        }
        let mut half = 1;
        while half < len {
            let step = len / (2 * half);
            for block in data.chunks_exact_mut(2 * half) {
                let (low, high) = block.split_at_mut(half);
                for ((low, high), root) in low.iter_mut().zip(high).zip(self.roots.iter().step_by(step)) {
                    let turned = *high * root;
                    *high = *low - turned;
                    *low += turned;
                }
            }
            half *= 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transforms_follow_the_definition() {
        for len in [1usize, 2, 3, 4, 5, 7, 8, 12, 16, 31, 60, 64, 100] {
            let data: Vec<_> =
                (0..len).map(|k| Complex::new((k * 7 % 5) as f64, (k * 3 % 4) as f64 - 1.0)).collect();
            for inverse in [false, true] {
                let sign = if inverse { TAU } else { -TAU };
                let term =
                    |k: usize, n: usize| data[n] * Complex::cis(sign * (k * n % len) as f64 / len as f64);
                let mut found = data.clone();
                Fft::new(len).transform(&mut found, inverse);
                for (k, found) in found.iter().enumerate() {
                    let expected: Complex<f64> = (0..len).map(|n| term(k, n)).sum();
                    assert!((found - expected).norm() < 1e-10 * len as f64, "{len} {inverse} {k}");
                }
            }
        }
    }
}
