//! The record of every edit.

use super::id::{NodeId, ValueId};
use onnxforge_proto::Str;

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

impl Accuracy {
    /// The class in words, as reports show it.
    pub fn class(self) -> &'static str {
        match self {
            Self::BitExact => "bit-exact",
            Self::ValueExact => "value-exact",
            Self::Rounding { .. } => "rounding",
            Self::Approximate { .. } => "approximate",
        }
    }
}

/// Why a value keeps its type and shape although inference cannot tell: an argument from the definitions of operators that the
/// rule makes itself. It stands in for a proof only where inference does not know; what inference contradicts is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Trust {
    /// The consumed node is defined to hand this very operand on.
    Forwarded,
    /// Another node makes the same call on the same operands.
    SameCall,
    /// The new call takes its shape from the same operands as the consumed one, by the same rule.
    SameShapeRule,
    /// What was joined or cut in two steps is joined or cut in one.
    Regrouped,
    /// A constant that the evaluation of the consumed node gave.
    Evaluated,
    /// The nodes of a body or function that the consumed node is defined to run.
    Spliced,
    /// The call of a newer operator set that is defined to give what the older one gave.
    Upgraded,
}

impl Trust {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Forwarded,
        Self::SameCall,
        Self::SameShapeRule,
        Self::Regrouped,
        Self::Evaluated,
        Self::Spliced,
        Self::Upgraded,
    ];

    /// Its name in traces and documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::Forwarded => "forwarded",
            Self::SameCall => "same_call",
            Self::SameShapeRule => "same_shape_rule",
            Self::Regrouped => "regrouped",
            Self::Evaluated => "evaluated",
            Self::Spliced => "spliced",
            Self::Upgraded => "upgraded",
        }
    }

    /// The argument, in one line.
    pub fn argument(self) -> &'static str {
        match self {
            Self::Forwarded => "the node is defined to hand this operand on",
            Self::SameCall => "another node makes the same call on the same operands",
            Self::SameShapeRule => {
                "the new call takes its shape from the same operands as the old one, by the same rule"
            }
            Self::Regrouped => "what was joined or cut in two steps is joined or cut in one",
            Self::Evaluated => "the constant is what evaluating the node gave",
            Self::Spliced => "the nodes are those of the body or function that the node is defined to run",
            Self::Upgraded => "the call of the newer operator set is defined to give what the older one gave",
        }
    }
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
    /// Why type and shape of a redefined value stay, where inference could not prove it; `None` where it proved all of them.
    pub trusted: Option<Trust>,
    /// Change of the number of nodes.
    pub nodes: i64,
    /// Change of the bytes of constants.
    pub bytes: i64,
}
