"""Faults in the rules, seeded on purpose: the histories of `alert_cases.py` must notice each.

A fault is put into every alert that has a place for it, and promtool plays all histories once. An alert is caught where
some history has it firing that should not, or silent that should fire.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.serve.export import alert_cases, promtool
from tests.serve.export.conftest import watching

pytestmark = pytest.mark.serving
CASES = alert_cases.every_case()
Rule = dict[str, Any]
Fault = Callable[[Rule], Rule | None]


def changed(rule: Rule, expression: str) -> Rule | None:
    """The rule with another expression; None where that is the same."""
    return {**rule, "expr": expression} if expression != rule["expr"] else None


def limit_times(factor: float) -> Fault:
    """The first limit is so many times as high; an equation with 0 is left to another fault."""

    def fault(rule: Rule) -> Rule | None:
        found = re.search(r"(>=?|==) (\d+(?:\.\d+)?)\b", rule["expr"])
        if not found or float(found[2]) == 0:
            return None
        text = rule["expr"]
        return changed(rule, f"{text[: found.start(2)]}{float(found[2]) * factor:g}{text[found.end(2) :]}")

    return fault


def second_limit_times(factor: float) -> Fault:
    """The limit of the short window."""

    def fault(rule: Rule) -> Rule | None:
        found = re.search(r"\nand model:\S+share\S+ > ([\d.]+)", rule["expr"])
        if not found:
            return None
        text = rule["expr"]
        return changed(rule, f"{text[: found.start(1)]}{float(found[1]) * factor:g}{text[found.end(1) :]}")

    return fault


def without_clause(number: int) -> Fault:
    """One of the clauses joined by `and` is lost."""

    def fault(rule: Rule) -> Rule | None:
        clauses = rule["expr"].split("\nand ")
        if len(clauses) <= number or len(clauses) == 1:
            return None
        del clauses[number]
        return changed(rule, "\nand ".join(clauses))

    return fault


def turned(rule: Rule) -> Rule | None:
    """The first comparison looks the other way."""
    return changed(
        rule, re.sub(r" (>=?|==) ", lambda match: " != " if match[1] == "==" else " < ", rule["expr"], count=1)
    )


def at_once(rule: Rule) -> Rule | None:
    """Nothing must hold for a while."""
    return {name: value for name, value in rule.items() if name != "for"} if "for" in rule else None


def much_later(rule: Rule) -> Rule | None:
    """What must hold for a while must hold for a day."""
    return {**rule, "for": "1d"} if "for" in rule else None


def misspelt(rule: Rule) -> Rule | None:
    """No series has the name."""
    return changed(rule, re.sub(r"(edgekit_|up\{)", lambda match: f"x{match[1]}", rule["expr"], count=1))


FAULTS: dict[str, Fault] = {
    "a limit four times as high": limit_times(4),
    "a limit a quarter as high": limit_times(0.25),
    "the short window's limit ten times as high": second_limit_times(10),
    "the first clause lost": without_clause(0),
    "the second clause lost": without_clause(1),
    "the third clause lost": without_clause(2),
    "a comparison turned": turned,
    "at once": at_once,
    "after a day": much_later,
    "a misspelt metric": misspelt,
}
RECORDED = {
    "a bucket that is not shown": ('le="0.0410238"', 'le="0.05"'),
    "slow and good mixed up": ("model:edgekit_answered:rate1h\n- sum", "0 * model:edgekit_answered:rate1h\n+ sum"),
    "cancelled counted": ("busy|late|failed", "busy|late|failed|cancelled"),
    "invalid counted": ("busy|late|failed", "busy|late|failed|invalid"),
    "too large counted": ("busy|late|failed", "busy|late|failed|too_large"),
    "unsupported counted": ("busy|late|failed", "busy|late|failed|unsupported"),
    "busy not counted": ("busy|late|failed", "late|failed"),
    "late not counted": ("busy|late|failed", "busy|failed"),
    "failed not counted": ("busy|late|failed", "busy|late"),
    "versions added up": ("by (job, model, version)", "by (job, model)"),
    "refused requests are no requests": ("+ model:edgekit_refused:rate", "+ 0 * model:edgekit_refused:rate"),
    **{f"a window other than {window}": (f"[{window}]", f"[{other}]") for window, other in
       (("5m", "1h"), ("30m", "3h"), ("1h", "10m"), ("2h", "1d"), ("6h", "20m"), ("1d", "2h"), ("3d", "12h"))},
}  # fmt: skip


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("rules") / "out"
    assert watching("prometheus", out, *alert_cases.OBJECTIVE).exit_code == 0
    return out


def alert_key(rule: Rule) -> str:
    return f"{rule['alert']} {rule['labels'].get('long', '')}".strip()


def wrong(output: str) -> set[str]:
    """Alerts that fired and should not have, or the other way round."""
    sets = []
    for word in ("exp", "got"):
        line = re.search(rf"^ *{word}: (.*)$", output, re.MULTILINE)
        assert line, output
        sets.append(
            {" ".join(filter(None, each)) for each in re.findall(r'alertname="(\w+)"(?:, long="(\w+)")?', line[1])}
        )
    return sets[0] ^ sets[1]


@pytest.mark.parametrize("name", FAULTS)
def test_the_histories_notice_a_fault_in_an_alert(name: str, rules: Path, tmp_path: Path) -> None:
    broken = tmp_path / "rules"
    shutil.copytree(rules, broken)
    content = yaml.safe_load((rules / "alerts.yml").read_text())
    (group,) = content["groups"]
    seeded = {alert_key(rule): found for rule in group["rules"] if (found := FAULTS[name](rule))}
    assert len(seeded) > 1
    group["rules"] = [seeded.get(alert_key(rule), rule) for rule in group["rules"]]
    (broken / "alerts.yml").write_text(yaml.safe_dump(content))
    assert promtool.run("check", "rules", broken / "alerts.yml").returncode == 0
    caught: set[str] = set().union(*map(wrong, promtool.failed(tmp_path, CASES, broken).values()))
    assert caught == set(seeded)


@pytest.mark.parametrize("name", RECORDED)
def test_the_histories_notice_a_fault_in_what_is_recorded(name: str, rules: Path, tmp_path: Path) -> None:
    broken = tmp_path / "rules"
    shutil.copytree(rules, broken)
    sound, fault = RECORDED[name]
    text = (rules / "recording.yml").read_text()
    text = text.replace(sound, fault) if "\n" not in sound else re.sub(
        re.escape(sound).replace("\\\n", r"\n\s+"), fault.replace("\n", "\n          "), text)  # fmt: skip
    assert text != (rules / "recording.yml").read_text()
    (broken / "recording.yml").write_text(text)
    assert promtool.run("check", "rules", broken / "recording.yml").returncode == 0
    read = (
        alert_cases.budget_cases()
        if "reason" in sound or "busy" in sound
        else [case for case in CASES if not case.every]
    )
    assert promtool.failed(tmp_path, read, broken)
