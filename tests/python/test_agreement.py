"""`onnxforge check` beside `onnx.checker` and ONNX Runtime; `agreement.py` compares more models."""

import agreement
import corpus


def test_damaged_models(forge, tmp_path):
    cases = agreement.damaged(agreement.small_models(), tmp_path, 300, seed=3)
    lax, strict, agreed = agreement.disagreements(forge.binary, cases)
    assert not lax, "\n".join(lax)
    assert not strict, "\n".join(strict)
    assert min(agreed.values()) > 50, f"the damage is too harmless or too bad to compare anything: {agreed}"


def test_models_as_they_are(forge):
    paths = [*corpus.repository_models(), *corpus.wheel_models()]
    lax, strict, _ = agreement.disagreements(forge.binary, [(path, "as it is") for path in paths])
    assert not lax, "\n".join(lax)
    assert not strict, "\n".join(strict)
