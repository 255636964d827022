"""Load and save changes nothing: not a field, not a bit, not what this version has never heard of."""

import random
import shutil
import struct

import onnx
import pytest
from google.protobuf.unknown_fields import UnknownFieldSet
from onnx import AttributeProto, ModelProto, TensorProto, helper

import corpus
from corpus import ROOT
from wire import FIXED32, FIXED64, GROUP, VARINT, delimited, key, reachable, varint

EVERY_FIELD = ROOT / "tests/data/every_field.onnx"


def differences(forge, pairs, *options):
    """Saves each (from, to) and says which came back different, and how."""
    found = []
    for _, target in pairs:
        target.parent.mkdir(parents=True, exist_ok=True)
    outcomes = forge.many([("save", source, "-o", target, *options) for source, target in pairs])
    for (source, target), outcome in zip(pairs, outcomes):
        if outcome.code != 0:
            found.append(f"{source.name}: {outcome}")
            continue
        before, after = corpus.parse(source), corpus.parse(target)
        if before.SerializeToString(deterministic=True) != after.SerializeToString(deterministic=True):
            found.append(f"{source.name}: other bytes")
        elif before != after and before == before:  # a NaN makes a message differ from itself
            found.append(f"{source.name}: not equal")
    return found


def assert_lossless(forge, sources, folder):
    pairs = [(source, folder / str(number) / source.name) for number, source in enumerate(sources)]
    found = differences(forge, pairs)
    assert not found, f"{len(found)} of {len(pairs)} models\n" + "\n".join(found[:20])


def test_models_of_the_repository(forge, tmp_path):
    assert_lossless(forge, corpus.repository_models(), tmp_path)


def test_models_of_the_onnx_package(forge, tmp_path):
    sources = corpus.wheel_models()
    assert len(sources) > 100
    assert_lossless(forge, sources, tmp_path)


def test_node_cases(forge, tmp_path):
    sources = corpus.write_node_cases(tmp_path / "cases")
    assert len(sources) == 1884 or onnx.__version__ != "1.23.2"
    assert_lossless(forge, sources, tmp_path)


def test_zoo(forge, tmp_path):
    skeletons = corpus.zoo_skeletons()
    assert skeletons, "the repository has no zoo"
    # Shared in the same folder: the weights, gigabytes of holes, stay where they are.
    sources = [corpus.write_sparse(skeleton, tmp_path) for skeleton in skeletons]
    found = differences(forge, [(source, source.with_name("saved_" + source.name)) for source in sources], "--external", "share")
    assert not found, "\n".join(found)


def copy_with_data(source, folder):
    """Copies a model and its data files."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in source.parent.glob(source.name + "*"):
        shutil.copy(file, folder)
    return folder / source.name


def round_trip(forge, model, tmp_path):
    """`model`, which has the external data of every_field.onnx, as it is after a save."""
    source = copy_with_data(EVERY_FIELD, tmp_path / "in")
    source.write_bytes(model if isinstance(model, bytes) else model.SerializeToString(deterministic=True))
    target = tmp_path / "out" / source.name
    target.parent.mkdir(exist_ok=True)
    forge("save", source, "-o", target).good()
    return target


def test_every_field_is_in_the_model_with_every_field():
    """The tests below walk this model; what it lacks they would not cover."""
    model = corpus.parse(EVERY_FIELD)
    filled = {field.full_name for message in corpus.messages(model) for field, _ in message.ListFields()}
    wanted = {field.full_name for descriptor in reachable(ModelProto.DESCRIPTOR) for field in descriptor.fields}
    assert wanted - filled == set()


def group(number, content):
    return key(number, GROUP) + content + key(number, GROUP + 1)


def unknown_fields(message, number):
    """Bytes of unknown fields of each wire type, the same number with each type, and known numbers with a type that
    is not theirs."""
    nested = delimited(7, b"nested") + key(8, VARINT) + varint(1) + group(9, key(1, FIXED32) + b"abcd")
    fields = [
        key(number, VARINT) + varint(2**64 - 1 - number),
        key(number + 1, FIXED64) + struct.pack("<Q", number),
        delimited(number + 2, b"\xff\x00 not UTF-8 " * 3),
        group(number + 3, nested),
        key(number + 4, FIXED32) + struct.pack("<I", number),
        delimited(number + 5, b""),
        group(number + 6, b""),
        key(2**29 - 1, VARINT) + b"\x00",
        key(number, FIXED32) + b"same",
        key(number, VARINT) + b"\x81\x00",  # longer than it need be
    ]
    for field in message.DESCRIPTOR.fields:
        fields.append(group(field.number, key(field.number, VARINT) + b"\x01"))
        if field.type in (field.TYPE_MESSAGE, field.TYPE_STRING, field.TYPE_BYTES):
            fields.append(key(field.number, VARINT) + b"\x05")
    return fields


def unknown_of(message):
    """What `message` holds that is not in its descriptor, as comparable values."""
    def plain(fields):
        return [
            (field.field_number, field.wire_type, plain(field.data) if field.wire_type == GROUP else field.data)
            for field in fields
        ]

    return plain(UnknownFieldSet(message))


def test_unknown_fields_in_every_message(forge, tmp_path):
    model = corpus.parse(EVERY_FIELD)
    types = set()
    for number, message in enumerate(list(corpus.messages(model))):
        fields = unknown_fields(message, 1000 + 10 * number)
        message.MergeFromString(b"".join(fields))
        types.add(message.DESCRIPTOR.full_name)
        assert len(UnknownFieldSet(message)) == len(fields)
    assert types == {descriptor.full_name for descriptor in reachable(ModelProto.DESCRIPTOR)}

    target = round_trip(forge, model, tmp_path)
    saved = corpus.parse(target)
    for before, after in zip(corpus.messages(model), corpus.messages(saved), strict=True):
        assert before.DESCRIPTOR is after.DESCRIPTOR
        assert unknown_of(before) == unknown_of(after), before.DESCRIPTOR.full_name
    assert saved.SerializeToString(deterministic=True) == model.SerializeToString(deterministic=True)


def test_unknown_fields_before_and_after_known_ones(forge, tmp_path):
    """Their order among themselves is kept wherever they stand in the file."""
    data = EVERY_FIELD.read_bytes()
    target = round_trip(forge, delimited(900, b"first") + data + delimited(900, b"last"), tmp_path)
    saved = corpus.parse(target)
    assert [field[2] for field in unknown_of(saved)] == [b"first", b"last"]


# Fields that a model needs: an empty one is no model, or another one.
NEEDED = {
    "onnx.AttributeProto.name", "onnx.AttributeProto.type", "onnx.AttributeProto.ref_attr_name",
    "onnx.NodeProto.op_type",
    "onnx.TensorProto.data_location", "onnx.TensorProto.data_type", "onnx.TensorProto.name", "onnx.ValueInfoProto.name",
    "onnx.StringStringEntryProto.key", "onnx.StringStringEntryProto.value",
}  # fmt: skip
# An empty one is mended on load, which is noted.
MENDED = {"onnx.GraphProto.name", "onnx.OperatorSetIdProto.domain"}
# A second value beside the one that is there would be a contradiction.
ONE_OF = {"onnx.AttributeProto.f", "onnx.AttributeProto.i", "onnx.AttributeProto.s", "onnx.TensorProto.raw_data"}


def test_fields_that_are_present_with_their_default(forge, tmp_path):
    """That an `optional` field was set survives also where it says what its absence says."""
    pairs = []
    for field in [field for descriptor in reachable(ModelProto.DESCRIPTOR) for field in descriptor.fields]:
        if field.is_repeated or field.message_type or field.containing_oneof or field.full_name in ONE_OF | MENDED:
            continue
        model = corpus.parse(EVERY_FIELD)
        places = [message for message in corpus.messages(model) if message.DESCRIPTOR is field.containing_type]
        if field.full_name in NEEDED:
            places = [message for message in places if not message.HasField(field.name)]
        for message in places:
            setattr(message, field.name, field.default_value)
        source = copy_with_data(EVERY_FIELD, tmp_path / field.full_name)
        source = source.rename(source.with_name(f"{field.full_name}.onnx"))
        source.write_bytes(model.SerializeToString())
        pairs.append((source, source.with_name("saved.onnx")))
    found = differences(forge, pairs, "--external", "share")
    assert not found, "\n".join(found)
    assert len(pairs) > 30


def constant_model(*attributes, tensor=None):
    """A model of one Constant node."""
    node = helper.make_node("Constant", [], ["y"])
    node.attribute.extend(attributes)
    if tensor is not None:
        node.attribute.append(helper.make_attribute("value", tensor))
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    return helper.make_model(helper.make_graph([node], "g", [], [output]))


@pytest.mark.parametrize("kind", ["f", "floats", "float_data", "double_data", "raw_data"])
def test_every_bit_of_floats(forge, tmp_path, kind):
    """Payloads of NaNs, the sign of zero, denormals."""
    bits = [0x7F800001, 0xFFC12345, 0x7FFFFFFF, 0x80000000, 0x00000001, 0x7F800000, 0xFF7FFFFF]
    if kind == "f":
        models = [bare("value_float", key(2, FIXED32) + struct.pack("<I", each), AttributeProto.FLOAT) for each in bits]
    elif kind == "floats":
        packed = b"".join(key(7, FIXED32) + struct.pack("<I", each) for each in bits)
        models = [bare("value_floats", packed, AttributeProto.FLOATS)]
    else:
        double = kind == "double_data"
        raw = struct.pack(f"<{len(bits)}Q", *(each << 32 | 1 for each in bits)) if double else struct.pack(
            f"<{len(bits)}I", *bits
        )
        number = TensorProto.DESCRIPTOR.fields_by_name[kind].number
        tensor = TensorProto(dims=[len(bits)], data_type=TensorProto.DOUBLE if double else TensorProto.FLOAT)
        tensor.MergeFromString(delimited(number, raw))
        models = [constant_model(tensor=tensor)]
    sources = []
    for number, model in enumerate(models):
        sources.append(tmp_path / f"{number}.onnx")
        sources[-1].write_bytes(model.SerializeToString())
    assert_lossless(forge, sources, tmp_path / "out")


def bare(name, value, kind):
    """A model of a Constant whose attribute is made from the bytes of its value."""
    attribute = AttributeProto(name=name, type=kind)
    attribute.MergeFromString(value)
    return constant_model(attribute)


def test_numbers_that_stand_apart_or_packed(forge, tmp_path):
    """Both encodings of repeated numbers are read, also mixed; the message is the same."""
    ints = AttributeProto(name="value_ints", type=AttributeProto.INTS)
    ints.MergeFromString(key(8, VARINT) + varint(1) + delimited(8, varint(2) + varint(3)) + key(8, VARINT) + varint(4))
    assert list(ints.ints) == [1, 2, 3, 4]
    one, two = (struct.pack("<f", each) for each in (1.0, 2.0))
    tensor = TensorProto(dims=[5], data_type=TensorProto.FLOAT)
    tensor.MergeFromString(key(4, FIXED32) + one + delimited(4, two + one) + delimited(4, b"") + key(4, FIXED32) + two
                           + delimited(4, one))  # fmt: skip
    assert len(tensor.float_data) == 5
    sources = []
    for name, model in [("ints", constant_model(ints)), ("floats", constant_model(tensor=tensor))]:
        sources.append(tmp_path / f"{name}.onnx")
        sources[-1].write_bytes(model.SerializeToString())
    # Python writes its own form; here is the mixed one.
    raw = AttributeProto(name="value_ints", type=AttributeProto.INTS).SerializeToString()
    raw += key(8, VARINT) + varint(1) + delimited(8, varint(2) + varint(3)) + key(8, VARINT) + varint(4)
    model = constant_model()
    node = model.graph.node[0].SerializeToString() + delimited(5, raw)
    graph = model.graph
    del graph.node[:]
    data = graph.SerializeToString() + delimited(1, node)
    model.ClearField("graph")
    sources.append(tmp_path / "mixed.onnx")
    sources[-1].write_bytes(model.SerializeToString() + delimited(7, data))
    assert list(corpus.parse(sources[-1]).graph.node[0].attribute[0].ints) == [1, 2, 3, 4]
    assert_lossless(forge, sources, tmp_path / "out")


def odd_models():
    """Models that no exporter writes: contradictory, or saying the same twice."""
    def with_attribute(**fields):
        return constant_model(AttributeProto(name="value_int", **fields))

    def with_tensor(**fields):
        return constant_model(tensor=TensorProto(dims=[1], data_type=TensorProto.FLOAT, **fields))

    entry = onnx.StringStringEntryProto(key="location", value="w.bin")
    yield "undefined_type", with_attribute(i=3, type=AttributeProto.UNDEFINED)
    yield "no_type", with_attribute(i=3)
    yield "reference_and_value", with_attribute(i=3, ref_attr_name="a", type=AttributeProto.INT)
    yield "reference_without_type", with_attribute(ref_attr_name="a")
    yield "reference_of_undefined_type", with_attribute(ref_attr_name="a", type=AttributeProto.UNDEFINED)
    yield "empty_reference_and_value", with_attribute(i=3, ref_attr_name="", type=AttributeProto.INT)
    yield "empty_raw_data_beside_floats", with_tensor(float_data=[1], raw_data=b"")
    yield "entries_of_data_that_is_inside", with_tensor(raw_data=bytes(4), external_data=[entry])
    yield "entries_and_default_location", with_tensor(raw_data=bytes(4), external_data=[entry], data_location=0)
    # Numbers that this version's enumerations lack.
    later = TensorProto(dims=[1], data_type=1, raw_data=bytes(4))
    later.MergeFromString(key(14, VARINT) + b"\x07")
    yield "later_location", constant_model(tensor=later)
    later = AttributeProto(name="value_int", i=1)
    later.MergeFromString(key(20, VARINT) + b"\x63")
    yield "later_attribute_type", constant_model(later)
    yield "two_fields", with_tensor(float_data=[1], int32_data=[1])
    yield "segment", with_tensor(float_data=[1], segment=TensorProto.Segment(begin=0, end=1))
    yield "negative_dims", constant_model(tensor=TensorProto(dims=[-1], data_type=1))
    yield "no_data", constant_model(tensor=TensorProto(dims=[0], data_type=1))
    yield "empty_raw_data", constant_model(tensor=TensorProto(dims=[0], data_type=1, raw_data=b""))
    yield "empty_strings", constant_model(tensor=TensorProto(dims=[2], data_type=8, string_data=[b"", b"\xff"]))
    for number in range(1, 27):
        for field in ["raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data"]:
            tensor = TensorProto(dims=[0], data_type=number)
            if field == "raw_data":
                tensor.raw_data = b""
            else:
                # An element of a type that the field is not meant for, or one too many.
                tensor.dims[0] = 1
                getattr(tensor, field).append(1)
            yield f"type_{number}_in_{field}", constant_model(tensor=tensor)
    for value in (-1, 256, 65536, 2**31 - 1, -(2**31)):
        for number in range(1, 27):
            tensor = TensorProto(dims=[1], data_type=number, int32_data=[value])
            yield f"type_{number}_of_{value}", constant_model(tensor=tensor)
    twice = constant_model(tensor=TensorProto(dims=[1], data_type=1, float_data=[1]))
    twice.graph.node[0].attribute.append(twice.graph.node[0].attribute[0])
    yield "attribute_twice", twice
    twice = constant_model(tensor=TensorProto(dims=[1], data_type=1, float_data=[1]))
    for port in (twice.graph.output, twice.graph.value_info, twice.graph.value_info, twice.opset_import):
        port.append(port[0] if port else twice.graph.output[0])
    twice.graph.value_info.append(helper.make_tensor_value_info("nowhere", 1, [1]))
    yield "listed_twice", twice
    unnamed = constant_model(tensor=TensorProto(dims=[1], data_type=1, float_data=[1]))
    unnamed.graph.node[0].output.extend(["", ""])
    unnamed.graph.node[0].input.extend(["", ""])
    unnamed.graph.value_info.append(onnx.ValueInfoProto())
    yield "empty_names", unnamed
    for domain in ["", "ai.onnx", "ai.onnx.ml", "custom"]:
        model = constant_model(tensor=TensorProto(dims=[1], data_type=1, float_data=[1]))
        model.graph.node[0].domain = domain
        model.opset_import[0].domain = domain
        yield f"domain_{domain or 'empty'}", model


def test_odd_models_are_refused_or_kept(forge, tmp_path):
    """What cannot be held is refused; nothing is held and then lost."""
    sources = []
    for name, model in odd_models():
        sources.append(tmp_path / f"{name}.onnx")
        sources[-1].write_bytes(model.SerializeToString())
    (tmp_path / "out").mkdir()
    outcomes = forge.many([("save", source, "-o", tmp_path / "out" / source.name) for source in sources])
    for source, outcome in zip(sources, outcomes):
        if outcome.code != 0:
            outcome.refused(source.name)
    kept = [source for source, outcome in zip(sources, outcomes) if outcome.code == 0]
    assert len(kept) > 60
    assert_lossless(forge, kept, tmp_path / "again")


def change(model, rng):
    """Changes something, somewhere in `model`."""
    message = rng.choice(list(corpus.messages(model)))
    field = rng.choice(message.DESCRIPTOR.fields)
    value = getattr(message, field.name)
    what = rng.random()
    if field.is_repeated and len(value) and what < 0.6:
        index = rng.randrange(len(value))
        if what < 0.3:
            del value[index]
        elif field.message_type:
            value.add().CopyFrom(value[index])
        else:
            value.append(value[index])
    elif what < 0.3:
        message.ClearField(field.name)
    elif field.message_type:
        value.add() if field.is_repeated else value.SetInParent()
    else:
        text = ["", "x", "y", "ai.onnx", "a\nb"]
        if field.enum_type:
            new = rng.choice(field.enum_type.values).number
        elif field.type == field.TYPE_STRING:
            new = rng.choice(text)
        elif field.type == field.TYPE_BYTES:
            new = rng.choice(text).encode()
        elif field.type in (field.TYPE_FLOAT, field.TYPE_DOUBLE):
            new = rng.choice([0.0, -0.0, 1.5])
        elif field.type == field.TYPE_UINT64:
            new = rng.choice([0, 1, 2**64 - 1])
        else:
            new = rng.choice([0, 1, 2, 5, 8, -1, 2**31 - 1])
        value.append(new) if field.is_repeated else setattr(message, field.name, new)


def test_changes_at_random_are_refused_or_kept(forge, tmp_path):
    rng = random.Random(3)
    folder = copy_with_data(EVERY_FIELD, tmp_path).parent
    sources = []
    for number in range(800):
        model = corpus.parse(EVERY_FIELD)
        for _ in range(rng.choice([1, 1, 2, 4])):
            change(model, rng)
        sources.append(folder / f"{number}.onnx")
        sources[-1].write_bytes(model.SerializeToString())
    outcomes = forge.many(
        [("save", source, "-o", folder / f"saved_{source.name}", "--external", "share") for source in sources]
    )
    kept = 0
    for source, outcome in zip(sources, outcomes):
        outcome.orderly()
        if outcome.code == 0 and "WARN" not in outcome.err:  # what is mended on load is noted
            kept += 1
            before, after = corpus.parse(source), corpus.parse(folder / f"saved_{source.name}")
            assert before.SerializeToString(deterministic=True) == after.SerializeToString(deterministic=True), source
    assert kept > 200
