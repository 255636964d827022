"""Architectures for the table of strategies: those of `models.py`, and families that exporters treat in other ways. Small, with random weights; nothing is
downloaded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from models import MODELS, Case, ConvAct, _numbers, _of_transformers, _tokens
from torch import nn
from torch.nn import functional as F

_TEXT = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
_SHORT = {**_TEXT, "max_position_embeddings": 16}
_CACHED = {**_SHORT, "num_key_value_heads": 1, "use_cache": False, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_VIEW = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24, "image_size": 16, "patch_size": 8}


class Mlp(nn.Module):
    """Linear layers, normalizations of features, activations of several kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.GELU(), nn.Linear(12, 12), nn.LayerNorm(12), nn.ELU())
        self.head = nn.Linear(12, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.log_softmax(self.head(self.layers(x)), -1)


class Inverted(nn.Module):
    """Expansion, a convolution by channel, squeeze and excitation, projection."""

    def __init__(self, given: int, made: int, stride: int) -> None:
        super().__init__()
        wide = 2 * given
        self.expand = ConvAct(given, wide)
        self.depthwise = nn.Sequential(nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False), nn.BatchNorm2d(wide), nn.Hardswish())
        self.squeeze = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(wide, 4, 1), nn.ReLU(), nn.Conv2d(4, wide, 1), nn.Hardsigmoid())
        self.project = nn.Sequential(nn.Conv2d(wide, made, 1, bias=False), nn.BatchNorm2d(made))
        self.is_residual = stride == 1 and given == made

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.depthwise(self.expand(x))
        y = self.project(y * self.squeeze(y))
        return x + y if self.is_residual else y


class Mobile(nn.Module):
    """Inverted residuals."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(ConvAct(3, 8, 3, 2), Inverted(8, 8, 1), Inverted(8, 12, 2), Inverted(12, 12, 1))
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(12, 5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.features(x).mean((2, 3)))


class Dense(nn.Module):
    """Each layer sees all layers before it."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 3, padding=1)
        self.layers = nn.ModuleList(nn.Sequential(nn.BatchNorm2d(6 + 4 * n), nn.ReLU(), nn.Conv2d(6 + 4 * n, 4, 3, padding=1)) for n in range(3))
        self.transition = nn.Sequential(nn.Conv2d(18, 9, 1), nn.AvgPool2d(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = [self.stem(x)]
        for layer in self.layers:
            parts.append(layer(torch.cat(parts, 1)))
        return self.transition(torch.cat(parts, 1))


class UNet(nn.Module):
    """Down, up, and what is handed across."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList([ConvAct(3, 4, 3), ConvAct(4, 8, 3)])
        self.middle = nn.Sequential(ConvAct(8, 16, 3), nn.GroupNorm(2, 16))
        self.up = nn.ModuleList([nn.ConvTranspose2d(16, 8, 2, 2), nn.ConvTranspose2d(8, 4, 2, 2)])
        self.join = nn.ModuleList([ConvAct(16, 8, 3), ConvAct(8, 4, 3)])
        self.pool, self.out = nn.MaxPool2d(2), nn.Conv2d(4, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        across = []
        for down in self.down:
            x = down(x)
            across.append(x)
            x = self.pool(x)
        x = self.middle(x)
        for up, join in zip(self.up, self.join):
            x = join(torch.cat([up(x), across.pop()], 1))
        return self.out(x).sigmoid()


class Vae(nn.Module):
    """An encoder with two heads, and a decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(12, 8), nn.ReLU())
        self.mean, self.spread = nn.Linear(8, 4), nn.Linear(8, 4)
        self.decoder = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 12), nn.Sigmoid())

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = self.encoder(x)
        mean, spread = self.mean(hidden), self.spread(hidden)
        return self.decoder(mean + torch.exp(0.5 * spread)), spread


class Waves(nn.Module):
    """Dilated convolutions with gates."""

    def __init__(self) -> None:
        super().__init__()
        self.start = nn.Conv1d(1, 4, 1)
        self.filters = nn.ModuleList(nn.Conv1d(4, 4, 2, dilation=1 << n) for n in range(3))
        self.gates = nn.ModuleList(nn.Conv1d(4, 4, 2, dilation=1 << n) for n in range(3))
        self.end = nn.Sequential(nn.ReLU(), nn.Conv1d(4, 2, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.start(x)
        for number, (filtered, gate) in enumerate(zip(self.filters, self.gates)):
            before = F.pad(x, (1 << number, 0))
            x = x + torch.tanh(filtered(before)) * torch.sigmoid(gate(before))
        return self.end(x)


class Plain(nn.Module):
    """A recurrent layer without gates."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.rnn, self.head = nn.Embedding(20, 6), nn.RNN(6, 5, 2, batch_first=True), nn.Linear(5, 20)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.rnn(self.embedding(tokens))[0])


class Gated(nn.Module):
    """Two layers of GRU in both directions."""

    def __init__(self) -> None:
        super().__init__()
        self.gru, self.head = nn.GRU(3, 4, 2, batch_first=True, bidirectional=True), nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.gru(x)[0].mean(1))


class Cells(nn.Module):
    """A cell that Python calls step by step, one module with many calls."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.LSTMCell(3, 4), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden, state = torch.zeros(x.shape[0], 4), torch.zeros(x.shape[0], 4)
        for step in range(3):
            hidden, state = self.cell(x[:, step], (hidden, state))
        return self.head(hidden)


class Attention(nn.Module):
    """The attention of PyTorch, of its own values and of others."""

    def __init__(self) -> None:
        super().__init__()
        self.own, self.cross = nn.MultiheadAttention(8, 2, batch_first=True), nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        x = self.norm(x + self.own(x, x, x, need_weights=False)[0])
        return self.head(x + self.cross(x, memory, memory, need_weights=False)[0])


class Translator(nn.Module):
    """The Transformer of PyTorch: encoder and decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(20, 8), nn.Embedding(20, 8)
        self.transformer = nn.Transformer(8, 2, 1, 1, 12, batch_first=True)
        self.head = nn.Linear(8, 20)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return self.head(self.transformer(self.source(source), self.target(target)))


class Experts(nn.Module):
    """A router, and experts of which two count for each token."""

    def __init__(self, size: int = 6, count: int = 4) -> None:
        super().__init__()
        self.router = nn.Linear(size, count)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(size, 8), nn.SiLU(), nn.Linear(8, size)) for _ in range(count))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = torch.softmax(self.router(x), -1).topk(2, -1)
        share = torch.zeros(*x.shape[:-1], len(self.experts)).scatter(-1, chosen, weights)
        return sum(share[..., n, None] * expert(x) for n, expert in enumerate(self.experts))  # type: ignore[return-value]


class Mixture(nn.Module):
    """Two layers of experts."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = Experts(), nn.LayerNorm(6), Experts()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.norm(x + self.first(x)))


class Counting(nn.Module):
    """A loop as long as values say."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.step, self.after = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        from torch._higher_order_ops.while_loop import while_loop

        def more(count: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            return count < 3

        def step(count: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return count + 1, torch.tanh(self.step(x))

        _, x = while_loop(more, step, (torch.tensor(0), self.before(x)))
        return self.after(x)


class Sides(nn.Module):
    """Two towers that share weights, and a distance."""

    def __init__(self) -> None:
        super().__init__()
        self.tower = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 8))

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return F.cosine_similarity(self.tower(left), self.tower(right))


class Neighbours(nn.Module):
    """A layer on a graph: what comes in along edges is summed up by node."""

    def __init__(self) -> None:
        super().__init__()
        self.message, self.update = nn.Linear(4, 4), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        sent = torch.relu(self.message(x))[edges[0]]
        summed = torch.zeros_like(x).index_add(0, edges[1], sent)
        return self.update(torch.cat([x, summed], 1))


@dataclass(frozen=True)
class Architecture:
    """An architecture, and what family it belongs to."""

    family: str
    case: Case


def _ids(*names: str, count: int = 6) -> Callable[[], dict[str, Any]]:
    return lambda: {name: torch.randint(3, 20, (1, count)) for name in names}


def _vision(config: str, model: str, **sizes: Any) -> Case:
    return Case(_of_transformers(config, model, **sizes), _numbers(1, 3, 16, 16, name="pixel_values"))


def _sam() -> nn.Module:
    import transformers

    small = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "mlp_dim": 24}
    config = transformers.SamConfig(
        vision_config={
            **small, "image_size": 64, "patch_size": 16, "output_channels": 8, "window_size": 2, "global_attn_indexes": [1], "mlp_ratio": 1.5, "num_pos_feats": 4,
        },
        prompt_encoder_config={"hidden_size": 8, "image_size": 64, "patch_size": 16, "mask_input_channels": 8},
        mask_decoder_config={"hidden_size": 8, "mlp_dim": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "attention_downsample_rate": 1, "iou_head_hidden_dim": 8},
    )  # fmt: skip
    return transformers.SamModel(config)


def _clip() -> nn.Module:
    import transformers

    view = {**_VIEW, "projection_dim": 8}
    return transformers.CLIPModel(transformers.CLIPConfig(text_config={**_SHORT, "eos_token_id": 2}, vision_config=view, projection_dim=8))


def _mixtral(experts: str) -> Callable[[], nn.Module]:
    """Experts as products of stacked weights, or grouped by token, as transformers computes them unless told otherwise."""

    def made() -> nn.Module:
        import transformers

        config = transformers.MixtralConfig(**{**_CACHED, "num_local_experts": 4, "num_experts_per_tok": 2})
        config._experts_implementation = experts
        return transformers.MixtralModel(config)

    return made


def _decoder(config: str, model: str, **sizes: Any) -> Case:
    return Case(_of_transformers(config, model, **{**_CACHED, **sizes}), _tokens)


_BART = {
    "vocab_size": 40, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24, "max_position_embeddings": 16, "use_cache": False, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2,
}  # fmt: skip
_WHISPER = {**_BART, "num_mel_bins": 8, "max_source_positions": 8, "max_target_positions": 16}
_WAV = {
    **{key: size for key, size in _TEXT.items()}, "conv_dim": [8, 8], "conv_stride": [4, 2], "conv_kernel": [8, 4], "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2, "apply_spec_augment": False,
}  # fmt: skip

_FAMILIES = {
    "cnn": "convolutions", "resnet": "residual", "reused": "shared modules", "dicts": "containers", "aliases": "shared modules", "lstm": "recurrent",
    "functional": "no parameters", "branches": "control flow", "looped": "control flow", "bert": "transformers: encoder", "gpt2": "transformers: decoder",
    "llama": "transformers: decoder", "vit": "transformers: vision", "yolo": "detection",
}  # fmt: skip

ARCHITECTURES: dict[str, Architecture] = {
    **{name: Architecture(_FAMILIES[name], case) for name, case in MODELS.items()},
    "mlp": Architecture("feed forward", Case(Mlp, _numbers(3, 6))),
    "mobile": Architecture("convolutions", Case(Mobile, _numbers(1, 3, 16, 16))),
    "dense": Architecture("convolutions", Case(Dense, _numbers(1, 3, 8, 8))),
    "unet": Architecture("U-Net", Case(UNet, _numbers(1, 3, 16, 16))),
    "vae": Architecture("feed forward", Case(Vae, _numbers(2, 12))),
    "waves": Architecture("convolutions in time", Case(Waves, _numbers(1, 1, 12))),
    "rnn": Architecture("recurrent", Case(Plain, _ids("tokens", count=5))),
    "gru": Architecture("recurrent", Case(Gated, _numbers(2, 5, 3))),
    "cells": Architecture("recurrent", Case(Cells, _numbers(2, 3, 3))),
    "attention": Architecture("attention", Case(Attention, lambda: {"x": torch.randn(2, 4, 8), "memory": torch.randn(2, 5, 8)})),
    "translator": Architecture("attention", Case(Translator, _ids("source", "target"))),
    "mixture": Architecture("mixture of experts", Case(Mixture, _numbers(2, 3, 6))),
    "while": Architecture("control flow", Case(Counting, _numbers(2, 4))),
    "siamese": Architecture("shared modules", Case(Sides, lambda: {"left": torch.randn(1, 1, 8, 8), "right": torch.randn(1, 1, 8, 8)})),
    "graph": Architecture("graph network", Case(Neighbours, lambda: {"x": torch.randn(5, 4), "edges": torch.tensor([[0, 1, 2, 3, 4, 0], [1, 2, 3, 4, 0, 3]])})),
    "sam": Architecture("transformers: SAM", Case(_sam, lambda: {"pixel_values": torch.randn(1, 3, 64, 64), "input_points": torch.rand(1, 1, 2, 2) * 60})),
    "clip": Architecture("transformers: two towers", Case(_clip, lambda: {**_ids("input_ids")(), "pixel_values": torch.randn(1, 3, 16, 16)})),
    "distilbert": Architecture(
        "transformers: encoder", Case(_of_transformers("DistilBertConfig", "DistilBertModel", vocab_size=40, dim=16, n_layers=2, n_heads=2, hidden_dim=24, max_position_embeddings=16), _tokens)
    ),
    "roberta": Architecture("transformers: encoder", Case(_of_transformers("RobertaConfig", "RobertaModel", **_SHORT, pad_token_id=1), _tokens)),
    "albert": Architecture("transformers: shared layers", Case(_of_transformers("AlbertConfig", "AlbertModel", **_SHORT, embedding_size=8), _tokens)),
    "electra": Architecture("transformers: encoder", Case(_of_transformers("ElectraConfig", "ElectraModel", **_SHORT, embedding_size=8), _tokens)),
    "deberta": Architecture(
        "transformers: encoder",
        Case(_of_transformers("DebertaV2Config", "DebertaV2Model", **_SHORT, relative_attention=True, pos_att_type=["c2p", "p2c"], max_relative_positions=8), _tokens),
    ),
    "t5": Architecture(
        "transformers: encoder", Case(_of_transformers("T5Config", "T5EncoderModel", vocab_size=40, d_model=16, d_kv=8, d_ff=24, num_layers=2, num_heads=2, use_cache=False), _tokens)
    ),
    "bart": Architecture("transformers: both", Case(_of_transformers("BartConfig", "BartModel", **_BART), _ids("input_ids", "decoder_input_ids"))),
    "mixtral": Architecture("transformers: mixture of experts", Case(_mixtral("batched_mm"), _tokens)),
    "mixtral_grouped": Architecture("transformers: mixture of experts", Case(_mixtral("grouped_mm"), _tokens)),
    "mistral": Architecture("transformers: decoder", _decoder("MistralConfig", "MistralModel", sliding_window=4)),
    "qwen2": Architecture("transformers: decoder", _decoder("Qwen2Config", "Qwen2Model")),
    "gemma": Architecture("transformers: decoder", _decoder("GemmaConfig", "GemmaModel", head_dim=8)),
    "phi": Architecture("transformers: decoder", _decoder("PhiConfig", "PhiModel", num_key_value_heads=2)),
    "opt": Architecture(
        "transformers: decoder",
        Case(_of_transformers("OPTConfig", "OPTModel", **{key: size for key, size in _SHORT.items() if key != "intermediate_size"}, ffn_dim=24, word_embed_proj_dim=16, use_cache=False), _tokens),
    ),
    "mamba": Architecture(
        "transformers: state space", Case(_of_transformers("MambaConfig", "MambaModel", vocab_size=40, hidden_size=16, num_hidden_layers=2, state_size=4, use_cache=False), _ids("input_ids"))
    ),
    "whisper": Architecture(
        "transformers: audio", Case(_of_transformers("WhisperConfig", "WhisperModel", **_WHISPER), lambda: {"input_features": torch.randn(1, 8, 16), **_ids("decoder_input_ids")()})
    ),
    "wav2vec2": Architecture("transformers: audio", Case(_of_transformers("Wav2Vec2Config", "Wav2Vec2Model", **_WAV), _numbers(1, 200, name="input_values"))),
    "swin": Architecture(
        "transformers: vision", _vision("SwinConfig", "SwinModel", image_size=16, patch_size=2, embed_dim=8, depths=[2, 1], num_heads=[2, 2], window_size=4, mlp_ratio=1.5)
    ),
    "convnext": Architecture("transformers: convolutions", _vision("ConvNextConfig", "ConvNextModel", hidden_sizes=[8, 12], depths=[1, 2], num_stages=2)),
    "segformer": Architecture(
        "transformers: vision",
        _vision(
            "SegformerConfig", "SegformerForSemanticSegmentation", num_encoder_blocks=2, depths=[1, 1], sr_ratios=[2, 1], hidden_sizes=[8, 16], patch_sizes=[3, 3], strides=[2, 2],
            num_attention_heads=[1, 2], mlp_ratios=[2, 2], decoder_hidden_size=8,
        ),
    ),
    "dinov2": Architecture("transformers: vision", _vision("Dinov2Config", "Dinov2Model", **{key: size for key, size in _VIEW.items() if key != "intermediate_size"})),
    "mobilevit": Architecture(
        "transformers: vision",
        Case(
            _of_transformers("MobileViTConfig", "MobileViTModel", image_size=64, hidden_sizes=[8, 12, 16], neck_hidden_sizes=[4, 4, 8, 8, 8, 8, 16], num_attention_heads=2),
            _numbers(1, 3, 64, 64, name="pixel_values"),
        ),
    ),
}  # fmt: skip
