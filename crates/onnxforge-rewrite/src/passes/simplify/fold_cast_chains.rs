//! fold_cast_chains: casts to the type that a value has go away, and so do detours that lose nothing.
//!
//! **Matches** Cast and CastLike to the element type of their input; CastLike to a known type, which becomes a Cast; a Cast of a Cast
//! whose first step can hold every value of the source exactly.
//! **Accuracy** `BitExact`.
//! **Proof** When the first cast is injective and exact, the second sees the very numbers of the source, so that it gives what
//! it would give without the detour; a cast to the own type is the identity. What the standard leaves open, a float beyond the range of an
//! integer type, is as open as before.
//! **Trust** A Cast to the own type hands its input on (`same_type`), and a Cast has the shape of its input as the CastLike has (`like`).
//! **Never** a detour over a type that rounds or wraps, such as float32 over float16; from integers over floats to integers that are too small,
//! which the integers would wrap into; strings; 8-bit floats, which saturate.

use crate::passes::pass;
use crate::{At, Reason, Skip};
use onnxforge_ir::dtype::Kind;
use onnxforge_ir::{Accuracy, DType, Trust};

pass!(fold_cast_chains {
    stage: Canonicalize,
    trusts: [Forwarded, SameShapeRule],
    rules: [SAME_TYPE, LIKE, DETOUR],
});

static SAME_TYPE: At = At {
    name: "same_type",
    accuracy: Accuracy::BitExact,
    ops: &["Cast", "CastLike"],
    apply: |cx, node| {
        let (x, y) = (cx.input(node, 0)?, cx.output(node)?);
        if cx.dtype(x)? != cx.dtype(y)? {
            return Err(Skip::NOT_HERE);
        }
        let mut change = cx.forward(node, x)?;
        change.trust(Trust::Forwarded);
        Ok(change)
    },
};

static LIKE: At = At {
    name: "like",
    accuracy: Accuracy::BitExact,
    ops: &["CastLike"],
    apply: |cx, node| {
        let (x, y) = (cx.input(node, 0)?, cx.output(node)?);
        let mut attrs = cx.node(node).attrs().to_vec();
        attrs.push(("to", i64::from(cx.dtype(y)?.code())).into());
        let mut change = cx.change(&[node]);
        let cast = change.op("Cast", [x.into()], attrs);
        change.replace(y, cast);
        change.trust(Trust::SameShapeRule);
        Ok(change)
    },
};

static DETOUR: At = At {
    name: "detour",
    accuracy: Accuracy::BitExact,
    ops: &["Cast"],
    apply: |cx, outer| {
        let inner = cx.producer(cx.input(outer, 0)?, "Cast", outer).ok_or(Skip::NOT_HERE)?;
        let (x, y) = (cx.input(inner, 0)?, cx.output(outer)?);
        let (from, over, to) = (cx.dtype(x)?, cx.dtype(cx.output(inner)?)?, cx.dtype(y)?);
        // Integers that do not fit wrap, floats that do not fit an integer are left open.
        let opens = is_integer(from) && !is_integer(over) && is_integer(to) && !holds(to, from);
        if !holds(over, from) || !is_plain(to) || opens {
            return Err(Reason::Type.into());
        }
        let mut change = cx.change(&[outer]);
        change.absorb(inner);
        if to == from {
            change.replace(y, x);
        } else {
            let direct = change.op("Cast", [x.into()], [("to", i64::from(to.code())).into()]);
            change.replace(y, direct);
        }
        Ok(change)
    },
};

/// Whether `wide` holds every value of `narrow` exactly.
fn holds(wide: DType, narrow: DType) -> bool {
    use DType::{BF16, Bool, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64};
    match narrow {
        Bool => is_plain(wide),
        U8 => matches!(wide, U8 | U16 | U32 | U64 | I16 | I32 | I64 | F16 | BF16 | F32 | F64),
        I8 => matches!(wide, I8 | I16 | I32 | I64 | F16 | BF16 | F32 | F64),
        U16 => matches!(wide, U16 | U32 | U64 | I32 | I64 | F32 | F64),
        I16 => matches!(wide, I16 | I32 | I64 | F32 | F64),
        U32 => matches!(wide, U32 | U64 | I64 | F64),
        I32 => matches!(wide, I32 | I64 | F64),
        F16 => matches!(wide, F16 | F32 | F64),
        BF16 => matches!(wide, BF16 | F32 | F64),
        F32 => matches!(wide, F32 | F64),
        U64 | I64 | F64 => wide == narrow,
        _ => false,
    }
}

fn is_integer(dtype: DType) -> bool {
    matches!(dtype.kind(), Kind::Signed | Kind::Unsigned)
}

/// Numbers that casts treat alike on every path.
fn is_plain(dtype: DType) -> bool {
    use DType::{BF16, Bool, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64};
    matches!(dtype, BF16 | Bool | F16 | F32 | F64 | I8 | I16 | I32 | I64 | U8 | U16 | U32 | U64)
}
