"""Models of several inputs, on every interpreter: arrays by their names, or joined as one vector."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.device.autotune import choice_cache, run_selftest
from edgekit.runner import bundle, load
from edgekit.runner.backends import open_backend, openvino
from edgekit.runner.batch import open_batch
from edgekit.runner.bundle import manifest_json
from edgekit.runner.bundle.manifest import TensorSpec
from edgekit.runner.errors import BackendError, InputError
from edgekit.runner.model import Model
from tests.runner import flat, several
from tests.runner.conftest import npy
from tests.runner.several import IDS, INTERPRETERS, MINUS, PICTURE, TARGETS, THREE, ZOOM, Source

WAYS = pytest.mark.parametrize(("target", "interpreter"), INTERPRETERS)


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A bundle of three inputs for each target."""
    return {target: several.write(tmp_path_factory.mktemp(target), target) for target in TARGETS}


@pytest.fixture(params=INTERPRETERS, ids="-".join)
def model(request: pytest.FixtureRequest, packed: dict[str, Path]) -> Iterator[Model]:
    """The opened bundle, on each interpreter that runs it."""
    target, interpreter = request.param
    yield load(packed[target], trial=False, interpreter=interpreter)


def opened(folder: Path, target: str, interpreter: str, sources: tuple[Source, ...], **changes: Any) -> Model:
    return load(several.write(folder, target, sources, **changes), trial=False, interpreter=interpreter)


def test_arrays_by_name_and_the_joined_vector_get_the_same_answer(model: Model) -> None:
    for sample in several.samples(THREE):
        by_name = model.predict(sample).output
        np.testing.assert_allclose(by_name, several.answer(THREE, sample), atol=1e-4)
        np.testing.assert_array_equal(model.predict(several.joined(THREE, sample)).output, by_name)
        backwards = dict(reversed(sample.items()))
        np.testing.assert_array_equal(model.predict(backwards).output, by_name)


def test_golden_vectors_prove_the_bundle_and_others_do_not(model: Model) -> None:
    report = model.selftest()
    assert report.ok and report.vectors == 5
    inputs = model.golden()[0]
    assert inputs.shape == (5, several.width(THREE)) and inputs.dtype == np.float32
    model._members = {**model._members, "i.npy": npy(inputs[[1, 0, 2, 3, 4]])}
    assert not model.selftest().ok


@WAYS
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_inputs_of_the_same_shape_are_distinguished_by_name(
    target: str, interpreter: str, order: tuple[int, ...], tmp_path: Path
) -> None:
    sources = tuple(MINUS[place] for place in order)
    model = opened(tmp_path, target, interpreter, sources)
    a, b = np.float32([5, 6, 7]), np.float32([1, 2, 4])
    np.testing.assert_array_equal(model.predict({"b": b, "a": a}).output, a - b)
    vector = np.concatenate([(a, b)[place] for place in order])
    np.testing.assert_array_equal(model.predict(vector).output, a - b)


@WAYS
@pytest.mark.parametrize(
    ("dtype", "stored", "limits"),
    [
        ("int32", "int32", (-(2**24), 2**24)), ("int64", "int64", (-(2**24), 2**24)), ("uint8", "uint8", (0, 255)),
        ("int8", "int8", (-128, 127)), ("int64", "int32", (-(2**24), 2**24)), ("uint8", "float32", (0, 255)),
        ("int32", "uint8", (0, 255)),
    ],
)  # fmt: skip
def test_whole_numbers_reach_the_model_exactly(
    target: str, interpreter: str, dtype: str, stored: str, limits: tuple[int, int], tmp_path: Path
) -> None:
    whole = Source("k", (several.VALUES,), dtype, limits, stored=stored, factor=1)
    model = opened(tmp_path, target, interpreter, (Source("x", (several.VALUES,), factor=1), whole))
    assert model.manifest.inputs[1].dtype == stored
    k, x = np.array([limits[0], 3, limits[1]], dtype), np.zeros(several.VALUES, np.float32)
    np.testing.assert_array_equal(model.predict({"x": x, "k": k}).output, k.astype(np.float64))


@pytest.mark.parametrize("interpreter", ["litert", "tensorflow"])
def test_each_quantized_input_has_its_own_scale(interpreter: str, tmp_path: Path) -> None:
    sources = (
        replace(PICTURE, stored="int8", scaled=(0.05, -3), range=(-3.0, 3.0)),
        replace(ZOOM, stored="uint8", scaled=(0.25, 7)),
        IDS,
    )
    golden = {"inputs": "i.npy", "outputs": "o.npy", "atol": 1.0, "top1": False}
    model = opened(tmp_path, "tflite", interpreter, sources, golden=golden)
    for sample in several.samples(sources):
        real = dict(sample)
        for each in sources[:2]:
            scale, zero_point = each.scaled or (1.0, 0)
            limits = np.iinfo(each.stored)
            stored = np.clip(np.rint(sample[each.name] / np.float32(scale)) + zero_point, limits.min, limits.max)
            real[each.name] = (stored - zero_point) * scale
        np.testing.assert_allclose(model.predict(sample).output, several.answer(sources, real), atol=1e-4)


@WAYS
def test_states_go_on_beside_several_inputs(target: str, interpreter: str, tmp_path: Path) -> None:
    model = opened(tmp_path, target, interpreter, THREE, state=True)
    stream = several.samples(THREE, 4, seed=8)
    expected = several.echoed(THREE, stream)
    assert model.selftest().ok
    np.testing.assert_allclose([model.step(each).output for each in stream], expected, atol=1e-4)
    model.reset()
    np.testing.assert_allclose(model.step(several.joined(THREE, stream[0])).output, expected[0], atol=1e-4)
    states = model.states()
    found = [model.predict(each, states=states).output for each in stream]
    np.testing.assert_allclose(found, expected, atol=1e-4)
    alone = [model.predict(each).output for each in stream]
    np.testing.assert_allclose(alone, [several.answer(THREE, each) for each in stream], atol=1e-4)


def test_behind_a_refused_sample_a_step_begins_anew(tmp_path: Path) -> None:
    model = opened(tmp_path, "onnx", "onnxruntime", THREE, state=True)
    first, bad, last = several.samples(THREE, 3)
    model.step(first)
    with pytest.raises(InputError, match="tensor ids: values from 10 to 10"):
        model.step({**bad, "ids": np.full(4, 10)})
    np.testing.assert_allclose(model.step(last).output, several.answer(THREE, last), atol=1e-4)


def test_a_file_is_a_stream_of_its_own(tmp_path: Path) -> None:
    model = opened(tmp_path, "onnx", "onnxruntime", THREE, state=True)
    for number, sample in enumerate(several.samples(THREE, 2)):
        path = tmp_path / f"{number}.npz"
        path.write_bytes(several.npz(sample))
        [answer] = model.predict_file(path)
        np.testing.assert_allclose(answer.prediction.output, several.answer(THREE, sample), atol=1e-4)


@pytest.mark.parametrize("interpreter", ["onnxruntime", "openvino"])
@pytest.mark.parametrize("size", [1, 2, 7])
def test_a_batch_gives_each_sample_its_own_answer(interpreter: str, size: int, tmp_path: Path) -> None:
    model = opened(tmp_path, "onnx", interpreter, THREE, batch="batch")
    batch, samples = open_batch(model, size), several.samples(THREE, size, seed=9)
    x = np.concatenate([model.prepare(several.joined(THREE, each)) for each in samples])
    np.testing.assert_allclose(batch.execute(x), [several.answer(THREE, each) for each in samples], atol=1e-4)


@pytest.mark.parametrize(("target", "interpreter"), INTERPRETERS[2:])
def test_other_targets_take_a_batch_too(target: str, interpreter: str, packed: dict[str, Path]) -> None:
    model = load(packed[target], trial=False, interpreter=interpreter)
    batch, samples = open_batch(model, 3), several.samples(THREE, 3, seed=9)
    x = np.concatenate([model.prepare(several.joined(THREE, each)) for each in samples])
    np.testing.assert_allclose(batch.execute(x), [several.answer(THREE, each) for each in samples], atol=1e-4)


def test_a_fixed_batch_is_named(packed: dict[str, Path]) -> None:
    model = load(packed["onnx"], trial=False, interpreter="onnxruntime")
    with pytest.raises(BackendError, match="input: the model file fixes its batch at 1"):
        open_batch(model, 2)


@pytest.mark.parametrize("target", TARGETS)
def test_the_first_load_measures_and_the_second_follows(
    target: str, packed: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    sample = several.samples(THREE, 1)[0]
    first, second = load(packed[target], threads=1), load(packed[target], threads=1)
    assert first.backend.name == second.backend.name
    for model in (first, second):
        np.testing.assert_allclose(model.predict(sample).output, several.answer(THREE, sample), atol=1e-4)
    assert len(list((tmp_path / "edgerun").glob("*.json"))) == 1
    assert run_selftest(packed[target], bundle.read(packed[target])).ok


@pytest.mark.parametrize("target", ["onnx", "openvino"])
def test_what_openvino_compiled_keeps_its_inputs_apart(
    target: str, packed: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compiled form is used where it opens faster, so the choice is written here."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    load(packed[target], threads=1, interpreter="openvino")
    [record] = (tmp_path / "edgerun").glob("*.json")
    found = bundle.read(packed[target])
    blob = openvino.export_compiled(found.model_files(), found.manifest.inputs, 1)
    kept = {**json.loads(record.read_text()), "blob": bundle.sha256.hexdigest(blob)}
    choice_cache.store_choice(record.stem, choice_cache.Choice(**kept), blob)
    model = load(packed[target], threads=1, interpreter="openvino")
    assert record.with_suffix(".blob").exists()
    for sample in several.samples(THREE):
        np.testing.assert_allclose(model.predict(sample).output, several.answer(THREE, sample), atol=1e-4)


@WAYS
def test_models_in_several_threads_do_not_mix(target: str, interpreter: str, packed: dict[str, Path]) -> None:
    found: dict[int, list[np.ndarray]] = {}

    def run(seed: int) -> None:
        model = load(packed[target], trial=False, interpreter=interpreter, threads=2)
        found[seed] = [model.predict(each).output for each in several.samples(THREE, 20, seed)]

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    for seed in range(3):
        expected = [several.answer(THREE, each) for each in several.samples(THREE, 20, seed)]
        np.testing.assert_allclose(found[seed], expected, atol=1e-4)


def test_numbers_of_any_width_are_taken(packed: dict[str, Path]) -> None:
    model = load(packed["onnx"], trial=False, interpreter="onnxruntime")
    sample = several.samples(THREE, 1)[0]
    expected = model.predict(sample).output
    wide = {"picture": sample["picture"].astype(np.float64), "ids": sample["ids"].astype(np.uint64),
            "zoom": [float(sample["zoom"][0])]}  # fmt: skip
    np.testing.assert_array_equal(model.predict(wide).output, expected)
    other = {**sample, "ids": np.asfortranarray(sample["ids"].astype(">i2")), "zoom": np.float16([0.75])}
    expected = several.answer(THREE, {**sample, "zoom": np.float32([0.75])})
    np.testing.assert_allclose(model.predict(other).output, expected, atol=1e-4)


NAMES = "; give picture, ids, zoom"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"zoom": None}, f"tensors: got picture, ids{NAMES}"),
        ({"zoom": None, "zoon": np.ones(1)}, f"tensors: got picture, ids, zoon{NAMES}"),
        ({"depth": np.ones(1)}, f"tensors: got picture, ids, zoom, depth{NAMES}"),
        ({"zoom": None, 7: np.ones(1)}, f"tensors: got picture, ids, 7{NAMES}"),
        ({"a\n\x1b[31m": np.ones(1)}, f"tensors: got picture, ids, zoom, 'a\\n\\x1b[31m'{NAMES}"),
        ({str(each): 0 for each in range(30)},
         f"tensors: got picture, ids, zoom, 0, 1, 2, 3, 4 and 25 more{NAMES}"),
        ({"ids": np.zeros(5, np.int32)}, "tensor ids: got int32[5]; the bundle takes int32[4]"),
        ({"ids": np.zeros((1, 4), np.int32)}, "tensor ids: got int32[1, 4]; the bundle takes int32[4]"),
        ({"ids": np.zeros(4)}, "tensor ids: got float64[4]; the bundle takes int32[4]"),
        ({"ids": np.zeros(4, bool)}, "tensor ids: got bool[4]; the bundle takes int32[4]"),
        ({"ids": "four"}, "tensor ids: got <U4[]; the bundle takes int32[4]"),
        ({"ids": None, "zoom": np.ones(1)}, f"tensors: got picture, zoom{NAMES}"),
        ({"ids": [0, 1, 2, None]}, "tensor ids: got object[4]; the bundle takes int32[4]"),
        ({"ids": [1, [2, 3], 4, 5]}, "tensor ids: got "),
        ({"ids": np.array([2**24 + 1, 0, 0, 0])}, "tensor ids: holds numbers beyond 16777216"),
        ({"ids": np.array([2**64 - 1, 0, 0, 0], np.uint64)}, "tensor ids: holds numbers beyond 16777216"),
        ({"ids": np.array([10, 0, 0, 0])}, "sample: tensor ids: values from 0 to 10; the bundle takes 0 to 9; "
         "prepare the tensor like the training data"),
        ({"ids": np.array([-1, 0, 0, 0])}, "sample: tensor ids: values from -1 to 0; the bundle takes 0 to 9; "),
        ({"zoom": np.ones(1, int)}, "tensor zoom: got int64[1]; the bundle takes float32[1]"),
        ({"zoom": np.ones(1, complex)}, "tensor zoom: got complex128[1]; the bundle takes float32[1]"),
        ({"zoom": np.float32([4.01])}, "sample: tensor zoom: values from 4.01 to 4.01; the bundle takes 0.5 to 4; "),
        ({"zoom": np.float32([np.nan])}, "sample: holds NaN or infinity; check the sensor or the file"),
        ({"picture": np.full((2, 3, 1), 1e39)}, "sample: holds NaN or infinity; check the sensor or the file"),
        ({"zoom": np.ma.masked_array([1.0], [True])}, "tensor zoom: got a masked array; fill it, and give a plain one"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("call", ["predict", "step"])
def test_a_mapping_that_is_no_sample_is_refused(
    changes: dict[Any, Any], message: str, call: str, packed: dict[str, Path]
) -> None:
    model = load(packed["onnx"], trial=False, interpreter="onnxruntime")
    sample: dict[Any, Any] = {**several.samples(THREE, 1)[0], **changes}
    sample = {name: value for name, value in sample.items() if value is not None}
    with pytest.raises(InputError) as caught:
        getattr(model, call)(sample)
    assert str(caught.value).startswith(message) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("vector", "message"),
    [
        (np.zeros(12, np.float32), "sample: got float32[12]; the bundle takes float32[11] (tensors)"),
        (np.zeros(11), "sample: got float64[11]; the bundle takes float32[11] (tensors)"),
        ([0.0] * 11, "sample: got list; the bundle takes float32[11] (tensors)"),
        (
            np.float32([0] * 6 + [0, 1.5, 0, 0] + [1]),
            "sample: tensor ids: holds fractions, but the bundle takes whole ",
        ),
        (np.float32([0] * 6 + [0, 10, 0, 0] + [1]), "sample: tensor ids: values from 0 to 10; the bundle takes 0 to 9"),
        (np.float32([0] * 10 + [np.inf]), "sample: holds NaN or infinity"),
    ],
)
def test_a_vector_that_is_no_sample_is_refused(vector: Any, message: str, packed: dict[str, Path]) -> None:
    model = load(packed["onnx"], trial=False, interpreter="onnxruntime")
    with pytest.raises(InputError) as caught:
        model.predict(vector)
    assert str(caught.value).startswith(message)


def test_an_anomaly_is_decided_by_all_tensors_together(tmp_path: Path) -> None:
    sources = (Source("a", (2,)), Source("b", (1,)))
    changes = {"task": "anomaly", "labels": ["fine", "worn"], "threshold": 1.0}
    model = opened(tmp_path, "onnx", "onnxruntime", sources, **changes)
    for sample in several.samples(sources):
        expected = np.mean((several.answer(sources, sample) - several.joined(sources, sample)) ** 2)
        answer = model.predict(sample)
        assert answer.score == pytest.approx(expected, rel=1e-4) and answer.label == (
            "worn" if expected > 1 else "fine"
        )


def test_the_ends_of_a_range_are_those_of_float32(tmp_path: Path) -> None:
    sources = (replace(ZOOM, range=(-0.1, 0.1)), PICTURE)
    model = opened(tmp_path, "onnx", "onnxruntime", sources)
    sample = several.samples(sources, 1)[0]
    for end in (-0.1, 0.1):
        model.predict({**sample, "zoom": np.float32([end])})
    with pytest.raises(InputError, match="tensor zoom"):
        model.predict({**sample, "zoom": np.nextafter(np.float32([0.1]), np.float32(1))})


def test_a_bundle_of_one_input_takes_no_mapping_and_its_manifest_has_no_tensors(tmp_path: Path) -> None:
    path = flat.write(tmp_path / "v.edge.zip", flat.VECTOR)
    model = load(path, trial=False, interpreter="onnxruntime")
    sample = flat.examples(flat.VECTOR, 1)[0]
    with pytest.raises(InputError, match=r"sample: got dict; the bundle takes float32\[5\] \(vector\)"):
        model.predict({"input": sample})
    written = json.loads(manifest_json.to_json(model.manifest))
    assert sorted(written["raw"]) == ["dtype", "input_path", "kind", "range", "sample_rate_hz", "shape"]
    assert sorted(written["inputs"][0]) == ["dtype", "layout", "name", "shape"] and len(written["inputs"]) == 1


@WAYS
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ((PICTURE, IDS), "the model has 3 inputs, but the bundle declares 2"),
        ((*THREE, Source("more", (1,))), "the model has 3 inputs, but the bundle declares 4"),
        ((PICTURE, IDS, replace(ZOOM, name="zoon")), "no tensor zoon, which the bundle calls an input"),
        (
            (PICTURE, replace(IDS, shape=(5,)), ZOOM),
            "input: the model has int32[1, 4], but the bundle says int32[1, 5]",
        ),
        (
            (PICTURE, replace(IDS, dtype="int64"), ZOOM),
            "input: the model has int32[1, 4], but the bundle says int64[1, 4]",
        ),
        ((PICTURE, IDS, IDS), "two inputs of the bundle are one tensor of the model"),
    ],
)
def test_a_file_with_other_inputs_is_refused(
    target: str, interpreter: str, changed: tuple[Source, ...], message: str, packed: dict[str, Path]
) -> None:
    content = bundle.read(packed[target]).model_files()
    with pytest.raises(BackendError) as caught:
        open_backend(target, content, [each.spec for each in changed], (several.OUTPUT,), interpreter=interpreter)
    assert message in str(caught.value)


def test_an_input_that_is_a_state_of_the_model_is_no_other_input(tmp_path: Path) -> None:
    content = several.files("onnx", tmp_path, THREE, state=True)
    expected = [PICTURE.spec, IDS.spec, TensorSpec("echo", several.ECHO.shape, "float32", "ANY")]
    with pytest.raises(BackendError, match="two inputs of the bundle are one tensor"):
        open_backend("onnx", content, expected, (several.OUTPUT,), states=(several.ECHO,))
