use super::*;

/// `n, m ≥ 0`, `b, k ≥ 1`, `v` and `w` unbounded.
fn table() -> Symbols {
    let mut symbols = Symbols::default();
    for name in ["n", "m", "b", "k"] {
        symbols.named(name);
    }
    for name in ["b", "k"] {
        let symbol = symbols.named(name);
        symbols.raise_lower(symbol, 1);
    }
    for name in ["v", "w"] {
        symbols.named_value(name);
    }
    symbols
}

fn read(text: &str, symbols: &mut Symbols) -> Dim {
    let dim = Dim::parse(text, symbols);
    dim.unwrap_or_else(|| panic!("not read: {text}"))
}

/// Asserts the normal form of each text.
fn normal(cases: &[(&str, &str)]) {
    let mut symbols = table();
    for (text, expected) in cases {
        let dim = read(text, &mut symbols);
        assert_eq!(dim.display(&symbols).to_string(), *expected, "{text}");
    }
}

#[test]
fn sums_and_products() {
    normal(&[
        ("2 + 3*4", "14"),
        ("n - n", "0"),
        ("n + n + 1 + n", "3*n + 1"),
        ("m + n", "n + m"),
        ("(n + 1)*(n - 1)", "n**2 - 1"),
        ("2*(n + m)*3", "6*n + 6*m"),
        ("n*m - m*n", "0"),
        ("-(n - 2)", "-n + 2"),
        ("(n + m)**2", "n**2 + 2*n*m + m**2"),
        ("n**0", "1"),
    ]);
}

#[test]
fn floor_division() {
    normal(&[
        ("7//2", "3"),
        ("(-7)//2", "-4"),
        ("7//(-2)", "-4"),
        ("v//1", "v"),
        ("(4*v)//4", "v"),
        ("(4*v + 7)//4", "v + 1"),
        ("(4*v - 1)//4", "v - 1"),
        ("(5*n + 9)//4", "n + (n + 1)//4 + 2"),
        ("(6*v + 3)//4", "v + (v + 1)//2"),
        ("(2*n + 5)//4", "n//2 + 1"),
        ("(2*n + 6)//4", "(n + 1)//2 + 1"),
        ("(n//2)//3", "n//6"),
        ("((n + 1)//2 + 1)//2", "(n + 3)//4"),
        ("(n - n//2)//2", "(n + 1)//4"),
        ("(n + 3)//(-2)", "-(n//2) - 2"),
        ("(-n)//4", "-((n + 3)//4)"),
        ("n//(-4)", "-((n + 3)//4)"),
    ]);
}

#[test]
fn floor_division_by_symbols() {
    normal(&[
        ("(v*b)//b", "v"),
        ("(v*n)//n", "(n*v)//n"),
        ("n//n", "n//n"),
        ("b//b", "1"),
        ("0//b", "0"),
        ("(v*b + w)//b", "v + w//b"),
        ("(v*b + b - 1)//b", "v"),
        ("(n*b)//(k*b)", "n//k"),
        ("(6*n*b)//(4*b)", "n + n//2"),
        ("(n//b)//k", "n//(b*k)"),
        ("(b - 1)//b", "0"),
        ("(n*m*b)//(-b)", "-n*m"),
        ("v//w", "v//w"),
        ("v//(-w)", "(-v)//w"),
    ]);
}

#[test]
fn ceiling_and_modulo_are_floor_forms() {
    normal(&[
        ("ceil(n/2)", "(n + 1)//2"),
        ("-((-n)//2)", "(n + 1)//2"),
        ("ceil(n*b/b)", "n"),
        ("ceil(n/b)", "(n - 1)//b + 1"),
        ("n % 1", "0"),
        ("(4*v) % 4", "0"),
        ("v % 4 + 4*(v//4)", "v"),
        ("(v + 4*w) % 4 - v % 4", "0"),
        ("(v % 4) % 4", "v - 4*(v//4)"),
        ("(v % 4)//4", "0"),
        ("(v*b) % b", "0"),
        ("(-7) % 4", "1"),
        ("7 % -4", "-1"),
    ]);
}

#[test]
fn minimum_and_maximum() {
    normal(&[
        ("min(3, 5)", "3"),
        ("max(n, n)", "n"),
        ("max(0, n)", "n"),
        ("max(1, n)", "max(n, 1)"),
        ("max(1, b)", "b"),
        ("min(n, n + 1)", "n"),
        ("max(n, m, n + 2)", "max(n + 2, m)"),
        ("max(max(n, 3), max(m, 5))", "max(n, m, 5)"),
        ("min(n, n + m)", "n"),
        ("min(n, max(n, m))", "n"),
        ("min(n, n//2)", "n//2"),
        ("min(n, 9223372036854775807)", "n"),
        ("max(v, -9223372036854775808)", "v"),
        ("max(0, n - min(n, 3))", "n - min(n, 3)"),
        ("min(n*b, n)", "n"),
    ]);
}

#[test]
fn truncation_needs_signs() {
    let mut symbols = table();
    let mut trunc = |x: &str, b: &str| {
        let (x, b) = (read(x, &mut symbols), read(b, &mut symbols));
        x.trunc_div(&b, &symbols).map(|dim| dim.display(&symbols).to_string())
    };
    assert_eq!(trunc("-7", "2").as_deref(), Some("-3"));
    assert_eq!(trunc("n", "2").as_deref(), Some("n//2"));
    assert_eq!(trunc("-n", "2").as_deref(), Some("-(n//2)"));
    assert_eq!(trunc("n", "-2").as_deref(), Some("-(n//2)"));
    assert_eq!(trunc("-n", "-2").as_deref(), Some("n//2"));
    assert_eq!(trunc("v", "2"), None);
    assert_eq!(trunc("4*v", "2").as_deref(), Some("2*v"));
    assert_eq!(trunc("n*m", "m").as_deref(), Some("(n*m)//m"));
    assert_eq!(trunc("n", "0"), None);
}

#[test]
fn exact_quotients() {
    let mut symbols = table();
    let mut exact = |x: &str, b: &str| {
        let (x, b) = (read(x, &mut symbols), read(b, &mut symbols));
        x.divide_exact(&b).map(|dim| dim.display(&symbols).to_string())
    };
    assert_eq!(exact("n*m*768", "n*12*64").as_deref(), Some("m"));
    assert_eq!(exact("n*m*768", "n*m").as_deref(), Some("768"));
    assert_eq!(exact("n**2 - m**2", "n + m").as_deref(), Some("n - m"));
    assert_eq!(exact("n*m + n", "m + 1").as_deref(), Some("n"));
    assert_eq!(exact("8*(n//2)", "4*(n//2)").as_deref(), Some("2"));
    assert_eq!(exact("n*m", "0"), None);
    assert_eq!(exact("3*n", "2"), None);
    assert_eq!(exact("n", "m"), None);
    assert_eq!(exact("0", "m").as_deref(), Some("0"));
}

#[test]
fn proofs() {
    let mut symbols = table();
    let mut le = |a: &str, b: &str| {
        let (a, b) = (read(a, &mut symbols), read(b, &mut symbols));
        a.provably_le(&b, &symbols)
    };
    assert!(le("0", "n"));
    assert!(le("n//2", "n"));
    assert!(le("n", "n*b"));
    assert!(le("0", "n - (3*n)//4"));
    assert!(le("0", "v % 4") && le("v % 4", "3"));
    assert!(le("0", "v % b") && le("v % b", "b - 1"));
    assert!(le("min(n, m)", "max(n, 3)"));
    assert!(le("1", "n*m + 1"));
    assert!(le("1", "(n - 1)//2 + 2") && le("0", "(n + 1)//2 - n//2"));
    assert!(le("n//b", "n"));
    assert!(le("0", "v**2"));
    assert!(!le("v", "v**2 - 1") && !le("1", "n") && !le("n", "n*m") && !le("n", "3*(n//3)"));
    assert!(!le("v//2", "v"));

    let mut different = |a: &str, b: &str| {
        let (a, b) = (read(a, &mut symbols), read(b, &mut symbols));
        a.provably_different(&b, &symbols)
    };
    assert!(different("n", "n + 1") && different("2*v", "2*w + 1") && different("b + n", "0"));
    assert!(different("-b", "n") && different("3", "4"));
    assert!(!different("n", "m") && !different("n", "0") && !different("2*v", "3*w + 1"));

    let halves = read("n//2 + (n + 1)//2", &mut symbols);
    assert!(!halves.is_const() && halves != read("n", &mut symbols));
    let (lower, upper) = (read("v % 7", &mut symbols), read("v % 7 - 7", &mut symbols));
    assert_eq!((lower.lower_bound(&symbols), lower.upper_bound(&symbols)), (Some(0), Some(6)));
    assert!(upper.provably_negative(&symbols) && !upper.provably_nonneg(&symbols));
}

#[test]
fn unknowns_are_distinct() {
    let mut symbols = Symbols::default();
    let (a, b) = (Dim::from(symbols.fresh()), Dim::from(symbols.fresh()));
    assert_ne!(a, b);
    assert!(!a.provably_equal(&b, &symbols) && !a.provably_different(&b, &symbols));
    assert_eq!(symbols.named("batch"), symbols.named("batch"));
    assert_eq!(b.display(&symbols).to_string(), "?1");
    let value = symbols.fresh_value();
    assert_eq!((symbols.lower(value), symbols.get("batch").is_some()), (None, true));
}

#[test]
fn anonymous_and_given_names_never_collide() {
    let mut symbols = Symbols::default();
    let unknown = symbols.fresh();
    assert_eq!(symbols.name(unknown), "?0");
    let (given, later) = (symbols.named("?0"), symbols.named("?2"));
    let more = [symbols.fresh(), symbols.fresh()];
    let names: BTreeSet<_> =
        [unknown, given, later, more[0], more[1]].map(|s| symbols.name(s).into_owned()).into();
    assert_eq!(names.len(), 5);
    assert_eq!(symbols.name(given), "?0");
    assert!(symbols.is_anonymous(unknown) && !symbols.is_anonymous(given));
}

#[test]
fn budgets_end_in_none() {
    let mut symbols = table();
    let n = Dim::from(symbols.named("n"));
    let max = Dim::from(i64::MAX);
    assert_eq!(max.add(&Dim::ONE), None);
    assert_eq!(n.mul(&max).and_then(|x| x.add(&x)), None);
    assert_eq!(Dim::from(i64::MIN).neg(), None);
    assert_eq!(Dim::from(i64::MIN).floor_div(&Dim::from(-1), &symbols), None);
    assert_eq!(Dim::from(i64::MIN).modulo(&Dim::from(-1), &symbols), Some(Dim::ZERO));
    assert_eq!(n.floor_div(&Dim::ZERO, &symbols), None);
    assert_eq!(n.modulo(&Dim::ZERO, &symbols), None);
    assert_eq!(n.pow(1_000_000), None);

    let many: Vec<Dim> = (0..100).map(|_| Dim::from(symbols.fresh())).collect();
    assert!(Dim::sum(&many[..64]).is_some());
    assert_eq!(Dim::sum(&many), None);
    assert!(Dim::product(&many[..32]).is_some());
    assert_eq!(Dim::product(&many), None);
    let wide = Dim::sum(&many[..60]).unwrap();
    assert_eq!(wide.mul(&wide), None);

    let mut nest = Dim::from(symbols.fresh_value());
    let mut depth = 0;
    while let Some(deeper) = nest.floor_div(&Dim::from(symbols.fresh_value()), &symbols) {
        (nest, depth) = (deeper, depth + 1);
    }
    assert_eq!(depth, 16);
}

#[test]
fn values_and_substitution() {
    let mut symbols = table();
    let dim = read("max(n, 3)*((n + 1)//2) - m", &mut symbols);
    let [n, m] = ["n", "m"].map(|name| symbols.named(name));
    assert_eq!(dim.symbols(), BTreeSet::from([n, m]));
    let assign = |symbol| if symbol == n { Some(7) } else { Some(1) };
    assert_eq!(dim.evaluate(&assign), Some(27));
    assert_eq!(dim.evaluate(&|_| None), None);
    assert_eq!(read("n//m", &mut symbols).evaluate(&|_| Some(0)), None);
    let two_b = read("2*b + 4", &mut symbols);
    let replaced = dim.substitute(&|symbol| (symbol == n).then(|| two_b.clone()), &symbols);
    assert_eq!(replaced, Some(read("(2*b + 4)*(b + 2) - m", &mut symbols)));
}

#[test]
fn exporter_spellings() {
    normal(&[
        ("2*seq + 1", "2*seq + 1"),
        ("floor(n/2)", "n//2"),
        ("floor(n/2 + 1/2)", "(n + 1)//2"),
        ("(s0 + 1)//2", "(s0 + 1)//2"),
        ("Max(1, s0)", "max(s0, 1)"),
        ("past_sequence_length + sequence_length", "past_sequence_length + sequence_length"),
        ("ceiling(s0/4) - 1", "(s0 + 3)//4 - 1"),
        ("FloorDiv(s0, 2)*Mod(s1, 2)", "s1*(s0//2) - 2*(s1//2)*(s0//2)"),
        ("-(-s0//2)", "(s0 + 1)//2"),
        ("4*n/2", "2*n"),
        ("?3 + 'batch-size'", "?3 + 'batch-size'"),
        ("'it''s'", "'it''s'"),
    ]);
}

#[test]
fn not_expressions() {
    let mut symbols = table();
    let known = symbols.len();
    let deep = "(".repeat(5000) + "n" + &")".repeat(5000);
    let signs = "-".repeat(3000) + "n";
    for text in [
        "",
        " ",
        "?",
        "batch-size",
        "dim-1",
        "batch size",
        "n/2",
        "2*(n/2)",
        "n +",
        "2n",
        "n..m",
        "f(n)",
        "max()",
        "(n",
        "n)",
        "'n",
        "1.5*n",
        "n**m",
        "n**-1",
        "n//0",
        "n % 0",
        "n/0",
        "99999999999999999999",
        "é",
        "n**2**3",
        "floor(n, m)",
        "? 3",
        &deep,
        &signs,
    ] {
        assert_eq!(Dim::parse(text, &mut symbols), None, "{text}");
        assert_eq!(symbols.len(), known, "{text}");
    }
}

#[test]
fn dim_params() {
    let mut symbols = Symbols::default();
    for text in ["batch", "batch-size", "2*n + 1", "N/2", "?7", "é", "unk__607"] {
        let dim = Dim::from_param(text, &mut symbols);
        assert_eq!(dim.to_param(&symbols), text);
        assert_eq!(Dim::from_param(text, &mut symbols), dim);
    }
    for text in ["", "?", "-1"] {
        let first = Dim::from_param(text, &mut symbols);
        assert_ne!(first, Dim::from_param(text, &mut symbols));
    }
    let odd = Dim::from(symbols.named("2*n"));
    assert_eq!(odd.to_param(&symbols), "'2*n'");
    assert_eq!(Dim::from_param("'2*n'", &mut symbols), odd);
}

#[test]
fn dimensions_that_are_broadcast_together() {
    let mut symbols = Symbols::default();
    let [a, b, c] = ["a", "b", "c"].map(|name| Dim::from(symbols.named(name)));
    let ab = symbols.join(&a, &b);
    assert_eq!(
        (symbols.join(&b, &a), symbols.join(&ab, &b), symbols.join(&a, &ab)),
        (ab.clone(), ab.clone(), ab.clone())
    );
    assert_eq!(symbols.join(&a, &a), a);
    let bc = symbols.join(&b, &c);
    assert_ne!(bc, ab);
    assert_eq!(symbols.join(&ab, &c), symbols.join(&a, &bc));
    let lowest = |dim: &Dim, symbols: &Symbols| dim.lower_bound(symbols);
    assert_eq!(lowest(&ab, &symbols), Some(0));
    for dim in [&a, &c] {
        symbols.raise_lower(dim.as_symbol().unwrap(), 1);
    }
    let ac = symbols.join(&a, &c);
    assert_eq!(lowest(&ac, &symbols), Some(1));
}
