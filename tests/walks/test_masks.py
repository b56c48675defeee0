"""Pictures with masks through the whole walk: distilled, pruned, in int8, and answered on three interpreters."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from edgekit.core.config import TARGETS
from tests.conftest import run_edgekit
from tests.data.masked import CLASSES, folders, scenes

pytestmark = pytest.mark.long


def test_masks_walk_through_to_bundles_that_answer(tmp_path: Path) -> None:
    made = scenes(180)
    folders(tmp_path / "data", made)
    home = {"SHAPES": str(tmp_path / "data"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = run_edgekit("run", "tests/configs/shapes.yaml", "--out", str(tmp_path), timeout_s=1800, **home)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "shapes/result.json").read_text())
    assert (result["task"], set(result["winners"])) == ("segmentation", set(TARGETS))
    baseline, *variants = result["variants"]
    assert baseline["accuracy_test"] > 0.75, "the ground alone would give about 0.3"
    assert {row["precision"] for row in variants} == {"fp32", "int8"}
    assert (result["by_class"]["score"], len(result["by_class"]["groups"])) == ("IoU", 3)
    for row in variants:
        assert row["drop_pp"] == pytest.approx(
            100 * (baseline["accuracy_validation"] - row["accuracy_validation"]), abs=1e-4
        )
    bundles = tmp_path / "shapes/bundles"
    scene = next(scene for scene in made if scene.split == "test")
    shutil.copy(tmp_path / "data/images/test" / f"{scene.name}.png", tmp_path / "p.png")
    for entry in result["bundles"].values():
        command = [sys.executable, "-I", str(bundles / "edgerun.pyz"), "predict", str(bundles / entry["file"])]
        drawn = tmp_path / f"{entry['file']}.png"
        command += [str(tmp_path / "p.png"), "--json", "--draw", str(drawn)]
        said = subprocess.run(command, capture_output=True, text=True, check=False)
        assert said.returncode == 0, said.stderr
        answer = json.loads(said.stdout)
        assert set(answer["shares"]) == set(CLASSES)
        assert Image.open(drawn).size == (scene.mask.shape[1], scene.mask.shape[0])
        pixels = np.zeros(Image.open(tmp_path / "p.png").size[::-1], np.uint8).ravel(order="F")
        for each in answer["masks"]:
            ends = np.cumsum(each["counts"])
            for begin, end in zip(ends[::2], ends[1::2], strict=False):
                pixels[begin:end] = CLASSES.index(each["label"])
        found, known = pixels.reshape(scene.mask.shape, order="F"), scene.mask != 255
        assert (found == scene.mask)[known].mean() > 0.9
