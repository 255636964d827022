"""Trained models that packages on PyPI ship, with inputs for them.

    python tests/python/wheels.py DIR      # downloads and unpacks them
"""

import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np

PACKAGES = ["magika==1.0.3", "nudenet==3.4.2", "rapidocr-onnxruntime==1.4.4", "silero-vad==6.2.3"]


def normal(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def integers(limit, *shape):
    return np.random.default_rng(0).integers(0, limit, shape).astype(np.int32)


RATE = np.array(16000, np.int64)
INPUTS = {
    "magika/models/standard_v3_3/model.onnx": lambda: {"bytes": integers(257, 2, 2048)},
    "nudenet/320n.onnx": lambda: {"images": normal(1, 3, 320, 320)},
    "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx": lambda: {"x": normal(1, 3, 160, 224)},
    "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx": lambda: {"x": normal(2, 3, 48, 160)},
    "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx": lambda: {"x": normal(2, 3, 48, 192)},
    "silero_vad/data/silero_vad.onnx": lambda: {
        "input": normal(2, 576), "state": normal(2, 2, 128), "sr": RATE,
    },
    "silero_vad/data/silero_vad_16k_op15.onnx": lambda: {
        "input": normal(2, 576), "state": normal(2, 2, 128), "sr": RATE,
    },
    "silero_vad/data/silero_vad_16k_sequence.onnx": lambda: {
        "input": normal(5, 576), "h": normal(1, 1, 128), "c": normal(1, 1, 128),
    },
    "silero_vad/data/silero_vad_half.onnx": lambda: {"input": normal(2, 576), "state": normal(2, 2, 128)},
    "silero_vad/data/silero_vad_op18_ifless.onnx": lambda: {
        "input": normal(2, 576), "state": normal(2, 2, 128), "sr": RATE,
    },
    "silero_vad/data/silero_vad_openvino_16k.onnx": lambda: {"input": normal(1, 576), "state": normal(2, 1, 128)},
}  # fmt: skip


def fetch(folder):
    """Downloads the packages once and unpacks their models; the paths by name."""
    folder.mkdir(parents=True, exist_ok=True)
    found = {name: folder / name for name in INPUTS}
    if not all(path.exists() for path in found.values()):
        command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--quiet"]
        subprocess.run([*command, "--no-deps", "--dest", folder, *PACKAGES], check=True)
        for wheel in folder.glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(folder, [name for name in archive.namelist() if name in INPUTS])
            wheel.unlink()
    return found


if __name__ == "__main__":
    for path in fetch(Path(sys.argv[1])).values():
        print(path)
