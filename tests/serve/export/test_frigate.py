"""`edgekit export frigate`: the file read as Frigate reads it gives the boxes of the bundle, and what it cannot read is
refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from edgekit.cli.app import app
from edgekit.core.errors import ConversionError
from edgekit.runner.bundle.manifest import RawSpec
from edgekit.runner.loader import load
from edgekit.runner.postprocess.detection import DetectedBox
from edgekit.serve.export import frigate
from edgekit.serve.export._subjects import read_bundles
from tests.serve.export import detectors
from tests.serve.export.conftest import Export, written

KEYS = {"path", "labelmap_path", "model_type", "width", "height", "input_tensor", "input_pixel_format", "input_dtype"}
"""Of Frigate's `model`, as its reference config lists them."""


def as_frigate_gives_it(picture: np.ndarray, model: dict[str, Any]) -> np.ndarray:
    """A picture (height, width, 3) in the form that the config asks for, by Frigate's reference config."""
    assert (model["input_tensor"], model["input_pixel_format"], model["input_dtype"]) == ("nchw", "rgb", "float")
    assert picture.shape == (model["height"], model["width"], 3)
    return np.ascontiguousarray(picture[None].transpose(0, 3, 1, 2)).astype(np.float32) / 255


def read_as_frigate(output: np.ndarray, labels: list[str]) -> list[DetectedBox]:
    """The boxes of an output of the type `yolo-generic`, before overlaps are suppressed.

    Frigate drops axes of length one, takes the longer axis for the points, keeps scores above 0.4, and gives each box
    its best class.
    """
    table = output.squeeze()
    table = table.T if table.shape[0] < table.shape[1] else table
    table = table[table[:, 4:].max(axis=1) > 0.4]
    found = []
    for row in table.astype(float):
        x, y, wide, high = row[:4]
        best = int(row[4:].argmax())
        box = (x - wide / 2, y - high / 2, x + wide / 2, y + high / 2)
        found.append(DetectedBox(labels[best], float(row[4 + best]), box))
    return found


def read_label_map(path: Path) -> list[str]:
    """By Frigate's rule: if the first line begins with a number, each line is an index and a label."""
    lines = path.read_text().splitlines()
    if not lines[0].split(" ", 1)[0].isdigit():
        return lines
    pairs = dict(line.split(" ", 1) for line in lines)
    return [pairs[str(index)] for index in range(len(pairs))]


def run_with_onnxruntime(path: Path) -> Callable[[np.ndarray], list[np.ndarray]]:
    import onnxruntime

    session = onnxruntime.InferenceSession(path)
    return lambda x: session.run(None, {session.get_inputs()[0].name: x})


def run_with_openvino(path: Path) -> Callable[[np.ndarray], list[np.ndarray]]:
    import openvino

    compiled = openvino.Core().compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return lambda x: list(compiled([x]).values())


RUN = {"onnx": [run_with_onnxruntime, run_with_openvino], "openvino": [run_with_openvino]}


def are_equal(one: DetectedBox, other: DetectedBox) -> bool:
    return (
        one.label == other.label
        and abs(one.probability - other.probability) <= 1e-3
        and np.abs(np.subtract(one.box, other.box)).max() <= 0.5
    )


class Exported(NamedTuple):
    """A bundle, the folder of its export, and what the command printed."""

    bundle: Path
    out: Path
    printed: str


CASES: dict[str, tuple[str, Any]] = {
    "onnx, distances": ("onnx", None),
    "onnx, shares": ("onnx", detectors.SHARES),
    "openvino, distances": ("openvino", None),
}


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Exported]:
    """The exports of all cases."""
    found = {}
    for name, (target, head) in CASES.items():
        folder = tmp_path_factory.mktemp(target)
        path = detectors.write(folder, target, head)
        done = CliRunner().invoke(app, ["export", "frigate", str(path), "--out", str(folder / "out")])
        assert done.exit_code == 0, done.stderr
        found[name] = Exported(path, folder / "out", done.stdout)
    return found


@pytest.mark.parametrize("case", CASES)
def test_frigate_reads_the_boxes_of_the_bundle(case: str, exported: dict[str, Exported]) -> None:
    path, out, _ = exported[case]
    target, folder = CASES[case][0], out / "cells"
    config = yaml.safe_load((folder / "config.yml").read_text())
    labels = read_label_map(folder / "labelmap.txt")
    assert labels == detectors.LABELS
    model = load(path, trial=False)
    samples = detectors.pictures(6)
    for make_run in RUN[target]:
        run = make_run(folder / Path(config["model"]["path"]).name)
        count = 0
        for sample in samples:
            [output] = run(as_frigate_gives_it(sample, config["model"]))
            assert output.dtype == np.float32
            seen, own = read_as_frigate(output, labels), model.predict(sample).boxes
            assert all(any(are_equal(each, box) for box in own) for each in seen)
            for box in own:  # one of them may have a second class above the threshold
                alike = [each for each in seen if np.abs(np.subtract(each.box, box.box)).max() <= 0.5]
                assert any(each.probability >= box.probability - 1e-3 for each in alike)
            count += len(seen)
        assert count > 20


@pytest.mark.parametrize(
    ("case", "files", "detector"),
    [
        ("onnx, distances", ["model.onnx"], {"type": "onnx"}),
        ("openvino, distances", ["model.bin", "model.xml"], {"type": "openvino", "device": "CPU"}),
    ],
)
def test_the_config_names_the_files_that_are_written(
    case: str, files: list[str], detector: dict[str, str], exported: dict[str, Exported]
) -> None:
    _, out, printed = exported[case]
    assert written(out) == sorted(
        ["README.md", "export.json", *(f"cells/{name}" for name in ("config.yml", "labelmap.txt", *files))]
    )
    config = yaml.safe_load((out / "cells/config.yml").read_text())
    assert config["detectors"] == {"edgekit": detector}
    assert set(config["model"]) == KEYS and config["model"]["model_type"] == "yolo-generic"
    assert (config["model"]["width"], config["model"]["height"]) == (detectors.SIDE, detectors.SIDE)
    for key in ("path", "labelmap_path"):
        place = Path(config["model"][key])
        assert place.parent == Path("/config/model_cache/cells") and (out / "cells" / place.name).is_file()
    assert config["objects"] == {"track": detectors.LABELS}
    assert "do not run Frigate" in printed and "those of the bundle within" in printed


def test_the_readme_says_what_frigate_does_with_the_boxes(exported: dict[str, Exported]) -> None:
    readme = (exported["onnx, distances"].out / "README.md").read_text()
    assert "float32[1, 7, 80]" in readme and "float32[1, 3, 64, 64]" in readme
    assert "threshold of the bundle is 0.40, so set `min_score: 0.40`" in readme


def test_a_threshold_that_frigate_does_not_reach_is_reported(tmp_path: Path, export: Export) -> None:
    options = {"least_probability": 0.31, "overlap": 0.5, "most": 100}
    assert export("frigate", detectors.write(tmp_path, boxes=options), tmp_path / "out").exit_code == 0
    readme = (tmp_path / "out/README.md").read_text()
    assert "threshold of the bundle is 0.31" in readme and "lost in Frigate; set `min_score: 0.4`" in readme


def test_metadata_of_the_network_stay_and_those_of_the_bundles_file_do_not(exported: dict[str, Exported]) -> None:
    import onnx

    model = onnx.load(exported["onnx, distances"].out / "cells/model.onnx")
    assert {each.key: each.value for each in model.metadata_props} == {"license": "MIT"}


def test_an_open_batch_is_fixed(tmp_path: Path, export: Export) -> None:
    import onnx

    model = onnx.load_model_from_string(detectors.onnx_model())
    for port in (*model.graph.input, *model.graph.output):
        port.type.tensor_type.shape.dim[0].dim_param = "batch"
    for weight in model.graph.initializer:
        if weight.name == "strips" or weight.name.endswith("_shape"):
            sizes = onnx.numpy_helper.to_array(weight).copy()
            sizes[0] = -1
            weight.CopyFrom(onnx.numpy_helper.from_array(sizes, weight.name))
    path = detectors.write(tmp_path, content=model.SerializeToString())
    assert export("frigate", path, tmp_path / "out").exit_code == 0
    [output] = onnx.shape_inference.infer_shapes(onnx.load(tmp_path / "out/cells/model.onnx")).graph.output
    assert [side.dim_value for side in output.type.tensor_type.shape.dim] == [1, 7, 80]


def test_a_file_that_contains_the_steps_gets_bytes(tmp_path: Path, export: Export) -> None:
    path = detectors.write(tmp_path, content=detectors.byte_model(1 / 255), inputs=(detectors.BYTES,))
    done = export("frigate", path, tmp_path / "out")
    assert done.exit_code == 0, done.stderr
    config = yaml.safe_load((tmp_path / "out/cells/config.yml").read_text())
    run, sample = run_with_onnxruntime(tmp_path / "out/cells/model.onnx"), detectors.pictures(1)[0]
    [output] = run(as_frigate_gives_it(sample, config["model"]))
    own = load(path, trial=False).predict(sample).boxes
    seen = read_as_frigate(output, detectors.LABELS)
    assert seen and all(any(are_equal(each, box) for box in own) for each in seen)


WIDE = RawSpec("image", (detectors.SIDE, detectors.SIDE * 2, 3), "uint8")


def refusal(path: Path, export: Export) -> str:
    done = export("frigate", path, path.parent / "out")
    assert done.exit_code == 5 and not (path.parent / "out").exists()
    assert len(done.stderr.splitlines()) == 1
    return str(done.stderr)


def test_a_file_that_gives_other_boxes_than_the_bundle_is_refused(tmp_path: Path, export: Export) -> None:
    """The metadata of the file name another scale than its operators have, which only the runner follows."""
    seen = np.rint(detectors.pictures() * (100 / 255)).astype(np.uint8)
    path = detectors.write(tmp_path, content=detectors.byte_model(1 / 100), inputs=(detectors.BYTES,), seen=seen)
    assert "gives other boxes than the bundle: they differ by up to" in refusal(path, export)


def test_an_old_opset_is_refused(tmp_path: Path, export: Export) -> None:
    path = detectors.write(tmp_path, content=detectors.onnx_model(opset=9))
    assert "its file has opset 9, but the decoding needs 11 or later" in refusal(path, export)


def test_a_step_that_the_file_cannot_hold_is_refused(tmp_path: Path, export: Export) -> None:
    steps = [{"step": "resize", "height": detectors.SIDE, "width": detectors.SIDE}, *detectors.STEPS]
    assert "step 'resize' cannot be put into the model file" in refusal(
        detectors.write(tmp_path, preprocess=steps), export
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target": "tflite"}, "is a tflite bundle; export the onnx or openvino bundle"),
        ({"task": "classification"}, "its task is classification, but Frigate needs a detection"),
        ({"raw": WIDE}, "its samples are 128×64 pixels, but Frigate cuts squares"),
    ],
)
def test_what_frigate_cannot_use_is_refused_before_it_is_run(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    [subject] = read_bundles(detectors.write(tmp_path))
    manifest = replace(subject.manifest, **changes)
    changed = subject._replace(bundle=subject.bundle._replace(manifest=manifest))
    with pytest.raises(ConversionError, match=message):
        frigate.export([changed], None)  # type: ignore[arg-type]
