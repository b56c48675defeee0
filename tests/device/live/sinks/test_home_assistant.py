"""Discovery for Home Assistant over a real broker. The keys were compared with the schemas of its MQTT integration."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from edgekit.device.live.sinks import SinkContext, home_assistant, open_sink
from edgekit.device.live.sinks.mqtt_topics import Topics
from tests.device.live.sinks.broker import Broker, Subscriber, context, event, until

TOPIC = re.compile(r"homeassistant/(binary_sensor|sensor|camera)/[a-zA-Z0-9_-]+/[a-zA-Z0-9_-]+/config")
"""https://www.home-assistant.io/integrations/mqtt/#discovery-topic"""
COMMON = {
    "name": str,
    "unique_id": str,
    "availability_topic": str,
    "payload_available": str,
    "payload_not_available": str,
    "device": dict,
    "origin": dict,
}
"""Keys of every component, and the types of their values."""
STATE: dict[str, type] = {"state_topic": str, "json_attributes_topic": str, "qos": int}
COMPONENTS: dict[str, dict[str, type]] = {
    "binary_sensor": {**COMMON, **STATE, "payload_on": str, "payload_off": str},
    "sensor": {**COMMON, **STATE, "state_class": str},
    "camera": {**COMMON, "topic": str},
}
DEVICE = {"identifiers": list, "name": str, "manufacturer": str, "model": str, "sw_version": str}


def configs(facts: SinkContext) -> dict[str, dict[str, Any]]:
    configured = home_assistant.configs(facts, Topics("edgekit", facts.device_id))
    return {topic: json.loads(payload) for topic, payload in configured.items()}


def test_configs_have_the_documented_keys(tmp_path: Path) -> None:
    sources = {"front door": "picture", "hall": "audio"}
    rules = {"visitor": "state", "passed": "count", "inside": "occupancy"}
    watched = {"inside": ["hall"], "visitor": []}
    configured = configs(context(tmp_path, device_id="Pi #7", sources=sources, rules=rules, watched=watched))
    components = [topic.split("/")[1] for topic in configured]
    assert sorted(components) == ["binary_sensor"] * 2 + ["camera"] + ["sensor"] * 3
    for topic, config in configured.items():
        assert TOPIC.fullmatch(topic), topic
        known = COMPONENTS[topic.split("/")[1]]
        assert {key: type(value) for key, value in config.items()} == known
        assert {key: type(value) for key, value in config["device"].items()} == DEVICE
        assert config["device"]["identifiers"] and config["origin"]["name"]
        topics = [value for key, value in config.items() if key.endswith("topic")]
        assert not [each for each in topics if set(each) & set("+#")], "no wildcards"
    sensors = [config for config in configured.values() if "state_class" in config]
    classes = sorted((config["name"], config["state_class"]) for config in sensors)
    assert classes == [
        ("front door passed", "total_increasing"),
        ("hall inside", "measurement"),
        ("hall passed", "total_increasing"),
    ]
    identifiers = [config["unique_id"] for config in configured.values()]
    assert len(set(identifiers)) == len(identifiers)
    assert len({json.dumps(config["device"]) for config in configured.values()}) == 1, "all belong to one device"


def test_entities_follow_the_events(tmp_path: Path, broker: Broker) -> None:
    watcher = Subscriber(broker.port, "#", "watcher")
    sink = open_sink({"to": f"mqtt://127.0.0.1:{broker.port}/edgekit", "home_assistant": True}, context(tmp_path))
    sink.start()
    until(lambda: sink.status().state == "running" and not sink.status().waiting)
    for number, (kind, rule, details) in enumerate(
        [("on", "visitor", {}), ("off", "visitor", {}), ("count", "passed", {"count": 3}), ("on", "visitor", {})]
    ):
        sink.send(event(number, kind, rule, **details), b"\xff\xd8 picture %d" % number)
    until(lambda: len(watcher.order) == 4 and not sink.status().waiting)
    state, counter = "edgekit/device/pi-7/state/door/visitor", "edgekit/device/pi-7/state/door/passed"
    picture = "edgekit/device/pi-7/picture/door"
    until(lambda: b"\xff\xd8 picture 3" in [payload for _, payload, _ in watcher.messages])
    states = [payload for topic, payload, _ in watcher.messages if topic == state]
    assert states == [b"OFF", b"ON", b"OFF", b"ON"], "off at first, because a rule of an earlier process may be on"
    assert sink.status().sent == 4
    sink.close()
    availability = "edgekit/device/pi-7/availability"
    until(lambda: (availability, b"offline") in [message[:2] for message in watcher.messages])
    watcher.close()
    started_later = Subscriber(broker.port, "#", "Home Assistant after a restart")
    until(lambda: len(started_later.messages) >= 7)
    retained = {topic: payload for topic, payload, is_retained in started_later.messages if is_retained}
    assert retained.pop(state) == b"ON"
    assert retained.pop(counter) == b"3"
    assert retained.pop(picture) == b"\xff\xd8 picture 3"
    assert retained.pop(availability) == b"offline"
    assert {topic: json.loads(payload) for topic, payload in retained.items()} == configs(context(tmp_path))
    for config in configs(context(tmp_path)).values():
        used = {value for key, value in config.items() if key.endswith("topic")}
        assert used <= {state, counter, picture, availability} | {
            "edgekit/door/visitor",
            "edgekit/door/passed",
        }
    started_later.close()


def test_entities_that_are_gone_are_removed(tmp_path: Path, broker: Broker) -> None:
    options = {"to": f"mqtt://127.0.0.1:{broker.port}/edgekit", "home_assistant": True, "discovery_prefix": "ha"}
    for rules in ({"visitor": "state", "passed": "count"}, {"visitor": "state"}):
        sink = open_sink(options, context(tmp_path, rules=rules))
        sink.start()
        until(lambda: sink.status().state == "running" and not sink.status().waiting)  # noqa: B023
        sink.close()
    watcher = Subscriber(broker.port, "ha/#", "watcher")
    until(lambda: len(watcher.messages) == 2)
    assert sorted(topic.split("/")[1] for topic, _, _ in watcher.messages) == ["binary_sensor", "camera"]
    watcher.close()


def test_without_the_option_there_is_no_discovery(tmp_path: Path, broker: Broker) -> None:
    watcher = Subscriber(broker.port, "#", "watcher")
    sink = open_sink(f"mqtt://127.0.0.1:{broker.port}/edgekit", context(tmp_path))
    sink.start()
    sink.send(event(1), b"picture")
    until(lambda: len(watcher.order) == 1)
    sink.close()
    until(lambda: b"offline" in [payload for _, payload, _ in watcher.messages])
    assert {topic for topic, _, _ in watcher.messages} == {"edgekit/door/visitor", "edgekit/device/pi-7/availability"}
    watcher.close()
