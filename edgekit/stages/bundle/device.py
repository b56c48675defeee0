"""What a bundle tells the person at the device."""

from __future__ import annotations

from edgekit.runner.manifest import Manifest

INTERPRETERS = {
    "tflite": ["ai-edge-litert>=2.0"],
    "openvino": ["openvino>=2024.4"],
    "onnx": ["onnxruntime>=1.17"],
}


def requirements(target: str) -> list[str]:
    """Lines of the bundle's requirements.txt."""
    return ["numpy>=1.22", *INTERPRETERS[target]]


def commands(file: str, target: str, kind: str) -> list[str]:
    """The three lines to type on the device, in a virtual environment as PEP 668 asks for."""
    needed = " ".join(f"'{line}'" for line in [*requirements(target), *(["pillow"] if kind == "image" else [])])
    return [
        f"python3 -m venv edge && edge/bin/pip install {needed}",
        f"edge/bin/python edgerun.pyz selftest {file}",
        f"edge/bin/python edgerun.pyz predict {file} {'picture.png' if kind == 'image' else 'sample.npy'}",
    ]


def readme(manifest: Manifest, file: str) -> str:
    """The README.md inside the bundle."""
    lines = "\n".join(commands(file, manifest.target, manifest.raw.kind))
    verdict = manifest.verdict
    raw = "×".join(map(str, manifest.raw.shape))
    pictures = (
        "Pillow is for pictures only; a `.npy` array of the input's shape and dtype needs numpy alone.\n"
        if manifest.raw.kind == "image"
        else ""
    )
    older = (
        "\nWhere ai-edge-litert has no wheel for your Python, `pip install tflite-runtime 'numpy<2'` serves as well.\n"
        if manifest.target == "tflite"
        else ""
    )
    return f"""# {manifest.name} {manifest.version} for {manifest.target}

- Variant: `{manifest.variant}`, {verdict["bytes"]:,} bytes
- Input: {manifest.raw.kind}, {raw}, {manifest.raw.dtype}
- Output: scores of {len(manifest.labels)} classes
- Accuracy: {verdict["accuracy_validation"]:.2%} on validation, {verdict["accuracy_test"]:.2%} on test
- Drop against the baseline: {verdict["drop_validation_pp"]:.2f} percentage points on validation

Copy this file and `edgerun.pyz` to the device, then:

```
{lines}
```

{pictures}{older}
From Python:

```python
from edgekit.runner import load

model = load("{file}")
print(model.predict(sample).label)
```
"""
