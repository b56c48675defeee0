"""Real servers on free ports, with the handmade bundles of the runner's tests."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.runner.conftest import Made, bundles, made, manifest_for, members_for, reference, samples  # noqa: F401
from tests.serve.server import Server

Start = Callable[..., Server]
KEYS = {"tflite": "tiny-tflite", "openvino": "tiny-openvino", "onnx": "tiny-onnx"}
"""Which bundle is served under which name, where all three are."""


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """`start(*paths, *flags)` gives a server that is ready; it is stopped, and has written no traceback, at the end."""
    running: list[Server] = []

    def begin(*arguments: object, ready: bool = True) -> Server:
        server = Server.start(tmp_path_factory.mktemp("server"), *map(str, arguments))
        running.append(server)
        if ready:
            server.wait_ready()
        return server

    yield begin
    for server in running:
        server.stop()
    for server in running:
        assert "Traceback" not in server.said(), server.said()
        assert "internal error" not in server.said(), server.said()


@pytest.fixture(scope="session")
def folder(bundles: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:  # noqa: F811
    """The tiny network in float for all three targets, one name and one version."""
    made_here = tmp_path_factory.mktemp("served")
    for key in KEYS:
        shutil.copy(bundles[key], made_here)
    return made_here
