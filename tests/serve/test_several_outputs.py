"""A model with two outputs behind the socket: each by its name, and a picture's boxes in its own pixels."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from edgekit.runner import bundle, load
from tests.runner.conftest import npy
from tests.runner.test_several_outputs import OUTPUTS, POINTS, expected_outputs, files, images, manifest
from tests.serve.conftest import Start
from tests.serve.server import RAW, Server

pytestmark = pytest.mark.processes

MODEL = "/v2/models/cells"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cells")
    content = files("onnx", folder)
    golden = {"i.npy": npy(images(2)), "o.npy": npy(expected_outputs(images(2)).astype(np.float32))}
    bundle.write(folder / "cells-onnx-1.0.0.edge.zip", manifest("onnx", content), {**content, **golden})
    return folder / "cells-onnx-1.0.0.edge.zip"


@pytest.fixture(scope="module")
def server(start: Start, path: Path) -> Server:
    return start(path)


def test_each_output_goes_by_its_own_name(server: Server) -> None:
    described = [(each["name"], each["shape"]) for each in server.get(MODEL).json()["outputs"]]
    assert described == [("boxes", [-1, POINTS, 4]), ("scores", [-1, POINTS, 3]), ("answer", [-1, 1])]
    reply = server.post(f"{MODEL}/infer", images(1)[0].tobytes(), RAW)
    length = int(reply.headers["inference-header-content-length"])
    place = length
    for each, part in zip(OUTPUTS, np.split(expected_outputs(images(1))[0], [4], axis=1), strict=True):
        found = np.frombuffer(reply.body, "<f4", part.size, place).reshape(part.shape)
        np.testing.assert_allclose(found, part, atol=1e-4)
        place += part.size * 4
        assert each.shape[1:] == part.shape
    x = images(1)
    tensor = {"name": "image", "shape": x.shape, "datatype": "UINT8", "data": x.ravel().tolist()}
    body = json.dumps({"inputs": [tensor], "outputs": [{"name": "scores"}]}).encode()
    [scores] = server.post(f"{MODEL}/infer", body, {}).json()["outputs"]
    assert (scores["name"], scores["shape"]) == ("scores", [1, POINTS, 3])
    np.testing.assert_allclose(np.ravel(scores["data"]), expected_outputs(images(1))[0, :, 4:].ravel(), atol=1e-4)


def test_boxes_of_a_picture_are_in_its_own_pixels(server: Server, path: Path, tmp_path: Path) -> None:
    picture = io.BytesIO()
    Image.fromarray(images(1)[0]).resize((96, 96), Image.Resampling.NEAREST).save(picture, "PNG")
    (tmp_path / "a.png").write_bytes(picture.getvalue())
    [own] = load(path, trial=False).predict_file(tmp_path / "a.png")
    found = server.post("/predict?model=cells", picture.getvalue(), {"Content-Type": "image/png"}).json()
    boxes = found["answers"][0]["boxes"]
    assert [each["label"] for each in boxes] == [each.label for each in own.prediction.boxes]
    np.testing.assert_allclose([each["box"] for each in boxes], [each.box for each in own.prediction.boxes], atol=0.01)
    assert boxes and max(each["box"][3] for each in boxes) > 32  # beyond the sample's own height
