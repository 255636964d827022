//! Products of matrices and tensors.

mod einsum;

use super::array::each_wide;
use super::array::{Array, each_float};
use super::call::Call;
use super::def::{Category, OpDef};
use super::error::{OpError, invalid, unsupported};
use super::eval_call::{Eval, one};
use super::infer_call::Infer;
use super::kernel::gemm::Matrix;
use super::kernel::number::Number;
use super::kernel::product::{Product, matmul};
use super::kernel::shape::broadcast;
use super::kernel::strided::expand;
use super::value::Value;

/// The operators of this family.
pub static OPS: &[OpDef] = &[
    OpDef::new("MatMul", Category::Math, infer_matmul, eval_matmul).widening(),
    OpDef::new("Gemm", Category::Math, infer_gemm, eval_gemm).widening(),
    OpDef::new("Einsum", Category::Math, einsum::infer, einsum::eval).widening(),
    OpDef::new("Det", Category::Math, infer_det, eval_det).widening(),
];

fn infer_matmul(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let (Some(a), Some(b)) = (cx.shape(0), cx.shape(1)) else { return Ok(()) };
    let (a_batch, m, k) = match a {
        [] => return invalid("a product with a tensor without axes"),
        [k] => (&[][..], None, k),
        [batch @ .., m, k] => (batch, Some(m), k),
    };
    let (b_batch, rows, n) = match b {
        [] => return invalid("a product with a tensor without axes"),
        [k] => (&[][..], k, None),
        [batch @ .., k, n] => (batch, k, Some(n)),
    };
    cx.unify(k, rows)?;
    let mut shape = cx.broadcast(&[a_batch, b_batch])?;
    shape.extend(m.into_iter().chain(n).cloned());
    cx.set_shape(0, shape);
    Ok(())
}

fn eval_matmul(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let (a, b) = (cx.array(0)?, cx.array(1)?);
    each_wide!(a, T => one(matmul::<T>(a, b, T::ONE, cx.memory())?))
}

/// Whether each operand of a Gemm stands transposed.
fn transposes(call: &Call<'_>) -> Result<[bool; 2], OpError> {
    Ok([call.flag("transA")?, call.flag("transB")?])
}

/// The two dimensions of a matrix, in the order of the operand that it is.
fn sides<D>(shape: &[D], transposed: bool) -> Result<[&D; 2], OpError> {
    match shape {
        [rows, columns] if transposed => Ok([columns, rows]),
        [rows, columns] => Ok([rows, columns]),
        _ => invalid(format!("a matrix is needed, not {} axes", shape.len())),
    }
}

fn infer_gemm(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let [trans_a, trans_b] = transposes(&cx.call)?;
    let a = cx.shape(0).map(|shape| sides(shape, trans_a)).transpose()?;
    let b = cx.shape(1).map(|shape| sides(shape, trans_b)).transpose()?;
    if let (Some([_, k]), Some([rows, _])) = (a, b) {
        cx.unify(k, rows)?;
    }
    let m = a.map(|[m, _]| m.clone()).unwrap_or_else(|| cx.fresh());
    let n = b.map(|[_, n]| n.clone()).unwrap_or_else(|| cx.fresh());
    cx.set_shape(0, vec![m, n]);
    Ok(())
}

fn eval_gemm(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let (a, b) = (cx.array(0)?, cx.array(1)?);
    let [trans_a, trans_b] = transposes(&cx.call)?;
    let ([&m, &k], [&rows, &n]) = (sides(a.shape(), trans_a)?, sides(b.shape(), trans_b)?);
    if k != rows {
        return invalid(format!("a product of {m}x{k} and {rows}x{n}"));
    }
    let bias = bias(cx, [m, n])?;
    each_wide!(a, T => {
        let a = Matrix { data: a.slice::<T>()?, rows: m, columns: k, transposed: trans_a };
        let b = Matrix { data: b.slice::<T>()?, rows: k, columns: n, transposed: trans_b };
        one(gemm(cx, a, b, bias)?)
    })
}

/// The third operand of a Gemm in full size, unless it counts for nothing.
fn bias(cx: &Eval<'_>, shape: [usize; 2]) -> Result<Option<Array>, OpError> {
    let Some(c) = cx.opt_array(2)? else { return Ok(None) };
    if cx.call.float("beta")? == 0.0 {
        return Ok(None);
    }
    let whole = c.shape() == shape;
    let may_broadcast = cx.call.since() >= 7 || cx.call.flag("broadcast")?;
    if !whole && (!may_broadcast || broadcast(&[c.shape(), &shape])? != shape) {
        return invalid(format!("a tensor of shape {:?} added to a product of shape {shape:?}", c.shape()));
    }
    if whole { Ok(Some(c.clone())) } else { expand(c, &shape, cx.memory()).map(Some) }
}

fn gemm<T: Product>(
    cx: &Eval<'_>,
    a: Matrix<'_, T>,
    b: Matrix<'_, T>,
    bias: Option<Array>,
) -> Result<Array, OpError> {
    // The factors are floats even where the elements are integers.
    let factor = |name: &str| {
        let value = f64::from(cx.call.float(name)?);
        let factor = T::from_f64(value);
        let same = factor.to_f64() == value;
        if same { Ok(factor) } else { unsupported(format!("{name} = {value} for {}", T::DTYPE)) }
    };
    let (alpha, beta) = (factor("alpha")?, factor("beta")?);
    let shape = [a.rows, b.columns];
    let add = bias.is_some();
    cx.reserve::<T>(cx.count(&shape)?)?;
    let mut out = match bias {
        None => cx.zeros(&shape)?,
        Some(bias) => bias.into_vec()?,
    };
    if add && beta != T::ONE {
        out.iter_mut().for_each(|x: &mut T| *x = x.mul(beta));
    }
    T::product(&mut out, a, b, alpha, add, true);
    Array::new(shape, out)
}

fn infer_det(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let Some(shape) = cx.shape(0) else { return Ok(()) };
    let [batch @ .., rows, columns] = shape else {
        return invalid("the determinant of a tensor with less than 2 axes");
    };
    cx.unify(rows, columns)?;
    cx.set_shape(0, batch.to_vec());
    Ok(())
}

fn eval_det(cx: &mut Eval<'_>) -> Result<Vec<Value>, OpError> {
    let x = cx.array(0)?;
    let [batch @ .., rows, columns] = x.shape() else {
        return invalid("the determinant of a tensor with less than 2 axes");
    };
    if rows != columns {
        return invalid(format!("the determinant of a {rows}x{columns} matrix"));
    }
    let n = *rows;
    each_float!(x, T => {
        let mut out = cx.zeros::<T>(batch)?;
        if n == 0 {
            out.fill(T::ONE);
        } else if !out.is_empty() {
            cx.reserve::<f64>(n * n)?;
            for (out, matrix) in out.iter_mut().zip(x.slice::<T>()?.chunks(n * n)) {
                *out = T::from_f64(determinant(matrix.iter().map(|x| x.to_f64()).collect(), n));
            }
        }
        one(Array::new(batch, out)?)
    })
}

/// The determinant of `n` rows of `n`, by elimination with the largest pivot of each column.
fn determinant(mut matrix: Vec<f64>, n: usize) -> f64 {
    let mut result = 1.0;
    for column in 0..n {
        let size = |row: &usize| matrix[row * n + column].abs();
        let pivot = (column..n).max_by(|a, b| size(a).total_cmp(&size(b))).unwrap_or(column);
        let value = matrix[pivot * n + column];
        result *= if pivot == column { value } else { -value };
        if value == 0.0 {
            return result;
        }
        if pivot != column {
            for at in column..n {
                matrix.swap(pivot * n + at, column * n + at);
            }
        }
        let (above, below) = matrix.split_at_mut((column + 1) * n);
        let pivot_row = &above[column * n + column..];
        for row in below.chunks_mut(n) {
            let factor = row[column] / value;
            row[column..].iter_mut().zip(pivot_row).for_each(|(x, p)| *x -= factor * p);
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::determinant;

    #[test]
    fn determinants() {
        assert_eq!(determinant(vec![0.0, 1.0, 1.0, 0.0], 2), -1.0);
        assert_eq!(determinant(vec![1.0, 2.0, 2.0, 4.0], 2), 0.0);
        let third = determinant(vec![2.0, 0.0, 1.0, 1.0, 3.0, 2.0, 1.0, 1.0, 4.0], 3);
        assert!((third - 18.0).abs() < 1e-12, "{third}");
        assert!(determinant(vec![f64::NAN, 1.0, 1.0, 1.0], 2).is_nan());
        assert_eq!(determinant(Vec::new(), 0), 1.0);
    }
}
