#!/usr/bin/env python3
"""Write the table of ONNX operator signatures from the schemas of the installed onnx package.

    python scripts/make_signatures.py [--output FILE]     ("-" prints the table)

One line per (domain, operator, since version); the header of the table explains its grammar and
crates/onnxforge-ops/src/signature.rs reads it. Everything in it is taken from the schemas; the
only choices made here are the names of the type families and the list STATED_DETERMINISTIC.
"""

import argparse
import re
import struct
import sys
from pathlib import Path

import onnx
import onnx.defs
import onnx.helper

TABLE = Path(__file__).resolve().parent.parent / "crates/onnxforge-ops/src/signatures.txt"

HEADER = """\
# ONNX operator signatures. Generated, do not edit.
# Made from onnx {version} by: python scripts/make_signatures.py
#
# @release VERSION ir=N DOMAIN=OPSET ..   what an onnx release carries
# @domain DOMAIN OPSET                    the newest opset of a domain
# @types NAME=TYPE,..                     a family of types, named by the lines below it
# [DOMAIN.]OP SINCE [FLAG ..] | INPUT .. -> OUTPUT .. | ATTRIBUTE .. | VARIABLE=TYPE,.. ..
#   FLAG       deprecated; random: may draw random numbers (Dropout: only when it trains)
#   INPUT      NAME:TYPE    TYPE? optional    TYPE*N variadic, N or more    TYPE~N variadic of mixed types
#              TYPE is a variable of the line or the type itself
#   ATTRIBUTE  NAME:KIND    KIND! required    KIND=VALUE default
#   TYPE       an element type alone is a tensor of it; sparse(..), seq(..), optional(..) and map(KEY,..)
#              hold for each type of the list inside
# No DOMAIN is ai.onnx.
"""

# Families of element types, each written with the ones before it. AllN: every tensor type of IR version N.
FAMILIES = {
    "Float": "float16,float,double",
    "Int": "int8,int16,int32,int64",
    "Uint": "uint8,uint16,uint32,uint64",
    "Num": "Uint,Int,Float",
    "Complex": "complex64,complex128",
    "Float8": "float8e4m3fn,float8e4m3fnuz,float8e5m2,float8e5m2fnuz",
    "All": "Num,Complex,bool,string",
    "All4": "All,bfloat16",
    "All9": "All4,Float8",
    "All10": "All9,uint4,int4",
    "All11": "All10,float4e2m1",
    "All12": "All11,float8e8m0",
    "All13": "All12,uint2,int2",
    "All14": "All13,float6e2m3,float6e3m2",
}

# Operators whose schema leaves determinism unknown (their function body depends on the node) and
# which are defined by a formula without random numbers. Any other unknown counts as random.
STATED_DETERMINISTIC = {"CausalConvWithState", "DepthToSpace", "LinearAttention", "SpaceToDepth"}

# The columns of onnx.helper.VERSION_TABLE after the release and its IR version.
RELEASE_DOMAINS = ("ai.onnx", "ai.onnx.ml", "ai.onnx.training")

ELEMENT_ORDER = {name.lower(): code for name, code in onnx.TensorProto.DataType.items()}
WRAPPER = re.compile(r"(tensor|sparse_tensor|seq|optional)\((.*)\)|map\((\w+), ?(.*)\)")


def expand_families():
    """The element types of each family, the largest family first."""
    families = {}
    for name, members in FAMILIES.items():
        families[name] = set()
        for member in members.split(","):
            families[name] |= families.get(member, {member})
    return sorted(families.items(), key=lambda item: -len(item[1]))


EXPANDED = expand_families()


def element_list(elements):
    """A set of element types, written with the largest families that fit inside it."""
    rest, parts = set(elements), []
    for name, members in EXPANDED:
        if members <= rest:
            parts.append(name)
            rest -= members
    return ",".join(parts + sorted(rest, key=lambda element: ELEMENT_ORDER[element]))


def split_type(text):
    """`seq(tensor(float))` as its frame and its element: (`seq({})`, `float`)."""
    match = WRAPPER.fullmatch(text)
    if match is None:
        return "{}", text
    wrapper, inner, key, value = match.groups()
    frame, element = split_type(value if key else inner)
    if key:
        return "map(" + key + "," + frame + ")", element
    if wrapper == "tensor":
        return frame, element
    return {"sparse_tensor": "sparse"}.get(wrapper, wrapper) + "(" + frame + ")", element


def type_list(types):
    """A set of type strings in the notation of the table."""
    frames = {}
    for text in types:
        frame, element = split_type(text)
        frames.setdefault(frame, set()).add(element)
    return ",".join(frame.format(element_list(frames[frame])) for frame in sorted(frames, key=lambda f: (len(f), f)))


def parameter(param):
    option = param.option.name
    mark = {"Single": "", "Optional": "?"}.get(option)
    if mark is None:
        mark = ("*" if param.is_homogeneous else "~") + str(param.min_arity)
    kind = param.type_str if "(" not in param.type_str else type_list([param.type_str])
    return f"{param.name}:{kind}{mark}"


def float_literal(value):
    """The shortest decimal that reads back as the same 32-bit float."""
    for digits in range(1, 10):
        literal = float(f"{value:.{digits}g}")
        if abs(literal) < 3.5e38 and struct.pack("f", literal) == struct.pack("f", value):
            return repr(literal)
    raise ValueError(f"no literal for {value}")


def string_literal(value):
    text = value.decode()
    if re.search(r'[\s"|,\[\]]', text):
        raise ValueError(f"the grammar has no room for the string {text!r}")
    return f'"{text}"'


def attribute(attr):
    text = f"{attr.name}:{attr.type.name.lower()}"
    if attr.required:
        return text + "!"
    default, kinds = attr.default_value, onnx.AttributeProto
    if default.type == kinds.UNDEFINED:
        return text
    if default.type == kinds.INT:
        return f"{text}={default.i}"
    if default.type == kinds.FLOAT:
        return f"{text}={float_literal(default.f)}"
    if default.type == kinds.STRING:
        return f"{text}={string_literal(default.s)}"
    if default.type == kinds.INTS:
        return f"{text}=[{','.join(map(str, default.ints))}]"
    if default.type == kinds.FLOATS:
        return f"{text}=[{','.join(map(float_literal, default.floats))}]"
    if default.type == kinds.STRINGS:
        return f"{text}=[{','.join(map(string_literal, default.strings))}]"
    raise ValueError(f"the grammar has no default of kind {attr.type.name}")


def random_nodes(nodes, opset):
    for node in nodes:
        if is_random(onnx.defs.get_schema(node.op_type, opset, node.domain)):
            return True
        if any(random_nodes(graph.node, opset) for a in node.attribute for graph in [a.g, *a.graphs]):
            return True
    return False


def is_random(schema):
    """Whether the operator itself may draw random numbers. Schemas also call an operator
    nondeterministic for the graphs it is given or for the If of its function body."""
    determinism = schema.node_determinism.name
    if determinism == "Deterministic":
        return False
    if determinism == "Unknown":
        return schema.name not in STATED_DETERMINISTIC
    if any(attr.type.name in ("GRAPH", "GRAPHS") for attr in schema.attributes.values()):
        return False
    if schema.has_function:
        return random_nodes(schema.function_body.node, schema.since_version)
    return True


def arity(params):
    """(least, most) number of arguments as the notation tells it."""
    least = most = 0
    for param in params:
        if param.option.name == "Variadic":
            return most + param.min_arity, 2**31 - 1
        most += 1
        if param.option.name == "Single":
            least = most
    return least, most


def signature(schema):
    for params, bounds in (
        (schema.inputs, (schema.min_input, schema.max_input)),
        (schema.outputs, (schema.min_output, schema.max_output)),
    ):
        if arity(params) != bounds:
            raise ValueError(f"{schema.name} {schema.since_version}: {arity(params)} arguments, {bounds} in the schema")
    head = [f"{schema.domain}.{schema.name}" if schema.domain else schema.name, str(schema.since_version)]
    head += ["deprecated"] * schema.deprecated + ["random"] * is_random(schema)
    fields = [
        head,
        [parameter(p) for p in schema.inputs] + ["->"] + [parameter(p) for p in schema.outputs],
        [attribute(a) for _, a in sorted(schema.attributes.items())],
        [f"{c.type_param_str}={type_list(c.allowed_type_strs)}" for c in schema.type_constraints],
    ]
    for word in (word for field in fields for word in field):
        if not re.fullmatch(r"[^\s|]+", word):
            raise ValueError(f"{schema.name} {schema.since_version}: the grammar has no room for {word!r}")
    return re.sub(r" +", " ", " | ".join(" ".join(field) for field in fields)).strip()


def render():
    """The whole table as text."""
    schemas = sorted(
        onnx.defs.get_all_schemas_with_history(),
        key=lambda schema: (schema.domain, schema.name, schema.since_version),
    )
    newest, releases = {}, []
    for release, ir, *opsets in onnx.helper.VERSION_TABLE:
        if len(opsets) > len(RELEASE_DOMAINS):
            raise ValueError("onnx.helper.VERSION_TABLE has a column without a domain")
        pairs = list(zip(RELEASE_DOMAINS, opsets))
        releases.append(f"@release {release} ir={ir} " + " ".join(f"{d}={o}" for d, o in pairs))
        for domain, opset in pairs:
            newest[domain] = max(newest.get(domain, 0), opset)
    for schema in schemas:
        domain = schema.domain or "ai.onnx"
        newest[domain] = max(newest.get(domain, 0), schema.since_version)
    lines = releases
    lines += [f"@domain {domain} {newest[domain]}" for domain in sorted(newest)]
    lines += [f"@types {name}={members}" for name, members in FAMILIES.items()]
    lines += [signature(schema) for schema in schemas]
    return HEADER.format(version=onnx.__version__) + "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", default=str(TABLE), help="the file to write; - prints (default: the table of the crate)")
    output = parser.parse_args().output
    if output == "-":
        sys.stdout.write(render())
    else:
        Path(output).write_text(render(), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
