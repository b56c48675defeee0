"""Why a network could not become a file: which operator, in which layer, for what cause, and what to do instead."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

# converters append whole graphs and reading lists to their messages
CAUSE_WORDS = r"\berror: |no conversion rule|not supported|unsupported|validation failed"
PLACE = re.compile(r'File "((?:(?!site-packages)[^"])+)", line (\d+)')
OPERATOR = re.compile(
    r"target=torch\.ops\.aten\.(\w+)"  # litert-torch: the node that it was at
    r"|OpOverload\(op='aten\.(\w+)"  # the exporter to ONNX
    r"|conversion rule[^\n]*?aten::(\w+)"  # OpenVINO
    r"|calling layer \"(tf\.[a-z_.]+?)(?:_\d+)?\""  # onnx2tf
    r"|(\w+) (?:node|op)?[^\n]{0,40}validation failed"
)
KINDS = ("operator", "control flow", "shape", "other")
"""Of what a converter raises."""
PROCESS, NUMERICS, SOURCE_LEFT_OUT = "process", "numerics", "rests"
"""The converter died; the file says something else; the float model it is made from was left out."""
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
     "write .reshape in the place of .view, or .contiguous() before it"),
    (r"No module named 'onnx2tf\.ops\.|Failed to find proper ai\.onnx domain", "operator",
     "onnx2tf and ONNX Runtime's quantizer know ai.onnx alone, no trees: leave this target out, or train a network"),
    (r"No module named '(openvino|onnxruntime|ai_edge_litert|litert_torch)", "other",
     "install the package, or leave this target out"),
    (r"Output tensors of a Functional model|calling layer \"tf\.|Eager execution of tf\.constant", "operator",
     "onnx2tf cannot put this graph together: give the PyTorch or Keras model itself, or leave tflite out of targets"),
    (r"shared mode is not supported", "operator",
     "ONNX Runtime's quantizer cannot take this graph: leave int8 out of convert.precisions, or onnx out of targets"),
    (r"no conversion rule|not supported|unsupported|Lowering not found|No ONNX function|NotImplemented", "operator",
     "replace it by operators that the target has, or leave this target out"),
)  # fmt: skip
"""What is found in a converter's words, which kind of failure it is, and what to do instead."""
FALLBACK_ADVICE = "leave this target out, or report it with the network"


@dataclass(frozen=True)
class ConversionFailure:
    """One of KINDS, or of the three words below them.

    `operator`, `layer` (a module's name) and `place` (FILE:LINE) are empty where nobody knows them, `alternative` where
    the cause says what to do.
    """

    kind: str
    operator: str
    layer: str
    place: str
    cause: str
    alternative: str

    @classmethod
    def of(cls, kind: str, cause: str, alternative: str = "", layer: str = "") -> ConversionFailure:
        """One that says itself what is wrong."""
        return cls(kind, "", layer, "", cause, alternative)

    def describe(self) -> str:
        """In one line."""
        what = f"{self.operator}: " if self.operator else ""
        where = " in layer " + self.layer if self.operator and self.layer else ""
        place = f" (at {self.place})" if self.place else ""
        instead = f"; {self.alternative}" if self.alternative else ""
        return f"{what}{self.cause}{where}{place}{instead}"

    def row(self) -> dict[str, str | None]:
        """Its fields for a record, null for what nobody knows, and the line."""
        known = {name: value or None for name, value in asdict(self).items() if name != "alternative"}
        return {**known, "advice": self.alternative or None, "reason": self.describe()}


def classify(error: BaseException, model_folder: Path | None = None) -> ConversionFailure:
    """Of what a converter raised for the network saved in `model_folder`, in which the operator's layer is sought."""
    words = str(error)
    place = next((f"{Path(file).name}:{line}" for file, line in PLACE.findall(words)), "")
    first = root_cause(error)
    all_words = f"{words}\n{first}\n{type(first).__name__}"
    pattern, kind, alternative = next(
        (cause for cause in CAUSES if re.search(cause[0], all_words, re.IGNORECASE)),
        (CAUSE_WORDS, "other", FALLBACK_ADVICE),
    )
    found = OPERATOR.search(all_words)
    operator = next(filter(None, found.groups()), "") if found else ""
    layer = _layer(model_folder, operator) if model_folder and operator else ""
    return ConversionFailure(kind, operator, layer, place, _cause_line(first, pattern), alternative)


def root_cause(error: BaseException) -> BaseException:
    """What it came from in the end."""
    while error.__cause__:
        error = error.__cause__
    return error


def _cause_line(error: BaseException, pattern: str) -> str:
    """The first line that says what was found, else the first that sounds like a cause, else the first."""
    lines = [line.strip(" -\t") for line in str(error).splitlines() if line.strip()] or ["no message"]
    found = [line for wanted in (pattern, CAUSE_WORDS) for line in lines if re.search(wanted, line, re.IGNORECASE)]
    telling = [*found, *lines][0]
    return f"{type(error).__name__}: {telling[:300].rstrip('.;')}"


def _layer(model_folder: Path, operator: str) -> str:
    """The innermost module whose code calls the operator first; empty where the network cannot be exported at all."""
    import torch

    from edgekit.models import store

    try:
        module, spec = store.load(model_folder)
        graph = torch.export.export(module, (store.zero_sample(spec),)).run_decompositions().graph
    except Exception:  # whatever keeps the network from being exported: that is not the failure to report
        return ""
    return next((_module_of(node) for node in graph.nodes if operator in str(node.target)), "")


def _module_of(node: Any) -> str:
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    return str(stack[-1][0]) if stack and stack[-1][0] else "the network's own forward"
