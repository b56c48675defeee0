"""Calls over gRPC that edgekit's server and a real Triton both get, and their answers as plain values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import grpc
import numpy as np
from google.protobuf import json_format

from edgekit.serve.protocol_buffers import message
from tests.serve import grpc_server
from tests.serve.grpc_server import Client, parameters, request
from tests.serve.triton_pair import CONFIG, PORT, One, parsed_text
from tests.serve.triton_requests import IMAGES

ONE = IMAGES[:1]
SHAPE = [1, 8, 8, 1]


class Call(NamedTuple):
    """A method, and its fields for a server that calls the model's version so."""

    method: str
    fields: Callable[[str], dict[str, Any]]


def plain(method: str, **fields: Any) -> Call:
    """The same fields for both servers."""
    return Call(method, lambda _: fields)


def infer(samples: np.ndarray = ONE, model: str = "tiny", **fields: Any) -> Call:
    """ModelInfer of raw contents; `fields` replace or add."""
    return Call("ModelInfer", lambda _: {"message": request(model, samples, **fields)})


def tensor(**changes: Any) -> dict[str, Any]:
    """The input without its contents."""
    return {"name": "image", "datatype": "UINT8", "shape": SHAPE, **changes}


def typed(values: list[int], **changes: Any) -> Call:
    """ModelInfer of typed contents."""
    contents = message("InferTensorContents")(uint_contents=values)
    return infer(inputs=[tensor(contents=contents, **changes)], raw_input_contents=[])


CALLS = {
    "live": plain("ServerLive"),
    "ready": plain("ServerReady"),
    "model ready": plain("ModelReady", name="tiny"),
    "version ready": Call("ModelReady", lambda version: {"name": "tiny", "version": version}),
    "unknown model ready": plain("ModelReady", name="nobody"),
    "unknown version ready": plain("ModelReady", name="tiny", version="9"),
    "model metadata": plain("ModelMetadata", name="tiny"),
    "unknown model's metadata": plain("ModelMetadata", name="nobody"),
    "config": plain("ModelConfig", name="tiny"),
    "unknown model's config": plain("ModelConfig", name="nobody"),
    "statistics": plain("ModelStatistics", name="tiny"),
    "all statistics": plain("ModelStatistics"),
    "unknown model's statistics": plain("ModelStatistics", name="nobody"),
    "index": plain("RepositoryIndex"),
    "load": plain("RepositoryModelLoad", model_name="pixels"),
    "unload of an unknown model": plain("RepositoryModelUnload", model_name="nobody"),
    "raw contents": infer(),
    "raw contents of a batch": infer(IMAGES[:4]),
    "typed contents": typed(ONE.ravel().tolist()),
    "a version": Call("ModelInfer", lambda version: {"message": request("tiny", ONE, model_version=version)}),
    "id": infer(id="seven"),
    "one output": infer(outputs=[{"name": "answer"}]),
    "two classes": infer(outputs=[{"name": "output", "parameters": parameters(classification=2)}]),
    "parameter of the client's own": infer(parameters=parameters(mine="x", timeout=10_000_000)),
    "unknown model": infer(model="nobody"),
    "unknown version": infer(model_version="9"),
    "no model named": infer(model=""),
    "no input": infer(inputs=[], raw_input_contents=[]),
    "input of another name": infer(inputs=[tensor(name="input")]),
    "input twice": infer(inputs=[tensor(), tensor()], raw_input_contents=[ONE.tobytes()] * 2),
    "another datatype": infer(inputs=[tensor(datatype="FP32")]),
    "shape without a batch": infer(inputs=[tensor(shape=[8, 8, 1])]),
    "shape of other sides": infer(inputs=[tensor(shape=[1, 4, 16, 1])]),
    "shape below zero": infer(inputs=[tensor(shape=[-1, 8, 8, 1])]),
    "more samples than are taken": infer(np.resize(IMAGES, (257, 8, 8, 1))),
    "raw contents cut off": infer(raw_input_contents=[ONE.tobytes()[1:]]),
    "raw contents too many": infer(raw_input_contents=[ONE.tobytes() + b"x"]),
    "raw contents twice": infer(raw_input_contents=[ONE.tobytes()] * 2),
    "no contents": infer(raw_input_contents=[]),
    "typed contents too few": typed([7] * 63),
    "typed contents above the type": typed([256] * 64),
    "both kinds of contents": infer(inputs=[tensor(contents=message("InferTensorContents")(uint_contents=[7] * 64))]),
    "unknown output": infer(outputs=[{"name": "scores"}]),
    "no message": Call("ModelInfer", lambda _: {"message": b"\xff\xff"}),
}


def answered(one: One, call: Call) -> dict[str, Any]:
    """The code, and what a response says, with the version's own name left out."""
    client = Client(one.grpc)
    try:
        fields = call.fields(one.version)
        sent = fields["message"] if "message" in fields else message(f"{call.method}Request")(**fields)
        response = client.method(call.method)(sent, timeout=60)
    except grpc.RpcError as error:
        return {"status": error.code().name}
    finally:
        client.channel.close()
    return {"status": "OK", **one.without_version(described(call.method, response))}


def described(method: str, response: Any) -> dict[str, Any]:
    """A response as plain values."""
    if method == "ModelStatistics":
        return {"models": [{"name": each.name, "version": each.version} for each in response.model_stats]}
    if method != "ModelInfer":
        found: dict[str, Any] = json_format.MessageToDict(response, preserving_proto_field_name=True)
        if method != "ModelConfig":
            return found
        config = found["config"]
        ports = {
            key: [{part: port[part] for part in port if part in PORT} for port in config[key]]
            for key in ("input", "output")
        }
        return {key: each for key, each in {**config, **ports}.items() if key in CONFIG}
    values = grpc_server.outputs(response)
    return {
        "model_name": response.model_name, "model_version": response.model_version, "id": response.id,
        "outputs": [[each.name, each.datatype, list(each.shape)] for each in response.outputs],
        "data": {
            name: each.ravel().tolist() if isinstance(each, np.ndarray) else list(map(parsed_text, each))
            for name, each in values.items()
        },
    }  # fmt: skip
