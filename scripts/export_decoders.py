#!/usr/bin/env python3
"""Exports small decoders with a key/value cache, as PyTorch's two exporters write them.

    python scripts/export_decoders.py OUT [NAME...]

Needs torch, transformers, onnx and onnxruntime (tests/torch/requirements.txt). Writes OUT/NAME.EXPORTER.VARIANT.onnx for
every family (gpt2, llama, ...) or for those that are named, with both exporters (`dynamo`, `script`) and these variants:

    cached     ids, a mask of the whole length and the cache go in; logits and the longer cache come out
    positions  the same with position ids
    bare       the same without a mask: only ids and the cache
    one        the batch is fixed to 1 inside although the inputs call it `batch`
    unnamed    as `cached`, with the names of dimensions that the exporter makes
    merged     the first step without a cache and those with one, as branches of an If (Optimum's merged decoders)

Batch, length of the cache and number of new tokens are dynamic. Each file then runs in ONNX Runtime with an empty and a
filled cache, with one and with two sequences. OUT/exports.json lists what was written, at which sizes it runs, and what
an exporter could not do, with the reason. Weights are random but seeded; nothing is downloaded.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import itertools
import json
import logging
import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import onnx
import onnx.compose
import onnxruntime
import torch
import transformers
from torch import nn
from transformers import DynamicCache, EncoderDecoderCache

EXPORTERS = ("dynamo", "script")
VARIANTS = ("cached", "positions", "bare", "one", "unnamed", "merged")
BRANCH = "use_cache_branch"
SEED = 5
LAYERS, HEADS, HIDDEN, VOCABULARY, LONGEST = 2, 4, 64, 96, 64
# Sizes that differ from each other and from everything fixed, so that no exporter takes two for one.
BATCH, NEW, PAST, ENCODED = 2, 3, 7, 11
PLAIN = {"vocab_size": VOCABULARY, "hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS}
TEXT = {**PLAIN, "intermediate_size": 80, "max_position_embeddings": LONGEST}
SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
TWO_STACKS = {
    **{"vocab_size": VOCABULARY, "d_model": HIDDEN, "encoder_layers": 1, "decoder_layers": LAYERS},
    **{"encoder_attention_heads": HEADS, "decoder_attention_heads": HEADS},
    **{"encoder_ffn_dim": 80, "decoder_ffn_dim": 80, **SPECIAL},
}


@dataclass(frozen=True)
class Family:
    """How a decoder is made, and what shape its cache has."""

    config: str
    model: str
    options: dict[str, Any]
    cached_heads: int = HEADS
    head: int = HIDDEN // HEADS
    layers: int = LAYERS
    crosses: bool = False

    def build(self) -> nn.Module:
        """A model in evaluation mode whose parameters all do something."""
        torch.manual_seed(SEED)
        config = getattr(transformers, self.config)(**self.options)
        model = getattr(transformers, self.model)(config).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.05)
        return model


FAMILIES = {
    "gpt2": Family(
        "GPT2Config",
        "GPT2LMHeadModel",
        {"vocab_size": VOCABULARY, "n_embd": HIDDEN, "n_layer": LAYERS, "n_head": HEADS, "n_positions": LONGEST},
    ),
    "llama": Family("LlamaConfig", "LlamaForCausalLM", {**TEXT, "num_key_value_heads": 2}, cached_heads=2),
    "mistral": Family(
        "MistralConfig", "MistralForCausalLM", {**TEXT, "num_key_value_heads": 2, "sliding_window": 32}, cached_heads=2
    ),
    "qwen2": Family("Qwen2Config", "Qwen2ForCausalLM", {**TEXT, "num_key_value_heads": 2}, cached_heads=2),
    "qwen3": Family(
        "Qwen3Config", "Qwen3ForCausalLM", {**TEXT, "num_key_value_heads": 2, "head_dim": 24}, cached_heads=2, head=24
    ),
    "phi": Family("PhiConfig", "PhiForCausalLM", {**TEXT, "partial_rotary_factor": 0.5, **SPECIAL}),
    "gemma2": Family(
        "Gemma2Config",
        "Gemma2ForCausalLM",
        {**TEXT, "num_key_value_heads": 2, "head_dim": 24, "sliding_window": 32, "query_pre_attn_scalar": 24},
        cached_heads=2,
        head=24,
    ),
    "gemma3": Family(
        "Gemma3TextConfig",
        "Gemma3ForCausalLM",
        {
            **{**TEXT, "num_key_value_heads": 2, "head_dim": 24, "sliding_window": 32, "query_pre_attn_scalar": 24},
            "layer_types": ["sliding_attention", "full_attention"],
        },
        cached_heads=2,
        head=24,
    ),
    "gpt_neox": Family("GPTNeoXConfig", "GPTNeoXForCausalLM", {**TEXT, "rotary_pct": 0.5, **SPECIAL}),
    "falcon": Family(
        "FalconConfig", "FalconForCausalLM", {**PLAIN, "multi_query": True, "alibi": False, **SPECIAL}, cached_heads=1
    ),
    "mixtral": Family(
        "MixtralConfig",
        "MixtralForCausalLM",
        {
            **{**TEXT, "num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 2},
            "experts_implementation": "batched_mm",
        },
        cached_heads=2,
    ),
    "whisper": Family(
        "WhisperConfig",
        "WhisperForConditionalGeneration",
        {**TWO_STACKS, "num_mel_bins": 8, "max_source_positions": 16, "max_target_positions": LONGEST},
        crosses=True,
    ),
    "t5": Family(
        "T5Config",
        "T5ForConditionalGeneration",
        {
            **{"vocab_size": VOCABULARY, "d_model": HIDDEN, "d_kv": 16, "d_ff": 80, "num_heads": HEADS},
            **{"num_layers": 1, "num_decoder_layers": LAYERS, "relative_attention_num_buckets": 8},
            **{"relative_attention_max_distance": 32, **SPECIAL},
        },
        crosses=True,
    ),
    "bart": Family(
        "BartConfig",
        "BartForConditionalGeneration",
        {**TWO_STACKS, "max_position_embeddings": LONGEST},
        crosses=True,
    ),
}


class Impossible(Exception):
    """A variant that a family does not have."""


class Flat(nn.Module):
    """A decoder that takes and gives its cache as separate tensors.

    Keys and values of each layer follow each other. With cross attention those of the encoder come after all others,
    and are given back by nothing: they do not change.
    """

    def __init__(self, family: Family, variant: str) -> None:
        super().__init__()
        self.model, self.family, self.variant = family.build(), family, variant
        self.accepts = inspect.signature(self.model.forward).parameters
        if variant == "positions" and "position_ids" not in self.accepts:
            raise Impossible("the model takes no position ids")
        own = [f"past_key_values.{layer}.{part}" for layer in range(family.layers) for part in ("key", "value")]
        names = ["input_ids"] if not family.crosses else ["decoder_input_ids"]
        if variant != "bare":
            names.append("attention_mask" if not family.crosses else "decoder_attention_mask")
        if variant == "positions":
            names.append("position_ids")
        if variant == "merged" and family.crosses:
            raise Impossible("the first step needs the encoder's states")
        # The first branch of `merged`.
        names += own if variant != "first" else []
        if family.crosses:
            names += [name.replace(".key", ".encoder.key").replace(".value", ".encoder.value") for name in own]
        self.names = names
        self.results = ["logits", *(name.replace("past_key_values", "present") for name in own)]

    def shape(self, name: str) -> tuple[str | int, ...]:
        """The shape of an input: names of dimensions, and sizes."""
        if name.startswith("past"):
            length = "encoded" if ".encoder." in name else "past"
            return ("batch", self.family.cached_heads, length, self.family.head)
        return ("batch", "total" if name.endswith("attention_mask") else "new")

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        given = dict(zip(self.names, tensors))
        if self.variant == "one":
            # What scripts for a single sequence do.
            given = {name: value.reshape(1, *value.shape[1:]) for name, value in given.items()}
        cache = [value for name, value in given.items() if name.startswith("past")]
        layers = list(zip(cache[0::2], cache[1::2]))
        past: Any = DynamicCache(layers[: self.family.layers])
        options: dict[str, Any] = {name: value for name, value in given.items() if not name.startswith("past")}
        if self.family.crosses:
            past = EncoderDecoderCache(past, DynamicCache(layers[self.family.layers :]))
            # The encoder's part of the cache is complete: of its states only the size is looked at.
            keys = layers[self.family.layers][0]
            states = keys.transpose(1, 2).reshape(keys.shape[0], -1, HIDDEN)
            options["encoder_outputs"] = (states,)
        made = self.model(**options, past_key_values=past, use_cache=True, return_dict=True)
        own = made.past_key_values.self_attention_cache if self.family.crosses else made.past_key_values
        kept = [tensor for layer in own.layers for tensor in (layer.keys, layer.values)]
        return (made.logits, *kept)


Sizes = dict[str, int]


def sizes(batch: int = BATCH, new: int = NEW, past: int = PAST) -> Sizes:
    return {"batch": batch, "new": new, "past": past, "total": past + new, "encoded": ENCODED}


def example(model: Flat, at: Sizes, seed: int = 0) -> dict[str, np.ndarray]:
    """Inputs at these sizes. Masks hide the first places of every sequence but the first, as padding on the left does."""
    random = np.random.default_rng(seed)
    values = {}
    for name in model.names:
        shape = tuple(at[dim] if isinstance(dim, str) else dim for dim in model.shape(name))
        if name.startswith("past"):
            values[name] = random.normal(size=shape).astype(np.float32)
        elif name.endswith("attention_mask"):
            values[name] = np.ones(shape, np.int64)
            values[name][1:, : at["past"] // 2] = 0
        elif name == "position_ids":
            values[name] = np.broadcast_to(np.arange(at["past"], at["total"]), shape).astype(np.int64)
        else:
            values[name] = random.integers(3, VOCABULARY, size=shape)
    if model.variant == "merged":
        values[BRANCH] = np.array([at["past"] > 0])
    return values


def tensors(model: Flat, at: Sizes) -> tuple[torch.Tensor, ...]:
    """What PyTorch's model takes of the example."""
    values = example(model, at)
    return tuple(torch.from_numpy(values[name]) for name in model.names)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    transformers.logging.set_verbosity_error()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        yield


def by_dynamo(model: Flat, path: Path, external: bool = False) -> None:
    fixed = {"batch": 1} if model.variant == "one" else {}
    if model.variant == "merged":
        raise Impossible("Optimum merges what the other exporter writes")
    # Which dimensions are equal is for the exporter to find.
    dynamic = tuple(
        {
            axis: torch.export.Dim.DYNAMIC
            for axis, dim in enumerate(model.shape(name))
            if isinstance(dim, str) and dim not in fixed
        }
        for name in model.names
    )
    given = tensors(model, {**sizes(), **fixed})
    program = torch.export.export(model, given, dynamic_shapes=(dynamic,), strict=False)
    torch.onnx.export(
        program,
        (),
        str(path),
        dynamo=True,
        verbose=False,
        external_data=external,
        input_names=model.names,
        output_names=model.results,
    )
    if model.variant != "unnamed":
        declared(model, path)


def by_script(model: Flat, path: Path) -> None:
    fixed = {"batch": 1} if model.variant == "one" else {}
    named = {
        name: {axis: dim for axis, dim in enumerate(model.shape(name)) if isinstance(dim, str)} for name in model.names
    }
    outputs = {name: {0: "batch", 2: "total"} for name in model.results[1:]} | {"logits": {0: "batch", 1: "new"}}
    dynamic: dict[str, Any] = named | outputs
    if model.variant == "unnamed":
        dynamic = {name: list(axes) for name, axes in dynamic.items()}
    torch.onnx.export(
        model,
        tensors(model, {**sizes(), **fixed}),
        str(path),
        dynamo=False,
        verbose=False,
        opset_version=17,
        do_constant_folding=True,
        input_names=model.names,
        output_names=model.results,
        dynamic_axes=dynamic,
    )
    if model.variant == "merged":
        first = Flat(model.family, "first").eval()
        other = path.with_suffix(".first")
        by_script(first, other)
        onnx.save(merged(onnx.load(path), onnx.load(other)), path)
        other.unlink()


def merged(later: onnx.ModelProto, first: onnx.ModelProto) -> onnx.ModelProto:
    """One model of two: an If takes the first where there is no cache. Weights that both have are in it once."""
    outputs = [onnx.ValueInfoProto.FromString(port.SerializeToString()) for port in later.graph.output]
    inputs = [onnx.ValueInfoProto.FromString(port.SerializeToString()) for port in later.graph.input]
    shared: dict[tuple[Any, ...], str] = {}
    weights, branches = [], []
    for prefix, model in (("later.", later), ("first.", first)):
        graph = onnx.compose.add_prefix_graph(model.graph, prefix, rename_inputs=False)
        names = {}
        for weight in graph.initializer:
            key = (weight.data_type, tuple(weight.dims), onnx.numpy_helper.to_array(weight).tobytes())
            if key not in shared:
                weights.append(weight)
            names[weight.name] = shared.setdefault(key, weight.name)
        for node in graph.node:
            node.input[:] = [names.get(name, name) for name in node.input]
        branches.append(onnx.helper.make_graph(graph.node, prefix, [], graph.output))
    choice = onnx.helper.make_node(
        "If", [BRANCH], [port.name for port in outputs], then_branch=branches[0], else_branch=branches[1]
    )
    inputs.append(onnx.helper.make_tensor_value_info(BRANCH, onnx.TensorProto.BOOL, [1]))
    graph = onnx.helper.make_graph([choice], "merged", inputs, outputs, weights)
    return onnx.helper.make_model(graph, opset_imports=later.opset_import, ir_version=later.ir_version)


def declared(model: Flat, path: Path) -> None:
    """Gives dimensions of the inputs the names of `shape`, in place of the exporter's own."""
    loaded = onnx.load(path, load_external_data=False)
    inputs = {port.name: port.type.tensor_type.shape.dim for port in loaded.graph.input}
    names: dict[str, str] = {}
    for name in model.names:
        for dim, size in zip(inputs.get(name, ()), model.shape(name)):
            if isinstance(size, str):
                if dim.dim_param:
                    names.setdefault(dim.dim_param, size)
                dim.dim_param = size
    # What is known of values inside is in terms of the old names.
    del loaded.graph.value_info[:]
    for port in loaded.graph.output:
        for dim in port.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_param = names.get(dim.dim_param, dim.dim_param)
    onnx.save(loaded, path)


EXPORT: dict[str, Callable[[Flat, Path], None]] = {"dynamo": by_dynamo, "script": by_script}


def runs(model: Flat, path: Path) -> dict[str, str]:
    """At which sizes a file runs in ONNX Runtime: right, wrong by how much, or why it does not run."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    taken = {port.name for port in session.get_inputs()}
    found = {}
    for batch, (past, new) in itertools.product((1, 2), ((0, 4), (6, 1), (PAST, NEW))):
        values = example(model, sizes(batch, new, past), seed=1)
        key = f"batch={batch}, past={past}, new={new}"
        try:
            made = session.run(None, {name: value for name, value in values.items() if name in taken})
        except Exception as error:  # noqa: BLE001 - the runtime has no error type of its own
            found[key] = f"fails: {str(error).splitlines()[0][:200]}"
            continue
        try:
            with torch.no_grad():
                wanted = model(*(torch.from_numpy(values[name]) for name in model.names))
        except RuntimeError as error:
            found[key] = f"runs, where PyTorch does not: {str(error).splitlines()[0][:200]}"
            continue
        off = max(difference(a, b.numpy()) for a, b in zip(made, wanted))
        found[key] = "right" if off < 1e-4 else f"differs from PyTorch by {off:.1e}"
    return found


def difference(found: np.ndarray, wanted: np.ndarray) -> float:
    if found.shape != wanted.shape:
        return float("inf")
    scale = max(float(np.abs(wanted).max(initial=0)), 1e-6)
    return float(np.abs(found - wanted).max(initial=0)) / scale


def export(folder: Path, name: str, exporter: str, variant: str) -> dict[str, Any]:
    """Exports one decoder and runs it. The answer has `file` and `runs`, or `fails`."""
    file = f"{name}.{exporter}.{variant}.onnx"
    told: dict[str, Any] = {"family": name, "exporter": exporter, "variant": variant}
    with quiet():
        try:
            model = Flat(FAMILIES[name], variant).eval()
            EXPORT[exporter](model, folder / file)
            return told | {"file": file, "runs": runs(model, folder / file)}
        except Exception as error:  # noqa: BLE001 - exporters fail in many ways; each is listed
            (folder / file).unlink(missing_ok=True)
            lines = [line for line in str(error).splitlines() if line.strip()] or [""]
            return told | {"fails": f"{type(error).__name__}: {lines[0][:300]}"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="the folder to write to")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"families: {', '.join(FAMILIES)} (all)")
    parser.add_argument("--exporters", nargs="*", default=EXPORTERS, choices=EXPORTERS)
    parser.add_argument("--variants", nargs="*", default=VARIANTS, choices=VARIANTS)
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(FAMILIES)
    if unknown:
        parser.error(f"no such family: {', '.join(sorted(unknown))}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    told = []
    for name, exporter, variant in itertools.product(
        arguments.names or FAMILIES, arguments.exporters, arguments.variants
    ):
        one = export(arguments.out, name, exporter, variant)
        told.append(one)
        print(f"{name}.{exporter}.{variant}: {one.get('fails') or one['runs']}", flush=True)
    (arguments.out / "exports.json").write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
