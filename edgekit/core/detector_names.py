"""Names of detectors, by which `--head` and `model.head` say how the outputs of a model file are read.

A name is that of a network, such as `yolov8`. What is unusual about a file follows after commas: `yolov8, corners in
pixels`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from edgekit.core.errors import ConfigError

Structure = Literal["plain", "objectness", "background", "distributions", "finished"]
"""What the outputs hold: boxes and scores of classes, an objectness too, a background among the classes, distributions
of distances, or finished boxes with score and class."""
PLACES = ("centres in pixels", "corners in pixels", "centres as shares", "corners as shares")
OFFSETS, DISTANCES, PRIORS = "offsets from cells", "distances from cells", "centres from prior boxes"
ORDERS = ("boxes first", "boxes last")
"""Which of two outputs of the same shape holds the boxes."""
FAMILIES: dict[str, tuple[Structure, tuple[str, ...]]] = {
    "yolov8": ("plain", PLACES[:1]),
    "yolov9": ("plain", PLACES[:1]),
    "yolo11": ("plain", PLACES[:1]),
    "yolo12": ("plain", PLACES[:1]),
    "picodet": ("plain", PLACES[1:2]),
    "rtmdet": ("plain", PLACES[1:2]),
    "pp-yoloe": ("plain", PLACES[1:2]),
    "yolo-nas": ("plain", PLACES[1:2]),
    "retinanet": ("plain", PLACES[1:2]),
    "rt-detr": ("plain", PLACES[2:3]),
    "d-fine": ("plain", PLACES[2:3]),
    "blazeface": ("plain", (PRIORS,)),
    "yolov5": ("objectness", PLACES[:1]),
    "yolov7": ("objectness", PLACES[:1]),
    "yolox": ("objectness", (OFFSETS, PLACES[0])),
    "detr": ("background", PLACES[2:3]),
    "ssd": ("background", PLACES[3:]),
    "nanodet": ("distributions", (DISTANCES,)),
    "yolov10": ("finished", PLACES[1:2]),
    "yolo26": ("finished", PLACES[1:2]),
    "detection-postprocess": ("finished", PLACES[3:]),
}
"""For each network, what its outputs hold, and what the numbers of its boxes may be. Of several names for the same
outputs, messages use the first."""


@dataclass(frozen=True)
class DetectorName:
    """What a name says about outputs. `places` are those that the boxes may have; an empty `order` may be any."""

    structure: Structure
    places: tuple[str, ...]
    order: str = ""

    def fits(self, structure: Structure, place: str, order: str) -> bool:
        """Whether outputs that are read in this way have the name."""
        return structure == self.structure and place in self.places and self.order in ("", order)


def parse(text: str) -> DetectorName:
    """Return what a name says.

    Raises
    ------
    ConfigError
        There is no such name.
    """
    family, *details = (each.strip().casefold() for each in text.split(","))
    if family not in FAMILIES:
        raise ConfigError(f"got {text!r}, but the known names are {', '.join(FAMILIES)}")
    structure, places = FAMILIES[family]
    name = DetectorName(structure, places)
    for detail in details:
        if detail in ORDERS:
            name = DetectorName(structure, name.places, detail)
        elif detail in (*PLACES, OFFSETS):
            name = DetectorName(structure, (detail,), name.order)
        else:
            raise ConfigError(f"got {text!r}; after {family} may follow {', '.join((*PLACES, *ORDERS))}")
    return name


def name_of(structure: Structure, place: str, order: str = "") -> str:
    """Return the name of outputs that are read in this way."""
    of_structure = [name for name, (own, _) in FAMILIES.items() if own == structure]
    usual = next((name for name in of_structure if place in FAMILIES[name][1]), "")
    return ", ".join(filter(None, (usual or of_structure[0], "" if usual else place, order)))
