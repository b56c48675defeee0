"""The reference: statistics of the validation samples, stored in a bundle for comparison with a device's samples."""

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
"""No real count reaches this number, and floats are exact for all whole numbers below it."""


class Reference(NamedTuple):
    """Statistics of the validation samples, whose number is `samples`.

    `quantiles` (statistics, 129) ascend for each statistic. `classes` counts how often each label was predicted.
    `unknown` is the token ID of words that the vocabulary lacks.
    """

    samples: int
    names: list[str]
    quantiles: np.ndarray
    classes: dict[str, int] | None
    unknown: int | None = None

    @property
    def digest(self) -> int:
        """A checksum to identify the reference in sketches, because ranks in one reference mean nothing in another."""
        return zlib.crc32(self.quantiles.astype("<f8").tobytes() + repr((self.samples, self.classes)).encode())

    def ranks(self, values: np.ndarray) -> np.ndarray:
        """Return the ranks of values (n, statistics) in the reference, between 0 and 1.

        A value that occurs several times in the reference gets the middle of its ranks.
        """
        steps, columns = QUANTILES - 1, np.arange(values.shape[1])
        tolerance = 2e-6 * np.abs(values) + 1e-9  # numbers are stored with six digits
        low, high = np.empty(values.shape, np.intp), np.empty(values.shape, np.intp)
        for column, quantiles in enumerate(self.quantiles):
            x, near = values[:, column], tolerance[:, column]
            low[:, column], high[:, column] = (
                quantiles.searchsorted(x - near),
                quantiles.searchsorted(x + near, "right"),
            )
        above, below = np.minimum(low, steps), np.maximum(low - 1, 0)
        begin = self.quantiles[columns, below]
        gap = self.quantiles[columns, above] - begin
        between = below + (values - begin) / np.where(gap > 0, gap, 1)
        position = np.where(high > low, (low + high - 1) / 2, between)
        rank, end = (position / steps * (self.samples - 1) + 1) / (self.samples + 1), 0.5 / (self.samples + 1)
        ranks: np.ndarray = np.where(high == 0, end, np.where(low > steps, 1 - end, rank))
        return ranks


def build_reference(
    manifest: Manifest, raws: np.ndarray, model_outputs: np.ndarray, members: Mapping[str, bytes] | None = None
) -> dict[str, Any]:
    """Build the reference, as JSON values, from raw samples (n, *raw) and the outputs (n, …) of this variant for them.

    `members` are the bundle's files, among them the vocabulary of a text model.
    """
    unknown = unknown_id(manifest, members or {})
    of_raw, of_output = inputs.make_statistics(manifest.raw, unknown), outputs.make_statistics(manifest)
    select_rows = inputs.make_row_selector(manifest.raw)
    labels = outputs.class_labels(manifest)
    rows, classes = [], np.zeros(len(labels), np.int64)
    for first in range(0, len(raws), CHUNK):
        x, y = raws[first : first + CHUNK], model_outputs[first : first + CHUNK]
        statistics = of_output(x, y, ())
        rows.append(np.concatenate([of_raw(np.stack([select_rows(each) for each in x])), statistics.values], axis=1))
        if statistics.classes is not None:
            classes += statistics.classes.sum(axis=0)
    quantiles = np.quantile(np.concatenate(rows), np.linspace(0, 1, QUANTILES), axis=0)
    columns = zip(all_statistic_names(manifest), quantiles.T.tolist())
    reference: dict[str, Any] = {
        "format": FORMAT,
        "samples": len(raws),
        "statistics": {name: {"quantiles": [float(f"{each:.6g}") for each in column]} for name, column in columns},
    }
    if labels:
        reference["classes"] = dict(zip(labels, classes.tolist()))
    if unknown is not None:
        reference["unknown"] = unknown
    return reference


def all_statistic_names(manifest: Manifest) -> list[str]:
    """Return the names of all statistics of a bundle: those of its inputs, then those of its outputs."""
    return [*inputs.statistic_names(manifest.raw), *outputs.statistic_names(manifest)]


def encode(reference: Mapping[str, Any]) -> bytes:
    """Return the bytes of a bundle's `reference.json`."""
    return json.dumps(reference, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"


def read_reference(data: bytes, manifest: Manifest) -> Reference:
    """Read a bundle's `reference.json`. Raises BundleError unless it is a reference for this manifest."""
    try:
        values = bounded_json.loads(data)
    except ValueError as error:
        raise BundleError(f"{MEMBER}: not JSON ({error})") from None
    return parse_reference(values, manifest)


def parse_reference(values: Any, manifest: Manifest) -> Reference:
    """Parse the contents of a bundle's `reference.json`."""
    try:
        samples, expected_names = values["samples"], all_statistic_names(manifest)
        rows = [values["statistics"][name]["quantiles"] for name in expected_names]
        quantiles = np.array(rows, np.float64).reshape(len(expected_names), QUANTILES)
        classes = values.get("classes")
        counts = None if classes is None else {str(name): int(classes[name]) for name in outputs.class_labels(manifest)}
        is_valid = values["format"] == FORMAT and isinstance(samples, int) and 0 < samples < COUNT_LIMIT
        is_sorted = bool(np.isfinite(quantiles).all() and (np.diff(quantiles) >= 0).all())
        has_valid_counts = counts is None or all(0 <= each < COUNT_LIMIT for each in counts.values())
        unknown = values.get("unknown")
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise BundleError(f"{MEMBER}: not a reference of this model ({type(error).__name__}: {error})") from None
    if not (
        is_valid and is_sorted and has_valid_counts and (counts is not None) == bool(outputs.class_labels(manifest))
    ):
        raise BundleError(
            f"{MEMBER}: not a reference of format {FORMAT} with ascending quantiles; make the bundle again"
        )
    return Reference(samples, expected_names, quantiles, counts, unknown if isinstance(unknown, int) else None)


def unknown_id(manifest: Manifest, members: Mapping[str, bytes]) -> int | None:
    """Return the token ID of words that the vocabulary lacks, or None if there is none."""
    step = next((each for each in manifest.raw.steps if each["step"] == "tokenize"), None)
    if step is None or step["vocabulary"] not in members:
        return None
    model = json.loads(members[step["vocabulary"]])["model"]
    token_id = model.get("vocab", {}).get(model.get("unk_token"))
    return token_id if isinstance(token_id, int) else None
