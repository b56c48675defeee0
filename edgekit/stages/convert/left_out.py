"""What is not among the variants, and why: left out because it failed, or not offered by its target."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeGuard, cast

from edgekit.core.errors import ConversionError
from edgekit.core.schema.conversion import ConvertedVariant, Named, NotOffered
from edgekit.core.schema.variants import LeftOut
from edgekit.stages.convert.config import Config
from edgekit.stages.convert.plan import Network, variant_name
from edgekit.targets.error_causes import Failure

NAMES = ("name", "model", "precision", "target")
"""What of a row is the same whenever it is made: a reason may hold a time, a folder, a converter's last words."""


def row(model: str, target: str, precision: str, failure: Failure) -> LeftOut:
    """A variant that came to nothing: kind, operator, layer, place, cause and advice, and all of it in `reason`."""
    return cast("LeftOut", {**_names(model, target, precision), **failure.row()})


def is_made(record: ConvertedVariant | LeftOut) -> TypeGuard[ConvertedVariant]:
    """Whether it became a file."""
    return "files" in record


def is_lost(record: ConvertedVariant | LeftOut) -> TypeGuard[LeftOut]:
    """Whether it came to nothing."""
    return not is_made(record)


def not_offered(network: Network, config: Config) -> Iterator[NotOffered]:
    """What the config asks for and the target does not have, a row each."""
    for target in config.targets:
        for precision in config.precisions:
            if reason := network.not_offered(target, precision):
                yield {**_names(network.name, target, precision), "reason": reason}


def without_reasons(rows: Iterable[LeftOut | NotOffered]) -> list[Named]:
    """The rows without their reasons."""
    return [_names(row["model"], row["target"], row["precision"]) for row in rows]


def describe(row: LeftOut | NotOffered) -> str:
    """The failure of one variant in one line."""
    return f"{row['name']} left out: {row['reason']}"


def refuse_any(rows: Sequence[LeftOut]) -> None:
    """ConversionError for the first of what `convert.strict` does not let go."""
    if rows:
        raise ConversionError(
            f"convert: {describe(rows[0])}; convert.strict is true: set it to false, and the run goes on without it"
        )


def empty_targets(
    config: Config, made: Iterable[ConvertedVariant], lost: Sequence[LeftOut | NotOffered]
) -> dict[str, str]:
    """Find the targets that end without any variant, and why.

    Raises
    ------
    ConversionError
        There is no variant at all, or the config names the target.
    """
    filled = dict.fromkeys(row["target"] for row in made)
    empty: dict[str, str] = {
        target: _first(target, [row for row in lost if row["target"] == target])
        for target in config.targets
        if target not in filled
    }
    if empty and (config.targets_named or not filled):
        instead = f"; {', '.join(filled)} can be made: take {', '.join(empty)} out of targets" if filled else ""
        raise ConversionError(f"convert: no variant for {', '.join(empty)}: {'; '.join(empty.values())}{instead}")
    return empty


def _first(target: str, rows: Sequence[LeftOut | NotOffered]) -> str:
    more = f" (and {len(rows) - 1} more of {target})" if len(rows) > 1 else ""
    return f"{describe(rows[0])}{more}"


def _names(model: str, target: str, precision: str) -> Named:
    name = variant_name(model, precision, target)
    return {"name": name, "model": model, "precision": precision, "target": target}
