"""Requests over HTTP that edgekit's server and a real Triton both get, byte for byte; good ones and bad ones.

`{version}` in a path stands for the version of the model, which is 1.2.0 at one server and 1 at the other.
"""

from __future__ import annotations

import gzip
import json
import math
from typing import Any, NamedTuple

import numpy as np

from tests.runner.conftest import samples

LENGTH = "Inference-Header-Content-Length"
TINY, PIXELS, UNCHECKED = "/v2/models/tiny", "/v2/models/pixels", "/v2/models/unchecked"
"""A classifier of UINT8 [8, 8, 1]; one of FP32 [4, 4, 1] within 0 to 1; the same without a check of its samples."""
IMAGES = samples(8)
FLOATS = np.linspace(0, 1, 16, dtype=np.float32).reshape(1, 4, 4, 1)


class Request(NamedTuple):
    """One request. `admin`: edgekit gets it on its admin port, Triton on its only one."""

    method: str
    path: str
    body: bytes | None = None
    headers: dict[str, str] = {}  # noqa: RUF012  (never changed)
    admin: bool = False


def tensor(count: int = 1, **changes: Any) -> dict[str, Any]:
    """The input as JSON; `changes` replace keys, and leave them out where they are None."""
    images = np.resize(IMAGES, (count, 8, 8, 1))
    values = {"name": "image", "shape": list(images.shape), "datatype": "UINT8", "data": images.ravel().tolist()}
    return {key: each for key, each in {**values, **changes}.items() if each is not None}


def body(*inputs: dict[str, Any], **more: Any) -> bytes:
    """A request's JSON; without `inputs`, of one good sample."""
    return json.dumps({"inputs": list(inputs) or [tensor()], **more}).encode()


def infer(content: bytes, path: str = TINY, **headers: str) -> Request:
    """POST; `_` in a header's name is a hyphen."""
    return Request("POST", f"{path}/infer", content, {name.replace("_", "-"): each for name, each in headers.items()})


def binary(rest: bytes = IMAGES[0].tobytes(), size: Any = 64, length: str = "", count: int = 1, **more: Any) -> Request:
    """JSON, then the input's bytes; `length` replaces the header's true one."""
    head = body(tensor(count, data=None, parameters={"binary_data_size": size}), **more)
    return infer(head + rest, Inference_Header_Content_Length=length or str(len(head)))


def raw(content: bytes, path: str = TINY) -> Request:
    """The sample's bytes alone."""
    return infer(content, path, Inference_Header_Content_Length="0")


def wanting(*outputs: Any) -> Request:
    """A good sample, and these outputs; a text is a name."""
    return infer(body(outputs=[{"name": each} if isinstance(each, str) else each for each in outputs]))


def classes(count: Any, name: str = "output", **more: Any) -> dict[str, Any]:
    """An output by the classification extension."""
    return {"name": name, "parameters": {"classification": count, **more}}


def floats(text: str, path: str = PIXELS) -> Request:
    """Floats in JSON, the last of them written as `text`."""
    values = {"name": "image", "shape": [1, 4, 4, 1], "datatype": "FP32", "data": [0.5] * 15}
    template = json.dumps({"inputs": [values], "outputs": [{"name": "output"}]})
    return infer(template.replace("0.5]", f"0.5, {text}]").encode(), path)


def raw_floats(value: float, path: str = PIXELS) -> Request:
    """Floats as bytes, the last of them `value`; the answer in JSON."""
    values = FLOATS.copy()
    values[0, 3, 3, 0] = value
    parameters = {"binary_data_size": values.nbytes}
    typed = {"name": "image", "shape": [1, 4, 4, 1], "datatype": "FP32", "parameters": parameters}
    head = json.dumps({"inputs": [typed], "outputs": [{"name": "output"}]}).encode()
    return infer(head + values.tobytes(), path, Inference_Header_Content_Length=str(len(head)))


def get(path: str) -> Request:
    """Without a body."""
    return Request("GET", path)


PORTS = {
    "input": [{"name": "image", "data_type": "TYPE_FP32", "dims": [4, 4, 1]}],
    "output": [
        {"name": "output", "data_type": "TYPE_FP32", "dims": [3]},
        {"name": "answer", "data_type": "TYPE_STRING", "dims": [1]},
    ],
}
CONFIG = json.dumps(
    {"parameters": {"config": json.dumps({"backend": "python", "max_batch_size": 8, **PORTS})}}
).encode()
"""A client's own configuration of the model, which a load may bring along."""

SERVER = {
    "live": get("/v2/health/live"),
    "ready": get("/v2/health/ready"),
    "server metadata": get("/v2"),
    "server metadata, with a slash": get("/v2/"),
    "model ready": get(f"{TINY}/ready"),
    "version ready": get(f"{TINY}/versions/{{version}}/ready"),
    "model metadata": get(TINY),
    "version's metadata": get(f"{TINY}/versions/{{version}}"),
    "config": get(f"{TINY}/config"),
    "version's config": get(f"{TINY}/versions/{{version}}/config"),
    "statistics": get(f"{TINY}/stats"),
    "version's statistics": get(f"{TINY}/versions/{{version}}/stats"),
    "all statistics": get("/v2/models/stats"),
    "HEAD of the server": Request("HEAD", "/v2"),
    "DELETE of the server": Request("DELETE", "/v2"),
    "POST to metadata": Request("POST", TINY, b"{}"),
    "POST to ready": Request("POST", f"{TINY}/ready", b"{}"),
    "PUT to health": Request("PUT", "/v2/health/ready", b"{}"),
    "GET of infer": get(f"{TINY}/infer"),
    "DELETE of infer": Request("DELETE", f"{TINY}/infer"),
    "unknown model's metadata": get("/v2/models/nobody"),
    "unknown model's config": get("/v2/models/nobody/config"),
    "unknown model's statistics": get("/v2/models/nobody/stats"),
    "unknown model ready": get("/v2/models/nobody/ready"),
    "unknown version's metadata": get(f"{TINY}/versions/9"),
    "unknown version ready": get(f"{TINY}/versions/9/ready"),
    "version that is no number": get(f"{TINY}/versions/first"),
    "unknown part of a model": get(f"{TINY}/nothing"),
    "unknown health": get("/v2/health/other"),
    "no model named": get("/v2/models"),
    "unknown path": get("/nothing"),
    "another protocol version": get("/v3"),
    "index": Request("POST", "/v2/repository/index", b"", admin=True),
    "index on the port of inference": Request("POST", "/v2/repository/index", b""),
    "load of an unknown model": Request("POST", "/v2/repository/models/nobody/load", b"", admin=True),
    "load with a config": Request("POST", "/v2/repository/models/pixels/load", CONFIG, admin=True),
    "load": Request("POST", "/v2/repository/models/pixels/load", b"", admin=True),
    "load on the port of inference": Request("POST", "/v2/repository/models/pixels/load", b""),
    "unload of an unknown model": Request("POST", "/v2/repository/models/nobody/unload", b"", admin=True),
}

GOOD = {
    "JSON": infer(body()),
    "JSON, nested": infer(body(tensor(data=IMAGES[:1].tolist()))),
    "JSON, a batch": infer(body(tensor(4))),
    "JSON, the largest batch": infer(body(tensor(256), outputs=[{"name": "output"}])),
    "JSON, a version": infer(body(), f"{TINY}/versions/{{version}}"),
    "JSON, named as text": infer(body(), Content_Type="text/plain"),
    "JSON, its length in the header": infer(body(), Inference_Header_Content_Length=str(len(body()))),
    "JSON with blanks around": infer(b" \n" + body() + b"\n "),
    "JSON floats": floats("0.25"),
    "binary input": binary(),
    "binary input, a batch": binary(IMAGES[:3].tobytes(), 192, count=3),
    "binary input and output": binary(parameters={"binary_data_output": True}),
    "binary output": infer(body(parameters={"binary_data_output": True})),
    "binary output of some": wanting("answer", {"name": "output", "parameters": {"binary_data": True}}),
    "binary output of none": infer(
        body(
            outputs=[{"name": "output", "parameters": {"binary_data": False}}], parameters={"binary_data_output": True}
        )
    ),
    "binary floats": raw_floats(0.25),
    "raw body": raw(IMAGES[1].tobytes()),
    "raw body of floats": raw(FLOATS.tobytes(), PIXELS),
    "one output": wanting("output"),
    "an empty list of outputs": infer(body(outputs=[])),
    "outputs in another order": wanting("answer", "output"),
    "an output twice": wanting("output", "output"),
    "one class": wanting(classes(1)),
    "two classes": wanting(classes(2)),
    "more classes than there are": wanting(classes(99)),
    "no class": wanting(classes(0)),
    "two classes, binary": wanting(classes(2, binary_data=True)),
    "two classes of a batch": infer(body(tensor(4), outputs=[classes(2)])),
    "id": infer(body(id="seven")),
    "id of a binary answer": binary(id="seven", parameters={"binary_data_output": True}),
    "id that is empty": infer(body(id="")),
    "id in other letters": infer(body(id="ü – 7")),
    "long id": infer(body(id="x" * 300)),
    "sequence": infer(body(parameters={"sequence_id": 7, "sequence_start": True, "sequence_end": True})),
    "priority": infer(body(parameters={"priority": 1})),
    "timeout of ten seconds": infer(body(parameters={"timeout": 10_000_000})),
    "parameter of the client's own": infer(body(parameters={"mine": "x"})),
    "parameter of the input's own": infer(body(tensor(parameters={"mine": 1}))),
    "key of the client's own": infer(body(mine=[1, {"a": None}])),
    "answer may be compressed": infer(body(), Accept_Encoding="gzip"),
}

BAD = {
    "unknown model": infer(body(), "/v2/models/nobody"),
    "unknown version": infer(body(), f"{TINY}/versions/9"),
    "empty body": infer(b""),
    "malformed JSON": infer(b"{"),
    "no JSON": infer(b"nonsense"),
    "JSON cut off": infer(body()[:-3]),
    "JSON and more behind it": infer(body() + b"x"),
    "no UTF-8": infer(body().replace(b"image", b"\xff\xfe")),
    "a list": infer(b"[]"),
    "a number": infer(b"7"),
    "null": infer(b"null"),
    "an empty object": infer(b"{}"),
    "inputs that are none": infer(b'{"inputs": []}'),
    "inputs that are an object": infer(b'{"inputs": {}}'),
    "input that is a number": infer(b'{"inputs": [7]}'),
    "input that is empty": infer(b'{"inputs": [{}]}'),
    "input without a name": infer(body(tensor(name=None))),
    "input without a shape": infer(body(tensor(shape=None))),
    "input without a datatype": infer(body(tensor(datatype=None))),
    "input without data": infer(body(tensor(data=None))),
    "input of another name": infer(body(tensor(name="input"))),
    "input twice": infer(body(tensor(), tensor())),
    "input too many": infer(body(tensor(), tensor(name="more"))),
    "another datatype": infer(body(tensor(datatype="FP32"))),
    "unknown datatype": infer(body(tensor(datatype="uint8"))),
    "datatype that is a number": infer(body(tensor(datatype=7))),
    "shape without a batch": infer(body(tensor(shape=[8, 8, 1]))),
    "shape of another rank": infer(body(tensor(shape=[1, 64]))),
    "shape of other sides": infer(body(tensor(shape=[1, 4, 16, 1]))),
    "shape of no sample": infer(body(tensor(shape=[0, 8, 8, 1], data=[]))),
    "shape below zero": infer(body(tensor(shape=[-1, 8, 8, 1]))),
    "shape of floats": infer(body(tensor(shape=[1.0, 8, 8, 1]))),
    "shape that is text": infer(body(tensor(shape="1,8,8,1"))),
    "shape that is huge": infer(body(tensor(shape=[10**30, 8, 8, 1]))),
    "more samples than are taken": infer(body(tensor(257))),
    "too few values": infer(body(tensor(data=[7] * 63))),
    "too many values": infer(body(tensor(data=[7] * 65))),
    "nested values that are too few": infer(body(tensor(data=[[7] * 32, [7] * 31]))),
    "value above the type": infer(body(tensor(data=[256] * 64))),
    "value below the type": infer(body(tensor(data=[-1] * 64))),
    "fraction for a whole number": infer(body(tensor(data=[0.5] * 64))),
    "whole number as a float": infer(body(tensor(data=[7.0] * 64))),
    "text for a number": infer(body(tensor(data=["7"] * 64))),
    "true for a number": infer(body(tensor(data=[True] * 64))),
    "null for a number": infer(body(tensor(data=[None] * 64))),
    "data that is text": infer(body(tensor(data="AAAA"))),
    "data and a binary size": infer(body(tensor(parameters={"binary_data_size": 64}))),
    "input's parameters that are a number": infer(body(tensor(parameters=7))),
    "unknown output": wanting("scores"),
    "output without a name": wanting({}),
    "output that is a number": wanting(7),
    "outputs that are an object": infer(body(outputs={})),
    "classes below zero": wanting(classes(-1)),
    "classes that are text": wanting(classes("2")),
    "binary_data that is a number": wanting({"name": "output", "parameters": {"binary_data": 1}}),
    "binary_data_output that is text": infer(body(parameters={"binary_data_output": "yes"})),
    "id that is a number": infer(body(id=7)),
    "parameters that are a list": infer(body(parameters=[])),
    "parameters that are null": infer(body(parameters=None)),
    "timeout below zero": infer(body(parameters={"timeout": -1})),
    "timeout that is text": infer(body(parameters={"timeout": "1"})),
    "binary size too small": binary(size=63),
    "binary size too large": binary(size=65),
    "binary size below zero": binary(size=-64),
    "binary size as text": binary(size="64"),
    "binary size as a float": binary(size=64.0),
    "binary bytes cut off": binary(IMAGES[0].tobytes()[1:]),
    "binary bytes too many": binary(IMAGES[0].tobytes() + b"x"),
    "no binary bytes": binary(b""),
    "header length beyond the body": binary(length="10000"),
    "header length within the JSON": binary(length="5"),
    "header length below zero": binary(length="-1"),
    "header length that is no number": binary(length="x"),
    "header length with a fraction": binary(length="1.5"),
    "header length of 400 digits": binary(length="9" * 400),
    "binary input without a header length": infer(binary().body or b""),
    "raw body that is empty": raw(b""),
    "raw body too short": raw(bytes(63)),
    "raw body too long": raw(bytes(65)),
    "raw body of two samples": raw(bytes(128)),
    "compressed body": infer(gzip.compress(body()), Content_Encoding="gzip"),
    "body said to be compressed": infer(body(), Content_Encoding="gzip"),
    "NaN in JSON": floats("NaN"),
    "infinity in JSON": floats("Infinity"),
    "float too large in JSON": floats("1e999"),
    "sample out of range": floats("2.0"),
    "NaN in bytes": raw_floats(math.nan),
    "infinity in bytes": raw_floats(math.inf),
    "NaN in JSON, no check": floats("NaN", UNCHECKED),
    "NaN in bytes, no check": raw_floats(math.nan, UNCHECKED),
    "deep JSON": infer(b"[" * 2000 + b"]" * 2000),
}

FATAL = {"classes of the text output": wanting(classes(2, "answer"))}
"""Triton 2.51.0 ends at these, so each gets one of its own."""
REQUESTS = {**SERVER, **GOOD, **BAD}
