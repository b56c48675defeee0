"""A runner with metrics, a monitor, kept samples and a report, on a full disk: it answers, and does not grow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import requirements
from tests.conftest import ROOT
from tests.serve.memory import growth_kb
from tests.serve.watched import with_reference

pytestmark = pytest.mark.processes

SECONDS = float(os.environ.get("EDGEKIT_SOAK_S") or 20)
MOST_GROWTH_KB = 2048
SCRIPT = """
disk=$1; shift
mount -t tmpfs -o size=64k edgekit-full "$disk" || exit 99
mkdir "$disk/kept"
exec "$@"
"""
PROGRAM = """
import json, sys, time, warnings
from pathlib import Path
import numpy as np
from edgekit.runner import load
from edgekit.runner.errors import InputError
from edgekit.device.monitor.field_report import FieldReport
from tests.serve.memory import own_kb
from tests.serve.watched import ordinary_images

warnings.simplefilter("ignore")
bundle, disk, seconds = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])
plain = load(bundle, trial=False)
model = load(bundle, trial=False, metrics=str(disk / "model.prom"), monitor=True, keep=disk / "kept")
model.observers.add(FieldReport(model, disk / "report.json"))
try:
    with open(disk / "filler", "ab", buffering=0) as stream:
        while True:
            stream.write(bytes(4096))
except OSError as error:
    print(error, file=sys.stderr)
images = ordinary_images(200, 3)
expected = [plain.predict(image).scores for image in images]
wrong, refused, number, sizes, last = 0, 0, 0, [], 0.0
began = time.monotonic()
while time.monotonic() - began < seconds + 3:
    image = images[number % 200]
    wrong += not np.array_equal(model.predict(image).scores, expected[number % 200])
    if number % 10 == 0:
        try:
            model.predict(np.zeros((number % 1000 + 9, 8, 1), np.uint8))
        except InputError:
            refused += 1
    number += 1
    now = time.monotonic() - began
    if now - last > 0.25:
        last = now
        if now > 3:
            sizes.append((now, own_kb("self")))
verdict = model.monitor.verdict()
model.observers.close()
print(json.dumps({"answers": number, "wrong": wrong, "refused": refused, "sizes": sizes, "watched": verdict.samples}))
"""


def test_a_runner_that_is_watched_on_a_full_disk_answers_right_and_does_not_grow(
    bundles: dict[str, Path], tmp_path: Path
) -> None:
    bundle, disk = tmp_path / "tiny.edge.zip", tmp_path / "disk"
    bundle.write_bytes(bundles["onnx"].read_bytes())
    disk.mkdir()
    command = [sys.executable, "-c", PROGRAM, str(with_reference(bundle)), str(disk), str(SECONDS)]
    done = subprocess.run(
        [*requirements.mount(), "sh", "-c", SCRIPT, "sh", str(disk), *command],
        cwd=ROOT, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "No space left" in done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    sizes = found.pop("sizes")
    growth = growth_kb(sizes[len(sizes) // 2 :])
    print({**found, "growth_kb": round(growth)})
    assert found["wrong"] == 0
    assert found["refused"] == (found["answers"] + 9) // 10
    assert found["watched"] >= found["answers"] / 2
    assert growth < MOST_GROWTH_KB
