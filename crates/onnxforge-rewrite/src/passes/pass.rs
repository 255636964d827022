//! What a pass is, and the facts that it carries about itself.

use super::targets::Target;
use crate::{Author, Rule, Skipped, Workbench};
use onnxforge_ir::{Accuracy, Trust};

/// A named change to models. Everything that others want to know of it stands in its own file: lists, selections and documents follow from these
/// facts.
pub struct Pass {
    /// File name, and the name on the command line.
    pub name: &'static str,
    /// Its source, which begins with what it does and why that is right.
    source: &'static str,
    /// What it does.
    pub work: Work,
    /// When it runs.
    pub stage: Stage,
    /// Operators that no pass makes and of which at least one must be in a model: without any there is nothing to do. Empty where that cannot be
    /// said.
    pub needs: &'static [&'static str],
    /// Where it runs unless passes are asked for by name.
    pub runs: Runs,
    /// The arguments that its changes may give for types and shapes that inference does not know.
    pub trusts: &'static [Trust],
}

/// What a pass does.
#[derive(Clone, Copy)]
pub enum Work {
    /// Applies rules until none fires.
    Rules(&'static [&'static dyn Rule]),
    /// Looks at the model as a whole. Answers how many changes it made.
    Model {
        /// The most that it may change results.
        accuracy: Accuracy,
        /// The work.
        run: fn(&mut Workbench<'_>, &mut Vec<Skipped>) -> usize,
    },
}

/// When a pass runs: a stage starts where the one before finds nothing any more, and runs what that ran as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Removes detours, so that the same thing always looks the same.
    Canonicalize,
    /// Recognises what is decomposed, and calls the operator for it.
    Fuse,
    /// Lets what is left work in the layout that takes the fewest Transposes. Fusions know the layouts of the exporters only.
    Layout,
    /// Saves more by forms in which fusions would recognise nothing.
    Cleanup,
    /// Says it as the target wants it.
    Target,
}

impl Stage {
    /// The stages in order.
    pub const ALL: [Self; 5] = [Self::Canonicalize, Self::Fuse, Self::Layout, Self::Cleanup, Self::Target];
}

/// Where a pass runs unless passes are asked for by name.
#[derive(Clone, Copy, Debug)]
pub enum Runs {
    /// For every target.
    Always,
    /// For every target but these, which cannot use what it makes.
    Except(&'static [&'static Target]),
    /// For these targets only.
    Only(&'static [&'static Target]),
    /// Nowhere.
    OnRequest,
}

impl Pass {
    /// A pass of the first stage that runs always. `source` begins with what it does, in lines that start with `//!`.
    pub const fn new(name: &'static str, source: &'static str, work: Work) -> Self {
        Self { name, source, work, stage: Stage::Canonicalize, needs: &[], runs: Runs::Always, trusts: &[] }
    }

    /// The same pass, whose changes may give these arguments for types and shapes that inference does not know.
    pub const fn trusting(self, trusts: &'static [Trust]) -> Self {
        Self { trusts, ..self }
    }

    /// The same pass at another stage.
    pub const fn at(self, stage: Stage) -> Self {
        Self { stage, ..self }
    }

    /// The same pass, which does nothing without one of these operators.
    pub const fn needing(self, needs: &'static [&'static str]) -> Self {
        Self { needs, ..self }
    }

    /// The same pass, which runs elsewhere.
    pub const fn running(self, runs: Runs) -> Self {
        Self { runs, ..self }
    }

    /// As whom it changes models.
    pub fn author(&self) -> Author {
        Author { name: self.name, trusts: self.trusts }
    }

    /// Its file.
    pub fn source(&self) -> &'static str {
        self.source
    }

    /// What it does, when and why that is right: the text at the head of its file.
    pub fn text(&self) -> String {
        let lines = self.source.lines().map_while(|line| line.strip_prefix("//!"));
        lines.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect::<Vec<_>>().join("\n")
    }

    /// What it does, in one line.
    pub fn summary(&self) -> String {
        let text = self.text();
        let first = text.split("\n\n").next().unwrap_or_default().replace('\n', " ");
        first.split_once(": ").map_or(first.clone(), |(_, summary)| summary.to_owned())
    }

    /// Whether it runs only where it is asked for.
    pub fn is_optional(&self) -> bool {
        matches!(self.runs, Runs::OnRequest)
    }

    /// Whether it runs for a target unless passes are asked for by name.
    pub fn runs_for(&self, target: &Target) -> bool {
        match self.runs {
            Runs::Always => true,
            Runs::Except(targets) => !targets.contains(&target),
            Runs::Only(targets) => targets.contains(&target),
            Runs::OnRequest => false,
        }
    }

    /// The most that it may change results.
    pub fn accuracy(&self) -> Accuracy {
        match self.work {
            Work::Model { accuracy, .. } => accuracy,
            Work::Rules(rules) => rules.iter().fold(Accuracy::BitExact, |worst, rule| {
                if rule.accuracy() > worst { rule.accuracy() } else { worst }
            }),
        }
    }
}

impl PartialEq for Pass {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Pass {}

impl std::fmt::Debug for Pass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// How a pass file makes its entry: the name is the file's name, the text at its head the documentation, and the facts stand in this order,
/// those in parentheses where they apply: `stage`, (`needs`), (`runs`), (`trusts`), and `rules`, or `accuracy` and the function `run`.
macro_rules! pass {
    ($name:ident {
        stage: $stage:ident
        $(, needs: [$($op:literal),+ $(,)?])?
        $(, runs: $runs:ident $(($targets:expr))?)?
        $(, trusts: [$($trust:ident),+ $(,)?])?
        , rules: [$($rule:ident),+ $(,)?] $(,)?
    }) => {
        $crate::passes::pass! {
            @entry $name, $stage, ($($($op),+)?), ($($runs $(($targets))?)?), ($($($trust),+)?),
            $crate::passes::Work::Rules(&[$(&$rule),+])
        }
    };
    ($name:ident {
        stage: $stage:ident
        $(, needs: [$($op:literal),+ $(,)?])?
        $(, runs: $runs:ident $(($targets:expr))?)?
        $(, trusts: [$($trust:ident),+ $(,)?])?
        , accuracy: $accuracy:expr
        , run $(,)?
    }) => {
        $crate::passes::pass! {
            @entry $name, $stage, ($($($op),+)?), ($($runs $(($targets))?)?), ($($($trust),+)?),
            $crate::passes::Work::Model { accuracy: $accuracy, run }
        }
    };
    (@entry $name:ident, $stage:ident, ($($op:literal),*), ($($runs:ident $(($targets:expr))?)?), ($($trust:ident),*), $work:expr) => {
        /// This pass.
        pub static PASS: $crate::passes::Pass = $crate::passes::Pass::new(
            stringify!($name),
            include_str!(concat!(stringify!($name), ".rs")),
            $work,
        )
        .at($crate::passes::Stage::$stage)
        .needing(&[$($op),*])
        $(.running($crate::passes::Runs::$runs $(($targets))?))?
        .trusting(&[$(onnxforge_ir::Trust::$trust),*]);
    };
}
pub(super) use pass;
