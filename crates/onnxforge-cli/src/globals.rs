//! Options that all commands take.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

use onnxforge::io::LinkPolicy;

/// Where `--json` goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JsonTarget {
    /// Standard output, instead of the text.
    Stdout,
    /// A file, beside the text.
    File(PathBuf),
}

impl FromStr for JsonTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "-" {
            return Ok(Self::Stdout);
        }
        if text.ends_with(".onnx") {
            return Err("this looks like a model; write --json after the models".to_owned());
        }
        Ok(Self::File(text.into()))
    }
}

/// Options that all commands take.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Globals {
    /// Write the result as JSON, to FILE or to standard output.
    #[arg(long, global = true, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<JsonTarget>,

    /// Say nothing but errors.
    #[arg(short, long, global = true)]
    pub quiet: bool,

    /// Say more; twice for even more.
    #[arg(short, long, global = true, action = clap::ArgAction::Count, conflicts_with = "quiet")]
    pub verbose: u8,

    /// Accept external data behind links that leave the model's folder (caches store weights that way).
    #[arg(long, global = true)]
    pub follow_links: bool,
}

impl Globals {
    /// What is logged.
    pub fn level(&self) -> tracing::Level {
        match (self.quiet, self.verbose) {
            (true, _) => tracing::Level::ERROR,
            (_, 0) => tracing::Level::WARN,
            (_, 1) => tracing::Level::INFO,
            _ => tracing::Level::DEBUG,
        }
    }

    /// What links external data may lie behind.
    pub fn links(&self) -> LinkPolicy {
        LinkPolicy { follow: self.follow_links }
    }

    /// The same options as words, for another program of ours.
    pub fn words(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> = Vec::new();
        match &self.json {
            Some(JsonTarget::Stdout) => words.push("--json=-".into()),
            Some(JsonTarget::File(path)) => {
                let mut word = OsString::from("--json=");
                word.push(path);
                words.push(word);
            }
            None => {}
        }
        words.extend(self.quiet.then(|| "--quiet".into()));
        words.extend((0..self.verbose).map(|_| "--verbose".into()));
        words.extend(self.follow_links.then(|| "--follow-links".into()));
        words
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Words {
        #[command(flatten)]
        globals: Globals,
    }

    #[test]
    fn options_survive_being_handed_over() {
        let given: &[&[&str]] = &[
            &[],
            &["--json=-", "--quiet"],
            &["--json=out.json", "--verbose", "--verbose", "--follow-links"],
        ];
        for given in given {
            let words = Words::try_parse_from(["x"].iter().chain(given.iter())).unwrap();
            assert_eq!(words.globals.words(), *given);
        }
    }

    #[test]
    fn json_target_is_not_mistaken_for_a_model() {
        assert_eq!("-".parse(), Ok(JsonTarget::Stdout));
        assert!("model.onnx".parse::<JsonTarget>().is_err());
    }
}
