//! Facts as declarations.

use super::Inference;
use crate::{Fact, TensorFact};
use onnxforge_ir::dim::Dim;
use onnxforge_ir::scope::ScopeKind;
use onnxforge_ir::types::DeclaredDim;
use onnxforge_ir::value::Use;
use onnxforge_ir::{Model, Type, ValueId};
use onnxforge_proto::schema::{Dimension, TensorShapeProto, TensorType, TypeProto, ValueInfoProto};

impl Inference {
    /// Declares in `value_info` what is known of every value that a node outside of functions computes: all of it where
    /// nothing is declared; otherwise the element type and the shape where they are missing, and dimensions that are open,
    /// or that have a name and are a number. Declarations of inputs and outputs stay as they are, and so do those that
    /// contradict what is known. Dimensions that only inference has a name for are left open.
    pub fn declare(&self, model: &mut Model) {
        let ids: Vec<ValueId> = model.values().map(|(id, _)| id).collect();
        for id in ids {
            let Some(fact) = self.tensor(id).filter(|_| is_inside_graph(model, id)) else { continue };
            let declared = model.declared_type(id);
            if !matches!(declared, Type::Tensor(..) | Type::Unknown) {
                continue;
            }
            let is_port = model.value(id).uses().iter().any(|used| matches!(used, Use::Output { .. }));
            if contradicts(&declared, self.fact(id)) || (is_port && declared != Type::Unknown) {
                continue;
            }
            let stored = model.value(id).info();
            let mut info = stored.cloned().unwrap_or_else(|| ValueInfoProto {
                name: Some(model.value(id).name().clone()),
                ..ValueInfoProto::default()
            });
            let mut ty = info.r#type.take().unwrap_or_default();
            if self.refine(&mut ty, fact).is_some() {
                info.r#type = Some(ty);
                model.declare(id, info);
            }
        }
    }

    /// Declares what is known of the graph's outputs: element types and shapes that are missing, dimensions that are open, or that have a name and are a
    /// number. Names of dimensions stay.
    pub fn declare_outputs(&self, model: &mut Model) {
        let ports: Vec<_> = model
            .scope(model.main())
            .outputs()
            .iter()
            .map(|port| (port.value, port.info.r#type.clone()))
            .collect();
        for (index, (value, declared)) in ports.into_iter().enumerate() {
            let declared = declared.unwrap_or_default();
            let known = Type::from(&*declared);
            if contradicts(&known, self.fact(value)) || !matches!(known, Type::Tensor(..) | Type::Unknown) {
                continue;
            }
            let mut ty = (*declared).clone();
            if let Some(fact) = self.tensor(value)
                && self.refine(&mut ty, fact).is_some()
            {
                model.set_output_type(index, ty);
            }
        }
    }

    /// Declares the type of a value of which nothing is declared, with the dimensions that are numbers; the others are left open. Inside functions
    /// there are no declarations.
    pub fn declare_numbers(&self, model: &mut Model, id: ValueId) {
        let is_open = model.declared_type(id) == Type::Unknown && is_inside_graph(model, id);
        let Some(mut ty) = self.declaration(id).filter(|_| is_open) else { return };
        let shape = ty.tensor_type.as_mut().and_then(|tensor| tensor.shape.as_mut());
        for dim in shape.into_iter().flat_map(|shape| &mut shape.dim) {
            dim.dim_param = None;
        }
        let name = Some(model.value(id).name().clone());
        model.declare(id, ValueInfoProto { name, r#type: Some(Box::new(ty)), ..ValueInfoProto::default() });
    }

    /// The type of a tensor as a declaration, if its element type is known. Dimensions that only inference has a name for are
    /// left open.
    pub fn declaration(&self, id: ValueId) -> Option<TypeProto> {
        let mut ty = TypeProto::default();
        self.refine(&mut ty, self.tensor(id)?)?;
        Some(ty)
    }

    /// Adds to the type of a tensor what is known; `None` when there is nothing to add.
    fn refine(&self, ty: &mut TypeProto, fact: &TensorFact) -> Option<()> {
        let before = ty.clone();
        let tensor = ty.tensor_type.get_or_insert_default();
        let tensor: &mut TensorType = tensor;
        if tensor.elem_type.unwrap_or(0) == 0 {
            tensor.elem_type = Some(fact.dtype?.code());
        }
        if let Some(known) = &fact.shape {
            let open =
                || TensorShapeProto { dim: vec![Dimension::default(); known.len()], ..Default::default() };
            let shape = tensor.shape.get_or_insert_with(|| Box::new(open()));
            for (dim, known) in shape.dim.iter_mut().zip(known) {
                self.refine_dim(dim, known);
            }
        }
        (*ty != before).then_some(())
    }

    fn refine_dim(&self, dim: &mut Dimension, known: &Dim) {
        let is_named = known.symbols().iter().all(|symbol| !self.symbols.is_anonymous(*symbol));
        match (DeclaredDim::from(&*dim), known.as_const()) {
            (DeclaredDim::Unknown | DeclaredDim::Named(_), Some(size)) => {
                (dim.dim_value, dim.dim_param) = (Some(size), None);
            }
            (DeclaredDim::Unknown, None) if is_named => {
                (dim.dim_value, dim.dim_param) = (None, Some(known.to_param(&self.symbols).as_str().into()));
            }
            _ => {}
        }
    }
}

/// Whether a node of the main graph, or of a body in it, computes the value.
fn is_inside_graph(model: &Model, id: ValueId) -> bool {
    let Some(node) = model.value(id).node() else { return false };
    let mut scope = model.scope(model.node(node).scope());
    while let Some(parent) = scope.parent() {
        scope = model.scope(parent);
    }
    !matches!(scope.kind(), ScopeKind::Function(_))
}

/// Whether a declaration and a fact cannot both hold.
pub(crate) fn contradicts(declared: &Type, fact: &Fact) -> bool {
    match (declared, fact) {
        (Type::Tensor(dtype, shape), Fact::Tensor(fact)) => {
            let types = matches!((dtype, fact.dtype), (Some(a), Some(b)) if *a != b);
            let (Some(declared), Some(inferred)) = (shape, &fact.shape) else { return types };
            let differ = |(declared, inferred): (&DeclaredDim, &Dim)| matches!((declared, inferred.as_const()), (DeclaredDim::Size(a), Some(b)) if *a as i64 != b);
            types || declared.len() != inferred.len() || declared.iter().zip(inferred).any(differ)
        }
        (Type::Sequence(element), Fact::Sequence { element: fact, .. })
        | (Type::Optional(element), Fact::Optional { element: fact, .. }) => contradicts(element, fact),
        (Type::Unknown | Type::Sparse(..), _) | (_, Fact::Unknown) => false,
        (Type::Map(..), Fact::Map) => false,
        _ => true,
    }
}

/// Whether a value has the kind and the element type that are declared; shapes may be others. Where an optional value is declared, what it holds
/// does as well: Loops carry both.
pub(crate) fn same_elements(declared: &Type, fact: &Fact) -> bool {
    fn bare(declared: &Type) -> Type {
        match declared {
            Type::Tensor(dtype, _) => Type::Tensor(*dtype, None),
            Type::Sequence(element) => Type::Sequence(Box::new(bare(element))),
            Type::Optional(element) => Type::Optional(Box::new(bare(element))),
            other => other.clone(),
        }
    }
    match declared {
        Type::Optional(element) if !matches!(fact, Fact::Optional { .. }) => same_elements(element, fact),
        _ => !contradicts(&bare(declared), fact),
    }
}
