"""The page of `benchmarks.network_rows`: what it found, as tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.networks import SMALL_DEVICES, SPECTRA, WINDOWS, spec_of
from edgekit.core.config import TARGETS

ROOT = Path(__file__).parent.parent
HOME = ROOT / "build" / "networks"
PAGE = ROOT / "docs" / "results" / "networks.md"
PRECISIONS = ("fp32", "int8")
SHOWN = (("resnet8", "ds_cnn", *SMALL_DEVICES), tuple(WINDOWS), tuple(SPECTRA))
"""Networks by what they take; each group is compared with its first."""
GROUPS = (
    ("Pictures of 32×32×3", "ResNet-8"),
    ("Windows of 128 moments and 6 channels", "Conv1d"),
    ("Spectra of 98 frames and 40 mels", "DS-CNN"),
)
HEAD = """# What each reference network costs

`python -m benchmarks.network_rows` makes the files, times them and writes the tables of this page.
[Your own network](../how-to/your-own-network.md#reference-networks) lists the builders.
Each network has its builder's own keywords, which are small: the papers' networks are for pictures of 224×224.
RepVGG's branches are [merged](../how-to/your-own-network.md#branches-that-only-training-needs), as on every device.
MCUNet-like has blocks set by hand from MCUNet's space; it is none of the networks that were found there by search.
Weights are random where bytes and times are concerned, with biases and norms as after a training.
"""
BY_HAND = "## What stands out"
"""The heading of what a person wrote."""
CALLED = {
    "resnet8": "ResNet-8",
    "ds_cnn": "DS-CNN",
    "mobilenet_v3_small": "MobileNetV3-Small 0.5",
    "mobilenet_v4_small": "MobileNetV4-Conv-Small 0.35",
    "efficientnet_lite0": "EfficientNet-Lite0 0.25",
    "mcunet": "MCUNet-like",
    "repvgg": "RepVGG 0.25, merged",
    "conv1d": "Conv1d",
    "tc_resnet": "TC-ResNet8",
    "ds_cnn_sounds": "DS-CNN",
    "bc_resnet": "BC-ResNet-1",
}


def write() -> None:
    """Write the page of what lies in build/networks, and say what is missing there. A person's words stay below it."""
    times = {target: found for target in TARGETS if (found := _read(f"time-{target}"))}
    _, heading, words = PAGE.read_text().partition(BY_HAND)
    PAGE.write_text(text(times) + (f"\n{heading}{words}" if heading else ""))


def text(times: dict[str, dict[str, Any]]) -> str:
    """The page; `times` by target as `network_rows.time` writes them."""
    lines = [HEAD.rstrip(), *_taught(), ""]
    for (title, first), group in zip(GROUPS, SHOWN, strict=True):
        lines += [f"## {title}", "", *_costs(group, times), ""]
        lines += [*_ratios(group, first, times), ""] if times else []
    if missing := [target for target in TARGETS if target not in times]:
        lines += [f"Not timed yet: {', '.join(missing)}.", ""]
    if not times:
        return "\n".join(lines)
    some = next(iter(times.values()))
    machine = some["machine"]
    lines += [
        "## Conditions",
        "",
        f"{machine['cpu']}, {machine['cores']} cores, {machine['system']}, Python {machine['python']}.",
        f"{some['rounds']} rounds of {some['calls']} calls, batch 1, one thread, all files of a target interleaved.",
        "",
    ]
    return "\n".join(lines)


def _taught() -> list[str]:
    """How those were trained that were."""
    rows = [row for group in SHOWN for network in group if (row := _read(f"train-{network}"))]
    if not rows:
        return ["No accuracy stands here: none of them was trained for this page."]
    row = rows[0]
    return [
        f"Top-1 is of the {row['test_samples']:,} test pictures of CIFAR-10, after {row['epochs']} epochs of "
        f"{row['train_samples']:,} pictures, alike for all.",
        "That is what is learned in a hurry. It says little about what a network can learn.",
    ]


def _costs(group: tuple[str, ...], times: dict[str, dict[str, Any]]) -> list[str]:
    """Parameters, multiply-adds, bytes in int8 and, where it was trained, accuracy."""
    trained = {network: found for network in group if (found := _read(f"train-{network}"))}
    heads = ["network", "parameters", "multiply-adds", *(f"{target} int8, bytes" for target in times)]
    heads += ["top-1"] if trained else []
    lines = [_row(heads), "|---" + "|--:" * (len(heads) - 1) + "|"]
    for network in group:
        parameters, macs = _cost(network)
        bytes_ = [f"{found['rows'][f'{network} int8']['bytes']:,}" for found in times.values()]
        cells = [CALLED[network], f"{parameters:,}", f"{macs / 1e6:.1f} M", *bytes_]
        if trained:
            found = trained.get(network)
            cells.append(f"{100 * found['test_accuracy']:.1f} %" if found else "not trained")
        lines.append(_row(cells))
    return lines


def _ratios(group: tuple[str, ...], first: str, times: dict[str, dict[str, Any]]) -> list[str]:
    """p50 over that of the group's first network in the same precision, with the interval."""
    columns = [(target, precision) for target in times for precision in PRECISIONS]
    lines = [_row([f"p50 over {first}'s", *(f"{target} {precision}" for target, precision in columns)])]
    lines += ["|---" + "|--:" * len(columns) + "|"]
    for network in group:
        cells = [CALLED[network]]
        for target, precision in columns:
            found = times[target]["rows"][f"{network} {precision}"]
            ratio = found["ratio"]
            one = f"{1e3 * found['p50']['p50_ms']:.0f} µs"
            several = f"{ratio['ratio']:.2f} ({ratio['low']:.2f}–{ratio['high']:.2f})"
            cells.append(one if network == group[0] else several)
        lines.append(_row(cells))
    return lines


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cost(network: str) -> tuple[int, int]:
    """Parameters and multiply-adds of what a device gets."""
    from edgekit.models import store
    from edgekit.models.cost import cost
    from edgekit.models.reparameterize import reparameterized

    spec = spec_of(network)
    found = cost(reparameterized(store.build(spec)), spec.input_shape)
    return found.parameters, found.macs


def _read(name: str) -> dict[str, Any] | None:
    path = HOME / f"{name}.json"
    return json.loads(path.read_text()) if path.is_file() else None
