"""Models are given back as they came."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


@contextlib.contextmanager
def preserved(model: Any) -> Iterator[None]:
    """Restores, however the block ends, the training flag and hooks of every module, and an own `forward` of the model.

    PyTorch gives all modules the flag of the model when it puts them back, and leaves hooks behind after
    some exports.
    """
    import torch

    if not isinstance(model, torch.nn.Module):
        yield
        return
    modules = list(model.modules())
    flags = [module.training for module in modules]
    hooks = [{name: dict(vars(module)[name]) for name in _HOOKS if name in vars(module)} for module in modules]
    forward = {key: value for key, value in vars(model).items() if key == "forward"}
    try:
        yield
    finally:
        for module, training, known in zip(modules, flags, hooks):
            if module.training != training:
                module.training = training
            for name, entries in known.items():
                current = vars(module)[name]
                if current.keys() != entries.keys():
                    current.clear()
                    current.update(entries)
        if vars(model).get("forward") is not forward.get("forward"):
            vars(model).pop("forward", None)
            vars(model).update(forward)
