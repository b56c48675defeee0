"""`edgerun live` on a played film: events, recordings, bad input, slow and stalled models, and its end."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgekit.runner import cli
from tests.device.live import films
from tests.device.live.running import COMMAND, Live, environment, run
from tests.device.releases.device import Device
from tests.device.releases.watching import Watch, state

RULE = ("--rule", "name=seen", "label=red", "threshold=0.6")


@pytest.fixture(scope="session")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A detector of light grey, which is what the film shows but for the square."""
    path = tmp_path_factory.mktemp("other") / "grey.edge.zip"
    return films.detector(path, {"grey": (8.0, 8.0, 8.0)}, -9.0, name="grey")


def events(out: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in out.splitlines()]


def test_a_played_film_gives_its_events_and_ends(colours: Path, film: Path, home: Path, tmp_path: Path) -> None:
    sink = tmp_path / "events.jsonl"
    done = run(home, colours, "--from", f"door={film}", *RULE, "--to", sink, "--json")
    assert done.returncode == 0, done.stderr
    assert len(done.stderr.splitlines()) == 1 and "colours 1.0.0 (onnxruntime, threads: 1) on door" in done.stderr
    seen = events(done.stdout)
    assert [seen[0][key] for key in ("kind", "label", "source")] == ["on", "red", "door"]
    assert 9 <= seen[0]["frame"] < 29, "the square appears after a second, at ten frames a second"
    written = events(sink.read_text())
    assert [each["id"] for each in written] == [each["id"] for each in seen]


def test_events_are_lines_for_people(colours: Path, film: Path, home: Path) -> None:
    done = run(home, colours, "--from", film, *RULE, "--no-realtime")
    first = done.stdout.splitlines()[0].split(maxsplit=1)[1]
    assert first.startswith("source seen on: red ") and first.endswith("%")


def test_without_rules_every_change_of_the_answer_is_a_line(colours: Path, film: Path, home: Path) -> None:
    done = run(home, colours, "--from", film, "--no-realtime")
    assert [line.split(" ", 1)[1] for line in done.stdout.splitlines()][:2] == ["source: nothing", "source: 1 red"]


def test_a_recording_gives_the_same_events_again(colours: Path, film: Path, home: Path, tmp_path: Path) -> None:
    config = tmp_path / "live.json"
    rules = {"seen": {"label": "red", "threshold": 0.6}, "passed": {"label": "red", "line": [[0.3, 0], [0.3, 1]]}}
    (tmp_path / "film.mp4").symlink_to(film)
    sources = {"door": {"from": "film.mp4", "realtime": False}}
    config.write_text(json.dumps({"model": os.path.relpath(colours, tmp_path), "sources": sources, "rules": rules}))
    record = tmp_path / "answers.jsonl"
    done = run(home, "--config", config, "--record", record, "--json")
    assert done.returncode == 0, done.stderr
    assert {each["rule"] for each in events(done.stdout)} == {"seen", "passed"}
    assert len(record.read_text().splitlines()) == 30, "every frame of a film that is not played in real time"
    again = run(home, "--config", config, "--replay", record, "--json")
    assert (again.stdout, again.stderr) == (done.stdout, "")


def test_two_sources_and_two_models(colours: Path, other: Path, film: Path, home: Path, tmp_path: Path) -> None:
    config = tmp_path / "live.yaml"
    config.write_text(
        f"""
models: {{reds: {colours}, greys: {other}}}
sources:
  left: {{from: {film}, rate: 5}}
  right: {{from: {film}, model: reds, rotate: 90}}
rules:
  red: {{label: red, threshold: 0.6, model: reds}}
  grey: {{label: grey, model: greys}}
"""
    )
    record = tmp_path / "answers.jsonl"
    done = run(home, "--config", config, "--record", record, "--json")
    assert done.returncode == 0, done.stderr
    first = {(each["rule"], each["source"]) for each in events(done.stdout) if each["kind"] == "on"}
    assert first == {("red", "left"), ("red", "right"), ("grey", "left")}
    again = run(home, "--config", config, "--replay", record, "--json")
    assert (sorted(again.stdout.splitlines()), again.stderr) == (sorted(done.stdout.splitlines()), "")


BAD = {
    "no model": ([], "no model: name a BUNDLE"),
    "no source": (["{bundle}"], "no source: add --from"),
    "no film": (["{bundle}", "--from", "none.mp4"], "none.mp4"),
    "no such scheme": (["{bundle}", "--from", "v4l9:/dev/video0"], "v4l9:/dev/video0"),
    "names": (["{bundle}", "--from", "a={film}", "--from", "a={film}"], "the name 'a' is used twice"),
    "label": (["{bundle}", "--from", "{film}", "--rule", "label=rde"], "the bundle has no such label; did you mean"),
    "option": (["{bundle}", "--from", "{film}", "--rule", "label=red", "treshold=1"], "did you mean \"threshold\"?"),
    "word": (["{bundle}", "--from", "{film}", "--rule", "red"], "write KEY=VALUE"),
    "zone": (
        ["{bundle}", "--from", "{film}", "--rule", "label=red", "zone=[[0,0],[900,0],[900,900]]"],
        "outside the picture of 320x240",
    ),
    "sink": (["{bundle}", "--from", "{film}", "--to", "mqqt://broker/x"], "did you mean \"mqtt\"?"),
    "prefix": (["{bundle}", "--from", "{film}", "--to", "mqtt://broker/a/+/b"], "+ and # are for subscriptions"),
    "page": (["{bundle}", "--from", "{film}", "--page", "door:80"], "page: got 'door:80'; use a port"),
    "taken": (["{bundle}", "--from", "{film}", "--page", "{port}"], "use another port"),
    "token": (
        ["{bundle}", "--from", "{film}", "--page", "0.0.0.0:0", "--token-file", "{short}"], "at least 16 characters",
    ),
    "record": (["{bundle}", "--from", "{film}", "--record", "/none/x"], "name a file that can be written"),
    "replay": (["{bundle}", "--replay", "{film}", "--rule", "label=red"], "not JSON"),
    "two models": (["{bundle}", "{bundle}", "--from", "{film}", "--rule", "label=red"], "add model: one of"),
    "key": (["--config", "{config}"], "sources.door: unknown key 'rat'; did you mean rate?"),
    "film as a bundle": (["{bundle}", "{film}"], "red.mp4: not a bundle; to answer what it shows, put --from"),
    "address as a bundle": (["{bundle}", "rtsp://joe:s3cret@door/x"], "rtsp://***@door/x: not a bundle"),
    "bundle as a configuration": (["--config", "{bundle}"], "which is a bundle; name it without --config"),
    "configuration as a bundle": (["{rule}"], "live-rule.json: not a bundle; put --config before it"),
    "number": (["{bundle}", "--from", "0"], "from: got '0'; for a USB camera use v4l2:/dev/video0"),
    "other number": (["{bundle}", "--from", "²"], "²: there is no such file or folder"),
    "rule of the file": (["--config", "{rule}"], "live-rule.json: rules.seen.label: got 'rde'"),
    "sink of the file": (["--config", "{sink}"], "live-sink.json: sink: got the scheme 'mqqt'"),
    "other rule": (["--config", "{good}", "--rule", "label=rde"], "edgerun: rules.rule-1.label: got 'rde'"),
    "other source": (
        ["--config", "{good}", "--rule", "label=red", "sources=dor"], "rules.rule-1.sources: got 'dor'; there is no",
    ),
    "authority": (
        ["--config", "{authority}"], "ca_file: only mqtts:// takes one; leave it out",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_line(
    name: str, colours: Path, film: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    taken = socket.create_server(("127.0.0.1", 0))
    (tmp_path / "token").write_text("0123456789")
    values = {"bundle": colours, "film": film, "short": tmp_path / "token", "port": taken.getsockname()[1]}
    content: dict[str, Any] = {"model": str(colours), "sources": {"door": str(film)}}
    for part, more in {
        "config": {"sources": {"door": {"from": str(film), "rat": 5}}},
        "good": {},
        "rule": {"rules": {"seen": {"label": "rde"}}},
        "sink": {"sinks": ["mqqt://broker/x"]},
        "authority": {"sources": {"door": {"from": "http://camera/x", "ca_file": "ca.pem"}}},
    }.items():
        values[part] = tmp_path / f"live-{part}.json"
        values[part].write_text(json.dumps({**content, **more}))
    words, message = BAD[name]
    monkeypatch.setenv("EDGERUN_HOME", str(home))
    code = cli.main(["live", *(word.format(**values) for word in words), "--no-trial"])
    taken.close()
    out, errors = capfd.readouterr()
    assert code == (7 if name == "record" else 4), errors
    assert len(errors.splitlines()) == 1 and message in errors, errors
    assert out == ""


def test_a_film_that_breaks_is_an_error(colours: Path, film: Path, live: Callable[..., Live]) -> None:
    running = live(colours, "--from", film, "--loop", "--rule", "label=red")
    running.until(lambda: running.out)
    os.kill(running.children()[0], signal.SIGKILL)
    assert running.process.wait(30) == 4
    running.stop()
    assert "red.mp4: ffmpeg was ended by SIGKILL" in running.errors[-1]


def test_lost_events_are_reported_once(colours: Path, film: Path, home: Path) -> None:
    rule = ("--rule", "label=red", "--rule", "label=blue", "--no-realtime")
    done = run(home, colours, "--from", film, *rule, "--to", "command:false", "--record", "/dev/full")
    lines = sorted(line for line in done.stderr.splitlines() if "No space" in line or "exit code 1" in line)
    assert lines[0].startswith("edgerun: record: /dev/full: ") and len(lines) == 2, done.stderr
    assert lines[1] == "edgerun: sink command false: an event failed: ended with exit code 1"


def test_it_ends_soon_and_leaves_no_process(colours: Path, film: Path, live: Callable[..., Live]) -> None:
    for by in (signal.SIGTERM, signal.SIGINT):
        run = live(colours, "--from", film, "--loop", "--page", "0", *RULE)
        run.until(lambda run=run: run.out)
        run.until(lambda run=run: run.state()["sources"])
        children = run.children()
        assert len(children) == 2, "ffmpeg and the page"
        code, seconds = run.stop(by)
        assert code == 0 and seconds < 10, "two seconds, but for what else the machine does"
        assert not [each for each in children if Path(f"/proc/{each}").exists()]


@pytest.mark.parametrize(("to", "code"), [([], 141), (["--to", "-"], 0)])
def test_a_reader_that_leaves_ends_it(colours: Path, film: Path, home: Path, to: list[str], code: int) -> None:
    rule = ["--rule", "label=red", "count=occupancy"]
    words = [*COMMAND, str(colours), "--from", str(film), "--loop", *rule, "--no-trial", *to]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment(home))
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(30) == code


def test_lag_does_not_grow_if_the_model_is_slower_than_the_film(
    home: Path, tmp_path: Path, live: Callable[..., Live]
) -> None:
    slow = films.detector(tmp_path / "slow.edge.zip", turns=3e5)
    fast = films.film(tmp_path / "fast.mp4", seconds=4, rate=30, red_from_s=0)
    run = live(slow, "--from", fast, "--loop", "--page", "0", *RULE)
    run.until(lambda: run.state()["sources"][0]["answers"][0].get("answered", 0) > 4)
    first = run.state()["sources"][0]
    run.until(lambda: run.state()["sources"][0]["answers"][0]["answered"] > first["answers"][0]["answered"] + 6)
    last = run.state()["sources"][0]
    call_ms = last["answers"][0]["timing"]["model"]["p50"]
    assert call_ms > 50, "slower than 30 frames a second"
    assert last["dropped"] > first["dropped"] > 0
    assert last["answers"][0]["timing"]["read"]["p50"] < 2 * call_ms + 100, "no frame waits longer than one call"


def test_a_model_that_stalls_ends_the_program(home: Path, film: Path, tmp_path: Path) -> None:
    stalling = films.detector(tmp_path / "stalling.edge.zip", turns=1e10)
    started = time.monotonic()
    done = run(home, stalling, "--from", film, "--stall-after", 1, *RULE)
    assert done.returncode == 5 and "the model has not answered for 1 s; ending" in done.stderr
    assert time.monotonic() - started < 60


@pytest.mark.processes
def test_a_release_that_stalls_goes_back(tmp_path: Path, film: Path) -> None:
    device = Device(tmp_path / "home")
    good = films.detector(tmp_path / "1.edge.zip", version="1.0.0")
    device.confirmed(good)
    device.install(films.detector(tmp_path / "2.edge.zip", version="2.0.0", turns=1e10))
    words = ["live", "{bundle}", "--from", str(film), "--loop", "--stall-after", "1", "--no-trial", *RULE]
    watching = Watch(device, "--confirm-after", 60, "--", sys.executable, "-m", "edgekit.runner", *words)
    try:
        watching.until(lambda: state(device) == ("confirmed", 1))
        assert watching.output.count("release 2: the program ended with exit code 5") == 3
        watching.until(lambda: "seen on: red" in watching.output.rpartition("release 1: starting")[2])
    finally:
        watching.process.terminate()
        watching.process.wait(30)
