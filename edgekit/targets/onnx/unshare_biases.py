"""Biases that several operators of an ONNX model share, each operator given its own: ONNX Runtime's quantizer stumbles.

It copies a shared bias itself, for its scale is that of the operator's input and weights. The copy's name is the bias's
name and a number: the seventh of `val_11` is `val_117`, which may be what another operator gives. Then it ends with
"Quantization parameter shared mode is not supported for weight". Group norms, exported, share their biases.
"""

from __future__ import annotations

from typing import Any

BIAS = 2
BIASED = {"Conv", "ConvTranspose", "Gemm", "InstanceNormalization", "LayerNormalization", "BatchNormalization"}


def unshare(model: Any) -> None:
    """Change the model in place; its outputs stay the same."""
    constants = {one.name: one for one in model.graph.initializer}
    known = {name for node in model.graph.node for name in (*node.input, *node.output)} | set(constants)
    taken: set[str] = set()
    for node in model.graph.node:
        name = node.input[BIAS] if node.op_type in BIASED and len(node.input) > BIAS else ""
        if name not in constants:
            continue
        if name in taken:
            copied = model.graph.initializer.add()
            copied.CopyFrom(constants[name])
            copied.name = node.input[BIAS] = _free(f"{name}_of_{node.name}", known)
        taken.add(name)


def _free(name: str, known: set[str]) -> str:
    while name in known:
        name += "_"
    known.add(name)
    return name
