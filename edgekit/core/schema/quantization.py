"""Rows of quantization: sensitivity, recipes, layers in float, calibration, values counted."""

from __future__ import annotations

from typing import Literal

from edgekit.core.schema.record import Record
from edgekit.core.schema.variants import DropFields, MaybeDropFields


class LayerSensitivity(Record):
    """A layer that is quantized alone: the signal-to-noise ratio of the outputs, and the accuracy it costs."""

    layer: str
    kind: str
    snr_db: float
    drop_pp: float


class Sensitivity(Record):
    """Every layer, the most sensitive first, and the accuracy in float on the same samples."""

    samples: int
    float_accuracy: float
    layers: list[LayerSensitivity]


class MixedStep(MaybeDropFields):
    """A step of keeping layers in float; figures are None for one that could not be made."""

    keep_float: list[str]
    validation_accuracy: float | None
    inside_budget: bool
    reason: str


class RecipeRow(MaybeDropFields):
    """A PTQ recipe: its drop below the baseline, and below the first named recipe; None for one that was not made."""

    recipe: str
    ranges: str
    bias_correction: bool
    validation_accuracy: float | None
    below_first: DropFields | None
    kept: bool
    reason: str


class CalibrationSize(Record):
    """Two draws of so many calibration samples: each against float, and one against the other."""

    samples: int
    shared_samples: int
    snr_db: list[float]
    between_snr_db: float
    accuracy: list[float]
    disagreement: float


class CalibrationStudy(Record):
    """A row for each size, and the sizes that the split could not fill twice."""

    calibration_split: int
    validation_samples: int
    sizes: list[CalibrationSize]
    too_large: list[int]


class ValueCounts(Record):
    """Values before and after int8 in the same bins; `edges` and `range` are in `unit`."""

    unit: Literal["value", "step"]
    edges: list[float]
    range: list[float]
    float: list[int]
    int8: list[int]
    levels_used: int
    clipped: int


class ValueHistogram(ValueCounts):
    """The same with the layer, and whether they are its weights or what enters it."""

    layer: str
    kind: str
    most_sensitive: bool
    part: str
