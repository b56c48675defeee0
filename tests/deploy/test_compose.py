"""compose.yaml against the specification's own schema (vendored, Apache-2.0), and against nginx.conf and the image."""

from __future__ import annotations

import copy
import ipaddress
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from edgekit.device.commands.serve import Settings
from tests.deploy.conftest import DEPLOY, DOCKERFILE, serve_options, stages

SCHEMA = json.loads((Path(__file__).parent / "compose-spec.json").read_text())
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
NGINX = (DEPLOY / "nginx.conf").read_text()
REPLICAS = sorted(name for name in SERVICES if name.startswith("replica"))


def test_the_schema_accepts_the_compose_file() -> None:
    jsonschema.Draft202012Validator(SCHEMA).validate(COMPOSE)


@pytest.mark.parametrize(("key", "value"), [("read-only", True), ("cap_drop", "ALL"), ("healthcheck", {"tests": []})])
def test_the_schema_refuses_a_misspelt_key(key: str, value: object) -> None:
    wrong = copy.deepcopy(COMPOSE)
    wrong["services"]["proxy"][key] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(SCHEMA).validate(wrong)


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_is_hardened_and_bounded(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True and service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not service.keys() & {"privileged", "cap_add", "devices", "pid", "network_mode", "user"}
    assert service["deploy"]["resources"]["limits"].keys() == {"cpus", "memory", "pids"}
    assert "healthcheck" in service or ("HEALTHCHECK" in DOCKERFILE.read_text() and name in REPLICAS)
    assert not re.search("token|password|secret", json.dumps(service.get("environment", {})))


def test_two_replicas_are_behind_the_proxy_and_reached_by_nobody_else() -> None:
    assert len(REPLICAS) == 2
    assert sorted(re.findall(r"^ +server ([\w-]+):8000", NGINX, re.MULTILINE)) == REPLICAS
    assert not [name for name in REPLICAS if "ports" in SERVICES[name]]
    assert COMPOSE["networks"]["inner"]["internal"] is True
    assert SERVICES["proxy"]["depends_on"] == {name: {"condition": "service_healthy"} for name in REPLICAS}
    (port,) = SERVICES["proxy"]["ports"]
    assert port.startswith("127.0.0.1:") and port.endswith(":8080") and "listen 8080;" in NGINX


def test_addresses_are_fixed_and_within_the_network() -> None:
    (pool,) = COMPOSE["networks"]["inner"]["ipam"]["config"]
    addresses = {SERVICES[name]["networks"]["inner"]["ipv4_address"] for name in REPLICAS}
    assert len(addresses) == 2
    assert all(ipaddress.ip_address(each) in ipaddress.ip_network(pool["subnet"]) for each in addresses)


def test_secrets_are_files() -> None:
    assert set(COMPOSE["secrets"]["token"]) == {"file"}
    assert all(SERVICES[name]["secrets"] == ["token"] for name in REPLICAS)
    assert "secrets" not in SERVICES["proxy"]


def test_the_replicas_start_as_the_image_does_with_a_token() -> None:
    (line,) = [line.removeprefix("CMD ") for line in stages()[1] if line.startswith("CMD ")]
    image = vars(serve_options(json.loads(line)))
    for name in REPLICAS:
        assert vars(serve_options(SERVICES[name]["command"])) == {**image, "token_file": "/run/secrets/token"}


def test_what_is_begun_may_be_finished() -> None:
    """Connections end in the proxy first, and a replica is killed only where the server would kill its own workers."""
    settings = Settings(())
    (idle_s,) = re.findall(r"^ {4}keepalive_timeout (\d+)s;", NGINX, re.MULTILINE)
    assert int(idle_s) < settings.keep_alive_s
    graces = {SERVICES[name]["stop_grace_period"] for name in REPLICAS}
    assert all(float(grace.removesuffix("s")) > settings.drain_s + settings.stop_s + 5 for grace in graces)


def test_what_compose_tells_the_build_the_dockerfile_knows() -> None:
    build = SERVICES[REPLICAS[0]]["build"]
    known = set(re.findall(r"^ARG (\w+)=", DOCKERFILE.read_text(), re.MULTILINE))
    assert set(build["args"]) <= known
    assert (DEPLOY / build["context"] / build["dockerfile"]).samefile(DOCKERFILE)
    (mount,) = SERVICES["proxy"]["volumes"]
    assert (DEPLOY / mount["source"]).is_file() and mount["read_only"]


def test_what_nginx_writes_lies_in_memory() -> None:
    (tmpfs,) = SERVICES["proxy"]["tmpfs"]
    assert tmpfs.startswith("/tmp:size=")
    written = re.findall(r"^ *(?:pid|\w+_temp_path) ([^;]+);", NGINX, re.MULTILINE)
    assert len(written) == 6 and all(path.startswith("/tmp/") for path in written)
