"""hosts.yaml: what it may contain, and the errors for everything else."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.core.errors import ConfigError
from edgekit.fleet.devices import inventory
from edgekit.fleet.devices.inventory import Host

GOOD = """
defaults: {user: pi, python: python3, home: /var/lib/edge}
hosts:
  door-1: {class: pi4, host: 10.0.0.5, port: 2222}
  door-2: {class: pi4, user: admin}
  gate:
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "hosts.yaml"
    path.write_text(text)
    return path


def refused(folder: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        inventory.read_inventory(write(folder, text))
    return str(caught.value)


def test_a_host_has_its_own_keys_before_the_defaults(tmp_path: Path) -> None:
    found = inventory.read_inventory(write(tmp_path, GOOD)).hosts
    assert found == (
        Host("door-1", "pi4", "10.0.0.5", "pi", 2222, "python3", "/var/lib/edge"),
        Host("door-2", "pi4", "door-2", "admin", None, "python3", "/var/lib/edge"),
        Host("gate", "device", "gate", "pi", None, "python3", "/var/lib/edge"),
    )
    assert [host.address for host in found] == ["pi@10.0.0.5:2222", "admin@door-2", "pi@gate"]


def test_devices_are_chosen_by_name_and_class(tmp_path: Path) -> None:
    found = inventory.read_inventory(write(tmp_path, GOOD))
    assert [host.name for host in found.chosen((), "pi4")] == ["door-1", "door-2"]
    assert [host.name for host in found.chosen(("gate", "door-1"))] == ["door-1", "gate"]
    for names, device_class, message in (
        (("dor-1",), None, '"door-1"'),
        ((), "pi", "pi4"),
        (("gate",), "pi4", "no host"),
    ):
        with pytest.raises(ConfigError, match=message):
            found.chosen(names, device_class)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hosts: {a: {clas: pi4}}", 'hosts.a.clas: unknown key, did you mean "class"?'),
        ("hots: {a: {}}", 'hots: unknown key, did you mean "hosts"?'),
        ("defaults: {usr: pi}\nhosts: {a: {}}", 'defaults.usr: unknown key, did you mean "user"?'),
        ("defaults: {host: x}\nhosts: {a: {}}", "defaults.host: each device has its own"),
        ("hosts:\n  a: {}\n  a: {}", "line 2: duplicate key: a"),
        ("hosts: {a: {host: x}, b: {host: x}}", "hosts.b: is the same device as a (x)"),
        ("hosts: {}", "hosts: names no device"),
        ("defaults: {user: pi}", "hosts: names no device"),
        ("hosts: [a, b]", "hosts: holds a list, not a mapping"),
        ("hosts: {a: pi4}", "hosts.a: holds a str; write {class: pi4}, or {}"),
        ("hosts: {7: {}}", "hosts.7: not a name"),
        ("hosts: {'a b': {}}", "hosts.a b: not a name"),
        ("hosts: {a: {port: '22'}}", "hosts.a.port: got '22'; use a whole number from 1 to 65535"),
        ("hosts: {a: {port: 70000}}", "hosts.a.port: got 70000"),
        ("hosts: {a: {port: true}}", "hosts.a.port: got True"),
        ("hosts: {a: {host: '-oProxyCommand=x'}}", "hosts.a.host: got '-oProxyCommand=x'"),
        ('hosts: {a: {host: "x\\ny"}}', "hosts.a.host: got"),
        ("hosts: {a: {home: var/edge}}", "hosts.a.home: got 'var/edge'; use a path that begins with / or ~/"),
        ("hosts: {a: {python: -c}}", "hosts.a.python: got '-c'"),
        ("hosts: {a: {class: 4}}", "hosts.a.class: got 4"),
        ("- a", "holds a list, not a mapping"),
        ("", "is empty or holds only comments"),
        ("# a: b", "is empty or holds only comments"),
        (
            "hosts: {a: {host: 10.0.0.5}, b: {host: 10.0.0.5, port: 22}}",
            "hosts.b: is the same device as a (10.0.0.5:22)",
        ),
        ("hosts: {a: {host: Door}, b: {host: door}}", "hosts.b: is the same device as a (door)"),
        (
            "hosts: {a: {home: /}}",
            "hosts.a.home: got '/'; use a path that begins with / or ~/, to a folder of its own",
        ),
        ("hosts: {a: {home: /x/..}}", "hosts.a.home: got '/x/..'"),
        ("hosts: {a: {home: ~/.}}", "hosts.a.home: got '~/.'"),
        ("hosts: {a: {host: 'x;touch${IFS}/tmp/p'}}", "hosts.a.host: got 'x;touch${IFS}/tmp/p'; use a host name"),
        ('hosts: {a: {host: "x\\x9b2Jy"}}', "hosts.a.host: got"),
        ('hosts: {a: {user: "x\\u202ey"}}', "hosts.a.user: got"),
        ('hosts: {a: {python: "/x\\x9b2J"}}', "hosts.a.python: got"),
        ('hosts: {"a\\e[2J": {}}', "hosts.a [2J: not a name"),
        ('hosts: {a: {"\\e[2J": 1}}', "hosts.a.[2J: unknown key"),
        ('"\\e[31m": 1\nhosts: {a: {}}', "[31m: unknown key"),
        ('hosts: {a: {"\\e[2J": 1, "\\e[2J": 2}}', "duplicate key: '\\x1b[2J'"),
        ("hosts: {", "line"),
    ],
)
def test_a_fault_is_named_with_its_place(text: str, message: str, tmp_path: Path) -> None:
    found = refused(tmp_path, text)
    assert message in found and str(tmp_path / "hosts.yaml") in found
    assert found.replace("\n", "").isprintable()


def test_hosts_are_names_and_addresses(tmp_path: Path) -> None:
    for host in ("10.0.0.5", "fe80::1%eth0", "::1", "door-1.local", "a_b"):
        (found,) = inventory.read_inventory(write(tmp_path, f"hosts: {{a: {{host: '{host}', user: 'D\\x'}}}}")).hosts
        assert found.host == host and found.ssh_words == f"'D\\x@{host}'"


def test_thousands_of_devices_fit_and_too_many_are_an_error_of_the_inventory(tmp_path: Path) -> None:
    def lines(count: int) -> str:
        hosts = (f"  h{number}: {{class: pi4, host: 10.0.{number // 250}.{number % 250}}}" for number in range(count))
        return "\n".join(["hosts:", *hosts])

    assert len(inventory.read_inventory(write(tmp_path, lines(3400))).hosts) == 3400
    aliases = "a: &a [" + "1," * 1000 + "]\nb: [" + "*a," * 1000 + "]"
    assert "holds more than 500,000 values" in refused(tmp_path, aliases)
    path = tmp_path / "hosts.yaml"
    path.write_text("#" * 20_000_001)
    with pytest.raises(ConfigError, match="an inventory has at most 20,000,000"):
        inventory.read_inventory(path)
    with pytest.raises(ConfigError, match="is a folder; name the file in it"):
        inventory.read_inventory(tmp_path)


def test_all_faults_are_reported_at_once(tmp_path: Path) -> None:
    assert len(refused(tmp_path, "hosts: {a: {port: 0, usr: x}, b: {hme: /x}}").splitlines()) == 3


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such config file"):
        inventory.read_inventory(tmp_path / "hosts.yaml")
