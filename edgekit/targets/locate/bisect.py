"""Find the layer where a converted file diverges from its network, by comparing all tensors of both.

Names do not survive a conversion, and the output of a wrong layer matches no tensor of the network. The search
therefore looks for agreement. An operator agrees if its output matches some tensor of the network, or if it leads to an
operator that agrees (for example a convolution whose bias is another operator). The file diverges at the operator that
does not agree although the operators before it do. The layer to report is the one that takes the same inputs in the
network as this operator in the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from edgekit.models.eager import single_thread
from edgekit.targets.float_ops import ONNX_MOVING, ONNX_WEIGHTED, OPENVINO_MOVING, OPENVINO_WEIGHTED, TFLITE_MOVING
from edgekit.targets.float_ops import TFLITE_WEIGHTED as TFLITE_WEIGHTS
from edgekit.targets.tensors import (
    EQUAL_DB,
    INPUT,
    NO_SIMILARITY,
    FileTensor,
    Match,
    NetworkTensor,
    Similarity,
    match_operators,
)

AGREEMENT_DB = {"fp32": 60.0, "fp16": 30.0}
ROUNDED_AGREEMENT_DB = 12.0
"""The lowest SNR at which a tensor of the file matches one of the network, by precision. `ROUNDED_AGREEMENT_DB` is for
all precisions with 8-bit weights or values."""
CEILING_DB = {"fp32": 100.0, "fp16": 60.0}
ROUNDED_CEILING_DB = 40.0
"""The best SNR that a precision reaches. A higher SNR counts as this one, so that only losses below it matter."""
MIN_LOSS_DB = 10.0
"""Smaller losses are normal for any layer."""
STEEP = 0.6
"""The first operator whose loss is at least this share of the largest loss is reported."""

WEIGHTED = ONNX_WEIGHTED | OPENVINO_WEIGHTED | TFLITE_WEIGHTS
WEIGHTED_IN_TORCH = {"convolution", "addmm", "mm", "bmm", "linear", "matmul", "mkldnn_convolution"}
QUANTIZING = {"QuantizeLinear", "DequantizeLinear", "FakeQuantize", "QUANTIZE", "DEQUANTIZE", "Cast", "Convert"}
MOVING = (ONNX_MOVING | OPENVINO_MOVING | TFLITE_MOVING) - QUANTIZING - {"Concat", "CONCATENATION"}
NORMS = {"native_batch_norm", "cudnn_batch_norm", "batch_norm"}
ACTIVATIONS = {"relu", "relu_", "hardtanh", "hardtanh_", "hardswish", "hardswish_", "leaky_relu", "clamp", "gelu",
               "silu", "silu_", "sigmoid", "tanh", "elu", "relu6"}  # fmt: skip


@dataclass(frozen=True)
class Divergence:
    """Where a file and its network diverge.

    `layer` is where they diverge, and `layers` are all layers that the file's `operator` computes, including `layer`.
    `agreed` is the last layer before it at which both agree, with the similarity `before`. `after` is the similarity of
    the outputs of `layer`.
    """

    layer: str
    layers: tuple[str, ...]
    operator: str
    agreed: str
    before: Similarity
    after: Similarity
    loss_db: float
    note: str = ""

    def describe(self) -> str:
        """Describe the divergence in a sentence."""
        more = [name for name in self.layers if name != self.layer]
        together_note = f", computed together with {', '.join(more)}" if more else ""
        similarity_after = "the file has no such tensor" if self.after == NO_SIMILARITY else self.after.describe()
        return (
            f"the outputs agree up to {self.agreed} ({self.before.describe()}) and diverge at {self.layer} "
            f"({similarity_after}; operator {self.operator}{together_note}){self.note and f'; {self.note}'}"
        )


def find_divergence(
    module: nn.Module,
    inputs: np.ndarray,
    operators: Sequence[FileTensor],
    precision: str,
    min_loss_db: float = MIN_LOSS_DB,
) -> Divergence | None:
    """Find where the operators of a file diverge from the network that it was made from.

    `inputs` (n, C, H, W) or (n, F) are those with which the operators were read. Returns None if no operator loses
    `min_loss_db`.
    """
    return _Comparison(record_tensors(module, inputs), list(operators), precision).first_divergence(min_loss_db)


def _similarity(node: NetworkTensor, operator: FileTensor) -> Similarity:
    return match_operators([node], [operator])[0].similarity


class _Comparison:
    def __init__(self, nodes: list[NetworkTensor], operators: list[FileTensor], precision: str) -> None:
        self.nodes, self.operators = nodes, operators
        self.agreement_db = AGREEMENT_DB.get(precision, ROUNDED_AGREEMENT_DB)
        self.ceiling_db = CEILING_DB.get(precision, ROUNDED_CEILING_DB)
        self.matches: list[Match] = match_operators(nodes, operators)
        self.operator_consumers: list[list[int]] = [[] for _ in operators]
        for index, operator in enumerate(operators):
            for source in operator.inputs:
                self.operator_consumers[source].append(index)
        self.node_consumers: list[list[int]] = [[] for _ in nodes]
        for index, node in enumerate(nodes):
            for source in node.inputs:
                self.node_consumers[source].append(index)
        # a tensor also agrees if it leads to one that agrees, for example a convolution whose bias is another operator
        self.reached_db = [match.similarity.snr_db for match in self.matches]
        for index in reversed(range(len(operators))):
            below = [self.reached_db[each] for each in self.operator_consumers[index]]
            self.reached_db[index] = max(self.reached_db[index], *below, -EQUAL_DB)
        self.matched_nodes = {self.matches[index].node for index in range(len(operators)) if self.agrees(index)}

    def agrees(self, index: int) -> bool:
        return self.matches[index].similarity.snr_db >= self.agreement_db

    def first_divergence(self, min_loss_db: float) -> Divergence | None:
        """Return the divergence at the first operator whose loss is nearly the largest; None if all are small."""
        level_db = np.clip(self.reached_db, 0.0, self.ceiling_db)
        losses_db = [
            min((level_db[source] for source in operator.inputs), default=level_db[index]) - level_db[index]
            for index, operator in enumerate(self.operators)
        ]
        if max(losses_db) < min_loss_db:
            return None
        enough_db = max(STEEP * max(losses_db), min_loss_db)
        index = next(index for index, loss_db in enumerate(losses_db) if loss_db >= enough_db)
        sources = self._agreeing_sources(index)
        computing = self._computation(index)
        layers, expected = self._layers(computing, sources)
        operator = self.operators[computing]
        agreed = max(sources, key=lambda source: (self.matches[source].node, source))
        if expected is not None:
            # a bias may be an operator of its own
            nearby = [operator, *(self.operators[consumer] for consumer in self.operator_consumers[computing])]
            after = max((_similarity(self.nodes[expected], one) for one in nearby), key=lambda one: one.snr_db)
        else:
            after = self.matches[computing].similarity
        kind = f"{operator.kind} with {operator.activation}" if operator.activation else operator.kind
        return Divergence(
            layer=layers[0] if layers else f"{operator.kind}, an operator that the network does not have",
            layers=tuple(layers),
            operator=kind,
            agreed=self._title(self.matches[agreed].node),
            before=self.matches[agreed].similarity,
            after=after,
            loss_db=float(losses_db[index]),
            note=self._clipped(operator, expected),
        )

    def _agreeing_sources(self, index: int) -> list[int]:
        """Return the closest operators upstream that agree with the network."""
        sources, visited = set[int](), set[int]()
        queue = list(self.operators[index].inputs)
        while queue:
            source = queue.pop()
            if self.agrees(source) or self.operators[source].kind == INPUT:
                sources.add(source)
            elif source not in visited:
                queue += self.operators[source].inputs
            visited.add(source)
        return sorted(sources) or [0]

    def _computation(self, index: int) -> int:
        """Return the operator at `index` or, if it only moves values, the operator that computes with these values."""
        while self.operators[index].kind in MOVING and len(self.operator_consumers[index]) == 1:
            index = self.operator_consumers[index][0]
        return index

    def _layers(self, index: int, sources: list[int]) -> tuple[list[str], int | None]:
        """Return the network's layers that an operator computes, and the index of the tensor that it should give.

        `index` is the operator's index, and `sources` are the closest operators before it that agree with the network.
        """
        operator = self.operators[index]
        if operator.kind in QUANTIZING:
            return self._layer_before_range(sources)
        weighted, size = operator.kind in WEIGHTED, operator.values[0].size
        inputs = [self.matches[source].node for source in sources]
        starts = sorted({start for node in inputs for start in self._next(node)})
        # the operator may agree in spite of its loss, by itself or together with a bias that is another operator
        nearby = [index] if self.agrees(index) else self.operator_consumers[index]
        own = {self.matches[each].node for each in nearby if self.agrees(each)}

        def rank(start: int) -> tuple[bool, bool, bool, bool, int, int]:
            chain = self._chain(start, fused=True)
            return (
                not own & set(chain),
                not own and bool(self.matched_nodes & set(chain)),
                (self.nodes[start].operator in WEIGHTED_IN_TORCH) != weighted,
                self.nodes[chain[-1]].values[0].size != size,
                -sum(start in self._next(node) for node in inputs),
                start,
            )

        for start in sorted(starts, key=rank)[:1]:
            if own or not self.matched_nodes & set(self._chain(start, fused=True)):
                chain = self._chain(self._unmatched(start), fused=bool(operator.activation))
                return list(dict.fromkeys(self.nodes[each].layer for each in chain)), chain[-1]
        return [], None

    def _unmatched(self, start: int) -> int:
        """Return the first input of an operation that matches no tensor of the file, or else the operation itself."""
        for source in self.nodes[start].inputs:
            before = source
            while before and self._passes_on(before):
                before = self.nodes[before].inputs[0]
            if len(self.nodes[start].inputs) > 1 and before not in self.matched_nodes:
                while self.nodes[before].operator in NORMS | ACTIVATIONS:
                    before = self.nodes[before].inputs[0]
                return before
        return start

    def _layer_before_range(self, sources: list[int]) -> tuple[list[str], int]:
        """Return the layer whose output a quantizing operator cannot represent, and the index of that output."""
        node = self.matches[sources[0]].node
        chain = [node, *(start for start in self._next(node) if self.nodes[start].operator in ACTIVATIONS)][:2]
        return [self._title(node)], chain[-1]

    def _next(self, index: int) -> list[int]:
        """Return the operations that use a tensor, looking through those that pass it on unchanged."""
        users: list[int] = []
        for consumer in self.node_consumers[index]:
            users += self._next(consumer) if self._passes_on(consumer) else [consumer]
        return users

    def _passes_on(self, index: int) -> bool:
        node = self.nodes[index]
        before = self.nodes[node.inputs[0]].values
        return (
            len(node.inputs) == 1
            and before.size == node.values.size
            and np.array_equal(before.ravel(), node.values.ravel())
            and node.operator not in ACTIVATIONS
        )

    def _chain(self, start: int, fused: bool) -> list[int]:
        """Return an operation and those after it that a converter folds into it."""
        chain = [start]
        while len(following := self._next(chain[-1])) == 1:
            operator = self.nodes[following[0]].operator
            if operator not in NORMS and not (fused and operator in ACTIVATIONS):
                break
            chain.append(following[0])
            if operator in ACTIVATIONS:
                break
        return chain

    def _title(self, index: int) -> str:
        return self.nodes[index].layer or "the input"

    def _clipped(self, operator: FileTensor, expected: int | None) -> str:
        if operator.span is None or expected is None:
            return ""
        low, high = operator.span
        step = (high - low) / 255
        values = self.nodes[expected].values
        share = float(np.mean((values < low - step) | (values > high + step)))
        if share < 0.01:
            return ""
        return (
            f"its integers hold {low:.3g} to {high:.3g}, and {100 * share:.0f} % of the values lie outside "
            f"({values.min():.3g} to {values.max():.3g})"
        )


NETWORK_INPUT = "input"
SPLITTING = {"split", "split_with_sizes", "chunk", "unbind"}
"""Operators of which all outputs are recorded. Of other operators, only the first output is recorded."""


def record_tensors(module: nn.Module, inputs: np.ndarray) -> list[NetworkTensor]:
    """Record the tensors that a network computes, in the order of execution and the input first.

    `inputs` (n, …) are run as one batch, and the recorded values are (n, …).
    """
    x = torch.from_numpy(inputs)
    recorder = _Recorder(x)
    with single_thread(), torch.no_grad(), _hooks(module, recorder), recorder:
        module(x)
    return recorder.nodes


class _Recorder(TorchDispatchMode):
    def __init__(self, x: torch.Tensor) -> None:
        super().__init__()
        self.nodes = [NetworkTensor("", NETWORK_INPUT, (), x.numpy())]
        self.running: list[str] = []
        self._indices = {id(x): 0}
        self._alive = [x]  # kept alive, because Python may reuse the id of a freed tensor

    def enter(self, title: str, *_: Any) -> None:
        """Forward pre-hook: a module begins. A hook must return None."""
        self.running.append(title)

    def leave(self, *_: Any) -> None:
        """Forward hook: the module ends."""
        self.running.pop()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        arguments = [one for part in args for one in (part if isinstance(part, (tuple, list)) else (part,))]
        sources = [
            self._indices[id(one)] for one in arguments if isinstance(one, torch.Tensor) and id(one) in self._indices
        ]
        operator = func.overloadpacket.__name__.strip("_")
        several = isinstance(result, (tuple, list))
        outputs = (result if operator in SPLITTING else result[:1]) if several else (result,)
        for one in outputs:
            if not sources or not isinstance(one, torch.Tensor) or not one.ndim:
                continue
            self._alive.append(one)
            if not one.is_floating_point():
                self._indices[id(one)] = sources[0]  # in place of masks and integers, use the tensor they come from
            else:
                self._indices[id(one)] = len(self.nodes)
                layer = f"{self.running[-1]} ({operator})" if self.running[-1].endswith("forward") else self.running[-1]
                self.nodes.append(NetworkTensor(layer, operator, tuple(sources), one.detach().float().numpy().copy()))
        return result


@contextmanager
def _hooks(module: nn.Module, recorder: _Recorder) -> Iterator[None]:
    """Add hooks, inside the context, that tell the recorder which module runs."""
    handles = []
    for name, part in module.named_modules():
        leaf = name and next(part.children(), None) is None
        title = name if leaf else f"{name}.forward".lstrip(".")
        handles.append(part.register_forward_pre_hook(partial(recorder.enter, title)))
        handles.append(part.register_forward_hook(recorder.leave))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
