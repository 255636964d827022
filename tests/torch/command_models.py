"""What the command's tests name as sources."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor, scale: torch.Tensor | None = None, negate: bool = False) -> torch.Tensor:
        y = self.second(torch.relu(self.first(x)))
        y = y if scale is None else y * scale
        return -y if negate else y


class Liar(Net):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2.0 if torch.onnx.is_in_onnx_export() else x * 2.1


net = Net()
nothing = 3


def with_args() -> tuple[nn.Module, tuple[Any, ...]]:
    return Net(), (torch.randn(2, 4),)


def with_kwargs() -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
    return Net(), (torch.randn(2, 4),), {"scale": torch.tensor(2.0)}


def broken() -> nn.Module:
    raise RuntimeError("the weights are missing")
