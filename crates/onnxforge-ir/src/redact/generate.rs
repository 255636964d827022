//! Elements after a recipe, made on the way to the disk.

use std::io::{self, Write};

use half::{bf16, f16};

use super::recipe::Recipe;
use crate::DType;
use crate::dtype::Kind;
use onnxforge_proto::blob::Stream;
use onnxforge_proto::random::Random;

/// Makes the elements of one tensor, the same ones each time.
#[derive(Debug)]
pub struct Generator {
    recipe: Recipe,
    /// The elements of a choice, and for each the share of all elements that come up to it.
    choices: Vec<(Vec<u8>, f64)>,
    /// The finite numbers of a small float type in ascending order, with their codes.
    codes: Vec<(f32, u8)>,
    dtype: DType,
    count: usize,
    seed: u64,
}

/// Normal with mean 0 and deviation 1: the sum of twelve uniform numbers of 16 bits, less its mean. Far cheaper than the
/// exact distribution, and weights come by the gigabyte.
fn normal(random: &mut Random) -> f64 {
    let lanes = |word: u64| (word & 0xffff) + (word >> 16 & 0xffff) + (word >> 32 & 0xffff) + (word >> 48);
    let sum = lanes(random.bits()) + lanes(random.bits()) + lanes(random.bits());
    (sum as f64 - 12.0 * 32767.5) / 65536.0
}

impl Generator {
    /// A generator of `count` elements; `index` tells tensors of one model apart.
    pub fn new(recipe: Recipe, dtype: DType, count: usize, seed: u64, index: u64) -> Result<Self, String> {
        if dtype == DType::String || dtype.byte_len(count).is_none() {
            return Err(format!("{dtype} of {count} elements cannot be made"));
        }
        let choices = match &recipe {
            Recipe::Choice { values, counts } => choices(values, counts, dtype)?,
            _ => Vec::new(),
        };
        let codes =
            if dtype.kind() == Kind::Float && dtype.bits() <= 8 { finite_codes(dtype) } else { Vec::new() };
        let seed = Random::new(seed ^ Random::new(index).bits()).bits();
        Ok(Self { recipe, choices, codes, dtype, count, seed })
    }

    fn number(&self, random: &mut Random, index: usize) -> f64 {
        match &self.recipe {
            Recipe::Normal { mean, std, min, max } => {
                (mean + std * normal(random)).clamp(*min, max.max(*min))
            }
            Recipe::Uniform { min, max } => {
                let span = (*max as f64 - *min as f64 + 1.0).max(1.0);
                (*min as f64 + (random.uniform() * span).floor()).min(*max as f64)
            }
            Recipe::Range { start, step } => start.wrapping_add(step.wrapping_mul(index as i64)) as f64,
            Recipe::Choice { .. } => 0.0,
        }
    }

    /// Appends the packed bytes of an element of whole bytes; a code for the smaller ones.
    fn push(&self, out: &mut Vec<u8>, random: &mut Random, index: usize) {
        if !self.choices.is_empty() {
            let share = random.uniform();
            let at = self.choices.partition_point(|(_, up_to)| *up_to <= share).min(self.choices.len() - 1);
            if let Some((bytes, _)) = self.choices.get(at) {
                out.extend_from_slice(bytes);
            }
            return;
        }
        if let (Recipe::Range { start, step }, DType::I64) = (&self.recipe, self.dtype) {
            // Exact beyond 2^53 too.
            return out.extend_from_slice(&start.wrapping_add(step.wrapping_mul(index as i64)).to_le_bytes());
        }
        let value = self.number(random, index);
        match self.dtype {
            DType::F32 => out.extend_from_slice(&(value as f32).to_le_bytes()),
            DType::F64 => out.extend_from_slice(&value.to_le_bytes()),
            DType::F16 => out.extend_from_slice(&f16::from_f64(value).to_le_bytes()),
            DType::BF16 => out.extend_from_slice(&bf16::from_f64(value).to_le_bytes()),
            DType::C64 => {
                out.extend_from_slice(&(value as f32).to_le_bytes());
                out.extend_from_slice(&(self.number(random, index) as f32).to_le_bytes());
            }
            DType::C128 => {
                out.extend_from_slice(&value.to_le_bytes());
                out.extend_from_slice(&self.number(random, index).to_le_bytes());
            }
            DType::I64 => out.extend_from_slice(&(value.round() as i64).to_le_bytes()),
            DType::U64 => out.extend_from_slice(&(value.round() as u64).to_le_bytes()),
            DType::I32 => out.extend_from_slice(&(value.round() as i32).to_le_bytes()),
            DType::U32 => out.extend_from_slice(&(value.round() as u32).to_le_bytes()),
            DType::I16 => out.extend_from_slice(&(value.round() as i16).to_le_bytes()),
            DType::U16 => out.extend_from_slice(&(value.round() as u16).to_le_bytes()),
            DType::I8 => out.push(value.round() as i8 as u8),
            DType::U8 => out.push(value.round() as u8),
            DType::Bool => out.push(u8::from(value >= 0.5)),
            DType::String => {}
            _ if self.codes.is_empty() => {
                let bits = self.dtype.bits();
                let (low, high) = match self.dtype.kind() {
                    Kind::Signed => (-(1i64 << (bits - 1)), (1i64 << (bits - 1)) - 1),
                    _ => (0, (1i64 << bits) - 1),
                };
                out.push((value.round() as i64).clamp(low, high) as u8 & ((1u16 << bits) - 1) as u8);
            }
            _ => {
                let at = self.codes.partition_point(|(number, _)| f64::from(*number) < value);
                let near = [at.saturating_sub(1), at.min(self.codes.len() - 1)];
                let distance = |i: &usize| (f64::from(self.codes[*i].0) - value).abs();
                let best = near.iter().min_by(|a, b| distance(a).total_cmp(&distance(b)));
                out.push(best.map_or(0, |&i| self.codes[i].1));
            }
        }
    }
}

fn choices(values: &[String], counts: &[u64], dtype: DType) -> Result<Vec<(Vec<u8>, f64)>, String> {
    let width = (dtype.bits() / 8) as usize;
    let total = counts.iter().map(|&count| count as f64).sum::<f64>();
    if values.is_empty() || values.len() != counts.len() || dtype.bits() < 8 || total <= 0.0 {
        return Err("a choice needs elements of whole bytes and a count for each".to_owned());
    }
    let mut up_to = 0.0;
    values
        .iter()
        .zip(counts)
        .map(|(text, &count)| {
            up_to += count as f64 / total;
            let digits: Option<Vec<u8>> =
                text.bytes().map(|c| char::from(c).to_digit(16).map(|d| d as u8)).collect();
            let bytes: Vec<u8> =
                digits.iter().flat_map(|d| d.as_chunks::<2>().0).map(|[a, b]| a << 4 | b).collect();
            if bytes.len() == width { Ok((bytes, up_to)) } else { Err(format!("{text:?} is not a {dtype}")) }
        })
        .collect()
}

fn finite_codes(dtype: DType) -> Vec<(f32, u8)> {
    let codes = 0..=((1u16 << dtype.bits()) - 1) as u8;
    let mut found: Vec<(f32, u8)> = codes
        .filter_map(|code| Some((dtype.small_float(code)?, code)))
        .filter(|(number, _)| number.is_finite())
        .collect();
    found.sort_by(|a, b| a.0.total_cmp(&b.0));
    found
}

impl Stream for Generator {
    fn byte_len(&self) -> u64 {
        self.dtype.byte_len(self.count).unwrap_or(0) as u64
    }

    fn write_to(&self, out: &mut dyn Write) -> io::Result<()> {
        // A multiple of every group that packs into whole bytes.
        const CHUNK: usize = 1 << 15;
        let mut random = Random::new(self.seed);
        let mut buffer = Vec::with_capacity(CHUNK * 16);
        let bits = self.dtype.bits();
        let mut done = 0;
        while done < self.count {
            let part = CHUNK.min(self.count - done);
            buffer.clear();
            for index in done..done + part {
                self.push(&mut buffer, &mut random, index);
            }
            if bits < 8 {
                buffer = pack(&buffer, bits);
            }
            out.write_all(&buffer)?;
            done += part;
        }
        Ok(())
    }
}

/// Packs codes of fewer than eight bits, the first one in the lowest bits.
fn pack(codes: &[u8], bits: u32) -> Vec<u8> {
    let mut packed = vec![0u8; (codes.len() * bits as usize).div_ceil(8)];
    for (i, &code) in codes.iter().enumerate() {
        let first = i * bits as usize;
        let wide = u16::from(code) << (first % 8);
        for (byte, part) in packed.iter_mut().skip(first / 8).zip(wide.to_le_bytes()) {
            *byte |= part;
        }
    }
    packed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tensor;
    use crate::tensor::Data;

    fn make(recipe: Recipe, dtype: DType, count: usize) -> Tensor {
        let generator = Generator::new(recipe, dtype, count, 7, 3).unwrap();
        let mut bytes = Vec::new();
        generator.write_to(&mut bytes).unwrap();
        assert_eq!(bytes.len() as u64, generator.byte_len());
        Tensor::new(dtype, [count], Data::Bytes(bytes.into())).unwrap()
    }

    #[test]
    fn every_numeric_type_comes_back_close_to_its_recipe() {
        for &dtype in DType::ALL.iter().filter(|&&dtype| dtype.kind() == Kind::Float) {
            let (min, max) = if dtype == DType::F8E8M0 { (0.25, 4.0) } else { (-4.0, 4.0) };
            let wanted = Recipe::Normal { mean: 0.5, std: 1.0, min, max };
            let Recipe::Normal { mean, std, min: low, max: high } =
                Recipe::measure(&make(wanted.clone(), dtype, 40_001)).unwrap()
            else {
                // Few codes lie in the range.
                continue;
            };
            assert!((mean - 0.5).abs() < 0.5 && (std - 1.0).abs() < 0.5, "{dtype}: {mean} {std}");
            assert!(low >= min && high <= max, "{dtype}: {low} {high}");
        }
    }

    #[test]
    fn ranges_and_choices_are_exact() {
        let range = Recipe::Range { start: -3, step: 2 };
        assert_eq!(Recipe::measure(&make(range.clone(), DType::I64, 100)).unwrap(), range);
        let uniform = Recipe::Uniform { min: -5, max: 1000 };
        assert_eq!(Recipe::measure(&make(uniform.clone(), DType::I32, 100_000)).unwrap(), uniform);
        let mask =
            Recipe::Choice { values: vec!["00000000".into(), "000080ff".into()], counts: vec![750, 250] };
        let Recipe::Choice { values, counts } = Recipe::measure(&make(mask, DType::F32, 100_000)).unwrap()
        else {
            panic!("a choice stays one")
        };
        assert_eq!(values, ["00000000", "000080ff"]);
        assert!((counts[0] as f64 / 100_000.0 - 0.75).abs() < 0.01);
    }

    #[test]
    fn sub_byte_integers_stay_in_range() {
        for dtype in [DType::I4, DType::U4, DType::I2, DType::U2] {
            let recipe = Recipe::Normal { mean: 0.0, std: 3.0, min: -8.0, max: 15.0 };
            let values = make(recipe, dtype, 1001).to_i64s().unwrap();
            assert!(values.iter().any(|&v| v != values[0]), "{dtype}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        let choice = |text: &str| Recipe::Choice { values: vec![text.into()], counts: vec![1] };
        assert!(Generator::new(choice("00"), DType::F32, 1, 0, 0).is_err());
        assert!(Generator::new(choice("zz"), DType::U8, 1, 0, 0).is_err());
        assert!(Generator::new(Recipe::Range { start: 0, step: 1 }, DType::String, 1, 0, 0).is_err());
    }
}
