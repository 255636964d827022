//! Operators that compute each element from the elements at its place: arithmetic, functions, activations,
//! comparisons, truth values and bits.

mod activation;
mod arithmetic;
mod logic;
mod operands;
mod pass;
mod unary;
pub mod values;

use super::def::{Category, EvalFn, InferFn, OpDef};
use super::error::OpError;
use super::infer_call::{Infer, same_as_input};
use arithmetic::{Add, Max, Min, Mul, Sub};
use onnxforge_ir::dim::{Dim, Symbols};
use values::Range;

/// The operators of this family.
pub static OPS: &[OpDef] = &[
    function("Abs", |cx| values::unary(cx, Range::Wraps, values::absolute), unary::apply::<unary::Abs>),
    function("Neg", |cx| values::unary(cx, Range::Wraps, |x, _| x[0].neg()), unary::apply::<unary::Neg>),
    function("Sign", |cx| values::unary(cx, Range::Stays, values::sign), unary::apply::<unary::Sign>),
    function("Ceil", same_as_input, |cx| unary::in_64_bits(cx, f64::ceil)),
    function("Floor", same_as_input, |cx| unary::in_64_bits(cx, f64::floor)),
    function("Round", same_as_input, |cx| unary::in_64_bits(cx, f64::round_ties_even)),
    function("Sqrt", same_as_input, |cx| unary::in_own_bits(cx, f32::sqrt, f64::sqrt)),
    function("Reciprocal", same_as_input, |cx| unary::in_own_bits(cx, f32::recip, f64::recip)),
    function("Exp", same_as_input, unary::exp),
    function("Log", same_as_input, |cx| unary::in_own_bits(cx, f32::ln, f64::ln)),
    function("Sin", same_as_input, |cx| unary::in_64_bits(cx, f64::sin)),
    function("Cos", same_as_input, |cx| unary::in_64_bits(cx, f64::cos)),
    function("Tan", same_as_input, |cx| unary::in_64_bits(cx, f64::tan)),
    function("Asin", same_as_input, |cx| unary::in_64_bits(cx, f64::asin)),
    function("Acos", same_as_input, |cx| unary::in_64_bits(cx, f64::acos)),
    function("Atan", same_as_input, |cx| unary::in_64_bits(cx, f64::atan)),
    function("Sinh", same_as_input, |cx| unary::in_64_bits(cx, f64::sinh)),
    function("Cosh", same_as_input, |cx| unary::in_64_bits(cx, f64::cosh)),
    function("Asinh", same_as_input, |cx| unary::in_64_bits(cx, f64::asinh)),
    function("Acosh", same_as_input, |cx| unary::in_64_bits(cx, f64::acosh)),
    function("Atanh", same_as_input, |cx| unary::in_64_bits(cx, f64::atanh)),
    activation("Erf", same_as_input, unary::erf),
    activation("Tanh", same_as_input, unary::tanh),
    activation("Sigmoid", same_as_input, unary::sigmoid),
    activation("Relu", |cx| values::unary(cx, Range::Stays, relu), unary::apply::<unary::Relu>),
    activation("LeakyRelu", same_as_input, activation::leaky_relu),
    activation("PRelu", same_as_input, activation::prelu),
    activation("Elu", same_as_input, activation::elu),
    activation("Celu", same_as_input, activation::celu),
    activation("Selu", same_as_input, activation::selu),
    activation("Softplus", same_as_input, activation::soft_plus),
    activation("Softsign", same_as_input, activation::soft_sign),
    activation("HardSigmoid", same_as_input, activation::hard_sigmoid),
    activation("HardSwish", same_as_input, activation::hard_swish),
    activation("Mish", same_as_input, activation::mish),
    activation("Swish", same_as_input, activation::swish),
    activation("SwiGLU", infer_equal_shapes, activation::swiglu),
    activation("Gelu", same_as_input, activation::gelu),
    activation("Shrink", same_as_input, activation::shrink),
    activation("ThresholdedRelu", same_as_input, activation::thresholded_relu),
    activation("Clip", values::clip, arithmetic::clip),
    function("Add", |cx| values::binary(cx, Range::Wraps, |x, _| x[0].add(&x[1])), arithmetic::apply::<Add>)
        .commutative(),
    function("Sub", |cx| values::binary(cx, Range::Wraps, |x, _| x[0].sub(&x[1])), arithmetic::apply::<Sub>),
    function("Mul", |cx| values::binary(cx, Range::Wraps, |x, _| x[0].mul(&x[1])), arithmetic::apply::<Mul>)
        .commutative(),
    function("Div", values::division, arithmetic::div),
    function("Mod", values::remainder, arithmetic::modulo),
    function("Pow", |cx| values::binary(cx, Range::Wraps, values::power), arithmetic::pow),
    function("Max", |cx| values::variadic(cx, Range::Stays, values::largest), arithmetic::fold_all::<Max>),
    function("Min", |cx| values::variadic(cx, Range::Stays, values::smallest), arithmetic::fold_all::<Min>),
    function("Sum", infer_variadic, arithmetic::fold_all::<Add>).commutative(),
    function("Mean", infer_variadic, arithmetic::mean).commutative(),
    logic("IsNaN", infer_test, unary::is_nan).widening(),
    logic("IsInf", infer_test, unary::is_inf).widening(),
    logic("Equal", |cx| values::binary(cx, Range::Stays, values::equal), logic::equal)
        .widening()
        .commutative(),
    logic("Less", |cx| values::binary(cx, Range::Stays, values::below), logic::compare::<logic::Less>)
        .widening(),
    logic("LessOrEqual", infer_at_most, logic::compare::<logic::LessOrEqual>).widening(),
    logic("Greater", infer_above, logic::compare::<logic::Greater>).widening(),
    logic("GreaterOrEqual", infer_at_least, logic::compare::<logic::GreaterOrEqual>).widening(),
    logic("And", |cx| values::binary(cx, Range::Stays, values::smallest), logic::and).commutative(),
    logic("Or", |cx| values::binary(cx, Range::Stays, values::largest), logic::or).commutative(),
    logic("Xor", |cx| values::binary(cx, Range::Stays, values::exclusive), logic::xor).commutative(),
    logic("Not", |cx| values::unary(cx, Range::Stays, values::negation), logic::not),
    logic("BitShift", infer_bits, logic::shift),
    logic("BitwiseAnd", infer_bits, logic::bitwise::<logic::And>).commutative(),
    logic("BitwiseOr", infer_bits, logic::bitwise::<logic::Or>).commutative(),
    logic("BitwiseXor", infer_bits, logic::bitwise::<logic::Xor>).commutative(),
    logic("BitwiseNot", same_as_input, logic::bitwise_not),
    OpDef::new("Where", Category::Logic, values::choice, pass::choose).elementwise(),
    OpDef::new("Dropout", Category::NeuralLayer, pass::infer_dropout, pass::dropout).elementwise().random(),
    OpDef::new("Identity", Category::Manipulation, pass::infer_identity, pass::identity)
        .elementwise()
        .layout_only(),
];

/// A function that computes on floats, among others.
const fn function(name: &'static str, infer: InferFn, eval: EvalFn) -> OpDef {
    OpDef::new(name, Category::Math, infer, eval).elementwise().widening()
}

const fn activation(name: &'static str, infer: InferFn, eval: EvalFn) -> OpDef {
    OpDef::new(name, Category::Activation, infer, eval).elementwise().widening()
}

const fn logic(name: &'static str, infer: InferFn, eval: EvalFn) -> OpDef {
    OpDef::new(name, Category::Logic, infer, eval).elementwise()
}

fn relu(x: &[Dim], symbols: &Symbols) -> Option<Dim> {
    x[0].maximum(&Dim::ZERO, symbols)
}

fn infer_at_most(cx: &mut Infer<'_>) -> Result<(), OpError> {
    values::binary(cx, Range::Stays, values::at_most)
}

fn infer_at_least(cx: &mut Infer<'_>) -> Result<(), OpError> {
    values::binary(cx, Range::Stays, |x, symbols| values::at_most(&[x[1].clone(), x[0].clone()], symbols))
}

fn infer_above(cx: &mut Infer<'_>) -> Result<(), OpError> {
    values::binary(cx, Range::Stays, |x, symbols| values::below(&[x[1].clone(), x[0].clone()], symbols))
}

/// Bits of integers are not followed.
fn infer_bits(cx: &mut Infer<'_>) -> Result<(), OpError> {
    operands::broadcast_shapes(cx).map(drop)
}

/// Sums and means are of floats, whose values are not followed.
fn infer_variadic(cx: &mut Infer<'_>) -> Result<(), OpError> {
    values::variadic(cx, Range::Wraps, |_, _| None)
}

fn infer_equal_shapes(cx: &mut Infer<'_>) -> Result<(), OpError> {
    operands::equal_shapes(cx).map(drop)
}

/// Truth values of the shape of input 0.
fn infer_test(cx: &mut Infer<'_>) -> Result<(), OpError> {
    if let Some(shape) = cx.shape(0) {
        cx.set_shape(0, shape.to_vec());
    }
    Ok(())
}
