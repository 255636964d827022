//! `onnxforge study`: every experiment on many models, tables, plots and a page.
//!
//! The study measures nothing by itself: each cell is what another command answers. Answers are kept as they come, so a study that was
//! interrupted goes on where it was, and a model that cannot be studied is a row that says why.

mod corpus;
mod experiments;
mod page;
mod step;
mod table;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use clap::builder::RangedU64ValueParser;
use onnxforge::passes::targets::PORTABLE;
use onnxforge::progress::Unit;
use onnxforge::random::Random;
use serde::Serialize;

use self::corpus::{Corpus, Studied};
use self::step::{Answer, Step};
use super::run::{gigabytes, seconds};
use crate::failure::{Failure, Verdict};
use crate::files::WrittenFile;
use crate::output::{Output, bytes};
use crate::process::Limits;

/// How often the order of passes is shuffled.
const SHUFFLES: u64 = 5;
/// Memory that a process takes besides the model.
const OVERHEAD: u64 = 1 << 30;
/// The size of named dimensions that are not the first of an input, where time is measured.
const LENGTH: usize = 128;

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
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    jobs: Option<usize>,
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
    let models = subjects.iter().map(|subject| Studied::read(&subject.name, &data.join(&subject.name)));
    sum_up(args, models.collect(), output)
}

/// Every model of which answers are kept.
fn studied(data: &Path) -> Result<Vec<Studied>, Failure> {
    let failed = |error| Failure::at(data, format_args!("cannot be read: {error}"));
    let folders = std::fs::read_dir(data).map_err(failed)?.collect::<Result<Vec<_>, _>>().map_err(failed)?;
    let read = |entry: &std::fs::DirEntry| Studied::read(&entry.file_name().to_string_lossy(), &entry.path());
    let mut models: Vec<Studied> = folders.iter().map(read).collect();
    models.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(models)
}

/// Makes tables, plots and the page of what is known.
fn sum_up(args: &Args, models: Vec<Studied>, output: &Output) -> Result<Verdict, Failure> {
    let corpus = Corpus { models };
    let study = experiments::all(&corpus);
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

/// A model of the study.
#[derive(Clone, Debug)]
struct Subject {
    name: String,
    path: PathBuf,
    /// Bytes of the model and of what lies beside it under its name.
    bytes: u64,
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
        let bytes = size_of(&path);
        Subject { name, path, bytes }
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

/// Bytes of a model and of the files that begin with its name.
fn size_of(path: &Path) -> u64 {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let beside = path.parent().and_then(|folder| std::fs::read_dir(folder).ok()).into_iter().flatten();
    let own =
        beside.filter_map(Result::ok).filter(|entry| entry.file_name().to_string_lossy().starts_with(&stem));
    own.filter_map(|entry| Some(entry.metadata().ok()?.len())).sum()
}

/// Memory that jobs share.
struct Budget {
    free: Mutex<u64>,
    changed: Condvar,
}

impl Budget {
    /// Waits until so much is free, and takes it.
    fn take(&self, wanted: u64) {
        if let Ok(mut free) = self.free.lock() {
            while *free < wanted {
                match self.changed.wait(free) {
                    Ok(again) => free = again,
                    Err(_) => return,
                }
            }
            *free -= wanted;
        }
    }

    fn give_back(&self, taken: u64) {
        if let Ok(mut free) = self.free.lock() {
            *free += taken;
        }
        self.changed.notify_all();
    }
}

/// Asks about all models, several at a time, the largest first.
fn record_all(args: &Args, subjects: &[Subject], data: &Path, output: &Output) -> Result<(), Failure> {
    let jobs = args.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let mut queue: Vec<&Subject> = subjects.iter().collect();
    queue.sort_by_key(|subject| subject.bytes);
    let queue = Mutex::new(queue);
    let budget = Budget { free: Mutex::new(args.memory), changed: Condvar::new() };
    let failed: Mutex<Option<Failure>> = Mutex::new(None);
    output.progress().begin("models", subjects.len() as u64, Unit::Models);
    let (done, finished) = std::sync::mpsc::channel();
    std::thread::scope(|threads| {
        for _ in 0..jobs.min(subjects.len()) {
            let (queue, budget, failed, done) = (&queue, &budget, &failed, done.clone());
            threads.spawn(move || {
                while let Some(subject) = queue.lock().ok().and_then(|mut queue| queue.pop()) {
                    let share =
                        (2 * subject.bytes + OVERHEAD).max(args.memory / jobs as u64).min(args.memory);
                    budget.take(share);
                    let recorded = record(args, subject, &data.join(&subject.name), share, output);
                    budget.give_back(share);
                    if let (Err(failure), Ok(mut failed)) = (recorded, failed.lock()) {
                        failed.get_or_insert(failure);
                    }
                    let _ = done.send(());
                }
            });
        }
        drop(done);
        finished.iter().for_each(|()| output.progress().advance(1));
    });
    output.progress().end();
    match failed.into_inner() {
        Ok(Some(failure)) => Err(failure),
        _ => Ok(()),
    }
}

/// Asks every question about one model that needs no clock. What is made on the way goes again.
fn record(
    args: &Args,
    subject: &Subject,
    folder: &Path,
    memory: u64,
    output: &Output,
) -> Result<Vec<step::Kept>, Failure> {
    std::fs::create_dir_all(folder).map_err(|error| Failure::at(folder, error))?;
    let made = folder.join("made");
    let limits = Limits { memory: Some(memory), time: Some(args.timeout) };
    let steps = questions(args, subject, &made);
    let all_kept = steps.iter().all(|step| step.kept(folder).is_some());
    if all_kept {
        return Ok(steps.iter().filter_map(|step| step.kept(folder)).collect());
    }
    let mut answers = Vec::new();
    for step in &steps {
        if step.name == "sweep" && !made.join("optimized.onnx").exists() {
            remake(args, subject, &made, limits, output)?;
        }
        answers.push(step.run(folder, &output.program, limits)?);
    }
    drop(std::fs::remove_dir_all(&made));
    Ok(answers)
}

/// The questions about a model, in the order in which they are asked.
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
    let mut steps = vec![
        ask("inspect", &[]),
        ask("fingerprint", &[]),
        ask("audit", &[]),
        ask("attribute", &[]),
        optimize("optimize", "optimized.onnx", std::slice::from_ref(&seed)),
        Step::new("audit_after", [word("audit"), result("optimized.onnx")]),
    ];
    let off = word("--verify=off");
    let passes: Vec<&str> = PORTABLE.passes().map(|pass| pass.name).collect();
    for shuffle in 0..SHUFFLES {
        let order = shuffled(&passes, args.seed + shuffle);
        let chosen = word(&format!("--passes={}", order.join(",")));
        steps.push(optimize(&format!("order_{shuffle}"), "shuffled.onnx", &[off.clone(), chosen]));
    }
    for pass in ["fuse_matmul_add_3d", "fuse_attention_qkv"] {
        let chosen = word(&format!("--passes={pass}"));
        steps.push(optimize(pass, "alone.onnx", &[chosen, seed.clone()]));
    }
    let sweep =
        [word("verify"), model(), result("optimized.onnx"), word(&format!("--sweep={}", args.sweep)), seed];
    steps.push(Step::new("sweep", sweep));
    steps
}

/// The same names in another order.
fn shuffled<'n>(names: &[&'n str], seed: u64) -> Vec<&'n str> {
    let mut random = Random::new(seed);
    let mut order: Vec<(u64, &str)> = names.iter().map(|name| (random.bits(), *name)).collect();
    order.sort_unstable();
    order.into_iter().map(|(_, name)| name).collect()
}

/// Optimizes a model again, of which only the answers are kept.
fn remake(
    args: &Args,
    subject: &Subject,
    made: &Path,
    limits: Limits,
    output: &Output,
) -> Result<PathBuf, Failure> {
    let target = made.join("optimized.onnx");
    let words = [
        "optimize".into(),
        subject.path.clone().into_os_string(),
        "-o".into(),
        target.clone().into_os_string(),
        "--verify=off".into(),
        format!("--seed={}", args.seed).into(),
    ];
    let folder = tempfile::tempdir()?;
    Step::new("remake", words).run(folder.path(), &output.program, limits)?;
    Ok(target)
}

/// Measures the time of every model and of what becomes of it, one by one.
fn measure_all(args: &Args, subjects: &[Subject], data: &Path, output: &Output) -> Result<(), Failure> {
    output.progress().begin("time", subjects.len() as u64, Unit::Models);
    for subject in subjects {
        let folder = data.join(&subject.name);
        let made = folder.join("made");
        let limits = Limits { memory: None, time: Some(args.timeout) };
        let optimized = made.join("optimized.onnx");
        let mut words: Vec<OsString> =
            vec!["bench".into(), subject.path.clone().into(), optimized.clone().into()];
        words.push(format!("--seconds={}", args.seconds.as_secs_f64()).into());
        words.extend(["--sessions=6".into(), "--warmup=1".into()]);
        words.extend(Studied::read(&subject.name, &folder).sizes(LENGTH).into_iter().map(Into::into));
        let step = Step::new("bench", words);
        if step.kept(&folder).is_none() {
            remake(args, subject, &made, limits, output)?;
            step.run(&folder, &output.program, limits)?;
            drop(std::fs::remove_dir_all(&made));
        }
        output.progress().advance(1);
    }
    output.progress().end();
    Ok(())
}
