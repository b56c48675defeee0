"""`edgekit bundle` of models that take integers: as they are where samples are the same, else a step."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgekit.runner import load
from edgekit.runner.errors import InputError
from tests.cli.test_bundle import bundle_in, edgekit, last_output
from tests.runner import integers

SHAPES = {"image": (7, 5, 1), "vector": (9,), "window": (6, 3)}
KEYWORDS = ("int8", 0.5847, 83, 0.05)
"""Type, scale and zero point of the features, and the scores' scale, as MLPerf Tiny's keyword model has them."""


def write(folder: Path, samples: np.ndarray) -> Path:
    """A folder of one array for each sample."""
    folder.mkdir()
    for number, sample in enumerate(samples):
        np.save(folder / f"{number:02d}.npy", sample)
    return folder


def file(folder: Path, shape: tuple[int, ...], *how: object) -> Path:
    path = folder / "keywords.tflite"
    path.write_bytes(integers.tflite(shape, *how))  # type: ignore[arg-type]
    return path


def features(shape: tuple[int, ...], dtype: str = "int8", count: int = 12) -> np.ndarray:
    limits = np.iinfo(dtype)
    return np.random.default_rng(4).integers(limits.min, limits.max + 1, (count, *shape)).astype(dtype)


@pytest.mark.parametrize(("kind", "requested"), [*((kind, False) for kind in SHAPES), ("image", True)])
def test_features_as_a_board_gets_them(kind: str, requested: bool, tmp_path: Path) -> None:
    """Int8 in, int8 out, to the bit of the bare interpreter; whether --dtype says so or the samples do."""
    samples = features(SHAPES[kind])
    model, golden = file(tmp_path, SHAPES[kind], *KEYWORDS), write(tmp_path / "golden", samples)
    words = ("--golden", golden, "--labels", "yes,no,silence", "--out", tmp_path / "out")
    assert edgekit("bundle", model, *words, *(("--dtype", "int8") if requested else ())) == 0, last_output()
    assert f"{kind} int8{list(SHAPES[kind])}, as the model has them" in last_output()
    loaded = load(bundle_in(tmp_path / "out"), trial=False)
    assert (loaded.manifest.raw.kind, loaded.manifest.raw.dtype) == (kind, "int8")
    assert loaded.selftest().ok
    bare = integers.bare(model.read_bytes(), samples)
    answers = np.stack([loaded.execute(loaded.prepare(sample)) for sample in samples])
    assert np.array_equal(answers, bare.astype(np.float32) * np.float32(0.05))
    assert [loaded.predict(sample).label for sample in samples] == [
        ("yes", "no", "silence")[place] for place in bare.argmax(axis=1)
    ]


def test_bytes_go_into_a_file_that_takes_bytes_as_they_are(tmp_path: Path) -> None:
    """Quantized once more by its scale of 1/255, every one above 1 would be 255."""
    samples = features((7, 5, 3), "uint8")
    model, golden = file(tmp_path, (7, 5, 3), "uint8", 1 / 255, 0), write(tmp_path / "golden", samples)
    assert edgekit("bundle", model, "--golden", golden, "--labels", "a,b,c", "--out", tmp_path / "out") == 0, (
        last_output()
    )
    loaded = load(bundle_in(tmp_path / "out"), trial=False)
    answers = np.stack([loaded.execute(loaded.prepare(sample)) for sample in samples])
    assert np.array_equal(answers, integers.bare(model.read_bytes(), samples))
    assert len(np.unique(answers[:, 0])) == len(samples)


def test_bytes_that_would_saturate_are_refused_with_the_step(tmp_path: Path) -> None:
    samples = features((7, 5, 3), "uint8")
    model, golden = file(tmp_path, (7, 5, 3), "int8", 1 / 255, -128), write(tmp_path / "golden", samples)
    words = ("--golden", golden, "--labels", "a,b,c", "--out", tmp_path / "out")
    assert edgekit("bundle", model, *words) == 2
    assert "takes int8 in steps of 0.00392157, from 0 to 1, and the preprocess makes 0 to 255" in last_output()
    assert not (tmp_path / "out").exists()
    step = last_output().partition("add this step to its preprocess: ")[2].strip()
    assert edgekit("bundle", model, *words, "--preprocess", f"[{step}]") == 0, last_output()
    loaded = load(bundle_in(tmp_path / "out"), trial=False)
    answers = np.stack([loaded.execute(loaded.prepare(sample)) for sample in samples])
    assert np.array_equal(answers, integers.bare(model.read_bytes(), (samples.astype(np.int16) - 128).astype(np.int8)))


@pytest.mark.parametrize(
    ("dtype", "requested", "fits"),
    [
        ("int8", "float32", "--dtype int8 fits"),
        ("float32", None, "--dtype float32 fits"),
        ("float32", "int8", "--dtype float32 fits"),
        ("float64", None, "--dtype float32 fits once it is saved as float32"),
        ("int32", None, "save it as uint8, or as one of uint8, int8, float32"),
    ],
)
def test_the_error_names_the_dtype_that_fits(dtype: str, requested: str | None, fits: str, tmp_path: Path) -> None:
    samples = features((7, 5, 1)).astype(dtype)
    model, golden = file(tmp_path, (7, 5, 1), *KEYWORDS), write(tmp_path / "golden", samples)
    words = ("--golden", golden, "--labels", "a,b,c", "--out", tmp_path / "out")
    assert edgekit("bundle", model, *words, *(("--dtype", requested) if requested else ())) == 4
    assert f"00.npy: sample: got {dtype}[7, 5, 1]; the bundle takes" in last_output() and fits in last_output()


def test_integers_saved_as_floats_are_reported(tmp_path: Path) -> None:
    """The board's numbers, but as real values, which this input cannot hold."""
    samples = features((9,)).astype(np.float32)
    model, golden = file(tmp_path, (9,), "int8", 0.01, 0), write(tmp_path / "golden", samples)
    words = ("--golden", golden, "--labels", "a,b,c", "--out", tmp_path / "out")
    assert edgekit("bundle", model, *words) == 2
    assert "for the model's own integers give --dtype int8" in last_output()


def test_windows_of_integers_want_a_model_of_the_same(tmp_path: Path) -> None:
    samples = features((6, 3), "uint8")
    model, golden = file(tmp_path, (6, 3), *KEYWORDS), write(tmp_path / "golden", samples)
    words = ("--golden", golden, "--labels", "a,b,c", "--out", tmp_path / "out", "--dtype", "uint8")
    assert edgekit("bundle", model, *words) == 2
    assert "windows and samples with a --range are float32, and the model's are int8" in last_output()


def ids_model(path: Path, dtype: str, words: int = 50) -> Path:
    """The mean of the rows of a table that seven ids name."""
    import onnx
    from onnx import helper, numpy_helper

    table = np.random.default_rng(0).normal(size=(words, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Cast", ["ids"], ["whole"], to=onnx.TensorProto.INT64),
        helper.make_node("Gather", ["table", "whole"], ["rows"]),
        helper.make_node("ReduceMean", ["rows"], ["y"], axes=[1], keepdims=0),
    ]
    source = helper.make_tensor_value_info("ids", getattr(onnx.TensorProto, dtype), (1, 7))
    result = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, (1, 3))
    graph = helper.make_graph(nodes, "ids", [source], [result], [numpy_helper.from_array(table, "table")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return path


@pytest.mark.parametrize("dtype", ["INT32", "INT64"])
def test_ids_as_the_only_input_are_refused_with_what_to_do(dtype: str, tmp_path: Path) -> None:
    model = ids_model(tmp_path / "ids.onnx", dtype)
    np.save(tmp_path / "a.npy", np.arange(7))
    assert edgekit("bundle", model, "--golden", tmp_path / "a.npy", "--labels", "a,b,c", "--out", tmp_path / "out") == 4
    assert last_output().startswith(
        f"edgekit: input ids: takes {dtype.lower()}[1, 7]; a single input must be of floats"
    )
    assert "with a Cast from float32 in front" in last_output() and not (tmp_path / "out").exists()


def test_ids_as_floats_have_the_given_range(tmp_path: Path) -> None:
    """OpenVINO gives a plausible answer for an id that is none."""
    model, golden = ids_model(tmp_path / "ids.onnx", "FLOAT"), tmp_path / "a.npy"
    np.save(golden, np.arange(7, dtype=np.float32))
    words = ("--golden", golden, "--labels", "a,b,c", "--range", "0,49", "--out", tmp_path / "out")
    assert edgekit("bundle", model, *words) == 0, last_output()
    opened = load(bundle_in(tmp_path / "out"), trial=False, interpreter="openvino")
    assert opened.predict(np.full(7, 49, np.float32)).label in ("a", "b", "c")
    with pytest.raises(InputError, match="the bundle takes 0 to 49"):
        opened.predict(np.full(7, 50, np.float32))
