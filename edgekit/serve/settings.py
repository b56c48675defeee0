"""What a server was asked for, handed from process to process as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Settings:
    """Of one server. Port -1 of admin or gRPC opens none; `deadline_ms` 0 sets none; `uds` replaces host and port.

    `most_json_bytes` are of a request's JSON, which takes up to thirty times its bytes once it is parsed.
    `cache_bytes` are of each worker, 0 caches nothing; `cache_redis` is a URL without a password, or a file with one.
    `trace_to` is a collector's URL, empty where nothing is traced; `trace_share` of requests without a parent are.
    """

    bundles: tuple[str, ...]
    host: str = "127.0.0.1"
    port: int = 8000
    uds: str = ""
    admin_host: str = "127.0.0.1"
    admin_port: int = 8002
    grpc_port: int = -1
    workers: int = 1
    threads: int = 1
    interpreter: str = ""
    deadline_ms: float = 0.0
    queue: int = 256
    queue_delay_ms: float = 0.0
    batch: bool = True
    most_body_bytes: int = 64 << 20
    most_json_bytes: int = 8 << 20
    most_header_bytes: int = 64 << 10
    most_connections: int = 1024
    receive_s: float = 15.0
    keep_alive_s: float = 75.0
    drain_s: float = 2.0
    stop_s: float = 30.0
    token_file: str = ""
    certificate: str = ""
    key: str = ""
    cache_bytes: int = 0
    cache_ttl_s: float = 60.0
    cache_redis: str = ""
    trace_to: str = ""
    trace_share: float = 0.01
    watch: bool = False
    watch_per_s: float = 20.0
    canary_s: float = 60.0

    def to_json(self) -> str:
        """For another process."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Settings:
        """What `to_json` gave."""
        values = json.loads(text)
        return Settings(**{**values, "bundles": tuple(values["bundles"])})
