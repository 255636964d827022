#!/usr/bin/env python3
"""Exports the graph of a LLaMA of 7 billion parameters in float16, without weights.

    python scripts/export_llama_7b.py OUT.onnx [--layers 32] [--type float16]
    onnxforge materialize OUT.onnx -o DIR/llama.onnx --external split    # 13.5 GB
    onnxforge optimize DIR/llama.onnx -o DIR/small.onnx --opset 23 --verify off

Needs torch, transformers and onnxscript, and a gigabyte of memory: every parameter is one number, repeated. Widths are those of LLaMA 2 7B. Batch and
sequence are dynamic, and the exporter may not optimize, as for the models of zoo/.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import onnx
import onnx_ir
import torch
import transformers
from export_zoo import DROPPED, Text

WIDTHS = {"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_attention_heads": 32}


def repeated(module: torch.nn.Module, dtype: torch.dtype) -> None:
    """Gives every parameter memory for one number."""
    for part in module.modules():
        for name, parameter in list(part.named_parameters(recurse=False)):
            one = torch.full((1,), 0.01, dtype=dtype).expand(parameter.shape)
            setattr(part, name, torch.nn.Parameter(one, requires_grad=False))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--type", default="float16", choices=("float32", "float16", "bfloat16"))
    options = parser.parse_args()
    dtype = getattr(torch, options.type)
    config = transformers.LlamaConfig(num_hidden_layers=options.layers, max_position_embeddings=4096, **WIDTHS)
    with torch.device("meta"):
        inner = transformers.LlamaForCausalLM(config)
    repeated(inner, dtype)
    # What is computed from the configuration, and was not on the device that has no memory.
    inner.model.rotary_emb = type(inner.model.rotary_emb)(config)
    ids = torch.zeros((2, 16), dtype=torch.int64)
    axes = {0: "batch", 1: "seq"}
    with torch.no_grad():
        program = torch.onnx.export(
            Text(inner).eval(),
            (ids, torch.ones_like(ids)),
            dynamo=True,
            optimize=False,
            verbose=False,
            opset_version=20,
            input_names=["input_ids", "attention_mask"],
            output_names=["logits"],
            dynamic_shapes=(axes, axes),
        )
    place = 0
    for value in program.model.graph.initializers.values():
        tensor = value.const_value
        if tensor.nbytes < 1 << 16:
            continue
        value.const_value = onnx_ir.ExternalTensor(
            "weights.data", place, tensor.nbytes, tensor.dtype, shape=tensor.shape, name=value.name
        )
        place += tensor.nbytes
    message = onnx_ir.to_proto(program.model)
    for node in message.graph.node:
        kept = [entry for entry in node.metadata_props if entry.key not in DROPPED]
        del node.metadata_props[:]
        node.metadata_props.extend(kept)
    onnx.save(message, options.out)
    print(f"{options.out}: {len(message.graph.node)} nodes, {place / 1e9:.1f} GB of weights elsewhere")


if __name__ == "__main__":
    main()
