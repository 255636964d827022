//! Documents name files that exist.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// The documents for users and contributors; those of the study are made by a command.
fn documents(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found: Vec<PathBuf> =
        ["README.md", "CONTRIBUTING.md", "ARCHITECTURE.md"].iter().map(|name| root.join(name)).collect();
    for entry in fs::read_dir(root.join("docs"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "md") {
            found.push(path);
        }
    }
    Ok(found)
}

/// What stands between backticks outside of blocks of code.
fn quoted(text: &str) -> Vec<&str> {
    let prose = text.split("```").step_by(2);
    prose.flat_map(str::lines).flat_map(|line| line.split('`').skip(1).step_by(2)).collect()
}

/// Whether a text looks like a path from the root of the repository: not a command, a pattern or a module's tag.
fn is_path(text: &str) -> bool {
    let known = [".rs", ".py", ".md", ".toml", ".txt", "/"];
    let other = |c: char| c.is_whitespace() || "<>*…:".contains(c);
    text.contains('/')
        && !text.starts_with('/')
        && !text.contains(other)
        && known.iter().any(|end| text.ends_with(end))
}

#[test]
fn files_that_documents_name_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let (mut checked, mut missing) = (0, Vec::new());
    for document in documents(root).unwrap() {
        let text = fs::read_to_string(&document).unwrap();
        for path in quoted(&text).into_iter().filter(|text| is_path(text)) {
            checked += 1;
            if !root.join(path).exists() {
                missing.push(format!("{}: {path}", document.file_name().unwrap().display()));
            }
        }
    }
    assert!(checked > 40, "only {checked} paths were found: are they recognised?");
    assert!(missing.is_empty(), "no such files, from the root of the repository:\n{}", missing.join("\n"));
}

#[test]
fn paths_are_told_from_other_texts() {
    assert!(is_path("crates/onnxforge/src/lib.rs") && is_path("docs/"));
    for other in ["lib.rs", "tests/rules/<pass>.txt", "tests/test_*.py", "cat docs/a.md", "/Model/", "a/b"] {
        assert!(!is_path(other), "{other}");
    }
    assert_eq!(quoted("a `b` c\n```\n`d`\n```\n`e`"), ["b", "e"]);
}
