"""A bundle's manifest: what it runs, on which input, how it is validated and where it came from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import index
from typing import Any

from edgekit.runner import input_path, input_vector, output_vector

FORMAT = 4


@dataclass(frozen=True)
class TensorSpec:
    """One of the model's own tensors: `shape` including a batch of 1, and `dtype` as the model stores it."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    layout: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(index(side) for side in self.shape))

    @property
    def answer(self) -> tuple[int, ...]:
        """The shape of an output for one sample. The channels of a picture come first."""
        sides = self.shape[1:]
        return (sides[2], *sides[:2]) if self.layout == "NHWC" else sides


def combined_input(inputs: Sequence[TensorSpec]) -> TensorSpec:
    """Return a model's only input, or its several inputs as one vector."""
    if len(inputs) == 1:
        return inputs[0]
    width = input_vector.width([each.shape[1:] for each in inputs])
    return TensorSpec("inputs", (1, width), "float32", "NC")


@dataclass(frozen=True)
class StateSpec:
    """A recurrent state that a model keeps between the samples of a stream.

    It starts as zeros, and then takes the value that the tensor `output` had after the previous sample. `input` and
    `output` are tensors of the model file, both of this `shape` and `dtype`.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    input: str
    output: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(index(side) for side in self.shape))


@dataclass(frozen=True)
class RawSpec:
    """A sample as the device sees it.

    `kind` is "image" (height, width, channels), "vector" (features,), "audio" (samples,), "window" (time, channels),
    "text" (tokens,), or "tensors" (width,), which are several tensors joined (`input_vector.py`).

    `dtype` is uint8, int8 or float32, or int32 for the token IDs of a text, which reach the model unchanged. Preprocess
    steps convert uint8 and int8 to float32, unless the model takes the same integers and all steps only change the
    geometry. In that case, the integers are quantized values and reach the model unchanged (`input_encoding.py`).

    `range` is [lowest, highest] for float samples, and [0, the highest ID] for token IDs. Audio is mono in [-1, 1] at
    `sample_rate_hz`. The channels of a window and the features of a vector may be named by `columns`; without names the
    key is not written. `input_path` lists the steps from a file to the sample (`input_path.py`); None stands for the
    steps of samples that did not come from files. If a sample consists of several tensors, `tensors` describes them in
    the model's order, as {"name": text, "shape": without a batch axis, "dtype": as in a file, "range": [lowest,
    highest] or None}; otherwise the key is not written.
    """

    kind: str
    shape: tuple[int, ...]
    dtype: str
    range: tuple[float, float] | None = None
    sample_rate_hz: int | None = None
    columns: tuple[str, ...] | None = None
    input_path: tuple[dict[str, Any], ...] | None = None
    tensors: tuple[dict[str, Any], ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(index(side) for side in self.shape))
        if self.input_path is None:
            steps = input_path.default_steps(self.kind, self.shape, self.dtype, self.columns)
            object.__setattr__(self, "input_path", tuple(steps))
        for name in ("range", "columns", "input_path", "tensors"):
            if isinstance(getattr(self, name), list):
                object.__setattr__(self, name, tuple(getattr(self, name)))

    @property
    def steps(self) -> tuple[dict[str, Any], ...]:
        """The input path."""
        return self.input_path or ()


@dataclass(frozen=True)
class Manifest:
    """Everything that a bundle declares. `members` is filled in by `bundle.write`.

    `golden` is {"inputs": member, "outputs": member, "atol": float, "top1": bool}: .npy arrays of raw samples (n,
    *raw.shape) and of the model's outputs for them (n, *output_shape). If `top1` is true, the most probable label must
    agree as well.

    `labels` names the classes of a classification, the labels of a multi-label task, or the values of a regression.
    `activation` is what the runner applies to the model's outputs: "softmax" or "sigmoid" to logits, or "none" if the
    outputs need no activation.

    The following keys are absent unless they apply. `threshold`: the score above which an anomaly
    detection calls a sample an anomaly. `boxes`: which boxes a detection returns (`runner/boxes.py`). `head`: how the
    outputs of a published detector are converted to those of the task (`runner/box_heads.py`). `keypoints`: {"names":
    texts, "skeleton": pairs of indices into them, between which lines are drawn}. `smoothing`: how the answers to a
    stream are smoothed (`smoothing_rules.py`). `states`: recurrent states, which are fed back from sample to sample;
    the golden samples are then one stream. `reference`: the member with the statistics of the validation
    (`device/monitor/reference.py`).

    `architectures` lists machines by the names of `uname -m`. An empty list means all.
    """

    name: str
    version: str
    target: str
    variant: str
    raw: RawSpec
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    preprocess: list[dict[str, Any]]
    labels: list[str]
    model_files: list[str]
    golden: dict[str, Any]
    budget: dict[str, Any] = field(default_factory=dict)
    verdict: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)
    requirements: list[str] = field(default_factory=list)
    members: dict[str, dict[str, Any]] = field(default_factory=dict)
    architectures: list[str] = field(default_factory=list)
    task: str = "classification"
    activation: str = "softmax"
    threshold: float | None = None
    boxes: dict[str, Any] | None = None
    head: dict[str, Any] | None = None
    keypoints: dict[str, Any] | None = None
    smoothing: dict[str, Any] | None = None
    states: tuple[StateSpec, ...] | None = None
    reference: str | None = None
    format: int = FORMAT

    @property
    def input(self) -> TensorSpec:
        """The model's only input besides its states. Several inputs are joined (`input_vector.py`)."""
        return combined_input(self.inputs)

    @property
    def output_shape(self) -> tuple[int, ...]:
        """The shape of the model's outputs for one sample, joined if there are several (`output_vector.py`).

        It is the shape after the conversion of a `head`.
        """
        shapes = [each.answer for each in self.outputs]
        if self.head is None:
            return output_vector.shape(shapes)
        from edgekit.runner.box_heads import converted_shape

        return converted_shape(self.head, shapes)
