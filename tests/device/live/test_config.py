"""The configuration of `edgerun live`: its keys, its paths, and what the command line adds."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from edgekit.device.commands import live
from edgekit.device.live import config as configs
from edgekit.device.live.rules import Rules
from edgekit.device.live.sources import SourceOptions
from edgekit.runner.errors import InputError
from tests.docs.pages import ROOT, blocks

SOURCES = {"door": "rtsp://camera/stream"}


def test_the_configuration_of_the_guide_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    [block] = [each for each in blocks(ROOT / "docs" / "how-to" / "live.md") if each.title == "live.yaml"]
    config = configs.from_dict(yaml.safe_load(block.text), "/etc/edge")
    configs.check(config)
    assert config.models == (configs.ModelConfig("detector-onnx-1.0.0", "/etc/edge/detector-onnx-1.0.0.edge.zip"),)
    door, yard = (SourceOptions(name=each.name, **each.options) for each in config.sources)
    assert (door.rate, door.rotate, door.password_file) == (5, 90, "/etc/edge/camera.txt")
    assert yard.size == (640, 480) and config.sources[1].address == "v4l2:/dev/video0"
    rules = Rules.from_config(config.rules, ["person", "car"], "detection", sources=["door", "yard"])
    assert [each.name for each in rules.configs] == ["visitor", "passed"]
    assert [each.address for each in config.sinks] == ["mqtt://broker/edgekit", "/etc/edge/events/"]
    assert config.page == configs.PageConfig("127.0.0.1", 8080)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "the configuration: got a list; write keys and values"),
        ({"modle": "a.edge.zip"}, "unknown key 'modle'; did you mean model?"),
        ({"model": 3}, "model: got 3; use a path"),
        ({"model": "a", "models": ["b"]}, "model and models: got both"),
        ({"sources": ["rtsp://camera"]}, "sources: got a list; write a name and an address each"),
        ({"sources": {"a b": "film.mp4"}}, "sources: got the name 'a b'"),
        ({"sources": {"door": {"rate": 5}}}, "sources.door: has no `from`"),
        (
            {"sources": {"door": {"from": "f.mp4", "rate": "fast"}}},
            "sources.door.rate: got a text; use frames per second",
        ),
        (
            {"sources": {"door": {"from": "f.mp4", "size": "big"}}},
            "sources.door.size: got a text; use width and height",
        ),
        ({"sources": {"door": {"from": "f.mp4", "loop": 1}}}, "sources.door.loop: got 1; use true or false"),
        ({"rules": {"seen": "person"}}, "rules.seen: got a text; write keys and values"),
        ({"sinks": "mqtt://broker/x"}, "sinks: got a text; write a list"),
        ({"sinks": [{"url": "mqtt://broker"}]}, "sinks[0]: got keys and values; write an address"),
        ({"page": "8080x"}, "page: got '8080x'; use a port"),
        ({"page": {"adress": "8080"}}, "page: unknown key 'adress'; did you mean address?"),
        ({"parallel": 0}, "parallel: got 0; use a number from 1 to 16, or auto"),
        ({"parallel": "many"}, "parallel: got a text; use a number from 1 to 16, or auto"),
        ({"stall_s": 0}, "stall_s: got 0; use a number of seconds from 1 to 3600"),
    ],
)
def test_what_is_wrong_is_named(content: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        configs.from_dict(content)
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"sources": SOURCES}, "no model"),
        ({"model": "a.edge.zip"}, "no source"),
        (
            {"models": {"a": "1", "b": "2"}, "sources": SOURCES, "rules": {"r": {"label": "x"}}},
            "add model: one of a, b",
        ),
        ({"model": "a", "sources": {"d": {"from": "x", "model": "b"}}}, "sources.d.model: got 'b'; use one of a"),
    ],
)
def test_what_does_not_go_together_is_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        configs.check(configs.from_dict(config))


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("film.mp4", "/base/film.mp4"),
        ("rpicam", "rpicam"),
        ("csv:rows.csv", "csv:/base/rows.csv"),
        ("csv:-", "csv:-"),
        ("v4l2:/dev/video0", "v4l2:/dev/video0"),
        ("http://camera/stream", "http://camera/stream"),
    ],
)
def test_paths_start_from_the_folder_of_the_file(address: str, expected: str) -> None:
    assert configs.from_dict({"sources": {"door": address}}, "/base").sources[0].address == expected


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    for name, text, message in (
        ("a.yaml", "sources: [", "line 1: not YAML"),
        ("a.json", "{", "not JSON"),
        ("b.json", json.dumps({"modle": 1}), "b.json: the configuration: unknown key"),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(InputError, match=message):
            configs.read(str(tmp_path / name))
    with pytest.raises(InputError, match="cannot be read: No such file"):
        configs.read(str(tmp_path / "none.yaml"))


def test_the_command_line_is_added_to_the_file() -> None:
    config = configs.from_dict({"model": "a", "sources": SOURCES, "page": 8080, "keep": "kept"})
    more = configs.LiveConfig(
        models=(configs.model_of("b.edge.zip"), configs.model_of("b.edge.zip")),
        sources=configs.parse_sources(["yard=film.mp4", "other.mp4"], {"rate": 5}),
        page=configs.parse_page("[::]:80"),
    )
    merged = configs.merge(config, more)
    assert [each.name for each in merged.models] == ["b", "b-2"], "its bundles replace those of the file"
    assert [each.name for each in merged.sources] == ["door", "yard", "source-2"]
    assert merged.page == configs.PageConfig("::", 80) and merged.keep is not None


def test_a_rule_of_the_command_line_has_values_of_json() -> None:
    rule = configs.parse_rule(["label=red cell", "threshold=0.6", "zone=[[0,0],[1,0],[1,1]]", "count=true"], 0)
    assert rule == {
        "name": "rule-1", "label": "red cell", "threshold": 0.6, "zone": [[0, 0], [1, 0], [1, 1]], "count": True,
    }  # fmt: skip


@pytest.mark.parametrize(("given", "expected"), [({}, 1), ({"parallel": 3}, 3), ({"parallel": "auto"}, None)])
def test_frames_are_answered_one_at_a_time_by_default(given: dict[str, Any], expected: int | None) -> None:
    assert configs.from_dict(given).parallel == expected
    assert configs.merge(configs.from_dict(given), configs.LiveConfig()).parallel == expected


def test_labels_that_look_like_numbers_are_texts() -> None:
    assert configs.parse_rule(["label=3"], 0)["label"] == "3"
    rules = configs.from_dict({"rules": {"seen": {"label": [3, "4"]}}}).rules
    assert rules[0]["label"] == ["3", "4"]


def test_no_repr_shows_a_password() -> None:
    source = {"from": "rtsp://user:hunter2@camera/stream", "password": "hunter2"}
    config = configs.from_dict({"model": "a", "sources": {"door": source}, "sinks": ["mqtt://u:hunter2@broker/x"]})
    assert "hunter2" not in repr(config)


def test_the_command_line_sets_the_default_again(tmp_path: Path) -> None:
    (tmp_path / "live.json").write_text('{"stall_s": 60}')
    parser = argparse.ArgumentParser()
    live.arguments(parser)
    for more, expected in (([], 60.0), (["--stall-after", "30"], 30.0)):
        config = live._config(parser.parse_args(["--config", str(tmp_path / "live.json"), *more]))
        assert config.stall_s == expected


def test_an_address_in_capitals_is_not_a_path() -> None:
    assert configs.from_dict({"sinks": ["MQTT://broker/"]}, "/etc/edge").sinks[0].address == "MQTT://broker/"
