#!/usr/bin/env python3
"""Exports the models whose graphs are in zoo/.

    pip install torch==2.15.0 torchvision==0.29.2 transformers==5.22.2 ultralytics==8.4.190 \\
        onnx==1.23.2 onnxscript==0.7.2
    python scripts/export_zoo.py OUT                        # every model, both exporters: 21 GB
    python scripts/export_zoo.py OUT resnet50 yolov8n       # some of them
    python scripts/export_zoo.py OUT distilbert --skeletons target/release/onnxforge

Writes OUT/NAME.EXPORTER.onnx (weights beside it) and OUT/modules/NAME.json, the table of modules that `onnxforge --modules`
reads. `--skeletons` also writes OUT/zoo/NAME.EXPORTER.onnx.gz with `onnxforge redact`: the form of zoo/, without weights.

Exporters are PyTorch's two, and neither may optimize (`do_constant_folding=False`, `optimize=False`): the graphs show what
exporters write. Weights are random but seeded, with noise on every parameter and statistic, so that nothing is left at 0 or 1
that training would have moved; `--weights trained` takes trained weights where the caches of transformers, torchvision and
ultralytics have them, and noise otherwise. Nothing is downloaded. To add a model, add a function with `@model`.
"""

from __future__ import annotations

import argparse
import gzip
import inspect
import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("YOLO_OFFLINE", "true")

import onnx
import torch
import transformers
from torch import nn

SEED = 20240229
EXPORTERS = ("torchscript", "dynamo")
OPSET = {"torchscript": 14, "dynamo": 20}
# Lines of source code, which also say where this script ran.
DROPPED = ("pkg.torch.onnx.stack_trace",)


@dataclass(frozen=True)
class Export:
    """A model and how to call it."""

    module: nn.Module
    inputs: dict[str, torch.Tensor]
    outputs: tuple[str, ...]
    dynamic: bool = False
    opset: dict[str, int] | None = None


MODELS: dict[str, Callable[[bool], Export]] = {}


def model(name: str) -> Callable[[Callable[[bool], Export]], Callable[[bool], Export]]:
    """Lists a function that makes the model of this name, from trained weights if asked to."""

    def listed(make: Callable[[bool], Export]) -> Callable[[bool], Export]:
        MODELS[name] = make
        return make

    return listed


def disturb(module: nn.Module) -> nn.Module:
    """Adds noise to every parameter and statistic."""
    generator = torch.Generator().manual_seed(SEED)
    noise = lambda tensor, scale: torch.randn(tensor.shape, generator=generator).to(tensor.dtype) * scale  # noqa: E731
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(noise(parameter, 0.02 if parameter.ndim > 1 else 0.05))
        for name, buffer in module.named_buffers():
            if name.endswith("running_mean"):
                buffer.add_(noise(buffer, 0.1))
            elif name.endswith("running_var"):
                buffer.mul_(torch.exp(noise(buffer, 0.2)))
    return module


def from_cache(load: Callable[[], nn.Module], name: str) -> nn.Module | None:
    """A trained model, if its weights are on this machine."""
    try:
        return load()
    except Exception as problem:
        print(f"{name}: no trained weights in the cache, so noise ({type(problem).__name__})")
        return None


# Models of text.


class Text(nn.Module):
    """A model of transformers with two inputs and plain outputs."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.model = inner

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return self.model(input_ids=input_ids, attention_mask=attention_mask, return_dict=False, **CALL.get(self.kind, {}))

    @property
    def kind(self) -> str:
        return self.model.config.model_type


CALL = {kind: {"use_cache": False} for kind in ("gpt2", "llama", "phi", "gemma")}


def hugging(name: str, kind: Any, config: Any, repository: str, trained: bool) -> nn.Module:
    """A model of transformers."""
    load = lambda: kind.from_pretrained(repository, local_files_only=True)  # noqa: E731
    found = from_cache(load, name) if trained else None
    torch.manual_seed(SEED)
    return found if found is not None else disturb(kind(config))


def text(name: str, kind: str, config: Any, repository: str, outputs: tuple[str, ...], **opset: int) -> None:
    """Lists a model of text."""

    @model(name)
    def make(trained: bool) -> Export:
        module = Text(hugging(name, getattr(transformers, kind), config, repository, trained))
        ids = torch.randint(0, config.vocab_size, (2, 16), generator=torch.Generator().manual_seed(SEED))
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        return Export(module, inputs, outputs, dynamic=True, opset=opset or None)


HIDDEN = ("last_hidden_state",)
POOLED = ("last_hidden_state", "pooler_output")
text("bert_base", "BertModel", transformers.BertConfig(), "bert-base-uncased", POOLED)
text("distilbert", "DistilBertModel", transformers.DistilBertConfig(), "distilbert-base-uncased", HIDDEN)
ROBERTA = {"vocab_size": 50265, "max_position_embeddings": 514, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
text("roberta_base", "RobertaModel", transformers.RobertaConfig(**ROBERTA), "roberta-base", POOLED)
text("gpt2", "GPT2Model", transformers.GPT2Config(), "gpt2", HIDDEN)
LLAMA = {"vocab_size": 32000, "hidden_size": 2048, "intermediate_size": 5632, "max_position_embeddings": 2048}
LLAMA |= {"num_attention_heads": 32, "num_key_value_heads": 4}
for name, layers, repository in (("tinyllama", 22, "TinyLlama/TinyLlama-1.1B-Chat-v1.0"), ("llama2l", 2, "")):
    config = transformers.LlamaConfig(num_hidden_layers=layers, **LLAMA)
    text(name, "LlamaForCausalLM", config, repository, ("logits",), torchscript=17)
PHI = {"vocab_size": 51200, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 24, "num_attention_heads": 32}
PHI |= {"hidden_act": "gelu_new", "partial_rotary_factor": 0.5}
text("phi_1_5", "PhiForCausalLM", transformers.PhiConfig(**PHI), "microsoft/phi-1_5", ("logits",))
GEMMA = {"vocab_size": 256000, "hidden_size": 2048, "intermediate_size": 16384, "num_hidden_layers": 18, "num_attention_heads": 8}
GEMMA |= {"num_key_value_heads": 1, "dtype": "bfloat16"}
text("gemma_2b_bf16", "GemmaForCausalLM", transformers.GemmaConfig(**GEMMA), "google/gemma-2b", ("logits",))
# Their TorchScript exports are as those of llama2l, only longer.
ONLY_DYNAMO = ("tinyllama", "phi_1_5", "gemma_2b_bf16")


# Models of images.


def torchvision_model(name: str, builder: str, weights: str) -> None:
    """Lists a model of torchvision."""

    @model(name)
    def make(trained: bool) -> Export:
        import torchvision

        build = getattr(torchvision.models, builder)
        address = torchvision.models.get_weight(weights).url
        cached = Path(torch.hub.get_dir()) / "checkpoints" / Path(address).name
        if trained and not cached.exists():
            print(f"{name}: no trained weights in the cache, so noise ({cached.name} is missing)")
        torch.manual_seed(SEED)
        module = build(weights=weights) if trained and cached.exists() else disturb(build(weights=None))
        return Export(module, {"input": image(224)}, ("output",))


def image(size: int) -> torch.Tensor:
    return torch.randn(1, 3, size, size, generator=torch.Generator().manual_seed(SEED))


torchvision_model("mobilenet_v2", "mobilenet_v2", "MobileNet_V2_Weights.IMAGENET1K_V2")
torchvision_model("mobilenet_v3_small", "mobilenet_v3_small", "MobileNet_V3_Small_Weights.IMAGENET1K_V1")
torchvision_model("efficientnet_b0", "efficientnet_b0", "EfficientNet_B0_Weights.IMAGENET1K_V1")
torchvision_model("resnet50", "resnet50", "ResNet50_Weights.IMAGENET1K_V2")


def transformer_of_images(name: str, kind: str, config: Any, repository: str, size: int) -> None:
    """Lists a model of transformers that takes an image."""

    @model(name)
    def make(trained: bool) -> Export:
        module = hugging(name, getattr(transformers, kind), config, repository, trained)
        return Export(module, {"pixel_values": image(size)}, ("last_hidden_state", "pooler"))


SMALL = {"hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 1536}
DEIT = "facebook/deit-small-distilled-patch16-224"
transformer_of_images("deit_small", "DeiTModel", transformers.DeiTConfig(**SMALL), DEIT, 224)
transformer_of_images("vit_base", "ViTModel", transformers.ViTConfig(), "google/vit-base-patch16-224-in21k", 224)
transformer_of_images("mobilevit_small", "MobileViTModel", transformers.MobileViTConfig(), "apple/mobilevit-small", 256)


def yolo(name: str) -> None:
    """Lists a detector of ultralytics, with the head as it is deployed."""

    @model(name)
    def make(trained: bool) -> Export:
        from ultralytics.nn.tasks import DetectionModel

        found = None
        if trained:
            found = from_cache(lambda: torch.load(f"{name}.pt", weights_only=False)["model"].float(), name)
        torch.manual_seed(SEED)
        module = found if found is not None else disturb(DetectionModel(f"{name}.yaml", verbose=False))
        for part in module.modules():
            if type(part).__name__ == "Detect":
                part.export, part.format = True, "onnx"
        return Export(module, {"images": image(640)}, ("output0",))


yolo("yolov8n")
yolo("yolov8s")


# Models of sound.


def whisper(name: str, width: int, heads: int, layers: int, repository: str) -> None:
    """Lists an encoder of Whisper."""

    @model(name)
    def make(trained: bool) -> Export:
        config = transformers.WhisperConfig(
            d_model=width, encoder_attention_heads=heads, encoder_layers=layers, encoder_ffn_dim=4 * width
        )
        kind = transformers.models.whisper.modeling_whisper.WhisperEncoder
        module = hugging(name, kind, config, repository, trained)
        features = torch.randn(1, 80, 3000, generator=torch.Generator().manual_seed(SEED))
        return Export(module, {"input_features": features}, HIDDEN)


whisper("whisper_tiny_enc", 384, 6, 4, "openai/whisper-tiny")
whisper("whisper_base_enc", 512, 8, 6, "openai/whisper-base")


@model("wav2vec2_base")
def wav2vec2(trained: bool) -> Export:
    config = transformers.Wav2Vec2Config()
    module = hugging("wav2vec2_base", transformers.Wav2Vec2Model, config, "facebook/wav2vec2-base", trained)
    sound = torch.randn(1, 16000, generator=torch.Generator().manual_seed(SEED))
    return Export(module, {"input_values": sound}, ("last_hidden_state", "layer_norm"))


# Writing.


def export(given: Export, exporter: str, path: Path) -> None:
    """Writes the model as one of PyTorch's exporters makes it."""
    opset = (given.opset or {}).get(exporter, OPSET[exporter])
    named = {"input_names": list(given.inputs), "output_names": list(given.outputs), "opset_version": opset}
    axes = {0: "batch", 1: "seq"}
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        args = tuple(given.inputs.values())
        if exporter == "dynamo":
            if given.dynamic:
                named["dynamic_shapes"] = (axes,) * len(args)
            program = torch.onnx.export(given.module, args, dynamo=True, optimize=False, verbose=False, **named)
            program.save(str(path), external_data=True)
        else:
            if given.dynamic:
                named["dynamic_axes"] = {name: axes for name in given.inputs}
            torch.onnx.export(given.module, args, str(path), dynamo=False, do_constant_folding=False, **named)
    message = onnx.load(path, load_external_data=False)
    for node in message.graph.node:
        kept = [entry for entry in node.metadata_props if entry.key not in DROPPED]
        del node.metadata_props[:]
        node.metadata_props.extend(kept)
    onnx.save(message, path)


def table(module: nn.Module) -> dict[str, Any]:
    """The table of modules: what every path is, takes, holds and contains."""
    return {
        path: {
            "class": f"{type(part).__module__}.{type(part).__qualname__}",
            "forward_args": list(inspect.signature(part.forward).parameters),
            "direct_parameters": [name for name, _ in part.named_parameters(recurse=False)],
            "direct_buffers": [name for name, _ in part.named_buffers(recurse=False)],
            "children": {name: type(child).__name__ for name, child in part.named_children()},
        }
        for path, part in module.named_modules()
    }


def skeleton(binary: str, path: Path, folder: Path) -> None:
    """Writes the model without its weights, as zoo/ has it."""
    with tempfile.TemporaryDirectory() as scratch:
        bare = Path(scratch) / path.name
        subprocess.run([binary, "redact", path, "-o", bare, "--quiet"], check=True)
        (folder / f"{path.name}.gz").write_bytes(gzip.compress(bare.read_bytes(), 9, mtime=0))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="the folder to write to")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {', '.join(MODELS)}")
    parser.add_argument("--exporters", nargs="+", choices=EXPORTERS, default=EXPORTERS)
    parser.add_argument("--weights", choices=("noise", "trained"), default="noise")
    parser.add_argument("--skeletons", metavar="BINARY", help="the program onnxforge, to write skeletons too")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in MODELS]
    if unknown:
        parser.error(f"unknown model {unknown[0]!r}; there are {', '.join(MODELS)}")
    for folder in ("", "modules", *(["zoo"] if options.skeletons else [])):
        (options.out / folder).mkdir(parents=True, exist_ok=True)
    for name in options.names or MODELS:
        given = MODELS[name](options.weights == "trained")
        given.module.eval()
        (options.out / "modules" / f"{name}.json").write_text(json.dumps(table(given.module), indent=0))
        for exporter in options.exporters:
            if exporter == "torchscript" and name in ONLY_DYNAMO:
                continue
            path = options.out / f"{name}.{exporter}.onnx"
            export(given, exporter, path)
            print(f"{path}: {len(onnx.load(path, load_external_data=False).graph.node)} nodes", flush=True)
            if options.skeletons:
                skeleton(options.skeletons, path, options.out / "zoo")
    return 0


if __name__ == "__main__":
    sys.exit(main())
