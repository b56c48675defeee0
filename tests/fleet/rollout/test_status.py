"""The table of `edgekit fleet status`: every device of a small fleet, and of a large one those that need attention."""

from __future__ import annotations

from typing import Any

import pytest

from edgekit.fleet.devices.inventory import Host
from edgekit.fleet.rollout import outcomes, status
from edgekit.fleet.rollout.outcomes import Outcome


def shown(
    number: int, everything: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, list[str]]:
    """The exit code and the lines for so many devices, of which d0 cannot be reached."""
    ended = [Outcome(Host(f"d{place}"), outcomes.CONFIRMED, 1) for place in range(number)]
    ended[0] = ended[0].to(outcomes.UNREACHABLE, why="no route", exit_code=7)
    monkeypatch.setattr(status, "run_on_each", lambda *_, **__: ended)
    chosen: Any = None
    return status.run(chosen, False, everything), capsys.readouterr().out.splitlines()


def test_a_small_fleet_is_listed_and_counted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, lines = shown(3, False, monkeypatch, capsys)
    assert code == 7 and all(any(f" d{number} " in line for line in lines) for number in range(3))
    assert lines[-1] == "3 devices: 2 confirmed · 1 unreachable"


def test_of_a_large_fleet_only_what_needs_attention_is_listed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, lines = shown(500, False, monkeypatch, capsys)
    assert code == 7 and len(lines) <= 25 and any(" d0 " in line and "no route" in line for line in lines)
    assert (
        lines[-1] == "500 devices: 499 confirmed · 1 unreachable; 499 confirmed devices are not shown; --all shows them"
    )
    _, lines = shown(500, True, monkeypatch, capsys)
    assert sum("│ d" in line for line in lines) == 500 and lines[-1] == "500 devices: 499 confirmed · 1 unreachable"
