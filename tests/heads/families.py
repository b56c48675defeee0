"""The detectors of other packages whose boxes are compared, and how each of them takes its pictures."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from edgekit.core.tasks import Task

Steps = list[dict[str, Any]]
BYTES_TO_ONE: Steps = [{"step": "scale", "factor": 1 / 255}]
LABELS = ("RBC", "WBC", "Platelets")


@dataclass(frozen=True)
class Family:
    """A detector that a program of `peers` makes.

    Attributes
    ----------
    name
        As in the table of the documentation.
    peer, model
        The program, and the name of the network there.
    size
        (height, width) of its pictures.
    steps
        The preprocess steps of the bundle.
    file
        The name of the file that the package exports.
    suppresses
        Whether the file itself suppresses boxes, so that there are none to compare before suppression.
    labels, keypoints
        The classes, and the names of the keypoints of an object.
    has_masks
        Whether each box has a mask.
    """

    name: str
    peer: str
    model: str
    size: tuple[int, int] = (192, 256)
    steps: Steps = field(default_factory=lambda: BYTES_TO_ONE)
    file: str = "net.onnx"
    suppresses: bool = False
    labels: tuple[str, ...] = LABELS
    keypoints: tuple[str, ...] = ()
    has_masks: bool = False

    @property
    def task(self) -> Task:
        """The task of the bundle."""
        return "instance_masks" if self.has_masks else "keypoints" if self.keypoints else "detection"


BYTES: Steps = []
BGR_BYTES: Steps = [{"step": "bgr"}]
IMAGENET_BYTES: Steps = [{"step": "normalize", "mean": [123.675, 116.28, 103.53], "std": [58.395, 57.12, 57.375]}]
IMAGENET: Steps = [*BYTES_TO_ONE, {"step": "normalize", "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}]
SSD_STEPS: Steps = [{"step": "normalize", "mean": [123.0, 117.0, 104.0], "std": [1.0, 1.0, 1.0]}]
ULTRALYTICS, LIBREYOLO, TRANSFORMERS = "ultralytics_peer", "libreyolo_peer", "transformers_peer"
FACES_PEER = "faces_peer"
FACES = {
    "steps": [{"step": "normalize", "mean": [127.5] * 3, "std": [127.5] * 3}],
    "file": "net.tflite",
    "labels": ("face",),
    "keypoints": ("left eye", "right eye", "nose", "mouth", "left ear", "right ear"),
}
JOINTS = tuple(f"joint {number}" for number in range(17))
SQUARE, LARGE = (192, 192), (640, 640)

FAMILIES = (
    Family("YOLOv5u", ULTRALYTICS, "yolov5n"),
    Family("YOLOv8", ULTRALYTICS, "yolov8n"),
    Family("YOLOv8 with suppression", ULTRALYTICS, "yolov8n suppressed", suppresses=True),
    Family("YOLOv9", ULTRALYTICS, "yolov9t"),
    Family("YOLOv10", ULTRALYTICS, "yolov10n"),
    Family("YOLOv10 end-to-end", ULTRALYTICS, "yolov10n end-to-end"),
    Family("YOLO11", ULTRALYTICS, "yolo11n"),
    Family("YOLO12", ULTRALYTICS, "yolo12n"),
    Family("YOLO26", ULTRALYTICS, "yolo26n"),
    Family("YOLO26 end-to-end", ULTRALYTICS, "yolo26n end-to-end"),
    Family("YOLO11-pose", ULTRALYTICS, "yolo11n-pose", keypoints=JOINTS),
    Family("YOLO26-pose end-to-end", ULTRALYTICS, "yolo26n-pose end-to-end", keypoints=JOINTS),
    Family("YOLO11-seg", ULTRALYTICS, "yolo11n-seg", has_masks=True),
    Family("YOLO26-seg end-to-end", ULTRALYTICS, "yolo26n-seg end-to-end", has_masks=True),
    Family("YOLOX", LIBREYOLO, "yolox", SQUARE, BGR_BYTES),
    Family("YOLOv7", LIBREYOLO, "yolo7", SQUARE),
    Family("YOLOv9 of libreyolo", LIBREYOLO, "yolo9"),
    Family("YOLOv9 end-to-end", LIBREYOLO, "yolo9_e2e"),
    Family("YOLO-NAS", LIBREYOLO, "yolonas", SQUARE),
    Family("PicoDet", LIBREYOLO, "picodet", SQUARE, IMAGENET_BYTES),
    Family("PP-YOLOE", LIBREYOLO, "ppyoloe", SQUARE, IMAGENET_BYTES),
    Family("RTMDet", LIBREYOLO, "rtmdet", SQUARE, [
        {"step": "bgr"}, {"step": "normalize", "mean": [103.53, 116.28, 123.675], "std": [57.375, 57.12, 58.395]},
    ]),
    Family("SSD", LIBREYOLO, "ssd", (300, 300), SSD_STEPS),
    Family("RetinaNet", LIBREYOLO, "retinanet", SQUARE, IMAGENET),
    Family("FCOS", LIBREYOLO, "fcos", SQUARE, IMAGENET),
    Family("D-FINE of libreyolo", LIBREYOLO, "dfine", LARGE),
    Family("RT-DETR", TRANSFORMERS, "rt-detr"),
    Family("RT-DETRv2", TRANSFORMERS, "rt-detr v2"),
    Family("D-FINE", TRANSFORMERS, "d-fine"),
    Family("DETR", TRANSFORMERS, "detr", steps=IMAGENET),
    Family("Deformable DETR", TRANSFORMERS, "deformable detr", steps=IMAGENET),
    Family("YOLOS", TRANSFORMERS, "yolos", steps=IMAGENET),
    Family("BlazeFace, short range", FACES_PEER, "SHORT", (128, 128), **FACES),
    Family("BlazeFace, back camera", FACES_PEER, "BACK_CAMERA", (256, 256), **FACES),
    Family("BlazeFace, full range", FACES_PEER, "FULL", SQUARE, **FACES),
)  # fmt: skip
