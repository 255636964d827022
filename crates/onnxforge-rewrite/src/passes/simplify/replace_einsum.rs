//! replace_einsum: an Einsum that is one other operator becomes that operator.
//!
//! **Matches** equations without `...` and without repeated letters in a term that are a permutation (Transpose, or nothing at all), a sum over
//! axes (ReduceSum), a product of elements (Mul), a product of matrices with or without batch axes (MatMul), or one of two transposed float
//! matrices (Gemm).
//! **Accuracy** `BitExact` for permutations, and for integers, which wrap; `ValueExact` for products of float elements, as a sum of one product that starts
//! at +0 loses the sign of −0; `Rounding` for sums of floats, whose order is open.
//! **Proof** By the definition of Einsum: letters that the result lacks are summed over. MatMul sums over the last axis of the first
//! and the last but one of the second operand, and goes through the batch axes of both alike.
//! **Bound** Both forms sum the same n products, n roundings on the way of each in any order, or the same n terms with n − 1. None is added, at the scale of
//! the sum of the magnitudes.
//! **Never** where it would take two nodes; where summed sizes are not proved equal, as Einsum may broadcast a size of 1 and MatMul does not.

use crate::passes::pass;
use crate::{At, Change, Cx, Reason, Skip};
use onnxforge_ir::dtype::Kind;
use onnxforge_ir::edit::Operand;
use onnxforge_ir::{Accuracy, Attr, DType, NodeId, ValueId};

pass!(replace_einsum { stage: Canonicalize, needs: ["Einsum"], rules: [ONE, TWO] });

const SUM: Accuracy = Accuracy::Rounding { ulps: 4.0 };

static ONE: At = At { name: "one_operand", accuracy: SUM, ops: &["Einsum"], apply: one_operand };

static TWO: At = At { name: "two_operands", accuracy: SUM, ops: &["Einsum"], apply: two_operands };

fn one_operand(cx: &Cx<'_>, id: NodeId) -> Result<Change, Skip> {
    let (terms, result) = equation(cx, id)?;
    let [term] = &*terms else { return Err(Skip::NOT_HERE) };
    let (x, y) = (cx.input(id, 0)?, cx.output(id)?);
    let place = |letter: &u8| term.iter().position(|other| other == letter).map(|at| at as i64);
    let perm: Vec<i64> = result.iter().map(place).collect::<Option<_>>().ok_or(Skip::NOT_HERE)?;
    let mut change = cx.change(&[id]);
    let is_sorted = perm.is_sorted();
    if perm.len() == term.len() {
        change.promise(Accuracy::BitExact);
        if is_sorted {
            change.replace(y, x);
        } else {
            let transposed = change.op("Transpose", [x.into()], [("perm", perm).into()]);
            change.replace(y, transposed);
        }
        return Ok(change);
    }
    if !is_sorted {
        return Err(Reason::MoreNodes.into());
    }
    change.promise(accuracy(cx, x)?);
    let summed: Vec<i64> = (0..term.len() as i64).filter(|axis| !perm.contains(axis)).collect();
    let mut inputs: Vec<Operand> = vec![x.into()];
    let mut attrs: Vec<Attr> = vec![("keepdims", 0).into()];
    if cx.opset(id) < 13 {
        attrs.push(("axes", summed).into());
    } else {
        inputs.push(change.ints("axes", &summed));
    }
    let sum = change.call(onnxforge_ir::Op::standard("ReduceSum"), inputs, 1, attrs);
    change.replace(y, sum.output(0));
    Ok(change)
}

fn two_operands(cx: &Cx<'_>, id: NodeId) -> Result<Change, Skip> {
    let (terms, result) = equation(cx, id)?;
    let [first, second] = &*terms else { return Err(Skip::NOT_HERE) };
    let (a, b, y) = (cx.input(id, 0)?, cx.input(id, 1)?, cx.output(id)?);
    let mut change = cx.change(&[id]);
    // Elements of the same axes, of which one operand may lack leading ones.
    if first.ends_with(second) && *first == result || second.ends_with(first) && *second == result {
        change.promise(match accuracy(cx, a)? {
            Accuracy::BitExact => Accuracy::BitExact,
            _ => Accuracy::ValueExact,
        });
        let product = change.op("Mul", [a.into(), b.into()], []);
        change.replace(y, product);
        return Ok(change);
    }
    change.promise(accuracy(cx, a)?);
    let both = [(first, a, second, b), (second, b, first, a)];
    for (left, a, right, b) in both {
        let Some((place_a, place_b)) = summed_places(left, right, &result) else { continue };
        same_size(cx, a, place_a, b, place_b)?;
        if is_matmul(left, right, &result) {
            let product = change.op("MatMul", [a.into(), b.into()], []);
            change.replace(y, product);
            return Ok(change);
        }
        let is_float = cx.dtype(a)?.kind() == Kind::Float;
        let rows_first = result.first() == left.iter().find(|&letter| *letter != left[place_a]);
        if left.len() == 2 && right.len() == 2 && result.len() == 2 && is_float && rows_first {
            // Gemm transposes its operands itself.
            let attrs: [Attr; 2] =
                [("transA", i64::from(place_a == 0)).into(), ("transB", i64::from(place_b == 1)).into()];
            let product = change.op("Gemm", [a.into(), b.into()], attrs);
            change.replace(y, product);
            return Ok(change);
        }
    }
    Err(Reason::MoreNodes.into())
}

/// The letters of each operand and of the result, none of which stands twice in one of them.
fn equation(cx: &Cx<'_>, id: NodeId) -> Result<(Vec<Vec<u8>>, Vec<u8>), Skip> {
    let text: Vec<u8> = cx.call(id)?.text("equation")?.bytes().filter(|byte| *byte != b' ').collect();
    let text = String::from_utf8(text).map_err(|_| Skip::NOT_HERE)?;
    let (left, result) = match text.split_once("->") {
        Some((left, result)) => (left, Some(result.as_bytes().to_vec())),
        // Runtimes do not agree on how capitals are sorted.
        None if text.bytes().any(|byte| byte.is_ascii_uppercase()) => return Err(Skip::NOT_HERE),
        None => (&*text, None),
    };
    let terms: Vec<Vec<u8>> = left.split(',').map(|term| term.as_bytes().to_vec()).collect();
    // Without a result, it has the letters that stand once, in the order of the alphabet.
    let result = result.unwrap_or_else(|| {
        let mut letters = terms.concat();
        letters.sort_unstable();
        let all = letters.clone();
        letters.retain(|letter| all.iter().filter(|&other| other == letter).count() == 1);
        letters
    });
    let plain = |term: &[u8]| {
        let distinct = |at: usize| !term[..at].contains(&term[at]);
        term.iter().all(u8::is_ascii_alphabetic) && (0..term.len()).all(distinct)
    };
    let known = |letter: &u8| terms.iter().any(|term| term.contains(letter));
    if !terms.iter().all(|term| plain(term)) || !plain(&result) || !result.iter().all(known) {
        return Err(Skip::because("the equation has an ellipsis or repeats a letter"));
    }
    if terms.len() != cx.node(id).inputs().len() {
        return Err(Skip::NOT_HERE);
    }
    Ok((terms, result))
}

/// Where the one letter stands that both operands have and the result lacks, if every other letter is in the result.
fn summed_places(left: &[u8], right: &[u8], result: &[u8]) -> Option<(usize, usize)> {
    let mut summed = left.iter().chain(right).filter(|letter| !result.contains(letter));
    let (&letter, &again) = (summed.next()?, summed.next()?);
    let place = |term: &[u8]| term.iter().position(|&other| other == letter);
    if letter == again && summed.next().is_none() { place(left).zip(place(right)) } else { None }
}

/// Whether the letters are those of a MatMul: batch m k, batch k n → batch m n, where the second operand may lack the batch
/// axes, and vectors lack m or n.
fn is_matmul(left: &[u8], right: &[u8], result: &[u8]) -> bool {
    let Some((&k, rows)) = left.split_last() else { return false };
    match *right {
        // A vector: what is left of the first operand is the result.
        [only] => only == k && rows == result,
        [ref batch @ .., inner, n] => {
            let Some((_, own_batch)) = rows.split_last() else {
                return inner == k && batch.is_empty() && result == [n];
            };
            let expected = [rows, &[n]].concat();
            inner == k && (batch.is_empty() || batch == own_batch) && result == expected && !rows.contains(&n)
        }
        [] => false,
    }
}

fn same_size(cx: &Cx<'_>, a: ValueId, at_a: usize, b: ValueId, at_b: usize) -> Result<(), Skip> {
    let size = |value: ValueId, at: usize| cx.shape(value)?.get(at).ok_or(Skip::NOT_HERE);
    if cx.same_dim(size(a, at_a)?, size(b, at_b)?) { Ok(()) } else { Err(Skip::at(Reason::UnknownShape, b)) }
}

/// What a sum of products is worth, for the element types that all of the operators have.
fn accuracy(cx: &Cx<'_>, value: ValueId) -> Result<Accuracy, Skip> {
    match cx.dtype(value)? {
        DType::F16 | DType::F32 | DType::F64 => Ok(SUM),
        DType::I32 | DType::I64 | DType::U32 | DType::U64 => Ok(Accuracy::BitExact),
        _ => Err(Skip::at(Reason::Type, value)),
    }
}
