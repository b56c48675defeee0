"""Integers that are the model's own reach it as they are: nothing is quantized a second time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgekit.runner import bundle as bundles
from edgekit.runner import load
from edgekit.runner.bundle.manifest import RawSpec, TensorSpec
from edgekit.runner.errors import InputError
from edgekit.runner.preprocess.transform import apply
from tests.runner import integers
from tests.runner.conftest import ModelFiles, manifest_for, members_for

SHAPES = {"image": (6, 5, 1), "vector": (7,), "window": (4, 3)}
LAYOUTS = {"image": "NHWC", "vector": "NC", "window": "ANY"}
GRIDS = {"int8": (0.58, 83), "uint8": (1 / 255, 0)}


def packed(
    folder: Path,
    kind: str,
    dtype: str,
    raw: str,
    steps: list[dict[str, object]],
    samples: np.ndarray,
    reach: np.ndarray | None = None,
) -> Path:
    """A bundle of the handmade file; its golden scores are the bare interpreter's for what is to `reach` it."""
    shape, (scale, zero) = SHAPES[kind], GRIDS[dtype]
    content = integers.tflite(shape, dtype, scale, zero)
    spec = TensorSpec("features", (1, *shape), dtype, LAYOUTS[kind])
    made = ModelFiles("tflite", {"model.tflite": content}, spec, TensorSpec("scores", (1, 3), "float32", "NC"), 1e-6)
    scores = integers.bare(content, (samples if reach is None else reach).astype(dtype))
    manifest = manifest_for(made, raw=RawSpec(kind, samples.shape[1:], raw), preprocess=steps)
    bundles.write(folder / "made.edge.zip", manifest, members_for(made, samples, scores))
    return folder / "made.edge.zip"


def every_value(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Samples in which every integer of the type stands."""
    size = int(np.prod(shape))
    info = np.iinfo(dtype)
    values = np.resize(np.arange(info.min, info.max + 1), (256 // size + 1) * size)
    return values.astype(dtype).reshape(-1, *shape)


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("dtype", GRIDS)
def test_the_models_own_integers_are_the_bare_interpreters_bits(kind: str, dtype: str, tmp_path: Path) -> None:
    samples = every_value(dtype, SHAPES[kind])
    model = load(packed(tmp_path, kind, dtype, dtype, [], samples), trial=False)
    assert all(np.array_equal(model.prepare(sample)[0], sample) for sample in samples)
    found = np.stack([model.execute(model.prepare(sample)) for sample in samples])
    assert np.array_equal(found, integers.bare(model.bundle.members["model.tflite"], samples))
    assert model.selftest().ok


def test_a_resize_rounds_and_stays_within_the_integers(tmp_path: Path) -> None:
    samples = np.random.default_rng(0).integers(-128, 128, (4, 9, 10, 1)).astype(np.int8)
    samples[0] = 127
    steps: list[dict[str, object]] = [{"step": "resize", "height": 6, "width": 5}]
    made = apply(steps, samples)
    assert (made != np.rint(made)).any()
    model = load(packed(tmp_path, "image", "int8", "int8", steps, samples, reach=np.rint(made)), trial=False)
    for sample, expected in zip(samples, np.rint(made), strict=True):
        assert np.array_equal(model.prepare(sample)[0], expected.astype(np.int8))
    assert model.selftest().ok


@pytest.mark.parametrize("dtype", GRIDS)
def test_a_step_that_scales_makes_real_values_which_are_quantized(dtype: str, tmp_path: Path) -> None:
    """By the very scale of the file the two are the same; by another they are not."""
    scale, zero = GRIDS[dtype]
    samples = every_value(dtype, SHAPES["vector"])
    steps: list[dict[str, object]] = [{"step": "normalize", "mean": [float(zero)], "std": [1 / scale]}]
    model = load(packed(tmp_path, "vector", dtype, dtype, steps, samples), trial=False)
    assert all(np.array_equal(model.prepare(sample)[0], sample) for sample in samples)
    model = load(packed(tmp_path, "vector", dtype, dtype, [{"step": "scale", "factor": 0.5}], samples), trial=False)
    assert not all(np.array_equal(model.prepare(sample)[0], sample) for sample in samples)


def test_another_integer_type_is_refused(tmp_path: Path) -> None:
    samples = every_value("int8", SHAPES["vector"])
    model = load(packed(tmp_path, "vector", "int8", "int8", [], samples), trial=False)
    for other in (np.uint8, np.int16, np.float32):
        with pytest.raises(InputError, match=r"the bundle takes int8\[7\] \(vector\)"):
            model.prepare(samples[0].astype(other))


@pytest.mark.parametrize(("dtype", "grid"), [("uint8", (1 / 255, 0)), ("int8", (1 / 255, -128))])
@pytest.mark.parametrize("kind", ["image", "vector"])
def test_bytes_whose_steps_the_inputs_scale_undoes_go_in_as_they_are(
    kind: str, dtype: str, grid: tuple[float, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`convert.fold_preprocess` makes such files; the bits are those of the steps and the quantization."""
    monkeypatch.setitem(GRIDS, dtype, grid)
    steps: list[dict[str, object]] = [{"step": "scale", "factor": 1 / 255}]
    samples = every_value("uint8", SHAPES[kind])
    reach = samples if dtype == "uint8" else samples.astype(np.int16) - 128
    model = load(packed(tmp_path, kind, dtype, "uint8", steps, samples, reach), trial=False)
    assert model.selftest().ok
    for sample in (*samples, np.asfortranarray(samples[0])):
        kept, quantize = sample.copy(), model.backend.encode
        x = model.prepare(sample)
        assert quantize is not None and np.array_equal(x, quantize(apply(steps, sample)[None]))
        assert x.dtype == dtype and x.shape == (1, *SHAPES[kind]) and x.flags.c_contiguous
        model.predict(sample)
        assert np.array_equal(sample, kept)
