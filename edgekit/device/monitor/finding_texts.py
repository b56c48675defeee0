"""The monitor's findings in words."""

from __future__ import annotations

INPUTS = {
    "brightness": ("darker", "brighter"),
    "contrast": ("flatter", "richer in contrast"),
    "sharpness": ("less sharp", "sharper"),
    "noise": ("less noisy", "noisier"),
    "clipped": ("less clipped", "more clipped"),
    "red": ("less red", "redder"),
    "green": ("less green", "greener"),
    "blue": ("less blue", "bluer"),
    "loudness_db": ("quieter", "louder"),
    "peak": ("lower in their peaks", "higher in their peaks"),
    "centroid_hz": ("duller in sound", "brighter in sound"),
    "zero_crossings": ("lower in frequency", "higher in frequency"),
    "silence": ("less often silent", "more often silent"),
    "clipping": ("less clipped", "more clipped"),
    "length": ("shorter", "longer"),
    "unknown": ("made of fewer unknown tokens", "made of more unknown tokens"),
    "missing": ("more complete", "missing more columns"),
}
OUTPUTS = {
    "confidence": ("answers are less sure", "answers are surer"),
    "margin": ("answers are less distinct", "answers are more distinct"),
    "entropy": ("answers are less spread over the classes", "answers are more spread over the classes"),
    "score": ("samples are more usual", "samples are less usual"),
    "count": ("less is found", "more is found"),
}


def describe_statistic(name: str, has_moved: bool, is_more: bool, here: float, there: tuple[float, ...]) -> str:
    """Describe how a statistic differs from validation: its mean if `has_moved` is set, otherwise its spread.

    `here` is its mean in the window, and `there` has the bounds of the middle half of the reference.
    """
    kind, _, column = name.partition(":")
    if not has_moved:
        change = f"{name} varies {'more' if is_more else 'less'}"
    elif name in INPUTS:
        change = f"inputs are {INPUTS[name][is_more]}"
    elif name in OUTPUTS:
        change = OUTPUTS[name][is_more]
    elif kind == "mean":
        change = f"column {column} is {'higher' if is_more else 'lower'}"
    elif kind == "spread":
        change = f"column {column} moves {'more' if is_more else 'less'}"
    else:
        change = f"{name} is {'higher' if is_more else 'lower'}"
    return f"{change} than in validation: {name} {here:.3g} here, {there[0]:.3g} to {there[1]:.3g} there (middle half)"


def describe_class(label: str, here: float, there: float) -> str:
    """Describe a class that is answered more or less often than in validation."""
    how = "more" if here > there else "less"
    return f"{label} is answered {how} often than in validation: {here:.1%} here, {there:.1%} there"
