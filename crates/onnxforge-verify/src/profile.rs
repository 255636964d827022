//! How long each node takes: runs of a model with a profiler, and runs without it beside them.
//!
//! Sessions differ, as [`crate::bench`] says, so there are several; what holds of one is the median of its runs. Runs without the profiler tell what
//! it costs.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use crate::bench::{BenchError, FEWEST};
use crate::runtime::timed::Inputs;
use crate::runtime::{Level, Runtime};
use crate::runtime::{Named, Span};
use onnxforge_ir::{Model, NodeId};
use onnxforge_ops::Value;
use onnxforge_ops::eval::{self, Clock, RunError, Session};
use onnxforge_proto::clock::Instant;
use onnxforge_proto::progress::{Progress, Unit};

/// How long and how often is measured.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How much ONNX Runtime rewrites.
    pub level: Level,
    /// Threads within an operator, and between operators.
    pub threads: usize,
    /// Runs of each session that do not count.
    pub warmups: usize,
    /// Sessions with the profiler, and as many without.
    pub sessions: usize,
    /// How long to measure, all sessions together.
    pub time: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { level: Level::All, threads: 1, warmups: 2, sessions: FEWEST, time: Duration::from_secs(10) }
    }
}

/// Runs that a budget of time cannot make fewer, and does not exceed.
const ROUNDS: std::ops::RangeInclusive<usize> = 3..=200;
/// Calls of nodes that are kept of a session.
const MOST_CALLS: usize = 400_000;

/// A call of a node in a run, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Call<N> {
    /// The node.
    pub node: N,
    /// When it began, after the run did.
    pub start: f64,
    /// How long it took, with what it called.
    pub time: f64,
    /// How long it took without that.
    pub own: f64,
}

/// A run, in microseconds.
#[derive(Clone, Debug)]
pub struct Run<N> {
    /// How long it took.
    pub total: f64,
    /// What was called, in the order in which it began.
    pub calls: Vec<Call<N>>,
}

impl<N> Run<N> {
    /// The same run, of nodes under other names.
    pub fn map<M>(self, mut name: impl FnMut(N) -> M) -> Run<M> {
        let call = |Call { node, start, time, own }| Call { node: name(node), start, time, own };
        Run { total: self.total, calls: self.calls.into_iter().map(call).collect() }
    }
}

/// Runs of one session with the profiler, and how many microseconds others took without it.
#[derive(Clone, Debug)]
pub struct Measured<N> {
    /// Runs with the profiler.
    pub runs: Vec<Run<N>>,
    /// Runs without.
    pub plain: Vec<f64>,
}

/// Measures the model at `path` in ONNX Runtime.
pub fn in_runtime(
    path: &Path,
    inputs: &HashMap<String, Value>,
    options: &Options,
    progress: &dyn Progress,
) -> Result<Vec<Measured<Named>>, BenchError> {
    let runtime = Runtime::get().map_err(Clone::clone)?;
    let inputs = Inputs::new(inputs)?;
    runtime.warm_up()?;
    let failed = |error| BenchError::Model { path: path.to_owned(), error };
    progress.begin("ONNX Runtime", options.sessions as u64, Unit::Sessions);
    let mut sessions = Vec::new();
    for _ in 0..options.sessions {
        let mut session = runtime.profiled(path, options.level, options.threads).map_err(failed)?;
        let (_, warm) = repeat(options, || session.run(&inputs)).map_err(failed)?;
        let mut runs = split(session.finish().map_err(failed)?);
        runs.drain(..warm.min(runs.len()));
        let (mut session, _) = runtime.time_load(path, options.level, options.threads).map_err(failed)?;
        let plain = repeat(options, || session.run(&inputs)).map_err(failed)?.0;
        sessions.push(Measured { runs, plain });
        progress.advance(1);
    }
    progress.end();
    Ok(sessions)
}

/// Measures a model in the engine of this library.
pub fn in_this_library(
    model: &Model,
    inputs: &HashMap<String, Value>,
    options: &Options,
    progress: &dyn Progress,
) -> Result<Vec<Measured<NodeId>>, RunError> {
    progress.begin("native engine", options.sessions as u64, Unit::Sessions);
    let mut sessions = Vec::new();
    for _ in 0..options.sessions {
        let clock = Spans::default();
        let timed = Session::new(model, eval::Options::default()).timed(&clock);
        let mut runs = Vec::new();
        let (_, warm) = repeat(options, || {
            let start = Instant::now();
            timed.run(inputs)?;
            let time = start.elapsed();
            runs.push(clock.take(start, time));
            Ok(time)
        })?;
        runs.drain(..warm);
        let session = Session::new(model, eval::Options::default());
        let plain = repeat(options, || {
            let start = Instant::now();
            session.run(inputs).map(|_| start.elapsed())
        })?;
        sessions.push(Measured { runs, plain: plain.0 });
        progress.advance(1);
    }
    progress.end();
    Ok(sessions)
}

/// Runs as often as the budget of a session says. Answers the microseconds of each run that counts, and how many did not.
fn repeat<E>(
    options: &Options,
    mut run: impl FnMut() -> Result<Duration, E>,
) -> Result<(Vec<f64>, usize), E> {
    let warm = options.warmups.max(1);
    for _ in 0..warm {
        run()?;
    }
    let budget = options.time / u32::try_from(2 * options.sessions.max(1)).unwrap_or(u32::MAX);
    let start = Instant::now();
    let mut times = Vec::new();
    while times.len() < *ROUNDS.start() || times.len() < *ROUNDS.end() && start.elapsed() < budget {
        times.push(microseconds(run()?));
    }
    Ok((times, warm))
}

fn microseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// What the native engine tells.
#[derive(Default)]
struct Spans(Mutex<Vec<(NodeId, Instant, Instant)>>);

impl Clock for Spans {
    fn ran(&self, node: NodeId, start: Instant, end: Instant) {
        if let Ok(mut spans) = self.0.lock()
            && spans.len() < MOST_CALLS
        {
            spans.push((node, start, end));
        }
    }
}

impl Spans {
    /// The calls of a run that began then.
    fn take(&self, began: Instant, time: Duration) -> Run<NodeId> {
        let spans = self.0.lock().map(|mut spans| std::mem::take(&mut *spans)).unwrap_or_default();
        let call = |(node, start, end): (NodeId, Instant, Instant)| {
            let time = microseconds(end - start);
            Call { node, start: microseconds(start - began), time, own: time }
        };
        Run { total: microseconds(time), calls: nested(spans.into_iter().map(call).collect()) }
    }
}

/// The runs of a profile, each with the calls that began in it.
fn split(spans: Vec<Span>) -> Vec<Run<Named>> {
    let (mut wholes, mut nodes): (Vec<Span>, Vec<Span>) =
        spans.into_iter().partition(|span| span.node.is_none());
    wholes.sort_by(|a, b| a.start.total_cmp(&b.start));
    nodes.sort_by(|a, b| a.start.total_cmp(&b.start));
    let mut nodes = nodes.into_iter().peekable();
    let mut runs = Vec::new();
    for whole in wholes {
        let end = whole.start + whole.time;
        let mut by_thread: HashMap<i64, Vec<Call<Named>>> = HashMap::new();
        while let Some(span) = nodes.next_if(|span| span.start <= end) {
            if let Some(node) = span.node.filter(|_| span.start >= whole.start) {
                let call = Call { node, start: span.start - whole.start, time: span.time, own: span.time };
                by_thread.entry(span.thread).or_default().push(call);
            }
        }
        let mut calls: Vec<Call<Named>> = by_thread.into_values().flat_map(nested).collect();
        calls.sort_by(|a, b| a.start.total_cmp(&b.start));
        runs.push(Run { total: whole.time, calls });
    }
    runs
}

/// Calls of one thread in the order in which they began, each with the time of its own: what nodes in its bodies took is theirs.
fn nested<N>(mut calls: Vec<Call<N>>) -> Vec<Call<N>> {
    calls.sort_by(|a, b| a.start.total_cmp(&b.start).then(b.time.total_cmp(&a.time)));
    // Calls that have not ended yet, the innermost last.
    let mut open: Vec<usize> = Vec::new();
    for at in 0..calls.len() {
        let (start, time) = (calls[at].start, calls[at].time);
        while let Some(&around) = open.last()
            && calls[around].start + calls[around].time < start + time
        {
            open.pop();
        }
        if let Some(&around) = open.last() {
            calls[around].own = (calls[around].own - time).max(0.0);
        }
        open.push(at);
    }
    calls
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(node: usize, start: f64, time: f64) -> Call<usize> {
        Call { node, start, time, own: time }
    }

    #[test]
    fn what_a_body_takes_is_not_its_holders_own() {
        let calls = vec![
            call(0, 0.0, 10.0),
            call(2, 30.0, 5.0),
            call(1, 12.0, 50.0),
            call(3, 31.0, 2.0),
            call(4, 40.0, 9.0),
        ];
        let own: Vec<(usize, f64)> = nested(calls).iter().map(|call| (call.node, call.own)).collect();
        assert_eq!(own, [(0, 10.0), (1, 36.0), (2, 3.0), (3, 2.0), (4, 9.0)]);
        let all: f64 = own.iter().map(|(_, own)| own).sum();
        assert_eq!(all, 60.0);
    }

    #[test]
    fn calls_belong_to_the_run_in_which_they_began() {
        let node = |name: &str| Some(Named { name: name.to_owned(), op: "Add".to_owned() });
        let span = |node, start, time| Span { node, start, time, thread: 1 };
        let spans = vec![
            span(node("before"), 1.0, 2.0),
            span(node("a"), 11.0, 3.0),
            span(node("b"), 15.0, 4.0),
            span(None, 10.0, 10.0),
            span(node("a"), 31.0, 5.0),
            span(None, 30.0, 8.0),
        ];
        let runs = split(spans);
        let shown: Vec<Vec<(&str, f64)>> = runs
            .iter()
            .map(|run| run.calls.iter().map(|call| (&*call.node.name, call.start)).collect())
            .collect();
        assert_eq!(shown, [vec![("a", 1.0), ("b", 5.0)], vec![("a", 1.0)]]);
        assert_eq!(runs[1].total, 8.0);
    }
}
