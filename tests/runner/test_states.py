"""A model with states: fed back from sample to sample of a stream, on every interpreter."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.device.autotune import run_selftest
from edgekit.runner import bundle, load
from edgekit.runner.backends import open_backend
from edgekit.runner.batch import open_batch
from edgekit.runner.bundle import manifest_json
from edgekit.runner.bundle.manifest import RawSpec, StateSpec
from edgekit.runner.cli import main
from edgekit.runner.errors import BackendError, BundleError, InputError
from edgekit.runner.model import Model
from tests.runner import stepped

from .conftest import npy

TARGETS = ("onnx", "openvino", "tflite")


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A bundle for each target."""
    return {target: stepped.write(tmp_path_factory.mktemp(target), target) for target in TARGETS}


@pytest.fixture(params=stepped.INTERPRETERS, ids="-".join)
def model(request: pytest.FixtureRequest, packed: dict[str, Path]) -> Iterator[Model]:
    """The opened bundle, on each interpreter that runs it."""
    target, interpreter = request.param
    yield load(packed[target], trial=False, interpreter=interpreter)


def table(path: Path, windows: np.ndarray) -> Path:
    """The windows of a stream as a CSV file."""
    rows = windows.reshape(-1, stepped.CHANNELS)
    path.write_text("a,b,c\n" + "".join(",".join(f"{value:.9g}" for value in row) + "\n" for row in rows))
    return path


def values(predictions: list[Any]) -> np.ndarray:
    """The raw answers, as the windows lie."""
    return np.array([each.output for each in predictions]).reshape(-1, stepped.TIME, stepped.CHANNELS)


def test_a_stream_of_arrays_gets_the_offline_answer(model: Model) -> None:
    windows = stepped.steps()
    found = [answer.prediction for answer in model.stream(iter(windows))]
    np.testing.assert_allclose(values(found), stepped.offline(windows), atol=1e-5)


def test_a_single_sample_begins_with_zeros_each_time(model: Model) -> None:
    windows = stepped.steps(3)
    found = [model.predict(window) for window in windows]
    np.testing.assert_allclose(values(found), windows, atol=1e-6)


def test_steps_go_on_until_a_reset(model: Model) -> None:
    windows = stepped.steps(4)
    found = [model.step(window) for window in windows[:2]]
    model.predict(windows[3])  # a stream of its own
    found += [model.step(window) for window in windows[2:]]
    np.testing.assert_allclose(values(found), stepped.offline(windows), atol=1e-5)
    model.reset()
    np.testing.assert_allclose(values([model.step(windows[0])]), windows[:1], atol=1e-6)


def test_two_streams_on_one_model_do_not_mix(model: Model) -> None:
    first, second = stepped.steps(4, seed=5), stepped.steps(4, seed=6)
    pairs = list(zip(model.stream(iter(first)), model.stream(iter(second)), strict=True))
    for place, windows in enumerate((first, second)):
        found = [pair[place].prediction for pair in pairs]
        np.testing.assert_allclose(values(found), stepped.offline(windows), atol=1e-5)


def test_each_file_is_a_stream(model: Model, tmp_path: Path) -> None:
    for seed in (7, 8):
        windows = stepped.steps(3, seed)
        found = [answer.prediction for answer in model.predict_file(table(tmp_path / f"{seed}.csv", windows))]
        np.testing.assert_allclose(values(found), stepped.offline(windows), atol=1e-5)


def test_golden_vectors_are_one_stream(model: Model) -> None:
    report = model.selftest()
    assert report.ok and report.vectors == 5
    swapped = model.golden()[0][[1, 0, 2, 3, 4]]
    model._members = {**model._members, "i.npy": npy(swapped)}  # a bundle of its own would fail already when it loads
    assert not model.selftest().ok


@pytest.mark.parametrize("target", TARGETS)
def test_the_first_load_measures_and_proves_it(target: str, packed: dict[str, Path]) -> None:
    windows = stepped.steps()
    found = [answer.prediction for answer in load(packed[target], threads=1).stream(iter(windows))]
    np.testing.assert_allclose(values(found), stepped.offline(windows), atol=1e-5)
    assert run_selftest(packed[target], bundle.read(packed[target])).ok


def test_what_openvino_compiled_keeps_its_states(packed: dict[str, Path]) -> None:
    from edgekit.runner.backends import openvino

    opened = bundle.read(packed["openvino"])
    blob = openvino.export_compiled(opened.model_files(), (stepped.INPUT,), 1, states=stepped.STATES)
    backend = openvino.import_compiled(blob, (stepped.INPUT,), (stepped.OUTPUT,), 1, states=stepped.STATES)
    states, found = backend.zeros(), []
    for window in stepped.steps():
        y, states = backend.step(window[None], states)
        found.append(y[0])
    np.testing.assert_allclose(np.stack(found), stepped.offline(stepped.steps()), atol=1e-5)


def test_the_command_answers_rows_from_a_pipe_as_one_stream(packed: dict[str, Path], tmp_path: Path) -> None:
    windows = stepped.steps(5)
    text = table(tmp_path / "rows.csv", windows).read_bytes()
    command = [sys.executable, "-m", "edgekit.runner", "predict", packed["onnx"], "--stream", "csv", "--json"]
    done = subprocess.run(
        [*map(str, command), "--no-trial", "--interpreter", "onnxruntime"],
        input=text, capture_output=True, timeout=120, check=True,
    )  # fmt: skip
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["dropped"] for each in found] == [0] * 5
    outputs = np.array([each["output"] for each in found]).reshape(windows.shape)
    np.testing.assert_allclose(outputs, stepped.offline(windows), atol=1e-5)


def test_a_stream_waits_and_takes_no_other_hop(packed: dict[str, Path]) -> None:
    model = load(packed["onnx"], trial=False, interpreter="onnxruntime")
    stream = model.stream(io.BytesIO(b"a,b,c\n"), "csv")
    assert (stream.hop, stream.when_slow) == (stepped.TIME, "wait")
    with pytest.raises(InputError, match="hop: got 1; the model has states, which advance every 2"):
        model.stream(iter(stepped.steps()), hop=1)
    with pytest.raises(InputError, match="when_slow: the model has states, which need every window"):
        model.stream(iter(stepped.steps()), when_slow="drop")


def test_without_a_declared_stride_whole_windows_follow_each_other(tmp_path: Path) -> None:
    raw = RawSpec("window", (stepped.TIME, stepped.CHANNELS), "float32")
    model = load(stepped.write(tmp_path, "onnx", raw=raw), trial=False, interpreter="onnxruntime")
    assert model.stream(iter(stepped.steps())).hop == stepped.TIME


def test_behind_a_refused_window_states_begin_anew(packed: dict[str, Path]) -> None:
    model = load(packed["onnx"], trial=False, interpreter="onnxruntime")
    windows = stepped.steps(4)
    windows[1, 0, 0] = np.nan
    answers = list(model.stream(iter(windows)))
    assert [answer.error is None for answer in answers] == [True, False, True, True]
    np.testing.assert_allclose(
        values([each.prediction for each in answers[2:]]), stepped.offline(windows[2:]), atol=1e-5
    )


def test_behind_an_error_a_step_begins_anew(model: Model) -> None:
    windows = stepped.steps(4)
    bad = windows[1].copy()
    bad[0, 0] = np.nan
    model.step(windows[0])
    with pytest.raises(InputError):
        model.step(bad)
    np.testing.assert_allclose(
        values([model.step(window) for window in windows[2:]]), stepped.offline(windows[2:]), atol=1e-5
    )


def test_a_state_that_is_no_longer_finite_is_an_error_and_the_next_step_begins_anew(model: Model) -> None:
    windows = stepped.steps(2)
    largest = np.full_like(windows[0], np.finfo(np.float32).max)
    with pytest.raises(BackendError, match="finite"):
        for _ in range(8):
            model.step(largest)
    np.testing.assert_allclose(values([model.step(windows[0])]), windows[:1], atol=1e-6)


def test_batches_are_refused(packed: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = load(packed["onnx"], trial=False, interpreter="onnxruntime")
    with pytest.raises(BackendError, match="4 samples at once: the model has states"):
        open_batch(model, 4)
    assert open_batch(model, 1).execute(model.prepare(stepped.steps()[0])).shape == (1, 2, 3)
    path = table(tmp_path / "rows.csv", stepped.steps())
    with pytest.raises(SystemExit) as ended:
        main(["predict", str(packed["onnx"]), str(path), "--batch", "2", "--no-trial"])
    assert ended.value.code == 2 and "--batch: the model has states" in capsys.readouterr().err


def test_info_names_the_states(packed: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", str(packed["onnx"])]) == 0
    assert "count [3], echo [1, 2, 3]" in capsys.readouterr().out


def test_a_manifest_keeps_its_states_and_has_no_key_without_them() -> None:
    made = replace(stepped.manifest("onnx", {"model.onnx": b""}), members=members())
    text = manifest_json.to_json(made)
    assert manifest_json.parse(text) == made
    assert json.loads(text)["states"][0] == {
        "name": "count", "shape": [3], "dtype": "float32", "input": "count", "output": "new_count"
    }  # fmt: skip
    assert "states" not in json.loads(manifest_json.to_json(replace(made, states=None)))


def members() -> dict[str, Any]:
    return {name: {"bytes": 0, "sha256": "0" * 64} for name in ("model.onnx", "i.npy", "o.npy")}


COUNT, ECHO = stepped.STATES


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"states": ()}, "states: got '\\[\\]'; must list at least one"),
        ({"states": (COUNT, COUNT)}, "states: name: got"),
        ({"states": (COUNT, replace(ECHO, input="count"))}, "states: input: got"),
        ({"states": (COUNT, replace(ECHO, output="new_count"))}, "states: output: got"),
        ({"states": (replace(COUNT, input="input"),)}, "states: input: got"),
        ({"states": (replace(COUNT, output="output"),)}, "states: output: got"),
        ({"states": (replace(COUNT, name=""),)}, r"states\[0\].name: got ''"),
        ({"states": (replace(COUNT, dtype="int8"),)}, r"states\[0\].dtype: got 'int8'"),
        ({"states": (StateSpec("count", (0,), "float32", "count", "new_count"),)}, r"states\[0\].shape"),
        ({"golden": {"inputs": "i.npy", "outputs": "o.npy", "atol": 0.0, "top1": True}}, "top1"),
    ],
)
def test_states_that_do_not_hold_together_are_refused(changes: dict[str, Any], message: str) -> None:
    made = replace(stepped.manifest("onnx", {"model.onnx": b""}, **changes), members=members())
    with pytest.raises(BundleError, match=message):
        manifest_json.parse(manifest_json.to_json(made))


@pytest.mark.parametrize(("target", "interpreter"), stepped.INTERPRETERS)
@pytest.mark.parametrize(
    ("states", "message"),
    [
        ((), "3 inputs, but the bundle declares 1"),
        ((COUNT,), "2 inputs, but the bundle declares 1"),
        ((replace(COUNT, input="missing"), ECHO), "no tensor missing"),
        ((replace(COUNT, shape=(4,)), ECHO), "state count: the model has float32"),
        ((replace(COUNT, output="new_echo"), replace(ECHO, output="new_count")), "state count: the model has"),
    ],
)
def test_a_file_with_other_states_is_refused(
    target: str, interpreter: str, states: tuple[StateSpec, ...], message: str, packed: dict[str, Path]
) -> None:
    content = bundle.read(packed[target]).model_files()
    with pytest.raises(BackendError, match=message):
        open_backend(target, content, (stepped.INPUT,), (stepped.OUTPUT,), interpreter=interpreter, states=states)


def test_a_model_without_states_steps_as_it_predicts(tmp_path: Path) -> None:
    from tests.runner import flat

    model = load(flat.write(tmp_path / "v.edge.zip", flat.VECTOR), trial=False, interpreter="onnxruntime")
    sample = flat.examples(flat.VECTOR, 1)[0]
    model.reset()
    assert model.states() is None
    assert model.step(sample).to_dict()["label"] == model.predict(sample).to_dict()["label"]
