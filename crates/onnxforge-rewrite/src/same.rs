//! Whether a value keeps its type and shape.

use super::skip::Reason;
use onnxforge_ir::dim::Symbols;
use onnxforge_ops::{Fact, TensorFact};

/// What inference says of the type and shape of a value before and after a change.
#[derive(Debug, PartialEq)]
pub enum Same {
    /// They are the same in every run.
    Proved,
    /// It does not know enough; the reason says of what.
    Unknown(Reason),
    /// They differ in every run.
    Contradicted(Reason),
}

impl Same {
    /// What holds where both hold: a contradiction above all, then what is not known.
    fn and(self, other: impl FnOnce() -> Self) -> Self {
        match self {
            Self::Contradicted(_) => self,
            Self::Proved => other(),
            Self::Unknown(_) => match other() {
                contradicted @ Self::Contradicted(_) => contradicted,
                _ => self,
            },
        }
    }

    /// Compares what is known of a value before and after.
    pub fn of(old: &Fact, new: &Fact, symbols: &Symbols) -> Self {
        match (old, new) {
            (Fact::Tensor(old), Fact::Tensor(new)) => dtypes(old, new).and(|| shapes(old, new, symbols)),
            (
                Fact::Sequence { element: old_element, items: old_items },
                Fact::Sequence { element: new_element, items: new_items },
            ) => match (old_items, new_items) {
                (Some(old), Some(new)) if old.len() != new.len() => Self::Contradicted(Reason::ShapeChanges),
                (Some(old), Some(new)) => {
                    let pairs = old.iter().zip(new.iter());
                    pairs.fold(Self::Proved, |same, (old, new)| same.and(|| Self::of(old, new, symbols)))
                }
                _ => match (&**old_element, &**new_element) {
                    // An element that there is none of has any shape.
                    (Fact::Tensor(old), Fact::Tensor(new)) => {
                        dtypes(old, new).and(|| Self::Unknown(Reason::UnknownType))
                    }
                    _ => Self::Unknown(Reason::UnknownType),
                },
            },
            (
                Fact::Optional { element: old, present: old_present },
                Fact::Optional { element: new, present: new_present },
            ) => match (old_present, new_present) {
                (Some(old), Some(new)) if old != new => Self::Contradicted(Reason::ShapeChanges),
                (Some(true), Some(true)) => Self::of(old, new, symbols),
                _ => Self::Unknown(Reason::UnknownType),
            },
            (Fact::Unknown, _) | (_, Fact::Unknown) | (Fact::Map, Fact::Map) => {
                Self::Unknown(Reason::UnknownType)
            }
            _ => Self::Contradicted(Reason::UnknownType),
        }
    }
}

fn dtypes(old: &TensorFact, new: &TensorFact) -> Same {
    match (old.dtype, new.dtype) {
        (Some(old), Some(new)) if old == new => Same::Proved,
        (Some(_), Some(_)) => Same::Contradicted(Reason::TypeChanges),
        _ => Same::Unknown(Reason::TypeChanges),
    }
}

fn shapes(old: &TensorFact, new: &TensorFact, symbols: &Symbols) -> Same {
    let (Some(old), Some(new)) = (&old.shape, &new.shape) else {
        return Same::Unknown(Reason::ShapeChanges);
    };
    if old.len() != new.len() {
        return Same::Contradicted(Reason::ShapeChanges);
    }
    let dims = || old.iter().zip(new);
    if dims().all(|(old, new)| old.provably_equal(new, symbols)) {
        Same::Proved
    } else if dims().any(|(old, new)| old.provably_different(new, symbols)) {
        Same::Contradicted(Reason::ShapeChanges)
    } else {
        Same::Unknown(Reason::ShapeChanges)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onnxforge_ir::DType;
    use onnxforge_ir::dim::Dim;
    use std::sync::Arc;

    fn tensor(dtype: DType, shape: Option<Vec<Dim>>) -> Fact {
        Fact::Tensor(TensorFact { dtype: Some(dtype), shape, value: None })
    }

    fn sequence(items: Option<Vec<Fact>>, element: Fact) -> Fact {
        Fact::Sequence { element: Box::new(element), items: items.map(Arc::new) }
    }

    fn optional(present: Option<bool>, element: Fact) -> Fact {
        Fact::Optional { element: Box::new(element), present }
    }

    #[test]
    fn tensors_are_the_same_other_ones_or_not_known() {
        let mut symbols = Symbols::default();
        let n = Dim::from(symbols.named("N"));
        let unknown = Dim::from(symbols.fresh());
        let next = n.add(&Dim::ONE).unwrap();
        let f32s = |shape: Option<Vec<Dim>>| tensor(DType::F32, shape);
        let same = |old: &Fact, new: &Fact| Same::of(old, new, &symbols);
        let shape = Same::Unknown(Reason::ShapeChanges);
        let other = Same::Contradicted(Reason::ShapeChanges);
        let rows = f32s(Some(vec![n.clone(), 0.into()]));
        assert_eq!(same(&rows, &rows), Same::Proved);
        assert_eq!(same(&rows, &f32s(Some(vec![unknown, 0.into()]))), shape);
        assert_eq!(same(&rows, &f32s(None)), shape);
        assert_eq!(same(&f32s(None), &f32s(None)), shape);
        assert_eq!(same(&rows, &f32s(Some(vec![n]))), other);
        assert_eq!(same(&rows, &f32s(Some(vec![next, 0.into()]))), other);
        let integers = tensor(DType::I64, None);
        assert_eq!(same(&rows, &integers), Same::Contradicted(Reason::TypeChanges));
        let untyped = Fact::Tensor(TensorFact::default());
        assert_eq!(same(&rows, &untyped), Same::Unknown(Reason::TypeChanges));
        assert_eq!(same(&Fact::Unknown, &rows), Same::Unknown(Reason::UnknownType));
        assert_eq!(same(&sequence(None, rows.clone()), &rows), Same::Contradicted(Reason::UnknownType));
    }

    #[test]
    fn sequences_and_optionals_are_compared_by_what_they_hold() {
        let symbols = Symbols::default();
        let same = |old: &Fact, new: &Fact| Same::of(old, new, &symbols);
        let (small, large) =
            (tensor(DType::F32, Some(vec![2.into()])), tensor(DType::F32, Some(vec![3.into()])));
        let of =
            |items: &[&Fact]| sequence(Some(items.iter().map(|&item| item.clone()).collect()), Fact::Unknown);
        assert_eq!(same(&of(&[&small, &large]), &of(&[&small, &large])), Same::Proved);
        assert_eq!(same(&of(&[]), &of(&[])), Same::Proved);
        let other = Same::Contradicted(Reason::ShapeChanges);
        assert_eq!(same(&of(&[&small]), &of(&[&small, &small])), other);
        assert_eq!(same(&of(&[&Fact::Unknown, &small]), &of(&[&small, &large])), other);
        let any = sequence(None, small.clone());
        assert_eq!(same(&any, &any), Same::Unknown(Reason::UnknownType));
        let integers = sequence(None, tensor(DType::I64, None));
        assert_eq!(same(&any, &integers), Same::Contradicted(Reason::TypeChanges));
        assert_eq!(
            same(&optional(Some(true), small.clone()), &optional(Some(true), small.clone())),
            Same::Proved
        );
        assert_eq!(same(&optional(Some(true), small.clone()), &optional(Some(false), small.clone())), other);
        let open = optional(None, small);
        assert_eq!(same(&open, &open), Same::Unknown(Reason::UnknownType));
    }
}
