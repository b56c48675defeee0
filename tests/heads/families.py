"""The detectors whose boxes are compared with those of the packages that they come from."""

from __future__ import annotations

from dataclasses import dataclass

SIDE, CLASSES = 320, 3
OVERLAP, MOST = 0.5, 100
FEW = 10
"""The boxes of a random network are compared from the highest probability at which it gives so many."""


@dataclass(frozen=True)
class Family:
    """`package` builds and exports `model`. One that gives only the best class of a box has a `least` of 0.5."""

    name: str
    package: str
    model: str
    size: str = ""
    least: float = 0.0

    @property
    def key(self) -> str:
        """The name for a folder and for the command line."""
        return f"{self.package}-{self.model.lower()}{'-' if self.size else ''}{self.size}"


FAMILIES = (
    Family("YOLOv5", "ultralytics", "yolov5n"),
    Family("YOLOv8", "ultralytics", "yolov8n"),
    Family("YOLOv10", "ultralytics", "yolov10n"),
    Family("YOLO11", "ultralytics", "yolo11n"),
    Family("YOLO12", "ultralytics", "yolo12n"),
    Family("YOLO26", "ultralytics", "yolo26n"),
    Family("YOLOv7", "libreyolo", "LibreYOLO7", "b"),
    Family("YOLOv9", "libreyolo", "LibreYOLO9", "t"),
    Family("YOLOX", "libreyolo", "LibreYOLOX", "n"),
    Family("YOLO-NAS", "libreyolo", "LibreYOLONAS", "s"),
    Family("PP-YOLOE", "libreyolo", "LibrePPYOLOE", "s"),
    Family("PicoDet", "libreyolo", "LibrePICODET", "s"),
    Family("RTMDet", "libreyolo", "LibreRTMDet", "t"),
    Family("RetinaNet", "libreyolo", "LibreRetinaNet", "r50"),
    Family("D-FINE", "libreyolo", "LibreDFINE", "n"),
    Family("DETR", "transformers", "detr", least=0.5),
    Family("YOLOS", "transformers", "yolos", least=0.5),
    Family("RT-DETR", "transformers", "rt_detr"),
)
BY_KEY = {family.key: family for family in FAMILIES}
