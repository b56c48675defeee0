"""The operators of a `.tflite` file: just enough FlatBuffers to walk to its operator codes, every step inside the file.

Model          operator_codes is field 1
OperatorCode   deprecated_builtin_code int8 (0), custom_code string (1), version int32 = 1 (2), builtin_code int32 (3)
"""

from __future__ import annotations

import struct

from edgekit.runner.errors import BundleError
from edgekit.runner.operators import Needs, Operator
from edgekit.runner.operators.tables.tflite import CUSTOM, name_of

IDENTIFIER = b"TFL3"
MOST_CODES = 4096
MOST_NAME_BYTES = 1024


def read(data: bytes) -> Needs:
    """Operator codes of the file, used or not: an interpreter looks all of them up."""
    if data[4:8] != IDENTIFIER:
        raise BundleError(
            f"not a TFLite model: bytes 4-8 are {data[4:8]!r}, not {IDENTIFIER!r}; build the bundle again"
        )
    model = _follow(data, 0)
    vector = _field(data, model, 1)
    if vector is None:
        return Needs(())
    start = _follow(data, vector)
    count = _integer("<I", data, start)
    if count > MOST_CODES:
        raise BundleError(f"malformed TFLite model: {count} operator codes; build the bundle again")
    codes = [_operator(data, _follow(data, start + 4 + 4 * index)) for index in range(count)]
    return Needs(tuple(sorted(set(codes))))


def _operator(data: bytes, table: int) -> Operator:
    old, name, version, new = (_field(data, table, slot) for slot in range(4))
    code = max(_integer("<b", data, old) if old else 0, _integer("<i", data, new) if new else 0)
    number = _integer("<i", data, version) if version else 1
    if code == CUSTOM:
        return Operator("custom", _string(data, _follow(data, name)) if name else "", number)
    if code < 0:
        raise BundleError(f"malformed TFLite model: operator code {code}; build the bundle again")
    return Operator("builtin", name_of(code), number)


def _field(data: bytes, table: int, slot: int) -> int | None:
    """Where a table's field lies, or None where it is left at its default."""
    vtable = table - _integer("<i", data, table)
    if 4 + 2 * slot + 2 > _integer("<H", data, vtable):
        return None
    offset = _integer("<H", data, vtable + 4 + 2 * slot)
    return table + offset if offset else None


def _follow(data: bytes, position: int) -> int:
    """Where an offset points; offsets only point forward."""
    return position + _integer("<I", data, position)


def _string(data: bytes, position: int) -> str:
    length = _integer("<I", data, position)
    text = data[position + 4 : position + 4 + length]
    if length > MOST_NAME_BYTES or len(text) != length:
        raise BundleError(f"malformed TFLite model: a name of {length} bytes; build the bundle again")
    return text.decode("utf-8", errors="replace")


def _integer(format: str, data: bytes, position: int) -> int:
    if position < 0 or position + struct.calcsize(format) > len(data):
        raise BundleError(f"malformed TFLite model: an offset points to byte {position} of {len(data)}; build it again")
    value: int = struct.unpack_from(format, data, position)[0]
    return value
