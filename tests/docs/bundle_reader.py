"""A reader of bundles as a stranger writes it: from `docs/reference/bundle-format.md` alone, nothing of edgekit."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

FORMAT = 4
PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class Refused(Exception):
    """The file is no bundle, or not the one that was packed."""


class Bundle:
    """A bundle, read and checked. `members` holds the bytes of every member but the manifest."""

    def __init__(self, path: Path) -> None:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            contents = {entry.filename: archive.read(entry) for entry in entries}
        for entry in entries:
            _need(all(PART.fullmatch(part) for part in entry.filename.split("/")), f"name {entry.filename}")
            _need(entry.compress_type == zipfile.ZIP_STORED, f"{entry.filename} is compressed")
            _need(entry.date_time == (1980, 1, 1, 0, 0, 0), f"{entry.filename} has another date")
            _need(entry.external_attr == 0o100644 << 16, f"{entry.filename} is no regular file")
        names = [entry.filename for entry in entries]
        _need(names[0] == "manifest.json" and len(names) == len(set(names)), "manifest.json does not come first")
        _need(names[1:] == sorted(names[1:]), "members are not sorted")
        text = contents.pop("manifest.json")
        self.manifest: dict[str, Any] = json.loads(text)
        spelled = json.dumps(self.manifest, indent=2, sort_keys=True).encode("ascii") + b"\n"
        _need(spelled == text, "the manifest is spelled in another way")
        _need(self.manifest["format"] == FORMAT, f"format {self.manifest['format']}")
        self.identity = hashlib.sha256(text).hexdigest()
        self.members = contents
        self._check_members()

    def _check_members(self) -> None:
        listed = self.manifest["members"]
        _need(listed.keys() == self.members.keys(), "the manifest lists other members")
        for name, data in self.members.items():
            facts = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            _need(facts == listed[name], f"{name} was changed")
        golden = self.manifest["golden"]
        _need({*self.manifest["model_files"], golden["inputs"], golden["outputs"]} <= listed.keys(), "missing members")
        machines = self.manifest["architectures"]
        _need(not machines or platform.machine() in machines, "for another machine")

    def golden(self) -> tuple[np.ndarray, np.ndarray]:
        """Recorded samples and outputs."""
        golden = self.manifest["golden"]
        inputs, outputs = (
            np.load(io.BytesIO(self.members[golden[key]]), allow_pickle=False) for key in ("inputs", "outputs")
        )
        return inputs, outputs

    def tensor(self, sample: np.ndarray, scale: float | None = None, zero_point: int = 0) -> np.ndarray:
        """The model's input for a raw sample; `scale` and `zero_point` are those of an integer tensor."""
        raw, spec, steps = self.manifest["raw"], self.manifest["inputs"][0], self.manifest["preprocess"]
        _need(list(sample.shape) == raw["shape"] and sample.dtype == raw["dtype"], "another shape or type of sample")
        x: np.ndarray = sample.astype(np.float32)
        for step in steps:
            x = STEPS[step["step"]](x, step)
        x = x[None]
        if spec["layout"] == "NCHW":
            x = np.moveaxis(x, -1, 1)
        unchanged = raw["dtype"] == spec["dtype"] != "float32"
        if unchanged and all(step["step"] in ("resize", "channels", "bgr") for step in steps):
            return np.rint(x).astype(spec["dtype"])
        if scale is not None:
            limits = np.iinfo(spec["dtype"])
            x = np.clip(np.rint(x / np.float32(scale)) + zero_point, limits.min, limits.max)
        return x.astype(spec["dtype"])

    def tensors(self, sample: np.ndarray, scales: dict[str, tuple[float, int]] | None = None) -> dict[str, np.ndarray]:
        """The model's several inputs by their names; `scales` are those of quantized ones."""
        raw, found, place = self.manifest["raw"], {}, 0
        _need(list(sample.shape) == raw["shape"] and sample.dtype == np.float32, "another shape or type of sample")
        _need(np.isfinite(sample).all(), "no numbers")
        for described, spec in zip(raw["tensors"], self.manifest["inputs"], strict=True):
            x = sample[place : place + int(np.prod(described["shape"]))].reshape(described["shape"])
            place += x.size
            _need(described["dtype"] == "float32" or (x == np.rint(x)).all(), "fractions")
            low, high = described["range"] or (x.min(), x.max())
            _need(np.float32(low) <= x.min() and x.max() <= np.float32(high), "out of range")
            if scales and spec["name"] in scales:
                scale, zero_point = scales[spec["name"]]
                limits = np.iinfo(spec["dtype"])
                x = np.clip(np.rint(x / np.float32(scale)) + zero_point, limits.min, limits.max)
            found[spec["name"]] = x[None].astype(spec["dtype"])
        return found


def scaled(x: np.ndarray, step: dict[str, Any]) -> np.ndarray:
    """Every value times a factor."""
    return x * np.float32(step["factor"])


def normalized(x: np.ndarray, step: dict[str, Any]) -> np.ndarray:
    """Mean and spread of each channel taken out."""
    return (x - np.float32(step["mean"])) / np.float32(step["std"])


def with_channels(x: np.ndarray, step: dict[str, Any]) -> np.ndarray:
    """Grey from colours, or the other way round."""
    if x.shape[-1] == step["count"]:
        return x
    if step["count"] == 3:
        return np.concatenate([x, x, x], axis=-1)
    return (x @ np.float32([0.299, 0.587, 0.114]))[..., None]


def resized(x: np.ndarray, step: dict[str, Any]) -> np.ndarray:
    """Another size, by a triangle filter along the width, then along the height."""
    wide = np.einsum("hwc,vw->hvc", x, _filter(x.shape[1], step["width"]))
    return np.einsum("hwc,vh->vwc", wide, _filter(x.shape[0], step["height"])).astype(np.float32)


def _filter(before: int, after: int) -> np.ndarray:
    ratio = before / after
    reach = max(ratio, 1.0)
    centres = (np.arange(after)[:, None] + 0.5) * ratio
    weights = np.maximum(0.0, 1 - np.abs(np.arange(before) + 0.5 - centres) / reach)
    return weights / weights.sum(axis=1, keepdims=True)


def log_mel(x: np.ndarray, step: dict[str, Any]) -> np.ndarray:
    """A sound as the logarithm of its power in mel bands."""
    window, hop, size = step["window_samples"], step["hop_samples"], step["fft_samples"]
    frames = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), window)[::hop]
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window)
    power = np.abs(np.fft.rfft(frames * hann, size)) ** 2
    edges = np.linspace(_mel(step["low_hz"]), _mel(step["high_hz"]), step["mels"] + 2)
    bins = _mel(np.arange(size // 2 + 1) * step["rate_hz"] / size)
    left, middle, right = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    triangles = np.maximum(0, np.minimum((bins - left) / (middle - left), (right - bins) / (right - middle)))
    triangles[:, 0] = 0
    return np.log(power @ triangles.T + step["floor"])[..., None].astype(np.float32)


def _mel(hz: Any) -> Any:
    return 2595 * np.log10(1 + np.asarray(hz) / 700)


def reversed_channels(x: np.ndarray, step: dict[str, Any]) -> np.ndarray:
    """Blue, green, red."""
    return x[..., [2, 1, 0]]


STEPS = {
    "scale": scaled,
    "normalize": normalized,
    "channels": with_channels,
    "bgr": reversed_channels,
    "resize": resized,
    "log_mel": log_mel,
}


def _need(holds: object, what: str) -> None:
    if not holds:
        raise Refused(what)
