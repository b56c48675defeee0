"""All that watches at once, and all that it leans on failing at once: answers stay right, memory stays bounded.

The server is watched and traced, its disk is full, its collector takes connections and says nothing, and it is scraped
without pause. Clients ask for models and paths that nobody has heard of. `EDGEKIT_SOAK_S` makes it longer.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.serve.checking_clients import checking_clients, own_answers
from tests.serve.full_disk import ServerOnDisk
from tests.serve.memory import Watch
from tests.serve.tracing.collector import answering_port
from tests.serve.watched import with_reference

pytestmark = pytest.mark.processes

SECONDS = float(os.environ.get("EDGEKIT_SOAK_S") or 30)
WARM_S = 5.0
MOST_GROWTH_KB = 2048
"""Of the second half, by its trend: the queue of spans fills once, and what allocators keep levels off."""
MOST_SERIES = 1000
WATCHED = ("--watch", "--watch-per-s", 500, "--canary-s", 2, "--trace-share", 1, "--cache-mb", 1, "--workers", 1)


@contextmanager
def repeating(step: Callable[[int], None]) -> Iterator[list[str]]:
    """Do it without pause beside what the block does; what went wrong is in the list."""
    ended, failed = threading.Event(), list[str]()

    def run() -> None:
        number = 0
        while not ended.is_set() and not failed:
            try:
                step(number)
            except Exception as error:
                failed.append(repr(error))
            number += 1

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield failed
    finally:
        ended.set()
        thread.join()


def test_a_server_that_is_watched_answers_right_and_does_not_grow_whatever_fails(
    bundles: dict[str, Path], tmp_path: Path
) -> None:
    bundle = with_reference(Path(shutil.copy(bundles["onnx"], tmp_path / "tiny.edge.zip")))
    expected = own_answers(bundle)
    with answering_port(b"") as (collector, made):
        server = ServerOnDisk.begin(tmp_path / "disk", bundle, *WATCHED, "--trace-to", collector, full=True)
        try:
            server.wait_ready()

            def scrape(number: int) -> None:
                assert server.ask("GET", "/metrics", url=server.admin).status == 200
                time.sleep(0.1)

            def unheard_of(number: int) -> None:
                path = f"/v2/models/nobody-{number}/infer" if number % 2 else f"/elsewhere/{number}"
                assert server.ask(
                    "POST", path, b"{}", {"traceparent": f"00-{number:032x}-{number:016x}-01"}
                ).status in (404, 405)

            with (
                repeating(scrape) as scraped,
                repeating(unheard_of) as unknown_paths,
                checking_clients(server.url, expected) as clients,
            ):
                time.sleep(WARM_S)
                watch = Watch([server.process.pid, *server.workers], 0.25)
                watch.start()
                time.sleep(SECONDS)
                growth = watch.end()
                clients.wait_for_more(50)
            text = server.ask("GET", "/metrics", url=server.admin).body.decode()
        finally:
            server.stop()
    assert (scraped, unknown_paths, clients.broken) == ([], [], [])
    assert made, "nothing was sent to the collector"
    series = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    assert len(series) < MOST_SERIES
    refused = sum(each.value for each in series if each.name == "edgekit_refused_total")
    assert refused > 100, "strange requests are counted too"
    right = {each.name: each.value for each in series if each.labels.get("model") == "tiny"}
    assert right["edgekit_canary_failures_total"] == 0 < right["edgekit_canary_runs_total"]
    print({"growth_kb": {pid: round(kb) for pid, kb in growth.items()}, "right": len(clients.right)})
    assert max(growth.values()) < MOST_GROWTH_KB, growth
    assert np.isfinite(list(growth.values())).all()
