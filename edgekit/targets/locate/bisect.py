"""The layer where a converted file diverges from its network: every tensor of both is compared.

Names do not survive a conversion, and the output of a wrong layer resembles nothing. So the search is for agreement.
An operator is sound if its output is some tensor of the network, or if it leads to a sound one (a convolution whose
bias is another operator). The file diverges where agreement is lost at once. The layer is the one that takes in the
same tensors in the network.
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
"""Least SNR at which a tensor is taken for one of the network's; the latter with eight bits in weights or values."""
CEILING_DB = {"fp32": 100.0, "fp16": 60.0}
ROUNDED_CEILING_DB = 40.0
"""What a precision reaches at best: a loss is counted from here down."""
MIN_LOSS_DB = 10.0
"""A smaller one is what any layer costs."""
STEEP = 0.6
"""Of the largest loss; the first operator that loses as much is the one."""

WEIGHTED = ONNX_WEIGHTED | OPENVINO_WEIGHTED | TFLITE_WEIGHTS
WEIGHTED_IN_TORCH = {"convolution", "addmm", "mm", "bmm", "linear", "matmul", "mkldnn_convolution"}
QUANTIZING = {"QuantizeLinear", "DequantizeLinear", "FakeQuantize", "QUANTIZE", "DEQUANTIZE", "Cast", "Convert"}
MOVING = (ONNX_MOVING | OPENVINO_MOVING | TFLITE_MOVING) - QUANTIZING - {"Concat", "CONCATENATION"}
NORMS = {"native_batch_norm", "cudnn_batch_norm", "batch_norm"}
ACTIVATIONS = {"relu", "relu_", "hardtanh", "hardtanh_", "hardswish", "hardswish_", "leaky_relu", "clamp", "gelu",
               "silu", "silu_", "sigmoid", "tanh", "elu", "relu6"}  # fmt: skip


@dataclass(frozen=True)
class Divergence:
    """`layer` is where file and network diverge, `layers` all that the file's `operator` computes at once.

    `agreed` is the last layer before it where both agree, `before` how much, `after` what is left behind `layer`.
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
        """The sentence for a person."""
        more = [name for name in self.layers if name != self.layer]
        together = f", computed together with {', '.join(more)}" if more else ""
        after = "the file has no such tensor" if self.after == NO_SIMILARITY else self.after.describe()
        return (
            f"the outputs agree up to {self.agreed} ({self.before.describe()}) and diverge at {self.layer} "
            f"({after}; operator {self.operator}{together}){self.note and f'; {self.note}'}"
        )


def find_divergence(
    module: nn.Module,
    inputs: np.ndarray,
    operators: Sequence[FileTensor],
    precision: str,
    least_loss_db: float = MIN_LOSS_DB,
) -> Divergence | None:
    """Where the operators of a file diverge from the network that it was made of; None where none loses as much.

    `inputs` (n, C, H, W) or (n, F) are what the file was given when its operators were read.
    """
    return _Comparison(record_tensors(module, inputs), list(operators), precision).departure(least_loss_db)


def _similarity(node: NetworkTensor, operator: FileTensor) -> Similarity:
    return match_operators([node], [operator])[0].similarity


class _Comparison:
    def __init__(self, nodes: list[NetworkTensor], operators: list[FileTensor], precision: str) -> None:
        self.nodes, self.operators = nodes, operators
        self.sound_db = AGREEMENT_DB.get(precision, ROUNDED_AGREEMENT_DB)
        self.ceiling_db = CEILING_DB.get(precision, ROUNDED_CEILING_DB)
        self.found: list[Match] = match_operators(nodes, operators)
        self.takers: list[list[int]] = [[] for _ in operators]
        for place, operator in enumerate(operators):
            for taken in operator.inputs:
                self.takers[taken].append(place)
        self.consumers: list[list[int]] = [[] for _ in nodes]
        for place, node in enumerate(nodes):
            for taken in node.inputs:
                self.consumers[taken].append(place)
        # a tensor that only leads to sound ones is sound itself: a convolution whose bias is another operator
        self.reached_db = [match.similarity.snr_db for match in self.found]
        for place in reversed(range(len(operators))):
            below = [self.reached_db[each] for each in self.takers[place]]
            self.reached_db[place] = max(self.reached_db[place], *below, -EQUAL_DB)
        self.heard = {self.found[place].node for place in range(len(operators)) if self.sound(place)}

    def sound(self, place: int) -> bool:
        return self.found[place].similarity.snr_db >= self.sound_db

    def departure(self, least_loss_db: float) -> Divergence | None:
        """At the first operator that loses nearly as much of what it takes in as any, if that is enough."""
        level_db = np.clip(self.reached_db, 0.0, self.ceiling_db)
        losses_db = [
            min((level_db[source] for source in operator.inputs), default=level_db[place]) - level_db[place]
            for place, operator in enumerate(self.operators)
        ]
        if max(losses_db) < least_loss_db:
            return None
        enough_db = max(STEEP * max(losses_db), least_loss_db)
        place = next(place for place, loss_db in enumerate(losses_db) if loss_db >= enough_db)
        sources = self._sound_sources(place)
        deed = self._computation(place)
        layers, expected = self._layers(deed, sources)
        operator = self.operators[deed]
        agreed = max(sources, key=lambda source: (self.found[source].node, source))
        if expected is not None:
            # a bias may be an operator of its own
            nearby = [operator, *(self.operators[taker] for taker in self.takers[deed])]
            after = max((_similarity(self.nodes[expected], one) for one in nearby), key=lambda one: one.snr_db)
        else:
            after = self.found[deed].similarity
        kind = f"{operator.kind} with {operator.activation}" if operator.activation else operator.kind
        return Divergence(
            layer=layers[0] if layers else f"{operator.kind}, an operator that the network does not have",
            layers=tuple(layers),
            operator=kind,
            agreed=self._title(self.found[agreed].node),
            before=self.found[agreed].similarity,
            after=after,
            loss_db=float(losses_db[place]),
            note=self._clipped(operator, expected),
        )

    def _sound_sources(self, place: int) -> list[int]:
        """The nearest operators upstream that are sound."""
        found, seen = set[int](), set[int]()
        waiting = list(self.operators[place].inputs)
        while waiting:
            source = waiting.pop()
            if self.sound(source) or self.operators[source].kind == INPUT:
                found.add(source)
            elif source not in seen:
                waiting += self.operators[source].inputs
            seen.add(source)
        return sorted(found) or [0]

    def _computation(self, place: int) -> int:
        """What only moves values on the way to an operator belongs to that operator."""
        while self.operators[place].kind in MOVING and len(self.takers[place]) == 1:
            place = self.takers[place][0]
        return place

    def _layers(self, place: int, sources: list[int]) -> tuple[list[str], int | None]:
        """What the network computes there, and the place of the tensor that should have come out."""
        operator = self.operators[place]
        if operator.kind in QUANTIZING:
            return self._crossed(sources)
        weighted, size = operator.kind in WEIGHTED, operator.values[0].size
        given = [self.found[source].node for source in sources]
        starts = sorted({start for node in given for start in self._next(node)})
        # sound in spite of its loss: by itself, or with the bias that is another operator
        nearby = [place] if self.sound(place) else self.takers[place]
        own = {self.found[each].node for each in nearby if self.sound(each)}

        def rank(start: int) -> tuple[bool, bool, bool, bool, int, int]:
            chain = self._chain(start, fused=True)
            return (
                not own & set(chain),
                not own and bool(self.heard & set(chain)),
                (self.nodes[start].operator in WEIGHTED_IN_TORCH) != weighted,
                self.nodes[chain[-1]].values[0].size != size,
                -sum(start in self._next(node) for node in given),
                start,
            )

        for start in sorted(starts, key=rank)[:1]:
            if own or not self.heard & set(self._chain(start, fused=True)):
                chain = self._chain(self._unmatched(start), fused=bool(operator.activation))
                return list(dict.fromkeys(self.nodes[each].layer for each in chain)), chain[-1]
        return [], None

    def _unmatched(self, start: int) -> int:
        """What an operation takes in may be missing in the file, another tensor of the network's in its place."""
        for taken in self.nodes[start].inputs:
            before = taken
            while before and self._hands_on(before):
                before = self.nodes[before].inputs[0]
            if len(self.nodes[start].inputs) > 1 and before not in self.heard:
                while self.nodes[before].operator in NORMS | ACTIVATIONS:
                    before = self.nodes[before].inputs[0]
                return before
        return start

    def _crossed(self, sources: list[int]) -> tuple[list[str], int]:
        """A range that does not hold what the layer before it gives."""
        node = self.found[sources[0]].node
        chain = [node, *(start for start in self._next(node) if self.nodes[start].operator in ACTIVATIONS)][:2]
        return [self._title(node)], chain[-1]

    def _next(self, place: int) -> list[int]:
        """What takes a tensor in, seen through what hands it on as it is."""
        found: list[int] = []
        for taker in self.consumers[place]:
            found += self._next(taker) if self._hands_on(taker) else [taker]
        return found

    def _hands_on(self, place: int) -> bool:
        node = self.nodes[place]
        before = self.nodes[node.inputs[0]].values
        return (
            len(node.inputs) == 1
            and before.size == node.values.size
            and np.array_equal(before.ravel(), node.values.ravel())
            and node.operator not in ACTIVATIONS
        )

    def _chain(self, start: int, fused: bool) -> list[int]:
        """An operation and what a converter folds into it."""
        chain = [start]
        while len(following := self._next(chain[-1])) == 1:
            operator = self.nodes[following[0]].operator
            if operator not in NORMS and not (fused and operator in ACTIVATIONS):
                break
            chain.append(following[0])
            if operator in ACTIVATIONS:
                break
        return chain

    def _title(self, place: int) -> str:
        return self.nodes[place].layer or "the input"

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
"""What gives several tensors that all go on; of others the first is the result."""


def record_tensors(module: nn.Module, inputs: np.ndarray) -> list[NetworkTensor]:
    """In the order of execution, the input first; `inputs` (n, …) go through as one batch, `values` are (n, …)."""
    x = torch.from_numpy(inputs)
    recorder = _Recorder(x)
    with single_thread(), torch.no_grad(), _followed(module, recorder), recorder:
        module(x)
    return recorder.nodes


class _Recorder(TorchDispatchMode):
    def __init__(self, x: torch.Tensor) -> None:
        super().__init__()
        self.nodes = [NetworkTensor("", NETWORK_INPUT, (), x.numpy())]
        self.running: list[str] = []
        self._places = {id(x): 0}
        self._alive = [x]  # or an id would come back as another tensor's

    def enter(self, title: str, *_: Any) -> None:
        """Before a module's own forward; a hook must return None."""
        self.running.append(title)

    def leave(self, *_: Any) -> None:
        """After it."""
        self.running.pop()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        given = [one for part in args for one in (part if isinstance(part, (tuple, list)) else (part,))]
        taken = [self._places[id(one)] for one in given if isinstance(one, torch.Tensor) and id(one) in self._places]
        operator = func.overloadpacket.__name__.strip("_")
        several = isinstance(result, (tuple, list))
        made = (result if operator in SPLITTING else result[:1]) if several else (result,)
        for one in made:
            if not taken or not isinstance(one, torch.Tensor) or not one.ndim:
                continue
            self._alive.append(one)
            if not one.is_floating_point():
                self._places[id(one)] = taken[0]  # a mask of it, or whole numbers: what is made of these comes from it
            else:
                self._places[id(one)] = len(self.nodes)
                layer = f"{self.running[-1]} ({operator})" if self.running[-1].endswith("forward") else self.running[-1]
                self.nodes.append(NetworkTensor(layer, operator, tuple(taken), one.detach().float().numpy().copy()))
        return result


@contextmanager
def _followed(module: nn.Module, recorder: _Recorder) -> Iterator[None]:
    """Hooks that tell the recorder which module runs."""
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
