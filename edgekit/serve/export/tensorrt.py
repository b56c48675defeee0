"""Export for TensorRT and EdgeTPU, with a note on Neuron: model file, commands, operators, and golden samples.

None of these compilers runs on the machines that test edgekit, so the export is prepared but not verified.
"""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np

from edgekit.core.errors import ConversionError
from edgekit.runner import operators
from edgekit.runner.model import open_model
from edgekit.serve.export import _readme
from edgekit.serve.export._subjects import Export, ExportedBundle, ExportRequest

HELP = "TensorRT and EdgeTPU: the model file, commands and operators; prepared, not verified"
OPTIONS = ()
INTEGERS = ("int8", "uint8")
FILES = {"onnx": "model.onnx", "tflite": "model.tflite"}
COMMANDS = {
    "onnx": (
        "TensorRT",
        "trtexec --onnx=model.onnx --saveEngine=model.plan --noTF32",
        "trtexec --loadEngine=model.plan --loadInputs={input}:golden/input_0.bin --exportOutput=output_0.json",
    ),
    "tflite": ("EdgeTPU", "edgetpu_compiler --show_operations model.tflite"),
}
NEURON = (
    "AWS Neuron does not compile ONNX files. "
    "Its compiler takes PyTorch networks, so the network itself must be traced there, outside of edgekit."
)
UNVERIFIED = "prepared, not verified: nothing here can run it; compare with golden/ on the device before you rely on it"


def export(subjects: Sequence[ExportedBundle], request: ExportRequest) -> Export:
    """Create a folder for each model. Raises ConversionError for a bundle that none of these compilers accepts."""
    files: dict[str, bytes] = {}
    lines, parts = [], []
    for subject in subjects:
        _check(subject)
        for name, data in {**_vectors(subject), "operators.txt": _operators(subject)}.items():
            files[f"{subject.name}/{name}"] = data
        file = FILES[subject.manifest.target]
        files[f"{subject.name}/{file}"] = subject.model_file(f".{subject.manifest.target}")
        compiler, *commands = COMMANDS[subject.manifest.target]
        lines.append(f"{subject.name}: {file} for {compiler}; {UNVERIFIED}")
        parts.append(_readme_section(subject, compiler, [_fill_command(command, subject) for command in commands]))
    head = f"# Model files for a compiler\n\n**{UNVERIFIED[0].upper()}{UNVERIFIED[1:]}.**\n"
    files["README.md"] = "\n".join([head, *parts]).encode()
    return Export(files, lines)


def _check(subject: ExportedBundle) -> None:
    facts = subject.manifest
    if len(facts.inputs) > 1:
        raise ConversionError(
            f"{subject.path}: its model has {len(facts.inputs)} inputs, but this export takes models with one; "
            "use edgekit export triton or kserve"
        )
    if facts.target not in FILES:
        raise ConversionError(
            f"{subject.path}: is an {facts.target} bundle; TensorRT reads ONNX and EdgeTPU reads int8 TFLite: "
            "export the onnx or an int8 tflite bundle"
        )
    results = ", ".join(sorted({each.dtype for each in facts.outputs}))
    if facts.target == "tflite" and not (facts.input.dtype in INTEGERS and results in INTEGERS):
        raise ConversionError(
            f"{subject.path}: its model takes {facts.input.dtype} and gives {results}; TensorRT reads no "
            "TFLite, and EdgeTPU needs integers from input to output: export the onnx or an int8 tflite bundle"
        )


def _fill_command(command: str, subject: ExportedBundle) -> str:
    """Insert the name of the model's input into a command, quoted for a shell."""
    import shlex

    name = subject.manifest.input.name
    return " ".join(shlex.quote(word.format(input=name)) if "{input}" in word else word for word in command.split(" "))


def _vectors(subject: ExportedBundle) -> dict[str, bytes]:
    """Return the golden samples as input tensors, the golden outputs, and the first input as raw bytes for trtexec."""
    model = open_model(subject.bundle)
    raws, outputs = model.golden()
    inputs = np.concatenate([np.ascontiguousarray(model.prepare(raw)) for raw in raws])
    arrays = {"golden/inputs.npy": _npy(inputs), "golden/outputs.npy": _npy(outputs)}
    return {**arrays, "golden/input_0.bin": inputs[0].tobytes()} if subject.manifest.target == "onnx" else arrays


def _npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=False)
    return stream.getvalue()


def _operators(subject: ExportedBundle) -> bytes:
    needs = operators.read(subject.manifest.target, subject.bundle.model_files())
    operator_list = needs.operators if needs else ()
    return "".join(f"{each.name}\t{each.domain}\tversion {each.version}\n" for each in operator_list).encode()


def _readme_section(subject: ExportedBundle, compiler: str, commands: Sequence[str]) -> str:
    facts = subject.manifest
    lines = "\n".join(commands)
    extra = (
        f"\n{NEURON}\n"
        if facts.target == "onnx"
        else ("\nThe compiler may refuse operator versions newer than it knows. They are listed in `operators.txt`.\n")
    )
    return (
        f"{_readme.title(subject)}\nFor {compiler}, in the folder `{subject.name}/`:\n\n```\n{lines}\n```\n\n"
        "`operators.txt` lists the file's operators. `golden/inputs.npy` holds tensors as the model takes them. "
        f"`golden/outputs.npy` holds the recorded outputs as real numbers; {facts.golden['atol']:.4g} is the allowed "
        f"difference.\n{extra}\n{_readme.native(subject)}"
    )
