"""Several samples in one call: each gets its own answer, or the size is refused with the reason."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgekit.runner.batch import open_batch, split_into_batches
from edgekit.runner.bundle.manifest import TensorSpec
from edgekit.runner.errors import BackendError, InputError
from edgekit.runner.loader import load
from edgekit.runner.model import Model

from .batches import of_neighbours, onnx_with, reshaped, reversed_order
from .conftest import NCHW, SCORES, ModelFiles, WriteBundle, onnx_model, reference, samples

WAYS = [
    ("tflite", "litert"), ("tflite-int8", "litert"), ("openvino", "openvino"), ("onnx", "onnxruntime"),
    ("onnx", "openvino"),
]  # fmt: skip
IMAGES = samples(24)


def opened(
    models: dict[str, ModelFiles], key: str, interpreter: str, write_bundle: WriteBundle, **changes: object
) -> Model:
    """The network with a free batch where the format has to say so."""
    model = onnx_with() if key == "onnx" else models[key]
    return load(write_bundle(model, **changes), interpreter=interpreter, trial=False)


def both(model: Model, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Outputs of batches, and of each sample alone, float32; samples that differ, in another order than the vectors."""
    batch = open_batch(model, size)
    xs = [model.prepare(raw) for raw in IMAGES[::-1]]
    starts = range(0, len(xs) - size + 1, size)
    found = np.concatenate([batch.execute(np.concatenate(xs[start : start + size])) for start in starts])
    return found, np.stack([model.execute(x) for x in xs[: len(found)]])


@pytest.mark.parametrize(("key", "interpreter"), WAYS)
@pytest.mark.parametrize("size", [1, 2, 3, 8, 24])
def test_each_sample_gets_what_it_gets_alone(
    key: str, interpreter: str, size: int, models: dict[str, ModelFiles], write_bundle: WriteBundle
) -> None:
    found, alone = both(opened(models, key, interpreter, write_bundle), size)
    assert found.dtype == alone.dtype == np.float32
    assert len({tuple(row) for row in alone.tolist()}) > 2  # equal answers would hide a wrong order
    if interpreter == "openvino":  # it chooses other kernels for other shapes, and those may sum in another order
        np.testing.assert_allclose(found, alone, rtol=1e-5, atol=1e-5)
    else:
        np.testing.assert_array_equal(found, alone)


def test_the_golden_vectors_must_come_out_at_that_size(write_bundle: WriteBundle) -> None:
    model = load(write_bundle(onnx_with(of_neighbours)), trial=False)
    assert model.selftest().ok and open_batch(model, 1).size == 1
    with pytest.raises(
        BackendError, match=r"^2 samples at once: onnxruntime does not reproduce .* 0\.5, allowed 0\.0001;"
    ):
        open_batch(model, 2)
    with pytest.raises(BackendError, match=r"^5 samples at once: .* max \|Δ\| 2, allowed"):
        open_batch(model, 5)


@pytest.mark.parametrize("size", [2, 3, 16, 32])
def test_answers_in_another_order_are_found(size: int, write_bundle: WriteBundle) -> None:
    model = load(write_bundle(onnx_with(reversed_order)), trial=False)
    assert model.selftest().ok
    with pytest.raises(BackendError, match=f"^{size} samples at once: .*does not reproduce the outputs"):
        open_batch(model, size)


def test_a_label_that_turns_is_found_inside_the_tolerance(write_bundle: WriteBundle) -> None:
    golden = {"inputs": "golden/inputs.npy", "outputs": "golden/outputs.npy", "atol": 1e6}
    apart = load(write_bundle(onnx_with(reversed_order), golden={**golden, "top1": True}), trial=False)
    with pytest.raises(BackendError, match="% of the answers as recorded"):
        open_batch(apart, 4)
    anyhow = load(write_bundle(onnx_with(reversed_order), golden={**golden, "top1": False}), trial=False)
    assert open_batch(anyhow, 4).size == 4


@pytest.mark.parametrize(("key", "interpreter"), WAYS)
@pytest.mark.parametrize("size", [1, 4])
def test_a_bundle_with_wrong_golden_vectors_is_refused(
    key: str, interpreter: str, size: int, models: dict[str, ModelFiles], write_bundle: WriteBundle
) -> None:
    wrong = reference(samples())
    wrong[5, 1] += 3.0
    model = opened(models, key, interpreter, write_bundle, scores=wrong)
    with pytest.raises(
        BackendError, match=rf"^{size} samples at once: {interpreter} does not reproduce .*max \|Δ\| [23]"
    ):
        open_batch(model, size)


def test_fewer_golden_vectors_than_samples_in_a_call(write_bundle: WriteBundle) -> None:
    images = samples(3)
    found, alone = both(load(write_bundle(onnx_with(), images=images), trial=False), 8)
    np.testing.assert_array_equal(found, alone)
    with pytest.raises(BackendError, match="does not reproduce"):
        open_batch(load(write_bundle(onnx_with(reversed_order), images=images), trial=False), 8)


def test_an_onnx_file_that_fixes_its_batch_is_refused_in_words(
    write_bundle: WriteBundle, bundles: dict[str, Path]
) -> None:
    words = "the model file fixes its batch at 1; if you build it again, an ONNX bundle of a PyTorch network has a free"
    for path in (bundles["onnx"], write_bundle(onnx_with(reshaped, batch=1))):
        model = load(path, interpreter="onnxruntime", trial=False)
        assert open_batch(model, 1).size == 1
        with pytest.raises(BackendError, match=f"^4 samples at once: input: {words}"):
            open_batch(model, 4)


@pytest.mark.parametrize("place", ["edgekit bundle", "a run"])
def test_the_advice_on_a_fixed_batch_is_that_of_how_the_bundle_was_made(place: str, write_bundle: WriteBundle) -> None:
    """`edgekit bundle` sets any batch to 1: to make the bundle again changes nothing there."""
    made = onnx_with(reshaped, batch=1)
    path = write_bundle(made, **({"variant": "ready-made-onnx"} if place == "edgekit bundle" else {}))
    with pytest.raises(BackendError) as caught:
        open_batch(load(path, interpreter="onnxruntime", trial=False), 4)
    advice = "`edgekit bundle` sets the batch of an ONNX file to 1, even if you run it again"
    assert (advice in str(caught.value), "if you build it again" in str(caught.value)) == (
        (True, False) if place == "edgekit bundle" else (False, True)
    )


def test_openvino_frees_such_a_file_by_itself(write_bundle: WriteBundle) -> None:
    model = load(write_bundle(onnx_with(reshaped, batch=1)), interpreter="openvino", trial=False)
    found, alone = both(model, 4)
    np.testing.assert_allclose(found, alone, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("interpreter", ["onnxruntime", "openvino"])
@pytest.mark.parametrize("name", ["batch", "N"])
def test_a_free_batch_is_the_batch_of_one_that_the_manifest_states(
    interpreter: str, name: str, write_bundle: WriteBundle, bundles: dict[str, Path]
) -> None:
    free = load(write_bundle(onnx_with(batch=name)), interpreter=interpreter, trial=False)
    fixed = load(bundles["onnx"], interpreter=interpreter, trial=False)
    for raw in IMAGES:
        np.testing.assert_array_equal(free.execute(free.prepare(raw)), fixed.execute(fixed.prepare(raw)))
    assert open_batch(free, 3).size == 3


@pytest.mark.parametrize("interpreter", ["onnxruntime", "openvino"])
def test_no_other_side_may_be_free(interpreter: str, write_bundle: WriteBundle) -> None:
    import onnx

    model = onnx.load_from_string(onnx_model())
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "height"
    made = ModelFiles("onnx", {"model.onnx": model.SerializeToString()}, NCHW, SCORES, 1e-4)
    with pytest.raises(BackendError, match=r"input: the model has .*the bundle says float32\[1, 1, 8, 8\]"):
        load(write_bundle(made), interpreter=interpreter, trial=False)


def test_a_batch_of_two_in_the_file_is_no_batch_of_one(write_bundle: WriteBundle) -> None:
    with pytest.raises(BackendError, match=r"input: the model has float32\[2, 1, 8, 8\]"):
        load(write_bundle(onnx_with(batch=2)), trial=False)


def test_threads_and_device_are_the_model_s(bundles: dict[str, Path]) -> None:
    model = load(bundles["openvino"], threads=2, device="CPU", trial=False)
    assert (model.threads, model.device) == (2, "CPU")
    assert open_batch(model, 2).size == 2
    model.device = "NOWHERE"
    with pytest.raises(BackendError, match=r"^2 samples at once: openvino cannot open .*NOWHERE"):
        open_batch(model, 2)


@pytest.mark.parametrize(("key", "interpreter"), WAYS)
def test_an_array_of_another_shape_is_refused(
    key: str, interpreter: str, models: dict[str, ModelFiles], write_bundle: WriteBundle
) -> None:
    model = opened(models, key, interpreter, write_bundle)
    batch, x = open_batch(model, 2), model.prepare(IMAGES[0])
    for wrong in (x, np.concatenate([x, x, x])):
        with pytest.raises(InputError, match=r"batch: got an array of \[[13], .*takes \[2, "):
            batch.execute(wrong)


@pytest.mark.parametrize("size", [0, -1, 1025, True, 2.0, "2"])
def test_no_size_at_all(size: object, bundles: dict[str, Path]) -> None:
    with pytest.raises(InputError, match=r"batch: got .*; use a whole number from 1 to 1024"):
        open_batch(load(bundles["tflite"], trial=False), size)  # type: ignore[arg-type]


def test_what_is_split_is_whole_and_the_largest_come_first() -> None:
    assert split_into_batches(13, (1, 2, 4, 8, 16)) == [8, 4, 1]
    for count in range(70):
        for sizes in ((1, 2, 4, 8, 16), (16, 1, 4), (1,), (1, 3, 10)):
            parts = split_into_batches(count, sizes)
            assert sum(parts) == count and set(parts) <= set(sizes) and parts == sorted(parts, reverse=True)
            assert len(parts) <= count // max(sizes) + sum(sizes)
    with pytest.raises(InputError, match="leave 1 of 13 samples; add size 1"):
        split_into_batches(13, (2, 4))


def test_results_belong_to_the_caller(models: dict[str, ModelFiles], write_bundle: WriteBundle) -> None:
    for key, interpreter in WAYS:
        model = opened(models, key, interpreter, write_bundle)
        batch, xs = open_batch(model, 2), [model.prepare(raw) for raw in IMAGES[:4]]
        first = batch.execute(np.concatenate(xs[:2]))
        kept = first.copy()
        batch.execute(np.concatenate(xs[2:]))
        np.testing.assert_array_equal(first, kept)


def test_a_spec_states_one_sample(models: dict[str, ModelFiles]) -> None:
    """The batch is the caller's, never the manifest's."""
    from edgekit.runner.backends import open_backend

    model = models["tflite"]
    backend = open_backend("tflite", model.files, (model.input,), (model.output,), batch=3)
    assert backend.shape == (3, 8, 8, 1) and model.input.shape == (1, 8, 8, 1)
    wide = TensorSpec("scores", (1, 4), "float32", "NC")
    with pytest.raises(
        BackendError, match=r"output: the model has float32\[3, 3\], but the bundle says float32\[3, 4\]"
    ):
        open_backend("tflite", model.files, (model.input,), (wide,), batch=3)
