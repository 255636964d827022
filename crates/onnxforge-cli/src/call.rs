//! Commands that a program calls, instead of a person: models from its memory, and the result, progress and warnings back to it.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::mpsc::Sender;

use onnxforge::blob::Blob;
use onnxforge::cancel::Token;
use onnxforge::progress::{Progress, Unit};
use tracing_subscriber::fmt::MakeWriter;

use crate::failure::{Failure, Kind, Verdict};
use crate::files::{Files, Memory};
use crate::output::Output;
use crate::{Cli, output};

/// A command to be called.
#[derive(Debug)]
pub struct Call {
    /// The words of the command line, without the program's name.
    pub words: Vec<OsString>,
    /// Files that the command finds under paths that begin with [`MEMORY`](crate::MEMORY).
    pub given: HashMap<PathBuf, Blob>,
    /// How to start the program's command line in another process.
    pub program: Vec<OsString>,
    /// Hears of progress and warnings while the command runs.
    pub events: Sender<Event>,
    /// Ends the command early.
    pub token: Token,
}

/// What happens while a command runs.
#[derive(Clone, Debug)]
pub enum Event {
    /// Work begins.
    Begin {
        /// What it is.
        what: String,
        /// How much of it there is.
        total: u64,
        /// What it is counted in.
        unit: Unit,
    },
    /// So much more is done.
    Advance(u64),
    /// The work is done.
    End,
    /// A warning, or more where that was asked for.
    Said(tracing::Level, String),
}

/// What a command answers.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Whether the answer is good.
    pub verdict: Verdict,
    /// The result as `--json` shows it.
    pub json: String,
    /// The result as people see it.
    pub text: String,
    /// What it wrote under paths that begin with [`MEMORY`](crate::MEMORY).
    pub made: BTreeMap<PathBuf, Vec<u8>>,
}

/// Why there is no answer.
#[derive(Clone, Debug)]
pub enum Ended {
    /// The command failed.
    Failed(Failure),
    /// It was cancelled.
    Cancelled,
}

/// Calls a command. It runs on this thread.
pub fn call(call: Call) -> Result<Answer, Ended> {
    let Call { words, given, program, events, token } = call;
    let words = std::iter::once(OsString::from("onnxforge")).chain(words);
    let cli = Cli::of(words).map_err(|error| {
        // What is wrong and what there is to choose from; not how the command line is used.
        let text = error.render().to_string();
        let lines: Vec<&str> = text.lines().take_while(|line| !line.is_empty()).map(str::trim).collect();
        Ended::Failed(Failure::new(lines.join(" ").trim_start_matches("error: ")).of_kind(Kind::Usage))
    })?;
    let said = Said(Mutex::new(events.clone()));
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_max_level(cli.globals.level())
        .with_writer(said)
        .with_level(false)
        .without_time()
        .with_target(false)
        .finish();
    let files = Files { links: cli.globals.links(), memory: Some(Memory::of(given)) };
    let output = Output::caller(cli.globals, files, Box::new(Reported(Mutex::new(events))), program);
    let work = || tracing::subscriber::with_default(subscriber, || cli.command.run(&output));
    let done = token.watch(work).map_err(|_| Ended::Cancelled)?;
    let verdict = done.map_err(Ended::Failed)?;
    let output::Shown { json, text } = output.shown();
    let made = output.files.memory.map(|memory| memory.take()).unwrap_or_default();
    Ok(Answer { verdict, json, text, made })
}

/// Progress as events.
struct Reported(Mutex<Sender<Event>>);

impl Reported {
    fn send(&self, event: Event) {
        if let Ok(events) = self.0.lock() {
            // Nobody listens any more: then nobody needs to know.
            drop(events.send(event));
        }
    }
}

impl Progress for Reported {
    fn begin(&self, what: &str, total: u64, unit: Unit) {
        self.send(Event::Begin { what: what.to_owned(), total, unit });
    }

    fn advance(&self, units: u64) {
        self.send(Event::Advance(units));
    }

    fn end(&self) {
        self.send(Event::End);
    }
}

/// What is logged, as events.
struct Said(Mutex<Sender<Event>>);

/// One line of it.
struct Line<'s> {
    said: &'s Said,
    level: tracing::Level,
    text: Vec<u8>,
}

impl<'s> MakeWriter<'s> for Said {
    type Writer = Line<'s>;

    fn make_writer(&'s self) -> Line<'s> {
        Line { said: self, level: tracing::Level::INFO, text: Vec::new() }
    }

    fn make_writer_for(&'s self, meta: &tracing::Metadata<'_>) -> Line<'s> {
        Line { said: self, level: *meta.level(), text: Vec::new() }
    }
}

impl io::Write for Line<'_> {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.text.extend_from_slice(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        let text = String::from_utf8_lossy(&self.text).trim().to_owned();
        if let Ok(events) = self.said.0.lock() {
            drop(events.send(Event::Said(self.level, text)));
        }
    }
}
