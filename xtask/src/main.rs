//! The chores of this repository: `cargo xtask --help`.

#![allow(clippy::print_stdout, clippy::print_stderr)]

mod bench;
mod default_run;
mod fuzz;
mod hierarchy;
mod latency;
mod lint;
mod measure;
mod models;
mod peers;
mod python;
mod step;
mod study;
mod test;
mod verification;
mod wasm;
mod zoo;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Tests, benchmarks, fuzzing and the model zoo of onnxforge.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Run every test: Rust, then Python against the built command line and the installed package, then PyTorch's exports
    Test {
        /// Run only the tests whose name contains this
        filter: Option<String>,
        /// Leave the Python tests out
        #[arg(long)]
        no_python: bool,
        /// Leave out the tests with PyTorch, whose environment takes 6 GB
        #[arg(long)]
        no_torch: bool,
        /// Leave out the tests of the report's page, which need Chromium
        #[arg(long)]
        no_browser: bool,
    },
    /// Check formatting and run clippy; warnings are errors
    Lint,
    /// Build the wheel of the Python package as users get it
    Wheel,
    /// Build the library as a WebAssembly module, and compare what it makes of a model with the command line's result
    Wasm {
        /// Skip it, and say why, where Rust for wasm32-unknown-unknown or Node is missing
        #[arg(long)]
        if_possible: bool,
    },
    /// Measure, print a table, assert nothing
    #[command(subcommand)]
    Bench(Bench),
    /// Try random graphs: inference against runs, evaluation against ONNX Runtime
    Graphs {
        /// How many graphs
        #[arg(long, default_value_t = 100_000)]
        count: u64,
        /// The first seed
        #[arg(long, default_value_t = 0)]
        seed: u64,
    },
    /// Run a fuzz target, or all of them, on stable Rust
    Fuzz {
        /// A target, or `all`
        target: String,
        /// How long to run each target
        #[arg(long, default_value_t = 60)]
        seconds: u64,
    },
    /// Run every experiment on the whole zoo, and write docs/study
    Study(study::Settings),
    /// The models in `zoo/`
    #[command(subcommand)]
    Zoo(Zoo),
}

#[derive(Debug, Subcommand)]
enum Bench {
    /// Saving a model against copying its files
    Io(bench::Options),
    /// The whole command `optimize` against onnxsim's and OnnxSlim's, and against copying the files
    Optimize(peers::Options),
    /// The default command, verified, against onnxsim's and OnnxSlim's, and against loading and running the original
    Default(default_run::Options),
    /// How many shapes are inferred, beside onnx and ONNX Runtime
    Shapes(models::Options),
    /// Results of our evaluator against ONNX Runtime, on the zoo and on trained models from PyPI
    Models(models::Options),
    /// Time of our evaluator against ONNX Runtime
    Speed(models::Options),
    /// Rounding of ONNX Runtime's float32 against our float64 run
    Oracle(models::Options),
    /// What the passes leave of the zoo, in which orders, and whether ONNX Runtime gets the same from it
    Passes(models::Converted),
    /// ONNX Runtime's time for models as they were and for what the passes leave of them, and whether fewer nodes are faster
    Latency(latency::Settings),
    /// What verification costs beside loading and running a model, and what it says, of ours and of other tools' results
    Verify(verification::Settings),
    /// Which models optimize compares with their originals, at which sizes, and why it does not compare others
    Compared {
        /// Models, and folders of them
        #[arg(required = true)]
        folders: Vec<PathBuf>,
    },
    /// What exact rewrites leave of models, and whether ONNX Runtime gives the same bits
    Exact(models::Options),
    /// How many nodes are known to come from a module, whether modules can be cut out, and whether that survives optimization
    Hierarchy(hierarchy::Settings),
    /// How many nodes ONNX Runtime runs after its own fusions, for models as they were and for what we make of them
    Census(models::Options),
    /// Conversions to newer operator sets, ours and those of onnx, on all test cases of the onnx package
    Upgrade,
    /// Our node counts beside those of other tools, on models with the results of these tools, such as their tests have
    Results {
        /// Models (`NAME.onnx`), and beside each what a tool made of it (`NAME.TOOL.onnx`)
        #[arg(long, value_name = "DIR")]
        models: PathBuf,
    },
    /// ONNX Runtime's time for attention: decomposed, as the standard operator, and as its own
    Attention,
    /// Time of products of a batch with weights, as MatMul and Add or as Reshape, Gemm and Reshape, in each engine
    Products,
    /// ONNX Runtime's time for one token of a LLaMA with a cache: the export, its own optimization, ours, and onnxruntime-genai's model
    Decoding {
        /// For the script: --layers 4, --contexts 128 1024, --keep FOLDER, ...
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Transposes of models that are full of them: what we leave, what peers leave, and ONNX Runtime's time
    Transposes(models::Compared),
}

#[derive(Debug, Subcommand)]
enum Zoo {
    /// Show what there is
    List,
    /// Give models their weights
    Materialize {
        /// Names that `list` shows
        #[arg(required = true)]
        names: Vec<String>,
        /// Where to write them
        #[arg(short, long)]
        output: PathBuf,
        /// Where weights go: auto, inline or split
        #[arg(long, default_value = "auto")]
        external: String,
    },
}

fn main() -> ExitCode {
    let done = match Cli::parse().task {
        Task::Test { filter, no_python, no_torch, no_browser } => {
            let torch = !no_python && !no_torch;
            let kinds = test::Kinds { python: !no_python, torch, browser: !no_browser };
            test::run(filter.as_deref(), kinds)
        }
        Task::Lint => lint::run(),
        Task::Wheel => python::wheel(),
        Task::Wasm { if_possible } => wasm::run(if_possible),
        Task::Bench(Bench::Io(options)) => bench::run(&options),
        Task::Bench(Bench::Optimize(options)) => peers::run(&options),
        Task::Bench(Bench::Default(options)) => default_run::run(&options),
        Task::Bench(Bench::Shapes(options)) => models::shapes(&options),
        Task::Bench(Bench::Models(options)) => models::accuracy(&options),
        Task::Bench(Bench::Speed(options)) => models::speed(&options),
        Task::Bench(Bench::Oracle(options)) => models::oracle(&options),
        Task::Bench(Bench::Passes(options)) => models::passes(&options),
        Task::Bench(Bench::Latency(options)) => latency::run(&options),
        Task::Bench(Bench::Verify(options)) => verification::run(&options),
        Task::Bench(Bench::Compared { folders }) => models::compared(&folders),
        Task::Bench(Bench::Exact(options)) => models::exact(&options),
        Task::Bench(Bench::Hierarchy(settings)) => hierarchy::run(&settings),
        Task::Bench(Bench::Census(options)) => models::census(&options),
        Task::Bench(Bench::Upgrade) => models::upgrade(),
        Task::Bench(Bench::Results { models }) => models::results(&models),
        Task::Bench(Bench::Attention) => models::attention(),
        Task::Bench(Bench::Products) => models::products(),
        Task::Bench(Bench::Decoding { arguments }) => models::decoding(&arguments),
        Task::Bench(Bench::Transposes(options)) => models::transposes(&options),
        Task::Graphs { count, seed } => test::graphs(count, seed),
        Task::Fuzz { target, seconds } => fuzz::run(&target, seconds),
        Task::Study(settings) => study::run(&settings),
        Task::Zoo(Zoo::List) => zoo::list(),
        Task::Zoo(Zoo::Materialize { names, output, external }) => {
            zoo::materialize_all(&names, &output, &external)
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
