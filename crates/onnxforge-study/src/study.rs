//! The work of a study: every experiment on many models, tables, plots and a page.
//!
//! The study measures nothing by itself: each cell is what a command of `onnxforge` answers. Answers are kept as they come, so a study that
//! was interrupted resumes, and a model that cannot be studied is a row that says why.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use onnxforge::cancel::checkpoint;
use onnxforge::progress::{Silent, Unit};
use onnxforge_cli::failure::{Failure, Verdict};
use onnxforge_cli::files::{WrittenFile, show_files};
use onnxforge_cli::jobs;
use onnxforge_cli::output::Output;
use onnxforge_cli::process::Limits;
use serde::Serialize;

use crate::args::Args;
use crate::corpus::{Corpus, MADE, Studied};
use crate::experiments;
use crate::plan::{making, measurements, questions};
use crate::program;
use crate::step::{self, Answer, Desk, Step};
use crate::subject::{Subject, subjects};

/// How often a job that waits for memory asks whether anybody still wants it.
const LOOK: Duration = Duration::from_millis(100);

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
    program::check(&output.program)?;
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
        show_files(&report.files, out)
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

/// The answers to questions about one model, as far as they are not known already.
fn answers(
    args: &Args,
    subject: &Subject,
    steps: &[Step],
    folder: &Path,
    limits: Limits,
    output: &Output,
) -> Result<Vec<step::Kept>, Failure> {
    let made = folder.join(MADE);
    std::fs::create_dir_all(&made).map_err(|error| Failure::at(folder, error))?;
    let known = || Studied::read(&subject.name, folder, Some(subject.stamp));
    let desk = Desk { folder, program: &output.program, limits, model: subject.stamp };
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
