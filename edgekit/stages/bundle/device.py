"""Write the requirements, the commands and the README of a bundle, and run its self-test in a fresh process."""

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
from edgekit.runner.postprocess import anomaly

RUNNER = "edgerun.pyz"
TIMEOUT_S = 120
INTERPRETERS = {
    "tflite": ["ai-edge-litert>=2.0"],
    "openvino": ["openvino>=2024.4"],
    "onnx": ["onnxruntime>=1.18"],
}
INT4_PRECISIONS = ("int4", "int4_dense")
"""Precisions that LiteRT 2.0 and newer can read, but tflite-runtime cannot."""
SAMPLE_FILES = {"picture": "picture.png", "audio": "sound.wav", "table": "window.csv", "text": "text.txt",
           "tensors": "sample.npz"}  # fmt: skip
ANSWER_ATTRIBUTES = {
    "classification": "label",
    "multi_label": "labels",
    "regression": "values",
    "anomaly": "is_anomaly",
    "detection": "boxes",
    "keypoints": "boxes",
    "instance_masks": "boxes",
    "segmentation": "shares",
    "embedding": "embedding",
    "raw": "output",
}


FIT_DESCRIPTIONS = {
    "crop": "center-cropped to the proportions of the model's input and scaled",
    "stretch": "stretched",
    "letterbox": "letterboxed (scaled without distortion, then padded with bars)",
}


def requirements(target: str) -> list[str]:
    """Return the lines of the bundle's requirements.txt."""
    return ["numpy>=1.22", *INTERPRETERS[target]]


def commands(file: str, target: str, raw: RawSpec) -> list[str]:
    """Return the three commands to type on the device: install, run the self-test, and predict.

    They install into a virtual environment, as PEP 668 requires.
    """
    file_packages = ["pillow"] if _takes_pictures(raw) else ["tokenizers"] if raw.kind == "text" else []
    packages = " ".join(f"'{line}'" for line in [*requirements(target), *file_packages])
    kind = "picture" if _takes_pictures(raw) else "table" if raw.columns else raw.kind
    sample = SAMPLE_FILES.get(kind, "sample.npy")
    return [
        f"python3 -m venv edge && edge/bin/pip install {packages}",
        f"edge/bin/python {RUNNER} selftest {file}",
        f"edge/bin/python {RUNNER} predict {file} {sample}",
    ]


def text_members(manifest: Manifest, file: str, facts: Sequence[str]) -> dict[str, bytes]:
    """Return requirements.txt and README.md as a mapping from file name to content.

    `facts` are lines about the model, such as its size and accuracy.
    """
    requirement_lines = "\n".join(manifest.requirements) + "\n"
    return {"requirements.txt": requirement_lines.encode(), "README.md": readme(manifest, file, facts).encode()}


def readme(manifest: Manifest, file: str, facts: Sequence[str]) -> str:
    """Return the README.md of a bundle, as text."""
    command_lines = "\n".join(commands(file, manifest.target, manifest.raw))
    fact_lines = "\n".join(f"- {line}" for line in facts)
    sample = _describe_sample(manifest.raw)
    files = _describe_files(manifest.raw)
    interpreter_note = _older_interpreter_note(manifest) if manifest.target == "tflite" else ""
    return f"""# {manifest.name} {manifest.version} for {manifest.target}

- Variant: `{manifest.variant}`
- Input: {sample}
- Output: {_describe_output(manifest)}
{fact_lines}

Copy `{file}` and `{RUNNER}` to the device, then:

```
{command_lines}
```

{files}{interpreter_note}
From Python:

```python
from edgekit.runner import load

model = load("{file}")
print(model.predict(sample).{ANSWER_ATTRIBUTES[manifest.task]})
```
"""


def _older_interpreter_note(manifest: Manifest) -> str:
    """Say whether LiteRT's predecessor, tflite-runtime, can run the bundle as well."""
    if set(manifest.variant.split("-")) & set(INT4_PRECISIONS):
        return "\nThe weights have 4 bits: ai-edge-litert 2.0 or newer reads them, tflite-runtime does not.\n"
    return "\nIf ai-edge-litert has no wheel for your Python, use `pip install tflite-runtime 'numpy<2'` instead.\n"


def _describe_sample(raw: RawSpec) -> str:
    """Describe a raw sample: its kind, shape and dtype."""
    if raw.tensors is None:
        return f"{raw.kind}, {'×'.join(map(str, raw.shape))}, {raw.dtype}"
    return f"tensors: {', '.join(f'`{describe(each)}`' for each in raw.tensors)}"


def _takes_pictures(raw: RawSpec) -> bool:
    """Return True if the model accepts picture files."""
    return input_path.find_step(raw.steps, "decode_picture") is not None


def _describe_files(raw: RawSpec) -> str:
    """Describe which files the model accepts, and how they become samples."""
    if _takes_pictures(raw):
        resize = input_path.find_step(raw.steps, "resize_picture")
        fit = FIT_DESCRIPTIONS[resize["fit"]] if resize else "stretched"
        return (
            f"A picture of any size is rotated as its EXIF tag says, then {fit} to {raw.shape[0]}×{raw.shape[1]}, "
            "as in training. Pillow is needed only to read picture files. For a `.npy` array of the input's shape and "
            "dtype, numpy is enough.\n"
        )
    if raw.kind == "text":
        return _describe_text_file(raw)
    if raw.tensors:
        return _describe_tensor_file(raw)
    return _describe_audio_file(raw) if raw.kind == "audio" else _describe_table_file(raw)


def _describe_audio_file(raw: RawSpec) -> str:
    windows = input_path.find_step(raw.steps, "windows")
    any_rate, any_channels = (input_path.find_step(raw.steps, step) for step in ("resample", "mix_channels"))
    rate = "may have any sample rate" if any_rate else f"must have a sample rate of {raw.sample_rate_hz} Hz"
    channels = "may have any number of channels" if any_channels else "must have one channel"
    seconds = f"{raw.shape[0] / (raw.sample_rate_hz or 1):g} s"
    length = (
        f"Every window of {seconds} gets an answer; if the last one is shorter, it is padded with silence"
        if windows
        else ""
    )
    length = length or f"It must last exactly {seconds}"
    return f"`sound.wav` {rate} and {channels}. {length}.\n"


def _describe_text_file(raw: RawSpec) -> str:
    step = input_path.find_step(raw.steps, "tokenize")
    if step is None:
        return ""
    too_long = "cut off at the end" if step["too_long"] == "cut" else "refused"
    rows = input_path.find_step(raw.steps, "decode_text_table")
    header = "must have a header" if rows and rows["header"] else "must not have a header"
    table = ""
    if rows:
        table = (
            f"A `.tsv` or `.csv` file must have columns separated by a {rows['delimiter']}, with the texts in column "
            f"`{rows['column']}`, and {header}. Each of its rows gets an answer. "
        )
    return (
        f"`text.txt` must be UTF-8. Its tokens are made with `{step['vocabulary']}` of this bundle, as in training. "
        f"A text of more than {step['length']} tokens is {too_long}. {table}Texts need the Python package "
        "`tokenizers`; an int32 `.npy` array of token ids needs only `numpy`.\n"
    )


def _describe_tensor_file(raw: RawSpec) -> str:
    names = [each["name"] for each in raw.tensors or ()]
    arrays = ", ".join(f"{name!r}: …" for name in names)
    return (
        f'`sample.npz` must be in the format that `numpy.savez("sample.npz", **{{{arrays}}})` writes. It holds one '
        "array for each tensor, and each array has exactly the shape that `Input` states above. In Python, a sample is "
        "a mapping of these arrays.\n"
    )


def _describe_table_file(raw: RawSpec) -> str:
    if not raw.columns:
        return ""
    names = ", ".join(f"`{name}`" for name in raw.columns)
    step = input_path.find_step(raw.steps, "windows")
    rows = f"at least {raw.shape[0]} rows" if step else f"{raw.shape[0]} rows"
    windows = (
        f"Every window of {step['length']} rows gets an answer, and a new window begins every {step['stride']} rows. "
        if step
        else ""
    )
    return (
        f"`window.csv` must have a header, {rows} and the columns {names}, in any order; other columns are ignored. "
        f"{windows}In a `.npy` array, which has no header, the columns must be in the order in "
        "which they are listed above.\n"
    )


def _describe_output(manifest: Manifest) -> str:
    if manifest.task == "classification":
        return f"scores of {len(manifest.labels)} classes"
    if manifest.task == "multi_label":
        return f"any number of these labels, or none: {', '.join(manifest.labels)}"
    if manifest.task == "anomaly":
        what = (
            "largest distance of a part of the picture"
            if anomaly.gives_map(manifest)
            else "mean squared error of its reconstruction"
        )
        return f"whether the sample is an anomaly, that is, whether the {what} is above {manifest.threshold:.6g}"
    if manifest.task == "detection":
        return (
            f"boxes of {', '.join(manifest.labels)}, each with its probability and its left, top, right and bottom "
            "edges in pixels"
        )
    if manifest.keypoints is not None:
        points = ", ".join(manifest.keypoints["names"])
        return f"boxes of {', '.join(manifest.labels)}, each with its probability and its keypoints in pixels: {points}"
    if manifest.task == "instance_masks":
        return f"boxes of {', '.join(manifest.labels)}, each with its probability and the mask of its object"
    if manifest.task == "segmentation":
        return f"for each pixel one of {', '.join(manifest.labels)}"
    if manifest.task == "regression":
        return ", ".join(manifest.labels)
    if manifest.task == "embedding":
        count = manifest.output_shape[0]
        return f"a vector of {count} numbers with Euclidean norm 1; the cosine of similar samples is near 1"
    return f"float32, {'×'.join(map(str, manifest.output_shape))}"


def run_selftest(runner: Path, bundle: Path) -> dict[str, Any]:
    """Run the self-test of `bundle` in a fresh process, and return its report.

    It runs on the standard interpreter of the target. A tuning run could choose another interpreter, whose int8 kernels
    round differently.

    Raises ConversionError if the self-test fails, for example because an output differs from its golden answer, and
    StageError if it exceeds the time limit.
    """
    command = [sys.executable, "-I", str(runner.resolve()), "selftest", str(bundle.resolve()), "--json", "--no-trial"]
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise StageError(f"{bundle.name}: the self-test did not end within {TIMEOUT_S} s") from None
    if process.returncode:
        message = (process.stderr.strip() or process.stdout.strip() or "no message").splitlines()[-1]
        raise ConversionError(
            f"{bundle.name}: its self-test failed in a fresh process (exit {process.returncode}): {message}"
        )
    report: dict[str, Any] = json.loads(process.stdout)
    return report
