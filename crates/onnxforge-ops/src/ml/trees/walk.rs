//! A forest, and the way of an example through it.

use std::sync::OnceLock;

use crate::error::{OpError, invalid};
use crate::kernel::number::Float;
use crate::kernel::parallel::PARALLEL;
use onnxforge_proto::parallel::for_each;

/// How a node compares its feature with its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    LessOrEqual,
    Less,
    GreaterOrEqual,
    Greater,
    Equal,
    NotEqual,
    /// Whether it is in the set with this number.
    Member(usize),
}

/// Where a branch leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Node(usize),
    Leaf(usize),
}

/// A decision.
#[derive(Clone, Debug)]
pub struct Node<T> {
    pub feature: usize,
    pub mode: Mode,
    pub value: T,
    /// A missing value (NaN) takes the true branch.
    pub missing_is_true: bool,
    pub if_true: Target,
    pub if_false: Target,
}

/// What a leaf adds to a target.
#[derive(Clone, Copy, Debug)]
pub struct Vote<T> {
    pub target: usize,
    pub weight: T,
}

/// Trees. Every number of a node, a leaf, a set or a target lies within its bounds.
pub struct Ensemble<T> {
    pub roots: Vec<Target>,
    pub nodes: Vec<Node<T>>,
    pub leaves: Vec<Vec<Vote<T>>>,
    pub sets: Vec<Vec<T>>,
}

/// How votes for a target are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aggregate {
    Average,
    Sum,
    Min,
    Max,
}

impl Aggregate {
    pub fn named(name: &str) -> Result<Self, OpError> {
        match name {
            "AVERAGE" => Ok(Self::Average),
            "SUM" => Ok(Self::Sum),
            "MIN" => Ok(Self::Min),
            "MAX" => Ok(Self::Max),
            other => invalid(format!("the aggregate function {other}")),
        }
    }

    pub fn numbered(number: i64) -> Result<Self, OpError> {
        match number {
            0 => Ok(Self::Average),
            1 => Ok(Self::Sum),
            2 => Ok(Self::Min),
            3 => Ok(Self::Max),
            _ => invalid(format!("the aggregate function {number}")),
        }
    }
}

/// What a target got.
#[derive(Clone, Copy, Debug)]
pub struct Score<T> {
    pub value: T,
    /// Some leaf voted for it.
    pub given: bool,
}

impl<T: Float> Score<T> {
    const NONE: Self = Self { value: T::ZERO, given: false };

    fn add(&mut self, weight: T, aggregate: Aggregate) {
        self.value = match aggregate {
            Aggregate::Sum | Aggregate::Average => self.value + weight,
            Aggregate::Min if self.given && self.value < weight => self.value,
            Aggregate::Max if self.given && self.value > weight => self.value,
            Aggregate::Min | Aggregate::Max => weight,
        };
        self.given = true;
    }
}

impl<T: Float> Ensemble<T> {
    /// The scores of `count` examples, `targets` for each.
    pub fn scores(
        &self,
        x: &[T],
        features: usize,
        count: usize,
        targets: usize,
        aggregate: Aggregate,
    ) -> Result<Vec<Score<T>>, OpError> {
        if let Some(node) = self.nodes.iter().find(|node| node.feature >= features) {
            return invalid(format!("feature {} of {features}", node.feature));
        }
        let mut scores = vec![Score::NONE; count * targets];
        let row = |(row, scores): (usize, &mut [Score<T>])| {
            self.score(&x[row * features..][..features], scores, aggregate)
        };
        let failed = OnceLock::new();
        for_each(
            scores.chunks_exact_mut(targets).enumerate(),
            PARALLEL / 16 / self.roots.len().max(1),
            |scores| {
                if let Err(error) = row(scores) {
                    drop(failed.set(error));
                }
            },
        );
        failed.into_inner().map_or(Ok(scores), Err)
    }

    fn score(&self, x: &[T], scores: &mut [Score<T>], aggregate: Aggregate) -> Result<(), OpError> {
        for &root in &self.roots {
            for vote in &self.leaves[self.leaf(root, x)?] {
                scores[vote.target].add(vote.weight, aggregate);
            }
        }
        if aggregate == Aggregate::Average {
            let trees = T::from_f64(self.roots.len() as f64);
            scores.iter_mut().for_each(|score| score.value /= trees);
        }
        Ok(())
    }

    /// The leaf that an example reaches.
    fn leaf(&self, root: Target, x: &[T]) -> Result<usize, OpError> {
        let mut at = root;
        for _ in 0..=self.nodes.len() {
            match at {
                Target::Leaf(leaf) => return Ok(leaf),
                Target::Node(node) => {
                    let node = &self.nodes[node];
                    at = if self.holds(node, x[node.feature]) { node.if_true } else { node.if_false };
                }
            }
        }
        invalid("a tree whose branches lead in a circle")
    }

    fn holds(&self, node: &Node<T>, x: T) -> bool {
        let holds = match node.mode {
            Mode::LessOrEqual => x <= node.value,
            Mode::Less => x < node.value,
            Mode::GreaterOrEqual => x >= node.value,
            Mode::Greater => x > node.value,
            Mode::Equal => x == node.value,
            Mode::NotEqual => x != node.value,
            Mode::Member(set) => self.sets[set].contains(&x),
        };
        holds || (node.missing_is_true && num_traits::Float::is_nan(x))
    }
}
