//! Elementwise operators on the small integers and truth values that shapes are computed with.
//!
//! Elements are expressions over the model's symbols. Arithmetic of 64 bits is taken not to overflow, which is the
//! contract of [`Dim`]; results of 32 bits are kept only when they provably fit. What has no expression becomes a fresh
//! symbol.

use super::operands::{broadcast_shapes, equal_shapes, operand_shapes};
use crate::error::OpError;
use crate::fact::MAX_SYMBOLIC_ELEMENTS;
use crate::infer_call::{Infer, same_as_input};
use crate::kernel::shape::{broadcast as broadcast_static, broadcast_strides, for_each_offset};
use onnxforge_ir::DType;
use onnxforge_ir::dim::{Dim, Symbols};
use onnxforge_ir::tensor::element_count;

/// An element of the result from the elements of the operands at its place; `None` when it has no expression.
pub type Rule = fn(&[Dim], &Symbols) -> Option<Dim>;

/// Whether a result may leave the range of its type, where it wraps around.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Range {
    /// It is an operand, or between operands, or a truth value.
    Stays,
    /// It may be anything.
    Wraps,
}

/// Output 0 has type, shape and, by `rule`, elements of input 0.
pub fn unary(cx: &mut Infer<'_>, range: Range, rule: Rule) -> Result<(), OpError> {
    same_as_input(cx)?;
    if let Some(shape) = cx.shape(0) {
        set_elements(cx, &[shape.to_vec()], range, rule);
    }
    Ok(())
}

/// Output 0 has the shape that two operands have together and, by `rule`, their elements.
pub fn binary(cx: &mut Infer<'_>, range: Range, rule: Rule) -> Result<(), OpError> {
    if let Some(shapes) = operand_shapes(cx)? {
        set_elements(cx, &shapes, range, rule);
    }
    Ok(())
}

/// Output 0 has the shape that any number of operands have together and, by `rule`, their elements. Before opset 8 the
/// operands had to have one shape.
pub fn variadic(cx: &mut Infer<'_>, range: Range, rule: Rule) -> Result<(), OpError> {
    let shapes = if cx.call.since() < 8 { equal_shapes(cx)? } else { broadcast_shapes(cx)? };
    if let Some(shapes) = shapes {
        set_elements(cx, &shapes, range, rule);
    }
    Ok(())
}

/// Division truncates; only the least integer divided by -1 leaves the range.
pub fn division(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let positive = |dims: Vec<Dim>| dims.iter().all(|dim| dim.provably_positive(cx.symbols));
    let range = if cx.dims(1).is_some_and(positive) { Range::Stays } else { Range::Wraps };
    binary(cx, range, |x, symbols| x[0].trunc_div(&x[1], symbols))
}

/// The remainder has the sign of the divisor, or of the dividend with `fmod`.
pub fn remainder(cx: &mut Infer<'_>) -> Result<(), OpError> {
    let rule: Rule = if cx.call.flag("fmod")? {
        |x, symbols| {
            let plain = x.iter().all(|x| x.provably_nonneg(symbols));
            x[0].modulo(&x[1], symbols).filter(|_| plain)
        }
    } else {
        |x, symbols| x[0].modulo(&x[1], symbols)
    };
    binary(cx, Range::Stays, rule)
}

/// Powers with constant exponents that are not negative.
pub fn power(x: &[Dim], _: &Symbols) -> Option<Dim> {
    x[0].pow(u32::try_from(x[1].as_const()?).ok()?)
}

/// The operand with the larger value.
pub fn largest(x: &[Dim], symbols: &Symbols) -> Option<Dim> {
    let (first, rest) = x.split_first()?;
    rest.iter().try_fold(first.clone(), |largest, x| largest.maximum(x, symbols))
}

/// The operand with the smaller value.
pub fn smallest(x: &[Dim], symbols: &Symbols) -> Option<Dim> {
    let (first, rest) = x.split_first()?;
    rest.iter().try_fold(first.clone(), |smallest, x| smallest.minimum(x, symbols))
}

/// `max(x, -x, 0)`.
pub fn absolute(x: &[Dim], symbols: &Symbols) -> Option<Dim> {
    x[0].maximum(&x[0].neg()?, symbols)?.maximum(&Dim::ZERO, symbols)
}

/// `max(min(x, 1), -1)`.
pub fn sign(x: &[Dim], symbols: &Symbols) -> Option<Dim> {
    x[0].minimum(&Dim::ONE, symbols)?.maximum(&Dim::from(-1), symbols)
}

/// 0 or 1, where it can be proved.
fn truth(holds: bool, fails: impl FnOnce() -> bool) -> Option<Dim> {
    if holds { Some(Dim::ONE) } else { fails().then_some(Dim::ZERO) }
}

/// Whether both are equal.
pub fn equal(x: &[Dim], symbols: &Symbols) -> Option<Dim> {
    truth(x[0].provably_equal(&x[1], symbols), || x[0].provably_different(&x[1], symbols))
}

/// Whether the first is at most the second.
pub fn at_most(x: &[Dim], symbols: &Symbols) -> Option<Dim> {
    let below = || x[1].add(&Dim::ONE).is_some_and(|next| next.provably_le(&x[0], symbols));
    truth(x[0].provably_le(&x[1], symbols), below)
}

/// Whether the first is below the second.
pub fn below(x: &[Dim], symbols: &Symbols) -> Option<Dim> {
    negation(&[at_most(&[x[1].clone(), x[0].clone()], symbols)?], symbols)
}

/// `1 - x`, for truth values.
pub fn negation(x: &[Dim], _: &Symbols) -> Option<Dim> {
    Dim::ONE.sub(&x[0])
}

/// `x + y - 2·min(x, y)`, for truth values.
pub fn exclusive(x: &[Dim], symbols: &Symbols) -> Option<Dim> {
    let both = x[0].minimum(&x[1], symbols)?;
    x[0].add(&x[1])?.sub(&both.mul(&Dim::from(2))?)
}

/// Output 0 has type and shape of input 0, and its elements within the bounds that inputs 1 and 2 are.
pub fn clip(cx: &mut Infer<'_>) -> Result<(), OpError> {
    same_as_input(cx)?;
    let Some(shape) = cx.shape(0) else { return Ok(()) };
    let bound = |index: usize| match cx.dims(index) {
        _ if !cx.has(index) => Some(None),
        Some(dims) if dims.len() == 1 => Some(dims.into_iter().next()),
        _ => None,
    };
    let (Some(low), Some(high)) = (bound(1), bound(2)) else { return Ok(()) };
    set_elements(cx, &[shape.to_vec()], Range::Stays, |x, symbols| {
        let x = low.as_ref().map_or_else(|| Some(x[0].clone()), |low| x[0].maximum(low, symbols))?;
        high.as_ref().map_or_else(|| Some(x.clone()), |high| x.minimum(high, symbols))
    });
    Ok(())
}

/// Output 0 has the shape that condition and branches have together; each element is that of the branch that is taken.
pub fn choice(cx: &mut Infer<'_>) -> Result<(), OpError> {
    cx.copy_dtype(0, 2);
    cx.copy_dtype(0, 1);
    let Some(shapes) = broadcast_shapes(cx)? else { return Ok(()) };
    let [condition, a, b] = [0, 1, 2].map(|index| cx.dims(index));
    let dtype = cx.output(0).tensor().and_then(|fact| fact.dtype).filter(|dtype| is_followed(*dtype));
    let (Some(dtype), Some(places)) = (dtype, places(&shapes)) else { return Ok(()) };
    if a.is_none() && b.is_none() {
        return Ok(());
    }
    let at = |dims: &Option<Vec<Dim>>, place: usize| dims.as_ref().and_then(|dims| dims.get(place).cloned());
    let mut elements = Vec::new();
    for (&i, (&j, &k)) in places[0].iter().zip(places[1].iter().zip(&places[2])) {
        let (a, b) = (at(&a, j), at(&b, k));
        let chosen = match at(&condition, i) {
            Some(condition) if condition == Dim::ZERO => b,
            Some(condition) if condition.provably_positive(cx.symbols) => a,
            _ if a == b => a,
            _ => {
                let bounds = [a, b].map(|branch| branch.and_then(|branch| branch.lower_bound(cx.symbols)));
                let bound = bounds[0].zip(bounds[1]).map(|(a, b)| a.min(b));
                let bound = if dtype == DType::Bool { Some(0) } else { bound };
                Some(cx.symbols.fresh_at_least(bound).into())
            }
        };
        elements.push(chosen.unwrap_or_else(|| unknown(cx, dtype)));
    }
    cx.set_dims(0, elements);
    Ok(())
}

/// Elements of these types are followed.
pub fn is_followed(dtype: DType) -> bool {
    matches!(dtype, DType::I64 | DType::I32 | DType::Bool)
}

/// Gives output 0 the elements that follow by `rule` from those of the inputs, which are broadcast under `shapes`.
fn set_elements(
    cx: &mut Infer<'_>,
    shapes: &[Vec<Dim>],
    range: Range,
    rule: impl Fn(&[Dim], &Symbols) -> Option<Dim>,
) -> Option<()> {
    let operand = cx.dtype(0).filter(|dtype| is_followed(*dtype))?;
    let result = cx.output(0).tensor()?.dtype.filter(|dtype| is_followed(*dtype))?;
    let inputs: Vec<Vec<Dim>> = (0..shapes.len()).map(|index| cx.dims(index)).collect::<Option<_>>()?;
    let places = places(shapes)?;
    let mut elements = Vec::new();
    for i in 0..places.first()?.len() {
        let operands = inputs.iter().zip(&places).map(|(dims, places)| dims.get(places[i]).cloned());
        let operands = operands.collect::<Option<Vec<Dim>>>()?;
        let fits =
            |dim: &Dim| range == Range::Stays || operand == DType::I64 || fits_32_bits(dim, cx.symbols);
        let element = rule(&operands, cx.symbols).filter(fits);
        elements.push(element.unwrap_or_else(|| unknown(cx, result)));
    }
    cx.set_dims(0, elements);
    Some(())
}

fn fits_32_bits(dim: &Dim, symbols: &Symbols) -> bool {
    dim.lower_bound(symbols) >= Some(i32::MIN.into())
        && dim.upper_bound(symbols).is_some_and(|bound| bound <= i32::MAX.into())
}

/// An element of which nothing is known but its type.
pub fn unknown(cx: &mut Infer<'_>, dtype: DType) -> Dim {
    if dtype == DType::Bool { cx.fresh() } else { cx.fresh_value() }
}

/// For each operand, where the elements of the broadcast result come from; `None` when a dimension is not a number or
/// the result is too long to be followed.
fn places(shapes: &[Vec<Dim>]) -> Option<Vec<Vec<usize>>> {
    let number = |dim: &Dim| usize::try_from(dim.as_const()?).ok();
    let shapes: Vec<Vec<usize>> =
        shapes.iter().map(|shape| shape.iter().map(number).collect()).collect::<Option<_>>()?;
    let whole = broadcast_static(&shapes.iter().map(Vec::as_slice).collect::<Vec<_>>()).ok()?;
    let count = element_count(&whole).filter(|&count| count <= MAX_SYMBOLIC_ELEMENTS)?;
    if count == 0 {
        return Some(vec![Vec::new(); shapes.len()]);
    }
    let place = |shape: &Vec<usize>| {
        let mut places = Vec::new();
        for_each_offset(&whole, [&broadcast_strides(shape, &whole)], |[at]| places.push(at));
        places
    };
    Some(shapes.iter().map(place).collect())
}

#[cfg(test)]
mod tests {
    use crate::infer::Inference;
    use onnxforge_ir::io::external::ExternalFiles;
    use onnxforge_ir::io::load::from_message;
    use onnxforge_ir::text;

    /// What is known of the elements of `y` in a graph with these nodes; `s` is the shape `[batch, 3, width]`.
    fn elements(nodes: &str) -> Vec<String> {
        let source = format!(
            "<ir_version: 8, opset_import: [\"\" : 17]>
             g (float[batch, 3, width] x, int64[3] any) => (y) {{ s = Shape(x) {nodes} }}"
        );
        let message = text::parse(&source).unwrap();
        let model = from_message(message, &mut ExternalFiles::default()).unwrap();
        let inference = Inference::of(&model);
        assert!(inference.conflicts().is_empty(), "{:?}", inference.conflicts());
        let output = model.scope(model.main()).outputs()[0].value;
        let dims = inference.tensor(output).unwrap().dims().unwrap();
        let shown = |dim: &super::Dim| dim.display(inference.symbols()).to_string();
        dims.iter().map(shown).collect()
    }

    #[test]
    fn what_replaces_minus_one_is_never_chosen_for_dimensions() {
        let nodes = "one = Constant<value_int = 1>() minus = Constant<value_ints = [-1]>()
                     is = Equal(s, minus) y = Where(is, one, s)";
        assert_eq!(elements(nodes), ["batch", "3", "width"]);
    }

    #[test]
    fn arithmetic_is_followed() {
        let nodes =
            "two = Constant<value_int = 2>() t = Mul(s, two) u = Add(t, two) v = Div(u, two) y = Sub(v, s)";
        assert_eq!(elements(nodes), ["1", "1", "1"]);
        assert_eq!(
            elements("k = Constant<value_int = 4>() q = Div(s, k) r = Mod(s, k) p = Mul(q, k) y = Add(p, r)"),
            ["batch", "3", "width"]
        );
        assert_eq!(elements("n = Neg(s) a = Abs(n) z = Relu(n) y = Add(a, z)"), ["batch", "3", "width"]);
        assert_eq!(
            elements("two = Constant<value_ints = [2, 2, 2]>() y = Pow(s, two)"),
            ["batch**2", "9", "width**2"]
        );
        assert_eq!(elements("n = Constant<value_int = 7>() m = Max(s, n) y = Min(m, n)"), ["7", "7", "7"]);
    }

    #[test]
    fn truth_is_proved_or_unknown() {
        let compared = |op: &str, with: &str| {
            elements(&format!("k = Constant<value_ints = [{with}]>() b = {op}(s, k) y = Cast<to = 7>(b)"))
        };
        assert_eq!(compared("GreaterOrEqual", "0, 3, 0"), ["1", "1", "1"]);
        assert_eq!(compared("Less", "0, 4, 0"), ["0", "1", "0"]);
        let unknown = compared("Greater", "1, 3, -1");
        assert_eq!((&unknown[1], &unknown[2]), (&"0".to_owned(), &"1".to_owned()));
        assert!(unknown[0].starts_with('?'));
        assert_eq!(elements("b = Equal(s, s) n = Not(b) o = Or(n, b) y = Xor(o, n)"), ["1", "1", "1"]);
    }

    #[test]
    fn unknown_choices_keep_the_bound_of_both_branches() {
        let nodes =
            "zero = Constant<value_int = 0>() c = Less(any, zero) w = Where(c, zero, s) y = Max(w, zero)";
        let chosen = elements(nodes);
        assert!(chosen.iter().all(|dim| dim.starts_with('?')), "{chosen:?}");
        assert_eq!(
            elements("zero = Constant<value_int = 0>() c = Less(any, zero) y = Where(c, s, s)"),
            ["batch", "3", "width"]
        );
    }

    #[test]
    fn thirty_two_bits_are_followed_only_where_they_fit() {
        let nodes = "i = Cast<to = 6>(s) m = Mul(i, i) y = Cast<to = 7>(m)";
        let squares = elements(nodes);
        assert!(squares[0].starts_with('?') && squares[1] == "9" && squares[2].starts_with('?'));
        assert_eq!(
            elements("i = Cast<to = 6>(s) m = Max(i, i) y = Cast<to = 7>(m)"),
            ["batch", "3", "width"]
        );
        assert_eq!(
            elements("p = ReduceProd(s) t = Mul(s, s) i = Cast<to = 6>(t) y = Cast<to = 7>(i)")[1],
            "9"
        );
    }
}
