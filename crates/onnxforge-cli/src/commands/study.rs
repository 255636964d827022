//! `onnxforge study`: every experiment on many models, tables, plots and a page.
//!
//! The study measures nothing by itself: each cell is what another command answers. Answers are kept as they come, so a study that was
//! interrupted goes on where it was, and a model that cannot be studied is a row that says why.

mod corpus;
mod experiments;
mod page;
mod step;
mod table;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use clap::builder::RangedU64ValueParser;
use onnxforge::cancel::checkpoint;
use onnxforge::io::load::folder_of;
use onnxforge::passes::targets::PORTABLE;
use onnxforge::progress::{Silent, Unit};
use onnxforge::random::Random;
use serde::Serialize;
use serde_json::Value;

use self::corpus::{Corpus, Studied};
use self::step::{Answer, Desk, Stamp, Step};
use super::run::{gigabytes, seconds};
use crate::failure::{Failure, Verdict};
use crate::files::WrittenFile;
use crate::jobs;
use crate::output::{Output, bytes};
use crate::process::Limits;

/// How often the order of passes is shuffled.
const SHUFFLES: u64 = 5;
/// Memory that a process takes besides the model.
const OVERHEAD: u64 = 1 << 30;
/// Bytes from which on models are compared block by block, which takes no more memory than this.
const LARGE: u64 = 1 << 30;
/// How often a job that waits for memory asks whether anybody still wants it.
const LOOK: Duration = Duration::from_millis(100);
/// How far results may move in the sweep.
const MOVED: f64 = 1e-3;
/// The sizes of named dimensions that are not the first of an input, where time is measured: as usual, and of short inputs.
const LENGTH: usize = 128;
const SHORT: usize = 8;

/// Run every experiment on many models, and write tables, plots and a page.
///
/// Answers are kept in the folder of the results: a study that was interrupted goes on where it was.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Models, or folders of models.
    #[arg(required_unless_present = "summary_only")]
    models: Vec<PathBuf>,
    /// The folder for the results.
    #[arg(short, long)]
    output: PathBuf,
    /// How many models at a time; time is measured one by one.
    #[arg(long, value_name = "N")]
    jobs: Option<NonZero<usize>>,
    /// Memory that all of them together may take, in GB.
    #[arg(long, value_name = "GB", default_value = "16", value_parser = gigabytes)]
    memory: u64,
    /// How long one command may take for one model, in seconds.
    #[arg(long, value_name = "SECONDS", default_value = "900", value_parser = seconds)]
    timeout: Duration,
    /// How many inputs the tolerance sweep tries.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    sweep: usize,
    /// How long to measure the time of each model.
    #[arg(long, value_name = "SECONDS", default_value = "6", value_parser = seconds)]
    seconds: Duration,
    /// The class that each model should have, a line of name and class for each, to count how many are recognised.
    #[arg(long, value_name = "FILE")]
    labels: Option<PathBuf>,
    /// Measure no times.
    #[arg(long)]
    no_bench: bool,
    /// Other seeds make up other inputs and shuffle passes otherwise.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Only ask about this one model, and keep the answers in the folder.
    #[arg(long, hide = true)]
    record_only: bool,
    /// Only sum up the answers that the folder of the results keeps.
    #[arg(long, hide = true, conflicts_with_all = ["record_only", "models"])]
    summary_only: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    models: usize,
    /// Models about which a command had no answer, and why.
    failed: BTreeMap<String, Vec<String>>,
    /// The questions that were asked in advance, with the numbers that answer them.
    gates: Vec<experiments::Gate>,
    files: Vec<WrittenFile>,
}

pub fn run(args: &Args, output: &Output) -> Result<Verdict, Failure> {
    let data = args.output.join("data");
    if args.summary_only {
        return sum_up(args, studied(&data)?, output);
    }
    let subjects = subjects(&args.models)?;
    if args.record_only {
        let [subject] = &subjects[..] else { return Err(Failure::new("--record-only takes one model")) };
        let answers = record(args, subject, &args.output, args.memory, output)?;
        let good = answers.iter().all(|kept| matches!(kept.answer, Answer::Report(_)));
        output.result(&serde_json::json!({"schema": 1, "steps": answers.len(), "good": good}), |_| Ok(()))?;
        return Ok(if good { Verdict::Yes } else { Verdict::No });
    }
    record_all(args, &subjects, &data, output)?;
    if !args.no_bench {
        measure_all(args, &subjects, &data, output)?;
    }
    let read =
        |subject: &Subject| Studied::read(&subject.name, &data.join(&subject.name), Some(subject.stamp));
    let models = subjects.iter().map(read);
    sum_up(args, models.collect(), output)
}

/// Every model of which answers are kept.
fn studied(data: &Path) -> Result<Vec<Studied>, Failure> {
    let failed = |error| Failure::at(data, format_args!("cannot be read: {error}"));
    let folders = std::fs::read_dir(data).map_err(failed)?.collect::<Result<Vec<_>, _>>().map_err(failed)?;
    let read =
        |entry: &std::fs::DirEntry| Studied::read(&entry.file_name().to_string_lossy(), &entry.path(), None);
    let mut models: Vec<Studied> = folders.iter().map(read).collect();
    models.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(models)
}

/// Makes tables, plots and the page of what is known.
fn sum_up(args: &Args, models: Vec<Studied>, output: &Output) -> Result<Verdict, Failure> {
    let labels = args.labels.as_deref().map_or(Ok(BTreeMap::new()), |path| labels(path, output))?;
    let corpus = Corpus { models, labels };
    let study = experiments::all(&corpus, args.command());
    let files = study.write(&args.output, &corpus, output)?;
    let report = Report {
        schema: 1,
        models: corpus.models.len(),
        failed: corpus.failures(),
        gates: study.gates,
        files,
    };
    output.result(&report, |out| {
        for (model, reasons) in &report.failed {
            reasons.iter().try_for_each(|reason| writeln!(out, "{model}: {reason}"))?;
        }
        for gate in &report.gates {
            let answer = gate.answer.map_or("?", |yes| if yes { "yes" } else { "NO" });
            writeln!(out, "{answer:>4}  {}: {}", gate.question, gate.number)?;
        }
        report.files.iter().try_for_each(|file| writeln!(out, "wrote {} ({})", file.path, bytes(file.bytes)))
    })?;
    Ok(Verdict::Yes)
}

/// Names of models, each with the class that it should have.
fn labels(path: &Path, output: &Output) -> Result<BTreeMap<String, String>, Failure> {
    let text = output.files.read(path)?;
    let text = String::from_utf8_lossy(&text);
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let pair = |line: &str| {
        let (name, class) = line.split_once(char::is_whitespace)?;
        Some((name.to_owned(), class.trim().to_owned()))
    };
    let wrong = |line: &str| Failure::at(path, format_args!("{line:?} is not a name and a class"));
    lines.map(|line| pair(line).ok_or_else(|| wrong(line))).collect()
}

impl Args {
    /// The command as one would type it, with everything that changes what is measured.
    fn command(&self) -> String {
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

/// A model of the study.
#[derive(Clone, Debug)]
struct Subject {
    name: String,
    path: PathBuf,
    stamp: Stamp,
}

impl Subject {
    /// Whether it is compared block by block.
    fn is_large(&self) -> bool {
        self.stamp.bytes > LARGE
    }

    /// Memory that commands need for it: two sessions of ONNX Runtime, or blocks.
    fn memory(&self) -> u64 {
        2 * self.stamp.bytes.min(LARGE) + OVERHEAD
    }
}

/// Every model, with a name of its own.
fn subjects(places: &[PathBuf]) -> Result<Vec<Subject>, Failure> {
    let mut found: BTreeMap<String, PathBuf> = BTreeMap::new();
    for place in places {
        let mut files = Vec::new();
        models_in(place, &mut files)?;
        let root = if place.is_dir() { place.as_path() } else { place.parent().unwrap_or(place) };
        for file in files {
            let inside = file.strip_prefix(root).unwrap_or(&file).with_extension("");
            let name = inside.to_string_lossy().replace(['/', '\\'], ".");
            if let Some(other) = found.insert(name.clone(), file.clone()).filter(|other| *other != file) {
                let text = format_args!("{} has the same name; put them into one folder", other.display());
                return Err(Failure::at(&file, text));
            }
        }
    }
    if found.is_empty() {
        return Err(Failure::new("there is no model in there"));
    }
    let subject = |(name, path): (String, PathBuf)| {
        let stamp = stamp(&path);
        Subject { name, path, stamp }
    };
    Ok(found.into_iter().map(subject).collect())
}

/// The models in a folder and in those inside of it, or the one that this is.
fn models_in(place: &Path, found: &mut Vec<PathBuf>) -> Result<(), Failure> {
    if !place.is_dir() {
        found.push(place.to_owned());
        return Ok(());
    }
    let entries = std::fs::read_dir(place)
        .map_err(|error| Failure::at(place, format_args!("cannot be read: {error}")))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() && !path.is_symlink() {
            models_in(&path, found)?;
        } else if path.extension().is_some_and(|kind| kind == "onnx") {
            found.push(path);
        }
    }
    Ok(())
}

/// The state of a model and of the files that begin with its name.
fn stamp(path: &Path) -> Stamp {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let is_own = |file: &str| {
        let beside = [format!("{stem}."), format!("{name}_")];
        file == name || beside.iter().any(|start| file.starts_with(start)) && !file.ends_with(".onnx")
    };
    let entries = std::fs::read_dir(folder_of(path)).into_iter().flatten();
    let own = entries.flatten().filter(|entry| is_own(&entry.file_name().to_string_lossy()));
    own.filter_map(|entry| entry.metadata().ok()).fold(Stamp::default(), |stamp, file| {
        let written = file.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        Stamp {
            bytes: stamp.bytes.saturating_add(file.len()),
            written: stamp.written.max(written.map_or(0, |time| time.as_secs())),
        }
    })
}

/// Memory that jobs share.
struct Budget {
    free: Mutex<u64>,
    changed: Condvar,
}

/// Memory that a job has, until it is done.
struct Share<'b> {
    budget: &'b Budget,
    bytes: u64,
}

impl Budget {
    /// Waits until so much is free, and takes it.
    fn take(&self, bytes: u64) -> Share<'_> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        while *free < bytes {
            checkpoint();
            free = self.changed.wait_timeout(free, LOOK).unwrap_or_else(PoisonError::into_inner).0;
        }
        *free -= bytes;
        Share { budget: self, bytes }
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        *self.budget.free.lock().unwrap_or_else(PoisonError::into_inner) += self.bytes;
        self.budget.changed.notify_all();
    }
}

/// Asks about all models, several at a time, the largest first.
fn record_all(args: &Args, subjects: &[Subject], data: &Path, output: &Output) -> Result<(), Failure> {
    let jobs = args.jobs.unwrap_or_else(jobs::as_many_as_fit);
    let mut queue: Vec<&Subject> = subjects.iter().collect();
    queue.sort_by_key(|subject| Reverse(subject.stamp.bytes));
    let budget = Budget { free: Mutex::new(args.memory), changed: Condvar::new() };
    let count: usize = subjects.iter().map(|subject| questions(args, subject, data).len()).sum();
    output.progress().begin("questions", count as u64, Unit::Questions);
    let recorded = jobs::each(&queue, jobs, &Silent, |subject| {
        let wanted = subject.memory().max(args.memory / jobs.get() as u64).min(args.memory);
        let share = budget.take(wanted);
        record(args, subject, &data.join(&subject.name), share.bytes, output).map(drop)
    });
    output.progress().end();
    recorded.into_iter().collect()
}

/// Asks every question about one model that needs no clock. What is made on the way goes again.
fn record(
    args: &Args,
    subject: &Subject,
    folder: &Path,
    memory: u64,
    output: &Output,
) -> Result<Vec<step::Kept>, Failure> {
    let limits = Limits { memory: Some(memory), time: Some(args.timeout) };
    answers(args, subject, &questions(args, subject, &folder.join(MADE)), folder, limits, output)
}

/// Measures the time of every model and of what becomes of it, one by one.
fn measure_all(args: &Args, subjects: &[Subject], data: &Path, output: &Output) -> Result<(), Failure> {
    let limits = Limits { memory: Some(args.memory), time: Some(args.timeout) };
    let steps = |subject: &Subject| {
        let folder = data.join(&subject.name);
        let known = Studied::read(&subject.name, &folder, Some(subject.stamp));
        measurements(args, subject, &known, &folder.join(MADE))
    };
    let count: usize = subjects.iter().map(|subject| steps(subject).len()).sum();
    output.progress().begin("time", count as u64, Unit::Questions);
    for subject in subjects {
        answers(args, subject, &steps(subject), &data.join(&subject.name), limits, output)?;
    }
    output.progress().end();
    Ok(())
}

/// The folder for what commands make on the way.
const MADE: &str = "made";

/// The answers to questions about one model, as far as they are not known already.
fn answers(
    args: &Args,
    subject: &Subject,
    steps: &[Step],
    folder: &Path,
    limits: Limits,
    output: &Output,
) -> Result<Vec<step::Kept>, Failure> {
    std::fs::create_dir_all(folder).map_err(|error| Failure::at(folder, error))?;
    let known = || Studied::read(&subject.name, folder, Some(subject.stamp));
    let desk = Desk { folder, program: &output.program, limits, model: subject.stamp };
    let made = folder.join(MADE);
    let mut answers = Vec::new();
    // Why a file could not be made.
    let make = |file: &PathBuf| match desk.answer(&making(args, subject, &known(), file)) {
        Ok(Answer::Report(_)) => None,
        Ok(Answer::Failure(reason)) => {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            Some(Ok(Answer::Failure(format!("{name} could not be made: {reason}"))))
        }
        Err(failure) => Some(Err(failure)),
    };
    for step in steps {
        let kept = match desk.kept(step) {
            Some(kept) => kept,
            None => match step.reads.iter().filter(|file| !file.exists()).find_map(make) {
                None => desk.ask(step)?,
                Some(failure) => desk.keep(step, failure?, 0.0)?,
            },
        };
        answers.push(kept);
        output.progress().advance(1);
    }
    // What could not be removed now, the next run removes.
    drop(std::fs::remove_dir_all(&made));
    Ok(answers)
}

/// The command that makes a file which other commands read. What is known to be right is not verified again.
fn making(args: &Args, subject: &Subject, known: &Studied, file: &Path) -> Step {
    let (step, option) = match file.file_name().and_then(OsStr::to_str) {
        Some(NEWER) => ("newer", Some(OPSET.into())),
        Some(QKV) => ("fuse_attention_qkv", Some(with_qkv())),
        Some(PRODUCTS) => ("fuse_matmul_add_3d", Some(ALONE.into())),
        _ => ("optimize", None),
    };
    let mut words: Vec<OsString> = vec!["optimize".into(), subject.path.clone().into()];
    words.extend(["-o".into(), file.into(), format!("--seed={}", args.seed).into()]);
    words.extend(option);
    let reverted = known.at(step, "/verification/reverted").and_then(Value::as_array);
    if reverted.is_some_and(Vec::is_empty) {
        words.push("--verify=off".into());
    }
    Step::new("making", words)
}

/// All passes, and the one that makes one product of three, which runs only on request.
fn with_qkv() -> OsString {
    let names = PORTABLE.passes().map(|pass| pass.name).chain(["fuse_attention_qkv"]);
    format!("--passes={}", names.collect::<Vec<_>>().join(",")).into()
}

/// The model after all passes, with newer operators, after all passes and the one that makes one product of three, and after the one about
/// 3-D products alone.
const OPTIMIZED: &str = "optimized.onnx";
const NEWER: &str = "newer.onnx";
const QKV: &str = "qkv.onnx";
const PRODUCTS: &str = "products.onnx";

/// What allows newer operators, and what runs the pass about 3-D products alone.
const OPSET: &str = "--opset=23";
const ALONE: &str = "--passes=fuse_matmul_add_3d";

/// The questions about a model that need no clock, in the order in which they are asked.
fn questions(args: &Args, subject: &Subject, made: &Path) -> Vec<Step> {
    let model = || subject.path.clone().into_os_string();
    let result = |name: &str| made.join(name).into_os_string();
    let word = |text: &str| OsString::from(text);
    let seed = word(&format!("--seed={}", args.seed));
    let ask = |name: &str, words: &[OsString]| {
        Step::new(name, [word(name), model()].into_iter().chain(words.iter().cloned()))
    };
    let optimize = |name: &str, file: &str, options: &[OsString]| {
        let words = [word("optimize"), model(), word("-o"), result(file)];
        Step::new(name, words.into_iter().chain(options.iter().cloned()))
    };
    let optimized = [made.join(OPTIMIZED)];
    let mut steps = vec![
        ask("inspect", &[]),
        ask("fingerprint", &[]),
        ask("audit", &[]),
        ask("attribute", &[]),
        optimize("optimize", OPTIMIZED, std::slice::from_ref(&seed)),
        Step::new("audit_after", [word("audit"), result(OPTIMIZED)]).reading(&optimized),
        Step::new("forms", [word("lab"), word("forms"), result(OPTIMIZED), seed.clone()]).reading(&optimized),
    ];
    steps.push(optimize("newer", NEWER, &[word(OPSET), seed.clone()]));
    let off = word("--verify=off");
    let passes: Vec<&str> = PORTABLE.passes().map(|pass| pass.name).collect();
    for shuffle in 0..SHUFFLES {
        let order = shuffled(&passes, args.seed.wrapping_add(shuffle));
        let chosen = word(&format!("--passes={}", order.join(",")));
        steps.push(optimize(&format!("order_{shuffle}"), "shuffled.onnx", &[off.clone(), chosen]));
    }
    steps.push(optimize("fuse_matmul_add_3d", PRODUCTS, &[word(ALONE), seed.clone()]));
    steps.push(optimize("fuse_attention_qkv", QKV, &[with_qkv(), seed.clone()]));
    let mut sweep =
        vec![word("verify"), model(), result(OPTIMIZED), word(&format!("--sweep={}", args.sweep))];
    // How far results move is measured; whether that is right, `optimize` has asked a float64 run.
    sweep.extend([word(&format!("--tolerance={MOVED}")), seed.clone()]);
    if subject.is_large() {
        sweep.push(word("--blocks"));
    }
    steps.push(Step::new("sweep", sweep).reading(&optimized));
    let accuracy = [word("attribute"), model(), word("--verify"), word("--samples=1"), seed];
    steps.push(Step::new("accuracy", accuracy));
    steps
}

/// The same names in another order.
fn shuffled<'n>(names: &[&'n str], seed: u64) -> Vec<&'n str> {
    let mut random = Random::new(seed);
    let mut order: Vec<(u64, &str)> = names.iter().map(|name| (random.bits(), *name)).collect();
    order.sort_unstable();
    order.into_iter().map(|(_, name)| name).collect()
}

/// The questions that a clock answers.
fn measurements(args: &Args, subject: &Subject, known: &Studied, made: &Path) -> Vec<Step> {
    let bench = |name: &str, results: &[&str], length: usize| {
        let results: Vec<PathBuf> = results.iter().map(|name| made.join(name)).collect();
        let mut words: Vec<OsString> = vec!["bench".into(), subject.path.clone().into()];
        words.extend(results.iter().cloned().map(Into::into));
        words.push(format!("--seconds={}", args.seconds.as_secs_f64()).into());
        words.extend(["--sessions=6".into(), "--warmup=1".into()]);
        words.extend(known.sizes(length).into_iter().map(Into::into));
        Step::new(name, words).reading(&results)
    };
    let mut steps = vec![bench("bench", &[OPTIMIZED], LENGTH)];
    // Loading a large model a dozen times takes minutes; one comparison of it must do.
    if !subject.is_large() {
        if known.sizes(SHORT) != known.sizes(LENGTH) {
            steps.push(bench("bench_short", &[OPTIMIZED, NEWER], SHORT));
        }
        if !known.passes("fuse_matmul_add_3d").is_empty() {
            steps.push(bench("bench_3d", &[PRODUCTS], LENGTH));
        }
    }
    if known.passes("fuse_attention_qkv").iter().any(|(name, _)| *name == "fuse_attention_qkv") {
        let qkv = [made.join(QKV)];
        let words = ["lab".into(), "products".into(), qkv[0].clone().into_os_string()];
        steps.push(Step::new("products", words).reading(&qkv));
    }
    steps
}
