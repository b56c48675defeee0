"""MQTT discovery of Home Assistant: retained messages that describe a device and its entities.

A rule with the events `on` and `off` is a binary sensor, a counter is a sensor, and a source of pictures is a camera
that shows the picture of the last event. https://www.home-assistant.io/integrations/mqtt/#mqtt-discovery
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import edgekit
from edgekit.device.live.sinks.base import SinkContext
from edgekit.device.live.sinks.mqtt_topics import Topics
from edgekit.runner.files import write_atomically

PREFIX = "homeassistant"
ONLINE, OFFLINE = "online", "offline"
ON, OFF = "ON", "OFF"
STATE_CLASSES = {"count": "total_increasing", "occupancy": "measurement"}
"""How Home Assistant treats a counter that only grows, but for restarts, and one that also falls."""


def configs(context: SinkContext, topics: Topics, prefix: str = PREFIX) -> dict[str, bytes]:
    """Return the config of each entity by its topic, PREFIX/COMPONENT/DEVICE/ENTITY/config."""
    entities: dict[str, bytes] = {}
    node = f"edgekit_{identifier(context.device_id)}"

    def add(component: str, *names: str, **config: Any) -> None:
        entity = "_".join(map(identifier, names))
        common = {
            "name": " ".join(names),
            "unique_id": f"{node}_{entity}",
            "availability_topic": topics.availability,
            "payload_available": ONLINE,
            "payload_not_available": OFFLINE,
            "device": {
                "identifiers": [node],
                "name": context.device_id,
                "manufacturer": "edgekit",
                "model": context.bundle_name,
                "sw_version": context.version,
            },
            "origin": {"name": "edgekit", "sw_version": edgekit.__version__},
        }
        topic = f"{prefix}/{component}/{node}/{entity}/config"
        entities[topic] = json.dumps({**common, **config}, sort_keys=True).encode()

    for source, rule in context.pairs():
        described = {
            "state_topic": topics.state(source, rule),
            "json_attributes_topic": topics.event(source, rule),
            "qos": 1,
        }
        if context.rules[rule] == "state":
            add("binary_sensor", source, rule, payload_on=ON, payload_off=OFF, **described)
        else:
            add("sensor", source, rule, state_class=STATE_CLASSES[context.rules[rule]], **described)
    for source, kind in context.sources.items():
        if kind == "picture":
            add("camera", source, "picture", topic=topics.picture(source))
    return entities


def with_removals(entities: dict[str, bytes], record: Path) -> dict[str, bytes]:
    """Add an empty message for each config of an earlier start that is not needed any more, which removes the entity.

    `record` is a file with the topics of the last start; it is rewritten.
    """
    try:
        before = [each for each in json.loads(record.read_bytes()) if isinstance(each, str)]
    except (OSError, ValueError, TypeError):
        before = []
    if before != sorted(entities):
        write_atomically(record, json.dumps(sorted(entities)).encode())
    return {**{topic: b"" for topic in before if topic not in entities}, **entities}


def initial_states(context: SinkContext, topics: Topics) -> dict[str, str]:
    """Return the state of each binary sensor when the process starts, by its topic."""
    return {topics.state(*pair): OFF for pair in context.pairs() if context.rules[pair[1]] == "state"}


def state_of(event: dict[str, Any]) -> str | None:
    """Return the state of the entity after an event, given as a JSON object."""
    if event["kind"] == "count":
        return str(event["count"]) if "count" in event else None
    return ON if event["kind"] == "on" else OFF


def identifier(name: str) -> str:
    """Return a name with only the characters that the topics of discovery allow."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name)
