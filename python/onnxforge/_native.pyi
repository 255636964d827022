from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any, Union

__version__: str
MEMORY: str

class Failed(Exception):
    args: tuple[str, str, Union[str, None], Union[str, None]]

def call(
    words: Sequence[str],
    given: Sequence[tuple[str, bytes]],
    program: Sequence[str],
    listen: Callable[..., Any],
) -> tuple[bool, str, str, list[tuple[PathLike[str], bytes]]]: ...
def main(words: Sequence[str], program: Sequence[str]) -> int: ...
def prefer_runtime(package: str) -> None: ...
