"""Which of a model's inputs and outputs are states: tensors that it is fed back from one sample to the next."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edgekit.core.errors import ConfigError, ModelError
from edgekit.runner.bundle.manifest import StateSpec
from edgekit.runner.bundle.manifest_rules import STATE_DTYPES

NEW = "new_"
"""In front of a state's name, it makes that of its output, as `edgekit.targets.step` writes it."""
Facts = dict[str, Any]
Pairs = Sequence[tuple[str, str]]


def parse(texts: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Pairs of an input and an output, out of `--state INPUT=OUTPUT`."""
    found = []
    for text in texts:
        before, _, after = text.partition("=")
        if not before or not after:
            raise ConfigError(f"--state: got {text!r}; write INPUT=OUTPUT, the names of two tensors of the model")
        found.append((before, after))
    return tuple(found)


def take(path: Path, facts: Facts, asked: Pairs) -> tuple[StateSpec, ...]:
    """Take the states out of a model's `inputs` and `outputs`: those asked for, else every NAME that has a new_NAME."""
    inputs, outputs = ({each["name"]: each for each in facts[what]} for what in ("inputs", "outputs"))
    pairs = list(asked) or [(name, f"{NEW}{name}") for name in inputs if f"{NEW}{name}" in outputs]
    states = tuple(_state(path, *pair, inputs, outputs) for pair in pairs)
    for what, taken in (("inputs", {each.input for each in states}), ("outputs", {each.output for each in states})):
        facts[what] = [each for each in facts[what] if each["name"] not in taken]
    return states


def _state(path: Path, before: str, after: str, inputs: dict[str, Facts], outputs: dict[str, Facts]) -> StateSpec:
    for name, known, what in ((before, inputs, "input"), (after, outputs, "output")):
        if name not in known:
            raise ConfigError(f"--state {before}={after}: the model has no {what} {name}; it has {', '.join(known)}")
    facts, behind = inputs[before], outputs[after]
    shape, dtype = facts["shape"], facts["dtype"]
    if (shape, dtype) != (behind["shape"], behind["dtype"]):
        raise ModelError(
            f"{path}: the state {before} is {dtype}{shape}, and {after} {behind['dtype']}{behind['shape']}; "
            "what is fed back must be what is taken"
        )
    if not shape or min(shape) < 1:
        raise ModelError(f"{path}: the state {before} has an open shape, {shape}; export the model with a fixed one")
    if dtype not in STATE_DTYPES:
        raise ModelError(
            f"{path}: the state {before} is {dtype}; states are {', '.join(STATE_DTYPES)}: leave them in float"
        )
    return StateSpec(before, tuple(shape), dtype, before, after)
