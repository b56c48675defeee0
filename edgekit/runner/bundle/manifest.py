"""A bundle's manifest: what it runs, on what input, how it proves itself and where it came from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import index
from typing import Any

from edgekit.runner import input_path, input_vector, output_vector

FORMAT = 4


@dataclass(frozen=True)
class TensorSpec:
    """One of the model's own tensors: `shape` with its batch of 1, `dtype` as the model stores it."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    layout: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(index(side) for side in self.shape))

    @property
    def answer(self) -> tuple[int, ...]:
        """Shape of what an output gives for one sample: the channels of a picture come in front."""
        sides = self.shape[1:]
        return (sides[2], *sides[:2]) if self.layout == "NHWC" else sides


def combined_input(inputs: Sequence[TensorSpec]) -> TensorSpec:
    """A model's only input, or its several ones as one vector."""
    if len(inputs) == 1:
        return inputs[0]
    width = input_vector.width([each.shape[1:] for each in inputs])
    return TensorSpec("inputs", (1, width), "float32", "NC")


@dataclass(frozen=True)
class StateSpec:
    """What a model remembers between the samples of one stream: zeros at first, then what `output` gave last time.

    `input` and `output` are tensors of the model file, both of this `shape` and `dtype`.
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
    """A sample as the device sees it: "image" (height, width, channels), "vector" (features,), "audio" (samples,),
    "window" (time, channels), or "tensors" (width,), which are several (`input_vector.py`).

    `dtype` is uint8, int8 or float32. The steps treat integers as numbers. If the model takes the same integers, and
    all steps before it only change geometry, they are quantized values and reach the model unchanged (`encode`). A
    "text" (tokens,) is int32, ids of a vocabulary, which reach the model as they are.
    `range` is [lowest, highest] of float samples, and of token ids [0, the highest there is]. Audio is mono in [-1, 1]
    at `sample_rate_hz`. The channels of a window and the features of a vector may have names, `columns`. Without any,
    the key is not written. `input_path` lists the steps from a file to the sample (`input_path.py`); None stands for
    those of samples that did not come out of files. `tensors` are those of a sample of several, in the model's order:
    {"name": text, "shape": without a batch, "dtype": as a file holds it, "range": [lowest, highest] or None}. Without
    any, the key is not written.
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
    """Everything a bundle says about itself. `members` is filled in by `bundle.write`.

    `golden` is {"inputs": member, "outputs": member, "atol": float, "top1": bool}: .npy arrays of raw samples
    (n, *raw.shape) and of what the model gave for them (n, *output_shape); `top1`: the first label must agree.
    `labels` name the classes of a classification, several labels at once, or the values of a regression. `activation`
    is what the runner applies to the model's outputs: "softmax" or "sigmoid" to logits, "none" where the model ends in
    it. `threshold` belongs to the task anomaly: the mean squared error of a reconstruction above which a sample is one;
    other manifests do not have the key. `boxes` belongs to the task detection: which boxes are answers, as
    `runner/boxes.py` has them. `smoothing` says how answers to a stream are smoothed over time (`smoothing_rules.py`);
    the key is absent where they are not. `states` are fed back from sample to sample of a stream, and then the golden
    vectors are one stream; no key where there are none. `reference` names the member that says what validation looked
    like (`device/monitor/reference.py`); no key where the bundle has none. `architectures` are machines as `uname -m`
    calls them; none means all.
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
    smoothing: dict[str, Any] | None = None
    states: tuple[StateSpec, ...] | None = None
    reference: str | None = None
    format: int = FORMAT

    @property
    def input(self) -> TensorSpec:
        """The model's only input besides its states; several are joined (`input_vector.py`)."""
        return combined_input(self.inputs)

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Shape of what the model gives for one sample: of its outputs joined (`output_vector.py`)."""
        return output_vector.shape([each.answer for each in self.outputs])
