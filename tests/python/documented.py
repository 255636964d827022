"""What everything public of the package must have: a docstring in Google's style with a summary, every parameter, and an example that runs.

The tests of the package and those with PyTorch use this, each for its part.
"""

import doctest
import inspect
import re

import pytest


def public(module):
    """Everything public of a module: functions, classes and their methods, by name."""
    found = {}
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.isclass(value):
            found[name] = value
            for method, each in vars(value).items():
                if not method.startswith("_") and (callable(each) or isinstance(each, (property, classmethod, staticmethod))):
                    found[f"{name}.{method}"] = each
        elif inspect.isfunction(value):
            found[name] = value
    return found


def unwrapped(value):
    return value.fget if isinstance(value, property) else getattr(value, "__func__", value)


def sections(text):
    """The parts of a docstring by their headings; the summary has none."""
    parts, heading = {"": []}, ""
    for line in text.splitlines():
        found = re.fullmatch(r"(Args|Returns|Raises|Example|Attributes|Yields):", line)
        if found:
            heading = found[1]
            parts[heading] = []
        else:
            parts[heading].append(line)
    return {heading: "\n".join(lines) for heading, lines in parts.items()}


def problems(name, value):
    """What a function, class or property lacks."""
    text = inspect.getdoc(unwrapped(value)) or ""
    parts = sections(text)
    summary = parts[""].strip().split("\n\n")[0]
    if not summary:
        return [f"{name}: no docstring"]
    lacks = []
    if ":param" in text or "``" in text:
        lacks.append(f"{name}: another style than Google's")
    if not summary.rstrip().endswith((".", ":", "?")):
        lacks.append(f"{name}: the summary is no sentence")
    if isinstance(value, property) or inspect.isclass(value):
        return lacks
    parameters = [each for each in inspect.signature(unwrapped(value)).parameters if each not in ("self", "cls")]
    listed = re.findall(r"^ {4}(\w+): \S", parts.get("Args", ""), re.M)
    if listed != parameters:
        lacks.append(f"{name}: parameters {parameters}, documented {listed}")
    lacks += [f"{name}: no {part}" for part in ("Returns", "Example") if part not in parts and not returns_nothing(value, part)]
    if ">>>" not in parts.get("Example", ""):
        lacks.append(f"{name}: the example cannot be run")
    return lacks


def returns_nothing(value, part):
    return part == "Returns" and unwrapped(value).__annotations__.get("return", "") in (None, "None")


def run_example(name, value, names):
    """Runs the example of a docstring; fails where it gives something else."""
    text = inspect.getdoc(unwrapped(value)) or ""
    test = doctest.DocTestParser().get_doctest(text, dict(names), name, None, 0)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE, verbose=False)
    said = []
    runner.run(test, out=said.append)
    if runner.failures:
        pytest.fail("".join(said), pytrace=False)
