"""Everything public is documented: a summary, every parameter, and an example that runs. The reference is made of that."""

import inspect
import shutil
import subprocess
import sys
import typing

import onnxforge
import onnxforge.compat
import onnxforge.corpus
import pytest
from onnxforge import errors, hierarchy, results
from onnxforge._commands import optimization, tags
from onnxforge.compat import _onnxslim

import documented
from drop_ins import EXAMPLES, ROOT

PUBLIC = {
    f"{module.__name__}.{name}": value
    for module in (onnxforge, onnxforge.compat, onnxforge.corpus, hierarchy, results, errors)
    for name, value in documented.public(module).items()
}
WITH_EXAMPLES = {name: value for name, value in PUBLIC.items() if ">>>" in (inspect.getdoc(documented.unwrapped(value)) or "")}


def test_everything_public_has_its_documentation():
    assert len(PUBLIC) > 100
    assert [lack for name, value in PUBLIC.items() for lack in documented.problems(name, value)] == []


@pytest.fixture
def beside_models(tmp_path, monkeypatch):
    for path in EXAMPLES.values():
        shutil.copy(path, tmp_path)
    monkeypatch.chdir(tmp_path)


# One test for all of them: a name is listed in several modules.
@pytest.mark.parametrize("name", [name for name, value in WITH_EXAMPLES.items() if list(WITH_EXAMPLES.values()).index(value) == list(WITH_EXAMPLES).index(name)])
def test_examples_run(name, beside_models):
    documented.run_example(name, WITH_EXAMPLES[name], {"onnxforge": onnxforge})


def test_the_check_of_documentation_can_fail():
    def lacking(model, output):
        """Does something.

        Args:
            model: A model.

        Example:
            >>> 1 + 1
            3
        """
        return model

    assert documented.problems("lacking", lacking) == [
        "lacking: parameters ['model', 'output'], documented ['model']", "lacking: no Returns",
    ]  # fmt: skip
    with pytest.raises(pytest.fail.Exception):
        documented.run_example("lacking", lacking, {})


@pytest.mark.parametrize(
    "function, keywords",
    [
        (getattr(group, name), getattr(group, f"{name.capitalize()}Options"))
        for group, names in ((optimization, ("optimize", "upgrade", "float16")), (tags, ("tag", "restore", "strip")))
        for name in names
    ]
    + [(_onnxslim.slim, _onnxslim.Options)],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_keywords_of_overloads_are_those_of_the_function(function, keywords):
    parameters = inspect.signature(function).parameters.values()
    taken = {each.name: each for each in parameters if each.kind is each.KEYWORD_ONLY and (each.default is not each.empty)}
    assert list(taken) == list(keywords.__annotations__)
    for name, hint in keywords.__annotations__.items():
        hint = hint.__forward_arg__ if isinstance(hint, typing.ForwardRef) else hint
        assert hint == taken[name].annotation, name


def test_the_reference_is_up_to_date():
    done = subprocess.run([sys.executable, ROOT / "scripts/make_python_reference.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
