//! What adapters share: the call as the old version has it, and the ways to make another one of it.

use crate::{Change, Cx, Skip};
use onnxforge_ir::edit::{NewNode, Operand};
use onnxforge_ir::scope::ScopeKind;
use onnxforge_ir::{Attr, AttrValue, DType, Model, Node, NodeId, Op, ScopeId, Tensor, Trust, ValueId};
use onnxforge_ops::apply;
use onnxforge_ops::call::Call;
use onnxforge_ops::callee::MAX_CALLS;
use onnxforge_ops::eval_call::Memory;
use onnxforge_ops::kernel::convert::{Rounding, convert};
use onnxforge_ops::{Array, OpError};
use onnxforge_proto::Str;

/// What an adapter answers: the change, nothing where the call means the same in the new version, or why it cannot follow.
pub type Adapted = Result<Option<Change>, Refusal>;

/// Why a call cannot be taken to the next version: the reason and, where there is one, the hint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal(pub String);

impl Refusal {
    pub fn because<T>(why: impl Into<String>) -> Result<T, Self> {
        Err(Self(why.into()))
    }

    pub fn of_skip(model: &Model, skip: &Skip) -> Self {
        let reason =
            skip.reason.as_ref().map_or_else(|| "the call is not valid".to_owned(), ToString::to_string);
        Self(match skip.culprit {
            Some(value) => format!("{reason} (of {:?})", &**model.value(value).name()),
            None => reason,
        })
    }
}

impl From<OpError> for Refusal {
    fn from(error: OpError) -> Self {
        Self(error.to_string())
    }
}

/// The hint for what is not known in a function.
const INLINE: &str = "inline the functions first (pass inline_functions)";

/// The first version in which a Constant may hold what an attribute of the caller is.
const REFERENCES: i64 = 12;

/// A call whose operator changes, as the old version has it.
pub struct Old<'a> {
    pub cx: Cx<'a>,
    pub id: NodeId,
    /// In the version that is left behind.
    pub call: Call<'a>,
}

impl<'a> Old<'a> {
    pub fn new(cx: Cx<'a>, id: NodeId, opset: i64) -> Result<Self, Refusal> {
        match apply::call(cx.node(id), Some(opset), None) {
            Some(call) => Ok(Self { cx, id, call }),
            None => Refusal::because(format!("opset {opset} has no such operator")),
        }
    }

    pub fn node(&self) -> &'a Node {
        self.cx.node(self.id)
    }

    /// Input `index`, which must be there.
    pub fn input(&self, index: usize) -> Result<ValueId, Refusal> {
        self.node().input(index).ok_or_else(|| Refusal(format!("input {index} is missing")))
    }

    /// Output 0.
    pub fn output(&self) -> Result<ValueId, Refusal> {
        self.node().output(0).ok_or_else(|| Refusal("output 0 is missing".to_owned()))
    }

    /// The element type of a value, which must be known.
    pub fn dtype(&self, value: ValueId) -> Result<DType, Refusal> {
        self.known_dtype(value).ok_or_else(|| {
            let model = self.cx.model;
            let hint = match model.called_as(model.root_of(self.node().scope())) {
                Some(_) => INLINE,
                None => "declare it in value_info",
            };
            Refusal(format!("the element type of {:?} is not known; {hint}", &**model.value(value).name()))
        })
    }

    /// The element type of a value, if it is known.
    pub fn known_dtype(&self, value: ValueId) -> Option<DType> {
        self.cx.facts.tensor(value).and_then(|fact| fact.dtype)
    }

    /// The numbers that a value always holds, if they are known.
    pub fn numbers(&self, value: ValueId) -> Option<Vec<f64>> {
        let known = self.cx.facts.tensor(value).and_then(|fact| fact.array()?.to_f64s().ok());
        known.or_else(|| self.cx.floats(value).ok())
    }

    /// A string attribute, which must not be the caller's.
    pub fn text(&self, name: &str) -> Result<String, Refusal> {
        self.own(name)?;
        Ok(self.call.text(name)?)
    }

    /// An integer attribute, which must not be the caller's.
    pub fn int(&self, name: &str) -> Result<i64, Refusal> {
        self.own(name)?;
        Ok(self.call.int(name)?)
    }

    /// A float attribute, which must not be the caller's.
    pub fn float(&self, name: &str) -> Result<f32, Refusal> {
        self.own(name)?;
        Ok(self.call.float(name)?)
    }

    /// A list of floats, which must not be the caller's.
    pub fn floats(&self, name: &str) -> Result<Vec<f32>, Refusal> {
        self.own(name)?;
        Ok(self.call.floats(name)?)
    }

    fn own(&self, name: &str) -> Result<(), Refusal> {
        match self.node().attr(name) {
            Some(AttrValue::Reference { .. }) => callers(name),
            _ => Ok(()),
        }
    }

    /// A change that consumes the node.
    pub fn change(&self) -> Change {
        let mut change = self.cx.change(&[self.id]);
        change.trust(Trust::Upgraded);
        change
    }

    /// What it reads.
    pub fn inputs(&self) -> Vec<Operand> {
        self.node().inputs().iter().map(|&input| input.into()).collect()
    }

    /// Its attributes, but for some.
    pub fn attrs_without(&self, names: &[&str]) -> Vec<Attr> {
        self.node().attrs().iter().filter(|attr| !names.contains(&&*attr.name)).cloned().collect()
    }

    /// Its attributes, one of them new or changed.
    pub fn attrs_with(&self, attr: Attr) -> Vec<Attr> {
        let mut attrs = self.attrs_without(&[&attr.name]);
        attrs.push(attr);
        attrs
    }

    /// Another version of the node, with `outputs` outputs of its own.
    pub fn remake(
        &self,
        change: &mut Change,
        op: &str,
        mut inputs: Vec<Operand>,
        outputs: usize,
        attrs: Vec<Attr>,
    ) -> NewNode {
        while inputs.last() == Some(&Operand::Absent) {
            inputs.pop();
        }
        let new = change.call(Op::standard(op), inputs, outputs, attrs);
        change.inherit(new, self.id);
        new
    }

    /// The change by which the node keeps its operator and its outputs and gets these inputs and attributes.
    pub fn becomes(&self, change: Change, inputs: Vec<Operand>, attrs: Vec<Attr>) -> Adapted {
        self.becomes_op(change, &self.node().op().name, inputs, attrs)
    }

    /// The change by which the node keeps its outputs and calls this operator.
    pub fn becomes_op(
        &self,
        mut change: Change,
        op: &str,
        inputs: Vec<Operand>,
        attrs: Vec<Attr>,
    ) -> Adapted {
        let new = self.remake(&mut change, op, inputs, self.node().outputs().len(), attrs);
        change.take_outputs(&self.cx, self.id, new);
        Ok(Some(change))
    }

    /// What an attribute of integers is, as a vector; absent where it is not given.
    pub fn ints_operand(&self, change: &mut Change, name: &str) -> Result<Operand, Refusal> {
        match self.node().attr(name) {
            None => Ok(Operand::Absent),
            Some(AttrValue::Reference { .. }) => self.reference(change, name, "value_ints"),
            Some(_) => Ok(change.ints(name, &self.call.ints(name)?)),
        }
    }

    /// An attribute of the caller as a constant: `field` is what a Constant calls an attribute of that kind.
    pub fn reference(&self, change: &mut Change, name: &str, field: &str) -> Result<Operand, Refusal> {
        let Some(AttrValue::Reference { name: of, kind }) = self.node().attr(name) else {
            return Refusal::because(format!("the attribute {name} is missing"));
        };
        // A Constant cannot be left out where a caller leaves the attribute out.
        let required =
            self.call.signature.and_then(|it| it.attribute(name)).is_some_and(|attribute| attribute.required);
        let root = self.cx.model.root_of(self.node().scope());
        if self.call.opset + 1 < REFERENCES || !(required || is_always_given(self.cx.model, root, of)) {
            return callers(name);
        }
        let value = AttrValue::Reference { name: of.clone(), kind: *kind };
        Ok(change.op("Constant", [], [Attr::new(field, value)]))
    }

    /// A number as a constant without axes, rounded to the type.
    pub fn scalar(&self, dtype: DType, number: f32) -> Result<Tensor, Refusal> {
        let memory = Memory::new(u64::MAX);
        let array = convert(&Array::scalar(number), dtype, Rounding::default(), &memory)?;
        Ok(array.to_tensor().map_err(OpError::from)?)
    }
}

/// The answer where an attribute is the caller's and no constant can take its place.
fn callers<T>(name: &str) -> Result<T, Refusal> {
    Refusal::because(format!("its attribute {name} is what the caller of the function gives; {INLINE}"))
}

/// Whether a function has a default for an attribute, or every call gives it. What callers hand on is their callers' matter.
fn is_always_given(model: &Model, function: ScopeId, name: &Str) -> bool {
    let mut asked: Vec<(ScopeId, Str)> = vec![(function, name.clone())];
    let mut next = 0;
    while let Some((function, name)) = asked.get(next).cloned() {
        next += 1;
        let ScopeKind::Function(rest) = model.scope(function).kind() else { return false };
        if rest.attribute_proto.iter().any(|default| default.name.as_ref() == Some(&name)) {
            continue;
        }
        let called = model.called_as(function);
        for (_, node) in model.nodes().filter(|(_, node)| Some(node.op()) == called.as_ref()) {
            match node.attr(&name) {
                Some(AttrValue::Reference { name, .. }) => {
                    let outer = (model.root_of(node.scope()), name.clone());
                    if !asked.contains(&outer) {
                        asked.push(outer);
                    }
                }
                Some(_) => {}
                None => return false,
            }
        }
        if asked.len() > MAX_CALLS {
            return false;
        }
    }
    true
}
