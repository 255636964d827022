//! Forests from attributes.

use std::collections::HashMap;

use super::numbers;
use super::walk::{Ensemble, Mode, Node, Target, Vote};
use crate::Array;
use crate::call::Call;
use crate::error::{OpError, invalid};
use crate::kernel::number::Float;
use crate::quant::floats;

/// A list of integers of this length.
fn ints(call: &Call<'_>, name: &str, length: usize) -> Result<Vec<i64>, OpError> {
    let values = call.ints_or(name, Vec::new())?;
    if values.len() == length {
        return Ok(values);
    }
    invalid(format!("{name} has {} elements, not {length}", values.len()))
}

/// Whether missing values take the true branch, for each node; nowhere where the attribute is not given.
fn missing(call: &Call<'_>, length: usize) -> Result<Vec<bool>, OpError> {
    let mut flags = call.ints_or("nodes_missing_value_tracks_true", Vec::new())?;
    if flags.len() > length {
        return invalid(format!("nodes_missing_value_tracks_true has {} elements", flags.len()));
    }
    flags.resize(length, 0);
    Ok(flags.into_iter().map(|flag| flag == 1).collect())
}

fn index(value: i64, limit: usize, what: &str) -> Result<usize, OpError> {
    match usize::try_from(value) {
        Ok(index) if index < limit => Ok(index),
        _ => invalid(format!("{what} {value} of {limit}")),
    }
}

/// The forest of TreeEnsembleClassifier (`what` is `class`) and TreeEnsembleRegressor (`target`): nodes and leaves in one
/// list, found by the number of their tree and their own.
pub fn listed<T: Float>(call: &Call<'_>, what: &str, targets: usize) -> Result<Ensemble<T>, OpError> {
    let modes = call.byte_strings_or("nodes_modes", Vec::new())?;
    let count = modes.len();
    let trees = ints(call, "nodes_treeids", count)?;
    let ids = ints(call, "nodes_nodeids", count)?;
    let features = ints(call, "nodes_featureids", count)?;
    let if_true = ints(call, "nodes_truenodeids", count)?;
    let if_false = ints(call, "nodes_falsenodeids", count)?;
    let values = numbers::<T>(call, "nodes_values")?;
    let missing = missing(call, count)?;
    if values.len() != count {
        return invalid(format!("{} values for {count} nodes", values.len()));
    }

    // First every entry gets its place among the nodes or the leaves, then the branches are resolved.
    let mut places = HashMap::with_capacity(count);
    let (mut roots, mut last_tree) = (Vec::new(), None);
    let (mut node_count, mut leaf_count) = (0, 0);
    for ((mode, &tree), &id) in modes.iter().zip(&trees).zip(&ids) {
        let place = match &mode[..] {
            b"LEAF" => {
                leaf_count += 1;
                Target::Leaf(leaf_count - 1)
            }
            _ => {
                node_count += 1;
                Target::Node(node_count - 1)
            }
        };
        if places.insert((tree, id), place).is_some() {
            return invalid(format!("node {id} of tree {tree} is there twice"));
        }
        // A tree begins with its root.
        if last_tree != Some(tree) {
            roots.push(place);
            last_tree = Some(tree);
        }
    }
    let find = |tree: i64, id: i64| match places.get(&(tree, id)) {
        Some(&place) => Ok(place),
        None => invalid(format!("node {id} of tree {tree} is not there")),
    };
    let mut nodes = Vec::with_capacity(node_count);
    for (i, mode) in modes.iter().enumerate().filter(|(_, mode)| mode[..] != b"LEAF"[..]) {
        nodes.push(Node {
            feature: index(features[i], usize::MAX, "feature")?,
            mode: named_mode(mode)?,
            value: values[i],
            missing_is_true: missing[i],
            if_true: find(trees[i], if_true[i])?,
            if_false: find(trees[i], if_false[i])?,
        });
    }
    let mut leaves = vec![Vec::new(); leaf_count];
    let weights = numbers::<T>(call, &format!("{what}_weights"))?;
    let vote_trees = ints(call, &format!("{what}_treeids"), weights.len())?;
    let vote_ids = ints(call, &format!("{what}_nodeids"), weights.len())?;
    let vote_targets = ints(call, &format!("{what}_ids"), weights.len())?;
    for (i, &weight) in weights.iter().enumerate() {
        let target = index(vote_targets[i], targets, "target")?;
        // Old converters give weights to inner nodes too; they mean nothing.
        if let Target::Leaf(leaf) = find(vote_trees[i], vote_ids[i])? {
            leaves[leaf].push(Vote { target, weight });
        }
    }
    Ok(Ensemble { roots, nodes, leaves, sets: Vec::new() })
}

fn named_mode(name: &[u8]) -> Result<Mode, OpError> {
    match name {
        b"BRANCH_LEQ" => Ok(Mode::LessOrEqual),
        b"BRANCH_LT" => Ok(Mode::Less),
        b"BRANCH_GTE" => Ok(Mode::GreaterOrEqual),
        b"BRANCH_GT" => Ok(Mode::Greater),
        b"BRANCH_EQ" => Ok(Mode::Equal),
        b"BRANCH_NEQ" => Ok(Mode::NotEqual),
        other => invalid(format!("the node mode {}", String::from_utf8_lossy(other))),
    }
}

/// The forest of TreeEnsemble: nodes and leaves in lists of their own, linked by index.
pub fn linked<T: Float>(call: &Call<'_>, targets: usize) -> Result<Ensemble<T>, OpError> {
    let modes = Array::from_tensor(&call.tensor("nodes_modes")?)?.to_i64s()?;
    let count = modes.len();
    let splits: Vec<T> = floats(&Array::from_tensor(&call.tensor("nodes_splits")?)?)?;
    let features = ints(call, "nodes_featureids", count)?;
    let (if_true, if_false) =
        (ints(call, "nodes_truenodeids", count)?, ints(call, "nodes_falsenodeids", count)?);
    let (true_leaf, false_leaf) =
        (ints(call, "nodes_trueleafs", count)?, ints(call, "nodes_falseleafs", count)?);
    let missing = missing(call, count)?;
    let weights: Vec<T> = floats(&Array::from_tensor(&call.tensor("leaf_weights")?)?)?;
    let leaf_targets = ints(call, "leaf_targetids", weights.len())?;
    let sets = match call.opt_tensor("membership_values")? {
        Some(tensor) => separated::<T>(&floats(&Array::from_tensor(&tensor)?)?),
        None => Vec::new(),
    };
    if splits.len() != count {
        return invalid(format!("{} splits for {count} nodes", splits.len()));
    }
    let branch = |id: i64, is_leaf: i64| match is_leaf {
        0 => index(id, count, "node").map(Target::Node),
        _ => index(id, weights.len(), "leaf").map(Target::Leaf),
    };
    let (mut nodes, mut sets_used) = (Vec::with_capacity(count), 0);
    for i in 0..count {
        let mode = match modes[i] {
            0 => Mode::LessOrEqual,
            1 => Mode::Less,
            2 => Mode::GreaterOrEqual,
            3 => Mode::Greater,
            4 => Mode::Equal,
            5 => Mode::NotEqual,
            6 if sets_used < sets.len() => {
                sets_used += 1;
                Mode::Member(sets_used - 1)
            }
            6 => return invalid("membership_values has too few sets"),
            other => return invalid(format!("the node mode {other}")),
        };
        nodes.push(Node {
            feature: index(features[i], usize::MAX, "feature")?,
            mode,
            value: splits[i],
            missing_is_true: missing[i],
            if_true: branch(if_true[i], true_leaf[i])?,
            if_false: branch(if_false[i], false_leaf[i])?,
        });
    }
    let leaf =
        |(&target, &weight): (&i64, &T)| Ok(vec![Vote { target: index(target, targets, "target")?, weight }]);
    let leaves = leaf_targets.iter().zip(&weights).map(leaf).collect::<Result<_, OpError>>()?;
    let roots = call.ints("tree_roots")?;
    let roots = roots.iter().map(|&root| index(root, count, "root").map(Target::Node));
    Ok(Ensemble { roots: roots.collect::<Result<_, OpError>>()?, nodes, leaves, sets })
}

/// The runs of numbers that each end with a NaN.
fn separated<T: Float>(values: &[T]) -> Vec<Vec<T>> {
    let mut sets: Vec<Vec<T>> =
        values.split(|value| num_traits::Float::is_nan(*value)).map(<[T]>::to_vec).collect();
    if sets.last().is_some_and(Vec::is_empty) {
        sets.pop();
    }
    sets
}
