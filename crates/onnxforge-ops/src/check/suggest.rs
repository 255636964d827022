//! "Did you mean …?": the name nearest to one that does not exist.

use super::problem::Quoted;

/// Names longer than this are not compared.
const LONGEST: usize = 120;

/// How many characters may be compared in one run, so that a model full of wrong names is still checked in linear time.
pub(super) const BUDGET: u64 = 4_000_000;

/// The candidate that differs least from `wanted`, if it differs little enough to be a slip. Draws on `budget`.
pub(super) fn closest<'a>(
    budget: &mut u64,
    wanted: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let letters: Vec<char> = wanted.chars().take(LONGEST + 1).collect();
    if letters.len() > LONGEST {
        return None;
    }
    // Very short names are all alike; there only the case counts as a slip.
    let limit = if letters.len() < 3 { 0 } else { (letters.len() / 4).clamp(1, 3) };
    let mut best: Option<(usize, &str)> = None;
    for candidate in candidates {
        if *budget == 0 {
            break;
        }
        *budget -= 1;
        let distance = if candidate.eq_ignore_ascii_case(wanted) {
            0
        } else if limit == 0
            || candidate.len() + 4 * limit < wanted.len()
            || candidate.len() > 4 * (LONGEST + limit)
        {
            continue;
        } else {
            let other: Vec<char> = candidate.chars().collect();
            if other.len().abs_diff(letters.len()) > limit {
                continue;
            }
            *budget = budget.saturating_sub((other.len() * letters.len()) as u64);
            edits(&letters, &other)
        };
        if distance <= limit && best.is_none_or(|(least, _)| distance < least) {
            best = Some((distance, candidate));
        }
    }
    best.map(|(_, name)| name)
}

/// The candidate that `wanted` is a slip of, if there is one.
pub fn nearest<'a>(wanted: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    closest(&mut { BUDGET }, wanted, candidates)
}

/// The end of a message: a question, or nothing.
pub(super) fn question(name: Option<&str>) -> String {
    name.map_or_else(String::new, |name| format!("; did you mean {}?", Quoted(name)))
}

/// Insertions, deletions, replacements and swaps of neighbours that lead from one to the other.
fn edits(a: &[char], b: &[char]) -> usize {
    // The row in the making and the two before it.
    let mut row: Vec<usize> = Vec::with_capacity(b.len() + 1);
    let mut above: Vec<usize> = (0..=b.len()).collect();
    let mut before: Vec<usize> = Vec::with_capacity(b.len() + 1);
    let at = |row: &[usize], j: usize| row.get(j).copied().unwrap_or(usize::MAX - 1);
    for (i, &x) in a.iter().enumerate() {
        row.clear();
        row.push(i + 1);
        for (j, &y) in b.iter().enumerate() {
            let replaced = at(&above, j) + usize::from(x != y);
            let mut least = replaced.min(at(&above, j + 1) + 1).min(at(&row, j) + 1);
            let swapped = i > 0 && j > 0 && a.get(i - 1) == Some(&y) && b.get(j - 1) == Some(&x);
            if swapped {
                least = least.min(at(&before, j - 1) + 1);
            }
            row.push(least);
        }
        std::mem::swap(&mut before, &mut above);
        std::mem::swap(&mut above, &mut row);
    }
    above.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_counted() {
        let count = |a: &str, b: &str| edits(&a.chars().collect::<Vec<_>>(), &b.chars().collect::<Vec<_>>());
        assert_eq!(count("", "abc"), 3);
        assert_eq!(count("kitten", "sitting"), 3);
        assert_eq!(count("conv", "covn"), 1);
        assert_eq!(count("same", "same"), 0);
    }

    #[test]
    fn only_slips_are_suggested() {
        let names = ["Relu", "Sigmoid", "x", "LeakyRelu"];
        let mut budget = BUDGET;
        let mut closest = |name| closest(&mut budget, name, names);
        assert_eq!(closest("Relo"), Some("Relu"));
        assert_eq!(closest("Sigmiod"), Some("Sigmoid"));
        assert_eq!(closest("leakyrelu"), Some("LeakyRelu"));
        assert_eq!(closest("X"), Some("x"));
        assert_eq!(closest("y"), None);
        assert_eq!(closest("Softmax"), None);
        assert_eq!(closest(&"R".repeat(10_000)), None);
    }

    #[test]
    fn the_budget_ends_the_search() {
        let mut budget = 3;
        assert_eq!(closest(&mut budget, "abcd", ["1", "2", "3", "abce"]), None);
        assert_eq!(budget, 0);
    }
}
