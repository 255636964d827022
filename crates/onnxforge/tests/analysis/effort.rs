//! What runs take: operations and memory, as expressions and at sizes.

use std::collections::HashMap;

use onnxforge::analysis::effort::{Effort, effort};

use crate::golden;

fn of(text: &str, sizes: &[(&str, u64)]) -> Effort {
    let sizes: HashMap<String, u64> = sizes.iter().map(|(name, size)| ((*name).to_owned(), *size)).collect();
    effort(&golden::load(text), &sizes)
}

const PRODUCT: &str = "g (float[N,2] x) => (float[N,3] y) <float[2,3] w = {1, 2, 3, 4, 5, 6}, float[3] b = {1, 2, 3}> { p = MatMul(x, w) y = Add(p, b) }";

#[test]
fn products_are_multiplications_with_additions() {
    let found = of(PRODUCT, &[("N", 10)]);
    assert_eq!((found.flops.value, found.macs.value), (10 * (2 * 2 * 3 + 3), 10 * 2 * 3));
    assert_eq!(found.macs.expression.as_deref(), Some("6*N"));
    assert_eq!(found.flops.expression.as_deref(), Some("15*N"));
    assert!(found.assumed.is_empty());
}

#[test]
fn sizes_that_are_not_given_are_one() {
    let found = of(PRODUCT, &[]);
    assert_eq!((found.macs.value, found.assumed.as_slice()), (6, &["N".to_owned()][..]));
}

#[test]
fn memory_is_that_of_what_is_alive_together() {
    // x throughout; p while the sum runs, and y: 8 N + 12 N + 12 N bytes.
    let found = of(PRODUCT, &[("N", 10)]);
    assert_eq!(found.memory.value, 320);
    assert_eq!(found.memory.expression.as_deref(), Some("32*N"));
    assert_eq!(found.memory_at.as_deref(), Some("Add y"));
    // Two links of a chain at a time, however long it is.
    let chain =
        of("g (float[N] x) => (float[N] y) { a = Neg(x) b = Abs(a) c = Neg(b) y = Abs(c) }", &[("N", 1)]);
    assert_eq!(chain.memory.value, 3 * 4);
    // What something needs later stays.
    let later =
        of("g (float[N] x) => (float[N] y) { a = Neg(x) b = Abs(a) c = Neg(b) y = Add(a, c) }", &[("N", 1)]);
    assert_eq!(later.memory.value, 4 * 4);
}

#[test]
fn what_a_body_reads_is_alive() {
    let text = "g (bool c, float[4] x) => (float[4] y) {
        a = Neg(x)
        b = Abs(x)
        y = If(c) <then_branch = t () => (float[4] p) { p = Neg(a) }, else_branch = e () => (float[4] q) { q = Abs(b) }> }";
    let found = of(text, &[]);
    // c, x, a, b and y.
    assert_eq!(found.memory.value, 1 + 4 * 16);
    assert_eq!(found.unknown_nodes, 1);
}

#[test]
fn what_is_not_known_is_counted() {
    let found = of("g (float x) => (float y) { a = Neg(x) y = Abs(a) }", &[]);
    assert!(found.unknown_values > 0 || found.memory.value > 0);
    let found = of("g (float[N] x, int64[K] s) => (float y) { r = Reshape(x, s) y = Neg(r) }", &[]);
    assert!(found.unknown_values >= 2 && found.unknown_nodes >= 1, "{found:?}");
}
