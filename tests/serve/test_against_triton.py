"""edgekit's server held against a real Triton: the same requests to both, and a table of what is answered otherwise.

A request that is in no row of the table is answered alike: code, content type, names, types, shapes, values, form. One
that is in it is answered on both sides as the row says, and alike in all that the row leaves out.
"""

from __future__ import annotations

import http.client
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from edgekit import __version__
from tests.serve import triton_calls, triton_requests
from tests.serve.conftest import changed
from tests.serve.triton_calls import CALLS
from tests.serve.triton_pair import One, differing, pair
from tests.serve.triton_requests import FATAL, REQUESTS, TINY, body, get, infer, tensor

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "serve.md"
ROW = re.compile(r"\| (.+?) \| (.+?) \| (.+?) \|")
CODE = re.compile(r"\b[2-5]\d\d\b")


class Deviation(NamedTuple):
    """What some requests are answered otherwise. `row` is the page's name for it; no user meets what has none."""

    row: str
    triton: dict[str, Any]
    edgekit: dict[str, Any]
    why: str
    requests: tuple[str, ...]


BROKEN = (
    "malformed JSON", "no JSON", "JSON cut off", "JSON and more behind it", "a list", "a number", "null",
    "an empty object", "inputs that are an object", "input without a name", "input without a shape",
    "input without a datatype", "datatype that is a number", "shape below zero", "shape of floats",
    "shape that is text", "shape that is huge", "too few values", "too many values", "nested values that are too few",
    "value below the type", "fraction for a whole number", "whole number as a float", "text for a number",
    "true for a number", "null for a number", "data that is text", "output without a name", "output that is a number",
    "outputs that are an object", "classes below zero", "classes that are text", "binary_data that is a number",
    "binary_data_output that is text", "id that is a number", "parameters that are a list", "parameters that are null",
    "timeout below zero", "timeout that is text", "binary size below zero", "binary size as text",
    "binary size as a float", "header length within the JSON", "header length with a fraction",
    "binary input without a header length", "float too large in JSON", "deep JSON",
)  # fmt: skip
PLAIN_TEXT = (
    "POST to ready", "PUT to health", "GET of infer", "DELETE of infer", "version that is no number",
    "unknown part of a model", "unknown health", "no model named", "unknown path", "another protocol version",
    "unknown model", "unknown version", "header length beyond the body", "header length below zero",
    "header length of 400 digits", "NaN in JSON", "infinity in JSON", "sample out of range", "NaN in bytes",
    "infinity in bytes",
)  # fmt: skip
REFUSED = {"status": 400, "is": "error"}
ANSWERED = {"status": 200, "is": "outputs"}

DEVIATIONS = (
    Deviation(
        "malformed JSON, a key that is missing or of another type", {"status": 500}, {"status": 400},
        "it is the client's fault, and a 500 alarms whoever runs the server", BROKEN,
    ),
    Deviation(
        "refusals", {"type": "text/plain"}, {"type": "application/json"},
        "both send JSON, and here its name is right", PLAIN_TEXT,
    ),
    Deviation(
        "NaN in the input", {"status": 200, "is": "no JSON"}, REFUSED,
        "NaN is no JSON, and a bundle takes finite samples alone", ("NaN in JSON, no check", "NaN in bytes, no check"),
    ),
    Deviation(
        "number beyond the datatype", ANSWERED, REFUSED,
        "256 as UINT8 would be 0, another sample than the client meant", ("value above the type",),
    ),
    Deviation(
        "`id` of more than 256 characters", ANSWERED, REFUSED,
        "what a client sends is bounded, for it is kept and sent back", ("long id",),
    ),
    Deviation(
        "compressed body", ANSWERED, {"status": 415, "is": "error"},
        "a small body that grows without bound would pass the limits", ("compressed body",),
    ),
    Deviation(
        "compressed body", {"status": 400}, {"status": 415},
        "415 says that it is the coding", ("body said to be compressed",),
    ),
    Deviation(
        "`Accept-Encoding: gzip`", {"coding": "gzip"}, {},
        "an answer is small, and compressing it costs more than running most models", ("answer may be compressed",),
    ),
    Deviation(
        "raw body", {"outputs": ["output", "answer"]}, {"outputs": ["output"]},
        "it is the fastest way, and the text of `answer` costs more than the model", ("raw body", "raw body of floats"),
    ),
    Deviation(
        "outputs requested in another order than the model's",
        {"outputs": ["output", "answer"]}, {"outputs": ["answer", "output"]},
        "the answer lists what was asked for", ("outputs in another order", "binary output of some"),
    ),
    Deviation(
        "an output requested twice", {"outputs": ["output"]}, {"outputs": ["output", "output"]},
        "the answer lists what was asked for", ("an output twice",),
    ),
    Deviation(
        "unknown model or version at `/ready` or `/stats`", {"status": 400, "type": "text/plain"},
        {"status": 404, "type": "application/json"},
        "404, as everywhere else", ("unknown model ready", "unknown version ready"),
    ),
    Deviation(
        "unknown model or version at `/ready` or `/stats`", {"status": 400}, {"status": 404},
        "404, as everywhere else", ("unknown model's statistics",),
    ),
    Deviation(
        "`/health`", {"type": "text/plain", "body": "empty"}, {"type": "application/json", "live": True, "ready": True},
        "KServe's client reads it", ("live", "ready"),
    ),
    Deviation(
        "`/health`", {"type": "text/plain", "body": "empty"},
        {"type": "application/json", "name": "tiny", "ready": True},
        "KServe's client reads it", ("model ready", "version ready"),
    ),
    Deviation(
        "load with files or a config in it", {"status": 200, "is": "empty"}, REFUSED,
        "models are loaded only from the configured folders", ("load with a config",),
    ),
    Deviation(
        "load and unload", {"status": 200, "is": "empty"}, {"status": 404, "is": "error"},
        "whoever may ask a model may not change what is served", ("load on the port of inference",),
    ),
    Deviation(
        "load and unload", {"status": 200, "is": "JSON"}, {"status": 404, "is": "error"},
        "the index belongs to them", ("index on the port of inference",),
    ),
    Deviation(
        "load of an unknown model", {"status": 500}, {"status": 400}, "it is the client's fault",
        ("load of an unknown model",),
    ),
    Deviation(
        "unload of an unknown model", {"status": 200, "is": "empty"}, REFUSED, "a misspelt name is told",
        ("unload of an unknown model",),
    ),
    Deviation("", {"body": "empty"}, {"body": {}}, "what is called JSON is JSON", ("load",)),
    Deviation("", {"body": "no JSON"}, {"error": "a sentence"}, "Triton sends the broken text back", ("no UTF-8",)),
    Deviation(
        "", ANSWERED, REFUSED, "Triton does not look at them", ("input's parameters that are a number",),
    ),
    Deviation("", {"status": 405}, {"status": 200}, "RFC 9110 asks for HEAD beside GET", ("HEAD of the server",)),
    Deviation(
        "", {"status": 404, "type": "text/plain", "is": "error"},
        {"status": 200, "type": "application/json", "is": "JSON"}, "MLServer and KServe take the slash",
        ("server metadata, with a slash",),
    ),
    Deviation(
        "",
        {
            "name": "triton", "version": "2.51.0",
            "extensions": [
                "classification", "sequence", "model_repository", "model_repository(unload_dependents)",
                "schedule_policy", "model_configuration", "system_shared_memory", "cuda_shared_memory",
                "binary_tensor_data", "parameters", "statistics", "trace", "logging",
            ],
        },
        {
            "name": "edgekit", "version": __version__,
            "extensions": [
                "classification", "binary_tensor_data", "statistics", "model_configuration", "model_repository",
            ],
        },
        "another server", ("server metadata",),
    ),
    Deviation(
        "", {"platform": "python"}, {"platform": "edgekit_onnx"}, "another platform",
        ("model metadata", "version's metadata"),
    ),
    Deviation(
        "", {"platform": "", "backend": "python"}, {"platform": "edgekit_onnx", "backend": "edgekit"},
        "another backend", ("config", "version's config"),
    ),
    Deviation(
        "", {"response_stats": {}, "memory_usage": []}, {}, "of streams of answers and of GPUs, which are not here",
        ("statistics", "version's statistics", "all statistics"),
    ),
)  # fmt: skip

CALL_DEVIATIONS = (
    Deviation(
        "load and unload", {"status": "OK"}, {"status": "PERMISSION_DENIED"},
        "whoever may ask a model may not change what is served", ("load", "unload of an unknown model"),
    ),
    Deviation(
        "number beyond the datatype", {"status": "OK"}, {"status": "INVALID_ARGUMENT"},
        "256 as UINT8 would be 0, another sample than the client meant", ("typed contents above the type",),
    ),
    Deviation(
        "unknown model or version at `/ready` or `/stats`", {"status": "INVALID_ARGUMENT"}, {"status": "NOT_FOUND"},
        "as everywhere else", ("unknown model's statistics",),
    ),
    Deviation(
        "", {"status": "OK"}, {"status": "INVALID_ARGUMENT"}, "Triton does not look at the second",
        ("raw contents twice",),
    ),
    Deviation(
        "", {"status": "INTERNAL"}, {"status": "INVALID_ARGUMENT"}, "it is the client's fault", ("no message",),
    ),
    Deviation("", {"platform": "python"}, {"platform": "edgekit_onnx"}, "another platform", ("model metadata",)),
    Deviation(
        "", {"backend": "python"}, {"platform": "edgekit_onnx", "backend": "edgekit"}, "another backend", ("config",),
    ),
)  # fmt: skip

ENDS = "`classification` of an output that is text"
"""The page's name for what ends Triton."""
UNTRIED = {"the input"}
"""Rows of the page about Triton's native backends, which are not in the wheel."""


def table(deviations: tuple[Deviation, ...]) -> dict[str, Deviation]:
    return {name: each for each in deviations for name in each.requests}


@pytest.fixture(scope="module")
def paths(bundles: dict[str, Path], kinds: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    unchecked = tmp_path_factory.mktemp("unchecked") / "unchecked.edge.zip"
    pixels = kinds / "pixels.edge.zip"
    return [bundles["onnx"], pixels, changed(pixels, unchecked, name="unchecked")]


@pytest.fixture(scope="module")
def servers(paths: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[One, One]]:
    """Triton and edgekit; each has answered a request for each model, so that their statistics have all parts."""
    with pair(paths, tmp_path_factory.mktemp("pair"), ["unchecked"]) as both:
        for one in both:
            for name in ("JSON", "raw body of floats"):
                assert one.facts(REQUESTS[name])["status"] == 200
            assert one.facts(triton_requests.floats("0.5", triton_requests.UNCHECKED))["status"] == 200
        yield both


@pytest.mark.serving
@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_is_answered_as_by_triton_or_as_the_table_says(name: str, servers: tuple[One, One]) -> None:
    found = differing(*(one.facts(REQUESTS[name]) for one in servers))
    known = table(DEVIATIONS).get(name)
    assert found == ((known.triton, known.edgekit) if known else ({}, {}))


@pytest.mark.serving
@pytest.mark.parametrize("name", CALLS)
def test_a_call_is_answered_as_by_triton_or_as_the_table_says(name: str, servers: tuple[One, One]) -> None:
    found = differing(*(triton_calls.answered(one, CALLS[name]) for one in servers))
    known = table(CALL_DEVIATIONS).get(name)
    assert found == ((known.triton, known.edgekit) if known else ({}, {}))


@pytest.mark.serving
@pytest.mark.parametrize("name", FATAL)
def test_what_ends_triton_is_refused_here_and_the_next_request_is_answered(
    name: str, bundles: dict[str, Path], tmp_path: Path
) -> None:
    with pair([bundles["onnx"]], tmp_path) as (triton, edgekit):
        with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
            triton.facts(FATAL[name])
        with pytest.raises(ConnectionError):
            triton.facts(get("/v2/health/live"))
        assert edgekit.facts(FATAL[name])["status"] == 400
        assert edgekit.facts(REQUESTS["JSON"])["status"] == 200


@pytest.mark.serving
def test_statistics_count_good_requests_alike(servers: tuple[One, One]) -> None:
    """Executions are counted too: edgekit runs a batch in the sizes that pay, Triton's model gets it as it was sent."""

    def more(one: One) -> dict[str, int]:
        def read() -> Counter[str]:
            import urllib.request

            with urllib.request.urlopen(f"http://{one.http}{TINY}/stats", timeout=60) as answer:
                [found] = json.load(answer)["model_stats"]
            timed = {key: each["count"] for key, each in found["inference_stats"].items()}
            return Counter({"inference_count": found["inference_count"], **timed})

        before = read()
        for content in (body(), body(), body(tensor(5))):
            assert one.facts(infer(content))["status"] == 200
        return dict(read() - before)

    triton, edgekit = map(more, servers)
    assert triton == edgekit == {key: 3 for key in triton} | {"inference_count": 7}


def test_tables_name_only_requests_that_are_sent_and_each_once() -> None:
    for deviations, sent in ((DEVIATIONS, REQUESTS), (CALL_DEVIATIONS, CALLS)):
        names = Counter(name for each in deviations for name in each.requests)
        assert names.keys() <= sent.keys()
        assert set(names.values()) <= {1}
        assert all(each.why and each.triton != each.edgekit for each in deviations)


def test_the_page_names_every_deviation_that_users_meet_with_its_codes() -> None:
    section = PAGE.read_text().partition("## Where it differs from Triton")[2].partition("\n## ")[0]
    rows = {what: cells for what, *cells in ROW.findall(section) if what != "request" and set(what) != {"-"}}
    known = [each for each in (*DEVIATIONS, *CALL_DEVIATIONS) if each.row]
    assert rows.keys() == {each.row for each in known} | UNTRIED | {ENDS}
    for row, (triton, edgekit) in rows.items():
        shown = [each for each in known if each.row == row and "status" in each.triton]
        for cell, side in ((triton, "triton"), (edgekit, "edgekit")):
            asserted = {str(getattr(each, side)["status"]) for each in shown}
            assert set(CODE.findall(cell)) in (set(), set(CODE.findall(" ".join(asserted)))) or row == ENDS
