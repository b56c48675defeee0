"""The parts of the README of an export: what a client of the other server must know."""

from __future__ import annotations

import json

from edgekit.runner.backends import byte_inputs
from edgekit.runner.bundle.manifest import Manifest, RawSpec, TensorSpec
from edgekit.serve.export._subjects import ExportedBundle

NATIVE = "Clients send the preprocessed tensor: this server does not run the bundle's own preprocess."
BYTES = "Clients send the sample's bytes in the input's layout: the model file itself contains the preprocess steps."
INTEGERS = ("int8", "uint8", "int16")
PYTHON = "Clients send the raw sample: the bundle's own preprocess and postprocess run on the server."


def tensor(spec: TensorSpec) -> str:
    """Describe one of the model's tensors in one line."""
    return f"`{spec.name}`: {spec.dtype}{list(spec.shape)} ({spec.layout})"


def tensors(raw: RawSpec) -> list[tuple[str, str, tuple[int, ...]]]:
    """Return the name, dtype and shape of each tensor of a raw sample that clients of the Python backend send."""
    if raw.tensors is None:
        return [("raw", raw.dtype, raw.shape)]
    return [(each["name"], each["dtype"], tuple(each["shape"])) for each in raw.tensors]


def title(subject: ExportedBundle) -> str:
    """Return the heading of a bundle's section, with what identifies the bundle."""
    facts = subject.manifest
    return (
        f"## {subject.name}\n\n{facts.name} {facts.version}, variant {facts.variant}, target {facts.target}.\n"
        f"Made from `{subject.path.name}`, whose manifest has the sha256 {subject.bundle.identity}.\n"
    )


def raw(manifest: Manifest) -> str:
    """Describe what clients of the Python backend send and receive."""
    spec = manifest.raw
    inputs = "".join(
        f"- Input `{name}`: {dtype}[n, {', '.join(map(str, shape))}] ({spec.kind}), n samples a request.\n"
        for name, dtype, shape in tensors(spec)
    )
    return (
        f"{PYTHON}\n\n{inputs}"
        f"- Output `scores`: float32[n, {', '.join(map(str, manifest.output_shape))}], as the model gives them.\n"
        "- Output `answer`: JSON text for each sample, what `edgerun predict --json` calls the prediction.\n"
    )


def sends(subject: ExportedBundle) -> str:
    """Say in one sentence what clients send if the server runs only the model file."""
    return BYTES if _holds_steps(subject) else NATIVE


def native(subject: ExportedBundle) -> str:
    """Describe what clients must do themselves if the server runs only the model file."""
    manifest, holds_steps = subject.manifest, _holds_steps(subject)
    steps = json.dumps(manifest.preprocess, sort_keys=True)
    parts = [
        f"{sends(subject)}\n",
        *(f"- Input {tensor(each)}" for each in manifest.inputs),
        *(f"- Output {tensor(each)}" for each in manifest.outputs),
        *_raw_lines(manifest.raw),
        f"- Preprocess steps, in {'the file' if holds_steps else 'order'}: `{steps}`",
    ]
    if manifest.raw.tensors is None and manifest.input.dtype in INTEGERS and not holds_steps:
        parts.append("- The input holds integers: quantize with the scale and zero point of the model's input tensor.")
    elif manifest.raw.tensors is not None and any(each.dtype in INTEGERS for each in manifest.inputs):
        parts.append("- An input of int8, uint8 or int16 that has a scale and a zero point takes quantized numbers.")
    if manifest.activation != "none":
        parts.append(f"- Then apply {manifest.activation} to the output: the model does not.")
    if manifest.task == "embedding":
        parts.append("- Then divide the output by its length: the cosine of two such vectors is the sum of products.")
    if manifest.labels:
        parts.append(f"- Labels, in the output's order: {json.dumps(manifest.labels, ensure_ascii=False)}")
    return "\n".join(parts) + "\n"


def _holds_steps(subject: ExportedBundle) -> bool:
    """Return whether the model file accepts a sample's bytes and contains the preprocessing."""
    inputs, files = subject.manifest.inputs, subject.bundle.model_files()
    return any(byte_inputs.byte_encoder(data, inputs) is not None for data in files.values())


def _raw_lines(raw: RawSpec) -> list[str]:
    if raw.tensors is None:
        return [f"- Raw samples are {raw.dtype}{list(raw.shape)} ({raw.kind})."]
    return [
        f"- In a raw sample, `{each['name']}` is {each['dtype']}{list(each['shape'])}"
        + (f", {each['range'][0]} to {each['range'][1]}." if each["range"] else ".")
        for each in raw.tensors
    ]
