"""Detectors of Ultralytics, run in the environment of the peers: see `peer.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import calibration
import numpy as np
import peer
import ultralytics
from torch import nn
from ultralytics import RTDETR, YOLO
from ultralytics.nn.tasks import DetectionModel, PoseModel, RTDETRDetectionModel, SegmentationModel

SUPPRESSION = {"": None, "end-to-end": False, "suppressed": True}
"""The option `nms` of an export: none, a network without suppression, or the suppression in the file."""


def answer(job: peer.Job) -> peer.Answers:
    """Export a network of Ultralytics, and return what the package finds with it.

    `network` is the name of a network and, after a space, a word of `SUPPRESSION`.
    """
    name, _, word = job.network.partition(" ")
    is_set, suppression = name.startswith("rtdetr"), SUPPRESSION[word]
    wrapper = (RTDETR if is_set else YOLO)(f"{name}.yaml")
    builders: dict[str, Any] = {"detect": DetectionModel, "pose": PoseModel, "segment": SegmentationModel}
    build = RTDETRDetectionModel if is_set else builders[wrapper.task]
    network = build(f"{name}.yaml", nc=len(job.labels), verbose=False)
    network.args, network.task, network.names = wrapper.model.args, wrapper.task, dict(enumerate(job.labels))
    wrapper.model = network.eval()
    batches = [batch / 255 for batch in job.batches()]
    run = lambda: [network.predict(batch) for batch in batches]  # noqa: E731
    calibration.set_norms(network, run)
    calibration.spread(_last_layers(network, is_set), run)
    job.log("calibrated")
    inside = {"conf": job.least, "iou": job.overlap, "max_det": job.most} if suppression else {}
    exported = wrapper.export(format="onnx", imgsz=list(job.size), simplify=False, nms=suppression, **inside)
    Path(exported).replace(job.file)
    job.log("exported")

    masks: list[np.ndarray] = []

    def predict(picture: np.ndarray, overlap: float) -> peer.Boxes:
        [result] = wrapper.predict(
            picture[..., ::-1], imgsz=list(job.size), conf=job.least, iou=overlap, max_det=job.most, verbose=False,
            **({"nms": False} if suppression is False else {}),
        )  # fmt: skip
        table = result.boxes.data.numpy()
        if result.masks is not None:
            masks.append(result.masks.data.numpy().astype(bool))
        if result.keypoints is not None:
            table = np.concatenate([table, result.keypoints.data[..., :2].flatten(1).numpy()], axis=1)
        boxes: peer.Boxes = table.tolist()
        return boxes

    found = peer.answers(f"ultralytics {ultralytics.__version__}", job, predict)
    if masks:
        names = [f"{key} {number}" for key in ("candidates", "boxes") for number in range(len(job.pictures()))]
        np.savez_compressed(job.file.with_name("masks.npz"), **dict(zip(names, masks, strict=True)))
    return found


def _last_layers(network: nn.Module, is_set: bool) -> dict[nn.Module, list[calibration.Channels]]:
    """Return how the channels of the last layers of the head are spread."""
    head = network.model[-1]  # type: ignore[operator, index]
    if is_set:
        return {head.dec_score_head[-1]: [calibration.classes(mean=-2.5)]}
    sides = calibration.sides(2.5, 0.5) if head.reg_max == 1 else calibration.distributions(head.reg_max)
    layers: dict[nn.Module, list[calibration.Channels]] = {}
    for prefix in ("", "one2one_"):
        if getattr(head, f"{prefix}cv3", None) is not None:
            layers |= {branch[-1]: [calibration.classes()] for branch in getattr(head, f"{prefix}cv3")}
            layers |= {branch[-1]: [sides] for branch in getattr(head, f"{prefix}cv2")}
    return layers


if __name__ == "__main__":
    peer.main(answer)
