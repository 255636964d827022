//! The native part of the Python package: the commands, in process.
//!
//! A command runs on a thread of its own, without the interpreter's lock. The thread that called waits, hears of progress and warnings on its
//! way, and looks for signals: Ctrl-C, or an exception in what listens, ends the command at its next checkpoint.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use onnxforge::blob::Blob;
use onnxforge::cancel::Token;
use onnxforge_cli::{Answer, Call, Ended, Event, Verdict};
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

create_exception!(
    _native,
    Failed,
    PyException,
    "A command failed: its kind, the line that tells why, the file and the place that it is about."
);

/// How often signals are looked for.
const LOOK: Duration = Duration::from_millis(50);
/// What the main thread of a program has.
const STACK: usize = 16 << 20;

/// The process that used this module first.
static FIRST: OnceLock<u32> = OnceLock::new();

/// An answer: whether it is good, as JSON, as text, and files that were made in memory.
type Answered<'py> = (bool, String, String, Vec<(PathBuf, Bound<'py, PyBytes>)>);

/// Calls a command. `given` are files that it finds in memory; they are not copied. `listen` is called with each event.
#[pyfunction]
fn call<'py>(
    py: Python<'py>,
    words: Vec<OsString>,
    given: Vec<(PathBuf, PyBackedBytes)>,
    program: Vec<OsString>,
    listen: &Bound<'py, PyAny>,
) -> PyResult<Answered<'py>> {
    let (here, first) = (std::process::id(), *FIRST.get_or_init(std::process::id));
    if here != first {
        // The threads that share the work did not come along.
        let hint = "this process was forked from one that used onnxforge; begin it anew, for example with \
                    multiprocessing.set_start_method('spawn')";
        return Err(Failed::new_err(("request", hint, None::<PathBuf>, None::<String>)));
    }
    let given: HashMap<PathBuf, Blob> =
        given.into_iter().map(|(path, bytes)| (path, Blob::owned_by(bytes))).collect();
    let (events, heard) = channel();
    let token = Token::default();
    let command = Call { words, given, program, events, token: token.clone() };
    let worker = thread::Builder::new().name("onnxforge".to_owned()).stack_size(STACK);
    let worker = worker.spawn(move || onnxforge_cli::call(command))?;
    let interrupted = attend(py, heard, listen);
    if let Err(reason) = interrupted {
        token.cancel();
        while !worker.is_finished() {
            py.detach(|| thread::sleep(LOOK));
            // Who interrupts again does not want to wait for a checkpoint.
            py.check_signals()?;
        }
        return Err(reason);
    }
    let ended = py.detach(|| worker.join());
    match ended {
        Ok(Ok(Answer { verdict, json, text, made })) => {
            let made = made.into_iter().map(|(path, bytes)| (path, PyBytes::new(py, &bytes))).collect();
            Ok((verdict == Verdict::Yes, json, text, made))
        }
        Ok(Err(Ended::Failed(failure))) => {
            let line = failure.to_string();
            let kind = serde_json::to_value(failure.kind).unwrap_or_default();
            Err(Failed::new_err((
                kind.as_str().unwrap_or_default().to_owned(),
                line,
                failure.path,
                failure.place,
            )))
        }
        Ok(Err(Ended::Cancelled)) => Err(PyRuntimeError::new_err("cancelled")),
        Err(panic) => {
            let said = panic.downcast_ref::<String>().map(String::as_str);
            let said = said.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or_default();
            Err(PyRuntimeError::new_err(format!(
                "onnxforge panicked, which is a bug; please report it: {said}"
            )))
        }
    }
}

/// Passes events on until there are no more. An error of the listener or of a signal's handler ends it.
fn attend(py: Python<'_>, mut heard: Receiver<Event>, listen: &Bound<'_, PyAny>) -> PyResult<()> {
    loop {
        let waiting = &mut heard;
        let first = py.detach(move || waiting.recv_timeout(LOOK));
        py.check_signals()?;
        let first = match first {
            Ok(event) => event,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        };
        // Much may have happened meanwhile; steps that follow each other are told as one.
        let mut steps = 0;
        for event in std::iter::once(first).chain(heard.try_iter()) {
            if let Event::Advance(units) = event {
                steps += units;
                continue;
            }
            tell_steps(&mut steps, listen)?;
            match event {
                Event::Begin { what, total, unit } => listen.call1(("begin", what, total, unit.name()))?,
                Event::End => listen.call1(("end",))?,
                Event::Said(level, text) => listen.call1(("said", level.as_str().to_lowercase(), text))?,
                Event::Advance(_) => continue,
            };
        }
        tell_steps(&mut steps, listen)?;
    }
}

fn tell_steps(steps: &mut u64, listen: &Bound<'_, PyAny>) -> PyResult<()> {
    if *steps > 0 {
        listen.call1(("advance", std::mem::take(steps)))?;
    }
    Ok(())
}

/// The command line; answers its exit code.
#[pyfunction]
fn main(py: Python<'_>, words: Vec<OsString>, program: Vec<OsString>) -> u8 {
    py.detach(|| onnxforge_cli::main(words, program))
}

/// Names the folder of the package `onnxruntime` that is to be used.
#[pyfunction]
fn prefer_runtime(package: PathBuf) {
    onnxforge::runtime::find::prefer(package);
}

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("MEMORY", onnxforge_cli::MEMORY)?;
    module.add("Failed", module.py().get_type::<Failed>())?;
    module.add_function(wrap_pyfunction!(call, module)?)?;
    module.add_function(wrap_pyfunction!(main, module)?)?;
    module.add_function(wrap_pyfunction!(prefer_runtime, module)?)
}
