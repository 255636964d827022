//! The modules of a PyTorch model: their paths, classes and parameters, in one table.

use std::collections::HashMap;

use serde_json::Value as Json;

use onnxforge_proto::Str;

/// Number of a module in its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModuleId(u32);

impl ModuleId {
    /// The model itself.
    pub const ROOT: Self = Self(0);

    /// Its place in the table.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// One module instance.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Module {
    /// Attribute names from the model down to it, with dots between them; empty for the model itself.
    pub path: Str,
    /// Its class with the Python module that defines it, where known.
    pub class: Option<Str>,
    /// The path that it is known by elsewhere, for one module under two names.
    pub alias_of: Option<Str>,
    /// Names of the arguments of `forward`.
    pub forward_args: Vec<String>,
    /// Their defaults, as far as there are any.
    pub forward_defaults: serde_json::Map<String, Json>,
    /// Names of its own parameters.
    pub direct_parameters: Vec<String>,
    /// Names of its own buffers.
    pub direct_buffers: Vec<String>,
    /// Names and classes of its children, those without nodes included.
    pub children: Vec<(String, String)>,
}

impl Module {
    /// The class without the Python module that defines it.
    pub fn short_class(&self) -> Option<&str> {
        self.class.as_deref().map(|class| class.rsplit('.').next().unwrap_or(class))
    }

    /// Whether PyTorch defines its class.
    pub fn is_torch_nn(&self) -> bool {
        self.class.as_deref().is_some_and(|class| class.starts_with("torch.nn."))
    }

    /// Whether it only holds others, which are called instead of it or one after the other.
    pub fn is_container(&self) -> bool {
        self.class.as_deref().is_some_and(|class| class.starts_with("torch.nn.modules.container."))
    }
}

/// Why a table cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// An alias of an alias that comes round.
    #[error("module {0:?} is an alias of itself, over others")]
    Cycle(String),
    /// An alias of nothing.
    #[error("module {0:?} is an alias of {1:?}, which the table does not have")]
    Alias(String, String),
    /// The same path twice.
    #[error("module {0:?} is listed twice")]
    Twice(String),
    /// Too many modules for any model.
    #[error("more than {0} modules")]
    TooMany(usize),
    /// A path with more parts than any model has.
    #[error("module {0:?} lies more than {1} levels deep")]
    TooDeep(String, usize),
    /// A path or class longer than any.
    #[error("module {0:?} has a path or class of more than {1} bytes")]
    TooLong(String, usize),
}

/// The start of a text, for a message.
fn shortened(text: &str) -> String {
    const SHOWN: usize = 60;
    let start: String = text.chars().take(SHOWN).collect();
    if start.len() == text.len() { start } else { format!("{start}…") }
}

/// More than any model has; a table is untrusted input.
const MOST_MODULES: usize = 1 << 22;

/// The same for the parts of a path: what is written of a module grows with those around it.
const MOST_LEVELS: usize = 1 << 8;

/// The same for the bytes of a path or class.
const LONGEST_NAME: usize = 1 << 14;

/// All modules, the model itself first and each before those inside of it.
#[derive(Clone, Debug)]
pub struct ModuleTable {
    modules: Vec<Module>,
    /// The nearest listed module around each.
    parents: Vec<Option<ModuleId>>,
    /// Levels from the model itself down to each.
    depths: Vec<usize>,
    by_path: HashMap<Str, ModuleId>,
    /// Bytes of the longest path.
    longest: usize,
    /// By the names of parameters and buffers.
    owners: HashMap<String, ModuleId>,
    /// Whether the class of any module is known.
    has_classes: bool,
}

impl Default for ModuleTable {
    fn default() -> Self {
        Self::around(Module::default())
    }
}

impl ModuleTable {
    /// The modules, in the order in which parents come before what is inside of them and siblings stay as given. The model itself
    /// is added where it is missing.
    pub fn new(given: Vec<Module>) -> Result<Self, TableError> {
        if given.len() > MOST_MODULES {
            return Err(TableError::TooMany(MOST_MODULES));
        }
        let mut place: HashMap<Str, usize> = HashMap::new();
        for (index, module) in given.iter().enumerate() {
            if module.path.len().max(module.class.as_ref().map_or(0, |class| class.len())) > LONGEST_NAME {
                return Err(TableError::TooLong(shortened(&module.path), LONGEST_NAME));
            }
            if module.path.split('.').count() > MOST_LEVELS {
                return Err(TableError::TooDeep(shortened(&module.path), MOST_LEVELS));
            }
            if place.insert(module.path.clone(), index).is_some() {
                return Err(TableError::Twice(shortened(&module.path)));
            }
        }
        check_aliases(&given, &place)?;
        let around = |path: &str| ancestors(path).find_map(|above| place.get(above).copied());
        let mut inside: HashMap<Option<usize>, Vec<usize>> = HashMap::new();
        for (index, module) in given.iter().enumerate().filter(|(_, module)| !module.path.is_empty()) {
            let root = place.get("").copied();
            inside.entry(around(&module.path).filter(|&above| Some(above) != root)).or_default().push(index);
        }
        let mut table = Self::around(place.get("").map(|&root| given[root].clone()).unwrap_or_default());
        let mut open: Vec<(usize, ModuleId)> = Vec::new();
        let next = |above: Option<usize>, id: ModuleId, open: &mut Vec<(usize, ModuleId)>| {
            let inside = inside.get(&above).into_iter().flatten();
            open.extend(inside.rev().map(|&index| (index, id)));
        };
        next(None, ModuleId::ROOT, &mut open);
        while let Some((index, parent)) = open.pop() {
            let id = table.push(given[index].clone(), Some(parent));
            next(Some(index), id, &mut open);
        }
        Ok(table)
    }

    /// A table of nothing but the model itself.
    fn around(root: Module) -> Self {
        let mut table = Self {
            modules: Vec::new(),
            parents: Vec::new(),
            depths: Vec::new(),
            by_path: HashMap::new(),
            longest: 0,
            owners: HashMap::new(),
            has_classes: false,
        };
        table.push(root, None);
        table
    }

    fn push(&mut self, module: Module, parent: Option<ModuleId>) -> ModuleId {
        let id = ModuleId(self.modules.len() as u32);
        self.depths.push(parent.map_or(0, |parent| self.depths[parent.index()] + 1));
        self.longest = self.longest.max(module.path.len());
        self.has_classes |= module.class.is_some();
        self.by_path.insert(module.path.clone(), id);
        for own in module.direct_parameters.iter().chain(&module.direct_buffers) {
            let name = if module.path.is_empty() { own.clone() } else { format!("{}.{own}", module.path) };
            self.owners.entry(name).or_insert(id);
        }
        self.modules.push(module);
        self.parents.push(parent);
        id
    }

    /// How many there are, the model itself included.
    pub fn len(&self) -> usize {
        self.modules.len()
    }

    /// Whether there is none but the model itself.
    pub fn is_empty(&self) -> bool {
        self.modules.len() <= 1
    }

    /// Whether the class of any module is known: it is of none where names were all that told of modules.
    pub fn has_classes(&self) -> bool {
        self.has_classes
    }

    /// All of them, parents first.
    pub fn iter(&self) -> impl Iterator<Item = (ModuleId, &Module)> {
        self.modules.iter().enumerate().map(|(index, module)| (ModuleId(index as u32), module))
    }

    /// One of them.
    pub fn get(&self, id: ModuleId) -> &Module {
        &self.modules[id.index()]
    }

    /// The module of a path.
    pub fn find(&self, path: &str) -> Option<ModuleId> {
        self.by_path.get(path).copied()
    }

    /// The paths of modules.
    pub fn paths(&self, modules: &[ModuleId]) -> Vec<&str> {
        modules.iter().map(|&module| &*self.get(module).path).collect()
    }

    /// The module of a path, or the nearest one around it.
    pub fn nearest(&self, path: &str) -> ModuleId {
        // Nobody has to look for what is longer than all: a path may have very many levels.
        let mut around = ancestors(path).filter(|above| above.len() <= self.longest);
        self.find(path).or_else(|| around.find_map(|above| self.find(above))).unwrap_or(ModuleId::ROOT)
    }

    /// The nearest listed module around one; none for the model itself.
    pub fn parent(&self, id: ModuleId) -> Option<ModuleId> {
        self.parents[id.index()]
    }

    /// A module and all around it, the innermost first.
    pub fn chain(&self, id: ModuleId) -> impl Iterator<Item = ModuleId> {
        std::iter::successors(Some(id), |&id| self.parent(id))
    }

    /// Whether a module is another one, or inside of it.
    pub fn is_within(&self, id: ModuleId, around: ModuleId) -> bool {
        self.chain(id).any(|above| above == around)
    }

    /// The innermost module that all of these are within.
    pub fn common(&self, modules: impl IntoIterator<Item = ModuleId>) -> Option<ModuleId> {
        modules.into_iter().reduce(|mut a, mut b| {
            while a != b {
                let deeper = if self.depth(a) >= self.depth(b) { &mut a } else { &mut b };
                *deeper = self.parent(*deeper).unwrap_or(ModuleId::ROOT);
            }
            a
        })
    }

    /// Levels from the model itself down to a module.
    pub fn depth(&self, id: ModuleId) -> usize {
        self.depths[id.index()]
    }

    /// A module and everything inside of it, in their order.
    pub fn within(&self, id: ModuleId) -> impl Iterator<Item = (ModuleId, &Module)> {
        // Skipped before anything is made of them, which takes no time; what is inside of a module follows it.
        let rest = self.modules.iter().enumerate().skip(id.index());
        let rest = rest.map(|(index, module)| (ModuleId(index as u32), module));
        rest.take_while(move |&(inner, _)| inner == id || self.depth(inner) > self.depth(id))
    }

    /// The modules right inside of one, with the rest of their paths.
    pub fn children(&self, id: ModuleId) -> impl Iterator<Item = (&str, ModuleId)> {
        let base = self.get(id).path.len();
        let own = self.within(id).filter(move |&(inner, _)| self.parent(inner) == Some(id));
        own.map(move |(inner, child)| {
            (child.path.get(base..).unwrap_or_default().trim_start_matches('.'), inner)
        })
    }

    /// The module that a parameter or buffer of this name belongs to.
    pub fn owner(&self, name: &str) -> Option<ModuleId> {
        self.owners.get(name).copied()
    }

    /// The parameters of a module and of everything inside of it, by their names from the module down. One that is known
    /// by two names counts once, by the first.
    pub fn parameters(&self, id: ModuleId) -> Vec<String> {
        let base = self.get(id).path.len();
        let mut found = Vec::new();
        for (_, module) in self.within(id).filter(|(_, module)| module.alias_of.is_none()) {
            let path = module.path.get(base..).unwrap_or_default().trim_start_matches('.');
            let named = |own: &String| if path.is_empty() { own.clone() } else { format!("{path}.{own}") };
            found.extend(module.direct_parameters.iter().map(named));
        }
        found
    }

    /// Levels from the model itself down to the deepest module.
    pub fn deepest(&self) -> usize {
        self.depths.iter().copied().max().unwrap_or(0)
    }
}

/// The paths around a path, the innermost first; the model itself comes last.
pub fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    fn above(path: &str) -> Option<&str> {
        match path.rfind('.') {
            Some(dot) => path.get(..dot),
            None => (!path.is_empty()).then_some(""),
        }
    }
    std::iter::successors(above(path), |path| above(path))
}

/// Whether a path is another one or lies inside of it.
pub fn is_inside(path: &str, around: &str) -> bool {
    around.is_empty()
        || path.strip_prefix(around).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Whether every alias ends at a module that is none.
fn check_aliases(given: &[Module], place: &HashMap<Str, usize>) -> Result<(), TableError> {
    // The module that each one was last reached from; what an earlier one reached is known to end.
    let mut reached_from: Vec<Option<usize>> = vec![None; given.len()];
    for (start, module) in given.iter().enumerate() {
        let (mut at, mut here) = (start, module);
        while let Some(target) = &here.alias_of {
            match reached_from[at].replace(start) {
                Some(before) if before == start => return Err(TableError::Cycle(shortened(&module.path))),
                Some(_) => break,
                None => {}
            }
            let next = place.get(target).and_then(|&index| Some((index, given.get(index)?)));
            let missing = || TableError::Alias(shortened(&here.path), shortened(target));
            (at, here) = next.ok_or_else(missing)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(modules: &[(&str, Option<&str>)]) -> Result<ModuleTable, TableError> {
        let module = |&(path, alias): &(&str, Option<&str>)| Module {
            path: path.into(),
            alias_of: alias.map(Into::into),
            direct_parameters: vec!["weight".to_owned()],
            ..Module::default()
        };
        ModuleTable::new(modules.iter().map(module).collect())
    }

    #[test]
    fn aliases_end_somewhere() {
        assert!(table(&[("a", Some("b")), ("b", Some("c")), ("c", None), ("d", Some("b"))]).is_ok());
        let cycle = |path: &str| Err(TableError::Cycle(path.to_owned()));
        assert_eq!(table(&[("a", Some("b")), ("b", Some("c")), ("c", Some("b"))]).map(|_| ()), cycle("a"));
        assert_eq!(table(&[("a", Some("a"))]).map(|_| ()), cycle("a"));
        let gone = TableError::Alias("b".to_owned(), "gone".to_owned());
        assert_eq!(table(&[("a", Some("b")), ("b", Some("gone"))]).map(|_| ()), Err(gone));
    }

    #[test]
    fn owners_of_parameters() {
        let table = table(&[("", None), ("a", None), ("a.b", None)]).unwrap();
        let owner = |name: &str| table.owner(name).map(|id| table.get(id).path.to_string());
        assert_eq!((owner("weight"), owner("a.b.weight")), (Some(String::new()), Some("a.b".to_owned())));
        assert_eq!((owner("a.bias"), owner("b.weight"), owner("")), (None, None, None));
    }

    #[test]
    fn names_longer_than_any_are_refused_in_a_short_line() {
        let error = table(&[(&"é".repeat(10_000), None)]).unwrap_err().to_string();
        assert!(error.contains("bytes") && error.len() < 300, "{error}");
    }
}
