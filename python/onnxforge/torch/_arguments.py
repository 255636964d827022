"""What a model is called with, as PyTorch's exporters understand it, and the tensors in that."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True)
class Call:
    """One call, `model(*args, **kwargs)`."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    @classmethod
    def of(cls, args: Any, kwargs: Mapping[str, Any] | None) -> Call:
        """The call that `torch.onnx.export` means: a dictionary at the end of `args` holds keyword arguments."""
        listed = tuple(args) if isinstance(args, (tuple, list)) else (args,)
        if not kwargs and listed and isinstance(listed[-1], dict):
            return cls(listed[:-1], dict(listed[-1]))
        return cls(listed, dict(kwargs or {}))

    def named(self, forward: Any, as_given: bool = False) -> dict[str, Any]:
        """All arguments by name: those by position, then those by name in the order of `forward`'s parameters, and last
        what it takes under any name. That is how TorchScript orders inputs; torch.export leaves them `as_given`.

        Further positional arguments have the name of the parameter that takes them, with their number.
        """
        parameters = parameters_of(forward)
        names = [parameter.name for parameter in parameters if parameter.kind in POSITIONAL]
        rest = next((found.name for found in parameters if found.kind is inspect.Parameter.VAR_POSITIONAL), "arg")
        extra = (f"{rest}_{number}" for number in range(len(self.args)))
        given = dict(zip([*names[: len(self.args)], *extra], self.args))
        declared = {found.name: self.kwargs[found.name] for found in parameters if found.name in self.kwargs}
        return {**given, **({} if as_given else declared), **self.kwargs}

    def cloned(self) -> Call:
        """The same with tensors of its own, for models that write into what they are given."""
        from torch.utils import _pytree

        args, kwargs = _pytree.tree_map(_copy, (self.args, dict(self.kwargs)))
        return Call(args, kwargs)


def parameters_of(forward: Any) -> Sequence[inspect.Parameter]:
    """The parameters that `forward` says to have; none where Python cannot tell."""
    try:
        return list(inspect.signature(forward).parameters.values())
    except (TypeError, ValueError):
        return []


def forward_of(model: Any) -> Any:
    """What a call of the model ends in; for a function that is itself."""
    return getattr(model, "forward", model)


def tensors(value: Any) -> list[torch.Tensor]:
    """The tensors in a value, in the order in which PyTorch flattens it."""
    import torch
    from torch.utils import _pytree

    return [leaf for leaf in _pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def named_tensors(value: Any, name: str) -> list[tuple[str, torch.Tensor]]:
    """The tensors in an argument by name: that of the argument, and where in it a tensor stands."""
    import torch

    return [("_".join([name, *steps]), leaf) for steps, leaf in _leaves(value) if isinstance(leaf, torch.Tensor)]


def _leaves(value: Any) -> Iterator[tuple[list[str], Any]]:
    """The leaves of a value in the order in which PyTorch flattens it, each with the steps that lead to it."""
    from torch.utils import _pytree

    if hasattr(_pytree, "tree_flatten_with_path"):
        leaves, _ = _pytree.tree_flatten_with_path(value)
        yield from (([_step(step) for step in path], leaf) for path, leaf in leaves)
        return
    # Older versions flatten without telling the steps.
    known = _pytree.SUPPORTED_NODES.get(_pytree._get_node_type(value))
    if known is None:
        yield [], value
        return
    parts, _ = known.flatten_fn(value)
    steps = value if isinstance(value, Mapping) else getattr(value, "_fields", range(len(parts)))
    for step, part in zip(steps, parts):
        yield from (([str(step), *further], leaf) for further, leaf in _leaves(part))


def _step(step: Any) -> str:
    """One step into a value, as part of a name."""
    for attribute in ("idx", "key", "name"):
        if hasattr(step, attribute):
            return str(getattr(step, attribute))
    return str(step)


def _copy(leaf: Any) -> Any:
    import torch

    return leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf
