"""The bundles of every task answer on Arm: their golden samples, and what they said of the same files on x86-64.

`make tasks` makes them, in EDGEKIT_TASK_BUNDLES.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from edgekit.runner import bundle as bundles
from tests import requirements
from tests.tasks.cases import CASES

from .device import Device, prefix, python
from .fetch import WHEELS

pytestmark = [pytest.mark.aarch64, pytest.mark.slow]

PROCESSOR = "cortex-a76"
TARGETS = {"litert": "tflite", "openvino": "openvino", "onnxruntime": "onnx"}
BETWEEN_PROCESSORS = 0.05
"""Other kernels round otherwise, and int8 by a step: of probabilities, scores and values of unit spread."""
A_PIXEL = 2.0
NOT_COMPARED = ("timing_ms", "input", "masks")
"""Of a mask's runs one moves with a single pixel; the shares of the classes say how many did."""


@pytest.fixture(scope="module")
def folder() -> Path:
    """What `make tasks` left; without it there is nothing to ask, which is a failure in CI."""
    named = os.environ.get("EDGEKIT_TASK_BUNDLES")
    is_there = named is not None and Path(named).is_dir()
    requirements.condition(is_there, "EDGEKIT_TASK_BUNDLES, a folder of bundles", install="make tasks")
    assert named is not None
    return Path(named)


@pytest.fixture(scope="module", params=TARGETS)
def device(request: pytest.FixtureRequest, fetched: None, tmp_path_factory: pytest.TempPathFactory) -> Device:
    """A Raspberry Pi 5's processor, with each interpreter in turn."""
    home: Path = tmp_path_factory.mktemp(request.param)
    (home / "cache").mkdir()
    assert request.param in WHEELS
    return Device(PROCESSOR, request.param, python(PROCESSOR, prefix(PROCESSOR, home / "prefix")), home / "cache")


@pytest.mark.parametrize("name", CASES)
def test_a_tasks_bundle_answers_on_arm_as_on_x86(device: Device, folder: Path, name: str) -> None:
    here = folder / name
    [path] = here.glob(f"*-{TARGETS[device.interpreter]}-*.edge.zip")
    if device.interpreter == "openvino" and "-int8-" in bundles.read(path).manifest.variant:
        requirements.processor("vnni", why="OpenVINO's int8 layers sum in 16 bits without it, so x86 is no reference")
    options = ("--interpreter", device.interpreter, "--threads", 1, "--json")
    done = device.run(here / "edgerun.pyz", "selftest", path, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    files = sorted((here / "files").iterdir())
    done = device.run(here / "edgerun.pyz", "predict", path, *files, *options, "--no-trial")
    assert done.returncode == 0, done.stdout + done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    expected = json.loads((here / "answers.json").read_text())[path.name]
    assert len(found) == len(expected)
    boxes = bundles.read(path).manifest.boxes
    if boxes is not None:
        same_boxes(found, expected, boxes["least_probability"] + BETWEEN_PROCESSORS)
        return
    for one, other in zip(found, expected):
        assert alike(one, other), (one, other)


def same_boxes(answers: list[dict[str, Any]], expected: list[dict[str, Any]], least: float) -> None:
    """Each box with at least the probability `least` has one like it on the other processor, in any order.

    A box near the least probability may be on one processor's list alone.
    """
    count = 0
    for one, other in [*zip(answers, expected), *zip(expected, answers)]:
        for box in (each for each in one["boxes"] if each["probability"] >= least):
            assert any(alike(box, each) for each in other["boxes"]), (box, other)
            count += 1
    assert count > len(answers), f"{count} boxes of {len(answers)} pictures are probable enough: too few to compare"


def alike(one: Any, other: Any, key: str = "") -> bool:
    """Whether two answers say the same, numbers up to a distance."""
    if isinstance(one, dict):
        keys = [each for each in one if each not in NOT_COMPARED]
        return set(one) == set(other) and all(alike(one[each], other[each], each) for each in keys)
    if isinstance(one, list):
        return len(one) == len(other) and all(alike(a, b, key) for a, b in zip(one, other))
    if isinstance(one, float):
        return abs(one - other) <= (A_PIXEL if key == "box" else BETWEEN_PROCESSORS * max(1.0, abs(other)))
    return bool(one == other)
