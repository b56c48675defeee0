"""An answer in a few words and rows, as the page shows it."""

from __future__ import annotations

from collections import Counter
from typing import Any

MOST_ROWS = 6


def summary(prediction: Any) -> dict[str, Any]:
    """Return `headline` and `rows` of (label, value as text, share from 0 to 1 or None)."""
    rows = _rows(prediction)
    return {"headline": _headline(prediction)[:200], "rows": rows[:MOST_ROWS]}


def _headline(prediction: Any) -> str:
    if not hasattr(prediction, "boxes"):
        return str(prediction.lines()[0])
    counts = Counter(each.label for each in prediction.boxes)
    return ", ".join(f"{count} × {label}" for label, count in counts.items()) or "nothing"


def _rows(prediction: Any) -> list[tuple[str, str, float | None]]:
    if hasattr(prediction, "top"):
        return [_share(label, value) for label, value in prediction.top]
    if hasattr(prediction, "probabilities"):
        ranked = sorted(prediction.probabilities.items(), key=lambda pair: -pair[1])
        return [_share(label, value) for label, value in ranked[:MOST_ROWS]]
    if hasattr(prediction, "boxes"):
        return [_share(each.label, each.probability) for each in prediction.boxes[:MOST_ROWS]]
    if hasattr(prediction, "shares"):
        return [_share(label, value) for label, value in prediction.shares.items() if value]
    if hasattr(prediction, "values"):
        return [(label, f"{value:.4g}", None) for label, value in prediction.values.items()]
    if hasattr(prediction, "threshold"):
        text = f"{prediction.score:.4g} of {prediction.threshold:.4g}"
        return [("score", text, prediction.score / (2 * prediction.threshold) if prediction.threshold else None)]
    return []


def _share(label: str, value: float) -> tuple[str, str, float]:
    return label, f"{100 * value:.0f}%", round(float(value), 4)
