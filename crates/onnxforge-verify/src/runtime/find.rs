//! Where an ONNX Runtime may be installed.

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use serde::Serialize;

/// The variable that names the library.
pub const VARIABLE: &str = "ORT_DYLIB_PATH";

/// Where a library was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The variable [`VARIABLE`].
    Variable,
    /// The Python package `onnxruntime`.
    Python,
    /// The libraries of the system.
    System,
}

/// A library that may be ONNX Runtime.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Its path, or its name where the system knows the place.
    pub library: PathBuf,
    /// Where it was found.
    pub source: Source,
}

static PREFERRED: OnceLock<PathBuf> = OnceLock::new();

/// Names the folder of the Python package `onnxruntime` that comes before those of other interpreters. The first call counts, and only one
/// before ONNX Runtime is looked for.
pub fn prefer(package: PathBuf) {
    drop(PREFERRED.set(package));
}

/// The library in the package that [`prefer`] named.
pub fn preferred() -> Option<PathBuf> {
    PREFERRED.get().and_then(|package| library_in(&package.join("capi")))
}

/// What may be ONNX Runtime, the best first. Where the variable is set, nothing else is.
pub fn candidates() -> impl Iterator<Item = Candidate> {
    let of = |source: Source| move |library: PathBuf| Candidate { library, source };
    let named = std::env::var_os(VARIABLE).filter(|path| !path.is_empty());
    let is_free = named.is_none();
    let others = std::iter::once_with(move || {
        let mut seen = HashSet::new();
        let found = interpreters().into_iter().filter_map(|python| in_package(&python));
        let python = preferred().into_iter().chain(found);
        let python = python.filter(move |library| seen.insert(library.clone()));
        let system = system_names().iter().map(PathBuf::from);
        python.map(of(Source::Python)).chain(system.map(of(Source::System)))
    });
    named
        .map(PathBuf::from)
        .map(of(Source::Variable))
        .into_iter()
        .chain(others.filter(move |_| is_free).flatten())
}

/// The Python interpreters of the active environment, then those of the search path.
pub(super) fn interpreters() -> Vec<OsString> {
    let of_environment = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(std::env::var_os);
    let inside = |folder: OsString| {
        let folder = PathBuf::from(folder);
        if cfg!(windows) { folder.join("Scripts/python.exe") } else { folder.join("bin/python") }
    };
    of_environment.map(|folder| inside(folder).into()).chain(["python3".into(), "python".into()]).collect()
}

/// The library in the package `onnxruntime` of an interpreter. The package is located, not imported.
fn in_package(python: &OsString) -> Option<PathBuf> {
    // A package in the current folder is nobody's installation: whoever made that folder would run code here.
    const LOCATE: &str = "import sys\nsys.path = [place for place in sys.path if place]\nimport importlib.util as u\n\
                          s = u.find_spec('onnxruntime')\nprint(s.submodule_search_locations[0] if s else '')";
    let output =
        Command::new(python).args(["-c", LOCATE]).stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let folder = String::from_utf8(output.stdout).ok()?;
    let folder = folder.trim_end_matches(['\r', '\n']);
    if folder.is_empty() { None } else { library_in(&Path::new(folder).join("capi")) }
}

/// Whether an interpreter has a package. It is located, not imported.
#[cfg(feature = "litert")]
pub(super) fn has_package(python: &OsString, package: &str) -> bool {
    let locate = format!(
        "import sys\nsys.path = [place for place in sys.path if place]\nimport importlib.util as u\n\
         sys.exit(u.find_spec('{package}') is None)"
    );
    let mut command = Command::new(python);
    command.args(["-c", &locate]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// The library in a folder, whatever version its name carries.
fn library_in(folder: &Path) -> Option<PathBuf> {
    let is_library = |path: &PathBuf| {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        name == "onnxruntime.dll"
            || name.starts_with("libonnxruntime.so")
            || (name.starts_with("libonnxruntime.") && name.ends_with(".dylib"))
    };
    let mut found: Vec<PathBuf> =
        folder.read_dir().ok()?.filter_map(|entry| Some(entry.ok()?.path())).filter(is_library).collect();
    found.sort();
    found.pop()
}

/// The names under which the system's loader may know it.
fn system_names() -> &'static [&'static str] {
    if cfg!(windows) {
        &["onnxruntime.dll"]
    } else if cfg!(target_vendor = "apple") {
        &["libonnxruntime.dylib"]
    } else {
        &["libonnxruntime.so", "libonnxruntime.so.1"]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_of_a_package_is_found_by_its_name() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(library_in(folder.path()), None);
        for name in ["libonnxruntime_providers_shared.so", "__init__.py", "libonnxruntime.so.1.31.1"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        assert_eq!(library_in(folder.path()), Some(folder.path().join("libonnxruntime.so.1.31.1")));
        assert_eq!(library_in(&folder.path().join("missing")), None);
    }
}
