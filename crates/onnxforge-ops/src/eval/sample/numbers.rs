//! The numbers that synthetic inputs consist of.

use onnxforge_ir::DType;
use onnxforge_proto::random::Random;

/// Which numbers are generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flavour {
    /// Normally distributed ones; integers are 0 and 1.
    Normal,
    /// Zeros of both signs.
    Zeros,
    /// Negative ones; integers of both signs.
    Negative,
    /// Close to 0, where what is added to keep divisors from 0 shows.
    Small,
    /// Far from 1, and far from the largest of the type.
    Large,
    /// Closer to 0 than normal numbers are.
    Denormal,
    /// NaN and infinities among others.
    NotFinite,
}

impl Flavour {
    /// A float of this flavour, in a tensor of this type.
    pub(super) fn float(self, random: &mut Random, index: usize, dtype: DType) -> f64 {
        let normal = random.normal();
        let narrow = dtype.bits() <= 16 && dtype != DType::BF16;
        match self {
            Self::Normal => normal,
            Self::Zeros => [0.0, -0.0][index % 2],
            Self::Negative => -normal.abs(),
            Self::Small => normal * 1e-3,
            Self::Large => normal * if narrow { 64.0 } else { 1e6 },
            Self::Denormal if narrow => normal * 1e-6,
            Self::Denormal => normal * if dtype == DType::F64 { 1e-310 } else { 1e-40 },
            Self::NotFinite => match index % 5 {
                1 => f64::NAN,
                2 => f64::INFINITY,
                4 => f64::NEG_INFINITY,
                _ => normal,
            },
        }
    }

    /// An integer of this flavour: one of `range` where it selects, from the end as well where that is asked for.
    pub(super) fn integer(self, random: &mut Random, index: usize, range: Option<u64>) -> i64 {
        match (self, range) {
            (Self::Negative, Some(range)) if random.below(2) == 0 => -1 - random.below(range) as i64,
            (_, Some(range)) => random.below(range) as i64,
            (Self::Zeros, None) => 0,
            (Self::Negative, None) => random.below(9) as i64 - 4,
            (Self::Large, None) => random.bits() as i64,
            (_, None) => i64::from(index == 0 || random.below(4) > 0),
        }
    }
}

/// An integer that is neither an index nor a mask: often 0 or 1, so that two of them are equal now and then.
pub(super) fn wide(random: &mut Random, is_signed: bool) -> i64 {
    if random.below(2) == 0 {
        return i64::from(random.below(4) > 0);
    }
    let size = random.below(16) as i64;
    if is_signed && random.below(4) == 0 { -size } else { size }
}

/// One of these numbers.
pub(super) fn chosen(numbers: impl Iterator<Item = f64> + Clone, random: &mut Random) -> Option<f64> {
    let count = numbers.clone().count();
    numbers.clone().nth(random.below(count as u64) as usize)
}
