use super::*;

fn tokens(source: &str) -> Result<Vec<Token<'_>>, ParseError> {
    let mut lexer = Lexer::new(source);
    let mut tokens = Vec::new();
    loop {
        match lexer.next()?.0 {
            Token::End => return Ok(tokens),
            token => tokens.push(token),
        }
    }
}

#[test]
fn every_kind_of_token() {
    use Token::*;
    assert_eq!(
        tokens("a_1 -12 1. -2.5e-3 0x7F -inf - = . .. ... $@?| # rest\n\"q\\\"\\n\"").unwrap(),
        [
            Ident("a_1"),
            Int("-12"),
            Float("1."),
            Float("-2.5e-3"),
            Bits(0x7f),
            Float("-inf"),
            Punct('-'),
            Punct('='),
            Punct('.'),
            DotDot,
            Ellipsis,
            Punct('$'),
            Punct('@'),
            Punct('?'),
            Punct('|'),
            Text("q\"n".into()),
        ]
    );
    assert_eq!(tokens(r#"b"\xff\n" x"0aFf" xb"""#).unwrap().len(), 4);
    assert_eq!(tokens("1..3").unwrap(), [Int("1"), DotDot, Int("3")]);
}

#[test]
fn a_note_is_the_rest_of_its_line() {
    use Token::*;
    assert_eq!(
        tokens("a #@ b # c\nd #@").unwrap(),
        [Ident("a"), NoteStart, Ident("b"), NoteEnd, Ident("d"), NoteStart, NoteEnd]
    );
    assert!(tokens("#@ \"a\nb\"").is_err());
}

#[test]
fn errors_say_where() {
    for (source, line, column) in [
        ("\"", 1, 1),
        ("é", 1, 1),
        ("a\n \"é\" x\"0\"", 2, 7),
        ("b\"\\q\"", 1, 2),
        ("1e", 1, 1),
        ("0x", 1, 1),
    ] {
        let error = tokens(source).unwrap_err();
        assert_eq!((error.line, error.column), (line, column), "{source:?}: {error}");
    }
}
