"""`edgerun serve`: replace this process by the server `edgekit.serve`, which needs packages of its own.

Each setting of the server is declared once, as a field of `Settings`, which also defines its command-line option.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from typing import Any, NoReturn

from edgekit.runner.commands import _shared
from edgekit.runner.errors import BackendError, InputError

HELP = "serve bundles over HTTP, by the Open Inference Protocol v2"
PACKAGES: tuple[str, ...] = ("uvicorn", "httptools", "uvloop", "orjson", "prometheus_client")
GRPC_PACKAGES = ("grpc", "google.protobuf")
TRACE_PACKAGES = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
PIP_NAMES = {
    "grpc": "grpcio",
    "google.protobuf": "protobuf",
    **{package: package.replace(".", "-") for package in TRACE_PACKAGES},
}
"""Module -> name for pip, where the two differ."""
MOST_WORKERS = 256
UVICORN = "0.54"
"""The release whose connection class `edgekit.serve.connection` extends. Other releases may change that class."""


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"got {text}; use a whole number from 0 to 65535")
    return int(text)


def _port_or_none(text: str) -> int:
    return -1 if text == "none" else _port(text)


def _workers(text: str) -> int:
    value = _shared.positive(text)
    if value > MOST_WORKERS:
        raise argparse.ArgumentTypeError(f"got {text}; use a whole number from 1 to {MOST_WORKERS}")
    return value


def _milliseconds(text: str) -> float:
    return _number(text, 3_600_000)


def _seconds(text: str) -> float:
    return _number(text, 3600)


def _body_bytes(text: str) -> int:
    return _shared.positive(text) << 20


def _cache_bytes(text: str) -> int:
    if not text.isdecimal() or int(text[:9]) > 1 << 20:
        raise argparse.ArgumentTypeError(f"got {text}; use a whole number from 0 to {1 << 20}")
    return int(text) << 20


def _per_second(text: str) -> float:
    return float(_shared.positive(text))


def _lifetime(text: str) -> float:
    value = _number(text, 31 * 86400)
    if value < 0.001:
        raise argparse.ArgumentTypeError(f"got {text}; use a number of seconds from 0.001")
    return value


def _redis(text: str) -> str:
    if "://" not in text:
        if not os.path.isfile(text):
            raise argparse.ArgumentTypeError(f"got {text}; use redis://HOST:PORT, or a file that holds such a URL")
        return os.path.abspath(text)
    if not is_redis(text):  # the text may hold a password, so the message leaves it out
        raise argparse.ArgumentTypeError("use redis://HOST:PORT, rediss://… for TLS, or unix:///PATH, without a query")
    if "@" in text:
        raise argparse.ArgumentTypeError(
            "every user of this machine can read a command line; write the URL with its password to a file that only "
            "you may read, and give that file"
        )
    return text


def is_redis(text: str) -> bool:
    """Return whether a text is the URL of a Redis server."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(text)
        is_valid = parts.scheme == "unix" if parts.path and not parts.hostname else bool(parts.hostname)
        return is_valid and not parts.query and parts.scheme in ("redis", "rediss", "unix") and parts.port != 0
    except ValueError:
        return False


def _collector(text: str) -> str:
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(text)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_valid = False
    if (
        not is_valid or not text.isprintable() or " " in text or "@" in text or parts.query or parts.fragment
    ):  # the text may hold a password, so the message leaves it out
        raise argparse.ArgumentTypeError(
            "use http://HOST:PORT or https://…, with the path if it is not /v1/traces; "
            "headers that the collector requires go into OTEL_EXPORTER_OTLP_HEADERS"
        )
    return text


def _share(text: str) -> float:
    return _number(text, 1)


def _number(text: str, most: float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= most:
        raise argparse.ArgumentTypeError(f"got {text}; use a number from 0 to {most:g}")
    return value


def _option(
    heading: str, flag: str, default: Any, text: str, parse: Callable[[str], Any] = str, metavar: str | None = None
) -> Any:
    """Return a field of `Settings` that a command-line option sets.

    `parse` reads the option's value. If the default is a bool, the option is a switch without a value.
    """
    takes = {"action": f"store_{not default}".lower()} if isinstance(default, bool) else {"type": parse}
    shown = {} if metavar is None else {"metavar": metavar}
    # The default is None in place of "", because argparse would also parse an empty default.
    option = {"default": default if default != "" else None, "help": text, **takes, **shown}
    return field(default=default, metadata={"heading": heading, "flag": flag, "option": option})


@dataclass(frozen=True)
class Settings:
    """Settings of a server. Fields without an option keep their default, except in tests.

    An admin or gRPC port of -1 means that the port is not opened, and a `deadline_ms` of 0 means no deadline.
    `most_json_bytes` limits the JSON of a request, because parsed JSON takes up to thirty times the memory of its text.
    `cache_bytes` is the size of each worker's cache.
    """

    bundles: tuple[str, ...]

    host: str = _option("where", "--host", "127.0.0.1", "address to listen on (default: 127.0.0.1)")
    port: int = _option("where", "--port", 8000, "port; 0 takes a free one (default: 8000)", _port)
    uds: str = _option("where", "--uds", "", "a Unix socket in place of host and port", metavar="PATH")
    admin_host: str = _option(
        "where", "--admin-host", "127.0.0.1", "address of the admin port (default: 127.0.0.1)", metavar="HOST"
    )
    admin_port: int = _option(
        "where", "--admin-port", 8002,
        "port of the metrics and of the model repository; 0 takes a free one, none opens none (default: 8002)",
        _port_or_none, "PORT",
    )  # fmt: skip
    grpc_port: int = _option(
        "where", "--grpc-port", -1,
        "port of the same models over gRPC, on --host; 0 takes a free one (default: none)", _port_or_none, "PORT",
    )  # fmt: skip

    workers: int = _option("how", "--workers", 1, "number of processes (default: 1)", _workers, "N")
    threads: int = _option("how", "--threads", 1, "threads of each interpreter (default: 1)", _shared.thread_count, "N")
    interpreter: str = _option(
        "how", "--interpreter", "", "default: the fastest, by measurement", _shared.interpreter_name, "NAME"
    )
    batch: bool = _option("how", "--no-batch", True, "run one sample in each call, even if batches are faster")
    queue_delay_ms: float = _option(
        "how", "--queue-delay-ms", 0.0,
        "how long to wait for a batch to fill, if batches are faster (default: 0)", _milliseconds, "MS",
    )  # fmt: skip

    deadline_ms: float = _option(
        "limits",
        "--deadline-ms",
        0.0,
        "deadline of requests that set none; 0: no deadline (default: 0)",
        _milliseconds,
        "MS",
    )
    queue: int = _option(
        "limits", "--queue", 256, "number of samples that may wait (default: 256)", _shared.positive, "N"
    )
    most_body_bytes: int = _option(
        "limits", "--max-body-mb", 64 << 20, "largest size of a request (default: 64)", _body_bytes, "MB"
    )
    most_connections: int = _option(
        "limits", "--max-connections", 1024, "connections of each worker (default: 1024)", _shared.positive, "N"
    )
    receive_s: float = _option(
        "limits", "--receive-s", 15.0, "time within which a request must arrive completely (default: 15)", _seconds, "S"
    )
    drain_s: float = _option(
        "limits", "--drain-s", 2.0,
        "how long to answer new requests after SIGTERM, while reporting not ready (default: 2)", _seconds, "S",
    )  # fmt: skip
    most_json_bytes: int = 8 << 20
    most_header_bytes: int = 64 << 10
    keep_alive_s: float = 75.0
    stop_s: float = 30.0

    cache_bytes: int = _option(
        "cache of answers",
        "--cache-mb",
        0,
        "size of the cache of each worker; 0: no cache (default: 0)",
        _cache_bytes,
        "MB",
    )
    cache_ttl_s: float = _option(
        "cache of answers", "--cache-ttl-s", 60.0, "how long an answer is kept (default: 60)", _lifetime, "S"
    )
    cache_redis: str = _option(
        "cache of answers", "--cache-redis", "",
        "redis://HOST:PORT of a Redis that is queried after the cache, if running the model takes longer than the "
        "query; or a file that holds such a URL with its password; needs --cache-mb", _redis, "URL",
    )  # fmt: skip

    trace_to: str = _option(
        "traces", "--trace-to", "",
        "http://HOST:4318 of an OpenTelemetry collector, to which spans are sent over OTLP/HTTP (default: none)",
        _collector, "URL",
    )  # fmt: skip
    trace_share: float = _option(
        "traces", "--trace-share", 0.01,
        "share of requests to trace if the client does not decide, from 0 to 1 (default: 0.01)", _share, "SHARE",
    )  # fmt: skip

    watch: bool = _option(
        "monitoring", "--watch", False,
        "compare samples and answers with those of the bundle's validation, and run its golden samples again",
    )  # fmt: skip
    watch_per_s: float = _option(
        "monitoring", "--watch-per-s", 20.0,
        "largest number of samples of each model that a worker examines in a second (default: 20)", _per_second, "N",
    )  # fmt: skip
    canary_s: float = _option(
        "monitoring", "--canary-s", 60.0,
        "time in which all golden samples are run again; 0: never (default: 60)", _seconds, "S",
    )  # fmt: skip

    token_file: str = _option(
        "access", "--token-file", "", "file of the tokens that clients must send, one per line", metavar="FILE"
    )
    certificate: str = _option("access", "--certificate", "", "certificate for TLS, with --key", metavar="PEM")
    key: str = _option("access", "--key", "", "private key for TLS, with --certificate", metavar="PEM")

    def to_json(self) -> str:
        """Return the settings as JSON for the server.

        The server reads them from a descriptor, because every user of the machine can read a command line.
        """
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str | bytes) -> Settings:
        """Parse the output of `to_json`."""
        values = json.loads(text)
        return Settings(**{**values, "bundles": tuple(values["bundles"])})


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument("bundles", metavar="BUNDLE", nargs="+", help="files that end in .edge.zip, or folders of them")
    groups: dict[str, Any] = {}
    for setting in fields(Settings):
        if setting.metadata:
            heading = setting.metadata["heading"]
            group = groups[heading] = groups.get(heading) or parser.add_argument_group(heading)
            group.add_argument(setting.metadata["flag"], dest=setting.name, **setting.metadata["option"])


def run(options: argparse.Namespace) -> NoReturn:
    """Replace this process by the server. Raises BackendError if that is not possible."""
    if sys.platform != "linux":
        raise BackendError(
            "serve needs Linux; run it in WSL 2, in a container (docs/how-to/container.md) or on a device"
        )
    settings = _settings(options)
    _check_packages(_required_packages(settings))
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (_home(), os.environ.get("PYTHONPATH"))))
    descriptor = os.memfd_create("edgekit-settings", 0)  # a file without a path that stays open in the server
    with open(descriptor, "w", closefd=False) as stream:
        stream.write(settings.to_json())
    command = [sys.executable, "-P", "-m", "edgekit.serve", str(descriptor)]
    sys.stdout.flush()
    try:
        os.execve(sys.executable, command, environment)
    except OSError as error:
        raise BackendError(f"{sys.executable}: cannot be started again: {error.strerror or error}") from None


def _settings(options: argparse.Namespace) -> Settings:
    """Return the settings. Raises InputError if two options do not go together."""
    options_given = {each.name: getattr(options, each.name) for each in fields(Settings) if each.metadata}
    values = {name: value for name, value in options_given.items() if value is not None}
    settings = Settings(tuple(os.path.abspath(path) for path in options.bundles), **values)
    if settings.uds and (settings.port != 8000 or settings.host != "127.0.0.1"):
        raise InputError("--uds replaces --host and --port; leave them out")
    if settings.cache_redis and not settings.cache_bytes:
        raise InputError("--cache-redis extends the cache of the process; add --cache-mb, for example 64")
    return settings


def _required_packages(settings: Settings) -> tuple[str, ...]:
    """Return the packages that these settings use."""
    packages = PACKAGES
    if settings.cache_bytes:
        packages += ("cachetools",)
    if settings.cache_redis:
        packages += ("redis",)
    if settings.trace_to:
        packages += TRACE_PACKAGES
    return packages if settings.grpc_port < 0 else packages + GRPC_PACKAGES


def _check_packages(packages: tuple[str, ...]) -> None:
    """Raise BackendError with the command that installs what is missing. The packages are not imported."""
    if sys.version_info < (3, 11):
        raise BackendError("serve needs Python 3.11 or newer, but this is {}.{}".format(*sys.version_info))
    missing = [package for package in packages if not _is_installed(package)]
    if missing:
        names = " ".join(PIP_NAMES.get(package, package).replace("_", "-") for package in missing)
        raise BackendError(f"serve needs {', '.join(missing)}; run: {sys.executable} -m pip install {names}")
    _check_uvicorn()


def _check_uvicorn() -> None:
    """Raise BackendError if uvicorn is not of the release `UVICORN`, because the connection class may have changed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        installed = version("uvicorn")
    except PackageNotFoundError:  # uvicorn was copied without its metadata
        from importlib import import_module

        installed = str(import_module("uvicorn").__version__)
    if installed.split(".")[:2] != UVICORN.split("."):
        raise BackendError(
            f"serve needs uvicorn {UVICORN}, but this is {installed}; "
            f"run: {sys.executable} -m pip install uvicorn~={UVICORN}.0"
        )


def _is_installed(package: str) -> bool:
    """Return whether a package is installed.

    To look for `google.protobuf`, Python imports `google`, and raises ModuleNotFoundError if that is missing.
    """
    from importlib.util import find_spec

    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:
        return False


def _home() -> str:
    """Return the folder or archive that holds the package edgekit, with the server in it."""
    import edgekit

    return os.path.dirname(os.path.dirname(os.path.abspath(edgekit.__file__)))
