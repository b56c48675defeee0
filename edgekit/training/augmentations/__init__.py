"""Augmentations other than shifts and mirroring. Each is a module here, and the module's name is its `kind`.

Such a module defines:

- `Options`, a subclass of `AugmentationOptions`
- `KINDS` and `TASKS`, the kinds of samples and the tasks that it supports
- `MIXES`, whether it mixes samples with one another
- `apply(samples, options, random)`, which returns new samples of the same shape and type, and a `Mix`, or None if it
  does not mix

This package does not import NumPy itself, so that configs without augmentations can be checked without it.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import Field

from edgekit.core.config import StrictModel, suggest, validate
from edgekit.core.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np

    from edgekit.data import Data

NAMES = tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))
FIELD = "augmentations"
PLURALS = {"image": "images", "window": "windows", "vector": "vectors", "audio": "sounds", "text": "texts"}


class AugmentationOptions(StrictModel):
    """Options of every augmentation. The `Options` of a module narrow `kind` to the name of the module."""

    kind: str = Field(description="name of the augmentation")
    probability: float = Field(1.0, ge=0, le=1, description="probability that a sample is changed")


@dataclass(frozen=True, eq=False)
class Mix:
    """How the n samples of a batch were mixed with one another."""

    partners: np.ndarray
    """Index in the batch of the sample that was mixed into each sample, (n,) int64."""
    own_shares: np.ndarray
    """Share of each mixed sample that is the original one, (n,) floats; 1 if nothing was mixed in."""


ApplyFunction = Callable[["np.ndarray", Any, "np.random.Generator"], tuple["np.ndarray", Mix | None]]


def parse(section: Any, where: str = FIELD) -> AugmentationOptions:
    """Check one entry of `augmentations`, for example `{"kind": "cutmix", "alpha": 1.0}`, and return its options.

    Raises ConfigError if the entry is wrong, and suggests the name that was probably meant. `where` is the entry's
    place in the config, for messages.
    """
    if not isinstance(section, dict) or not isinstance(section.get("kind"), str):
        raise ConfigError(f"{where}: got {section!r}; it needs `kind:` with one of {', '.join(NAMES)}")
    if section["kind"] not in NAMES:
        raise ConfigError(f"{where}.kind: got {section['kind']!r}; {suggest(section['kind'], NAMES)}")
    options: AugmentationOptions = validate(_module(section["kind"]).Options, section, where)
    return options


def parse_all(sections: Sequence[Any], where: str = FIELD) -> list[AugmentationOptions]:
    """Check all entries and return their options in order. Raises ConfigError for the first entry that is wrong."""
    return [parse(section, f"{where}.{index}") for index, section in enumerate(sections)]


def active(sections: Sequence[Any], data: Data, where: str = FIELD) -> list[AugmentationOptions]:
    """Return the options of those augmentations whose probability is above zero.

    Raises ConfigError if an augmentation does not support the samples or the task of `data`.
    """
    parsed = parse_all(sections, where)
    for options in parsed:
        module = _module(options.kind)
        if data.kind not in module.KINDS:
            raise ConfigError(
                f"{where}: got {options.kind}, but the samples are {PLURALS.get(data.kind, data.kind)}; it supports "
                f"only {' and '.join(PLURALS[kind] for kind in module.KINDS)}; leave it out"
            )
        if data.task not in module.TASKS:
            raise ConfigError(
                f"{where}: got {options.kind}, but task is {data.task}: the labels would not fit the changed samples; "
                f"it supports {', '.join(module.TASKS)}; leave it out"
            )
    return [options for options in parsed if options.probability > 0]


def function(options: AugmentationOptions) -> ApplyFunction:
    """Return the function `(samples, options, random) -> (samples, mix)` of an augmentation."""
    apply: ApplyFunction = _module(options.kind).apply
    return apply


def mixes_samples(options: AugmentationOptions) -> bool:
    """Return whether an augmentation mixes samples, which makes their labels soft."""
    return bool(_module(options.kind).MIXES)


def _module(name: str) -> Any:
    return importlib.import_module(f"{__name__}.{name}")
