"""Run by path, in an environment of tritonclient, KServe and grpcio-tools: asks a server as these clients do.

`grpc_clients.py WHAT ADDRESS SAMPLES.npy`; it prints JSON. Only `descriptors` imports the project.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import numpy as np

MODEL = "tiny-onnx"


def triton(address: str, x: np.ndarray) -> dict[str, Any]:
    """Every call of tritonclient's that the server answers, and two that it refuses."""
    import tritonclient.grpc as client

    tensor = client.InferInput("image", list(x.shape), "UINT8")
    tensor.set_data_from_numpy(x)
    with client.InferenceServerClient(address) as server:
        answer = server.infer(MODEL, [tensor], request_id="a-1", client_timeout=30, timeout=10_000_000)
        requested = [client.InferRequestedOutput("output", class_count=2)]
        classes = server.infer(MODEL, [tensor], outputs=requested).as_numpy("output")
        config = server.get_model_config(MODEL, as_json=True)["config"]
        statistics = server.get_inference_statistics(MODEL, as_json=True)["model_stats"][0]
        index = server.get_model_repository_index(as_json=True)["models"]
        refused = {}
        for name, call in (
            ("load", lambda: server.load_model(MODEL)),
            ("shared memory", lambda: server.get_system_shared_memory_status()),
            ("unknown", lambda: server.infer("other", [tensor])),
            ("late", lambda: server.infer(MODEL, [tensor], timeout=1)),
        ):
            try:
                call()
            except client.InferenceServerException as error:
                refused[name] = error.status()
        return {
            "live": server.is_server_live(),
            "ready": server.is_server_ready(),
            "model_ready": server.is_model_ready(MODEL),
            "server": server.get_server_metadata().name,
            "inputs": [each.name for each in server.get_model_metadata(MODEL).inputs],
            "backend": config["backend"],
            "success": int(statistics["inference_stats"]["success"]["count"]),
            "index": [each["name"] for each in index],
            "output": answer.as_numpy("output").tobytes().hex(),
            "answer": [each.decode() for each in answer.as_numpy("answer").ravel()],
            "id": answer.get_response().id,
            "classes": [each.decode() for each in classes.ravel()],
            "refused": refused,
        }


TYPES = {"ids": "INT32", "picture": "FP32"}


def two(x: np.ndarray) -> dict[str, np.ndarray]:
    """Both inputs of the model `two`, the last first, of joined samples."""
    return {"ids": x[:, 16:].astype(np.int32), "picture": x[:, :16].reshape(-1, 1, 4, 4)}


def triton_several(address: str, x: np.ndarray) -> dict[str, Any]:
    """Several inputs, and what the server states about them."""
    import tritonclient.grpc as client

    tensors = []
    for name, each in two(x).items():
        tensors.append(client.InferInput(name, list(each.shape), TYPES[name]))
        tensors[-1].set_data_from_numpy(each)
    with client.InferenceServerClient(address) as server:
        output = server.infer("two", tensors).as_numpy("output")
        inputs = [[each.name, each.datatype, list(each.shape)] for each in server.get_model_metadata("two").inputs]
    return {"outputs": [output.tobytes().hex()], "inputs": inputs}


def kserve_several(address: str, x: np.ndarray) -> dict[str, Any]:
    """Several inputs, raw and typed."""
    from kserve import InferenceGRPCClient, InferInput, InferRequest

    async def ask() -> list[str]:
        server, outputs = InferenceGRPCClient(address), []
        for raw in (True, False):
            inputs = [InferInput(name, list(each.shape), TYPES[name]) for name, each in two(x).items()]
            for tensor, each in zip(inputs, two(x).values(), strict=True):
                tensor.set_data_from_numpy(each, binary_data=raw)
            answer = await server.infer(InferRequest(model_name="two", infer_inputs=inputs))
            outputs.append(answer.outputs[0].as_numpy().astype("<f4").tobytes().hex())
        return outputs

    return {"outputs": asyncio.run(ask())}


def triton_aio(address: str, x: np.ndarray) -> dict[str, Any]:
    """Forty calls at once."""
    import tritonclient.grpc.aio as client

    async def ask() -> list[str]:
        tensor = client.InferInput("image", list(x.shape), "UINT8")
        tensor.set_data_from_numpy(x)
        async with client.InferenceServerClient(address) as server:
            answers = await asyncio.gather(*(server.infer(MODEL, [tensor]) for _ in range(40)))
            return sorted({answer.as_numpy("output").tobytes().hex() for answer in answers})

    return {"outputs": asyncio.run(ask())}


def kserve(address: str, x: np.ndarray) -> dict[str, Any]:
    """Raw contents and typed ones."""
    from kserve import InferenceGRPCClient, InferInput, InferRequest

    async def ask() -> dict[str, Any]:
        server = InferenceGRPCClient(address)
        outputs = []
        for raw in (True, False):
            tensor = InferInput("image", list(x.shape), "UINT8")
            tensor.set_data_from_numpy(x, binary_data=raw)
            answer = await server.infer(InferRequest(model_name=MODEL, infer_inputs=[tensor], request_id="k-1"))
            outputs.append(answer.outputs[0].as_numpy().astype("<f4").tobytes().hex())
        ready = await server.is_server_ready(), await server.is_model_ready(MODEL)
        return {"outputs": outputs, "ready": ready, "id": answer.id}

    return asyncio.run(ask())


def descriptors(address: str, x: np.ndarray) -> dict[str, Any]:
    """Fields of ours that tritonclient has otherwise; both lie in this process. And whether protoc makes ours again."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from tritonclient.grpc import model_config_pb2, service_pb2

    from edgekit.serve import protocol_buffers
    from edgekit.serve.protocol_buffers import generate

    theirs = {**model_config_pb2.DESCRIPTOR.message_types_by_name, **service_pb2.DESCRIPTOR.message_types_by_name}
    differing: list[str] = []
    count = 0

    def compare(ours: Any, other: Any) -> None:
        nonlocal count
        for field in ours.fields:
            count += 1
            twin = other.fields_by_name.get(field.name)
            if twin is None or _facts(field) != _facts(twin):
                differing.append(field.full_name)
        for name, nested in ours.nested_types_by_name.items():
            compare(nested, other.nested_types_by_name[name])

    kept = FileDescriptorProto.FromString(generate.stored_descriptors())
    for each in kept.message_type:
        compare(protocol_buffers.message(each.name).DESCRIPTOR, theirs[each.name])
    same = FileDescriptorProto.FromString(generate.compile_descriptors()) == kept
    return {"differing": differing, "count": count, "made_again": same}


def _facts(field: Any) -> tuple[Any, ...]:
    kind = field.message_type or field.enum_type
    values = [(each.name, each.number) for each in field.enum_type.values] if field.enum_type else None
    oneof = field.containing_oneof
    return field.number, field.type, field.is_repeated, kind and kind.full_name, values, oneof and oneof.name


if __name__ == "__main__":
    what, where, samples = sys.argv[1:]
    print(json.dumps(globals()[what](where, np.load(samples))))
