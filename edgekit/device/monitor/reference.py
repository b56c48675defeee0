"""What the samples of validation looked like: written into a bundle, and what the field is held against."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from edgekit.device.monitor import inputs, outputs
from edgekit.runner import bounded_json
from edgekit.runner.errors import BundleError

if TYPE_CHECKING:
    from edgekit.runner.bundle.manifest import Manifest

FORMAT = 1
MEMBER = "reference.json"
QUANTILES = 129
CHUNK = 64
COUNT_LIMIT = 2**53
"""No count reaches it, and up to it floats are exact."""


class Reference(NamedTuple):
    """`quantiles` (statistics, 129), ascending, of `samples` samples; `classes`: how often each label was answered."""

    samples: int
    names: list[str]
    quantiles: np.ndarray
    classes: dict[str, int] | None
    unknown: int | None = None

    @property
    def digest(self) -> int:
        """What a sketch names it by: ranks in one reference say nothing of another."""
        return zlib.crc32(self.quantiles.astype("<f8").tobytes() + repr((self.samples, self.classes)).encode())

    def ranks(self, values: np.ndarray) -> np.ndarray:
        """Values (n, statistics) as their ranks in the reference, between 0 and 1; of equals the middle one."""
        steps, columns = QUANTILES - 1, np.arange(values.shape[1])
        room = 2e-6 * np.abs(values) + 1e-9  # numbers are kept to six digits
        low, high = np.empty(values.shape, np.intp), np.empty(values.shape, np.intp)
        for column, known in enumerate(self.quantiles):
            x, near = values[:, column], room[:, column]
            low[:, column], high[:, column] = known.searchsorted(x - near), known.searchsorted(x + near, "right")
        above, below = np.minimum(low, steps), np.maximum(low - 1, 0)
        begin = self.quantiles[columns, below]
        gap = self.quantiles[columns, above] - begin
        between = below + (values - begin) / np.where(gap > 0, gap, 1)
        place = np.where(high > low, (low + high - 1) / 2, between)
        rank, end = (place / steps * (self.samples - 1) + 1) / (self.samples + 1), 0.5 / (self.samples + 1)
        found: np.ndarray = np.where(high == 0, end, np.where(low > steps, 1 - end, rank))
        return found


def build_reference(
    manifest: Manifest, raws: np.ndarray, given: np.ndarray, members: Mapping[str, bytes] | None = None
) -> dict[str, Any]:
    """The reference of raw samples (n, *raw) and of the outputs (n, …) that this variant gives for them, as JSON.

    `members` hold the vocabulary of a text.
    """
    unknown = unknown_id(manifest, members or {})
    of_raw, of_output = inputs.make_statistics(manifest.raw, unknown), outputs.make_statistics(manifest)
    thin = inputs.make_row_selector(manifest.raw)
    labels = outputs.class_labels(manifest)
    rows, classes = [], np.zeros(len(labels), np.int64)
    for first in range(0, len(raws), CHUNK):
        x, y = raws[first : first + CHUNK], given[first : first + CHUNK]
        found = of_output(x, y, ())
        rows.append(np.concatenate([of_raw(np.stack([thin(each) for each in x])), found.values], axis=1))
        if found.classes is not None:
            classes += found.classes.sum(axis=0)
    every = np.quantile(np.concatenate(rows), np.linspace(0, 1, QUANTILES), axis=0)
    named = zip(all_statistic_names(manifest), every.T.tolist())
    made: dict[str, Any] = {
        "format": FORMAT,
        "samples": len(raws),
        "statistics": {name: {"quantiles": [float(f"{each:.6g}") for each in column]} for name, column in named},
    }
    if labels:
        made["classes"] = dict(zip(labels, classes.tolist()))
    if unknown is not None:
        made["unknown"] = unknown
    return made


def all_statistic_names(manifest: Manifest) -> list[str]:
    """Of all statistics of a bundle, of its inputs and then of its outputs."""
    return [*inputs.statistic_names(manifest.raw), *outputs.statistic_names(manifest)]


def encode(reference: Mapping[str, Any]) -> bytes:
    """The bundle's member."""
    return json.dumps(reference, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"


def read_reference(data: bytes, manifest: Manifest) -> Reference:
    """A bundle's member; BundleError unless it is a reference of this manifest's statistics."""
    try:
        values = bounded_json.loads(data)
    except ValueError as error:
        raise BundleError(f"{MEMBER}: not JSON ({error})") from None
    return parse_reference(values, manifest)


def parse_reference(values: Any, manifest: Manifest) -> Reference:
    """The same of what stands in it."""
    try:
        samples, wanted = values["samples"], all_statistic_names(manifest)
        rows = [values["statistics"][name]["quantiles"] for name in wanted]
        quantiles = np.array(rows, np.float64).reshape(len(wanted), QUANTILES)
        classes = values.get("classes")
        counts = None if classes is None else {str(name): int(classes[name]) for name in outputs.class_labels(manifest)}
        fits = values["format"] == FORMAT and isinstance(samples, int) and 0 < samples < COUNT_LIMIT
        sorted_ = bool(np.isfinite(quantiles).all() and (np.diff(quantiles) >= 0).all())
        counted = counts is None or all(0 <= each < COUNT_LIMIT for each in counts.values())
        unknown = values.get("unknown")
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise BundleError(f"{MEMBER}: no reference of this model ({type(error).__name__}: {error})") from None
    if not (fits and sorted_ and counted and (counts is not None) == bool(outputs.class_labels(manifest))):
        raise BundleError(
            f"{MEMBER}: got no reference of format {FORMAT} with ascending quantiles; make the bundle again"
        )
    return Reference(samples, wanted, quantiles, counts, unknown if isinstance(unknown, int) else None)


def unknown_id(manifest: Manifest, members: Mapping[str, bytes]) -> int | None:
    """The token id for what a text's vocabulary lacks; None where it has none."""
    step = next((each for each in manifest.raw.steps if each["step"] == "tokenize"), None)
    if step is None or step["vocabulary"] not in members:
        return None
    model = json.loads(members[step["vocabulary"]])["model"]
    found = model.get("vocab", {}).get(model.get("unk_token"))
    return found if isinstance(found, int) else None
