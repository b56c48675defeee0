"""The bundles of every task answer on Arm: their golden vectors, and what they said of the same files on x86-64.

`make tasks` makes them, in EDGEKIT_TASK_BUNDLES.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from edgekit.runner import bundle as bundles
from tests.targets.processor import sums_in_16_bits
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
    if named is None or not Path(named).is_dir():
        say = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        say("EDGEKIT_TASK_BUNDLES names no folder; run: make tasks")
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
    if device.interpreter == "openvino" and "-int8-" in bundles.read(path).manifest.variant and sums_in_16_bits():
        pytest.skip("OpenVINO's int8 layers sum in 16 bits on x86 without VNNI: what they answered here is no measure")
    asked = ("--interpreter", device.interpreter, "--threads", 1, "--json")
    done = device.run(here / "edgerun.pyz", "selftest", path, *asked)
    assert done.returncode == 0, done.stdout + done.stderr
    files = sorted((here / "files").iterdir())
    done = device.run(here / "edgerun.pyz", "predict", path, *files, *asked, "--no-trial")
    assert done.returncode == 0, done.stdout + done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    wanted = json.loads((here / "answers.json").read_text())[path.name]
    assert len(found) == len(wanted)
    boxes = bundles.read(path).manifest.boxes
    for one, other in zip(found, wanted):
        if boxes is not None:
            assert alike({**one, "boxes": None}, {**other, "boxes": None})
            lost = [*without_partner(one["boxes"], other["boxes"]), *without_partner(other["boxes"], one["boxes"])]
            surely = boxes["least_probability"] + BETWEEN_PROCESSORS
            assert all(box["probability"] < surely for box in lost), (lost, one, other)
        else:
            assert alike(one, other), (one, other)


def without_partner(boxes: list[dict[str, Any]], others: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The boxes that none of the others is like: a box near the least probability is on one processor's list alone."""
    return [box for box in boxes if not any(alike(box, other) for other in others)]


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
