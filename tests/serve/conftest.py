"""Real servers on free ports, with the handmade bundles of the runner's tests."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from edgekit.runner import bundle, input_path
from tests.runner import flat
from tests.runner.conftest import bundles, models  # noqa: F401  (fixtures: the tiny network for each target)
from tests.serve.server import Server

RECORDING = dataclasses.replace(
    flat.SOUND,
    input_path=({"step": "decode_wav"}, {"step": "resample", "rate_hz": 8000}, input_path.windows_step(400, 400)),
)
TABLE = dataclasses.replace(flat.WINDOW, input_path=({"step": "decode_csv"}, input_path.windows_step(4, 4)))
"""Samples that are cut from files of any length."""
Start = Callable[..., Server]
KEYS = {"tflite": "tiny-tflite", "openvino": "tiny-openvino", "onnx": "tiny-onnx"}
"""Which bundle is served under which name, where all three are."""


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """`start(*paths, *flags)` gives a server that is ready; it is stopped, and has written no traceback, at the end."""
    running: list[Server] = []

    def begin(*arguments: object, ready: bool = True, **environment: str) -> Server:
        server = Server.start(tmp_path_factory.mktemp("server"), *map(str, arguments), **environment)
        running.append(server)
        if ready:
            server.wait_ready()
        return server

    yield begin
    for server in running:
        server.ask_to_end()
    for server in running:
        server.stop()
    for server in running:
        assert "Traceback" not in server.log_text(), server.log_text()
        assert "internal error" not in server.log_text(), server.log_text()


@pytest.fixture(scope="session")
def folder(bundles: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:  # noqa: F811
    """The tiny network in float for all three targets, one name and one version."""
    made_here = tmp_path_factory.mktemp("served")
    for key in KEYS:
        shutil.copy(bundles[key], made_here)
    return made_here


def changed(source: Path, target: Path, **changes: Any) -> Path:
    """A copy of a bundle with other fields in its manifest."""
    found = bundle.read(source)
    bundle.write(target, dataclasses.replace(found.manifest, **changes), found.members)
    return target


@pytest.fixture(scope="session")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a bundle for each kind of raw sample, called after it."""
    plain, folder = tmp_path_factory.mktemp("plain"), tmp_path_factory.mktemp("kinds")
    for name, path in flat.kinds(plain).items():
        changed(path, folder / f"{name}.edge.zip", name=name)
    for name, raw in (("recording", RECORDING), ("table", TABLE)):
        changed(flat.write(plain / f"{name}.edge.zip", raw), folder / f"{name}.edge.zip", name=name)
    return folder
