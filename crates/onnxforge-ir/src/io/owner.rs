//! Whose a data file is: which ones a saved model may go on reading, and what its own are called.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use super::external::{Reference, normal_location};
use super::load::{folder_of, read_message};
use crate::model::Model;
use onnxforge_proto::Str;
use onnxforge_proto::schema::TensorProto;
use onnxforge_proto::walk::walk;

/// The place that a model is saved to.
pub(super) struct Site {
    pub folder: PathBuf,
    /// The name of the model file.
    name: String,
    /// Whether the model was loaded from the very file that it replaces.
    pub in_place: bool,
    /// The data files of the model that is replaced.
    in_use: Vec<Str>,
    /// The name of the file that the model was loaded from.
    origin: Option<String>,
    /// Names that new data files cannot have.
    taken: HashSet<String>,
}

impl Site {
    pub fn new(path: &Path, model: &Model) -> Self {
        let name = file_name(path);
        // The model behind a link stays where it is and needs its data; only the link is replaced.
        let is_link = path.symlink_metadata().is_ok_and(|metadata| metadata.is_symlink());
        let in_use = if is_link { Vec::new() } else { references_of(path) };
        Self {
            folder: folder_of(path),
            in_place: !is_link && model.source().is_some_and(|source| same_path(source, path)),
            origin: model.source().map(file_name),
            taken: in_use.iter().map(ToString::to_string).chain([name.clone()]).collect(),
            in_use,
            name,
        }
    }

    /// Reserves names for the data files of the model that is saved.
    pub fn reserve<'a>(&mut self, locations: impl Iterator<Item = &'a Str>) {
        self.taken.extend(locations.map(ToString::to_string));
    }

    /// Whether `location` is the place of the model file itself.
    pub fn is_model(&self, location: &str) -> bool {
        location == self.name
    }

    /// Whether the model that is replaced reads this data file.
    pub fn is_in_use(&self, location: &Str) -> bool {
        self.in_use.contains(location)
    }

    /// Whether a data file is named after another model that is there: `a.onnx.data` beside `a.onnx`.
    pub fn is_of_another(&self, location: &str) -> bool {
        let Some(owner) = location.strip_suffix(".data").or_else(|| location.strip_suffix("_data")) else {
            return false;
        };
        let numbered = owner.rsplit_once('.').filter(|(_, n)| n.bytes().all(|b| b.is_ascii_digit()));
        [Some(owner), numbered.map(|(owner, _)| owner)]
            .into_iter()
            .flatten()
            .any(|owner| !self.is_model(owner) && self.folder.join(owner).is_file())
    }

    /// The name under which a data file is copied: its own, unless that is taken or the one of the original's data.
    pub fn name_for(&mut self, location: &Str) -> String {
        let is_named_after_original = self
            .origin
            .as_deref()
            .is_some_and(|origin| !self.is_model(origin) && is_own_data(location, origin));
        if is_named_after_original
            || self.is_in_use(location)
            || self.is_model(location)
            || self.exists(location)
        {
            return self.own_name();
        }
        location.to_string()
    }

    /// A free name for a data file of the model's own.
    pub fn own_name(&mut self) -> String {
        let name =
            free_name(&format!("{}.data", self.name), |name| self.taken.contains(name) || self.exists(name));
        self.taken.insert(name.clone());
        name
    }

    /// The data files that are named after the model that is replaced, and that it reads.
    pub fn own_data(&self) -> impl Iterator<Item = &Str> {
        self.in_use.iter().filter(|used| is_own_data(used, &self.name))
    }

    fn exists(&self, name: &str) -> bool {
        self.folder.join(name).symlink_metadata().is_ok()
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn same_path(a: &Path, b: &Path) -> bool {
    matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

/// `name`, or `name` with a number before its ending where it is taken.
fn free_name(name: &str, taken: impl Fn(&str) -> bool) -> String {
    if !taken(name) {
        return name.to_owned();
    }
    let (stem, ending) =
        name.rsplit_once('.').map_or((name, String::new()), |(stem, ending)| (stem, format!(".{ending}")));
    (1u64..)
        .map(|i| format!("{stem}.{i}{ending}"))
        .find(|name| !taken(name))
        .unwrap_or_else(|| name.to_owned())
}

/// Whether a data file has one of the names that [`free_name`] gives the data of the model file `model`.
fn is_own_data(location: &str, model: &str) -> bool {
    let number = location.strip_prefix(model).and_then(|rest| rest.strip_suffix("data"));
    number.and_then(|rest| rest.strip_prefix('.')).is_some_and(|number| {
        number.is_empty() || number.strip_suffix('.').is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()))
    })
}

/// The data files that the model in `path` refers to; none when there is no readable model.
fn references_of(path: &Path) -> Vec<Str> {
    let Ok(mut message) = read_message(path) else { return Vec::new() };
    let mut found: Vec<Str> = Vec::new();
    let mut seen: HashSet<Str> = HashSet::new();
    walk(&mut message, &mut |tensor: &mut TensorProto| {
        if tensor.data_location == Some(1)
            && let Ok(reference) = Reference::parse(&tensor.external_data)
            && let location = normal_location(&reference.location)
            && seen.insert(location.clone())
        {
            found.push(location);
        }
    });
    found
}
