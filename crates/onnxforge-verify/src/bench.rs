//! How long ONNX Runtime takes to load and to run models, and whether one is faster than another.
//!
//! Two things vary, and they need different care:
//!
//! - **Runs** vary with what else happens on the machine. Models take turns, and are compared only within a round, so that what
//!   slows the machine down slows all of them down.
//! - **Sessions** vary, for small models by a fifth, and a session stays fast or slow for as long as it lives: more rounds do not help,
//!   and rounds of one session are no independent observations. Therefore a [`Group`], one session of each model, counts as one
//!   observation, the median of its rounds, and there are several groups. Each should come from a process of its own, so that no
//!   session gets the memory that an earlier one left behind.
//!
//! [`measure`] measures a group, [`compare`] makes [`Estimate`]s of several.

mod estimate;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use self::estimate::median;
use self::estimate::ratio;
pub use self::estimate::{Estimate, FEWEST, confidence};
use crate::runtime::timed::{Inputs, Timed};
use crate::runtime::{Level, Missing, Runtime, RuntimeError};
use onnxforge_ops::Value;
use onnxforge_proto::clock::Instant;

/// Where a run is shorter, one that does not count goes before: it brings back the data that other models drove out of the caches.
const BRIEF: Duration = Duration::from_millis(20);
/// Rounds that a budget of time cannot make fewer.
const LEAST_ROUNDS: usize = 3;
/// Rounds that a budget of time does not exceed: what is left then varies between sessions.
const MOST_ROUNDS: usize = 1000;

/// How a group is measured.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How much ONNX Runtime rewrites.
    pub level: Level,
    /// Threads within an operator, and between operators.
    pub threads: usize,
    /// Runs of each session that do not count.
    pub warmups: usize,
    /// When it is enough.
    pub budget: Budget,
    /// Which model comes first; others in other groups, so that nobody gains from its place.
    pub turn: usize,
}

/// How long a group is measured.
#[derive(Clone, Copy, Debug)]
pub enum Budget {
    /// So many rounds.
    Rounds(usize),
    /// So long, but a few rounds in any case.
    Time(Duration),
}

/// What was measured of one session of each model.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Group {
    /// The models, in the order in which they were given.
    pub sessions: Vec<Times>,
    /// What the process used, where the system tells.
    pub memory: Option<Memory>,
}

/// The times of a session, in milliseconds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Times {
    /// Of loading the model.
    pub load: f64,
    /// Of one run in each round.
    pub runs: Vec<f64>,
}

/// Memory of a process, in bytes.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Memory {
    /// The most that it ever had, mapped files included.
    pub peak: u64,
    /// What it has now that is not a part of any file.
    pub held: u64,
}

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// ONNX Runtime is not there.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// A model does not load or does not run.
    #[error("{}: {error}", path.display())]
    Model {
        /// Its file.
        path: PathBuf,
        /// Why.
        error: RuntimeError,
    },
    /// What all models have in common.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
}

/// Loads each model once and lets them take turns, all on the same inputs.
pub fn measure(
    models: &[PathBuf],
    inputs: &HashMap<String, Value>,
    options: &Options,
) -> Result<Group, BenchError> {
    let runtime = Runtime::get().map_err(Clone::clone)?;
    let inputs = Inputs::new(inputs)?;
    runtime.warm_up()?;
    let count = models.len();
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |error| BenchError::Model { path, error }
    };
    let mut sessions: Vec<Option<Timed>> = models.iter().map(|_| None).collect();
    let mut times = vec![Times::default(); count];
    for which in (0..count).map(|place| (options.turn + place) % count) {
        let path = &models[which];
        let (session, load) =
            runtime.time_load(path, options.level, options.threads).map_err(failed(path))?;
        sessions[which] = Some(session);
        times[which].load = milliseconds(load);
    }
    let mut sessions: Vec<Timed> = sessions.into_iter().flatten().collect();
    let mut shortest = Duration::MAX;
    for (session, path) in sessions.iter_mut().zip(models) {
        for _ in 0..options.warmups.max(1) {
            shortest = shortest.min(session.run(&inputs).map_err(failed(path))?);
        }
    }
    let start = Instant::now();
    for round in 0.. {
        let enough = match options.budget {
            Budget::Rounds(rounds) => round >= rounds,
            Budget::Time(_) if round < LEAST_ROUNDS => false,
            Budget::Time(time) => round >= MOST_ROUNDS || start.elapsed() >= time,
        };
        if enough {
            break;
        }
        for which in (0..count).map(|place| (options.turn + round + place) % count) {
            let mut run = || sessions[which].run(&inputs).map_err(failed(&models[which]));
            if shortest < BRIEF {
                run()?;
            }
            times[which].runs.push(milliseconds(run()?));
        }
    }
    Ok(Group { sessions: times, memory: Memory::of_this_process() })
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

impl Memory {
    /// What this process has used so far; only Linux tells.
    pub fn of_this_process() -> Option<Self> {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
        };
        Some(Self { peak: field("VmHWM:")?, held: field("RssAnon:")? })
    }
}

/// What is said of a model beside the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The whole interval is on the faster side.
    Faster,
    /// The whole interval is on the slower side.
    Slower,
    /// The interval contains 1: there may be no difference.
    Noise,
}

/// What is known of a model.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// Milliseconds of a run.
    pub latency_ms: Estimate,
    /// Milliseconds of loading, the file being in memory.
    pub load_ms: Estimate,
    /// Beside the first model; nothing for the first itself.
    pub against_first: Option<Against>,
}

/// How many times as fast as the first model a model is.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Against {
    /// At runs: the first model's time by this one's in the same round.
    pub speed: Estimate,
    /// At loading: the same of sessions of the same group.
    pub load_speed: Estimate,
    /// What `speed` means.
    pub verdict: Verdict,
}

impl Against {
    fn new(speed: Estimate, load_speed: Estimate) -> Self {
        let verdict = match speed {
            _ if speed.low > 1.0 => Verdict::Faster,
            _ if speed.high < 1.0 => Verdict::Slower,
            _ => Verdict::Noise,
        };
        Self { speed, load_speed, verdict }
    }
}

/// What groups of the same models show, for each model. There must be [`FEWEST`] groups or more, or nothing is said.
pub fn compare(groups: &[Group]) -> Option<Vec<Measured>> {
    let count = groups.iter().map(|group| group.sessions.len()).min()?;
    let each = |of: &dyn Fn(&[Times]) -> f64| -> Vec<f64> {
        groups.iter().map(|group| of(&group.sessions)).collect()
    };
    let measured = |which: usize| {
        let against_first = || {
            let speed = each(&|of| median(&ratio(&of[0].runs, &of[which].runs)));
            let load_speed = each(&|of| (of[0].load / of[which].load).ln());
            Some(Against::new(Estimate::of(&speed)?.exp(), Estimate::of(&load_speed)?.exp()))
        };
        Some(Measured {
            latency_ms: Estimate::of(&each(&|of| median(&of[which].runs)))?,
            load_ms: Estimate::of(&each(&|of| of[which].load))?,
            against_first: if which == 0 { None } else { Some(against_first()?) },
        })
    };
    (0..count).map(measured).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use onnxforge_proto::random::Random;

    /// Groups of two models: every session is slower or faster by up to `spread`, every run by up to a tenth.
    fn groups(count: usize, factor: f64, spread: f64, seed: u64) -> Vec<Group> {
        let mut random = Random::new(seed);
        let mut session = |base: f64| {
            let base = base * (1.0 + spread * random.uniform());
            let runs = (0..20).map(|_| base * (1.0 + 0.1 * random.uniform())).collect();
            Times { load: 10.0 * base, runs }
        };
        let mut group = || Group { sessions: vec![session(1.0), session(factor)], memory: None };
        (0..count).map(|_| group()).collect()
    }

    fn verdict(groups: &[Group]) -> Verdict {
        compare(groups).unwrap()[1].against_first.unwrap().verdict
    }

    #[test]
    fn twice_the_time_is_slower_and_half_of_it_faster() {
        let slower = compare(&groups(9, 2.0, 0.2, 1)).unwrap();
        let against = slower[1].against_first.unwrap();
        assert_eq!(against.verdict, Verdict::Slower);
        assert!((against.speed.median - 0.5).abs() < 0.06 && against.speed.high < 0.6, "{against:?}");
        assert!((against.load_speed.median - 0.5).abs() < 0.06);
        assert!(slower[0].against_first.is_none());
        assert!((slower[0].latency_ms.median - 1.15).abs() < 0.1 && slower[0].load_ms.median > 10.0);
        assert_eq!(verdict(&groups(9, 0.5, 0.2, 1)), Verdict::Faster);
    }

    #[test]
    fn what_varies_between_sessions_is_noise() {
        // With the rounds of all sessions taken as independent, most of these would be called faster or slower.
        let wrong = (0..1000).filter(|&seed| verdict(&groups(9, 1.0, 0.2, seed)) != Verdict::Noise).count();
        assert!((10..80).contains(&wrong), "{wrong} of 1000, where 39 are to be expected");
    }

    #[test]
    fn speeds_turn_over_exactly() {
        let mut groups = groups(6, 1.1, 0.2, 5);
        let there = compare(&groups).unwrap()[1].against_first.unwrap().speed;
        groups.iter_mut().for_each(|group| group.sessions.reverse());
        let back = compare(&groups).unwrap()[1].against_first.unwrap().speed;
        for (x, y) in [(there.median, back.median), (there.low, back.high), (there.high, back.low)] {
            assert!((x * y - 1.0).abs() < 1e-12);
        }
    }

    #[test]
    fn few_groups_say_nothing() {
        assert!(compare(&groups(FEWEST - 1, 2.0, 0.0, 0)).is_none());
        assert!(compare(&[]).is_none());
    }
}
