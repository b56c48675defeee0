"""Explain why a network could not be converted: the operator, its layer, the cause, and what to do instead."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

# converters append whole graphs and lists of links to their messages; lines with these words state the cause
CAUSE_WORDS = r"\berror: |no conversion rule|not supported|unsupported|validation failed"
PLACE = re.compile(r'File "((?:(?!site-packages)[^"])+)", line (\d+)')
OPERATOR = re.compile(
    r"target=torch\.ops\.aten\.(\w+)"  # litert-torch: the node that it was converting
    r"|OpOverload\(op='aten\.(\w+)"  # the exporter to ONNX
    r"|conversion rule[^\n]*?aten::(\w+)"  # OpenVINO
    r"|calling layer \"(tf\.[a-z_.]+?)(?:_\d+)?\""  # onnx2tf
    r"|(\w+) (?:node|op)?[^\n]{0,40}validation failed"
)
KINDS = ("operator", "control flow", "shape", "other")
"""The kinds of failures that a converter raises."""
PROCESS, NUMERICS, SOURCE_LEFT_OUT = "process", "numerics", "rests"
"""Other kinds: the converter's process died, the file's outputs differ, or the file's float model was left out."""
CAUSES = (
    (r"data-dependent|dynamic control flow", "control flow",
     "what is computed depends on the values that come in: choose with torch.where, which computes both sides"),
    (r"fft|\bstft\b", "operator",
     "take the Fourier transform before the network, where the samples are made, or leave this target out"),
    (r"cmp::le\(kernel|kernel size can't be greater|Kernel after dilation", "shape",
     "a window is larger than what it slides over: pool with AdaptiveAvgPool2d(1), or give larger samples"),
    (r"found invalid output rank", "shape",
     "a dense layer meets a map of one pixel: flatten the map before it, or give larger samples"),
    (r"Cannot view a tensor with shape", "shape",
     "write .reshape instead of .view, or .contiguous() before it"),
    (r"No module named 'onnx2tf\.ops\.|Failed to find proper ai\.onnx domain", "operator",
     "onnx2tf and ONNX Runtime's quantizer support only ai.onnx, not trees: leave this target out, or train a network"),
    (r"No module named '(openvino|onnxruntime|ai_edge_litert|litert_torch)", "other",
     "install the package, or leave this target out"),
    (r"Output tensors of a Functional model|calling layer \"tf\.|Eager execution of tf\.constant", "operator",
     "onnx2tf cannot put this graph together: give the PyTorch or Keras model itself, or leave tflite out of targets"),
    (r"shared mode is not supported", "operator",
     "ONNX Runtime's quantizer cannot take this graph: leave int8 out of convert.precisions, or onnx out of targets"),
    (r"no conversion rule|not supported|unsupported|Lowering not found|No ONNX function|NotImplemented", "operator",
     "replace it with operators that the target has, or leave this target out"),
)  # fmt: skip
"""Each entry is a pattern in a converter's message, the kind of the failure, and what to do instead."""
FALLBACK_ADVICE = "leave this target out, or report it with the network"


@dataclass(frozen=True)
class ConversionFailure:
    """Why a conversion failed.

    `kind` is one of KINDS, PROCESS, NUMERICS and SOURCE_LEFT_OUT. `operator`, `layer` (the name of a module) and
    `place` (FILE:LINE) are empty if they are unknown, and `alternative` is empty if the cause already says what to do.
    """

    kind: str
    operator: str
    layer: str
    place: str
    cause: str
    alternative: str

    @classmethod
    def from_cause(cls, kind: str, cause: str, alternative: str = "", layer: str = "") -> ConversionFailure:
        """Create a failure from a cause that needs no further analysis."""
        return cls(kind, "", layer, "", cause, alternative)

    def describe(self) -> str:
        """Describe the failure in one line."""
        what = f"{self.operator}: " if self.operator else ""
        where = " in layer " + self.layer if self.operator and self.layer else ""
        place = f" (at {self.place})" if self.place else ""
        advice = f"; {self.alternative}" if self.alternative else ""
        return f"{what}{self.cause}{where}{place}{advice}"

    def row(self) -> dict[str, str | None]:
        """Return the fields for a record, None for unknown ones, with the one-line description as `reason`."""
        fields = {name: value or None for name, value in asdict(self).items() if name != "alternative"}
        return {**fields, "advice": self.alternative or None, "reason": self.describe()}


def classify(error: BaseException, model_folder: Path | None = None) -> ConversionFailure:
    """Explain an error that a converter raised. The operator's layer is looked up in the network `model_folder`."""
    message = str(error)
    place = next((f"{Path(file).name}:{line}" for file, line in PLACE.findall(message)), "")
    first = root_cause(error)
    text = f"{message}\n{first}\n{type(first).__name__}"
    pattern, kind, alternative = next(
        (cause for cause in CAUSES if re.search(cause[0], text, re.IGNORECASE)),
        (CAUSE_WORDS, "other", FALLBACK_ADVICE),
    )
    match = OPERATOR.search(text)
    operator = next(filter(None, match.groups()), "") if match else ""
    layer = _layer(model_folder, operator) if model_folder and operator else ""
    return ConversionFailure(kind, operator, layer, place, _cause_line(first, pattern), alternative)


def root_cause(error: BaseException) -> BaseException:
    """Return the first error in the chain of causes."""
    while error.__cause__:
        error = error.__cause__
    return error


def _cause_line(error: BaseException, pattern: str) -> str:
    """Return the first line that matches the pattern, else the first that looks like a cause, else the first line."""
    lines = [line.strip(" -\t") for line in str(error).splitlines() if line.strip()] or ["no message"]
    matching = [line for regex in (pattern, CAUSE_WORDS) for line in lines if re.search(regex, line, re.IGNORECASE)]
    cause = [*matching, *lines][0]
    return f"{type(error).__name__}: {cause[:300].rstrip('.;')}"


def _layer(model_folder: Path, operator: str) -> str:
    """Return the innermost module that calls the operator first; empty if the network cannot be exported."""
    import torch

    from edgekit.models import store

    try:
        module, spec = store.load(model_folder)
        graph = torch.export.export(module, (store.zero_sample(spec),)).run_decompositions().graph
    except Exception:  # this error is not the failure to report
        return ""
    return next((_module_of(node) for node in graph.nodes if operator in str(node.target)), "")


def _module_of(node: Any) -> str:
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    return str(stack[-1][0]) if stack and stack[-1][0] else "the network's own forward"
