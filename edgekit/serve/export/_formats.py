"""Writers for YAML and for Triton's `config.pbtxt`, with just what the exports need, so that no library is required."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


def yaml_text(value: Mapping[str, Any]) -> bytes:
    """Return a mapping of mappings, lists and scalars as YAML.

    Scalars are written as JSON, which YAML reads correctly. Strings with quotes or several lines become blocks, which
    are easier to read.
    """
    return ("\n".join(_yaml_lines(value, "")) + "\n").encode()


def _yaml_lines(value: Any, indent: str) -> list[str]:
    lines = []
    items = (
        [(f"{json.dumps(key) if '/' in key else key}:", each) for key, each in value.items()]
        if isinstance(value, dict)
        else [("-", each) for each in value]
    )
    for head, each in items:
        if isinstance(each, str) and ('"' in each or "\n" in each):
            lines += [f"{indent}{head} |-", *(f"{indent}  {line}" for line in each.splitlines())]
        elif not isinstance(each, (dict, list)):
            lines.append(f"{indent}{head} {json.dumps(each, ensure_ascii=False)}")
        elif head == "-":
            first, *rest = _yaml_lines(each, f"{indent}  ")
            lines += [f"{indent}- {first.strip()}", *rest]
        else:
            lines += [f"{indent}{head}", *_yaml_lines(each, f"{indent}  ")]
    return lines


TYPES = {
    "float32": "TYPE_FP32",
    "float16": "TYPE_FP16",
    "int8": "TYPE_INT8",
    "uint8": "TYPE_UINT8",
    "int16": "TYPE_INT16",
    "int32": "TYPE_INT32",
    "int64": "TYPE_INT64",
    "text": "TYPE_STRING",
}
PLAIN = frozenset(range(0x20, 0x7F)) - {ord('"'), ord("\\")}


class Port(NamedTuple):
    """An input or output. `dims` has no batch axis if Triton adds it."""

    name: str
    dtype: str
    dims: tuple[int, ...]
    labels: str = ""


class Config(NamedTuple):
    """The configuration of a model. If `largest_batch` is 0, the shapes are complete and Triton adds no batch axis."""

    name: str
    backend: str
    largest_batch: int
    inputs: Sequence[Port]
    outputs: Sequence[Port]
    parameters: dict[str, str]


def pbtxt(config: Config) -> bytes:
    """Return the configuration in protobuf's text format, in ASCII."""
    lines = [
        f"name: {quoted(config.name)}",
        f"backend: {quoted(config.backend)}",
        f"max_batch_size: {config.largest_batch}",
    ]
    for word, ports in (("input", config.inputs), ("output", config.outputs)):
        for port in ports:
            lines += _message(word, _port(port))
    lines += _message("instance_group", ["kind: KIND_CPU", "count: 1"])
    for key, value in sorted(config.parameters.items()):
        lines += _message("parameters", [f"key: {quoted(key)}", f"value {{ string_value: {quoted(value)} }}"])
    return ("\n".join(lines) + "\n").encode("ascii")


def quoted(value: str) -> str:
    """Quote a string for the text format. All bytes except those in `PLAIN` are written in octal."""
    return '"' + "".join(chr(byte) if byte in PLAIN else f"\\{byte:03o}" for byte in value.encode()) + '"'


def _port(port: Port) -> list[str]:
    lines = [
        f"name: {quoted(port.name)}",
        f"data_type: {TYPES[port.dtype]}",
        f"dims: [ {', '.join(map(str, port.dims))} ]",
    ]
    return lines + ([f"label_filename: {quoted(port.labels)}"] if port.labels else [])


def _message(word: str, lines: Sequence[str]) -> list[str]:
    return [f"{word} {{", *(f"  {line}" for line in lines), "}"]
