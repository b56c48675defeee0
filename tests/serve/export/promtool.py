"""`promtool test rules` on generated files: series go in, the set of alerts that fire must come out."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

UP = 'up{job="edgekit", instance="one"}'
FIRING = 'count by (alertname, long) (ALERTS{alertstate="firing"})'
PROMTOOL_S = 120


@dataclass(frozen=True)
class Case:
    """`fires` are alerts as `name`, or `name long` for a budget; all others must be silent at that minute.

    `every` is how often rules are evaluated; empty: at the end alone, which is quick but knows no `for`. The others
    read no recording rules, and are not given them, which is quick too.
    """

    name: str
    fires: tuple[str, ...]
    minutes: int
    series: Mapping[str, str]
    every: str = "1m"

    def group(self) -> dict[str, Any]:
        """As promtool reads it."""
        series = {UP: f"1x{self.minutes}", **self.series}
        return {
            "name": self.name,
            "interval": "1m",
            "input_series": [{"series": name, "values": values} for name, values in series.items()],
            "promql_expr_test": [
                {
                    "expr": f"{FIRING} # {self.name}",  # what promtool repeats where it fails
                    "eval_time": f"{self.minutes}m",
                    "exp_samples": [{"labels": _labels(each), "value": 1} for each in self.fires],
                }
            ],
        }


def counter(*parts: tuple[int, float]) -> str:
    """A counter from 0 on: (minutes, growth a minute), one part after the other."""
    words, value = ["0"], 0.0
    for minutes, growth in parts:
        words.append(f"{value + growth:g}+{growth:g}x{minutes - 1}")
        value += minutes * growth
    return " ".join(words)


def gauge(*parts: tuple[int, float]) -> str:
    """A gauge: (minutes, value), one part after the other, and the last value once more."""
    return " ".join([*(f"{value:g}x{minutes - 1}" for minutes, value in parts), f"{parts[-1][1]:g}"])


def write(folder: Path, cases: Iterable[Case], rules: Path) -> list[Path]:
    """Test files, one for each interval of evaluation; `rules` is the exported folder."""
    by_interval: dict[str, list[Case]] = {}
    for case in cases:
        by_interval.setdefault(case.every or f"{case.minutes}m", []).append(case)
    found = []
    for interval, some in by_interval.items():
        files = [*([] if some[0].every else ["recording.yml"]), "alerts.yml"]
        path = folder / f"every_{interval}.test.yml"
        content = {
            "rule_files": [str(rules / name) for name in files],
            "evaluation_interval": interval,
            "group_eval_order": ["edgekit-recording", "edgekit-alerts"],
            "tests": [case.group() for case in some],
        }
        path.write_text(json.dumps(content))
        found.append(path)
    return found


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    """`promtool` with these arguments."""
    return subprocess.run(
        ["promtool", *map(str, arguments)], capture_output=True, text=True, timeout=PROMTOOL_S, check=False
    )


def failed(folder: Path, cases: Sequence[Case], rules: Path) -> dict[str, str]:
    """The cases that did not come out so, with what promtool says of each."""
    done = run("test", "rules", *write(folder, cases, rules))
    said = done.stdout + done.stderr
    parts = re.split(r'^ *expr: ".* # (.*?)", time: ', said, flags=re.MULTILINE)[1:]
    found = dict(zip(parts[::2], parts[1::2]))
    assert (done.returncode == 0) is (not found), said
    return found


def _labels(alert: str) -> str:
    name, _, long = alert.partition(" ")
    return f'{{alertname="{name}"{f", long={json.dumps(long)}" if long else ""}}}'
