"""`promtool test rules` on generated files: series go in, the set of alerts that fire must come out."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import requirements

UP = 'up{job="edgekit", instance="one"}'
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

    @property
    def alone(self) -> bool:
        """Whether it is about targets as such, so that no other case may have one."""
        return any(name.startswith("up{") for name in self.series)

    @property
    def interval(self) -> str:
        """Of the evaluation."""
        return self.every or f"{self.minutes}m"

    @property
    def files(self) -> list[str]:
        """The rules that it needs."""
        return ["alerts.yml"] if self.every else ["recording.yml", "alerts.yml"]

    def series_as(self, job: str) -> dict[str, str]:
        """Its series under another job."""
        return {name.replace('job="edgekit"', f'job="{job}"'): values for name, values in self.series.items()}

    def question(self, job: str = "") -> dict[str, Any]:
        """What promtool asks; the comment is what it repeats where the answer is another."""
        chosen = f'{{alertstate="firing"{f", job={json.dumps(job)}" if job else ""}}}'
        return {
            "expr": f"count by (alertname, long) (ALERTS{chosen}) # {self.name}",
            "eval_time": f"{self.minutes}m",
            "exp_samples": [{"labels": _labels(each), "value": 1} for each in self.fires],
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
    """Test files, one for each interval of evaluation; `rules` is the exported folder.

    Cases of one length share a group, each as a job of its own: rules are then evaluated once for all of them.
    """
    shared: dict[tuple[str, int, str], list[Case]] = {}
    for case in cases:
        shared.setdefault((case.interval, case.minutes, case.name if case.alone else ""), []).append(case)
    groups: dict[str, list[dict[str, Any]]] = {}
    files = {}
    for (interval, minutes, _), some in shared.items():
        groups.setdefault(interval, []).append(together(some, minutes))
        files[interval] = [str(rules / name) for name in some[0].files]
    found = []
    for interval, tests in groups.items():
        path = folder / f"every_{interval}.test.yml"
        path.write_text(json.dumps({**head(interval), "rule_files": files[interval], "tests": tests}))
        found.append(path)
    return found


def head(interval: str) -> dict[str, Any]:
    """What each file says of the evaluation."""
    return {"evaluation_interval": interval, "group_eval_order": ["edgekit-recording", "edgekit-alerts"]}


def together(cases: Sequence[Case], minutes: int) -> dict[str, Any]:
    """One group of promtool's; nothing may fire that belongs to none of the cases."""
    series: dict[str, str] = {UP: f"1x{minutes}"}
    if cases[0].alone:
        (case,) = cases
        series, questions = {**series, **case.series}, [case.question()]
    else:
        jobs = {f"edgekit-{place}": case for place, case in enumerate(cases)}
        for job, case in jobs.items():
            series |= case.series_as(job)
        nobody = {
            "expr": 'ALERTS{job!~"edgekit-.+"} # none of the cases',
            "eval_time": f"{minutes}m",
            "exp_samples": [],
        }
        questions = [*(case.question(job) for job, case in jobs.items()), nobody]
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": questions,
    }


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    """`promtool` with these arguments."""
    return subprocess.run(
        [requirements.program("promtool"), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=PROMTOOL_S,
        check=False,
    )


def failed(folder: Path, cases: Sequence[Case], rules: Path) -> dict[str, str]:
    """The cases that did not come out so, with what promtool says of each."""
    done = run("test", "rules", *write(folder, cases, rules))
    output = done.stdout + done.stderr
    parts = re.split(r'^ *expr: ".* # (.*?)", time: ', output, flags=re.MULTILINE)[1:]
    found = dict(zip(parts[::2], parts[1::2]))
    assert (done.returncode == 0) is (not found), output
    return found


def _labels(alert: str) -> str:
    name, _, long = alert.partition(" ")
    return f'{{alertname="{name}"{f", long={json.dumps(long)}" if long else ""}}}'
