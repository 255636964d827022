//! Tags: paths of class names such as `/BertModel/BertEncoder/BertLayer.0`, a view of the module table under a policy.
//!
//! A level is the class of a module and the shortest end of its path that tells it from others of that class below the same tag; a number
//! always shows. So every tag means one instance. Modules that the policy leaves out have the tag of the nearest module around them.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::module::{Module, ModuleId, ModuleTable};
use onnxforge_ops::check::nearest;

/// Which modules have tags of their own.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Policy {
    /// Every module has.
    pub all: bool,
    /// Classes of PyTorch that have one, by their short names.
    pub keep: Vec<String>,
    /// So have classes of PyTorch that hold others and do something with them, such as an encoder layer.
    pub composites: bool,
}

impl Default for Policy {
    /// Classes that are not PyTorch's, its layers that carry meaning, and its composites.
    fn default() -> Self {
        Self { all: false, keep: ["LayerNorm", "Embedding"].map(str::to_owned).into(), composites: true }
    }
}

impl Policy {
    /// Every module has a tag.
    pub fn all() -> Self {
        Self { all: true, ..Self::default() }
    }

    /// No class of PyTorch has one.
    pub fn no_torch_nn() -> Self {
        Self { all: false, keep: Vec::new(), composites: false }
    }

    fn keeps(&self, module: &Module, has_children: bool) -> bool {
        if self.all || module.path.is_empty() {
            return true;
        }
        if !module.is_torch_nn() {
            return true;
        }
        let listed = module.short_class().is_some_and(|class| self.keep.iter().any(|keep| keep == class));
        listed || self.composites && has_children && !module.is_container()
    }
}

/// The tags of all modules.
#[derive(Clone, Debug)]
pub struct Tags {
    tags: Vec<String>,
    /// The module whose tag each one has: itself, or the nearest one around it that has a tag.
    kept: Vec<ModuleId>,
}

impl Tags {
    /// Under a policy.
    pub fn new(table: &ModuleTable, policy: &Policy) -> Self {
        let mut has_children = vec![false; table.len()];
        for (id, _) in table.iter() {
            if let Some(parent) = table.parent(id) {
                has_children[parent.index()] = true;
            }
        }
        let mut kept: Vec<ModuleId> = Vec::with_capacity(table.len());
        // Siblings below one tag, by class.
        let mut siblings: BTreeMap<(ModuleId, String), Vec<ModuleId>> = BTreeMap::new();
        for (id, module) in table.iter() {
            let above = table.parent(id).map_or(ModuleId::ROOT, |parent| kept[parent.index()]);
            let keeps = policy.keeps(module, has_children[id.index()] || !module.children.is_empty());
            // Of a module without class nothing but its place is known; where others have one, it is a list of modules.
            let named = module.class.is_some() || table.get(ModuleId::ROOT).class.is_none();
            if module.path.is_empty() || keeps && (named || policy.all) {
                kept.push(id);
                if id != ModuleId::ROOT {
                    siblings.entry((above, shown_class(module))).or_default().push(id);
                }
            } else {
                kept.push(above);
            }
        }
        let mut levels: Vec<String> = vec![String::new(); table.len()];
        levels[0] = table.get(ModuleId::ROOT).short_class().map(escaped).unwrap_or_default();
        for ((above, class), members) in &siblings {
            let base = table.get(*above).path.len();
            let rest: Vec<Vec<&str>> = members.iter().map(|&id| parts(&table.get(id).path, base)).collect();
            let shown = if class.is_empty() { rest } else { suffixes(&rest) };
            for (&id, suffix) in members.iter().zip(shown) {
                levels[id.index()] = level(class, &suffix);
            }
        }
        let mut tags: Vec<String> = Vec::with_capacity(table.len());
        let mut taken: HashSet<String> = HashSet::new();
        for (id, _) in table.iter() {
            let own = kept[id.index()];
            let mut tag = match table.parent(id).filter(|_| own == id) {
                Some(parent) => {
                    let above = &tags[kept[parent.index()].index()];
                    format!("{}/{}", above.trim_end_matches('/'), levels[id.index()])
                }
                None if own == id => format!("/{}", levels[0]),
                None => tags[own.index()].clone(),
            };
            // A path that stands alone may look like a class with a path.
            while own == id && !taken.insert(tag.clone()) {
                tag.push('~');
            }
            tags.push(tag);
        }
        Self { tags, kept }
    }

    /// The tag of a module.
    pub fn get(&self, id: ModuleId) -> &str {
        &self.tags[id.index()]
    }

    /// The module whose tag a module has.
    pub fn kept(&self, id: ModuleId) -> ModuleId {
        self.kept[id.index()]
    }

    /// Levels of a module's tag below that of the model.
    pub fn depth(&self, table: &ModuleTable, id: ModuleId) -> usize {
        table.chain(id).filter(|&around| around != ModuleId::ROOT && self.kept(around) == around).count()
    }

    /// The modules that have tags of their own, each with its tag.
    pub fn own(&self) -> impl Iterator<Item = (&str, ModuleId)> {
        let own = self.kept.iter().enumerate().filter(|(index, kept)| kept.index() == *index);
        own.map(|(index, &kept)| (&*self.tags[index], kept))
    }

    /// The module of a tag.
    pub fn find(&self, tag: &str) -> Option<ModuleId> {
        self.own().find(|(own, _)| *own == tag).map(|(_, id)| id)
    }

    /// The tag that this one may be a slip of.
    pub fn similar(&self, tag: &str) -> Option<&str> {
        nearest(tag, self.own().map(|(own, _)| own))
    }
}

fn shown_class(module: &Module) -> String {
    module.short_class().map(escaped).unwrap_or_default()
}

/// A name without the character between levels.
fn escaped(name: &str) -> String {
    name.replace('/', "%2F")
}

/// A class and the end of a path; without a class the path stands alone.
fn level(class: &str, suffix: &[&str]) -> String {
    let suffix = escaped(&suffix.join("."));
    match (class, suffix.as_str()) {
        ("", _) => suffix,
        (_, "") => class.to_owned(),
        _ => format!("{class}.{suffix}"),
    }
}

/// The parts of a path behind its first `base` bytes.
fn parts(path: &str, base: usize) -> Vec<&str> {
    path.get(base..).unwrap_or_default().trim_start_matches('.').split('.').collect()
}

/// For each path the shortest end that none of the others has; the only one needs none, unless it ends in a number.
fn suffixes<'p>(paths: &[Vec<&'p str>]) -> Vec<Vec<&'p str>> {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let end = |path: &Vec<&'p str>, length: usize| path[path.len() - length..].to_vec();
    if let [only] = paths {
        let shown = usize::from(only.last().is_some_and(|part| is_number(part)));
        return vec![end(only, shown)];
    }
    let mut lengths = vec![0; paths.len()];
    // Paths that have one end in common, and how long that is.
    let mut open: Vec<(usize, Vec<usize>)> = vec![(0, (0..paths.len()).collect())];
    while let Some((length, alike)) = open.pop() {
        let mut longer: HashMap<&str, Vec<usize>> = HashMap::new();
        for index in alike {
            let path = &paths[index];
            match path.len().checked_sub(length + 1) {
                Some(next) => longer.entry(path[next]).or_default().push(index),
                // The whole path is the end of others, which show more of theirs.
                None => lengths[index] = length,
            }
        }
        for alike in longer.into_values() {
            match alike[..] {
                [one] => lengths[one] = length + 1,
                _ => open.push((length + 1, alike)),
            }
        }
    }
    paths.iter().zip(lengths).map(|(path, length)| end(path, length)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags(modules: &[(&str, &str)], policy: &Policy) -> Vec<String> {
        let module = |&(path, class): &(&str, &str)| Module {
            path: path.into(),
            class: (!class.is_empty()).then(|| class.into()),
            ..Module::default()
        };
        let table = ModuleTable::new(modules.iter().map(module).collect()).unwrap();
        let tags = Tags::new(&table, policy);
        table.iter().map(|(id, _)| tags.get(id).to_owned()).collect()
    }

    const CONTAINER: &str = "torch.nn.modules.container.ModuleList";

    #[test]
    fn one_instance_per_tag() {
        let bert = [
            ("", "m.BertModel"),
            ("embeddings", "m.BertEmbeddings"),
            ("embeddings.word_embeddings", "torch.nn.modules.sparse.Embedding"),
            ("embeddings.position_embeddings", "torch.nn.modules.sparse.Embedding"),
            ("embeddings.LayerNorm", "torch.nn.modules.normalization.LayerNorm"),
            ("encoder", "m.BertEncoder"),
            ("encoder.layer", CONTAINER),
            ("encoder.layer.0", "m.BertLayer"),
            ("encoder.layer.0.dense", "torch.nn.modules.linear.Linear"),
            ("encoder.layer.1", "m.BertLayer"),
        ];
        assert_eq!(
            tags(&bert, &Policy::default()),
            [
                "/BertModel",
                "/BertModel/BertEmbeddings",
                "/BertModel/BertEmbeddings/Embedding.word_embeddings",
                "/BertModel/BertEmbeddings/Embedding.position_embeddings",
                "/BertModel/BertEmbeddings/LayerNorm",
                "/BertModel/BertEncoder",
                "/BertModel/BertEncoder",
                "/BertModel/BertEncoder/BertLayer.0",
                "/BertModel/BertEncoder/BertLayer.0",
                "/BertModel/BertEncoder/BertLayer.1",
            ]
        );
        let all = tags(&bert, &Policy::all());
        assert_eq!(
            all[6..9],
            [
                "/BertModel/BertEncoder/ModuleList",
                "/BertModel/BertEncoder/ModuleList/BertLayer.0",
                "/BertModel/BertEncoder/ModuleList/BertLayer.0/Linear"
            ]
        );
        assert_eq!(tags(&bert, &Policy::no_torch_nn())[2], "/BertModel/BertEmbeddings");
    }

    #[test]
    fn the_shortest_end_that_tells_them_apart() {
        let resnet = [
            ("", "m.ResNet"),
            ("layer1", "torch.nn.modules.container.Sequential"),
            ("layer1.0", "m.BasicBlock"),
            ("layer1.1", "m.BasicBlock"),
            ("layer2.0", "m.BasicBlock"),
            ("only.7", "m.Head"),
        ];
        assert_eq!(
            tags(&resnet, &Policy::default())[2..],
            [
                "/ResNet/BasicBlock.layer1.0",
                "/ResNet/BasicBlock.1",
                "/ResNet/BasicBlock.layer2.0",
                "/ResNet/Head.7"
            ]
        );
    }

    #[test]
    fn without_classes_paths_stand_alone() {
        assert_eq!(
            tags(
                &[("", ""), ("encoder", ""), ("encoder.layer.0", ""), ("a", ""), ("a.x/y", "")],
                &Policy::default()
            ),
            ["/", "/encoder", "/encoder/layer.0", "/a", "/a/x%2Fy"]
        );
        // A path that looks like a class with a path.
        let mixed = tags(&[("", "m.Net"), ("q.b", "m.A"), ("r.b", "m.A"), ("A.q.b", "")], &Policy::all());
        assert_eq!(mixed[1..], ["/Net/A.q.b", "/Net/A.r.b", "/Net/A.q.b~"]);
    }

    #[test]
    fn random_tables_have_unique_tags() {
        let mut random = onnxforge_proto::random::Random::new(7);
        for _ in 0..200 {
            let mut modules: Vec<(String, String)> = vec![(String::new(), "m.Net".to_owned())];
            for _ in 0..40 {
                let (above, _) = modules[random.below(modules.len() as u64) as usize].clone();
                let name = ["0", "1", "a", "b", "x/y", "A"][random.below(6) as usize];
                let path = if above.is_empty() { name.to_owned() } else { format!("{above}.{name}") };
                let class = ["m.A", "m.B", "torch.nn.modules.linear.Linear", CONTAINER, "", "m.f.<locals>.A"]
                    [random.below(6) as usize];
                if modules.iter().all(|(known, _)| *known != path) {
                    modules.push((path, class.to_owned()));
                }
            }
            let modules: Vec<(&str, &str)> = modules.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
            for policy in [Policy::default(), Policy::all(), Policy::no_torch_nn()] {
                let module = |&(path, class): &(&str, &str)| Module {
                    path: path.into(),
                    class: (!class.is_empty()).then(|| class.into()),
                    ..Module::default()
                };
                let table = ModuleTable::new(modules.iter().map(module).collect()).unwrap();
                let tags = Tags::new(&table, &policy);
                let own: Vec<&str> = tags.own().map(|(tag, _)| tag).collect();
                let unique: HashSet<&str> = own.iter().copied().collect();
                assert_eq!(own.len(), unique.len(), "{own:?}");
                assert!(own.iter().all(|tag| tags.find(tag).is_some_and(|id| tags.get(id) == *tag)));
            }
        }
    }
}
