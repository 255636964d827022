#!/usr/bin/env python3
"""Exports small transformers in float32, float16 and bfloat16, to compare what becomes of them.

    python scripts/export_half.py OUT [NAME...]

needs torch, transformers and onnxscript. Writes OUT/NAME.ATTENTION.EXPORTER.TYPE.onnx for each name (all of MODELS unless some
are given), where ATTENTION is `eager` (decomposed in Python, Softmax in float32 where the model says so) or `sdpa`
(PyTorch's operator), EXPORTER is `dynamo` or `script` (TorchScript), and TYPE is `fp32`, `fp16` or `bf16`. Models have two
layers and random parameters, none of which is left at 0 or 1; they are the same in each type, up to rounding. An
export that PyTorch refuses is reported and skipped.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import io
import logging
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
import transformers
from torch import nn

TYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
ATTENTIONS = ("eager", "sdpa")
EXPORTERS = ("dynamo", "script")
SEED = 7

DECODER = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 112,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "use_cache": False,
}
GROUPED = DECODER | {"num_key_value_heads": 2}
ENCODER = {key: value for key, value in DECODER.items() if key != "use_cache"}

MODELS: dict[str, Callable[[], nn.Module]] = {
    "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**GROUPED)),
    "qwen2": lambda: transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**GROUPED)),
    "gemma2": lambda: transformers.Gemma2ForCausalLM(
        transformers.Gemma2Config(**GROUPED, head_dim=16, query_pre_attn_scalar=16, sliding_window=8)
    ),
    "phi": lambda: transformers.PhiForCausalLM(transformers.PhiConfig(**DECODER)),
    "gpt2": lambda: transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=96, n_positions=64, n_embd=64, n_layer=2, n_head=4, use_cache=False)
    ),
    "bert": lambda: transformers.BertModel(transformers.BertConfig(**ENCODER)),
    "vit": lambda: transformers.ViTModel(
        transformers.ViTConfig(
            hidden_size=64, intermediate_size=112, num_hidden_layers=2, num_attention_heads=4, image_size=32, patch_size=8
        )
    ),
}


class Plain(nn.Module):
    """A model that takes tensors by position and gives one tensor."""

    def __init__(self, model: nn.Module, image: bool) -> None:
        super().__init__()
        self.model, self.image = model, image

    def forward(self, x, mask=None):  # noqa: ANN001, ANN201
        named = {"pixel_values": x} if self.image else {"input_ids": x, "attention_mask": mask}
        return self.model(**named, return_dict=False)[0]


def build(name: str, attention: str) -> Plain:
    """The model, in float32."""
    torch.manual_seed(SEED)
    model = MODELS[name]().eval()
    model.set_attn_implementation(attention)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return Plain(model, name == "vit")


def example(model: Plain, dtype: torch.dtype) -> tuple[tuple[torch.Tensor, ...], tuple[dict[int, str], ...]]:
    """Inputs, and which of their axes are dynamic."""
    if model.image:
        return (torch.randn(2, 3, 32, 32, dtype=dtype),), ({0: "batch"},)
    ids = torch.randint(3, 90, (2, 7))
    axes = {0: "batch", 1: "sequence"}
    return (ids, torch.ones_like(ids)), (axes, axes)


def export(model: Plain, dtype: torch.dtype, exporter: str, out: Path) -> None:
    """Writes the model in this type."""
    model = copy.deepcopy(model).to(dtype)
    inputs, axes = example(model, dtype)
    names = ["pixel_values"] if model.image else ["input_ids", "attention_mask"]
    options = {"input_names": names, "output_names": ["y"], "verbose": False}
    if exporter == "dynamo":
        dims: dict[str, torch.export.Dim] = {}
        shapes = tuple({axis: dims.setdefault(dim, torch.export.Dim(dim)) for axis, dim in of.items()} for of in axes)
        # Conv takes bfloat16 from operator set 22 on.
        opset = 22 if model.image else 18
        torch.onnx.export(
            model, inputs, str(out), dynamo=True, dynamic_shapes=shapes, opset_version=opset, external_data=False, **options
        )
    else:
        dynamic = dict(zip(names, axes, strict=True))
        torch.onnx.export(model, inputs, str(out), dynamo=False, dynamic_axes=dynamic, opset_version=17, **options)


def main() -> None:
    """Exports what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(MODELS)}")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(MODELS)
    if unknown:
        parser.error(f"no such model: {', '.join(sorted(unknown))}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    for name in arguments.names or MODELS:
        for attention in ATTENTIONS:
            try:
                model = build(name, attention)
            except ValueError as error:
                print(f"{name}.{attention}: {str(error).splitlines()[0][:160]}", file=sys.stderr)
                continue
            for exporter in EXPORTERS:
                for label, dtype in TYPES.items():
                    out = arguments.out / f"{name}.{attention}.{exporter}.{label}.onnx"
                    quiet = io.StringIO()
                    try:
                        with contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet), torch.no_grad():
                            export(model, dtype, exporter, out)
                    except Exception as error:  # noqa: BLE001  whatever an exporter raises
                        print(f"{out.name}: {type(error).__name__}: {str(error).splitlines()[0][:160]}", file=sys.stderr)
                        continue
                    print(out.name, flush=True)


if __name__ == "__main__":
    main()
