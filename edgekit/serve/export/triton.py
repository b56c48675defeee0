"""Export for NVIDIA Triton: a model repository for the native backends, or with whole bundles on the Python backend."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from edgekit.core.errors import ConfigError, ConversionError
from edgekit.device import pyz
from edgekit.serve.export import _readme
from edgekit.serve.export._formats import Config, Port, pbtxt
from edgekit.serve.export._subjects import Export, ExportedBundle, ExportRequest

HELP = "NVIDIA Triton: a model repository"
OPTIONS = ("backend",)
BACKENDS = ("native", "python")
NATIVE = {"onnx": "onnxruntime", "openvino": "openvino"}
FILES = {"onnx": ("model.onnx",), "openvino": ("model.xml", "model.bin")}
LARGEST_BATCH = 32
MODEL = Path(__file__).with_name("_triton_model.py")
UNTRIED = (
    "prepared, not verified: edgekit's tests run Triton 2.51.0 with the Python backend; "
    "the onnxruntime and openvino backends come with Triton's own images"
)


def export(subjects: Sequence[ExportedBundle], request: ExportRequest) -> Export:
    """Create the repository and a README, and lines for the console that say what clients send to each model."""
    files, lines = repository(subjects, request.backend)
    return Export({**files, "README.md": about(subjects, request.backend)}, lines)


def repository(subjects: Sequence[ExportedBundle], backend: str | None) -> tuple[dict[str, bytes], list[str]]:
    """Return the files of a model repository and a line per model.

    Raises ConfigError for an unknown backend, and ConversionError for one that cannot run a bundle.
    """
    if backend is not None and backend not in BACKENDS:
        raise ConfigError(f"--backend {backend}: got {backend!r}; use {' or '.join(BACKENDS)}")
    files: dict[str, bytes] = {}
    lines = []
    for subject in subjects:
        native = uses_native(subject, backend)
        model_files = _native(subject) if native else _python(subject)
        files.update({f"{subject.name}/{name}": data for name, data in model_files.items()})
        word = f"the {NATIVE[subject.manifest.target]} backend" if native else "the Python backend"
        lines.append(f"{subject.name}: on {word}. {_readme.sends(subject) if native else _readme.PYTHON}")
    if any(uses_native(subject, backend) for subject in subjects):
        lines.append(UNTRIED)
    return files, lines


def uses_native(subject: ExportedBundle, backend: str | None) -> bool:
    """Return whether a bundle runs on a native backend. Raises ConversionError if Triton has none for it."""
    target = subject.manifest.target
    if backend == "native" and target not in NATIVE:
        raise ConversionError(
            f"{subject.path}: Triton has no {target} backend for CPUs; leave --backend out, or use --backend python"
        )
    return backend != "python" and target in NATIVE


def _native(subject: ExportedBundle) -> dict[str, bytes]:
    facts = subject.manifest
    labels = "labels.txt" if _has_label_lines(subject) else ""
    config = Config(
        subject.name,
        NATIVE[facts.target],
        0,
        [Port(each.name, each.dtype, each.shape) for each in facts.inputs],
        [Port(each.name, each.dtype, each.shape, labels) for each in facts.outputs],
        _origin(subject),
    )
    files = {f"1/{name}": subject.model_file(Path(name).suffix) for name in FILES[facts.target]}
    return {"config.pbtxt": pbtxt(config), **files, **_labels(subject)}


def _python(subject: ExportedBundle) -> dict[str, bytes]:
    facts = subject.manifest
    labels = "labels.txt" if _has_label_lines(subject) else ""
    config = Config(
        subject.name,
        "python",
        LARGEST_BATCH,
        [Port(*each) for each in _readme.tensors(facts.raw)],
        [Port("scores", "float32", facts.output_shape, labels), Port("answer", "text", (1,))],
        _origin(subject),
    )
    return {
        "config.pbtxt": pbtxt(config),
        "1/model.py": MODEL.read_bytes(),
        "1/bundle.edge.zip": subject.data,
        "1/edgerun.pyz": runner_archive(),
        **_labels(subject),
    }


def runner_archive() -> bytes:
    """Return the bytes of `edgerun.pyz`."""
    with tempfile.TemporaryDirectory() as home:
        path = Path(home) / "edgerun.pyz"
        pyz.build(path)
        return path.read_bytes()


def _origin(subject: ExportedBundle) -> dict[str, str]:
    """Return the bundle's version and identity as parameters, because Triton's own versions are integers."""
    return {"edgekit_version": subject.manifest.version, "edgekit_bundle": subject.bundle.identity}


def _has_label_lines(subject: ExportedBundle) -> bool:
    """Return whether Triton's classification extension can use the labels, which must have one line each."""
    facts = subject.manifest
    one_line_each = all(len(label.splitlines()) == 1 for label in facts.labels)
    return facts.task == "classification" and bool(facts.labels) and one_line_each


def _labels(subject: ExportedBundle) -> dict[str, bytes]:
    if not _has_label_lines(subject):
        return {}
    return {"labels.txt": "".join(f"{label}\n" for label in subject.manifest.labels).encode()}


def about(subjects: Sequence[ExportedBundle], backend: str | None) -> bytes:
    """Return the README of the repository: what clients send to each model and what they receive."""
    parts = [
        "# A model repository for Triton\n\nStart it in the folder that holds this file:\n\n"
        "```\ntritonserver --model-repository=$PWD\n```\n"
    ]
    for subject in subjects:
        facts = subject.manifest
        parts.append(_readme.title(subject))
        if uses_native(subject, backend):
            parts += [_readme.native(subject), f"{UNTRIED[0].upper()}{UNTRIED[1:]}.\n"]
        else:
            needs = " ".join(f"'{each}'" for each in facts.requirements)
            parts += [_readme.raw(facts), f"Triton's Python needs: `pip install {needs}`.\n"]
    return "\n".join(parts).encode()
