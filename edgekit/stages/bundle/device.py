"""A bundle at its device: the texts that people and pip read there, and the selftest in a fresh interpreter."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edgekit.core.errors import ConversionError, StageError
from edgekit.runner import input_path
from edgekit.runner.bundle.manifest import Manifest, RawSpec
from edgekit.runner.input_vector import describe

RUNNER = "edgerun.pyz"
TIMEOUT_S = 120
INTERPRETERS = {
    "tflite": ["ai-edge-litert>=2.0"],
    "openvino": ["openvino>=2024.4"],
    "onnx": ["onnxruntime>=1.18"],
}
IN_4_BITS = ("int4", "int4_dense")
"""Precisions that LiteRT reads from version 2.0, and tflite-runtime never."""
SAMPLES = {"picture": "picture.png", "audio": "sound.wav", "table": "window.csv", "text": "text.txt",
           "tensors": "sample.npz"}  # fmt: skip
ANSWERS = {
    "classification": "label",
    "multi_label": "labels",
    "regression": "values",
    "anomaly": "is_anomaly",
    "detection": "boxes",
    "segmentation": "shares",
    "embedding": "embedding",
    "raw": "output",
}


FITS = {"crop": "cropped around its middle", "stretch": "stretched", "letterbox": "scaled, between black bars,"}


def requirements(target: str) -> list[str]:
    """Lines of the bundle's requirements.txt."""
    return ["numpy>=1.22", *INTERPRETERS[target]]


def commands(file: str, target: str, raw: RawSpec) -> list[str]:
    """The three lines to type on the device, in a virtual environment as PEP 668 asks for."""
    for_files = ["pillow"] if _pictures(raw) else ["tokenizers"] if raw.kind == "text" else []
    needed = " ".join(f"'{line}'" for line in [*requirements(target), *for_files])
    kind = "picture" if _pictures(raw) else "table" if raw.columns else raw.kind
    sample = SAMPLES.get(kind, "sample.npy")
    return [
        f"python3 -m venv edge && edge/bin/pip install {needed}",
        f"edge/bin/python {RUNNER} selftest {file}",
        f"edge/bin/python {RUNNER} predict {file} {sample}",
    ]


def texts(manifest: Manifest, file: str, story: Sequence[str]) -> dict[str, bytes]:
    """The two members that people and pip read; `story` says in a few lines what the model is worth."""
    listed = "\n".join(manifest.requirements) + "\n"
    return {"requirements.txt": listed.encode(), "README.md": readme(manifest, file, story).encode()}


def readme(manifest: Manifest, file: str, story: Sequence[str]) -> str:
    """The README.md inside the bundle."""
    lines = "\n".join(commands(file, manifest.target, manifest.raw))
    lines_of_story = "\n".join(f"- {line}" for line in story)
    raw = _sample(manifest.raw)
    files = _files(manifest.raw)
    older = _older(manifest) if manifest.target == "tflite" else ""
    return f"""# {manifest.name} {manifest.version} for {manifest.target}

- Variant: `{manifest.variant}`
- Input: {raw}
- Output: {_output(manifest)}
{lines_of_story}

Copy this file and `{RUNNER}` to the device, then:

```
{lines}
```

{files}{older}
From Python:

```python
from edgekit.runner import load

model = load("{file}")
print(model.predict(sample).{ANSWERS[manifest.task]})
```
"""


def _older(manifest: Manifest) -> str:
    """Whether the predecessor of LiteRT serves as well."""
    if set(manifest.variant.split("-")) & set(IN_4_BITS):
        return "\nThe weights have 4 bits: ai-edge-litert 2.0 or newer reads them, tflite-runtime does not.\n"
    return (
        "\nWhere ai-edge-litert has no wheel for your Python, `pip install tflite-runtime 'numpy<2'` serves as well.\n"
    )


def _sample(raw: RawSpec) -> str:
    """What a sample is, in words."""
    if raw.tensors is None:
        return f"{raw.kind}, {'×'.join(map(str, raw.shape))}, {raw.dtype}"
    return f"tensors: {', '.join(f'`{describe(each)}`' for each in raw.tensors)}"


def _pictures(raw: RawSpec) -> bool:
    """Whether a picture in a file can be a sample."""
    return input_path.find_step(raw.steps, "decode_picture") is not None


def _files(raw: RawSpec) -> str:
    """What may stand in a file, and what becomes of it on its way to a sample."""
    if _pictures(raw):
        resize = input_path.find_step(raw.steps, "resize_picture")
        how = FITS[resize["fit"]] if resize else "stretched"
        return (
            f"A picture of any size is turned upright and {how} to {raw.shape[0]}×{raw.shape[1]}, as in training. "
            "Pillow is for pictures only; a `.npy` array of the input's shape and dtype needs numpy alone.\n"
        )
    if raw.kind == "text":
        return _text(raw)
    if raw.tensors:
        return _tensors(raw)
    return _sound(raw) if raw.kind == "audio" else _table(raw)


def _sound(raw: RawSpec) -> str:
    windows = input_path.find_step(raw.steps, "windows")
    rate = "of any rate" if input_path.find_step(raw.steps, "resample") else f"at {raw.sample_rate_hz} Hz"
    channels = "any number of channels" if input_path.find_step(raw.steps, "mix_channels") else "one channel"
    seconds = f"{raw.shape[0] / (raw.sample_rate_hz or 1):g} s"
    length = f"Every window of {seconds} gets an answer, the last filled up with silence" if windows else ""
    length = length or f"It lasts exactly {seconds}"
    return f"`sound.wav` is {rate} and has {channels}. {length}.\n"


def _text(raw: RawSpec) -> str:
    step = input_path.find_step(raw.steps, "tokenize")
    if step is None:
        return ""
    longer = "its end is cut off" if step["too_long"] == "cut" else "it is refused"
    rows = input_path.find_step(raw.steps, "decode_text_table")
    head = "with a header" if rows and rows["header"] else "without a header"
    parted = f"parted by a {rows['delimiter']}, {head}; the texts are in column `{rows['column']}`" if rows else ""
    table = f"A `.tsv` or `.csv`, {parted}, gets an answer for each row. " if rows else ""
    return (
        f"`text.txt` is UTF-8. Its tokens are made with `{step['vocabulary']}` of this bundle, as in training; where "
        f"there are more than {step['length']}, {longer}. {table}Texts need the package tokenizers; a `.npy` "
        "array of the ids, int32, needs numpy alone.\n"
    )


def _tensors(raw: RawSpec) -> str:
    names = [each["name"] for each in raw.tensors or ()]
    arrays = ", ".join(f"{name!r}: …" for name in names)
    return (
        f"`sample.npz` holds one array for each tensor, of exactly this shape, as "
        f'`numpy.savez("sample.npz", **{{{arrays}}})` writes it. In Python, a sample is a mapping of these arrays.\n'
    )


def _table(raw: RawSpec) -> str:
    if not raw.columns:
        return ""
    names = ", ".join(f"`{name}`" for name in raw.columns)
    step = input_path.find_step(raw.steps, "windows")
    rows = f"at least {raw.shape[0]} rows" if step else f"{raw.shape[0]} rows"
    more = f"; every window of {step['length']} rows gets an answer, one each {step['stride']} rows" if step else ""
    return (
        f"`window.csv` has a header, {rows} and the columns {names}, in any order and beside any others{more}; "
        "a `.npy` array has them in this order.\n"
    )


def _output(manifest: Manifest) -> str:
    if manifest.task == "classification":
        return f"scores of {len(manifest.labels)} classes"
    if manifest.task == "multi_label":
        return f"any of {', '.join(manifest.labels)}"
    if manifest.task == "anomaly":
        return f"an anomaly where the mean squared error of the reconstruction is above {manifest.threshold:.6g}"
    if manifest.task == "detection":
        return f"boxes of {', '.join(manifest.labels)}: left, top, right, bottom in pixels, each with its probability"
    if manifest.task == "segmentation":
        return f"for each pixel one of {', '.join(manifest.labels)}"
    if manifest.task == "regression":
        return ", ".join(manifest.labels)
    if manifest.task == "embedding":
        return f"a vector of {manifest.output_shape[0]} numbers, of length 1: alike is what has a cosine near 1"
    return f"float32, {'×'.join(map(str, manifest.output_shape))}"


def prove(runner: Path, bundle: Path) -> dict[str, Any]:
    """The report of the selftest in a fresh process; ConversionError if an output differs from its golden vector."""
    command = [sys.executable, "-I", str(runner.resolve()), "selftest", str(bundle.resolve()), "--json"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise StageError(f"{bundle.name}: the selftest did not answer within {TIMEOUT_S} s") from None
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
        raise ConversionError(f"{bundle.name}: its selftest failed in a fresh process (exit {done.returncode}): {last}")
    report: dict[str, Any] = json.loads(done.stdout)
    return report
