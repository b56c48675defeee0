"""`edgekit field pack`: write the `.npz`, the table of labels beside it, and the samples as files."""

from __future__ import annotations

import io
import wave
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.core import tasks
from edgekit.core.errors import ConfigError
from edgekit.data import field_samples
from edgekit.data.field_samples import FieldSample, FieldSamples
from edgekit.runner.files import make_folder, write_atomically

LABELS_FILE = "labels.csv"


@dataclass(frozen=True)
class PackRequest:
    """The options of the command."""

    folder: Path
    out: Path
    labels: Path | None = None
    older: Path | None = None
    files: Path | None = None
    add_classes: tuple[str, ...] = ()
    bundle: str | None = None
    force: bool = False


def run(request: PackRequest, say: Callable[[str], object]) -> None:
    """Write everything that was requested, or nothing if any of it does not fit."""
    _check(request)
    field_data = field_samples.read_samples(request.folder, request.bundle)
    labels = None if request.labels is None else field_samples.read_labels(request.labels)
    kept_labels = {
        name: label for name, label in (labels or {}).items() if name in {each.file for each in field_data.samples}
    }
    bundle = f"{field_data.about['name']} {field_data.about['version']}"
    say(f"kept        {len(field_data.samples)} samples of {bundle}, sampled by {_sampling_criterion(field_data)}")
    writes_only_files = field_data.task not in field_samples.TYPED_TASKS and request.files is not None
    packed = (
        None if writes_only_files else _pack_arrays(request, field_data, None if labels is None else kept_labels, say)
    )
    table = request.out.with_suffix(".csv")
    make_folder(request.out.parent)
    if request.files is not None:
        _write_files(request.files, field_data, kept_labels)
        say(f"wrote       {request.files}: {len(field_data.samples)} files{f', {LABELS_FILE}' if kept_labels else ''}")
    if packed is not None:
        write_atomically(request.out, packed.to_bytes())
    if labels is None:
        write_atomically(table, field_samples.label_table(field_data))
    elif len(kept_labels) < len(labels):
        say(
            f"left out    {len(labels) - len(kept_labels)} rows of {request.labels}: their samples are not in the "
            "folder"
        )
    if packed is None:
        return
    _print_packed(request, packed, table, say)


def _pack_arrays(
    request: PackRequest, field_data: FieldSamples, labels: Mapping[str, str] | None, say: Callable[[str], object]
) -> field_samples.PackedSamples | None:
    """Pack the samples.

    Return None if the model's answers cannot serve as labels, so that only the table is written.
    """
    if field_data.task == "embedding" and labels is None:
        table = request.out.with_suffix(".csv")
        say(f"next        write the labels into {table}: the answers of an embedding are not labels")
        return None
    return field_samples.pack(field_data, labels, request.add_classes, request.older)


def _print_packed(
    request: PackRequest, packed: field_samples.PackedSamples, table: Path, say: Callable[[str], object]
) -> None:
    count = len(packed.arrays["y_train"]) - packed.older + sum(packed.tested.values())
    note = f" after {packed.older:,} of {request.older}" if request.older else ""
    say(f"wrote       {request.out}: {count:,} samples{note}")
    for split, count_moved in packed.tested.items():
        say(f"split       {count_moved:,} of new classes are in {split}, which needs samples of every class")
    if request.labels is not None:
        excluded = f"; {packed.unlabelled:,} without one are left out" if packed.unlabelled else ""
        say(f"labels      {packed.labelled:,} from {request.labels}{excluded}")
        return
    say("labels      the model's own answers, which no one has checked")
    say(f"next        fill in the column label of {table}, then: edgekit field pack {request.folder} {request.out}")
    say(f"            --labels {table} --force")


def _check(request: PackRequest) -> None:
    if request.out.suffix != ".npz":
        raise ConfigError(f"{request.out}: name a file that ends in .npz")
    files = [request.out] if request.labels else [request.out, request.out.with_suffix(".csv")]
    existing = [str(path) for path in files if path.exists()]
    if existing and not request.force:
        raise ConfigError(f"{' and '.join(existing)}: already exist and may hold your labels; use --force to overwrite")
    if request.labels is None and request.add_classes:
        raise ConfigError("--add-class: needs --labels, because the table says which samples have the new class")


def _sampling_criterion(field_data: FieldSamples) -> str:
    return {"classification": "margin", "multi_label": "margin", "anomaly": "nearness to the threshold"}.get(
        field_data.task, "weakest box" if field_data.task in tasks.BOX_TASKS else "chance"
    )


def _write_files(folder: Path, field_data: FieldSamples, labels: Mapping[str, str]) -> None:
    """Write a file for each sample, named as in the table, and `labels.csv` for `edgekit init`."""
    raw = field_data.about["raw"]
    rows = ["file,label"]
    make_folder(folder)
    for sample in field_data.samples:
        content, suffix = _encode(sample, raw)
        name = sample.file.replace("/", "-").removesuffix(".npz") + suffix
        write_atomically(folder / name, content)
        if sample.file in labels:
            label = labels[sample.file].replace('"', '""')
            rows.append(f'{name},"{label}"')
    if labels:
        write_atomically(folder / LABELS_FILE, ("\n".join(rows) + "\n").encode())


def _encode(sample: FieldSample, raw: Mapping[str, Any]) -> tuple[bytes, str]:
    """Encode a picture as lossless PNG, a sound as 16-bit WAV, and anything else as `.npy`."""
    buffer = io.BytesIO()
    if raw["kind"] == "image" and sample.raw.dtype == np.uint8 and sample.raw.shape[-1] in (1, 3):
        from PIL import Image

        Image.fromarray(sample.raw[..., 0] if sample.raw.shape[-1] == 1 else sample.raw).save(buffer, "PNG")
        return buffer.getvalue(), ".png"
    if raw["kind"] == "audio" and raw["sample_rate_hz"]:
        with wave.open(buffer, "wb") as recording:
            recording.setnchannels(1)
            recording.setsampwidth(2)
            recording.setframerate(raw["sample_rate_hz"])
            recording.writeframes(np.rint(np.clip(sample.raw, -1, 1) * 32767).astype("<i2").tobytes())
        return buffer.getvalue(), ".wav"
    np.save(buffer, sample.raw)
    return buffer.getvalue(), ".npy"
