"""Pictures with boxes through the whole pipeline: `edgekit init`, a run, bundles that answer as was evaluated."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image

from edgekit.data import Data, load
from edgekit.runner import bundle, inputs
from edgekit.runner.boxes import probability
from edgekit.runner.input_path import find_step, picture_transform
from edgekit.workbook.plan import load_plan
from tests import requirements
from tests.conftest import run_edgekit

pytestmark = [
    pytest.mark.long,
    pytest.mark.needs(data="data/bccd.zip"),
]
COUNTS = {"train": 100, "val": 24, "test": 16}
SHOWN = 6
"""Validation pictures that each bundle answers."""
INTERPRETERS = {"tflite": "litert", "openvino": "openvino", "onnx": "onnxruntime"}
SHORT: dict[str, dict[str, Any]] = {
    "budget": {"accuracy_drop_pp": 60.0},
    "profile": {"epochs": 14, "latency_calls": 40, "warmup_calls": 5, "operator_calls": 5, "runtimes": False},
    "distill": {"epochs": 14},
    "prune": {"epochs": 1, "steps": 1, "ratio": 0.3, "sparsity_steps": 1, "measure": False},
    "quantize": {"epochs": 1, "recipes": ["minmax"], "study_sizes": [4], "sensitivity_samples": 8},
    "convert": {"check_samples": 12, "models": ["student"], "precisions": ["fp32", "int8"], "int8_min_snr_db": 3.0},
    "benchmark": {"rounds": 10, "calls_per_round": 5, "warmup_per_round": 2, "most_rounds": 10, "load_s": 0},
    "bundle": {"golden_samples": 4},
}
"""Options that are smaller than `edgekit init` writes them, for a run of a few minutes."""


def some_pictures(home: Path) -> Path:
    """The first pictures of each split, as they lie in the zip."""
    with zipfile.ZipFile(requirements.data("data/bccd.zip")) as archive:
        for split, count in COUNTS.items():
            listed = f"BCCD/ImageSets/Main/{split}.txt"
            stems = archive.read(listed).decode().split()[:count]
            kept = [f"BCCD/{folder}/{stem}.{end}" for stem in stems for folder, end in
                    (("Annotations", "xml"), ("JPEGImages", "jpg"))]  # fmt: skip
            for name in kept:
                archive.extract(name, home)
            (home / listed).parent.mkdir(parents=True, exist_ok=True)
            (home / listed).write_text("\n".join(stems))
    return home


def test_blood_cells_run_from_init_to_bundles_that_answer_and_draw(tmp_path: Path) -> None:
    some_pictures(tmp_path / "cells")
    done = run_edgekit("init", "mine", "--data", str(tmp_path / "cells"), "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    config = tmp_path / "mine.yaml"
    values = yaml.safe_load(config.read_text())
    assert (values["task"], values["data"]["path"]) == ("detection", "cells")
    for section, shorter in SHORT.items():
        values[section] = {**values.get(section, {}), **shorter}
    config.write_text(yaml.safe_dump(values))
    done = run_edgekit("run", str(config), "--out", str(tmp_path / "runs"), timeout_s=1500)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "runs/mine"
    result = json.loads((folder / "result.json").read_text())
    assert result["task"] == "detection" and result["variants"][0]["accuracy_validation"] > 0.1
    assert "Labels and answers, drawn into pictures" in (folder / "report.html").read_text()
    assert set(result["bundles"]) == set(INTERPRETERS)
    data = load(load_plan(config).data)
    with np.load(folder / "benchmark/evidence/answers.npz") as evaluated:
        for target, entry in result["bundles"].items():
            _answers_as_evaluated(target, folder / "bundles" / entry["file"], data, evaluated, tmp_path)


def _answers_as_evaluated(
    target: str, path: Path, data: Data, evaluated: Mapping[str, np.ndarray], folder: Path
) -> None:
    """Each file's boxes are those of the evaluation, moved into the file's pixels, and so they are drawn."""
    manifest = bundle.read(path).manifest
    pictures, drawn = folder / f"pictures-{target}", folder / f"drawn-{target}"
    of_file = _validation(folder / "cells", data, manifest.raw, pictures)
    options = ["--interpreter", INTERPRETERS[target], "--threads", "1", "--no-trial", "--json", "--draw", str(drawn)]
    command = [sys.executable, "-I", str(path.parent / "edgerun.pyz"), "predict", str(path), str(pictures), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == SHOWN and {PurePosixPath(each["input"]).name for each in answers} == set(of_file)
    least, resize = manifest.boxes["least_probability"], find_step(manifest.raw.steps, "resize_picture")  # type: ignore[index]
    assert resize is not None
    for answer in answers:
        name = PurePosixPath(answer["input"]).name
        with Image.open(pictures / name) as picture:
            place = picture_transform(picture.size, resize)
            size = picture.size
        rows = [row for row in evaluated[manifest.variant][of_file[name]].tolist() if row[0] >= 0]
        certain = [row for row in rows if probability(row[5]) >= least]
        assert [each["label"] for each in answer["boxes"]] == [data.classes[int(row[0])] for row in certain]
        assert [each["probability"] for each in answer["boxes"]] == [probability(row[5]) for row in certain]
        assert [each["box"] for each in answer["boxes"]] == [[*place.to_picture(row[1:5])] for row in certain]
        with Image.open(answer["drawn"]) as shown, Image.open(pictures / name) as before:
            changed = np.asarray(shown) != np.asarray(before.convert("RGB"))
            assert (shown.format, shown.size) == ("PNG", size)
            assert changed.any() == bool(answer["boxes"])
    assert any(answer["boxes"] for answer in answers)


def _validation(home: Path, data: Data, raw: Any, out: Path) -> dict[str, int]:
    """Copies of validation pictures, and the place of each in the split."""
    places = {x.tobytes(): place for place, x in enumerate(data.validation.x)}
    out.mkdir()
    found: dict[str, int] = {}
    for path in sorted((home / "BCCD/JPEGImages").iterdir()):
        place = places.get(inputs.read_first_sample(str(path), raw).tobytes())
        if place is not None and len(found) < SHOWN:
            shutil.copy(path, out / path.name)
            found[path.name] = place
    return found
