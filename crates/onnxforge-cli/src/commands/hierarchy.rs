//! What the commands about modules share: where the hierarchy comes from, and which modules have tags.

use std::path::{Path, PathBuf};

use onnxforge::hierarchy::recorded::{Recorded, read};
use onnxforge::hierarchy::scoped::strangers;
use onnxforge::hierarchy::sidecar::path_for;
use onnxforge::hierarchy::store::fingerprint;
use onnxforge::hierarchy::{Certainty, Hierarchy, Policy, Tags};
use onnxforge::ir::dtype::Kind;
use onnxforge::ir::{Model, ValueId};

use crate::failure::Failure;
use crate::output::Output;

/// A model, and what is known of its modules.
#[derive(Debug, clap::Args)]
pub struct Source {
    /// The model.
    pub model: PathBuf,
    /// The PyTorch model's modules as JSON; a sidecar beside the model is found by itself.
    #[arg(long, value_name = "FILE.json")]
    pub modules: Option<PathBuf>,
}

/// Which modules have tags of their own.
#[derive(Debug, clap::Args)]
pub struct PolicyArgs {
    /// Classes of torch.nn that have tags of their own [default: LayerNorm,Embedding and composites].
    #[arg(long, value_name = "A,B", value_delimiter = ',', conflicts_with_all = ["all", "no_torch_nn"])]
    keep: Option<Vec<String>>,
    /// Every module has a tag of its own.
    #[arg(long, conflicts_with = "no_torch_nn")]
    all: bool,
    /// No class of torch.nn has.
    #[arg(long)]
    no_torch_nn: bool,
}

/// A model whose modules are looked at under a policy.
#[derive(Debug, clap::Args)]
pub struct Viewed {
    #[command(flatten)]
    pub source: Source,
    #[command(flatten)]
    policy: PolicyArgs,
}

/// What is seen.
pub struct View {
    pub model: Model,
    pub hierarchy: Hierarchy,
    pub policy: Policy,
    pub tags: Tags,
}

impl Viewed {
    /// The model, its hierarchy, and its tags under the policy.
    pub fn load(&self, output: &Output) -> Result<View, Failure> {
        self.policy.view(&self.source, output)
    }
}

impl PolicyArgs {
    /// A model, its hierarchy, and its tags under the policy.
    pub fn view(&self, source: &Source, output: &Output) -> Result<View, Failure> {
        let (model, hierarchy) = source.load(output)?;
        let policy = self.resolve(&hierarchy);
        let tags = Tags::new(hierarchy.table(), &policy);
        Ok(View { model, hierarchy, policy, tags })
    }

    /// The policy; as the model was tagged, if nothing is said.
    pub fn resolve(&self, hierarchy: &Hierarchy) -> Policy {
        match (&self.keep, self.all, self.no_torch_nn) {
            (Some(keep), ..) => Policy { keep: keep.clone(), ..Policy::default() },
            (_, true, _) => Policy::all(),
            (_, _, true) => Policy::no_torch_nn(),
            _ => hierarchy.policy(),
        }
    }
}

impl Source {
    /// What must not be overwritten with something else.
    pub fn files(&self) -> Vec<PathBuf> {
        let own = [self.model.clone(), path_for(&self.model)];
        own.into_iter().chain(self.modules.clone()).collect()
    }

    /// The model and its hierarchy.
    pub fn load(&self, output: &Output) -> Result<(Model, Hierarchy), Failure> {
        let model = output.files.load(&self.model)?;
        let hierarchy = self.hierarchy(&model, output)?;
        Ok((model, hierarchy))
    }

    /// The hierarchy of the model, with what is recorded beside it.
    fn hierarchy(&self, model: &Model, output: &Output) -> Result<Hierarchy, Failure> {
        let recorded = match &self.modules {
            Some(path) => Some(read_table(path, output)?),
            None => sidecar(&self.model, model, output),
        };
        let hierarchy = Hierarchy::of(model, recorded.as_ref());
        if let (Some(path), Some(recorded)) = (&self.modules, &recorded) {
            refuse_foreign(path, &self.model, model, recorded, &hierarchy)?;
        }
        Ok(hierarchy)
    }
}

/// Reads a table of modules.
pub fn read_table(path: &Path, output: &Output) -> Result<Recorded, Failure> {
    read(&output.files.read(path)?).map_err(|error| Failure::at(path, error))
}

/// The sidecar beside a model, if there is one that belongs to it.
pub fn sidecar(path: &Path, model: &Model, output: &Output) -> Option<Recorded> {
    let beside = path_for(path);
    if !beside.is_file() {
        return None;
    }
    match read_table(&beside, output) {
        Ok(recorded) if recorded.fingerprint.as_ref().is_none_or(|known| *known == fingerprint(model)) => {
            Some(recorded)
        }
        Ok(_) => {
            tracing::warn!("{}: belongs to another graph and is not used", beside.display());
            None
        }
        Err(failure) => {
            tracing::warn!("{failure}; it is not used");
            None
        }
    }
}

/// Refuses a table that belongs to another model.
fn refuse_foreign(
    table: &Path,
    path: &Path,
    model: &Model,
    recorded: &Recorded,
    hierarchy: &Hierarchy,
) -> Result<(), Failure> {
    let sidecar = recorded.fingerprint.as_ref().is_some_and(|known| *known != fingerprint(model));
    if sidecar {
        let text = "this sidecar belongs to another graph; `onnxforge restore` carries tags over to models that were made from one";
        return Err(Failure::at(table, text));
    }
    let known = |id| {
        let origin = hierarchy.origin(id);
        let path = &*hierarchy.table().get(origin.primary()).path;
        (origin.evidence.certainty() != Certainty::Root).then_some(path)
    };
    let strange = strangers(model, &recorded.table);
    let is_listed = |path: &str| !path.is_empty() && recorded.table.find(path).is_some();
    // Every table has the model itself; that alone says nothing, unless all nodes are its own. Models that only hand values on have no names to tell.
    let is_weight = |(id, _): (ValueId, &_)| {
        model.constant(id).is_some_and(|tensor| tensor.dtype().kind() == Kind::Float)
    };
    let fits = (model.nodes().all(|(id, _)| known(id).is_none()) && !model.values().any(is_weight))
        || model.nodes().any(|(id, _)| known(id).is_some_and(is_listed))
        || model.nodes().all(|(id, _)| known(id) == Some(""));
    if !fits || strange * 4 > model.node_count() * 3 {
        let text = format_args!(
            "the nodes of {} do not come from these modules; is it the table of another model?",
            path.display()
        );
        return Err(Failure::at(table, text));
    }
    Ok(())
}
