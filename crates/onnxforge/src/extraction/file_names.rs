//! Names of files for modules.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

/// The files of modules: no two have the same, and none lies outside of its folder.
#[derive(Debug, Default)]
pub struct FileNames {
    /// In small letters: to some systems large ones are the same.
    taken: HashSet<String>,
    /// How often a name was asked for.
    asked: HashMap<String, usize>,
}

impl FileNames {
    /// The file of a module, given its path.
    pub fn of(&mut self, path: &str) -> PathBuf {
        /// A number and the ending fit behind it on any system.
        const LONGEST: usize = 200;
        let is_safe = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
        let safe = |letter: char| if is_safe(letter) { letter } else { '_' };
        let name: String = path.chars().take(LONGEST).map(safe).collect();
        let name = match name.trim_start_matches('.') {
            "" => "model",
            name => name,
        };
        let asked = self.asked.entry(name.to_ascii_lowercase()).or_default();
        loop {
            *asked += 1;
            let file = if *asked == 1 { name.to_owned() } else { format!("{name}-{asked}") };
            if self.taken.insert(file.to_ascii_lowercase()) {
                return PathBuf::from(format!("{file}.onnx"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_module_has_a_file_of_its_own() {
        let mut names = FileNames::default();
        let mut file = |path: &str| names.of(path).display().to_string();
        assert_eq!(
            (file(""), file("model"), file("a.b")),
            ("model.onnx".into(), "model-2.onnx".into(), "a.b.onnx".into())
        );
        assert_eq!(
            (file("a/b"), file("a_b"), file("A b")),
            ("a_b.onnx".into(), "a_b-2.onnx".into(), "A_b-3.onnx".into())
        );
        assert_eq!(
            (file("a_b-4"), file("a\nb"), file("a:b")),
            ("a_b-4.onnx".into(), "a_b-5.onnx".into(), "a_b-6.onnx".into())
        );
        assert_eq!((file("../../x"), file("..")), ("_.._x.onnx".into(), "model-3.onnx".into()));
        assert!(file(&"é".repeat(5000)).len() < 255);
    }
}
