"""The boxes that edgekit reads from the exported files of other packages, beside those of the packages themselves.

`python -m tests.heads.compare [KEY …]` makes these rows of docs/reference/heads.json anew, by default all;
`python -m docs.generate` then writes the table of docs/reference/model-files.md.
"""

from __future__ import annotations

import importlib.metadata
import io
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from edgekit.models.files import published_detector
from edgekit.models.files.task_outputs import for_task
from edgekit.runner import output_vector
from edgekit.runner.backends import onnxruntime as runner
from edgekit.runner.box_heads import HeadDecoder
from edgekit.runner.boxes import BoxOptions, Decoder
from tests.conftest import ROOT
from tests.heads.families import BY_KEY, CLASSES, FAMILIES, MOST, OVERLAP, SIDE, Family

RESULTS = ROOT / "docs" / "reference" / "heads.json"
PACKAGES = ROOT / "build" / "heads"
PICTURES = 4
MAX_PIXELS, MAX_SCORE = 0.5, 1e-3


def pictures() -> np.ndarray:
    """Pictures of blood cells as a network takes them, (n, 3, SIDE, SIDE) from 0 to 1."""
    path = Path(os.environ["EDGEKIT_SHARED"]) / "data" / "bccd.zip"
    with zipfile.ZipFile(path) as archive:
        names = sorted(name for name in archive.namelist() if name.endswith(".jpg"))[:PICTURES]
        images = [Image.open(io.BytesIO(archive.read(name))).convert("RGB").resize((SIDE, SIDE)) for name in names]
    return np.stack([np.asarray(image, dtype=np.float32).transpose(2, 0, 1) / 255 for image in images])


def run_peers(families: Sequence[Family], folder: Path) -> None:
    """Build, export and run detectors in a process of their own; see `tests.heads.peer`."""
    np.save(folder / "images.npy", pictures())
    environment = {
        **os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(PACKAGES)]), "YOLO_CONFIG_DIR": str(folder),
        "YOLO_OFFLINE": "true", "YOLO_AUTOINSTALL": "false", "CUDA_VISIBLE_DEVICES": "",
    }  # fmt: skip
    command = [sys.executable, "-m", "tests.heads.peer", str(folder), *(family.key for family in families)]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip()[-2000:])


def row(family: Family, folder: Path) -> dict[str, Any]:
    """What the documentation says about a family, of which `run_peers` wrote the files."""
    home = folder / family.key
    if (home / "error.txt").exists():
        raise RuntimeError((home / "error.txt").read_text())
    expected = json.loads((home / "boxes.json").read_text())
    needed = for_task("detection", CLASSES, (SIDE, SIDE, 3))
    path = home / "net.onnx"
    detector = published_detector.read(path, "onnx", needed)
    assert detector is not None, "the outputs were taken for distances and logits"
    content = detector.content or path.read_bytes()
    session = runner.session(content, None)
    name = session.get_inputs()[0].name
    overlap = 1.0 if detector.is_suppressed else OVERLAP
    pixels, score, count = 0.0, 0.0, 0
    for image, (threshold, boxes) in zip(np.load(folder / "images.npy"), expected, strict=True):
        outputs = session.run(None, {name: image[None]})
        rows = output_vector.join(outputs)
        if detector.head is not None:
            rows = HeadDecoder(detector.head, [each.shape[1:] for each in outputs])(rows)
        found = Decoder((SIDE, SIDE), rows.shape[1], BoxOptions(threshold, overlap, MOST))(rows[0])
        probabilities = 1 / (1 + np.exp(-found.logits.astype(np.float64)))
        answer = np.concatenate([found.sides, probabilities[:, None], found.classes[:, None]], axis=1)
        differences = match(answer, np.array(boxes).reshape(-1, 6), threshold)
        pixels, score = max(pixels, differences[0]), max(score, differences[1])
        count += differences[2]
    whole = runner.session(path.read_bytes(), None)
    own_outputs = whole.run(None, {whole.get_inputs()[0].name: pictures()[:1]})
    return {
        "family": family.name,
        "package": family.package,
        "version": _version(family.package),
        "outputs": [list(each.shape) for each in own_outputs],
        "decoding": detector.decoding,
        "is_cut": detector.content is not None,
        "head": detector.head["boxes"] if detector.head else "",
        "boxes": count,
        "pixels": float(f"{pixels:.1g}"),
        "score": float(f"{score:.1g}"),
    }


def match(answer: np.ndarray, expected: np.ndarray, threshold: float) -> tuple[float, float, int]:
    """Return the largest differences of boxes and of scores between two lists of boxes, and how many were compared.

    Raises AssertionError if a box of either list has no box of its class in the other one within the tolerances; boxes
    at the threshold may be in one list only.
    """
    pixels, score, count = 0.0, 0.0, 0
    clipped = expected.copy()
    clipped[:, :4] = clipped[:, :4].clip(0, SIDE)
    for one, other in ((answer, clipped), (clipped, answer)):
        for each in one[one[:, 4] > threshold + 1e-6]:
            count += 1
            near = other[other[:, 5] == each[5]]
            distances = np.abs(near[:, :4] - each[:4]).max(axis=1, initial=0)
            unlike = np.abs(near[:, 4] - each[4])
            matches = (distances <= MAX_PIXELS) & (unlike <= MAX_SCORE)
            assert matches.any(), f"no box like {each.round(4).tolist()} among {len(other)}"
            best = np.flatnonzero(matches)[distances[matches].argmin()]
            pixels, score = max(pixels, float(distances[best])), max(score, float(unlike[best]))
    return pixels, score, count


def _version(package: str) -> str:
    folders = [str(PACKAGES), *sys.path]
    found = next(importlib.metadata.distributions(name=package, path=folders))
    return found.version


def stored() -> dict[str, dict[str, Any]]:
    """The rows of docs/reference/heads.json by the keys of the families."""
    rows: dict[str, dict[str, Any]] = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    return rows


def main(keys: list[str]) -> int:
    """Measure these families again, and keep the rows of the others."""
    rows, failed = stored(), 0
    families = [BY_KEY[key] for key in keys or BY_KEY]
    with tempfile.TemporaryDirectory(prefix="edgekit-heads-") as folder:
        run_peers(families, Path(folder))
        for family in families:
            try:
                rows[family.key] = row(family, Path(folder))
                print(family.key, rows[family.key], flush=True)
            except Exception as error:  # the others are still measured
                failed += 1
                print(family.key, type(error).__name__, str(error)[:1500], flush=True)
    ordered = {family.key: rows[family.key] for family in FAMILIES if family.key in rows}
    RESULTS.write_text(json.dumps(ordered, indent=1) + "\n")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
