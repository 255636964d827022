"""Small models with random weights: what exporters treat differently, and four architectures of transformers.

Each entry of MODELS makes a model in evaluation mode and the keyword arguments that it is exported with. Nothing is
downloaded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

SEED = 7


class Residual(nn.Module):
    """Convolutions and normalizations, with one activation for two places."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels)
        self.conv2, self.bn2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels)
        self.relu = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(y)) + x)


class Cnn(nn.Module):
    """A Sequential, a ModuleList, and normalizations that exporters fold into convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
        self.blocks = nn.ModuleList(Residual(4) for _ in range(3))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.dropout = nn.Dropout(0.5)
        self.head = nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(self.dropout(self.pool(x).flatten(1)))


class BasicBlock(nn.Module):
    """The block of ResNet-18."""

    def __init__(self, given: int, made: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(given, made, 3, stride, 1, bias=False), nn.BatchNorm2d(made)
        self.relu = nn.ReLU(inplace=True)
        self.conv2, self.bn2 = nn.Conv2d(made, made, 3, 1, 1, bias=False), nn.BatchNorm2d(made)
        self.downsample = None
        if stride != 1 or given != made:
            self.downsample = nn.Sequential(nn.Conv2d(given, made, 1, stride, bias=False), nn.BatchNorm2d(made))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    """ResNet-18, narrow."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width)
        self.relu, self.maxpool = nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
        given = width
        for number, stride in enumerate((1, 2, 2, 2)):
            made = width << number
            setattr(
                self, f"layer{number + 1}", nn.Sequential(BasicBlock(given, made, stride), BasicBlock(made, made, 1))
            )
            given = made
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d((1, 1)), nn.Linear(given, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


class Reused(nn.Module):
    """A module that is called twice, beside another one that has the name which the second call gets in the file."""

    def __init__(self) -> None:
        super().__init__()
        self.proj, self.proj_1, self.act = nn.Linear(6, 6), nn.Linear(6, 6), nn.Tanh()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.act(self.proj(x))
        x = self.act(self.proj(x))
        return self.act(self.proj_1(x) + x)


class Scaled(nn.Module):
    """A Linear of its own, and something functional."""

    def __init__(self, size: int, factor: float = 2.0) -> None:
        super().__init__()
        self.l, self.factor = nn.Linear(size, size), factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.l(x)) * self.factor


class Dicts(nn.Module):
    """Dictionaries with the same keys, and keys that are no names."""

    def __init__(self) -> None:
        super().__init__()
        self.d1 = nn.ModuleDict({"a": Scaled(6), "x/y": Scaled(6, 3.0)})
        self.d2 = nn.ModuleDict({"a": Scaled(6, 4.0), "it's": Scaled(6, 5.0)})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.d1["a"](x) + self.d1["x/y"](x)
        return self.d2["it's"](self.d2["a"](x))


class Aliases(nn.Module):
    """One module under two names, and one that two others hold."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_a = nn.LayerNorm(6)
        self.first, self.second = nn.Sequential(nn.Linear(6, 6), nn.Tanh()), nn.Linear(6, 6)
        self.norm_b = self.norm_a
        self.again = nn.ModuleList([self.second, nn.Linear(6, 4)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm_b(self.first(self.norm_a(x)))
        for part in self.again:
            x = torch.sigmoid(part(x))
        return x


class Recurrent(nn.Module):
    """An LSTM and a GRU."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 4, batch_first=True, bidirectional=True)
        self.gru, self.head = nn.GRU(8, 4, batch_first=True), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, _ = self.lstm(x)
        y, last = self.gru(y)
        return self.head(y[:, -1]) + self.head(last[0] * 0.5)


class Attend(nn.Module):
    """No parameters, no modules."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.softmax(a @ b.transpose(-1, -2), -1) @ b


class Functional(nn.Module):
    """Modules without parameters, and ones that compute nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.attend, self.drop, self.same = Attend(), nn.Dropout(0.1), nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.same(self.drop(self.attend(x, torch.sin(x)))) * 1.5


class Branches(nn.Module):
    """Modules in the branches of a condition on values."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.yes, self.no, self.after = nn.Linear(4, 4), Scaled(4), nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.before(x)
        x = torch.cond(x.sum() > 0, lambda x: self.yes(x), lambda x: self.no(x) - 1, (x,))
        return self.after(x)


@torch.jit.script
def turned(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """A loop that stays one in a file of TorchScript."""
    for _ in range(x.size(0)):
        x = torch.tanh(torch.matmul(x, weight))
    return x


class Turns(nn.Module):
    """As many turns as there are rows."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return turned(x, self.weight)


class Looped(nn.Module):
    """A module that is a loop; only TorchScript can write it down."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.loop, self.after = nn.Linear(4, 4), Turns(), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.after(torch.relu(self.loop(self.before(x))))


class ConvAct(nn.Module):
    """Convolution, normalization, activation: the block that detectors are made of."""

    def __init__(self, given: int, made: int, size: int = 1, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(given, made, size, stride, size // 2, bias=False)
        self.bn, self.act = nn.BatchNorm2d(made), nn.SiLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.bn(self.conv(x)))


class Split(nn.Module):
    """Halves that are joined again, with bottlenecks in a list."""

    def __init__(self, channels: int, count: int = 2) -> None:
        super().__init__()
        half = channels // 2
        self.cv1, self.cv2 = ConvAct(channels, channels), ConvAct(half * (2 + count), channels)
        self.m = nn.ModuleList(nn.Sequential(ConvAct(half, half, 3), ConvAct(half, half, 3)) for _ in range(count))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = list(self.cv1(x).chunk(2, 1))
        for part in self.m:
            parts.append(parts[-1] + part(parts[-1]))
        return self.cv2(torch.cat(parts, 1))


class Detector(nn.Module):
    """Two scales, upsampling, concatenation, and heads that give boxes and classes."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        self.backbone = nn.Sequential(ConvAct(3, 8, 3, 2), ConvAct(8, 8, 3, 2), Split(8))
        self.down, self.up = ConvAct(8, 16, 3, 2), nn.Upsample(scale_factor=2.0, mode="nearest")
        self.neck = Split(24)
        self.pool = nn.MaxPool2d(5, 1, 2)
        self.box = nn.ModuleList([nn.Conv2d(24, 4, 1), nn.Conv2d(16, 4, 1)])
        self.cls = nn.ModuleList([nn.Conv2d(24, classes, 1), nn.Conv2d(16, classes, 1)])
        self.register_buffer("scale", torch.rand(4) + 0.5)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        fine = self.backbone(x)
        coarse = self.pool(self.down(fine))
        features = [self.neck(torch.cat([fine, self.up(coarse)], 1)), coarse]
        boxes = torch.cat([head(part).flatten(2) for head, part in zip(self.box, features)], 2)
        scores = torch.cat([head(part).flatten(2) for head, part in zip(self.cls, features)], 2)
        return F.softplus(boxes) * self.scale[:, None], scores.sigmoid()


def _of_transformers(config: str, model: str, **sizes: Any) -> Callable[[], nn.Module]:
    """A model of transformers with random weights."""

    def made() -> nn.Module:
        import transformers

        return getattr(transformers, model)(getattr(transformers, config)(**sizes))

    return made


def _tokens(count: int = 6, vocabulary: int = 40) -> dict[str, Any]:
    return {
        "input_ids": torch.randint(3, vocabulary, (1, count)),
        "attention_mask": torch.ones(1, count, dtype=torch.int64),
    }


def _numbers(*shape: int, name: str = "x") -> Callable[[], dict[str, Any]]:
    return lambda: {name: torch.randn(*shape)}


@dataclass(frozen=True)
class Case:
    """A model, what it is called with, and the exporters that cannot write it, each with words of the reason."""

    make: Callable[[], nn.Module]
    inputs: Callable[[], dict[str, Any]]
    fails: dict[str, str] = field(default_factory=dict)

    def build(self) -> tuple[nn.Module, dict[str, Any]]:
        """The same model and inputs each time, with normalizations that do something."""
        torch.manual_seed(SEED)
        model = self.make().eval()
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                for tensor in (module.weight, module.bias, module.running_mean):
                    tensor.data = torch.randn_like(tensor)
                module.running_var.data = torch.rand_like(module.running_var) + 0.5
        # Parameters that all hold the same numbers would make different modules compute the same.
        for parameter in model.parameters():
            if parameter.numel() > 1 and bool((parameter == parameter.flatten()[0]).all()):
                parameter.data = parameter.data + torch.randn_like(parameter) * 0.1
        return model, self.inputs()


_TEXT = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}

MODELS = {
    "cnn": Case(Cnn, _numbers(1, 3, 8, 8)),
    "resnet": Case(ResNet, _numbers(1, 3, 64, 64)),
    "reused": Case(Reused, _numbers(2, 6)),
    "dicts": Case(Dicts, _numbers(2, 6)),
    "aliases": Case(Aliases, _numbers(2, 6)),
    "lstm": Case(Recurrent, _numbers(1, 5, 3)),
    "functional": Case(Functional, _numbers(2, 3, 4)),
    "branches": Case(Branches, _numbers(2, 4), {"torchscript": "torch.jit.trace a dynamo-optimized function"}),
    "looped": Case(Looped, _numbers(3, 4)),
    "bert": Case(_of_transformers("BertConfig", "BertModel", **_TEXT, max_position_embeddings=16), _tokens),
    "gpt2": Case(
        _of_transformers(
            "GPT2Config",
            "GPT2LMHeadModel",
            bos_token_id=0,
            eos_token_id=0,
            vocab_size=40,
            n_embd=16,
            n_layer=2,
            n_head=2,
            n_positions=16,
            use_cache=False,
        ),
        _tokens,
    ),
    "llama": Case(
        _of_transformers(
            "LlamaConfig",
            "LlamaForCausalLM",
            **_TEXT,
            num_key_value_heads=1,
            max_position_embeddings=16,
            use_cache=False,
        ),
        _tokens,
    ),
    "vit": Case(
        _of_transformers(
            "ViTConfig",
            "ViTModel",
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=24,
            image_size=16,
            patch_size=8,
        ),
        _numbers(1, 3, 16, 16, name="pixel_values"),
    ),
    "yolo": Case(Detector, _numbers(1, 3, 32, 32)),
}
