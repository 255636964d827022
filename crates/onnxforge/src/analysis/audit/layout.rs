//! Operators that move elements, or hand them on.

use super::{Find, Found, Kind, On};
use crate::analysis::scene::{Left, Place, Scene};

pub(super) static KINDS: &[Kind] = &[
    Kind {
        id: "consecutive_reshapes",
        text: "Reshape, Flatten, Squeeze or Unsqueeze of another one",
        on: On::File,
        passes: &["merge_reshapes"],
        otherwise: "the pass made one of others here first",
        find: Find::Rules("merge_reshapes", &[], Left::Counts),
    },
    Kind {
        id: "consecutive_transposes",
        text: "Transpose of a Transpose",
        on: On::File,
        passes: &["eliminate_redundant_transposes"],
        otherwise: "the pass made one of others here first",
        find: Find::Rules("eliminate_redundant_transposes", &[], Left::Counts),
    },
    Kind {
        id: "cancelling_transposes",
        text: "Transposes that others between them can do without",
        on: On::Tidied,
        passes: &["cancel_transposes"],
        otherwise: "",
        find: Find::Edits("cancel_transposes"),
    },
    Kind {
        id: "cast_chains",
        text: "Cast of a Cast",
        on: On::File,
        passes: &["fold_cast_chains"],
        otherwise: "the pass made one of others here first",
        find: Find::Rules("fold_cast_chains", &["detour"], Left::Counts),
    },
    Kind {
        id: "redundant_casts",
        text: "Cast to the element type that is there already",
        on: On::File,
        passes: &["fold_cast_chains"],
        otherwise: "its result is an output, which keeps its name",
        find: Find::Rules("fold_cast_chains", &["same_type"], Left::IsNothing),
    },
    Kind {
        id: "noop_transposes",
        text: "Transpose that leaves every element where it is",
        on: On::File,
        passes: &["eliminate_noop_transposes"],
        otherwise: "its result is an output, which keeps its name",
        find: Find::Walk(noop_transposes),
    },
    Kind {
        id: "noop_reshapes",
        text: "Reshape, Flatten, Squeeze or Unsqueeze to the shape that is there already",
        on: On::File,
        passes: &["eliminate_noop_reshapes"],
        otherwise: "its result is an output, which keeps its name",
        find: Find::Rules("eliminate_noop_reshapes", &[], Left::IsNothing),
    },
    Kind {
        id: "noop_expands",
        text: "Expand to the shape that is there already",
        on: On::File,
        passes: &["eliminate_expand_identity"],
        otherwise: "its result is an output, which keeps its name",
        find: Find::Rules("eliminate_expand_identity", &["same_shape"], Left::IsNothing),
    },
    Kind {
        id: "identities",
        text: "Identity, and what does nothing else: Dropout, Concat of one thing, Slice of everything and the like",
        on: On::File,
        passes: &["eliminate_identity_ops"],
        otherwise: "its result is an output, which keeps its name",
        find: Find::Rules("eliminate_identity_ops", &[], Left::IsNothing),
    },
    Kind {
        id: "repeated_calls",
        text: "Something that was computed before: the same operator, inputs and attributes",
        on: On::File,
        passes: &["eliminate_common_subexpressions"],
        otherwise: "",
        find: Find::Edits("eliminate_common_subexpressions"),
    },
    Kind {
        id: "dead_nodes",
        text: "Nodes that no output depends on",
        on: On::File,
        passes: &["eliminate_dead_nodes"],
        otherwise: "",
        find: Find::Edits("eliminate_dead_nodes"),
    },
];

/// What the pass sees, without axes of size 1 that change their place: elements stay there, too, but the shape does not.
fn noop_transposes(scene: &Scene<'_>) -> Found {
    let cx = scene.cx();
    let keeps_shape = |place: &Place| {
        let node = scene.model().node(place.root?);
        Some(cx.same_shape(cx.shape(node.input(0)?).ok()?, cx.shape(node.output(0)?).ok()?))
    };
    let mut places = scene.places("eliminate_noop_transposes", &[], Left::IsNothing);
    places.retain(|place| keeps_shape(place) == Some(true));
    places.into()
}
