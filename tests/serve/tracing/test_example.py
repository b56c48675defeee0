"""The script of docs/how-to/tracing.md, run as it stands: one trace from a client to the interpreter."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import ROOT
from tests.docs import scene
from tests.runner.conftest import samples as images
from tests.serve.conftest import Start
from tests.serve.tracing.collector import CLIENT, INTERNAL, SERVER, Collector, Span, collecting

pytestmark = pytest.mark.processes

PAGE = ROOT / "docs/how-to/tracing.md"


def test_the_page_s_script_opens_a_trace_from_the_client_to_the_interpreter(
    start: Start, folder: Path, tmp_path: Path
) -> None:
    scene.written(PAGE, tmp_path)
    np.save(tmp_path / "sample.npy", images(1)[0])
    script = tmp_path / "ask_traced.py"
    [path] = folder.glob("*tflite*")
    with collecting() as collector:
        server = start(path, "--trace-to", collector.url, "--trace-share", "0")
        text = script.read_text()
        for old, new in (
            ("http://127.0.0.1:4318", collector.url),
            ("localhost:8000", server.url),
            ("/digits/", "/tiny/"),
        ):
            assert old in text
            text = text.replace(old, new)
        script.write_text(text)
        done = subprocess.run([sys.executable, script.name], cwd=tmp_path, capture_output=True, text=True, check=True)
        collector.wait()
        collector.until(lambda: len(collector.spans) == 9)
    trace = done.stdout.split()[1]
    assert {span.trace for span in collector.spans} == {trace}
    [root] = [span for span in collector.spans if not span.parent]
    assert (root.name, root.resource["service.name"]) == ("look at a picture", "camera")
    assert tree(collector, root) == shown()
    [request] = collector.requests()
    [call] = [span for span in collector.spans if span.name == "execute"]
    assert (request.parent, call.parent) == (root.id, request.id)
    assert request.resource["service.name"] == "edgekit"
    assert request.attributes["edgekit.interpreter"] == "litert"
    assert root.began <= request.began <= call.began <= call.ended <= request.ended
    assert call.ended <= root.ended, "the client may be done a moment before the server is"
    assert {root.kind, request.kind, call.kind} <= {SERVER, INTERNAL, CLIENT}


def tree(collector: Collector, span: Span) -> list[str]:
    """Names, each below its parent, in the order of time."""
    return [span.name, *(name for child in collector.children(span) for name in tree(collector, child))]


def shown() -> list[str]:
    """The tree that the page shows."""
    block = PAGE.read_text().partition("```text\n")[2].partition("```")[0]
    return [line.lstrip(" │├└─").split("   ")[0].strip() for line in block.splitlines()]
