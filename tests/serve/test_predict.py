"""Files as they are, sent to /predict: the answers are those of the runner for the same file."""

from __future__ import annotations

import io
import json
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from edgekit.runner import bundle, load
from edgekit.runner.bundle.manifest import RawSpec
from tests.runner import flat
from tests.runner.conftest import manifest_for, members_for
from tests.runner.test_postprocess import GOLDEN, scaled
from tests.serve.conftest import Start
from tests.serve.server import Reply, Server
from tests.serve.test_protocol import stats, wire_answer

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def server(start: Start, kinds: Path) -> Server:
    """Without batches, whose instances may round otherwise than the runner does."""
    return start(kinds, "--max-body-mb", 4, "--no-batch")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, Path]]:
    """By a word: which model a file is for, and the file."""
    folder = tmp_path_factory.mktemp("files")
    rng = np.random.default_rng(3)
    picture = Image.fromarray(rng.integers(0, 256, (31, 45, 3), np.uint8))
    picture.save(folder / "a.png")
    picture.save(folder / "a.jpg", exif=b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0")
    picture.save(folder / "a.webp", lossless=True)
    picture.convert("P").save(folder / "palette.png")
    np.save(folder / "image.npy", flat.examples(flat.PICTURE, 1)[0])
    np.save(folder / "vector.npy", flat.examples(flat.VECTOR, 1)[0])
    np.save(folder / "pixels.npy", flat.examples(flat.PIXELS, 1)[0])
    sound = (rng.normal(0, 3000, 2100)).astype(int).clip(-32768, 32767).tolist()
    (folder / "a.wav").write_bytes(flat.riff(flat.form(1, 16), flat.coded(sound, 16)))
    (folder / "b.wav").write_bytes(flat.riff(flat.form(1, 16, rate_hz=16000), flat.coded(sound, 16)))
    rows = rng.normal(0, 1, (13, 3))
    (folder / "a.csv").write_text("ax,ay,az\n" + "".join(",".join(f"{v:.4f}" for v in row) + "\n" for row in rows))
    by_model = {
        "image": ("a.png", "a.jpg", "a.webp", "palette.png", "image.npy"), "vector": ("vector.npy",),
        "pixels": ("pixels.npy",), "recording": ("a.wav", "b.wav"), "table": ("a.csv",),
    }  # fmt: skip
    return {name: (model, folder / name) for model, names in by_model.items() for name in names}


NAMES = ("a.png", "a.jpg", "a.webp", "palette.png", "image.npy", "vector.npy", "pixels.npy", "a.wav", "b.wav", "a.csv")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_a_file_gets_the_runners_answers(
    server: Server, kinds: Path, files: dict[str, tuple[str, Path]], name: str, method: str
) -> None:
    model, path = files[name]
    runner = load(kinds / f"{model}.edge.zip", threads=1)
    expected = []
    for found in runner.predict_file(path, top_k=2):
        window = {"window": found.span.to_dict()} if found.span else {}
        expected.append({**json.loads(json.dumps(window)), **wire_answer(found.prediction.to_dict())})
    before = stats(server, model)
    reply = server.ask(method, f"/predict?model={model}&top=2", path.read_bytes())
    assert reply.status == 200, reply
    body = reply.json()
    assert (body["model"], body["version"]) == (model, "1.2.0")
    assert body["answers"] == expected
    assert len(expected) == {"a.wav": 5, "b.wav": 2, "a.csv": 3}.get(name, 1)
    after = stats(server, model)
    assert after["inference_count"] - before["inference_count"] == len(expected)
    succeeded = [each["inference_stats"]["success"]["count"] for each in (before, after)]
    assert succeeded[1] - succeeded[0] == 1  # one request, however many windows


def test_the_name_of_a_file_behind_the_path_changes_nothing(server: Server, files: dict[str, tuple[str, Path]]) -> None:
    """`curl -T cat.png http://…/predict/` sends it so."""
    data = files["a.png"][1].read_bytes()
    for path in ("/predict/cat.png?model=image", "/predict/..%2f..%2fetc?model=image", "/predict/%00?model=image"):
        assert server.ask("PUT", path, data).status == 200


@pytest.mark.parametrize("content_type", ["image/png", "text/plain", "application/json", "nonsense"])
def test_a_content_type_is_not_believed(server: Server, files: dict[str, tuple[str, Path]], content_type: str) -> None:
    reply = server.post("/predict?model=image", files["a.png"][1].read_bytes(), {"Content-Type": content_type})
    assert reply.status == 200


def refused(reply: Reply, *statuses: int) -> str:
    assert reply.status in statuses, reply
    assert reply.headers["content-type"] == "application/json"
    assert "/proc" not in reply.error
    assert "Traceback" not in reply.error
    return reply.error


def test_a_form_is_refused_with_what_to_do(server: Server, files: dict[str, tuple[str, Path]]) -> None:
    body = b'--x\r\nContent-Disposition: form-data; name="a"; filename="a.png"\r\n\r\n' + files["a.png"][1].read_bytes()
    reply = server.post(
        "/predict?model=image", body + b"\r\n--x--\r\n", {"Content-Type": "Multipart/Form-Data; boundary=x"}
    )
    assert "curl -T" in refused(reply, 415)


@pytest.mark.parametrize("top", ["0", "-1", "x", "", "1.5", "1001", "9" * 100, "%F0%9F%90%88"])
def test_top_is_a_whole_number(server: Server, files: dict[str, tuple[str, Path]], top: str) -> None:
    data = files["a.png"][1].read_bytes()
    reply = server.post(f"/predict?model=image&top={top}", data)
    if top:
        assert "top" in refused(reply, 400)
    assert len(server.post("/predict?model=image&top=1", data).json()["answers"][0]["top"]) == 1


@pytest.mark.parametrize("query", ["", "?model=nobody", "?model=", "?Model=image", "?model=../image", "?model=%0a"])
def test_which_model_must_be_said_where_several_are_served(server: Server, query: str) -> None:
    assert "image" in refused(server.post(f"/predict{query}", b"x"), 404)


def npy(header: str, data: bytes = b"") -> bytes:
    text = header.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data


def png(width: int, height: int, data: bytes) -> bytes:
    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")


def saved(value: Any, **options: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, value, **options)
    return buffer.getvalue()


BAD = {
    "nothing": b"",
    "text": b"hello",
    "bytes": bytes(range(256)) * 10,
    "json": b'{"a": [1, 2]}',
    "pdf": b"%PDF-1.4\n",
    "gif": b"GIF89a" + bytes(50),
    "zip": b"PK\x03\x04" + bytes(50),
    "png, cut": png(6, 10, bytes(70))[:40],
    "png, a lie": png(60_000, 60_000, bytes(1000)),
    "png, huge": png(100_000, 100_000, b""),
    "png, many pixels": png(9000, 9000, bytes(9001 * 100)),
    "jpeg, cut": b"\xff\xd8\xff\xe0" + bytes(20),
    "webp, cut": b"RIFF\x10\0\0\0WEBPVP8 " + bytes(10),
    "riff of what": b"RIFF\x10\0\0\0AVI " + bytes(10),
    "npy, cut": b"\x93NUMPY",
    "npy, huge": npy("{'descr': '|u1', 'fortran_order': False, 'shape': (1000000000000,)}"),
    "npy, huge and short": npy("{'descr': '|u1', 'fortran_order': False, 'shape': (10, 6, 3)}", b"1"),
    "npy, negative": npy("{'descr': '|u1', 'fortran_order': False, 'shape': (-1,)}"),
    "npy, code": npy("{'descr': __import__('os').system('true'), 'fortran_order': False, 'shape': (1,)}"),
    "npy, objects": saved(np.array([{"a": 1}], dtype=object), allow_pickle=True),
    "npy, another shape": saved(np.zeros((3, 3, 3), np.uint8)),
    "npy, another type": saved(np.zeros((6, 10, 3), np.float64)),
    "npy, text": saved(np.array(["a", "b"])),
    "wav": flat.riff(flat.form(1, 16), flat.coded([1] * 800, 16)),
    "csv": b"ax,ay,az\n1,2,3\n",
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_picture_is_refused_with_a_sentence(server: Server, name: str) -> None:
    error = refused(server.post("/predict?model=image", BAD[name]), 400, 415)
    assert len(error) > 10


BAD_SOUNDS = {
    "nothing": b"",
    "picture": png(6, 10, bytes(70)),
    "no form": b"RIFF\x04\0\0\0WAVE",
    "no channels": flat.riff(flat.form(1, 16, channels=0), bytes(800)),
    "no rate": flat.riff(flat.form(1, 16, rate_hz=0), bytes(800)),
    "no bits": flat.riff(flat.form(1, 0), bytes(800)),
    "too short": flat.riff(flat.form(1, 16), bytes(20)),
    "endless": flat.riff(flat.form(1, 16), bytes(20), length=0xFFFFFFFF),
    "many channels": flat.riff(flat.form(1, 16, channels=30000), bytes(20)),
    "a rate beyond reason": flat.riff(flat.form(1, 16, rate_hz=1), flat.coded([1] * 1000, 16)),
    "another code": flat.riff(flat.form(85, 16), bytes(800)),
    "not finite": flat.riff(flat.form(3, 32), struct.pack("<f", float("nan")) * 800),
    "rf64": b"RF64" + bytes(100),
    "rifx": b"RIFX" + bytes(100),
}


@pytest.mark.parametrize("name", BAD_SOUNDS)
def test_a_file_that_is_no_wav_is_refused_with_a_sentence(server: Server, name: str) -> None:
    for model in ("audio", "recording"):
        refused(server.post(f"/predict?model={model}", BAD_SOUNDS[name]), 400, 413, 415)


def test_a_recording_of_too_many_windows_is_refused(server: Server) -> None:
    data = flat.riff(flat.form(1, 16), bytes(2 * 400 * 1100))
    assert "1024 samples" in refused(server.post("/predict?model=recording", data), 413)


@pytest.mark.parametrize(
    "text",
    ["a,b\n1,2\n", "ax,ay,az\n1,2\n", "ax,ay,az\n", "ax,ay,az\n" + "nan,1,1\n" * 5, ",,,\n", "ax,ay,az\nx,y,z\n" * 5]
)  # fmt: skip
def test_what_is_no_table_is_refused_with_a_sentence(server: Server, text: str) -> None:
    for model in ("window", "table"):
        refused(server.post(f"/predict?model={model}", text.encode()), 400)


def test_one_model_alone_needs_no_name(start: Start, bundles: dict[str, Path]) -> None:
    server = start(bundles["openvino"], "--admin-port", "none")
    picture = io.BytesIO()
    Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8)).save(picture, "PNG")
    reply = server.ask("PUT", "/predict", picture.getvalue())
    assert reply.status == 200
    assert reply.json()["model"] == "tiny"
    assert server.post("/predict", BAD["png, many pixels"]).status == 400


def test_a_sample_without_an_embedding_is_refused_and_the_next_is_answered(start: Start, tmp_path: Path) -> None:
    made = scaled((3,), 1.0)
    x, raw = np.array([[3, 0, 4]], np.float32), RawSpec("vector", (3,), "float32")
    manifest = manifest_for(made, task="embedding", activation="none", labels=[], raw=raw, preprocess=[], golden=GOLDEN)
    bundle.write(tmp_path / "vectors.edge.zip", manifest, members_for(made, x, x))
    server = start(tmp_path / "vectors.edge.zip")
    message = refused(server.post("/predict", saved(np.zeros(3, np.float32)), {}), 400)
    assert message.startswith("the model gave a vector of zeros, which has no direction")
    [answer] = server.post("/predict", saved(x[0]), {}).json()["answers"]
    assert answer["embedding"] == pytest.approx([0.6, 0, 0.8])


def test_a_file_whose_time_is_over_when_it_is_decoded_gets_503(
    server: Server, files: dict[str, tuple[str, Path]]
) -> None:
    picture = files["a.png"][1].read_bytes()
    assert server.post("/predict?model=image", picture, {"X-Request-Timeout-Ms": "60000"}).status == 200
    reply = server.post("/predict?model=image", picture, {"X-Request-Timeout-Ms": "0.001"})
    assert reply.status == 503
    assert "deadline" in reply.error
