//! The record of every edit.

use super::id::{NodeId, ValueId};
use crate::proto::Str;

/// How far a rule may change results. Ordered: what comes later promises less.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub enum Accuracy {
    /// The same bits, always.
    BitExact,
    /// The same numbers; the sign of zero and the payload of NaN may differ.
    ValueExact,
    /// Differs by rounding, by so many units in the last place of each operation.
    Rounding {
        /// Units in the last place.
        ulps: f64,
    },
    /// Differs by no more than `atol + rtol · |x|`.
    Approximate {
        /// Relative part.
        rtol: f64,
        /// Absolute part.
        atol: f64,
    },
}

/// One committed edit.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The pass that made it.
    pub pass: Str,
    /// The rule of that pass.
    pub rule: Str,
    /// What the rule promises.
    pub accuracy: Accuracy,
    /// Nodes that are gone, those in bodies of others included.
    pub consumed: Vec<NodeId>,
    /// Nodes that are new.
    pub produced: Vec<NodeId>,
    /// Values that have another definition than before.
    pub redefined: Vec<ValueId>,
    /// Change of the number of nodes.
    pub nodes: i64,
    /// Change of the bytes of constants.
    pub bytes: i64,
}
