"""What a bundle tells the person at the device."""

from __future__ import annotations

from collections.abc import Sequence

from edgekit.runner.manifest import Manifest, RawSpec

RUNNER = "edgerun.pyz"
INTERPRETERS = {
    "tflite": ["ai-edge-litert>=2.0"],
    "openvino": ["openvino>=2024.4"],
    "onnx": ["onnxruntime>=1.17"],
}
SAMPLES = {"image": "picture.png", "audio": "sound.wav"}
ANSWERS = {
    "classification": "label",
    "multi_label": "labels",
    "regression": "values",
    "anomaly": "is_anomaly",
    "raw": "output",
}


def requirements(target: str) -> list[str]:
    """Lines of the bundle's requirements.txt."""
    return ["numpy>=1.22", *INTERPRETERS[target]]


def commands(file: str, target: str, raw: RawSpec) -> list[str]:
    """The three lines to type on the device, in a virtual environment as PEP 668 asks for."""
    needed = " ".join(f"'{line}'" for line in [*requirements(target), *(["pillow"] if _pictures(raw) else [])])
    sample = SAMPLES[raw.kind] if _pictures(raw) or raw.kind == "audio" else "sample.npy"
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
    told = "\n".join(f"- {line}" for line in story)
    raw = "×".join(map(str, manifest.raw.shape))
    pictures = (
        "Pillow is for pictures only; a `.npy` array of the input's shape and dtype needs numpy alone.\n"
        if _pictures(manifest.raw)
        else ""
    )
    older = (
        "\nWhere ai-edge-litert has no wheel for your Python, `pip install tflite-runtime 'numpy<2'` serves as well.\n"
        if manifest.target == "tflite"
        else ""
    )
    return f"""# {manifest.name} {manifest.version} for {manifest.target}

- Variant: `{manifest.variant}`
- Input: {manifest.raw.kind}, {raw}, {manifest.raw.dtype}
- Output: {_output(manifest)}
{told}

Copy this file and `{RUNNER}` to the device, then:

```
{lines}
```

{pictures}{older}
From Python:

```python
from edgekit.runner import load

model = load("{file}")
print(model.predict(sample).{ANSWERS[manifest.task]})
```
"""


def _pictures(raw: RawSpec) -> bool:
    """Whether a picture in a file can be a sample."""
    return raw.kind == "image" and raw.dtype == "uint8"


def _output(manifest: Manifest) -> str:
    if manifest.task == "classification":
        return f"scores of {len(manifest.labels)} classes"
    if manifest.task == "multi_label":
        return f"any of {', '.join(manifest.labels)}"
    if manifest.task == "anomaly":
        return f"an anomaly where the mean squared error of the reconstruction is above {manifest.threshold:.6g}"
    if manifest.task == "regression":
        return ", ".join(manifest.labels)
    return f"float32, {'×'.join(map(str, manifest.output.shape[1:]))}"
