"""The configuration of `edgerun live`, from a file (`live.yaml` or `live.json`) and from the command line.

Keys are strict: one that does not exist is refused, with the one that was probably meant. Paths in a file are relative
to its folder. Addresses and options may hold passwords, so no `repr` and no message shows them.
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from edgekit.runner import bounded_json
from edgekit.runner.errors import InputError

MOST_BYTES = 1 << 20
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
NAMED = re.compile(rf"({NAME.pattern})=(.*)", re.DOTALL)
SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+-]+):")
PATH_SCHEMES = ("file", "csv", "jsonl", "folder")
"""Schemes that a path follows."""
LOOPBACK = "127.0.0.1"
DEFAULT_STALL_S = 30.0
MOST_PARALLEL = 16


@dataclass(frozen=True)
class ModelConfig:
    """A bundle, and the name by which sources and rules call it."""

    name: str
    path: str


@dataclass(frozen=True)
class SourceConfig:
    """A source: its address, options (`edgekit.device.live.sources`), and the models that answer it (empty: all)."""

    name: str
    address: str = field(repr=False)
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    models: tuple[str, ...] = ()


@dataclass(frozen=True)
class SinkConfig:
    """A sink: its address and options (`edgekit.device.live.sinks`)."""

    address: str = field(repr=False)
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class PageConfig:
    """Where the page listens. Other machines can reach any address but loopback, so a token is needed there."""

    host: str
    port: int
    token_file: str | None = None

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the page."""
        return ipaddress.ip_address(self.host).is_loopback


@dataclass(frozen=True)
class LiveConfig:
    """Everything that a run of `edgerun live` needs to know."""

    models: tuple[ModelConfig, ...] = ()
    sources: tuple[SourceConfig, ...] = ()
    rules: tuple[dict[str, Any], ...] = ()
    sinks: tuple[SinkConfig, ...] = ()
    page: PageConfig | None = None
    keep: str | None = None
    record: str | None = None
    stall_s: float = DEFAULT_STALL_S
    parallel: int | None = 1
    """How many frames to answer at once (`edgekit.device.live.copies`); None, which is `auto` in a file, measures."""
    folder: str = "."
    """The folder of the file, to which its paths are relative."""


def read(path: str) -> LiveConfig:
    """Read a file.

    Raises
    ------
    InputError
        It cannot be read, is neither YAML nor JSON, or has a wrong key or value.
    """
    if path.endswith(".edge.zip"):
        raise InputError(f"--config: got {path}, which is a bundle; name it without --config")
    try:
        with open(path, "rb") as stream:
            data = stream.read(MOST_BYTES + 1)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    if len(data) > MOST_BYTES:
        raise InputError(f"{path}: more than {MOST_BYTES >> 20} MB; name a configuration of `edgerun live`")
    content = _parse(path, data)
    try:
        return from_dict(content, os.path.dirname(os.path.abspath(path)))
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _parse(path: str, data: bytes) -> Any:
    if path.endswith(".json"):
        try:
            return bounded_json.loads(data)
        except ValueError as error:
            raise InputError(f"{path}: not JSON: {error}") from None
    try:
        import yaml
    except ImportError:
        raise InputError(
            f"{path}: needs PyYAML (apt install python3-yaml, or pip install pyyaml); or write it as live.json"
        ) from None
    try:
        return yaml.safe_load(data)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        reason = getattr(error, "problem", None) or type(error).__name__
        raise InputError(f"{path}{where}: not YAML: {reason}") from None


def from_dict(content: Any, folder: str = ".") -> LiveConfig:
    """Return the configuration in a mapping, as a file holds it. `folder` is where its relative paths start.

    Raises
    ------
    InputError
        A key or value is wrong.
    """
    keys = ("model", "models", "sources", "rules", "sinks", "page", "keep", "record", "stall_s", "parallel")
    given = check_keys(content, keys, "the configuration")
    if "model" in given and "models" in given:
        raise InputError("model and models: got both; write one of them")
    stall_s = given.get("stall_s", DEFAULT_STALL_S)
    if isinstance(stall_s, bool) or not isinstance(stall_s, (int, float)) or not 1 <= stall_s <= 3600:
        raise InputError(f"stall_s: got {stall_s!r}; use a number of seconds from 1 to 3600")
    parallel = given.get("parallel", 1)
    if parallel != "auto" and (type(parallel) is not int or not 1 <= parallel <= MOST_PARALLEL):
        raise InputError(f"parallel: got {_kind(parallel)}; use a number from 1 to {MOST_PARALLEL}, or auto")
    paths = {key: _path(given[key], key, folder) for key in ("keep", "record") if given.get(key) is not None}
    return LiveConfig(
        models=_models(given.get("model", given.get("models")), folder),
        sources=_sources(given.get("sources"), folder),
        rules=_rules(given.get("rules")),
        sinks=_sinks(given.get("sinks"), folder),
        page=None if given.get("page") is None else _page(given["page"], folder),
        stall_s=float(stall_s),
        parallel=None if parallel == "auto" else parallel,
        folder=folder,
        **paths,
    )


def merge(config: LiveConfig, more: LiveConfig) -> LiveConfig:
    """Return a configuration with the command line's part: lists are joined, single values replaced."""
    changes: dict[str, Any] = {}
    for each in fields(LiveConfig):
        value, default = getattr(more, each.name), each.default
        if isinstance(value, tuple):
            changes[each.name] = getattr(config, each.name) + value
        elif each.name != "folder" and value != default:
            changes[each.name] = value
    merged = replace(config, **changes)
    models = more.models or config.models  # a bundle on the command line replaces the file's
    return replace(merged, models=unique_models(models))


def check(config: LiveConfig) -> None:
    """Raise InputError unless there is a model and a source, and every name is used once and every use names one."""
    if not config.models:
        raise InputError("no model: name a BUNDLE, or write `model: FILE.edge.zip` into the configuration")
    if not config.sources:
        raise InputError(
            "no source: add --from SOURCE, such as v4l2:/dev/video0, rtsp://… or a film, or `sources` to the "
            "configuration"
        )
    names = [each.name for each in config.models]
    _check_unique([each.name for each in config.sources], "sources")
    for source in config.sources:
        for name in source.models:
            if name not in names:
                raise InputError(f"sources.{source.name}.model: got {name!r}{suggestion(name, names)}")
    check_rule_models(config)


def rules_of(config: LiveConfig, name: str) -> list[dict[str, Any]]:
    """Return the options of the rules of a model, without its name."""
    chosen = [rule for rule in config.rules if rule.get("model", name) == name]
    return [{key: value for key, value in rule.items() if key != "model"} for rule in chosen]


def check_rule_models(config: LiveConfig) -> None:
    """Raise InputError unless every rule belongs to a model."""
    names = [each.name for each in config.models]
    for rule in config.rules:
        chosen = rule.get("model")
        if chosen is not None and chosen not in names:
            raise InputError(f"rules.{rule['name']}.model: got {chosen!r}{suggestion(str(chosen), names)}")
        if chosen is None and len(names) > 1:
            raise InputError(f"rules.{rule['name']}: there are {len(names)} models; add model: one of {_list(names)}")


def parse_sources(texts: Sequence[str], options: Mapping[str, Any]) -> tuple[SourceConfig, ...]:
    """Return the sources of arguments `[NAME=]ADDRESS`. One without a name is called `source`, and the next `source-2`.

    Raises InputError if an address is missing.
    """
    sources = []
    for number, text in enumerate(texts, 1):
        match = NAMED.fullmatch(text)
        name, address = (str(match[1]), str(match[2])) if match else ("", text)
        if not address:
            raise InputError(f"--from: got {text!r}; use a film, a folder, or an address such as v4l2:/dev/video0")
        sources.append(SourceConfig(name or (f"source-{number}" if number > 1 else "source"), address, dict(options)))
    return tuple(sources)


def parse_rule(words: Sequence[str], number: int) -> dict[str, Any]:
    """Return the rule of arguments `KEY=VALUE`. Values are JSON, or else texts."""
    rule: dict[str, Any] = {"name": f"rule-{number + 1}"}
    for word in words:
        key, sign, value = word.partition("=")
        if not sign or not key:
            raise InputError(f"--rule: got {word!r}; write KEY=VALUE, such as label=person threshold=0.6")
        try:
            rule[key] = bounded_json.loads(value.encode())
        except ValueError:
            rule[key] = value
    return _with_text_labels(rule)


def check_bundle(path: str) -> None:
    """Raise InputError for an argument that stands in a bundle's place and is a film, a folder or an address."""
    if path == "current" or path.endswith(".edge.zip"):
        return
    is_address = SCHEME.match(path) is not None and not os.path.exists(path)
    if is_address or os.path.isdir(path) or (os.path.isfile(path) and not zipfile.is_zipfile(path)):
        from edgekit.device.live.sources.address import hide

        is_config = path.endswith((".yaml", ".yml", ".json"))
        fix = "put --config before it" if is_config else "to answer what it shows, put --from before it"
        raise InputError(f"{hide(path)}: not a bundle; {fix}")


def parse_page(text: str, token_file: str | None = None) -> PageConfig:
    """Return the page of `PORT` or `HOST:PORT`. Raises InputError for another text."""
    host, _, port = text.rpartition(":")
    host = {"": LOOPBACK, "localhost": LOOPBACK, "*": "0.0.0.0"}.get(host, host.strip("[]"))
    try:
        ipaddress.ip_address(host)
        if not (port.isascii() and port.isdigit() and int(port) < 65536):
            raise ValueError
    except ValueError:
        raise InputError(f"page: got {text!r}; use a port, or an address and a port such as 0.0.0.0:8080") from None
    return PageConfig(host, int(port), token_file)


def unique_models(models: Iterable[ModelConfig]) -> tuple[ModelConfig, ...]:
    """Return the models with different names: a name that is taken gets a number."""
    named: dict[str, ModelConfig] = {}
    for each in models:
        name, number = each.name, 1
        while name in named:
            number += 1
            name = f"{each.name}-{number}"
        named[name] = replace(each, name=name)
    return tuple(named.values())


def model_of(path: str) -> ModelConfig:
    """Return the model of a bundle's path, named after the file."""
    name = os.path.basename(path)
    name = name[: -len(".edge.zip")] if name.endswith(".edge.zip") else name
    return ModelConfig(name or path, path)


def check_keys(value: Any, known: Iterable[str], where: str) -> dict[str, Any]:
    """Return a mapping with text keys. Raises InputError if it is none, or has a key that is not known."""
    known = tuple(known)
    if not isinstance(value, dict):
        raise InputError(f"{where}: got {_kind(value)}; write keys and values: {_list(known)}")
    for key in value:
        if key not in known:
            raise InputError(f"{where}: unknown key {str(key)[:60]!r}{suggestion(str(key), known)}")
    return value


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean …?`, or all that are known."""
    import difflib

    known = sorted(known)
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.55)
    return f"; did you mean {close[0]}?" if close else f"; use one of {_list(known)}"


def _models(value: Any, folder: str) -> tuple[ModelConfig, ...]:
    if value is None:
        return ()
    if isinstance(value, dict):
        named = [
            ModelConfig(_name(name, "models"), _path(path, f"models.{name}", folder)) for name, path in value.items()
        ]
        return tuple(named)
    values = value if isinstance(value, list) else [value]
    return unique_models(model_of(_path(each, "model", folder)) for each in values)


def _sources(value: Any, folder: str) -> tuple[SourceConfig, ...]:
    if value is None:
        return ()
    if not isinstance(value, dict):
        raise InputError(f"sources: got {_kind(value)}; write a name and an address each, such as door: rtsp://…")
    return tuple(_source(_name(name, "sources"), each, folder) for name, each in value.items())


def _source(name: str, value: Any, folder: str) -> SourceConfig:
    from edgekit.device.live.sources import SourceOptions

    where = f"sources.{name}"
    if isinstance(value, str):
        return SourceConfig(name, _address(value, where, folder))
    known = [each.name for each in fields(SourceOptions) if each.name != "name"]
    options = check_keys(value, ("from", "model", *known), where)
    if "from" not in options:
        raise InputError(f"{where}: has no `from`; add the address, such as from: v4l2:/dev/video0")
    models = options.get("model", ())
    models = (models,) if isinstance(models, str) else models
    if not isinstance(models, (list, tuple)) or not all(isinstance(each, str) for each in models):
        raise InputError(f"{where}.model: got {_kind(models)}; use the name of a model, or a list of names")
    rest = {key: _option(key, each, where, folder) for key, each in options.items() if key not in ("from", "model")}
    return SourceConfig(
        name, _address(options["from"], f"{where}.from", folder), source_options(rest, where), tuple(models)
    )


def source_options(options: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the options of a source with their types. Raises InputError for a value of another type."""
    checked = dict(options)
    for key, value in options.items():
        kinds, what = OPTION_KINDS.get(key, ((str,), "a text"))
        if key == "size":
            checked[key] = _size(value, f"{where}.size")
        elif type(value) not in kinds:
            raise InputError(f"{where}.{key}: got {_kind(value)}; use {what}")
    return checked


OPTION_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "rate": ((int, float), "frames per second, such as 5"),
    "rotate": ((int,), "0, 90, 180 or 270"),
    "freeze_s": ((int, float), "a number of seconds; 0 never"),
    "realtime": ((bool,), "true or false"),
    "loop": ((bool,), "true or false"),
    "hop": ((int,), "a whole number of samples or rows"),
}
"""The types of a source's options; those of the others are texts."""


def _size(value: Any, where: str) -> tuple[int, int]:
    sides = value.lower().split("x") if isinstance(value, str) else value
    try:
        width, height = (int(side) for side in sides)
    except (TypeError, ValueError):
        raise InputError(f"{where}: got {_kind(value)}; use width and height in pixels, such as 640x480") from None
    return width, height


def _rules(value: Any) -> tuple[dict[str, Any], ...]:
    if value is None:
        return ()
    if not isinstance(value, dict):
        raise InputError(
            f"rules: got {_kind(value)}; write a name and the rule's keys each, such as visitor: {{label: person}}"
        )
    rules = []
    for name, rule in value.items():
        if not isinstance(rule, dict) or not all(isinstance(key, str) for key in rule):
            raise InputError(f"rules.{name}: got {_kind(rule)}; write keys and values, such as label: person")
        rules.append(_with_text_labels({"name": _name(name, "rules"), **rule}))
    return tuple(rules)


def _with_text_labels(rule: dict[str, Any]) -> dict[str, Any]:
    """Return a rule whose labels are texts, although one such as 3 is written without quotes."""
    value = rule.get("label")
    if isinstance(value, list):
        return {**rule, "label": [str(each) if type(each) is int else each for each in value]}
    return {**rule, "label": str(value)} if type(value) is int else rule


def _sinks(value: Any, folder: str) -> tuple[SinkConfig, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise InputError(f"sinks: got {_kind(value)}; write a list of addresses")
    return tuple(_sink(each, f"sinks[{number}]", folder) for number, each in enumerate(value))


def _sink(value: Any, where: str, folder: str) -> SinkConfig:
    if isinstance(value, str):
        return SinkConfig(_address(value, where, folder))
    if not isinstance(value, dict) or "to" not in value or not all(isinstance(key, str) for key in value):
        raise InputError(f"{where}: got {_kind(value)}; write an address, or {{to: ADDRESS}} with options")
    options = {key: _option(key, each, where, folder) for key, each in value.items() if key != "to"}
    return SinkConfig(_address(value["to"], f"{where}.to", folder), options)


def _page(value: Any, folder: str) -> PageConfig:
    if isinstance(value, (int, str)) and not isinstance(value, bool):
        return parse_page(str(value))
    given = check_keys(value, ("address", "token_file"), "page")
    token = given.get("token_file")
    return parse_page(str(given.get("address", "")), None if token is None else _path(token, "page.token_file", folder))


def _option(key: str, value: Any, where: str, folder: str) -> Any:
    return _path(value, f"{where}.{key}", folder) if key.endswith("_file") and value is not None else value


def _address(value: Any, where: str, folder: str) -> str:
    if not isinstance(value, str) or not value:
        raise InputError(f"{where}: got {_kind(value)}; use an address, such as v4l2:/dev/video0, or a path")
    from edgekit.device.live.sources import MODULES

    scheme = SCHEME.match(value)
    if value in MODULES or (scheme and scheme[1] not in PATH_SCHEMES):
        return value
    prefix, rest = (f"{scheme[1]}:", value[scheme.end() :]) if scheme else ("", value)
    return value if rest in ("-", "") else prefix + os.path.join(folder, os.path.expanduser(rest))


def _path(value: Any, where: str, folder: str) -> str:
    if not isinstance(value, str) or not value:
        raise InputError(f"{where}: got {_kind(value)}; use a path")
    return value if value == "current" else os.path.join(folder, os.path.expanduser(value))


def _name(value: Any, where: str) -> str:
    if not isinstance(value, str) or not NAME.fullmatch(value):
        raise InputError(f"{where}: got the name {str(value)[:70]!r}; use letters, digits, _, - and . (up to 64)")
    return value


def _check_unique(names: Sequence[str], where: str) -> None:
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{where}: the name {name!r} is used twice; name them, as in --from door=rtsp://…")


def _list(names: Iterable[str]) -> str:
    return ", ".join(names)


def _kind(value: Any) -> str:
    """Describe a value without showing a text, which may hold a password."""
    if value is None:
        return "nothing"
    if isinstance(value, (bool, int, float)):
        return json.dumps(value)
    names: dict[type, str] = {dict: "keys and values", list: "a list", str: "a text"}
    return names.get(type(value), type(value).__name__)
