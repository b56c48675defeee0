"""What the rows of an ablation gave, their intervals, and the table of them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.ablation.recipes import ALONE, TODAY, Recipe
from benchmarks.training.__main__ import CONFIDENCE, wilson
from edgekit.core.hashing import write_json
from edgekit.core.tasks import accuracy_drop
from edgekit.runner.files import write_atomically

HEAD = ("recipe", "what differs", "epochs", "parameters", "validation", "test", "against", "pp (95 %)", "McNemar's p",
        "gap closed", "of its own gap", "teacher's test", "CPU minutes")  # fmt: skip


@dataclass(frozen=True)
class Result:
    """One trained row. `right` says of each test sample whether it was answered rightly, as hex of packed bits."""

    key: str
    name: str
    says: str
    epochs: int
    parameters: int
    validation: float
    right: str
    samples: int
    teacher: float | None
    cpu_s: float

    @property
    def answers(self) -> np.ndarray:
        """(n,) bool."""
        bits = np.unpackbits(np.frombuffer(bytes.fromhex(self.right), dtype=np.uint8))
        return bits[: self.samples].astype(bool)

    @property
    def test(self) -> float:
        """Accuracy on test, a fraction."""
        return float(self.answers.mean())

    def write(self, folder: Path) -> None:
        """Leave it as a whole file, or none."""
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / f"{self.key[:32]}.json", asdict(self))

    @classmethod
    def read(cls, folder: Path, key: str) -> Result | None:
        """What an earlier attempt left under this key."""
        try:
            found = cls(**json.loads((folder / f"{key[:32]}.json").read_text()))
            return found if found.key == key else None
        except (OSError, ValueError, TypeError):
            return None


def packed(right: np.ndarray) -> str:
    """The hex of `Result.right`."""
    return np.packbits(right.astype(bool)).tobytes().hex()


@dataclass(frozen=True)
class Difference:
    """Of two networks on the same samples, in points, with the ends of its interval and McNemar's exact p."""

    pp: float
    low_pp: float
    high_pp: float
    p: float


def difference(reference: np.ndarray, right: np.ndarray) -> Difference:
    """How much more often `right` (n,) bool is true. The interval is the score interval of Tango 1998, for pairs.

    p is of McNemar's exact test: of the samples on which the two differ, as many should change to either side.
    """
    lost, gained = int((reference & ~right).sum()), int((right & ~reference).sum())
    one_side = 1 - (1 - CONFIDENCE) / 2
    down = accuracy_drop.bounded(lost, gained, len(right), one_side)
    up = accuracy_drop.bounded(gained, lost, len(right), one_side)
    return Difference(up.drop_pp, -down.bound_pp, up.bound_pp, mcnemar(lost, gained))


def mcnemar(lost: int, gained: int) -> float:
    """Two-sided and exact (McNemar 1947): the probability of so uneven a change, or a more uneven one, by chance."""
    changed = lost + gained
    tail = sum(math.comb(changed, few) for few in range(min(lost, gained) + 1))
    return min(1.0, float(2 * tail / 2**changed))


def gap_closed(lone: float, taught: float, teacher: float | None) -> float | None:
    """Share of the way from the lone student to the teacher; None where the teacher is no better."""
    return (taught - lone) / (teacher - lone) if teacher is not None and teacher > lone else None


def write(found: Mapping[str, Result], rows: Sequence[Recipe], folder: Path, conditions: dict[str, Any]) -> str:
    """`ablation.json` and `ablation.md` in `folder`; the table's text."""
    table = [_row(row, found) for row in rows if row.name in found]
    write_json(folder / "ablation.json", {"conditions": conditions, "rows": table})
    lines = [" | ".join(HEAD), " | ".join(["---"] * len(HEAD)), *(" | ".join(_cells(row)) for row in table)]
    facts = [f"- {name}: {value}" for name, value in conditions.items()]
    text = "\n".join(["# Ablation", "", *facts, "", *(f"| {line} |" for line in lines), ""])
    write_atomically(folder / "ablation.md", text.encode())
    return text


def _row(row: Recipe, found: Mapping[str, Result]) -> dict[str, Any]:
    mine = found[row.name]
    reference = found.get(row.against)
    apart = difference(reference.answers, mine.answers) if reference and reference is not mine else None
    today, lone, own = found.get(TODAY), found.get(ALONE), found.get(row.alone)
    return {
        **asdict(mine),
        "test": mine.test,
        "test_interval": list(wilson(mine.test, mine.samples)),
        "against": row.against if apart else None,
        "difference": asdict(apart) if apart else None,
        "gap_closed": gap_closed(lone.test, mine.test, today.teacher) if today and lone and row.teachers else None,
        "own_gap_closed": gap_closed(own.test, mine.test, mine.teacher) if own and row.teachers else None,
    }


def _cells(row: dict[str, Any]) -> list[str]:
    low, high = row["test_interval"]
    apart = row["difference"]
    return [
        str(row["name"]),
        str(row["says"]),
        str(row["epochs"]),
        f"{row['parameters']:,}",
        f"{row['validation']:.2%}",
        f"{row['test']:.2%} ({low:.2%} to {high:.2%})",
        str(row["against"] or ""),
        f"{apart['pp']:+.2f} ({apart['low_pp']:+.2f} to {apart['high_pp']:+.2f})" if apart else "",
        f"{apart['p']:.2g}" if apart else "",
        *("" if row[name] is None else f"{row[name]:.0%}" for name in ("gap_closed", "own_gap_closed")),
        "" if row["teacher"] is None else f"{row['teacher']:.2%}",
        f"{row['cpu_s'] / 60:.1f}",
    ]
