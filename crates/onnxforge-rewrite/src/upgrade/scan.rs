//! Scan 9 has no batch axis any more.

use super::adapter::{Adapted, Old, Refusal};
use onnxforge_ir::edit::Operand;
use onnxforge_ir::{Attr, AttrValue};

/// Before, every tensor has a batch axis first, each sequence of the batch is scanned by itself, and elements lie along the axis
/// after it. A batch of one is a Scan of what is in it.
pub fn batch(old: &Old<'_>) -> Adapted {
    let node = old.node();
    if node.input(0).is_some() {
        return Refusal::because(
            "its sequences have lengths of their own (sequence_lens), which no Scan has since then",
        );
    }
    let values: Vec<_> = (1..node.inputs().len()).map(|index| old.input(index)).collect::<Result<_, _>>()?;
    let is_one =
        |shape: &[onnxforge_ir::dim::Dim]| shape.first().is_some_and(|dim| dim.as_const() == Some(1));
    if !values.iter().any(|&value| old.cx.facts.shape(value).is_some_and(is_one)) {
        return Refusal::because(
            "it scans a batch, which no Scan does since then; set the batch dimension of its inputs to 1",
        );
    }
    let mut change = old.change();
    let first = || Attr::from(("axes", vec![0]));
    let inputs: Vec<Operand> =
        values.into_iter().map(|value| change.op("Squeeze", [value.into()], [first()])).collect();
    let mut attrs = old.attrs_without(&["directions"]);
    if let Some(directions) = node.attr("directions") {
        attrs.push(Attr::new("scan_input_directions", AttrValue::clone(directions)));
    }
    let new = old.remake(&mut change, "Scan", inputs, node.outputs().len(), attrs);
    for (index, output) in node.outputs().iter().enumerate() {
        let Some(output) = *output else { continue };
        let batch = change.op("Unsqueeze", [new.output(index)], [first()]);
        change.replace(output, batch);
    }
    Ok(Some(change))
}
