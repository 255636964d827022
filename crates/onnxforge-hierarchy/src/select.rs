//! Modules as users name them: by path, by tag, or by a pattern of either.

use super::module::{ModuleId, is_inside};
use super::{Hierarchy, Tags};
use onnxforge_ops::check::nearest;

/// There is no such module.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} {wanted:?}{}",
    if wanted.contains('*') { "no module fits" } else { "the model has no module" },
    near.as_ref().map(|near| format!("; did you mean {near:?}?")).unwrap_or_default()
)]
pub struct NoModule {
    /// What was asked for.
    pub wanted: String,
    /// The module that may have been meant.
    pub near: Option<String>,
}

/// The paths that a pattern means: a tag, a path, or either with `*` for one level and `**` for any number of levels.
pub fn select(hierarchy: &Hierarchy, tags: &Tags, pattern: &str) -> Result<Vec<String>, NoModule> {
    let table = hierarchy.table();
    let by_tag = pattern.starts_with('/');
    let wanted = if matches!(pattern, "/" | ".") { "" } else { pattern };
    if !wanted.contains('*') {
        let tagged = by_tag.then(|| tags.find(wanted)).flatten().map(|id| table.get(id).path.to_string());
        let listed = || table.find(wanted).map(|_| wanted.to_owned());
        // A list of modules that is never called is not in every table, but what it holds is.
        let around =
            || table.iter().any(|(_, module)| is_inside(&module.path, wanted)).then(|| wanted.to_owned());
        if let Some(path) = tagged.or_else(listed).or_else(around) {
            return Ok(vec![path]);
        }
    }
    let levels: Vec<&str> = wanted.split(if by_tag { '/' } else { '.' }).collect();
    let matches = |id: ModuleId| {
        let (text, between) = if by_tag { (tags.get(id), '/') } else { (&*table.get(id).path, '.') };
        let whole = !by_tag || tags.kept(id) == id;
        whole && fits(&levels, &text.split(between).collect::<Vec<_>>())
    };
    let found: Vec<String> =
        table.iter().filter(|&(id, _)| matches(id)).map(|(_, module)| module.path.to_string()).collect();
    if found.is_empty() {
        let inside = format!(".{wanted}");
        let ends = || table.iter().map(|(_, module)| &*module.path).find(|path| path.ends_with(&inside));
        let near = match (wanted.contains('*'), by_tag) {
            (true, _) => None,
            (_, true) => tags.similar(wanted),
            _ => nearest(wanted, table.iter().map(|(_, module)| &*module.path)).or_else(ends),
        };
        return Err(NoModule { wanted: pattern.to_owned(), near: near.map(str::to_owned) });
    }
    Ok(found)
}

/// Whether levels fit a pattern of levels.
fn fits(pattern: &[&str], levels: &[&str]) -> bool {
    // Which prefixes of the pattern fit the levels so far.
    let mut fit = vec![false; pattern.len() + 1];
    fit[0] = true;
    let skip = |fit: &mut Vec<bool>| {
        for (at, &part) in pattern.iter().enumerate() {
            if part == "**" && fit[at] {
                fit[at + 1] = true;
            }
        }
    };
    skip(&mut fit);
    for level in levels {
        let mut next = vec![false; pattern.len() + 1];
        for (at, &part) in pattern.iter().enumerate().filter(|&(at, _)| fit[at]) {
            if part == "**" {
                next[at] = true;
            } else if glob(part, level) {
                next[at + 1] = true;
            }
        }
        fit = next;
        skip(&mut fit);
    }
    fit[pattern.len()]
}

/// Whether a text fits a pattern in which `*` stands for anything.
fn glob(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(rest) = parts.next().and_then(|first| text.strip_prefix(first)) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    let mut rest = rest;
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = rest.get(at + part.len()..).unwrap_or_default(),
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        let is = |pattern: &str, path: &str| {
            fits(&pattern.split('.').collect::<Vec<_>>(), &path.split('.').collect::<Vec<_>>())
        };
        assert!(is("encoder.layer.*.attention", "encoder.layer.0.attention"));
        assert!(!is("encoder.layer.*.attention", "encoder.layer.0.attention.self"));
        assert!(!is("encoder.*", "encoder"));
        assert!(is("**.attention", "attention") && is("**.attention", "a.b.attention"));
        assert!(is("a.**.z", "a.z") && is("a.**.z", "a.b.c.z") && !is("a.**.z", "a.b"));
        assert!(is("layer*.0", "layer12.0") && is("*norm*", "layernorm_a") && !is("a*b", "ac"));
        assert!(is("**", "a.b") && is("**.**", "a"));
    }
}
