"""Let a package make and export a detector and find boxes, and compare them with those of the bundle of its file."""

from __future__ import annotations

import json
import os
import subprocess
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.core.errors import EdgekitError
from edgekit.runner import load
from edgekit.runner.inputs.picture import fit_picture
from tests.heads.compare import Comparison, compare
from tests.heads.families import FACES_PEER, Family

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / "build" / "heads" / "bin" / "python"
PEERS = Path(__file__).parent / "peers"
PICTURES, CALIBRATION = 3, 8
LEAST, OVERLAP, MOST = 0.25, 0.5, 300
LIMIT_S = 1100
OFFLINE = {"YOLO_OFFLINE": "true", "YOLO_AUTOINSTALL": "false", "HF_HUB_OFFLINE": "1"}
GEOMETRY = {"fit": "letterbox", "fill": 114, "filter": "sampled"}


@dataclass(frozen=True)
class Measured:
    """What was found for a family.

    Attributes
    ----------
    package
        The package and its version.
    form
        How the outputs of the file are read, in words.
    is_cut
        Whether the file was cut before its decoding.
    candidates, boxes
        The boxes before and after suppression; None for a file that is refused.
    refusal
        Why the file is refused.
    """

    family: str
    package: str
    form: str = ""
    is_cut: bool = False
    candidates: Comparison | None = None
    boxes: Comparison | None = None
    refusal: str = ""


def faces(size: tuple[int, int]) -> np.ndarray:
    """Return a portrait (1, height, width, 3) that matplotlib ships, brought to (height, width)."""
    from matplotlib import cbook
    from PIL import Image

    step = {"step": "resize_picture", "height": size[0], "width": size[1], **GEOMETRY}
    with cbook.get_sample_data("grace_hopper.jpg") as file:
        return fit_picture(Image.open(file), 3, step)[None]


def pictures(archive: Path, size: tuple[int, int], count: int, first: int) -> np.ndarray:
    """Return pictures of blood cells (count, height, width, 3) as bytes, brought to (height, width) with grey bars."""
    from PIL import Image

    step = {"step": "resize_picture", "height": size[0], "width": size[1], **GEOMETRY}
    with zipfile.ZipFile(archive) as content:
        names = sorted(name for name in content.namelist() if name.endswith(".jpg"))[first : first + count]
        return np.stack([fit_picture(Image.open(content.open(name)), 3, step) for name in names])


def prepare(family: Family, home: Path, archive: Path) -> None:
    """Write the job and the pictures of a family for its package."""
    np.save(home / "calibration.npy", pictures(archive, family.size, CALIBRATION, 0))
    shown = faces(family.size) if family.peer == FACES_PEER else pictures(archive, family.size, PICTURES, 0)
    np.save(home / "pictures.npy", shown)
    job = {
        "network": family.model, "name": family.file, "size": family.size, "labels": family.labels, "least": LEAST,
        "overlap": OVERLAP, "most": MOST,
    }  # fmt: skip
    (home / "job.json").write_text(json.dumps(job))


def run_peer(family: Family, home: Path) -> dict[str, Any]:
    """Let the package export its file into `home`, and return the boxes that it finds.

    Raises RuntimeError with the last lines of the program if it does not answer.
    """
    environment = {**os.environ, "PYTHONPATH": "", "HOME": str(home), "CUDA_VISIBLE_DEVICES": "", **OFFLINE}
    command = [str(PYTHON), str(PEERS / f"{family.peer}.py"), str(home)]
    done = subprocess.run(
        command, cwd=home, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S
    )
    if not (home / "answers.json").exists():
        raise RuntimeError(f"{family.name}: {done.stdout[-4000:]}")
    answers: dict[str, Any] = json.loads((home / "answers.json").read_text())
    if "error" in answers:
        raise RuntimeError(f"{family.name}: {answers['error']}")
    return answers


def measure(family: Family, home: Path, archive: Path) -> Measured:
    """Return how the boxes of the bundle of a family's file differ from those of its package."""
    prepare(family, home, archive)
    answers = run_peer(family, home)
    return compared(family, home, answers)


def compared(family: Family, home: Path, answers: dict[str, Any]) -> Measured:
    """Return how the boxes of the bundle of the exported file differ from these answers."""
    from tests.models.files import detector_bundle

    samples = np.load(home / "pictures.npy")
    file = home / family.file
    try:
        detector = detector_bundle.convert(
            file, file.suffix[1:], home / "bundle", samples, family.steps, list(family.labels), family.keypoints,
            family.task,
        )  # fmt: skip
    except EdgekitError as error:
        return Measured(family.name, answers["package"], refusal=str(error).removeprefix(f"{file}: "))
    found = {}
    masks = np.load(home / "masks.npz") if family.has_masks else {}
    if family.suppresses:
        answers = {**answers, "candidates": answers["boxes"]}
    for key, overlap in (("candidates", 1.0), ("boxes", 1.0 if detector.facts["suppressed"] else OVERLAP)):
        model = load(detector.bundled(LEAST, MOST, overlap), trial=False)
        boxes = [model.predict(sample).boxes for sample in samples]
        own = [_inside(_as_rows(each, family), family) for each in boxes]
        expected = [_inside(rows, family) for rows in answers[key]]
        pairs = [(_masks(each, family), masks[f"{key} {number}"]) for number, each in enumerate(boxes) if masks]
        found[key] = compare(own, expected, LEAST, pairs, has_one_class=family.task != "detection")
    return Measured(family.name, answers["package"], detector.facts.get("decoding", ""), detector.is_cut, **found)


def _inside(rows: Any, family: Family) -> np.ndarray:
    """Return boxes (n, 6 + 2 · keypoints) with what lies outside moved to the edge of the picture.

    Not all packages do that with the sides of boxes, and edgekit does not do it with keypoints.
    """
    table = np.array(rows, dtype=np.float64).reshape(-1, 6 + 2 * len(family.keypoints))
    height, width = family.size
    places = [column for column in range(table.shape[1]) if column not in (4, 5)]
    table[:, places] = np.clip(table[:, places], 0, [width, height] * (len(places) // 2))
    return table


def _masks(boxes: Any, family: Family) -> np.ndarray:
    """Return the masks of the boxes of a bundle (n, height, width)."""
    return np.array([each.mask.in_picture(family.size) for each in boxes], dtype=bool).reshape(-1, *family.size)


def _as_rows(boxes: Any, family: Family) -> np.ndarray:
    """Return the boxes of a bundle (n, 6 + 2 · keypoints): sides, score, class and the places of the keypoints."""
    rows = [
        [
            *each.box,
            each.probability,
            family.labels.index(each.label),
            *(value for name in family.keypoints for value in each.keypoints[name][:2]),
        ]
        for each in boxes
    ]
    return np.array(rows, dtype=np.float64).reshape(-1, 6 + 2 * len(family.keypoints))
