"""What sources of pictures with boxes or masks share: a limit, and what is skipped, and the pools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

from edgekit.core.errors import DataError
from edgekit.data import image_cache
from edgekit.data.types import Pools

SPLITS = ("train", "validation", "test")
_SHOWN = 5


class _InSplit(Protocol):
    @property
    def split(self) -> str: ...


Listed = TypeVar("Listed", bound=_InSplit)


def limited(pictures: Sequence[Listed], limit: int | None, seed: int) -> list[Listed]:
    """At most `limit` pictures of train, and of the other splits in proportion, one at least."""
    train = sum(each.split == "train" for each in pictures)
    if limit is None or limit >= train:
        return list(pictures)
    share, random = limit / train, np.random.default_rng(seed)
    kept: list[Listed] = []
    for split in SPLITS:
        mine = [each for each in pictures if each.split == split]
        chosen = random.permutation(len(mine))[: max(1, round(share * len(mine)))]
        kept += [mine[place] for place in sorted(chosen)]
    return kept


def pools(origin: str, found: image_cache.CachedImages, steps: Sequence[dict[str, Any]]) -> Pools:
    """What was decoded, as a source gives it; `steps` are its input path. DataError without a train split."""
    if "train" not in found.splits:
        raise DataError(f"{origin}: no picture in train; name a list or a folder train")
    return Pools(
        found.splits["train"],
        found.splits.get("validation"),
        found.splits.get("test"),
        found.classes,
        "image",
        found.notes,
        input_path=tuple(steps),
    )


def refuse_many(bad: Sequence[str], total: int, what: str, most: float) -> None:
    """DataError where more than the share `most` is bad."""
    if len(bad) > most * total:
        raise DataError(
            f"{len(bad)} of {total} {what}, more than data.max_bad_fraction {most}; repair them or raise it; the "
            f"first: {'; '.join(bad[:_SHOWN])}"
        )


def skipped(bad: Sequence[str], what: str) -> list[str]:
    """A note, where anything was skipped."""
    more = f"; and {len(bad) - _SHOWN} more" if len(bad) > _SHOWN else ""
    return [f"skipped {len(bad)} {what}: {'; '.join(bad[:_SHOWN])}{more}"] if bad else []
