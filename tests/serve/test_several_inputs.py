"""Models of several inputs over HTTP: each tensor by its own name, in any order and form, and none of them rounded."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http as client  # type: ignore[import-untyped]

from edgekit.runner import load
from edgekit.runner.model import Model
from tests.conftest import ROOT
from tests.docs import pages, scene
from tests.runner.conftest import npy
from tests.serve.conftest import Start
from tests.serve.server import RAW, Reply, Server
from tests.serve.several import (
    DATATYPES,
    FIVE,
    LARGEST,
    TARGETS,
    TWO,
    npz,
    request,
    samples,
    tensor,
    vectors,
    write,
    write_echo,
    write_state,
)
from tests.serve.test_predict import refused
from tests.serve.test_protocol import binary, outputs, wire_answer

pytestmark = pytest.mark.processes

ONNX, FIVE_AT = "/v2/models/two-onnx", "/v2/models/five"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("several")
    for target in TARGETS:
        write(target, made)
    write_echo(made)
    write_state(made)
    return made


@pytest.fixture(scope="module")
def server(start: Start, folder: Path) -> Server:
    return start(folder)


def own(folder: Path, name: str) -> Model:
    return load(folder / f"{name}.edge.zip", threads=1, trial=False)


def values(reply: Reply, name: str = "output") -> np.ndarray:
    found = outputs(reply)[name]
    return np.array(found["data"], np.float32).reshape(found["shape"])


@pytest.mark.parametrize("target", TARGETS)
def test_fifty_random_samples_in_all_forms_get_the_runners_answers(server: Server, folder: Path, target: str) -> None:
    model = own(folder, f"two-{target}")
    forms = [None, (False, True), (True, False), (True, True)]
    for number, sample in enumerate(samples(50)):
        sent = dict(reversed(sample.items())) if number % 2 else sample
        form = forms[number // 2 % 4]
        reply = server.post(f"/v2/models/two-{target}/infer", *request([sent], iter(form) if form else None))
        answer = model.predict(sample)
        assert answer.scores is not None
        assert values(reply).tobytes() == model.execute(model.prepare(vectors([sample])[0])).tobytes()
        assert json.loads(outputs(reply)["answer"]["data"][0]) == wire_answer(answer.to_dict())


@pytest.mark.parametrize("form", [None, True, "mixed"])
def test_tensors_of_all_datatypes_arrive_in_their_places_bit_for_bit(server: Server, form: Any) -> None:
    many = samples(7, FIVE)
    many[0]["large"][:] = [[LARGEST], [-LARGEST]]
    many[1]["counts"][:] = LARGEST - 1
    many[2]["signed"][:] = [-128, 127]
    many[3]["floats"][:] = [np.finfo(np.float32).max, -0.0, np.finfo(np.float32).tiny]
    flags: Iterator[bool] | None = None if form is None else itertools.cycle([True] if form is True else [True, False])
    for order in itertools.islice(itertools.permutations(many[0]), 0, 120, 17):
        sent = [{name: each[name] for name in order} for each in many]
        found = values(server.post(f"{FIVE_AT}/infer", *request(sent, flags)))
        assert found.tobytes() == vectors(many).tobytes()


def test_metadata_and_configuration_state_each_tensor(server: Server) -> None:
    for path, tensors in ((f"{ONNX[:-5]}-tflite", TWO), (ONNX, TWO), (FIVE_AT, FIVE)):
        stated_inputs = [
            {"name": each["name"], "datatype": DATATYPES[each["dtype"]], "shape": [-1, *each["shape"]]}
            for each in tensors
        ]
        assert server.get(path).json()["inputs"] == stated_inputs
        configured = [
            (each["name"], each["data_type"], each["dims"]) for each in server.get(f"{path}/config").json()["input"]
        ]
        assert configured == [(each["name"], f"TYPE_{DATATYPES[each['dtype']]}", each["shape"]) for each in tensors]
    [status] = [each for each in server.get("/status").json()["models"] if each["name"] == "two-onnx"]
    assert (status["input"], status["kind"]) == ("picture FP32 [1, 4, 4], ids INT32 [6]", "tensors")


PICTURE = tensor("picture", samples(1)[0]["picture"][None])
IDS = tensor("ids", samples(1)[0]["ids"][None])
BARE = {key: each for key, each in IDS.items() if key != "data"}
TWICE = tensor("ids", np.stack([each["ids"] for each in samples(2)]))
BAD: dict[str, tuple[Any, tuple[str, ...]]] = {
    "nothing": (None, ("got nothing", "2 inputs, 'picture', 'ids'")),
    "no list": ({"a": 1}, ("got {'a': 1}", "2 inputs")),
    "none": ([], ("got 0", "2 inputs, 'picture', 'ids'")),
    "one missing": ([PICTURE], ("got 1, 'picture'", "2 inputs, 'picture', 'ids'")),
    "one more": ([PICTURE, IDS, {**IDS, "name": "x"}], ("got 3, 'picture', 'ids', 'x'", "2 inputs")),
    "no object": ([PICTURE, 7], ("inputs[1]: got 7", "object")),
    "unknown": ([{**PICTURE, "name": "image"}, IDS], ("inputs[0].name: got 'image'", "'picture', 'ids'")),
    "a name that is none": ([{**PICTURE, "name": ["picture"]}, IDS], ("inputs[0].name: got ['picture']",)),
    "no name": ([PICTURE, {**IDS, "name": None}], ("inputs[1].name: got nothing", "'picture', 'ids'")),
    "doubled": ([IDS, IDS], ("inputs[1].name: got 'ids' twice", "'picture', 'ids'")),
    "another count": ([PICTURE, TWICE], ("inputs[1].shape: got 2 samples; inputs[0] has 1",)),
    "another datatype": ([PICTURE, {**IDS, "datatype": "INT64"}], ("inputs[1].datatype: got 'INT64'", "INT32")),
    "another shape": ([{**PICTURE, "shape": [1, 4, 4, 1]}, IDS], ("inputs[0].shape: got [1, 4, 4, 1]", "[n, 1, 4, 4]")),
    "no samples": ([PICTURE, {**IDS, "shape": [0, 6], "data": []}], ("inputs[1].shape: got 0 samples", "1 to 256")),
    "too few values": ([PICTURE, {**IDS, "data": [1] * 5}], ("inputs[1].data: got [5]", "6 values")),
    "fractions": ([PICTURE, {**IDS, "data": [0.5] * 6}], ("inputs[1].data: use whole numbers",)),
    "beyond the datatype": ([PICTURE, {**IDS, "data": [2**31] * 6}], ("inputs[1].data: use whole numbers",)),
    "out of range": ([PICTURE, {**IDS, "data": [0, 10, 0, 0, -1, 0]}], ("'ids' has values from -1 to 10", "0 to 9")),
    "floats out of range": ([{**PICTURE, "data": [10.0] * 16}, IDS], ("picture", "from 10 to 10", "-9 to 9")),
    "NaN": ([{**PICTURE, "data": ["NaN"] * 16}, IDS], ("inputs[0].data: must contain only numbers",)),
    "infinity": ([{**PICTURE, "data": [1e300] * 16}, IDS], ("NaN or infinity",)),
    "no data": ([PICTURE, {**IDS, "data": None}], ("inputs[1].data: got nothing",)),
    "bytes that are missing": (
        [PICTURE, {**BARE, "parameters": {"binary_data_size": 24}}],
        ("body: 0 binary bytes, but binary_data_size says 24",),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_does_not_fit_is_refused_with_what_was_got_and_what_is_taken(server: Server, name: str) -> None:
    inputs, words = BAD[name]
    error = refused(server.post(f"{ONNX}/infer", {"inputs": inputs} if inputs is not None else {}), 400)
    assert all(word in error for word in words), error


@pytest.mark.parametrize("number", [LARGEST + 1, -LARGEST - 1, 2**40, 2**63 - 1, -(2**63), 2**63, 2**64])
@pytest.mark.parametrize("form", [None, (True,) * 5])
def test_whole_numbers_that_would_be_rounded_are_refused(server: Server, number: int, form: Any) -> None:
    [sample] = samples(1, FIVE)
    if not -(2**63) <= number < 2**63:
        body = {"inputs": [tensor(name, x[None]) for name, x in sample.items()]}
        body["inputs"][4]["data"] = [number, 0]
        reply = server.post(f"{FIVE_AT}/infer", body)
    else:
        sample["large"][0] = number
        reply = server.post(f"{FIVE_AT}/infer", *request([sample], iter(form) if form else None))
    assert "inputs[4]" in refused(reply, 400)


def test_bytes_that_are_left_or_lacking_are_refused(server: Server) -> None:
    body, headers = request(samples(1), iter((True, True)))
    for changed, word in (
        (body + b"1", "1 bytes remain"),
        (body[:-1], "87 binary bytes, but binary_data_size says 88"),
    ):
        assert word in refused(server.post(f"{ONNX}/infer", changed, headers), 400)


def test_a_body_of_bytes_alone_is_refused_as_triton_refuses_it(server: Server) -> None:
    error = refused(server.post(f"{ONNX}/infer", bytes(88), RAW), 400)
    assert "got 88 bytes alone" in error and "'picture', 'ids'" in error and "JSON header" in error


@pytest.mark.parametrize("target", TARGETS)
def test_an_npz_file_gets_the_runners_answer(server: Server, folder: Path, target: str, tmp_path: Path) -> None:
    [sample] = samples(1)
    (tmp_path / "one.npz").write_bytes(npz({**sample, "ids": sample["ids"].astype(np.int64)}))
    [expected] = own(folder, f"two-{target}").predict_file(tmp_path / "one.npz")
    reply = server.ask("PUT", f"/predict/one.npz?model=two-{target}", (tmp_path / "one.npz").read_bytes())
    assert reply.json()["answers"] == [wire_answer(expected.prediction.to_dict())]
    joined = server.ask("PUT", f"/predict?model=two-{target}", npy(vectors([sample])[0]))
    assert joined.json()["answers"] == reply.json()["answers"]


def test_a_file_that_is_no_sample_is_refused(server: Server) -> None:
    [sample] = samples(1)
    bad = {
        "give picture, ids": npz({"picture": sample["picture"]}),
        "tensor ids: got int32[5]": npz({**sample, "ids": sample["ids"][:5]}),
        "the bundle takes 0 to 9": npz({**sample, "ids": sample["ids"] + 10}),
        "body: not an .npz": npz(sample)[:-30],
        "one sample has at most": npz({**sample, "more": np.zeros(10**5)}),
        "body: tensors: got none": b"PK\x05\x06" + bytes(18),
    }
    for word, data in bad.items():
        assert word in refused(server.ask("PUT", "/predict?model=two-onnx", data), 400), word
    for data in (b"", b"hello", b"1,2\n", b"\x89PNG\r\n\x1a\n"):
        assert ".npz" in refused(server.ask("PUT", "/predict?model=two-onnx", data), 415)


def test_every_sample_of_a_model_with_a_state_begins_with_zeros(server: Server, folder: Path) -> None:
    many = samples(3)
    model = own(folder, "running")
    alone = np.stack([model.execute(model.prepare(x)) for x in vectors(many)])
    for _ in range(2):
        assert values(server.post("/v2/models/running/infer", *request(many))).tobytes() == alone.tobytes()


def test_samples_run_in_one_call_where_that_pays(start: Start, folder: Path, tmp_path: Path) -> None:
    """The record of a measured curve is rewritten, so that sixteen at once pay on any machine."""
    where = {"XDG_CACHE_HOME": str(tmp_path)}
    first = Server.start(tmp_path, str(folder / "two-onnx.edge.zip"), **where)
    first.wait_ready()
    first.stop()
    [record] = (tmp_path / "edgerun").glob("curve-*.json")
    kept = json.loads(record.read_text())
    assert "16" in kept["ms"], kept["refused"]
    record.write_text(json.dumps({**kept, "ms": {"1": 5.0, "16": 6.0}}))
    second = Server.start(tmp_path, str(folder / "two-onnx.edge.zip"), **where)
    try:
        second.wait_ready()
        many = samples(16)
        found = values(second.post("/v2/models/two/infer", *request(many, iter((True, False)))))
        [stats] = second.get("/v2/models/two/stats").json()["model_stats"]
    finally:
        second.stop()
    assert [each["batch_size"] for each in stats["batch_stats"] if each["compute_infer"]["count"]] == [16]
    model = own(folder, "two-onnx")
    alone = np.stack([model.execute(model.prepare(x)) for x in vectors(many)])
    np.testing.assert_allclose(found, alone, atol=1e-6)


def test_the_cache_knows_a_sample_in_every_form_and_order(start: Start, folder: Path) -> None:
    server = start(folder / "two-onnx.edge.zip", "--cache-mb", 1)
    one, other = samples(2)
    forms = [request([one]), request([dict(reversed(one.items()))]), request([one], iter((True, True)))]
    replies = [values(server.post("/v2/models/two/infer", *each)) for each in forms]
    assert len({each.tobytes() for each in replies}) == 1
    mixed = values(server.post("/v2/models/two/infer", *request([{**one, "ids": other["ids"]}])))
    assert mixed.tobytes() != replies[0].tobytes()
    [status] = server.get("/status").json()["models"]
    assert (status["cache_hits"], status["cache_misses"]) == (2, 2)
    [answer] = server.ask("PUT", "/predict", npz(one)).json()["answers"]
    assert answer == wire_answer(own(folder, "two-onnx").predict(one).to_dict())


@pytest.mark.parametrize("form", [True, False])
def test_tritonclient_sends_several_inputs(server: Server, folder: Path, form: bool) -> None:
    many = samples(3)
    inputs = []
    for name in ("ids", "picture"):
        x = np.stack([each[name] for each in many])
        inputs.append(client.InferInput(name, list(x.shape), DATATYPES[x.dtype.name]))
        inputs[-1].set_data_from_numpy(x, binary_data=form)
    with client.InferenceServerClient(server.url) as triton:
        answer = triton.infer("two-openvino", inputs)
    model = own(folder, "two-openvino")
    expected = np.stack([model.execute(model.prepare(x)) for x in vectors(many)])
    np.testing.assert_allclose(answer.as_numpy("output"), expected, atol=1e-6)  # two at once may differ in the last bit
    labels = [json.loads(each)["label"] for each in answer.as_numpy("answer").ravel()]
    assert labels == [model.predict(each).label for each in many]


@pytest.mark.parametrize(
    "command",
    [
        pytest.param("curl -T sample.npz localhost:8000/predict", marks=pytest.mark.needs(program="curl")),
        "python ask_several.py",
    ],
)
def test_the_pages_own_lines_are_answered(start: Start, folder: Path, tmp_path: Path, command: str) -> None:
    page, server = ROOT / "docs/how-to/serve.md", start(folder / "two-onnx.edge.zip")
    assert command in pages.commands(page)
    scene.written(page, tmp_path)
    script = tmp_path / "ask_several.py"
    script.write_text(script.read_text().replace("localhost:8000", server.url).replace('"room"', '"two"'))
    [sample] = samples(1)
    (tmp_path / "sample.npz").write_bytes(npz(sample))
    line = command.replace("localhost:8000", server.url).replace("python", sys.executable)
    done = subprocess.run(line.split(), cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f'"label":"{own(folder, "two-onnx").predict(sample).label}"' in done.stdout


def test_binary_answers_are_those_of_json(server: Server) -> None:
    body, headers = request(samples(2), iter((True, True)))
    length = int(headers["Inference-Header-Content-Length"])
    header = json.dumps({**json.loads(body[:length]), "parameters": {"binary_data_output": True}}).encode()
    headers = {"Inference-Header-Content-Length": str(len(header))}
    _, found = binary(server.post(f"{ONNX}/infer", header + body[length:], headers))
    plain = values(server.post(f"{ONNX}/infer", *request(samples(2))))
    assert found["output"] == plain.tobytes()
