"""Builds the package for `pip install .`: maturin, with what the compiler makes in a folder that goes afterwards.

Without this a build leaves a gigabyte in the source tree. CARGO_TARGET_DIR, where that is set, is used and kept.
"""

import contextlib
import os
import tempfile

import maturin
from maturin import (  # noqa: F401 - hooks that are handed on as they are
    build_editable,
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)


@contextlib.contextmanager
def _target_folder():
    if os.environ.get("CARGO_TARGET_DIR"):
        yield
        return
    with tempfile.TemporaryDirectory(prefix="onnxforge-build-") as folder:
        os.environ["CARGO_TARGET_DIR"] = folder
        try:
            yield
        finally:
            del os.environ["CARGO_TARGET_DIR"]


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """The hook of PEP 517."""
    with _target_folder():
        return maturin.build_wheel(wheel_directory, config_settings, metadata_directory)
