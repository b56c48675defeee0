"""The validation windows of a variant, played in the order of time as the device would get them.

Pieces of recordings lie one behind the other, for what lies between them is of other splits. Smoothing is not begun
anew at a seam: each piece finds what was said of the one before, and so a change has its price.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from edgekit.core.errors import ConfigError, DataError
from edgekit.core.tasks import anomaly
from edgekit.data import Data
from edgekit.runner import input_path, postprocess, smoothing
from edgekit.runner.bundle import smoothing_rules
from edgekit.runner.bundle.manifest import Manifest
from edgekit.runner.errors import InputError
from edgekit.stages.bundle.config import Config

TASKS = ("classification", "anomaly")
NORMAL = 0
"""The label of normal samples in an anomaly detection."""


class Played(NamedTuple):
    """Windows in the order of time: where each stands in the split, its label, and the piece that it is of, all (n,).

    `rest` is the label of what is no event, None where there is none. `spans` windows begin within the length of one.
    """

    places: np.ndarray
    truth: np.ndarray
    pieces: np.ndarray
    rest: int | None
    hop: int
    hop_s: float | None
    spans: int


def check(data: Data, config: Config) -> None:
    """ConfigError for options that these data do not fit, before anything is trained."""
    if config.smoothing is not None:
        try:
            smoothing_rules.check_kind(data.kind)
        except InputError as error:
            raise ConfigError(f"bundle.{error}") from None
    chooses = config.smoothing is not None and config.smoothing.choose is not None
    if chooses and data.task not in TASKS:
        raise ConfigError(
            f"bundle.smoothing and task disagree: got choose, and task is {data.task}; only answers of "
            f"{' and '.join(TASKS)} are evaluated over time: name a method and its options"
        )
    if chooses and _hop(data) is None:
        raise ConfigError(
            "bundle.smoothing and data disagree: got choose, and the validation samples have no order in time "
            "(single clips, rows or arrays, or data.limit took windows out); give recordings to data.source wav_track "
            "or csv_windows, or name a method and its options"
        )
    wanted = config.stream.background
    if wanted is not None and data.task == "classification" and wanted not in data.classes:
        raise ConfigError(f"bundle.stream.background: got {wanted!r}; the classes are {', '.join(data.classes)}")
    if wanted is not None and data.task != "classification" and wanted.lower() not in _background_of(data):
        said = "what is normal is no event" if data.task == "anomaly" else "only classes have one"
        raise ConfigError(f"bundle.stream.background: got {wanted!r}, and task is {data.task}: {said}; leave it out")
    rows_per_s = config.stream.rows_per_s
    if rows_per_s is not None and data.sample_rate_hz:
        raise ConfigError(
            f"bundle.stream.rows_per_s: got {rows_per_s:g}, and the samples are sounds of {data.sample_rate_hz:,} Hz; "
            "leave it out"
        )


def _background_of(data: Data) -> tuple[str, ...]:
    return anomaly.NORMAL if data.task == "anomaly" else ()


def order(data: Data, config: Config) -> Played | None:
    """The validation windows in the order of time; None where nobody knows it."""
    hop, split = _hop(data), data.validation
    if hop is None or data.task not in TASKS:
        return None
    assert split.starts is not None and split.groups is not None
    places = np.argsort(split.starts, kind="stable")
    starts, groups = split.starts[places], split.groups[places]
    seams = (np.diff(groups) != 0) | (np.diff(starts) != hop)
    pieces = np.concatenate([[0], np.cumsum(seams)])
    rate = data.sample_rate_hz or config.stream.rows_per_s
    length = data.raw_shape[0]
    return Played(
        places, split.y[places], pieces, _rest(data, config), hop, hop / rate if rate else None, -(-length // hop)
    )


def said(outputs: np.ndarray, samples: np.ndarray | None, manifest: Manifest, way: dict[str, Any] | None) -> np.ndarray:
    """Label (n,) that is said at each window, by the runner's own code; `way` is the smoothing, None: none.

    outputs: (n, …), in the order of time; samples: what the network was given for them, where the task asks for it.
    """
    declared = replace(manifest, smoothing=way)
    answer, smooth = postprocess.maker(declared), smoothing.maker(declared)
    found = []
    for place, output in enumerate(outputs):
        also = () if samples is None else (samples[place],)
        one = answer(output, 1, {}, *also)
        found.append(smoothing.label_places(smooth(one) if smooth else one, declared))
    return np.array([labels[0] if labels else NORMAL for labels in found], np.int64)


def _hop(data: Data) -> int | None:
    """From window to window, in samples or rows; None where validation has no order in time."""
    step = input_path.find(data.input_path or (), "windows")
    known = data.validation.starts is not None and data.validation.groups is not None
    return int(step["stride"]) if step and known else None


def _rest(data: Data, config: Config) -> int | None:
    if data.task == "anomaly":
        return NORMAL
    name = config.stream.background or data.background
    if name is None:
        return None
    if name not in data.classes:
        raise DataError(f"background: got {name!r}; the classes are {', '.join(data.classes)}")
    return data.classes.index(name)
