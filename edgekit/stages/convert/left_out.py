"""What is not among the variants, and why: left out because it failed, or not offered by its target."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from edgekit.core.errors import ConversionError
from edgekit.stages.convert.config import Config
from edgekit.stages.convert.plan import Network, variant_name
from edgekit.targets.error_causes import Failure

Row = dict[str, Any]
NAMES = ("name", "model", "precision", "target")
"""What of a row is the same whenever it is made: a reason may hold a time, a folder, a converter's last words."""


def row(model: str, target: str, precision: str, failure: Failure) -> Row:
    """A variant that came to nothing: kind, operator, layer, place, cause and advice, and all of it in `reason`."""
    return {**_names(model, target, precision), **failure.row()}


def not_offered(network: Network, config: Config) -> Iterator[Row]:
    """What the config asks for and the target does not have, a row each."""
    for target in config.targets:
        for precision in config.precisions:
            if reason := network.not_offered(target, precision):
                yield {**_names(network.name, target, precision), "reason": reason}


def without_reasons(rows: Iterable[Row]) -> list[Row]:
    """The rows without their reasons."""
    return [{name: row[name] for name in NAMES} for row in rows]


def describe(row: Row) -> str:
    """The failure of one variant in one line."""
    return f"{row['name']} left out: {row['reason']}"


def refuse_any(rows: Sequence[Row]) -> None:
    """ConversionError for the first of what `convert.strict` does not let go."""
    if rows:
        raise ConversionError(
            f"convert: {describe(rows[0])}; convert.strict is true: set it to false, and the run goes on without it"
        )


def refuse_empty(tried: Iterable[str], made: Iterable[Row], lost: Sequence[Row]) -> None:
    """ConversionError where one of the targets that were tried ends with no variant at all."""
    filled = dict.fromkeys(row["target"] for row in made)
    empty = [target for target in dict.fromkeys(tried) if target not in filled]
    if not empty:
        return
    reasons = [_first(target, [row for row in lost if row["target"] == target]) for target in empty]
    instead = f"; {', '.join(filled)} can be made: take {', '.join(empty)} out of targets" if filled else ""
    raise ConversionError(f"convert: no variant for {', '.join(empty)}: {'; '.join(reasons)}{instead}")


def _first(target: str, rows: Sequence[Row]) -> str:
    more = f" (and {len(rows) - 1} more of {target})" if len(rows) > 1 else ""
    return f"{describe(rows[0])}{more}"


def _names(model: str, target: str, precision: str) -> Row:
    return dict(zip(NAMES, (variant_name(model, precision, target), model, precision, target), strict=True))
