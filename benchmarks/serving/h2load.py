"""One connection, one request at a time, by `h2load`, which speaks HTTP/1.1, gRPC's HTTP/2 and Unix sockets alike."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass

from benchmarks.environments import NotRun
from benchmarks.serving.machine import HOME, cores, pinned, tool
from benchmarks.serving.wrk import Post


@dataclass(frozen=True)
class Alone:
    """Milliseconds of each request."""

    ms: list[float]


def run(name: str, address: str, post: Post, count: int, http2: bool = False) -> Alone:
    """`count` requests; NotRun where one was not answered by 2xx. `address` is a URL or `unix:PATH`."""
    folder = HOME / "load"
    folder.mkdir(parents=True, exist_ok=True)
    body, log = folder / f"{name}.body", folder / f"{name}.tsv"
    body.write_bytes(post.body)
    log.unlink(missing_ok=True)
    where = ["-B", address, f"http://localhost{post.path}"] if address.startswith("unix:") else [address + post.path]
    headers = [word for key, value in post.headers.items() for word in ("-H", f"{key}: {value}")]
    words = [tool("h2load", "nghttp2-client"), "-c1", "-m1", "-t1", f"-n{count}", "-d", str(body), f"--log-file={log}"]
    words += [*headers, *([] if http2 else ["--h1"]), *where]
    done = subprocess.run(pinned(cores()[1], words), capture_output=True, text=True, timeout=120)
    if done.returncode or not log.is_file():
        raise NotRun(f"{name}: h2load ended with exit code {done.returncode}: {(done.stderr or done.stdout)[-300:]}")
    return read(name, log.read_text(), count)


def read(name: str, text: str, count: int) -> Alone:
    """Lines of start, status and microseconds."""
    rows = [line.split("\t") for line in text.splitlines()]
    bad = [row[1] for row in rows if not row[1].startswith("2")]
    if bad or len(rows) != count:
        raise NotRun(f"{name}: {len(rows)} of {count} were answered, {len(bad)} of them not by 2xx: {bad[:3]}")
    return Alone([int(row[2]) / 1e3 for row in rows])
