//! Scopes in the names of nodes, which is all that some exporters leave: `/encoder/layer.0/attention/MatMul`.
//!
//! PyTorch's older exporter begins with a slash. Each level of a name is the end of a module's path: its last part, and those before it while the part is a number. The second call of a
//! module adds `_1`, the third `_2`. What a level leaves out (lists and dictionaries of modules are not called) the table of modules fills in.
//!
//! Names out of TensorFlow, as those of Keras' layers, have all levels of a path and no slash in front: `encoder_1/dense_2/Tensordot/MatMul`. Numbers that it adds are part of the name. Levels at the
//! end that are functions of TensorFlow are no layers.

use std::collections::HashMap;

use super::module::{Module, ModuleId, ModuleTable};
use super::naming::{Naming, without_call};
use onnxforge_ir::Model;

/// The end of a path that names are made of.
pub fn level_of(path: &str) -> &str {
    let mut start = path.len();
    loop {
        let before = path.get(..start).unwrap_or_default().trim_end_matches('.');
        let part = before.rfind('.').map_or(0, |dot| dot + 1);
        let number = before.get(part..).is_some_and(|part| part.bytes().all(|byte| byte.is_ascii_digit()));
        start = part;
        if part == 0 || !number {
            return path.get(start..).unwrap_or_default();
        }
    }
}

/// A level that fits more modules tells nothing but that they lie in one.
const MOST_MEANT: usize = 1 << 6;
/// Names with more slashes in them are not put together again.
const MOST_SLASHES: usize = 1 << 4;

/// Finds the modules of scopes.
pub struct Resolver<'t> {
    table: &'t ModuleTable,
    naming: Naming,
    /// In the order of the table.
    by_level: HashMap<&'t str, Vec<ModuleId>>,
    /// Where those inside of each module end in the table.
    ends: Vec<usize>,
    /// Slashes in the level that has most of them.
    slashes: usize,
    known: HashMap<String, Option<Resolved>>,
    known_inside: HashMap<(ModuleId, String), Vec<ModuleId>>,
}

/// The module of a scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The module.
    pub module: ModuleId,
    /// No other module could have been meant.
    pub certain: bool,
}

impl<'t> Resolver<'t> {
    /// For this table, and names of this kind.
    pub fn new(table: &'t ModuleTable, naming: Naming) -> Self {
        let mut by_level: HashMap<&str, Vec<ModuleId>> = HashMap::new();
        for (id, module) in table.iter().filter(|(_, module)| !module.path.is_empty()) {
            by_level.entry(level_of(&module.path)).or_default().push(id);
        }
        let mut ends: Vec<usize> = (1..=table.len()).collect();
        let ids: Vec<ModuleId> = table.iter().map(|(id, _)| id).collect();
        for id in ids.into_iter().rev() {
            if let Some(parent) = table.parent(id) {
                ends[parent.index()] = ends[parent.index()].max(ends[id.index()]);
            }
        }
        let slashes = by_level.keys().map(|level| level.matches('/').count()).max().unwrap_or(0);
        let slashes = slashes.min(MOST_SLASHES);
        Self { table, naming, by_level, ends, slashes, known: HashMap::new(), known_inside: HashMap::new() }
    }

    /// The module that a scope means; `None` where the table knows nothing of it.
    pub fn resolve(&mut self, scope: &str) -> Option<Resolved> {
        if let Some(known) = self.known.get(scope) {
            return *known;
        }
        let found = self.search(scope);
        self.known.insert(scope.to_owned(), found);
        found
    }

    /// The level of which this one is a later call.
    fn called<'l>(&self, level: &'l str) -> Option<&'l str> {
        without_call(level).filter(|_| self.naming == Naming::Torch)
    }

    /// All modules whose names end as the scope does, in the order of the table.
    pub fn fitting(&self, scope: &str) -> Vec<ModuleId> {
        let ends = scope.match_indices('/').rev().take(MOST_SLASHES).map(|(at, _)| at + 1).chain([0]);
        let ends = ends.filter_map(|at| scope.get(at..)).flat_map(|level| [Some(level), self.called(level)]);
        let found = ends.flatten().filter_map(|level| self.by_level.get(level)).flatten();
        let mut found: Vec<ModuleId> = found.copied().take(MOST_MEANT).collect();
        found.sort();
        found.dedup();
        found
    }

    fn search(&mut self, scope: &str) -> Option<Resolved> {
        let levels: Vec<&str> = scope.split('/').filter(|level| !level.is_empty()).collect();
        // What the levels up to each place may mean.
        let mut meant: Vec<Vec<Resolved>> = vec![Vec::new(); levels.len() + 1];
        meant[0].push(Resolved { module: ModuleId::ROOT, certain: true });
        let mut deepest = 0;
        for at in 0..levels.len() {
            for from in meant[at].clone() {
                for taken in 1..=(self.slashes + 1).min(levels.len() - at) {
                    let level = levels[at..at + taken].join("/");
                    for found in self.step(from, &level) {
                        if !meant[at + taken].iter().any(|known| known.module == found.module) {
                            meant[at + taken].push(found);
                            deepest = deepest.max(at + taken);
                        }
                    }
                }
            }
        }
        let last = &meant[deepest];
        let module = self.table.common(last.iter().map(|found| found.module))?;
        let certain = deepest == levels.len() && last.len() == 1 && last[0].certain;
        // That something lies somewhere in the model is known without its name.
        (certain || module != ModuleId::ROOT).then_some(Resolved { module, certain })
    }

    /// The modules that a level may mean inside of a module.
    fn step(&mut self, from: Resolved, level: &str) -> Vec<Resolved> {
        let plain = self.nearest(from.module, level);
        let called = self.called(level).map(|base| self.nearest(from.module, base)).unwrap_or_default();
        let is_level = |id: &ModuleId| {
            let own = level_of(&self.table.get(*id).path);
            own == level || Some(own) == self.called(level)
        };
        let certain =
            from.certain && plain.len() + called.len() == 1 && plain.iter().chain(&called).all(is_level);
        let inside = if plain.is_empty() { called } else { plain };
        if !inside.is_empty() {
            return inside.into_iter().map(|module| Resolved { module, certain }).collect();
        }
        // A module that is called by another one than that which holds it.
        let elsewhere = |level: &str| self.by_level.get(level).filter(|found| found.len() == 1);
        let found = elsewhere(level).or_else(|| elsewhere(self.called(level)?));
        found.into_iter().flatten().map(|&module| Resolved { module, certain: false }).collect()
    }

    /// The modules of this level inside of another one, those that lie the fewest levels deep. Where there are too many, the one
    /// around them stands for all.
    fn nearest(&mut self, around: ModuleId, level: &str) -> Vec<ModuleId> {
        let Some(all) = self.by_level.get(level) else { return Vec::new() };
        let key = (around, level.to_owned());
        if let Some(known) = self.known_inside.get(&key) {
            return known.clone();
        }
        let from = all.partition_point(|id| id.index() <= around.index());
        let to = all.partition_point(|id| id.index() < self.ends[around.index()]);
        let inside = all.get(from..to).unwrap_or_default();
        let least = inside.iter().map(|id| self.table.depth(*id)).min();
        let mut found: Vec<ModuleId> =
            inside.iter().copied().filter(|id| Some(self.table.depth(*id)) == least).collect();
        if found.len() > MOST_MEANT {
            found = self.table.common(found).into_iter().collect();
        }
        self.known_inside.insert(key, found.clone());
        found
    }
}

/// How many nodes have names whose scopes end like the path of no module: they belong to another model's table.
pub fn strangers(model: &Model, table: &ModuleTable) -> usize {
    let naming = Naming::of(model);
    let resolver = Resolver::new(table, naming);
    let scopes =
        model.nodes().filter_map(|(_, node)| naming.scope(node.name()?)).filter(|scope| !scope.is_empty());
    scopes.filter(|scope| resolver.fitting(scope).is_empty()).count()
}

/// The modules that the names of nodes and of parameters tell of, for files that have nothing else. Their classes are not known.
pub fn modules(model: &Model) -> Vec<Module> {
    let mut found: Vec<Module> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut place = |path: &str, found: &mut Vec<Module>| {
        *places.entry(path.to_owned()).or_insert_with(|| {
            found.push(Module { path: path.into(), ..Module::default() });
            found.len() - 1
        })
    };
    let naming = Naming::of(model);
    for (_, node) in model.nodes() {
        let Some(scope) = node.name().and_then(|name| naming.scope(name)) else { continue };
        let mut path = String::new();
        for level in scope.split('/').filter(|level| !level.is_empty()) {
            path = beneath(&path, level);
            place(&path, &mut found);
        }
    }
    for (id, _) in model.initializers() {
        if let Some((path, own)) =
            model.value(id).name().rsplit_once('.').filter(|(path, own)| are_names(path, own))
        {
            let at = place(path, &mut found);
            found[at].direct_parameters.push(own.to_owned());
        }
    }
    found
}

/// Whether a name is made of names of attributes, as parameters of modules are.
fn are_names(path: &str, own: &str) -> bool {
    let is_name = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    is_name(own) && !own.starts_with(|first: char| first.is_ascii_digit()) && path.split('.').all(is_name)
}

/// The path of a level inside of a module. A Sequential is repeated by what it holds: `stem`, then `stem.0`.
fn beneath(path: &str, level: &str) -> String {
    let own = level_of(path);
    match level.strip_prefix(own).and_then(|rest| rest.strip_prefix('.')) {
        Some(rest) if !own.is_empty() => format!("{path}.{rest}"),
        _ if path.is_empty() => level.to_owned(),
        _ => format!("{path}.{level}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(paths: &[&str]) -> ModuleTable {
        let module = |path: &&str| Module { path: (*path).into(), ..Module::default() };
        ModuleTable::new(paths.iter().map(module).collect()).unwrap()
    }

    fn resolved(table: &ModuleTable, name: &str) -> Option<(String, bool)> {
        let found = Resolver::new(table, Naming::Torch).resolve(Naming::Torch.scope(name)?)?;
        Some((table.get(found.module).path.to_string(), found.certain))
    }

    #[test]
    fn levels_end_at_the_first_name() {
        assert_eq!(level_of("encoder.layer.0"), "layer.0");
        assert_eq!(level_of("a.b"), "b");
        assert_eq!(level_of("a.0.1"), "a.0.1");
        assert_eq!((level_of("0"), level_of(""), level_of("x")), ("0", "", "x"));
    }

    #[test]
    fn what_the_older_exporter_writes() {
        let table = table(&[
            "stem",
            "stem.0",
            "blocks",
            "blocks.0",
            "blocks.0.conv",
            "branches",
            "branches.a",
            "d1",
            "d1.a",
            "d1.a.l",
            "d1.x/y",
            "d2",
            "d2.a",
            "d2.a.l",
            "proj",
            "proj_1",
            "norm_a",
            "relu",
        ]);
        let is = |name: &str, path: &str, certain: bool| {
            assert_eq!(resolved(&table, name), Some((path.to_owned(), certain)), "{name}");
        };
        is("/stem/stem.0/Conv", "stem.0", true);
        is("/blocks.0/conv/Conv", "blocks.0.conv", true);
        is("/Cast_3", "", true);
        is("/relu/Relu", "relu", true);
        is("/relu_2/Relu", "relu", true);
        is("/x/y/Add", "d1.x/y", true);
        // Three modules are called `a`, and two of them hold an `l`.
        assert_eq!(resolved(&table, "/a/Conv"), None);
        assert_eq!(resolved(&table, "/a/l/Gemm"), None);
        // Both a module of this name and a second call of another one.
        is("/proj_1/Gemm", "proj_1", false);
        assert_eq!(resolved(&table, "/nothing/Gemm"), None);
        assert_eq!(resolved(&table, "node_MatMul_3"), None);
    }

    #[test]
    fn what_a_scope_could_mean() {
        let table = table(&["d1", "d1.a", "d1.a.l", "d1.x/y", "d2", "d2.a", "d2.a.l", "proj", "proj_1"]);
        let fitting = |scope: &str| -> Vec<String> {
            let found = Resolver::new(&table, Naming::Torch).fitting(scope);
            found.into_iter().map(|id| table.get(id).path.to_string()).collect()
        };
        assert_eq!(fitting("a/l_1"), ["d1.a.l", "d2.a.l"]);
        assert_eq!(fitting("a_1"), ["d1.a", "d2.a"]);
        assert_eq!(fitting("proj_1"), ["proj", "proj_1"]);
        assert_eq!(fitting("d1/x/y"), ["d1.x/y"]);
        assert!(fitting("nothing").is_empty() && fitting("").is_empty());
    }

    #[test]
    fn a_level_of_many_modules_means_the_one_around_them() {
        let paths: Vec<String> =
            (0..1000).flat_map(|n| [format!("b.m{n}"), format!("b.m{n}.conv")]).collect();
        let table = table(&paths.iter().map(String::as_str).chain(["b"]).collect::<Vec<_>>());
        assert_eq!(resolved(&table, "/conv/Conv"), Some(("b".to_owned(), false)));
        assert_eq!(resolved(&table, "/m7/conv/Conv"), Some(("b.m7.conv".to_owned(), true)));
    }

    #[test]
    fn names_that_are_no_scopes() {
        let scope = |name| Naming::Torch.scope(name);
        assert_eq!((scope("/a/b/Conv"), scope("/Conv"), scope("Conv")), (Some("a/b"), Some(""), None));
        assert_eq!((scope(&"/a".repeat(1000)), scope(&format!("/{}/Conv", "a".repeat(5000)))), (None, None));
    }

    #[test]
    fn names_out_of_tensorflow() {
        let scope = |name| Naming::TensorFlow.scope(name);
        assert_eq!(scope("net_1/dense_2/MatMul"), Some("net_1/dense_2"));
        assert_eq!(scope("net_1/dense_2/Tensordot_1/Reshape__12"), Some("net_1/dense_2"));
        assert_eq!(scope("net_1/norm/moments/SquaredDifference/x"), Some("net_1/norm"));
        // A layer may be called as a function is, where it stands alone.
        assert_eq!(
            (scope("einsum/Einsum"), scope("Transpose__7"), scope("Relu")),
            (Some("einsum"), None, None)
        );
        let table = table(&["net", "net.conv", "net.conv_1"]);
        let mut resolver = Resolver::new(&table, Naming::TensorFlow);
        let found = resolver.resolve("net/conv_1").unwrap();
        assert_eq!((&*table.get(found.module).path, found.certain), ("net.conv_1", true));
        assert_eq!(resolver.fitting("net/conv_1").len(), 1);
    }

    #[test]
    fn paths_from_names_alone() {
        assert_eq!(beneath("", "encoder"), "encoder");
        assert_eq!(beneath("stem", "stem.0"), "stem.0");
        assert_eq!(beneath("encoder", "layer.0"), "encoder.layer.0");
        assert_eq!(beneath("layer1", "layer1.0"), "layer1.0");
    }
}
