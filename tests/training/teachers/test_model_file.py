"""A teacher's file from raw samples to logits; what is none, or fails, is one line and never takes the parent along."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.core.errors import ConfigError, EdgekitError, ModelError, ResourceError
from edgekit.training.teachers.model_file import logits, logits_and_facts, open_file
from tests.runner import conftest as tiny
from tests.runner.broken import tflite
from tests.training.teachers.networks import CLASSES, dense, endless, ir, weights

SCALE = [{"step": "scale", "factor": 1 / 255}]
LIMIT_S = 120
VECTORS = np.random.default_rng(5).normal(0, 1, (70, 4)).astype(np.float32)


def ask(path: Path, x: np.ndarray, *, preprocess: Any = (), classes: int = CLASSES, **more: Any) -> np.ndarray:
    found = logits(open_file(path, preprocess), x, classes=classes, timeout_s=LIMIT_S, threads=1, **more)
    assert (found.shape, found.dtype) == ((len(x), classes), np.float32)
    return found


def error_message(path: Path, x: np.ndarray, kind: type[EdgekitError] = ModelError, **more: Any) -> str:
    with pytest.raises(kind) as caught:
        ask(path, x, **more)
    message = str(caught.value)
    assert message.startswith(f"{path}: ") and "\n" not in message and "Traceback" not in message
    return message


@pytest.fixture
def onnx_file(tmp_path: Path) -> Path:
    """Channels first, a batch of 1 and no other."""
    path = tmp_path / "shapes.onnx"
    path.write_bytes(tiny.onnx_model())
    return path


def test_onnx_and_openvino_answer_as_the_arithmetic_by_hand(tmp_path: Path, onnx_file: Path) -> None:
    images = tiny.samples(70)
    expected = tiny.reference(images)
    assert np.allclose(ask(onnx_file, images, preprocess=SCALE), expected, atol=1e-4)
    assert np.allclose(ask(ir(tmp_path / "model.xml", onnx_file), images, preprocess=SCALE), expected, atol=1e-4)


def test_samples_from_a_memory_map_and_how_far_it_is(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", VECTORS)
    seen: list[tuple[int, int]] = []
    found = ask(
        dense(tmp_path / "d.onnx", ["n", 4]),
        np.load(tmp_path / "x.npy", mmap_mode="r"),
        progress=lambda done, total: seen.append((done, total)),
    )
    assert np.allclose(found, VECTORS @ weights(4), atol=1e-5)
    assert seen[-1] == (70, 70) and seen == sorted(seen)


def test_probabilities_become_logits_but_for_a_constant(tmp_path: Path) -> None:
    inside = ask(dense(tmp_path / "p.onnx", ["n", 4], "Softmax"), VECTORS)
    assert np.allclose(np.exp(inside).sum(axis=1), 1, atol=1e-5)
    assert np.ptp(inside - VECTORS @ weights(4), axis=1).max() < 1e-4


def test_sigmoids_become_the_logits_before_them(tmp_path: Path) -> None:
    """They are from 0 to 1 too, but their sum is anything: taken for logits they would teach next to nothing."""
    found, facts = logits_and_facts(
        open_file(dense(tmp_path / "s.onnx", ["n", 4], "Sigmoid")), VECTORS, classes=CLASSES, timeout_s=LIMIT_S
    )
    assert np.allclose(found, VECTORS @ weights(4), atol=1e-3)
    assert (facts["sigmoids"], facts["probabilities"]) == (True, False)


@pytest.mark.parametrize("batch", ["n", 1, 8])
def test_a_sample_is_answered_as_if_it_were_alone(tmp_path: Path, batch: int | str) -> None:
    """70 samples are no whole number of batches, whether the model's own or ours."""
    if batch == "n":
        found = ask(dense(tmp_path / "mix.onnx", ["n", 4], "Mix"), VECTORS)
        assert np.allclose(found, 0)
    else:
        found = ask(dense(tmp_path / "fixed.onnx", [batch, 4]), VECTORS)
        assert np.allclose(found, VECTORS @ weights(4), atol=1e-5)


def test_an_input_of_bytes_takes_the_samples_as_they_are(tmp_path: Path) -> None:
    model = dense(tmp_path / "bytes.onnx", ["n", 8, 8, 1], dtype="UINT8")
    images = tiny.samples(5)
    flat = images.reshape(5, -1).astype(np.float32)
    assert np.allclose(ask(model, images), flat @ weights(64), rtol=1e-4, atol=1e-2)
    assert "leave out the steps that scale" in error_message(model, images, preprocess=SCALE)


def test_grey_pictures_fit_a_flat_input(tmp_path: Path) -> None:
    images = tiny.samples(5)
    found = ask(dense(tmp_path / "flat.onnx", ["n", 64]), images)
    assert np.allclose(found, images.reshape(5, -1).astype(np.float32) @ weights(64), rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (["n", 64], r"takes \[64\], but the samples are \[8, 8, 1\]: as a baseline .* begin with a reshape"),
        (["n", "h", 8, 1], r"takes \[\?, \?, 8, 1\], in which more than the batch is open; export it for \[8, 8, 1\]"),
        ([8, 64], "takes 8 samples at a time, but a device has one; export it for a batch of 1 or of any size"),
    ],
)
def test_a_baseline_must_be_one_that_can_be_converted(shape: list[Any], message: str, tmp_path: Path) -> None:
    """A teacher may take such samples; it is only asked."""
    made = dense(tmp_path / "net.onnx", [shape[0], 64])
    if len(shape) > 2:
        import onnx

        model = onnx.load(made)
        model.graph.input[0].CopyFrom(onnx.helper.make_tensor_value_info("input", onnx.TensorProto.FLOAT, shape))
        onnx.save(model, made)
    with pytest.raises(ModelError, match=message):
        logits_and_facts(open_file(made), tiny.samples(5), classes=CLASSES, timeout_s=LIMIT_S)


@pytest.mark.parametrize("sides", [[1, CLASSES, 1, 1], [1, 1, 1, CLASSES]])
def test_a_baseline_gives_its_scores_and_nothing_round_them(sides: list[int], tmp_path: Path) -> None:
    """A teacher may give a score for each class in any shape that holds as many."""
    import onnx
    from onnx import helper, numpy_helper

    made = dense(tmp_path / "net.onnx", [1, 4])
    model = onnx.load(made)
    result = model.graph.output[0]
    model.graph.initializer.append(numpy_helper.from_array(np.array(sides), "sides"))
    model.graph.node.append(helper.make_node("Reshape", [result.name, "sides"], ["round"]))
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("round", onnx.TensorProto.FLOAT, None))
    onnx.save(model, made)
    assert np.allclose(ask(made, VECTORS), VECTORS @ weights(4), atol=1e-5)
    with pytest.raises(ModelError, match=r"as a baseline it must give \[1, 3\]: let it end with a flatten"):
        logits_and_facts(open_file(made), VECTORS, classes=CLASSES, timeout_s=LIMIT_S)


def test_probabilities_that_were_rounded_inside_are_probabilities(tmp_path: Path) -> None:
    """A quantized file may take and give floats; the sums of a softmax in 8 bits miss 1 by more than floats do."""
    from onnxruntime.quantization import CalibrationDataReader, quantize_static

    class Samples(CalibrationDataReader):
        def __init__(self) -> None:
            self.left = iter(VECTORS)

        def get_next(self) -> dict[str, np.ndarray] | None:
            x = next(self.left, None)
            return None if x is None else {"input": x[None]}

    quantize_static(dense(tmp_path / "float.onnx", [1, 4], "Softmax"), tmp_path / "int8.onnx", Samples())
    found, facts = logits_and_facts(open_file(tmp_path / "int8.onnx"), VECTORS, classes=CLASSES, timeout_s=LIMIT_S)
    assert facts["probabilities"] and facts["integers"]
    assert np.ptp(found, axis=1).max() > 1
    assert (np.abs(np.exp(found).sum(axis=1) - 1) > 1e-3).any(), "not rounded"


def test_no_samples_no_logits(onnx_file: Path) -> None:
    assert ask(onnx_file, np.empty((0, 8, 8, 1), np.uint8)).shape == (0, CLASSES)


def test_a_file_is_what_its_content_says(tmp_path: Path, onnx_file: Path) -> None:
    import zipfile

    (tmp_path / "a.h5").write_bytes(onnx_file.read_bytes())
    (tmp_path / "b.onnx").write_bytes(tflite())
    (tmp_path / "c.tflite").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))
    ir(tmp_path / "model.xml", onnx_file).rename(tmp_path / "model.pt")
    with zipfile.ZipFile(tmp_path / "d.zip", "w") as archive:
        archive.writestr("config.json", "{}")
        archive.writestr("model.weights.h5", "")
    names = {"a.h5": "onnx", "b.onnx": "tflite", "c.tflite": "keras", "d.zip": "keras", "model.pt": "openvino"}
    assert {name: open_file(tmp_path / name).kind for name in names} == names
    images = tiny.samples(3)
    for name in ("a.h5", "model.pt"):
        assert np.allclose(ask(tmp_path / name, images, preprocess=SCALE), tiny.reference(images), atol=1e-4)


def test_the_digest_is_that_of_every_file(tmp_path: Path, onnx_file: Path) -> None:
    assert open_file(onnx_file).sha256 == hashlib.sha256(onnx_file.read_bytes()).hexdigest()
    model = ir(tmp_path / "model.xml", onnx_file)
    before = open_file(model).sha256
    (tmp_path / "model.bin").write_bytes(bytes((tmp_path / "model.bin").stat().st_size))
    assert open_file(model).sha256 != before
    (tmp_path / "model.bin").unlink()
    with pytest.raises(ModelError, match="model.xml: its weights are missing; put model.bin beside it"):
        open_file(model)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "no such file; a model file is a .pt2, .keras"),
        ("folder", "a folder; a model file is a .pt2, .keras"),
        (b"", "looks like an empty file"),
        (b"PK\3\4" + bytes(100), "a zip archive that is cut short or damaged"),
        (
            b"\x80\2}q\0." + bytes(100),
            "such as an old PyTorch checkpoint; unpickling runs whatever code",
        ),
        (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
    ],
)
def test_the_error_for_a_file_that_is_no_model_says_what_it_looks_like(tmp_path: Path, data: Any, message: str) -> None:
    path = tmp_path / "model.onnx"
    if data == "folder":
        path.mkdir()
    elif data is not None:
        path.write_bytes(data)
    with pytest.raises(ModelError) as caught:
        open_file(path)
    assert str(caught.value).startswith(f"{path}: ") and message in str(caught.value)


def test_steps_that_are_none_or_do_not_fit(onnx_file: Path) -> None:
    with pytest.raises(ConfigError, match='shapes.onnx: preprocess.0.: unknown step .*did you mean "scale"'):
        open_file(onnx_file, [{"step": "scal", "factor": 2}])
    message = error_message(onnx_file, VECTORS, ConfigError, preprocess=[{"step": "resize", "height": 8, "width": 8}])
    assert "works on images" in message


def test_models_that_do_not_fit_the_samples(tmp_path: Path, onnx_file: Path) -> None:
    message = error_message(onnx_file, np.zeros((2, 9, 8, 1), np.uint8))
    assert "takes [1, 1, 8, 8], but the samples are [9, 8, 1]" in message and "resize" in message
    assert "gives [3] for each sample; the data have 10 classes" in error_message(
        onnx_file, tiny.samples(2), classes=10
    )


def test_a_model_that_gives_nan_names_the_sample(tmp_path: Path) -> None:
    x = np.zeros((70, 4), np.float32)
    x[41] = -weights(4)[:, 0]
    assert "gave nan for sample 41; " in error_message(dense(tmp_path / "nan.onnx", ["n", 4], "Sqrt"), x)


def test_models_that_cannot_be_opened(tmp_path: Path, onnx_file: Path) -> None:
    import onnx

    cut = tmp_path / "cut.onnx"
    cut.write_bytes(onnx_file.read_bytes()[:200])
    assert "cannot be opened: " in error_message(cut, tiny.samples(2))
    assert "Frobnicate" in error_message(dense(tmp_path / "unknown.onnx", ["n", 4], "Frobnicate"), VECTORS)
    model = onnx.load(onnx_file)
    model.graph.output.append(onnx.helper.make_tensor_value_info("mean", onnx.TensorProto.FLOAT, [1, 4]))
    onnx.save(model, tmp_path / "two.onnx")
    assert "has 2 outputs; a model file must have one" in error_message(tmp_path / "two.onnx", tiny.samples(2))


def test_weights_in_a_file_beside_it(tmp_path: Path, onnx_file: Path) -> None:
    """PyTorch's exporter writes them to NAME.onnx.data; no digest would cover a file of another name."""
    import onnx

    def save(location: str) -> None:
        onnx.save(onnx.load(onnx_file), path, save_as_external_data=True, location=location, size_threshold=0)

    path, images = tmp_path / "two.onnx", tiny.samples(5)
    save("two.onnx.data")
    assert np.allclose(ask(path, images, preprocess=SCALE), tiny.reference(images), atol=1e-4)
    before, weights_ = open_file(path).sha256, tmp_path / "two.onnx.data"
    weights_.write_bytes(weights_.read_bytes()[:-4] + bytes(4))
    assert open_file(path).sha256 != before
    weights_.write_bytes(bytes(8))
    assert "cannot be opened: " in error_message(path, images)
    weights_.unlink()
    assert "its weights are missing; put two.onnx.data beside it" in error_message(path, images)
    save("elsewhere.bin")
    weights_.write_bytes(bytes(8))
    assert "in other files than two.onnx.data; convert it to one file" in error_message(path, images)


def test_a_crash_is_named_by_its_signal(tmp_path: Path) -> None:
    (tmp_path / "crashing.tflite").write_bytes(tflite(claimed_side=4096))
    assert "crashed its interpreter (SIGSEGV)" in error_message(
        tmp_path / "crashing.tflite", tiny.samples(2), classes=64
    )


def test_a_hang_ends_at_the_limit(tmp_path: Path) -> None:
    teacher = open_file(endless(tmp_path / "endless.onnx"))
    started = time.monotonic()
    with pytest.raises(ModelError, match=r"endless.onnx: not finished after 2 s, with 0 samples done; allow it more"):
        logits(teacher, VECTORS, classes=CLASSES, timeout_s=2)
    assert time.monotonic() - started < 30


def test_the_child_leaves_with_its_parent(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; import numpy as np\n"
        "from edgekit.training.teachers.model_file import logits, open_file\n"
        "logits(open_file(Path(sys.argv[1])), np.zeros((2, 4), np.float32), classes=3, timeout_s=600)"
    )
    command = [sys.executable, "-c", code, str(endless(tmp_path / "endless.onnx"))]
    parent = subprocess.Popen(command, env={**os.environ, "TMPDIR": str(tmp_path)})
    children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
    child = _eventually(lambda: children.read_text().split())[0]
    _eventually(lambda: b"edgekit.training.teachers.worker" in _command(child))
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    _eventually(lambda: b"edgekit.training.teachers.worker" not in _command(child))


def _command(process: str) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def _eventually(look: Any) -> Any:
    deadline = time.monotonic() + 60
    while not (found := look()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


def test_nothing_is_left_behind(tmp_path: Path, onnx_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    ask(onnx_file, tiny.samples(2))
    error_message(onnx_file, tiny.samples(2), classes=7)
    assert not list(scratch.iterdir())
    shutil.rmtree(scratch)
    scratch.write_text("in the way")
    assert "cannot copy 2 samples to" in error_message(onnx_file, tiny.samples(2), ResourceError)


def test_a_file_that_changes_under_way(onnx_file: Path) -> None:
    teacher = open_file(onnx_file)
    onnx_file.write_bytes(onnx_file.read_bytes() + b"\0")
    with pytest.raises(ModelError, match="has changed"):
        logits(teacher, tiny.samples(2), classes=CLASSES, timeout_s=LIMIT_S)


def test_no_framework_is_loaded_in_the_parent(onnx_file: Path) -> None:
    code = (
        "import sys; from pathlib import Path; import edgekit.training.teachers.model_file as file\n"
        "teacher = file.open_file(Path(sys.argv[1])); assert 'numpy' not in sys.modules; import numpy as np\n"
        "file.logits(teacher, np.zeros((2, 8, 8, 1), np.uint8), classes=3, timeout_s=120)\n"
        "print(*{name.split('.')[0] for name in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code, str(onnx_file)], capture_output=True, text=True, check=True)
    heavy = {"torch", "tensorflow", "keras", "onnx", "onnxruntime", "openvino", "ai_edge_litert"}
    assert not heavy & set(done.stdout.split())
