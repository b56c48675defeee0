"""Write the example reports of notebook 08 anew: `python -m tests.reference.field_reports`.

The runner answers seeded pictures with a monitor attached, and writes what it always writes. Three things are made up,
and notebook 08 says so: the pictures of the last report are darker, its execute times are half as long again, and the
temperatures come from files. Names and dates are fixed, so that a second run differs in its latencies alone.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.device.monitor import field_report, reference
from edgekit.device.monitor.monitor import Monitor
from edgekit.runner import bundle
from edgekit.runner.model import Model, open_model
from tests.runner.conftest import NCHW, SCORES, ModelFiles, manifest_for, members_for, onnx_model
from tests.runner.conftest import reference as scores

FOLDER = Path(__file__).resolve().parents[2] / "notebooks" / "field"
ANSWERS = 3000
REPORTS = {
    "camera-7-march": ("2026-03-02T06:00:00Z", "2026-03-02T18:00:00Z", 51.0, 1.0, 1.0),
    "camera-7-june": ("2026-06-01T06:00:00Z", "2026-06-01T18:00:00Z", 63.5, 1.0, 1.0),
    "camera-7-september": ("2026-09-07T06:00:00Z", "2026-09-07T18:00:00Z", 58.0, 0.6, 1.5),
}
"""From, to, temperature in °C, brightness of the pictures and factor on the times of execute."""


def pictures(count: int, seed: int, brightness: float) -> np.ndarray:
    """(count, 8, 8, 1) uint8 of differing contrast, all scaled."""
    rng = np.random.default_rng(seed)
    light = rng.uniform(0.7, 1.0, (count, 1, 1, 1)) * brightness
    return (rng.integers(0, 256, (count, 8, 8, 1)) * light).astype(np.uint8)


def write_bundle(path: Path) -> None:
    """The tiny network with a reference of what its validation looked like."""
    made = ModelFiles("onnx", {"model.onnx": onnx_model()}, NCHW, SCORES, 1e-4)
    seen = pictures(1000, 1, 1.0)
    manifest = manifest_for(made, name="camera", version="1.0.0", reference="reference.json")
    known = reference.encode(reference.build_reference(manifest, seen, scores(seen).astype(np.float32)))
    bundle.write(path, manifest, {**members_for(made, seen[:8], scores(seen[:8])), "reference.json": known})


def opened(path: Path) -> Model:
    """On ONNX Runtime, with a monitor."""
    model = open_model(bundle.read(path), 1, "onnxruntime")
    model.observers.add(Monitor.of(model))
    return model


class Slower:
    """A report whose times of execute are so many times as long."""

    def __init__(self, report: field_report.FieldReport, factor: float) -> None:
        self._report, self._factor = report, factor

    def answered(self, raw: np.ndarray, outputs: np.ndarray, prediction: Any) -> None:
        prediction.timing_ms["execute"] *= self._factor
        self._report.answered(raw, outputs, prediction)

    def refused(self, error: Any) -> None:
        self._report.refused(error)

    def dropped(self, count: int) -> None:
        self._report.dropped(count)

    def close(self) -> None:
        self._report.close()


def sensors(folder: Path, temperature_c: float) -> Path:
    """A file system's root with a thermometer."""
    zone = folder / "sys/class/thermal/thermal_zone0"
    zone.mkdir(parents=True, exist_ok=True)
    (zone / "type").write_text("cpu-thermal")
    (zone / "temp").write_text(str(round(1000 * temperature_c)))
    return folder


def write(path: Path, number: int, name: str, work: Path) -> None:
    """One report."""
    begun, ended, temperature_c, brightness, factor = REPORTS[name]
    model = opened(work / "camera.edge.zip")
    root = sensors(work / "root", temperature_c)
    model.observers.add(Slower(field_report.FieldReport(model, path, root=root), factor))
    for picture in pictures(ANSWERS, 10 + number, brightness):
        model.predict(picture)
    model.observers.close()
    found = json.loads(path.read_text())
    found.update({"from": begun, "to": ended, "seconds": 43_200.0})
    found["device"] = {**found["device"], "host": "camera-7", "cpu": "example board", "system": "Linux"}
    path.write_text(json.dumps(found, sort_keys=True, separators=(",", ":")) + "\n")


def main() -> None:
    """All of them."""
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        write_bundle(Path(work) / "camera.edge.zip")
        for number, name in enumerate(REPORTS):
            write(FOLDER / f"{name}.json", number, name, Path(work))
            print(f"wrote notebooks/field/{name}.json")


if __name__ == "__main__":
    main()
