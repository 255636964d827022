"""The protobuf wire format by hand, to write what no serializer would."""

from dataclasses import dataclass

VARINT, FIXED64, LEN, GROUP, END_GROUP, FIXED32 = range(6)


def varint(value):
    """A number in base 128, least significant digit first."""
    digits = bytearray()
    while value >= 0x80:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    digits.append(value)
    return bytes(digits)


def key(number, wire):
    """What stands before a field's value."""
    return varint(number << 3 | wire)


def delimited(number, content, length=None):
    """A field of bytes; `length`: what it claims to have."""
    return key(number, LEN) + varint(len(content) if length is None else length) + content


def read_varint(data, at):
    """The number at `at`, and where it ends."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


@dataclass(eq=False)
class Field:
    """A field as it stands in a message; `content` without key and length."""

    number: int
    wire: int
    content: bytes
    children: list | None = None


def read(data, descriptor):
    """The fields of a message, and of the messages in it."""
    fields, at = [], 0
    while at < len(data):
        tag, at = read_varint(data, at)
        number, wire = tag >> 3, tag & 7
        start = at
        if wire == VARINT:
            _, at = read_varint(data, at)
        elif wire == FIXED64:
            at += 8
        elif wire == FIXED32:
            at += 4
        else:
            assert wire == LEN, "groups are not read"
            length, start = read_varint(data, at)
            at = start + length
        field = Field(number, wire, data[start:at])
        known = descriptor.fields_by_number.get(number)
        if wire == LEN and known is not None and known.message_type is not None:
            field.children = read(field.content, known.message_type)
        fields.append(field)
    return fields


def write(fields, changed=None, claim=None):
    """The bytes of `fields`, in which the field `changed` claims another length than it has."""
    out = b""
    for field in fields:
        content = field.content if field.children is None else write(field.children, changed, claim)
        if field.wire == LEN:
            out += delimited(field.number, content, claim(len(content)) if field is changed else None)
        else:
            out += key(field.number, field.wire) + content
    return out


def lengths(fields):
    """Every field that has a length."""
    for field in fields:
        if field.wire == LEN:
            yield field
        yield from lengths(field.children or [])


def reachable(descriptor):
    """The types of all messages that can occur in one."""
    found, open_types = [], [descriptor]
    while open_types:
        descriptor = open_types.pop()
        if descriptor not in found:
            found.append(descriptor)
            open_types += [field.message_type for field in descriptor.fields if field.message_type]
    return found


def path_to(root, wanted):
    """Numbers of the fields that lead from a message of type `root` to one of type `wanted`, fewest first."""
    seen, open_paths = {root.full_name}, [(root, [])]
    for descriptor, path in open_paths:
        if descriptor.full_name == wanted.full_name:
            return path
        for field in descriptor.fields:
            if field.message_type and field.message_type.full_name not in seen:
                seen.add(field.message_type.full_name)
                open_paths.append((field.message_type, [*path, field.number]))
    raise LookupError(wanted.full_name)


def wrap(path, content):
    """`content` as the message at the end of `path`."""
    for number in reversed(path):
        content = delimited(number, content)
    return content
