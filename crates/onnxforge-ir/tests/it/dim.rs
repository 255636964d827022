//! Properties of symbolic dimensions: every normal form and every proof is checked against direct
//! evaluation of the expression it came from. `PROPTEST_CASES` sets the number of cases.

use onnxforge_ir::dim::{Dim, Symbol, Symbols};
use onnxforge_testing::cases;
use proptest::prelude::*;

/// An expression as it was written.
#[derive(Clone, Debug)]
enum Expr {
    Const(i64),
    Symbol(usize),
    Apply(Op, Box<Expr>, Box<Expr>),
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Add,
    Sub,
    Mul,
    Floor,
    Ceil,
    Trunc,
    Mod,
    Min,
    Max,
}

use Op::{Add, Ceil, Floor, Max, Min, Mod, Mul, Sub, Trunc};

const NAMES: [&str; 6] = ["a", "n", "b", "k", "v", "w'-1"];
const LOWER: [Option<i64>; 6] = [Some(0), Some(0), Some(1), Some(2), None, Some(-3)];

fn table() -> (Symbols, Vec<Symbol>) {
    let mut symbols = Symbols::default();
    let all: Vec<Symbol> = NAMES.iter().map(|name| symbols.named_value(name)).collect();
    for (symbol, lower) in all.iter().zip(LOWER) {
        if let Some(lower) = lower {
            symbols.raise_lower(*symbol, lower);
        }
    }
    (symbols, all)
}

/// The value by definition; `None` for division by zero and for overflow in any step.
fn direct(expr: &Expr, values: &[i64]) -> Option<i64> {
    let (op, a, b) = match expr {
        Expr::Const(value) => return Some(*value),
        Expr::Symbol(at) => return Some(values[*at]),
        Expr::Apply(op, a, b) => (op, direct(a, values)?, direct(b, values)?),
    };
    let inexact = |b| a.checked_rem(b).map(|rest| rest != 0);
    let same_sign = (a < 0) == (b < 0);
    match op {
        Add => a.checked_add(b),
        Sub => a.checked_sub(b),
        Mul => a.checked_mul(b),
        Floor => a.checked_div(b)?.checked_sub(i64::from(inexact(b)? && !same_sign)),
        Ceil => a.checked_div(b)?.checked_add(i64::from(inexact(b)? && same_sign)),
        Trunc => a.checked_div(b),
        Mod => {
            let rest = a.checked_rem(b)?;
            Some(if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest })
        }
        Min => Some(a.min(b)),
        Max => Some(a.max(b)),
    }
}

fn apply(op: Op, a: &Dim, b: &Dim, symbols: &Symbols) -> Option<Dim> {
    match op {
        Add => a.add(b),
        Sub => a.sub(b),
        Mul => a.mul(b),
        Floor => a.floor_div(b, symbols),
        Ceil => a.ceil_div(b, symbols),
        Trunc => a.trunc_div(b, symbols),
        Mod => a.modulo(b, symbols),
        Min => a.minimum(b, symbols),
        Max => a.maximum(b, symbols),
    }
}

fn build(expr: &Expr, symbols: &Symbols, all: &[Symbol]) -> Option<Dim> {
    match expr {
        Expr::Const(value) => Some(Dim::from(*value)),
        Expr::Symbol(at) => Some(Dim::from(all[*at])),
        Expr::Apply(op, a, b) => apply(*op, &build(a, symbols, all)?, &build(b, symbols, all)?, symbols),
    }
}

fn lookup(values: &[i64]) -> impl Fn(Symbol) -> Option<i64> + '_ {
    |symbol| values.get(usize::try_from(symbol.id()).ok()?).copied()
}

fn trees(constants: impl Strategy<Value = i64> + 'static, depth: u32) -> BoxedStrategy<Expr> {
    let leaf = prop_oneof![
        2 => constants.prop_map(Expr::Const),
        3 => (0..NAMES.len()).prop_map(Expr::Symbol),
    ];
    let ops = prop_oneof![
        3 => Just(Add),
        2 => Just(Sub),
        3 => Just(Mul),
        3 => Just(Floor),
        1 => Just(Ceil),
        1 => Just(Trunc),
        1 => Just(Mod),
        1 => Just(Min),
        1 => Just(Max),
    ];
    leaf.prop_recursive(depth, 24, 2, move |inner| {
        (ops.clone(), inner.clone(), inner).prop_map(|(op, a, b)| Expr::Apply(op, Box::new(a), Box::new(b)))
    })
    .boxed()
}

fn small() -> BoxedStrategy<Expr> {
    trees(prop_oneof![3 => -6i64..=8, 1 => prop::sample::select(vec![12, 16, 64])], 4)
}

fn extreme() -> BoxedStrategy<Expr> {
    let ends = vec![i64::MIN, i64::MIN + 1, -1, 0, 1, 2, i64::MAX / 2, i64::MAX - 1, i64::MAX];
    trees(prop_oneof![prop::sample::select(ends), any::<i64>()], 5)
}

/// Values that respect the lower bounds, often on them.
fn values(reach: i64) -> impl Strategy<Value = Vec<i64>> {
    LOWER
        .map(|lower| match lower {
            Some(lower) => (lower..=lower + reach).boxed(),
            None => (-reach..=reach).boxed(),
        })
        .to_vec()
}

fn assignments() -> impl Strategy<Value = Vec<Vec<i64>>> {
    prop::collection::vec(prop_oneof![values(2), values(9), values(60)], 12)
}

fn config() -> ProptestConfig {
    ProptestConfig {
        failure_persistence: None,
        max_global_rejects: u32::MAX,
        ..ProptestConfig::with_cases(cases(2000))
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn normal_form_keeps_the_value(expr in small(), values in assignments()) {
        let (symbols, all) = table();
        if let Some(dim) = build(&expr, &symbols, &all) {
            for values in &values {
                if let Some(value) = direct(&expr, values) {
                    prop_assert_eq!(dim.evaluate(&lookup(values)), Some(value), "{:?}", dim);
                }
            }
        }
    }

    #[test]
    fn extreme_constants_neither_panic_nor_lie(
        expr in extreme(), values in assignments(), large in prop::collection::vec(any::<i64>(), 6),
    ) {
        let (symbols, all) = table();
        let Some(dim) = build(&expr, &symbols, &all) else { return Ok(()) };
        let large = large.iter().zip(LOWER).map(|(v, low)| low.map_or(*v, |low| low.max(*v)));
        for values in values.iter().cloned().chain([large.collect()]) {
            if let (Some(found), Some(value)) =
                (dim.evaluate(&lookup(&values)), direct(&expr, &values))
            {
                prop_assert_eq!(found, value, "{:?}", dim);
                prop_assert!(dim.lower_bound(&symbols).is_none_or(|bound| bound <= value));
                prop_assert!(dim.upper_bound(&symbols).is_none_or(|bound| bound >= value));
            }
        }
    }

    #[test]
    fn proofs_are_sound(x in small(), y in small(), values in assignments()) {
        let (symbols, all) = table();
        let built = (build(&x, &symbols, &all), build(&y, &symbols, &all));
        let (Some(a), Some(b)) = built else { return Ok(()) };
        let (low, high) = (a.lower_bound(&symbols), a.upper_bound(&symbols));
        let (le, equal) = (a.provably_le(&b, &symbols), a.provably_equal(&b, &symbols));
        let different = a.provably_different(&b, &symbols);
        let quotient = a.divide_exact(&b);
        for values in &values {
            let (Some(p), Some(q)) = (direct(&x, values), direct(&y, values)) else { continue };
            prop_assert!(low.is_none_or(|low| low <= p) && high.is_none_or(|high| p <= high));
            prop_assert!(!le || p <= q);
            prop_assert!(!equal || p == q);
            prop_assert!(!different || p != q);
            prop_assert!(a != b || p == q);
            if let Some(quotient) = quotient.as_ref().and_then(|d| d.evaluate(&lookup(values))) {
                prop_assert_eq!(quotient.checked_mul(q), Some(p));
            }
        }
    }

    #[test]
    fn known_factors_divide_exactly(x in small(), y in small()) {
        let (symbols, all) = table();
        let built = (build(&x, &symbols, &all), build(&y, &symbols, &all));
        let (Some(a), Some(b)) = built else { return Ok(()) };
        let (Some(product), false) = (a.mul(&b), b == Dim::ZERO) else { return Ok(()) };
        if let Some(quotient) = product.divide_exact(&b) {
            prop_assert_eq!(quotient, a);
        }
    }

    #[test]
    fn text_reads_back(expr in prop_oneof![small(), extreme()]) {
        let (mut symbols, all) = table();
        let Some(dim) = build(&expr, &symbols, &all) else { return Ok(()) };
        let text = dim.display(&symbols).to_string();
        prop_assert_eq!(Dim::parse(&text, &mut symbols), Some(dim), "{}", text);
    }

    #[test]
    fn any_text_is_read_or_refused(
        text in prop_oneof![any::<String>(), "[-+*/%(), 0-9a-c'?_]{0,40}", "(min|floor|-|\\(|n| |/|2|,|\\)){0,40}"],
    ) {
        let (mut symbols, _) = table();
        let known = symbols.len();
        match Dim::parse(&text, &mut symbols) {
            Some(dim) => {
                let shown = dim.display(&symbols).to_string();
                prop_assert_eq!(Dim::parse(&shown, &mut symbols), Some(dim));
            }
            None => prop_assert_eq!(symbols.len(), known),
        }
        let dim = Dim::from_param(&text, &mut symbols);
        let param = dim.to_param(&symbols);
        if dim.symbols().into_iter().all(|symbol| !symbols.is_anonymous(symbol)) {
            prop_assert_eq!(Dim::from_param(&param, &mut symbols), dim);
        }
    }

    #[test]
    fn ring_laws_hold(x in small(), y in small(), z in small()) {
        let (symbols, all) = table();
        let [a, b, c] = [x, y, z].map(|expr| build(&expr, &symbols, &all));
        let (Some(a), Some(b), Some(c)) = (a, b, c) else { return Ok(()) };
        let same = |left: Option<Dim>, right: Option<Dim>| match (left, right) {
            (Some(left), Some(right)) => left == right,
            _ => true,
        };
        prop_assert_eq!(a.add(&b), b.add(&a));
        prop_assert_eq!(a.mul(&b), b.mul(&a));
        prop_assert_eq!(a.minimum(&b, &symbols), b.minimum(&a, &symbols));
        prop_assert_eq!(a.maximum(&b, &symbols), b.maximum(&a, &symbols));
        let then = |d: Option<Dim>, f: &dyn Fn(&Dim) -> Option<Dim>| d.and_then(|d| f(&d));
        prop_assert!(same(then(a.add(&b), &|d| d.add(&c)), then(b.add(&c), &|d| a.add(d))));
        prop_assert!(same(then(a.mul(&b), &|d| d.mul(&c)), then(b.mul(&c), &|d| a.mul(d))));
        let spread = then(a.mul(&b), &|ab| ab.add(&a.mul(&c)?));
        prop_assert!(same(then(b.add(&c), &|d| a.mul(d)), spread));
        prop_assert!(same(then(a.sub(&b), &|d| d.add(&b)), Some(a.clone())));
        let rebuilt = then(a.floor_div(&b, &symbols), &|q| {
            q.mul(&b)?.add(&a.modulo(&b, &symbols)?)
        });
        prop_assert!(same(rebuilt, Some(a.clone())));
        prop_assert_eq!(a.minimum(&a, &symbols), Some(a.clone()));
    }

    #[test]
    fn extremes_of_linear_forms_are_associative(
        members in prop::collection::vec(prop::collection::vec(-2i64..=2, 3), 3), max in any::<bool>(),
    ) {
        let (symbols, all) = table();
        let linear = |member: &Vec<i64>| {
            Dim::from(all[0]).mul(&Dim::from(member[0]))?
                .add(&Dim::from(all[3]).mul(&Dim::from(member[1]))?)?
                .add(&Dim::from(member[2]))
        };
        let op = if max { Max } else { Min };
        let join = |a: &Option<Dim>, b: &Option<Dim>| {
            apply(op, a.as_ref()?, b.as_ref()?, &symbols)
        };
        let [a, b, c] = [0, 1, 2].map(|at| linear(&members[at]));
        prop_assert_eq!(join(&join(&a, &b), &c), join(&a, &join(&b, &c)));
    }

    #[test]
    fn substitution_commutes_with_evaluation(
        expr in small(), at in 0..NAMES.len(), by in small(), values in assignments(),
    ) {
        let (symbols, all) = table();
        let built = (build(&expr, &symbols, &all), build(&by, &symbols, &all));
        let (Some(dim), Some(by)) = built else { return Ok(()) };
        let replace = |symbol| (symbol == all[at]).then(|| by.clone());
        let Some(replaced) = dim.substitute(&replace, &symbols) else { return Ok(()) };
        for values in &values {
            let Some(inner) = by.evaluate(&lookup(values)) else { continue };
            let mut outer = values.clone();
            outer[at] = inner;
            if LOWER[at].is_some_and(|lower| inner < lower) {
                continue;
            }
            if let Some(value) = dim.evaluate(&lookup(&outer)) {
                prop_assert_eq!(replaced.evaluate(&lookup(values)), Some(value));
            }
        }
    }
}
