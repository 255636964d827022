"""Models of the library transformers, from this machine alone, and inputs for any of them.

Nothing here knows a model: classes come from configurations, and inputs from the names that the library gives to them
in all models, with sizes from the configuration.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import Error, UsageError
from ._arguments import Call
from ._errors import need, reason
from ._samples import tensor_of

if TYPE_CHECKING:
    import torch

_CONFIG = "config.json"
_WEIGHTS = ("*.safetensors", "pytorch_model*.bin", "*.index.json")
_TOKENS, _IMAGE, _SOUND, _FRAMES = 16, 224, 16000, 3000


def model_of(place: str, class_name: str | None = None) -> torch.nn.Module:
    """The model in a folder or of a configuration, in evaluation mode. Nothing is asked of any network.

    Its class is `class_name`, or the first that the configuration names, or the one that `AutoModel` has for it.
    """
    # Read when transformers is imported.
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    transformers = need("transformers")
    folder = Path(place) if Path(place).is_dir() else None
    config = _config(transformers, place)
    # What a model keeps from call to call is no tensor, and no output of a file.
    if getattr(config, "use_cache", False):
        config.use_cache = False
    kind = _class(transformers, config, class_name, place)
    try:
        if folder is not None and any(next(folder.glob(pattern), None) for pattern in _WEIGHTS):
            model: torch.nn.Module = kind.from_pretrained(str(folder), config=config, local_files_only=True)
        else:
            model = kind.from_config(config) if hasattr(kind, "from_config") else kind(config)
    except Exception as error:
        raise Error(f"hf:{place}: {kind.__name__} cannot be made: {reason(error)}") from error
    return model.eval()


def sample_of(model: torch.nn.Module) -> Call:
    """Inputs for a model, as far as their names and its configuration tell; others have to be given."""
    takes = inspect.signature(model.forward).parameters
    made = {name: value for name, value in _inputs(model) if name in takes}
    return Call((), {name: made[name] for name in takes if name in made})


def _inputs(model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Inputs by name, with more of them than a model may take."""
    import torch

    config, main = model.config, model.main_input_name
    images = main == "pixel_values" or hasattr(config, "vision_config")
    words = main == "input_ids"
    if words:
        length = min(_TOKENS, int(_size(config, "max_position_embeddings") or _TOKENS))
        yield "input_ids", _words(config, length)
        yield "attention_mask", torch.ones(1, length, dtype=torch.int64)
    if images:
        height, width = _image(config)
        yield "pixel_values", tensor_of(torch.float32, (1, int(_size(config, "num_channels") or 3), height, width))
    if main == "input_values":
        yield "input_values", tensor_of(torch.float32, (1, _SOUND))
    if main == "input_features":
        frames = 2 * int(_size(config, "max_source_positions") or _FRAMES // 2)
        yield "input_features", tensor_of(torch.float32, (1, int(_size(config, "num_mel_bins") or 80), frames))
    if getattr(config, "is_encoder_decoder", False):
        yield "decoder_input_ids", _words(config, _TOKENS)
    if main not in ("input_ids", "pixel_values", "input_values", "input_features"):
        given = model.dummy_inputs
        if main in given:
            yield main, given[main]


def _words(config: Any, length: int) -> torch.Tensor:
    """Numbers of words, of which the first few mean nothing in many vocabularies."""
    import torch

    size = int(_size(config, "vocab_size") or 2)
    return torch.randint(min(3, size - 1), size, (1, length))


def _image(config: Any) -> tuple[int, int]:
    """Height and width."""
    size = _size(config, "image_size") or _IMAGE
    if isinstance(size, dict):
        size = [size.get("height", _IMAGE), size.get("width", _IMAGE)]
    height, width = size if isinstance(size, (list, tuple)) else (size, size)
    return int(height), int(width)


def _size(config: Any, name: str) -> Any:
    """A size from a configuration, or from one that is part of it."""
    found = getattr(config, name, None)
    if found is None:
        parts = (getattr(config, part, None) for part in getattr(config, "sub_configs", {}))
        found = next(
            (value for part in parts if part is not None for value in [_size(part, name)] if value is not None), None
        )
    return found


def _config(transformers: Any, place: str) -> Any:
    """The configuration in a folder, in a file, or by the type of the model."""
    path = Path(place)
    if path.is_dir() and not (path / _CONFIG).is_file():
        raise UsageError(f"hf:{place}: the folder has no {_CONFIG}; hint: save a model into it with save_pretrained")
    if path.exists():
        try:
            return transformers.AutoConfig.from_pretrained(place, local_files_only=True)
        except Exception as error:
            raise Error(f"hf:{place}: no configuration of a model: {reason(error)}") from error
    try:
        return transformers.AutoConfig.for_model(place)
    except ValueError:
        raise UsageError(
            f"hf:{place}: neither a folder or file here, nor a type of model that transformers "
            f"{transformers.__version__} knows; hint: download the model first and give its folder"
        ) from None


def _class(transformers: Any, config: Any, class_name: str | None, place: str) -> Any:
    """The class of the model."""
    named = class_name or next(iter(getattr(config, "architectures", None) or []), None)
    if named is None:
        return transformers.AutoModel
    found = getattr(transformers, named, None)
    if found is None:
        raise UsageError(
            f"hf:{place}: transformers {transformers.__version__} has no class {named!r}; "
            "hint: --class with another one, such as AutoModel"
        )
    return found
