"""Several sources: fair turns, and frames of different sources at once with the same answers in the same order."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from edgekit.device.live import copies
from edgekit.device.live.feeds import Feed, Feeds
from edgekit.device.live.types import Frame
from edgekit.runner import bundle, cpu
from edgekit.runner.errors import InputError
from edgekit.runner.model import open_model
from tests.device.live import films
from tests.device.live.running import Live, run


def answers(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Those of each source in a recording, without times."""
    by_source: dict[str, list[dict[str, Any]]] = {}
    for line in path.read_text().splitlines():
        answer = json.loads(line)
        del answer["time_s"], answer["content"]["timing_ms"]
        by_source.setdefault(answer["source"], []).append(answer)
    return by_source


def test_frames_at_once_give_the_same_answers_in_the_same_order(
    colours: Path, film: Path, home: Path, tmp_path: Path
) -> None:
    events_by_parallel, written = {}, {}
    for parallel in (1, 3):
        config, record = tmp_path / "live.json", tmp_path / f"{parallel}.jsonl"
        sources = {name: {"from": str(film), "realtime": False} for name in ("left", "right", "yard")}
        content = {"model": str(colours), "sources": sources, "rules": {"seen": {"label": "red"}}}
        config.write_text(json.dumps({**content, "parallel": parallel}))
        done = run(home, "--config", config, "--record", record, "--json")
        assert done.returncode == 0, done.stderr
        written[parallel] = answers(record)
        events = [json.loads(line) for line in done.stdout.splitlines()]
        events_by_parallel[parallel] = sorted((each["source"], each["frame"], each["kind"]) for each in events)
        assert ("3 frames at once" in done.stderr) == (parallel == 3)
    assert written[1] == written[3] and events_by_parallel[1] == events_by_parallel[3]
    for name, each in written[3].items():
        assert [answer["number"] for answer in each] == list(range(30)), name


def test_a_fast_source_does_not_starve_a_slow_one(
    home: Path, film: Path, tmp_path: Path, live: Callable[..., Live]
) -> None:
    slow = films.detector(tmp_path / "slow.edge.zip", turns=3e5)
    config = tmp_path / "live.json"
    sources = {
        "fast": {"from": str(film), "loop": True, "realtime": False},
        "slow": {"from": str(film), "loop": True, "rate": 1},
    }
    config.write_text(json.dumps({"model": str(slow), "sources": sources, "rules": {"seen": {"label": "red"}}}))
    run = live("--config", config, "--page", "0")
    states = []
    for answered in (1, 5):
        run.until(lambda more=answered: run.state()["sources"][1]["answers"][0].get("answered", 0) >= more)
        states.append(run.state()["sources"])
    (_, first), (fast, last) = states
    assert last["dropped"] - first["dropped"] <= 1, "the slow source has a turn for every frame"
    assert fast["answers"][0]["answered"] > last["answers"][0]["answered"]


def test_a_thread_waits_while_another_answers_the_last_frame() -> None:
    one, other = (Feed(SimpleNamespace(name=name)) for name in ("one", "other"))
    one.has_ended = other.has_ended = True
    one.frame = Frame("one", 0, 0.0, 0.0, np.zeros((1, 1, 3), np.uint8))
    feeds = Feeds([one, other])
    assert feeds.take(30.0)
    started = time.monotonic()
    assert feeds.take(0.5) is None and not feeds.have_ended
    assert time.monotonic() - started >= 0.5, "it does not ask again and again"
    feeds.done(one)
    assert feeds.take(30.0) is None and feeds.have_ended
    assert time.monotonic() - started < 20


def test_every_thread_counts_for_the_number_of_frames(colours: Path, film: Path, home: Path, tmp_path: Path) -> None:
    config, record = tmp_path / "live.json", tmp_path / "answers.jsonl"
    sources = {name: {"from": str(film), "realtime": False} for name in ("left", "right")}
    config.write_text(json.dumps({"model": str(colours), "sources": sources, "parallel": 2}))
    assert run(home, "--config", config, "--record", record, "--frames", 7).returncode == 0
    assert sum(map(len, answers(record).values())) == 7


def test_a_stalled_copy_ends_the_program(home: Path, film: Path, tmp_path: Path) -> None:
    config = tmp_path / "live.json"
    stalling = films.detector(tmp_path / "stalling.edge.zip", turns=1e10)
    sources = {name: {"from": str(film)} for name in ("left", "right")}
    config.write_text(json.dumps({"model": str(stalling), "sources": sources, "parallel": 2}))
    started = time.monotonic()
    assert run(home, "--config", config, "--stall-after", 1).returncode == 5
    assert time.monotonic() - started < 60


def test_other_bits_are_refused(colours: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = open_model(bundle.read(colours))
    other = open_model(bundle.read(films.detector(tmp_path / "other.edge.zip", {"grey": (8.0, 8.0, 8.0)}, -9.0)))
    monkeypatch.setattr(copies, "_open_copy", lambda model, threads: other)
    with pytest.raises(InputError, match="differ in their last bits; use parallel: 1"):
        copies.choose([model], sources=2, count=2)
    assert len(copies.choose([model], sources=2, count=None)) == 1


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system has no affinity")
def test_one_processor_answers_one_frame_at_a_time(colours: Path) -> None:
    usable = os.sched_getaffinity(0)
    model = open_model(bundle.read(colours))
    try:
        os.sched_setaffinity(0, {min(usable)})
        assert len(copies.choose([model], sources=4, count=None)) == 1
        assert len(copies.choose([model], sources=4, count=3)) == 3, "if the configuration says so"
    finally:
        os.sched_setaffinity(0, usable)
    assert len(copies.choose([model], sources=1, count=3)) == 1, "never more than there are sources"


def test_copies_are_used_if_they_answer_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fast, slow = (
        open_model(
            bundle.read(films.detector(tmp_path / f"{turns}.edge.zip", bias=30.0, turns=turns)), threads=2
        )  # so that each thread has a copy
        for turns in (1, 3e4)
    )
    assert copies.measure_gain([slow], [{id(slow): fast}]) > 3
    assert copies.measure_gain([fast], [{id(fast): slow}]) < 0.3
    monkeypatch.setattr(cpu, "usable_core_count", lambda: 2)
    for model, copy, expected in ((slow, fast, 2), (fast, slow, 1)):
        monkeypatch.setattr(copies, "_open_copy", lambda model, threads, copy=copy: copy)
        chosen = copies.choose([model], sources=2, count=None)
        assert len(chosen) == expected and (chosen.gain is not None) == (expected == 2)
