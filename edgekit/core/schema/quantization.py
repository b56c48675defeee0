"""Records of quantization: sensitivity, recipes, float layers, calibration, histograms."""

from __future__ import annotations

from typing import Literal

from edgekit.core.schema.record import Record
from edgekit.core.schema.variants import DropFields, MaybeDropFields


class LayerSensitivity(Record):
    """The effect of quantizing one layer alone: the signal-to-noise ratio of the outputs, and the accuracy drop."""

    layer: str
    kind: str
    snr_db: float
    drop_pp: float


class Sensitivity(Record):
    """The effects of all layers, the most sensitive first, and the float network's accuracy on the same samples."""

    samples: int
    float_accuracy: float
    layers: list[LayerSensitivity]


class MixedStep(MaybeDropFields):
    """A step of mixed precision, with the layers kept in float. Figures are None if it could not be converted."""

    keep_float: list[str]
    validation_accuracy: float | None
    inside_budget: bool
    reason: str


class RecipeRow(MaybeDropFields):
    """A PTQ recipe, with its drop below the baseline and its drop below the first recipe.

    Figures are None if it was not tried.
    """

    recipe: str
    ranges: str
    bias_correction: bool
    validation_accuracy: float | None
    below_first: DropFields | None
    kept: bool
    reason: str


class CalibrationSize(Record):
    """Two random draws of equally many calibration samples, and how the two int8 networks made with them compare.

    `snr_db` compares each with the float network, `between_snr_db` and `disagreement` compare them with each other.
    """

    samples: int
    shared_samples: int
    snr_db: list[float]
    between_snr_db: float
    accuracy: list[float]
    disagreement: float


class CalibrationStudy(Record):
    """The effect of the number of calibration samples on int8, with a record for each number.

    `too_large` lists the sizes for which the split is too small.
    """

    calibration_split: int
    validation_samples: int
    sizes: list[CalibrationSize]
    too_large: list[int]


class ValueCounts(Record):
    """Histograms of values before and after int8 with the same bins; `edges` and `range` are in `unit`."""

    unit: Literal["value", "step"]
    edges: list[float]
    range: list[float]
    float: list[int]
    int8: list[int]
    levels_used: int
    clipped: int


class ValueHistogram(ValueCounts):
    """A histogram of a layer's weights or inputs, with the name of the layer."""

    layer: str
    kind: str
    most_sensitive: bool
    part: str
