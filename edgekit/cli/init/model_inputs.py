"""How samples reach the input of a model file: at which size they are read, and which chains of steps are usual."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from edgekit.cli.init import sizes
from edgekit.cli.init.inspection import Findings
from edgekit.core.errors import ConfigError
from edgekit.core.tasks import Task
from edgekit.data import Data
from edgekit.models.files import TITLES
from edgekit.models.files.file_facts import FileFacts
from edgekit.models.files.preprocess_search import Chain, scale_chains
from edgekit.models.files.published_detector import EXPORTER_TASKS

TASKS: dict[str, Task] = {
    "boxes": "detection",
    "keypoints": "keypoints",
    "instance_masks": "instance_masks",
    "image_folder": "classification",
    "wav_folder": "classification",
    "csv_rows": "classification",
}
"""The sources for which a config is written, with their tasks."""
PICTURE_SOURCES = ("boxes", "keypoints", "instance_masks", "image_folder")
YOLO_GEOMETRY = {"fit": "letterbox", "fill": 114, "filter": "sampled"}
BOX_GEOMETRIES: tuple[dict[str, Any], ...] = (
    {"fit": "letterbox", "fill": 114},
    {"fit": "letterbox"},
    {"fit": "stretch"},
)
GEOMETRIES: dict[str, tuple[dict[str, Any], ...]] = {
    "image_folder": (
        {"fit": "stretch"},
        {"fit": "crop"},
        {"fit": "crop", "share": 0.875},
        {"fit": "letterbox"},
    ),
    "boxes": BOX_GEOMETRIES,
    "keypoints": BOX_GEOMETRIES,
    "instance_masks": BOX_GEOMETRIES,
}
"""Usual ways to bring a picture to the size of the input, the most usual first."""
FILTERS = ("sampled", "bicubic")
SOUND_OPTIONS = ("rate_hz", "seconds")
GEOMETRY_OPTIONS = ("fit", "fill", "filter", "share", *SOUND_OPTIONS)
"""Options of the sources that are compared by their accuracy."""
RATES_HZ = (16_000, 8_000)
"""Usual sample rates of networks for sounds. Those above the rate of the data are not tried."""
WINDOWS_MS = ((25, 10), (30, 10), (30, 20), (40, 20), (32, 16), (64, 32))
"""Usual windows of spectrograms and the times from one to the next, milliseconds."""
BANDS_HZ = ((20.0, 8000.0), (0.0, 8000.0), (20.0, 4000.0), (125.0, 7500.0))
"""Usual lowest and highest frequencies of spectrograms. Half of the sample rate is the highest possible."""
FLOOR = 1e-6
MIN_WAVEFORM = 1000
"""Fewest numbers that are taken for a sound itself and not for features of it."""
MAX_STRETCH = 4.0
"""How much longer or shorter than a typical sound the input may be."""
INT16 = 32768.0


@dataclass(frozen=True)
class Trial:
    """Options of the data source, and the spectrograms that are computed from sounds that are read in this way."""

    geometry: dict[str, Any]
    log_mels: tuple[dict[str, Any], ...] = ()


def is_yolo(facts: FileFacts) -> bool:
    """Whether the metadata are those that Ultralytics' exporter leaves in a detector."""
    return {"stride", "imgsz", "names"} <= set(facts.metadata) and facts.task in EXPORTER_TASKS.values()


def dashed(shape: Sequence[int]) -> str:
    """Return a shape in which open sides are question marks."""
    return f"[{', '.join('?' if side < 0 else str(side) for side in shape)}]"


def sized(findings: Findings, facts: FileFacts) -> Findings:
    """Return the findings with samples of the size of the model's input.

    Raises
    ------
    ConfigError
        The model takes other samples than the source gives.
    """
    source = findings.section["source"]
    if facts.input_shape[0] > 1:
        noun = "pictures" if source in PICTURE_SOURCES else "samples"
        raise ConfigError(
            f"--model: {TITLES[facts.kind]} takes {facts.input_shape[0]} {noun} at a time, but a device has one; "
            "export it for a batch of 1 or of any size"
        )
    if source == "csv_rows":
        return _sized_table(findings, facts)
    return _sized_sounds(findings, facts) if source == "wav_folder" else _sized_pictures(findings, facts)


def _refusal(facts: FileFacts, what: str) -> ConfigError:
    return ConfigError(
        f"--model: {TITLES[facts.kind]} takes {dashed(facts.input_shape)}, but {what}; write the config by hand, with "
        "model.source"
    )


def _sized_table(findings: Findings, facts: FileFacts) -> Findings:
    columns = findings.section["columns"]
    sides = facts.input_shape[1:]
    if len(sides) != 1 or sides[0] not in (-1, len(columns)):
        listed = ", ".join(columns[:8]) + (", …" if len(columns) > 8 else "")
        raise _refusal(facts, f"the table has {len(columns)} columns of numbers ({listed})")
    return findings


def _sized_sounds(findings: Findings, facts: FileFacts) -> Findings:
    first = next(sound_trials(findings.section, facts), None)
    if first is None:
        rate_hz, seconds = findings.section["rate_hz"], findings.section["seconds"]
        raise _refusal(facts, f"{seconds:.4g} s at {rate_hz} Hz are neither as long nor give such a spectrogram")
    comment = "the length of the model's input"
    return replace(findings, section={**findings.section, **first.geometry}, comments={"seconds": comment})


def _sized_pictures(findings: Findings, facts: FileFacts) -> Findings:
    if facts.picture is None:
        raise _refusal(facts, "the data are pictures")
    height, width, channels = facts.picture
    if min(height, width) < 0:
        raise ConfigError(
            f"--model: {TITLES[facts.kind]} leaves the size of its pictures open, {dashed(facts.input_shape)}; export "
            "it for one size, because the files for a device have one"
        )
    section = {key: value for key, value in findings.section.items() if key not in ("size", "height", "width")}
    section["channels"] = channels
    if section["source"] == "image_folder":
        if height != width:
            raise ConfigError(
                f"--model: takes pictures of {width}×{height}, but a folder of classes is read as squares; write the "
                "config by hand, with the source npz or python"
            )
        section["size"] = height
    else:
        section |= {"height": height, "width": width}
    section |= {**GEOMETRIES[section["source"]][0], **(YOLO_GEOMETRY if is_yolo(facts) else {})}
    comment = "the size of the model's input"
    limit_comment = "nothing is trained, so that these are enough; without this line all are read"
    return replace(
        findings,
        section=section,
        description=f"{findings.description.partition(', seen as')[0]}, seen as {width}×{height}",
        comments={"size": comment, "height": comment, "limit": limit_comment},
    )


def first_trials(section: Mapping[str, Any], facts: FileFacts) -> list[Trial]:
    """Return what is compared first, the usual way to read the samples first. All are compared with one another."""
    if section["source"] == "wav_folder":
        return list(sound_trials(section, facts))
    return [Trial({key: section[key] for key in GEOMETRY_OPTIONS if key in section})]


def other_geometries(section: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the other usual ways to bring pictures to size, which are compared with the best of the first chains."""
    usual, *others = GEOMETRIES.get(section["source"], ({},))
    filters = [{**usual, "filter": name} for name in FILTERS] if usual else []
    own = {key: section[key] for key in GEOMETRY_OPTIONS if key in section}
    return [each for each in (usual, *others, *filters) if each and each != own]


def chains_for(trial: Trial, data: Data, x: np.ndarray) -> list[Chain]:
    """Return the usual chains for raw samples (n, …) of train, the most usual first."""
    if data.kind == "image":
        chains = scale_chains(data.raw_shape[2])
    elif data.kind == "vector":
        chains = _table_chains(x)
    elif trial.log_mels:
        chains = [chain for step in trial.log_mels for chain in _log_mel_chains(step, x)]
    else:
        chains = [
            Chain("waveform from -1 to 1", None, other_steps=()),
            Chain("waveform in numbers of 16 bits", None, other_steps=({"step": "scale", "factor": INT16},)),
        ]
    return [replace(chain, geometry=dict(trial.geometry)) for chain in chains]


def _table_chains(x: np.ndarray) -> list[Chain]:
    mean, std = sizes.moments(x, [], together=False)
    low = x.min(axis=0).astype(np.float64)
    spread = x.max(axis=0) - low
    by_range = {"step": "normalize", "mean": low.tolist(), "std": np.where(spread > 0, spread, 1.0).tolist()}
    return [
        Chain("as they are", None, other_steps=()),
        Chain("standardised", None, other_steps=({"step": "normalize", "mean": mean, "std": std},)),
        Chain("0 to 1 by the range of train", None, other_steps=(by_range,)),
    ]


def _log_mel_chains(step: dict[str, Any], x: np.ndarray) -> Iterator[Chain]:
    window, hop = (1000 * step[key] / step["rate_hz"] for key in ("window_samples", "hop_samples"))
    name = f"log-mel of {window:g} ms every {hop:g} ms, {step['low_hz']:g} to {step['high_hz']:g} Hz"
    yield Chain(name, None, other_steps=(step,))
    mean, std = sizes.moments(x, [step], together=True)
    yield Chain(f"{name}, standardised", None, other_steps=(step, {"step": "normalize", "mean": mean, "std": std}))


def sound_trials(section: Mapping[str, Any], facts: FileFacts) -> Iterator[Trial]:
    """Yield rates and lengths with which sounds fill the input, those of the data first.

    The input is the waveform, (batch, samples), or a spectrogram, (batch, windows, bands, 1) or with its 1 first.
    """
    rates = dict.fromkeys((section["rate_hz"], *RATES_HZ))
    for rate_hz in (each for each in rates if each <= section["rate_hz"]):
        if len(facts.input_shape) == 2:
            seconds = facts.input_shape[1] / rate_hz
            if facts.input_shape[1] >= MIN_WAVEFORM and _is_usable(seconds, section["seconds"]):
                yield Trial({"rate_hz": rate_hz, "seconds": seconds})
        elif facts.picture is not None and facts.picture[2] == 1:
            yield from _spectrogram_trials(rate_hz, section["seconds"], facts.picture[:2])


def _is_usable(seconds: float, typical: float) -> bool:
    return typical / MAX_STRETCH <= seconds <= typical * MAX_STRETCH


def _spectrogram_trials(rate_hz: int, typical: float, shape: Sequence[int]) -> Iterator[Trial]:
    """Yield the lengths of sounds that give so many windows, each with the steps that give them.

    Lengths at which windows fit are computed only if neither a typical sound nor a second gives that many.
    """
    frames, mels = shape
    windows = [tuple(round(each * rate_hz / 1000) for each in pair) for pair in WINDOWS_MS]
    lengths = dict.fromkeys((round(typical * rate_hz), rate_hz))
    fitting = [
        (length, window, hop)
        for window, hop in windows
        for length in lengths
        if length >= window and 1 + (length - window) // hop == frames
    ] or [(window + (frames - 1) * hop, window, hop) for window, hop in windows]
    steps: dict[int, list[dict[str, Any]]] = {}
    for length, window, hop in fitting:
        if _is_usable(length / rate_hz, typical):
            steps.setdefault(length, []).extend(_log_mels(rate_hz, window, hop, mels))
    for length in sorted(steps, key=lambda length: abs(length / rate_hz - typical)):
        yield Trial({"rate_hz": rate_hz, "seconds": length / rate_hz}, tuple(steps[length]))


def _log_mels(rate_hz: int, window: int, hop: int, mels: int) -> list[dict[str, Any]]:
    bands = dict.fromkeys((low, min(high, rate_hz / 2)) for low, high in BANDS_HZ)
    return [
        {
            "step": "log_mel",
            "rate_hz": rate_hz,
            "window_samples": window,
            "hop_samples": hop,
            "fft_samples": max(sizes.FFT_SAMPLES, 1 << (window - 1).bit_length()),
            "mels": mels,
            "low_hz": low,
            "high_hz": high,
            "floor": FLOOR,
        }
        for low, high in bands
    ]


def describe_unchanged(data: Data) -> str:
    """Say what a model takes if there are no preprocess steps."""
    return "the model takes bytes as they are" if data.kind == "image" else "the model takes the numbers as they are"
