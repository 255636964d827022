//! What a study is asked for.

use std::num::NonZero;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::RangedU64ValueParser;
use onnxforge_cli::arguments::{gigabytes, seconds};

/// Run every experiment on many models, and write tables, plots and a page.
///
/// Answers are kept in the folder of the results: a study that was interrupted resumes.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Models, or folders of models.
    #[arg(required_unless_present = "summary_only")]
    pub models: Vec<PathBuf>,
    /// The folder for the results.
    #[arg(short, long)]
    pub output: PathBuf,
    /// How many models at a time; time is measured one by one.
    #[arg(long, value_name = "N")]
    pub jobs: Option<NonZero<usize>>,
    /// Memory that all of them together may take, in GB.
    #[arg(long, value_name = "GB", default_value = "16", value_parser = gigabytes)]
    pub memory: u64,
    /// How long one command may take for one model, in seconds.
    #[arg(long, value_name = "SECONDS", default_value = "900", value_parser = seconds)]
    pub timeout: Duration,
    /// How many inputs the tolerance sweep tries.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    pub sweep: usize,
    /// How long to measure the time of each model.
    #[arg(long, value_name = "SECONDS", default_value = "6", value_parser = seconds)]
    pub seconds: Duration,
    /// The class that each model should have, a line of name and class for each, to count how many are recognised.
    #[arg(long, value_name = "FILE")]
    pub labels: Option<PathBuf>,
    /// Measure no times.
    #[arg(long)]
    pub no_bench: bool,
    /// Other seeds make up other inputs and shuffle passes otherwise.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Only ask about this one model, and keep the answers in the folder.
    #[arg(long, hide = true)]
    pub record_only: bool,
    /// Only sum up the answers that the folder of the results keeps.
    #[arg(long, hide = true, conflicts_with_all = ["record_only", "models"])]
    pub summary_only: bool,
}

impl Args {
    /// The command as one would type it, with everything that changes what is measured.
    pub fn command(&self) -> String {
        let mut words = vec!["onnxforge study".to_owned()];
        words.extend(self.models.iter().map(|path| path.display().to_string()));
        words.push(format!("-o {}", self.output.display()));
        words.push(format!("--memory={}", self.memory as f64 / 1e9));
        words.push(format!("--timeout={}", self.timeout.as_secs_f64()));
        words.push(format!("--sweep={} --seed={}", self.sweep, self.seed));
        words.push(match self.no_bench {
            true => "--no-bench".to_owned(),
            false => format!("--seconds={}", self.seconds.as_secs_f64()),
        });
        words.extend(self.labels.iter().map(|path| format!("--labels={}", path.display())));
        words.join(" ")
    }
}
