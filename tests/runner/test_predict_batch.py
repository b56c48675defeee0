"""`predict --batch`: the answers that there are without it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from edgekit.runner.cli import main

from .batches import of_neighbours, onnx_with, reshaped
from .conftest import ModelFiles, WriteBundle, samples

KEYS = ["tflite", "tflite-int8", "openvino", "onnx"]
Captured = pytest.CaptureFixture[str]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Eleven samples in two kinds of file, and two files among them that are none."""
    home = tmp_path / "inputs"
    home.mkdir()
    for number, image in enumerate(samples(11)):
        if number % 2:
            np.save(home / f"{number:02}.npy", image)
        else:
            Image.fromarray(image[..., 0]).save(home / f"{number:02}.png")
    np.save(home / "03-wide.npy", np.zeros((9, 8, 1), np.uint8))
    (home / "05-torn.png").write_bytes(b"\x89PNG\r\n\x1a\n torn")
    return home


def predict(capsys: Captured, code: int, *arguments: object) -> tuple[str, str]:
    assert main(["predict", *(str(each) for each in arguments), "--no-trial"]) == code
    captured = capsys.readouterr()
    return captured.out, captured.err


def answers(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def without_times(answer: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in answer.items() if key not in ("timing_ms", "scores", "top")}


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("size", [1, 2, 4, 11, 16])
def test_the_answers_are_those_of_one_at_a_time(
    key: str, size: int, models: dict[str, ModelFiles], write_bundle: WriteBundle, folder: Path, capsys: Captured
) -> None:
    bundle = write_bundle(onnx_with() if key == "onnx" else models[key])
    one_by_one, complaints = predict(capsys, 4, bundle, folder, "--json")
    batched, same_complaints = predict(capsys, 4, bundle, folder, "--json", "--batch", size)
    plain, found = answers(one_by_one), answers(batched)
    assert complaints == same_complaints and "2 of 13 inputs got no answer" in complaints
    assert [without_times(each) for each in found] == [without_times(each) for each in plain]
    assert [Path(each["input"]).name for each in found] == sorted(path.name for path in folder.iterdir())
    for one, other in zip(plain, found, strict=True):
        assert set(one) == set(other)
        if "error" not in one:
            np.testing.assert_allclose(other["scores"], one["scores"], atol=0 if key != "openvino" else 1e-5)
            assert [label for label, _ in one["top"]] == [label for label, _ in other["top"]]
            assert set(other["timing_ms"]) == set(one["timing_ms"])
    if key != "openvino":
        assert predict(capsys, 4, bundle, folder, "--batch", size) == predict(capsys, 4, bundle, folder)


def test_a_call_s_time_is_divided_by_its_samples(write_bundle: WriteBundle, folder: Path, capsys: Captured) -> None:
    out, _ = predict(capsys, 4, write_bundle(onnx_with()), folder, "--json", "--batch", 4)
    times = [each["timing_ms"]["execute"] for each in answers(out) if "error" not in each]
    calls = [times[:4], times[4:8], times[8:10], times[10:]]
    assert all(len(set(call)) == 1 for call in calls) and len({call[0] for call in calls}) == 4


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_bad_file_alone(options: list[str], bundles: dict[str, Path], folder: Path, capsys: Captured) -> None:
    bad = folder / "03-wide.npy"
    assert predict(capsys, 4, bundles["tflite"], bad, *options, "--batch", 4) == predict(
        capsys, 4, bundles["tflite"], bad, *options
    )


def test_a_size_that_the_model_cannot_take(write_bundle: WriteBundle, folder: Path, capsys: Captured) -> None:
    out, err = predict(capsys, 5, write_bundle(onnx_with(reshaped, batch=1)), folder, "--batch", 4)
    assert out == "" and len(err.splitlines()) == 1
    assert err.startswith("edgerun: --batch: 4 samples at once: input: the model file fixes its batch at 1; ")
    assert "if you build it again" in err and "leave --batch out" in err
    out, err = predict(capsys, 5, write_bundle(onnx_with(of_neighbours)), folder, "--batch", 3)
    assert out == "" and "3 samples at once: onnxruntime does not reproduce the outputs" in err


@pytest.mark.parametrize(
    "arguments",
    [["x.npy", "--batch", "0"], ["x.npy", "--batch", "many"],
     ["--stream", "gray", "--size", "8x8", "--batch", "2"]],
)  # fmt: skip
def test_a_wrong_use_is_exit_code_2(arguments: list[str], bundles: dict[str, Path], capsys: Captured) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["predict", str(bundles["tflite"]), *arguments])
    assert ended.value.code == 2 and "--batch" in capsys.readouterr().err


def test_too_many_at_once(bundles: dict[str, Path], folder: Path, capsys: Captured) -> None:
    assert (
        "got 5000; use a whole number from 1 to 1024"
        in predict(capsys, 4, bundles["tflite"], folder, "--batch", 5000)[1]
    )
