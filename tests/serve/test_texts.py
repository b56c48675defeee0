"""Texts sent to a server: the ids and the answers are those of the runner for the same file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http as client  # type: ignore[import-untyped]

from edgekit.runner import inputs, load
from tests.runner.conftest import npy
from tests.runner.inputs.test_texts import MEMBERS, SIZE, TOKENS, packed, raw
from tests.serve.conftest import Start
from tests.serve.server import RAW, Server
from tests.serve.test_page import browser, open_page, until  # noqa: F401  (fixture: a real browser)
from tests.serve.test_predict import BAD, refused
from tests.serve.test_protocol import wire_answer

pytestmark = pytest.mark.processes

GOOD = {
    "words": b"Win a FREE prize, call now!",
    "marked": b"\xef\xbb\xbfsee you at home",
    "like a table": b"free,prize\n1,2\n",
    "like a sound": b"RIFX and RF64 are kinds of WAV",
    "like a picture": b"RIFF of a WEBP",
    "like JSON": b'{"inputs": [1, 2]}',
    "unknown words": "Jürgen 家 🙂".encode(),
    "longer than the sample": b"win a free prize " * 9,
}
CUT = {"longer than the sample": 38, "like JSON": 13}
"""Tokens of those that are longer than a sample."""
BAD_TEXTS = {
    "nothing": (b"", 415, "got nothing; this model takes .npy, .txt"),
    "blanks": (b" \r\n\t ", 400, "body: an empty text, which has no tokens"),
    "Latin 1": (b"caf\xe9", 400, "body: not text in UTF-8 (byte 3); save it in UTF-8"),
    "with a nought": (b"free\0prize", 400, "body: holds U+0000, so it is not text"),
    "UTF-16": ("hi".encode("utf-16"), 400, "body: not text in UTF-8 (byte 0)"),
    "a picture": (BAD["png, huge"], 415, "got a picture; this model takes .npy, .txt"),
    "too many bytes": (b"a" * ((1 << 20) + 1), 400, "body: more than 1,048,576 bytes"),
    "an array of floats": (npy(np.zeros(TOKENS, np.float32)), 400, "the bundle takes int32[12] (text)"),
    "an id that is none": (npy(np.full(TOKENS, SIZE, np.int32)), 400, f"the bundle's vocabulary has 0 to {SIZE - 1}"),
}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return packed(tmp_path_factory.mktemp("texts") / "texts.edge.zip", raw(), MEMBERS)


@pytest.fixture(scope="module")
def server(start: Start, path: Path) -> Server:
    return start(path)


def answer(path: Path, content: bytes, folder: Path) -> Any:
    """The runner's, for a file of these bytes."""
    (folder / "x.txt").write_bytes(content)
    [found] = load(path, trial=False).predict_file(folder / "x.txt")
    return wire_answer({**(found.span.facts() if found.span else {}), **found.prediction.to_dict()})


@pytest.mark.parametrize("case", GOOD)
@pytest.mark.parametrize("content_type", ["text/plain", "text/csv", ""])
def test_a_text_gets_the_runners_answer(
    case: str, content_type: str, server: Server, path: Path, tmp_path: Path
) -> None:
    reply = server.ask("PUT", "/predict", GOOD[case], {"Content-Type": content_type} if content_type else None)
    assert reply.status == 200, reply
    assert reply.json()["answers"] == [answer(path, GOOD[case], tmp_path)]
    cut = {"kept": TOKENS, "tokens": CUT[case]} if case in CUT else None
    assert reply.json()["answers"][0].get("cut") == cut


@pytest.mark.parametrize("case", BAD_TEXTS)
def test_what_is_no_text_is_refused_with_a_sentence(case: str, server: Server) -> None:
    body, status, sentence = BAD_TEXTS[case]
    assert sentence in refused(server.post("/predict", body, {"Content-Type": "text/plain"}), status)


def test_a_text_too_long_is_refused_where_none_is_cut(start: Start, tmp_path: Path) -> None:
    server = start(packed(tmp_path / "strict.edge.zip", raw("refuse"), MEMBERS))
    error = refused(server.post("/predict", GOOD["longer than the sample"]), 400)
    assert error == "body: 38 tokens, but the bundle takes 12; shorten the text"
    assert server.post("/predict", GOOD["words"]).status == 200


def test_ids_go_over_the_protocol_as_int32(server: Server, path: Path, tmp_path: Path) -> None:
    """As a tensor of several, and as one sample's bytes and nothing else."""
    model, samples = load(path, trial=False), []
    for number, case in enumerate(("words", "like JSON", "marked")):
        (tmp_path / f"{number}.txt").write_bytes(GOOD[case])
        samples.append(inputs.read_first_sample(str(tmp_path / f"{number}.txt"), raw(), members=MEMBERS))
    triton = client.InferenceServerClient(server.url)
    [known] = triton.get_model_metadata("texts")["inputs"]
    assert known == {"name": "text", "datatype": "INT32", "shape": [-1, TOKENS]}
    x = np.stack(samples)
    for binary in (True, False):
        tensor = client.InferInput("text", x.shape, "INT32")
        tensor.set_data_from_numpy(x, binary_data=binary)
        found = triton.infer("texts", [tensor])
        answers = [json.loads(each) for each in found.as_numpy("answer").ravel()]
        alone = [wire_answer(model.predict(sample).to_dict()) for sample in samples]
        for one, other in zip(
            answers, alone, strict=True
        ):  # a batch's last bits may be others than those of one sample
            assert one["label"] == other["label"]
            assert dict(one["top"]) == pytest.approx(dict(other["top"]), abs=1e-6)
    for sample in samples:
        reply = server.post("/v2/models/texts/infer", sample.astype("<i4").tobytes(), RAW)
        place = int(reply.headers["inference-header-content-length"])
        assert np.frombuffer(reply.body, "<f4", 2, place).tolist() == model.predict(sample).scores.tolist()


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ([SIZE] * TOKENS, f"the bundle's vocabulary has 0 to {SIZE - 1}"),
        ([-1] * TOKENS, "token ids from -1 to -1"),
        ([2**31] * TOKENS, "use whole numbers from -2147483648 to 2147483647"),
        ([0.5] * TOKENS, "use whole numbers"),
        (["free"] * TOKENS, "must contain only numbers"),
    ],
)
def test_ids_that_are_none_are_refused(data: list[object], sentence: str, server: Server) -> None:
    tensor = {"name": "text", "datatype": "INT32", "shape": [1, TOKENS], "data": data}
    assert sentence in refused(server.post("/v2/models/texts/infer", {"inputs": [tensor]}), 400)


def test_the_page_takes_a_text_that_is_written_there(browser: Any, server: Server, path: Path, tmp_path: Path) -> None:  # noqa: F811
    open_page(browser, server)
    until(browser, "!document.getElementById('written').hidden")
    browser.ask("document.getElementById('text').value = 'Win a free prize \u00fc'")
    browser.ask("document.querySelector('#written button').click()")
    until(browser, "document.getElementById('answer').textContent.includes('label')")
    [shown] = json.loads(browser.ask("document.getElementById('answer').textContent"))
    assert shown == answer(path, "Win a free prize ü".encode(), tmp_path)


def test_the_page_has_no_place_for_texts_where_the_model_takes_pictures(
    browser: Any,  # noqa: F811
    start: Start,
    kinds: Path,
) -> None:
    open_page(browser, start(kinds / "image.edge.zip"))
    assert browser.ask("document.getElementById('written').hidden")
