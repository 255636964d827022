//! Operators that move elements, or hand them on.

use super::{Find, Found, Kind, On};
use crate::scene::{Left, Place, Scene};
use onnxforge_rewrite::passes::{eliminate, layout, simplify};

pub(super) static KINDS: &[Kind] = &[
    Kind {
        id: "consecutive_reshapes",
        text: "Reshape, Flatten, Squeeze or Unsqueeze of another one",
        on: On::File,
        passes: &[&simplify::merge_reshapes::PASS],
        otherwise: "the pass made one of others here first",
        find: Find::Rules(&simplify::merge_reshapes::PASS, &[], Left::Counts),
    },
    Kind {
        id: "consecutive_transposes",
        text: "Transpose of a Transpose",
        on: On::File,
        passes: &[&eliminate::eliminate_redundant_transposes::PASS],
        otherwise: "the pass made one of others here first",
        find: Find::Rules(&eliminate::eliminate_redundant_transposes::PASS, &[], Left::Counts),
    },
    Kind {
        id: "cancelling_transposes",
        text: "Transposes that others between them can do without",
        on: On::Tidied,
        passes: &[&layout::cancel_transposes::PASS],
        otherwise: "",
        find: Find::Edits(&layout::cancel_transposes::PASS),
    },
    Kind {
        id: "cast_chains",
        text: "Cast of a Cast",
        on: On::File,
        passes: &[&simplify::fold_cast_chains::PASS],
        otherwise: "the pass made one of others here first",
        find: Find::Rules(&simplify::fold_cast_chains::PASS, &["detour"], Left::Counts),
    },
    Kind {
        id: "redundant_casts",
        text: "Cast to the element type that is there already",
        on: On::File,
        passes: &[&simplify::fold_cast_chains::PASS],
        otherwise: "its result is an output, which keeps its name",
        find: Find::Rules(&simplify::fold_cast_chains::PASS, &["same_type"], Left::IsNothing),
    },
    Kind {
        id: "noop_transposes",
        text: "Transpose that leaves every element where it is",
        on: On::File,
        passes: &[&eliminate::eliminate_noop_transposes::PASS],
        otherwise: "its result is an output, which keeps its name",
        find: Find::Walk(noop_transposes),
    },
    Kind {
        id: "noop_reshapes",
        text: "Reshape, Flatten, Squeeze or Unsqueeze to the shape that is there already",
        on: On::File,
        passes: &[&eliminate::eliminate_noop_reshapes::PASS],
        otherwise: "its result is an output, which keeps its name",
        find: Find::Rules(&eliminate::eliminate_noop_reshapes::PASS, &[], Left::IsNothing),
    },
    Kind {
        id: "noop_expands",
        text: "Expand to the shape that is there already",
        on: On::File,
        passes: &[&eliminate::eliminate_expand_identity::PASS],
        otherwise: "its result is an output, which keeps its name",
        find: Find::Rules(&eliminate::eliminate_expand_identity::PASS, &["same_shape"], Left::IsNothing),
    },
    Kind {
        id: "identities",
        text: "Identity, and what does nothing else: Dropout, Concat of one thing, Slice of everything and the like",
        on: On::File,
        passes: &[&eliminate::eliminate_identity_ops::PASS],
        otherwise: "its result is an output, which keeps its name",
        find: Find::Rules(&eliminate::eliminate_identity_ops::PASS, &[], Left::IsNothing),
    },
    Kind {
        id: "repeated_calls",
        text: "Something that was computed before: the same operator, inputs and attributes",
        on: On::File,
        passes: &[&eliminate::eliminate_common_subexpressions::PASS],
        otherwise: "",
        find: Find::Edits(&eliminate::eliminate_common_subexpressions::PASS),
    },
    Kind {
        id: "dead_nodes",
        text: "Nodes that no output depends on",
        on: On::File,
        passes: &[&eliminate::eliminate_dead_nodes::PASS],
        otherwise: "",
        find: Find::Edits(&eliminate::eliminate_dead_nodes::PASS),
    },
];

/// What the pass sees, without axes of size 1 that change their place: elements stay there, too, but the shape does not.
fn noop_transposes(scene: &Scene<'_>) -> Found {
    let cx = scene.cx();
    let keeps_shape = |place: &Place| {
        let node = scene.model().node(place.root?);
        Some(cx.same_shape(cx.shape(node.input(0)?).ok()?, cx.shape(node.output(0)?).ok()?))
    };
    let mut places = scene.places(&eliminate::eliminate_noop_transposes::PASS, &[], Left::IsNothing);
    places.retain(|place| keeps_shape(place) == Some(true));
    places.into()
}
