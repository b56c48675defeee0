"""`edgerun serve`: bundles behind a socket. The server is `edgekit.serve`, a process with packages of its own."""

from __future__ import annotations

import argparse
import json
import os
import sys

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
"""Where the package is not called like the module."""
MOST_WORKERS = 256
UVICORN = "0.54"
"""The release whose connection `edgekit.serve.protocol` changes from within: uvicorn has no public way to do that."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("bundles", metavar="BUNDLE", nargs="+", help="files that end in .edge.zip, or folders of them")
    where = parser.add_argument_group("where")
    where.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    where.add_argument("--port", type=_port, default=8000, help="port; 0 takes a free one (default: 8000)")
    where.add_argument("--uds", metavar="PATH", default="", help="a Unix socket in place of host and port")
    where.add_argument(
        "--admin-host", metavar="HOST", default="127.0.0.1", help="of the second port (default: 127.0.0.1)"
    )
    where.add_argument(
        "--admin-port", metavar="PORT", type=_port_or_none, default=8002,
        help="metrics and the repository; 0 takes a free one, none opens none (default: 8002)",
    )  # fmt: skip
    where.add_argument(
        "--grpc-port", metavar="PORT", type=_port_or_none, default=-1,
        help="the same models over gRPC, on --host; 0 takes a free one (default: none)",
    )  # fmt: skip
    how = parser.add_argument_group("how")
    how.add_argument("--workers", metavar="N", type=_workers, default=1, help="processes (default: 1)")
    how.add_argument("--threads", metavar="N", type=_shared.threads, default=1, help="of each interpreter (default: 1)")
    how.add_argument("--interpreter", metavar="NAME", type=_shared.known, help="default: the fastest, measured")
    how.add_argument("--no-batch", action="store_true", help="one sample a call, whatever was measured")
    how.add_argument(
        "--queue-delay-ms", metavar="MS", type=_milliseconds, default=0.0,
        help="wait so long for a batch to fill, where batching pays (default: 0)",
    )  # fmt: skip
    bounds = parser.add_argument_group("limits")
    bounds.add_argument(
        "--deadline-ms", metavar="MS", type=_milliseconds, default=0.0,
        help="of requests that name none; 0 sets none (default: 0)",
    )  # fmt: skip
    bounds.add_argument(
        "--queue", metavar="N", type=_shared.positive, default=256, help="samples that may wait (default: 256)"
    )
    bounds.add_argument(
        "--max-body-mb", metavar="MB", type=_shared.positive, default=64, help="of a request (default: 64)"
    )
    bounds.add_argument(
        "--max-connections", metavar="N", type=_shared.positive, default=1024, help="of each worker (default: 1024)"
    )
    bounds.add_argument(
        "--receive-s", metavar="S", type=_seconds, default=15.0, help="until a request must be whole (default: 15)"
    )
    bounds.add_argument(
        "--drain-s", metavar="S", type=_seconds, default=2.0,
        help="after SIGTERM, answer new requests so long while not ready (default: 2)",
    )  # fmt: skip
    cache = parser.add_argument_group("cache of answers")
    cache.add_argument(
        "--cache-mb", metavar="MB", type=_megabytes, default=0, help="of each worker; 0 caches nothing (default: 0)"
    )
    cache.add_argument(
        "--cache-ttl-s", metavar="S", type=_lifetime, default=60.0, help="how long an answer is kept (default: 60)"
    )
    cache.add_argument(
        "--cache-redis", metavar="URL", type=_redis,
        help="redis://HOST:PORT behind the cache, where executing takes longer than asking it, or a file that holds "
        "such a URL with its password; needs --cache-mb",
    )  # fmt: skip
    traces = parser.add_argument_group("traces")
    traces.add_argument(
        "--trace-to", metavar="URL", type=_collector,
        help="http://HOST:4318 of a collector of OpenTelemetry, which gets spans over OTLP/HTTP (default: none)",
    )  # fmt: skip
    traces.add_argument(
        "--trace-share", metavar="SHARE", type=_share, default=0.01,
        help="of the requests whose client does not decide, from 0 to 1 (default: 0.01)",
    )  # fmt: skip
    watch = parser.add_argument_group("is it still right?")
    watch.add_argument(
        "--watch", action="store_true",
        help="hold samples and answers against the bundle's validation, and ask its golden vectors again",
    )  # fmt: skip
    watch.add_argument(
        "--watch-per-s", metavar="N", type=_shared.positive, default=20,
        help="samples of each model that a worker looks at in a second, at most (default: 20)",
    )  # fmt: skip
    watch.add_argument(
        "--canary-s", metavar="S", type=_seconds, default=60.0,
        help="all golden vectors are asked again in so long; 0 asks none (default: 60)",
    )  # fmt: skip
    access = parser.add_argument_group("access")
    access.add_argument("--token-file", metavar="FILE", default="", help="tokens that clients must send, one a line")
    access.add_argument("--certificate", metavar="PEM", default="", help="for TLS, with --key")
    access.add_argument("--key", metavar="PEM", default="", help="for TLS, with --certificate")


def run(options: argparse.Namespace) -> None:
    """Become the server; comes back only where it cannot start."""
    if sys.platform != "linux":
        raise BackendError(
            "serve needs Linux; run it in WSL 2, in a container (docs/how-to/container.md) or on a device"
        )
    _check_packages(_needed(options))
    home = _home()
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (home, os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-P", "-m", "edgekit.serve", json.dumps(_settings(options))]
    sys.stdout.flush()
    try:
        os.execve(sys.executable, command, environment)
    except OSError as error:
        raise BackendError(f"{sys.executable}: cannot be started again: {error.strerror or error}") from None


def _needed(options: argparse.Namespace) -> tuple[str, ...]:
    """Packages that these options use."""
    found = PACKAGES
    if options.cache_mb:
        found += ("cachetools",)
    if options.cache_redis:
        found += ("redis",)
    if options.trace_to:
        found += TRACE_PACKAGES
    return found if options.grpc_port < 0 else found + GRPC_PACKAGES


def _check_packages(packages: tuple[str, ...]) -> None:
    """BackendError with the line that installs what is missing; nothing of it is imported."""
    if sys.version_info < (3, 11):
        raise BackendError("serve needs Python 3.11 or newer, this is {}.{}".format(*sys.version_info))
    missing = [package for package in packages if not _is_there(package)]
    if missing:
        names = " ".join(PIP_NAMES.get(package, package).replace("_", "-") for package in missing)
        raise BackendError(f"serve needs {', '.join(missing)}; run: {sys.executable} -m pip install {names}")
    _check_uvicorn()


def _check_uvicorn() -> None:
    """BackendError for a uvicorn of another release: its connection works otherwise inside."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        found = version("uvicorn")
    except PackageNotFoundError:  # it was copied without its metadata
        from importlib import import_module

        found = str(import_module("uvicorn").__version__)
    if found.split(".")[:2] != UVICORN.split("."):
        raise BackendError(
            f"serve needs uvicorn {UVICORN}, this is {found}; run: {sys.executable} -m pip install uvicorn~={UVICORN}.0"
        )


def _is_there(package: str) -> bool:
    """For `google.protobuf` Python imports `google`, which holds nothing; where there is none, it raises."""
    from importlib.util import find_spec

    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:
        return False


def _home() -> str:
    """The folder or archive that holds the package edgekit, with the server in it."""
    import edgekit

    home = os.path.dirname(os.path.dirname(os.path.abspath(edgekit.__file__)))
    return home


def _settings(options: argparse.Namespace) -> dict[str, object]:
    """As `edgekit.serve.settings.Settings` takes them."""
    if options.uds and (options.port != 8000 or options.host != "127.0.0.1"):
        raise InputError("--uds replaces --host and --port; leave them out")
    if options.cache_redis and not options.cache_mb:
        raise InputError("--cache-redis stands behind the cache in the process; add --cache-mb, for example 64")
    return {
        "bundles": [os.path.abspath(path) for path in options.bundles],
        "host": options.host,
        "port": options.port,
        "uds": options.uds,
        "admin_host": options.admin_host,
        "admin_port": options.admin_port,
        "grpc_port": options.grpc_port,
        "workers": options.workers,
        "threads": options.threads,
        "interpreter": options.interpreter or "",
        "deadline_ms": options.deadline_ms,
        "queue": options.queue,
        "queue_delay_ms": options.queue_delay_ms,
        "batch": not options.no_batch,
        "most_body_bytes": options.max_body_mb << 20,
        "most_connections": options.max_connections,
        "receive_s": options.receive_s,
        "drain_s": options.drain_s,
        "token_file": options.token_file,
        "certificate": options.certificate,
        "key": options.key,
        "cache_bytes": options.cache_mb << 20,
        "cache_ttl_s": options.cache_ttl_s,
        "cache_redis": options.cache_redis or "",
        "trace_to": options.trace_to or "",
        "trace_share": options.trace_share,
        "watch": options.watch,
        "watch_per_s": float(options.watch_per_s),
        "canary_s": options.canary_s,
    }


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


def _megabytes(text: str) -> int:
    if not text.isdecimal() or int(text[:9]) > 1 << 20:
        raise argparse.ArgumentTypeError(f"got {text}; use a whole number from 0 to {1 << 20}")
    return int(text)


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
    if not is_redis(text):  # what was given may hold a password, and is not repeated
        raise argparse.ArgumentTypeError("use redis://HOST:PORT, rediss://… for TLS, or unix:///PATH, without a query")
    if "@" in text:
        raise argparse.ArgumentTypeError(
            "every user of this machine may read a command line; write the URL with its password to a file that only "
            "you may read, and give that file"
        )
    return text


def is_redis(text: str) -> bool:
    """Whether a text is the URL of a Redis."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(text)
        sound = parts.scheme == "unix" if parts.path and not parts.hostname else bool(parts.hostname)
        return sound and not parts.query and parts.scheme in ("redis", "rediss", "unix") and parts.port != 0
    except ValueError:
        return False


def _collector(text: str) -> str:
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(text)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        sound = False
    if (
        not sound or not text.isprintable() or " " in text or "@" in text or parts.query or parts.fragment
    ):  # it may hold a password, and is not repeated
        raise argparse.ArgumentTypeError(
            "use http://HOST:PORT or https://…, with the path where it is not /v1/traces; "
            "what the collector asks for goes into OTEL_EXPORTER_OTLP_HEADERS"
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
