"""`edgekit field pack`: the `.npz`, the table of labels beside it, and the samples as files."""

from __future__ import annotations

import io
import wave
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.core.errors import ConfigError
from edgekit.data import field_samples
from edgekit.data.field_samples import FieldSample, FieldSamples
from edgekit.runner.files import make_folder, write_atomically

LIST = "labels.csv"


@dataclass(frozen=True)
class Request:
    """What the command was asked for."""

    folder: Path
    out: Path
    labels: Path | None = None
    older: Path | None = None
    files: Path | None = None
    add_classes: tuple[str, ...] = ()
    bundle: str | None = None
    force: bool = False


def run(request: Request, say: Callable[[str], object]) -> None:
    """Write all that was asked for; nothing where something does not fit."""
    _check(request)
    found = field_samples.read_samples(request.folder, request.bundle)
    labels = None if request.labels is None else field_samples.read_labels(request.labels)
    known = {name: label for name, label in (labels or {}).items() if name in {each.file for each in found.samples}}
    about = f"{found.about['name']} {found.about['version']}"
    say(f"kept        {len(found.samples)} samples of {about}, sampled by {_by(found)}")
    drawn = found.task not in field_samples.TYPED_TASKS and request.files is not None
    packed = None if drawn else _packed(request, found, None if labels is None else known, say)
    table = request.out.with_suffix(".csv")
    make_folder(request.out.parent)
    if request.files is not None:
        _write_files(request.files, found, known)
        say(f"wrote       {request.files}: {len(found.samples)} files{f', {LIST}' if known else ''}")
    if packed is not None:
        write_atomically(request.out, packed.to_bytes())
    if labels is None:
        write_atomically(table, field_samples.label_table(found))
    elif len(known) < len(labels):
        say(f"left out    {len(labels) - len(known)} rows of {request.labels}: their samples are not in the folder")
    if packed is None:
        return
    _say_packed(request, packed, table, say)


def _packed(
    request: Request, found: FieldSamples, labels: Mapping[str, str] | None, say: Callable[[str], object]
) -> field_samples.PackedSamples | None:
    """None where answers are no labels, and the table alone is written."""
    if found.task == "embedding" and labels is None:
        table = request.out.with_suffix(".csv")
        say(f"next        write the labels into {table}: the answers of an embedding are not labels")
        return None
    return field_samples.pack(found, labels, request.add_classes, request.older)


def _say_packed(
    request: Request, packed: field_samples.PackedSamples, table: Path, say: Callable[[str], object]
) -> None:
    count = len(packed.arrays["y_train"]) - packed.older + sum(packed.tested.values())
    behind = f" behind {packed.older:,} of {request.older}" if request.older else ""
    say(f"wrote       {request.out}: {count:,} samples{behind}")
    for split, few in packed.tested.items():
        say(f"split       {few:,} of new classes are in {split}, which needs samples of every class")
    if request.labels is not None:
        left = f"; {packed.unlabelled:,} without one are left out" if packed.unlabelled else ""
        say(f"labels      {packed.labelled:,} from {request.labels}{left}")
        return
    say("labels      the model's own answers: nobody has checked them")
    say(f"next        fill in the column label of {table}, then: edgekit field pack {request.folder} {request.out}")
    say(f"            --labels {table} --force")


def _check(request: Request) -> None:
    if request.out.suffix != ".npz":
        raise ConfigError(f"{request.out}: name a file that ends in .npz")
    made = [request.out] if request.labels else [request.out, request.out.with_suffix(".csv")]
    there = [str(path) for path in made if path.exists()]
    if there and not request.force:
        raise ConfigError(f"{' and '.join(there)}: there already, and may hold your labels; use --force to overwrite")
    if request.labels is None and request.add_classes:
        raise ConfigError("--add-class: belongs to --labels, which names the samples of the new class")


def _by(found: FieldSamples) -> str:
    return {"classification": "margin", "multi_label": "margin", "anomaly": "nearness to the threshold"}.get(
        found.task, "weakest box" if found.task == "detection" else "chance"
    )


def _write_files(folder: Path, found: FieldSamples, labels: Mapping[str, str]) -> None:
    """A file for each sample, named as in the table; `labels.csv` of those with a label, as `edgekit init` reads it."""
    raw = found.about["raw"]
    rows = ["file,label"]
    make_folder(folder)
    for each in found.samples:
        content, suffix = _content(each, raw)
        name = each.file.replace("/", "-").removesuffix(".npz") + suffix
        write_atomically(folder / name, content)
        if each.file in labels:
            label = labels[each.file].replace('"', '""')
            rows.append(f'{name},"{label}"')
    if labels:
        write_atomically(folder / LIST, ("\n".join(rows) + "\n").encode())


def _content(sample: FieldSample, raw: Mapping[str, Any]) -> tuple[bytes, str]:
    """A picture as PNG without loss, a sound as WAV of 16 bits, anything else as `.npy`."""
    buffer = io.BytesIO()
    if raw["kind"] == "image" and sample.raw.dtype == np.uint8 and sample.raw.shape[-1] in (1, 3):
        from PIL import Image

        Image.fromarray(sample.raw[..., 0] if sample.raw.shape[-1] == 1 else sample.raw).save(buffer, "PNG")
        return buffer.getvalue(), ".png"
    if raw["kind"] == "audio" and raw["sample_rate_hz"]:
        with wave.open(buffer, "wb") as sound:
            sound.setnchannels(1)
            sound.setsampwidth(2)
            sound.setframerate(raw["sample_rate_hz"])
            sound.writeframes(np.rint(np.clip(sample.raw, -1, 1) * 32767).astype("<i2").tobytes())
        return buffer.getvalue(), ".wav"
    np.save(buffer, sample.raw)
    return buffer.getvalue(), ".npy"
