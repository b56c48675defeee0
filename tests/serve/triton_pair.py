"""edgekit's server and a real Triton with the same bundles, and their answers in a form that can be compared."""

from __future__ import annotations

import contextlib
import gzip
import json
import math
import re
import shutil
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgekit.runner import bundle
from edgekit.serve.export import _formats
from edgekit.serve.export._formats import Port
from edgekit.serve.export.triton import runner_archive
from tests.serve import triton
from tests.serve.grpc_server import Server
from tests.serve.server import Reply, ask
from tests.serve.triton_requests import LENGTH, Request

TOLERANCE = 1e-5
"""Of floats: Triton's interpreter may be of another version, and runs each sample of a batch alone."""
VERSION = "the model's version"
CONFIG = ("status", "type", "name", "platform", "backend", "version_policy", "max_batch_size", "input", "output")
PORT = {"name", "data_type", "dims"}
"""Of a configuration, what both say: most of Triton's is settings of its own."""
LARGEST_BATCH = 256
CLASS = re.compile(r"(-?[\d.]+|nan):(\d+)(?::(.+))?")


@dataclass(frozen=True)
class One:
    """One of the two servers; `version` is what it calls the models' only one."""

    http: str
    admin: str
    grpc: str
    version: str

    def facts(self, request: Request) -> dict[str, Any]:
        """What a request is answered, with the version's own name left out."""
        path = request.path.replace("{version}", self.version)
        reply = ask(self.admin if request.admin else self.http, request.method, path, request.body, request.headers)
        found = facts(reply)
        if path.endswith("/stats") and "model_stats" in found:
            found.update(kinds(found.pop("model_stats")[0]))
        if path.endswith("/config") and "input" in found:
            found = {key: each for key, each in found.items() if key in CONFIG}
            for port in (*found["input"], *found["output"]):
                for key in port.keys() - PORT:
                    del port[key]
        return self.without_version(found)

    def without_version(self, value: Any) -> Any:
        """The version's name replaced, where a version's name stands."""
        if isinstance(value, dict):
            return {
                key: _named(each, self.version) if "version" in key else self.without_version(each)
                for key, each in value.items()
            }
        return [self.without_version(each) for each in value] if isinstance(value, list) else value


def _named(value: Any, version: str) -> Any:
    if isinstance(value, list):
        return [_named(each, version) for each in value]
    return VERSION if value == version else value


def facts(reply: Reply) -> dict[str, Any]:
    """Status, content type, and the body's parts: outputs decoded, whatever form they came in."""
    found: dict[str, Any] = {"status": reply.status, "type": reply.headers.get("content-type", "none")}
    content = reply.body
    if reply.headers.get("content-encoding") == "gzip":
        found["coding"], content = "gzip", gzip.decompress(content)
    length = reply.headers.get(LENGTH.lower())
    text, rest = (content, b"") if length is None else (content[: int(length)], content[int(length) :])
    if not text:
        return {**found, "body": "empty"}
    try:
        parsed = json.loads(text, parse_constant=_no_constant)
    except ValueError:
        return {**found, "body": "no JSON"}
    if not parsed or not isinstance(parsed, dict):
        return {**found, "body": parsed}
    if set(parsed) == {"error"}:
        is_sentence = isinstance(parsed["error"], str) and len(parsed["error"]) > 5
        return {**found, "error": "a sentence" if is_sentence else parsed["error"]}
    for output in parsed.get("outputs", []) if "model_name" in parsed else []:
        size = output.get("parameters", {}).pop("binary_data_size", None)
        if size is not None:
            output["form"] = "binary"
            output["data"], rest = values(output["datatype"], rest[:size]), rest[size:]
        if output["datatype"] == "BYTES":
            output["data"] = [parsed_text(each) for each in output["data"]]
        if not output.get("parameters", True):
            del output["parameters"]
        found[f"output {output['name']}"] = output
    if "outputs" in parsed and "model_name" in parsed:
        parsed["outputs"] = [output["name"] for output in parsed["outputs"]]
    return {**found, **parsed, **({"bytes left over": len(rest)} if rest else {})}


def values(datatype: str, block: bytes) -> list[Any]:
    """A binary output's."""
    if datatype == "FP32":
        return [each for (each,) in struct.iter_unpack("<f", block)]
    found = []
    while block:
        size = int.from_bytes(block[:4], "little")
        found.append(block[4 : 4 + size].decode())
        block = block[4 + size :]
    return found


def parsed_text(text: str) -> Any:
    """An answer in JSON, or a class as [value, index, label]."""
    found = CLASS.fullmatch(text)
    return [float(found[1]), int(found[2]), found[3]] if found else json.loads(text)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def kinds(value: Any) -> Any:
    """The same with each number as the word for it, and of each list its first entry: what has no fixed values."""
    if isinstance(value, dict):
        return {key: kinds(each) for key, each in value.items()}
    if isinstance(value, list):
        return [kinds(each) for each in value[:1]]
    return "a number" if isinstance(value, int) else value


def equal(one: Any, other: Any) -> bool:
    """Equal in everything but the last digits of floats."""
    if isinstance(one, float) and isinstance(other, float | int):
        return math.isclose(one, other, abs_tol=TOLERANCE) or (math.isnan(one) and math.isnan(other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(equal(each, other[key]) for key, each in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(equal, one, other))
    return bool(one == other)


def differing(triton_answer: dict[str, Any], edgekit_answer: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Of both only what the other has not, or otherwise; where the codes differ, the bodies' kinds."""
    one, other = triton_answer, edgekit_answer
    if one["status"] != other["status"]:
        one, other = in_short(one), in_short(other)
    lone = one.keys() ^ other.keys()
    odd = {key for key in lone if not key.startswith("output ")}  # those are named in `outputs`
    odd |= {key for key in one.keys() & other.keys() if not equal(one[key], other[key])}
    return {key: one[key] for key in one if key in odd}, {key: other[key] for key in other if key in odd}


def in_short(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer's code, its type, and what kind of thing its body is; of a call the code alone."""
    if "type" not in answer:
        return {"status": answer["status"]}
    if answer.get("body") in ("empty", "no JSON"):
        kind = answer["body"]
    else:
        kind = next((key for key in ("error", "outputs") if key in answer), "JSON")
    return {"status": answer["status"], "type": answer["type"], "is": kind}


@contextlib.contextmanager
def pair(paths: Sequence[Path], folder: Path, unchecked: Sequence[str] = ()) -> Iterator[tuple[One, One]]:
    """Triton and edgekit with the same bundles. Of the names `unchecked`, Triton's model takes any sample."""
    repository = folder / "repository"
    for path in paths:
        write_model(repository, path, unchecked)
    loading = ("--model-control-mode=explicit", "--load-model=*")
    with triton.server(repository, folder / "triton", arguments=loading) as running:
        (folder / "edgekit").mkdir()
        server = Server.start(folder / "edgekit", "--drain-s", "0.1", *paths)
        try:
            http, admin = (url.rpartition("/")[2] for url in (server.http, server.admin))
            yield One(running.http, running.http, running.grpc, "1"), One(http, admin, server.grpc, "1.2.0")
        finally:
            server.stop()
        assert "internal error" not in server.log_text(), server.log_text()


def write_model(repository: Path, path: Path, unchecked: Sequence[str]) -> None:
    """A model of Triton's Python backend that has the bundle's name, inputs and outputs as edgekit serves them."""
    facts = bundle.read(path).manifest
    folder = repository / facts.name
    inputs = [Port(facts.raw.kind, facts.raw.dtype, facts.raw.shape)]
    outputs = [Port("output", "float32", facts.output_shape, "labels.txt"), Port("answer", "text", (1,))]
    (folder / "1").mkdir(parents=True)
    config = _formats.Config(facts.name, "python", LARGEST_BATCH, inputs, outputs, {})
    (folder / "config.pbtxt").write_bytes(_formats.pbtxt(config))
    (folder / "labels.txt").write_text("".join(f"{label}\n" for label in facts.labels))
    shutil.copy2(path, folder / "1" / "bundle.edge.zip")
    shutil.copy2(Path(__file__).with_name("triton_model.py"), folder / "1" / "model.py")
    (folder / "1" / "edgerun.pyz").write_bytes(runner_archive())
    if facts.name in unchecked:
        (folder / "1" / "unchecked").touch()
