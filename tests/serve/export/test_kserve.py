"""`edgekit export kserve`: manifests by Kubernetes' schemas and KServe's SDK, and the repository they point at."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import requirements
from tests.runner.conftest import WriteBundle
from tests.serve import triton
from tests.serve.export.conftest import Export, written

ENVIRONMENT = triton.ROOT / "build" / "kubernetes"
URI, IMAGE = "s3://bucket/edge/tiny", "registry.example:5000/team/edgekit:1.0.0"
GIVEN = ("--storage-uri", URI, "--image", IMAGE)


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text()))


@pytest.fixture
def exported(bundles: dict[str, Path], tmp_path: Path, export: Export) -> Path:
    done = export("kserve", bundles["onnx"], tmp_path / "out", *GIVEN)
    assert done.exit_code == 0, done.stderr
    assert "prepared, not verified" in done.stdout
    return tmp_path / "out"


def test_manifests_stand_beside_the_repository(exported: Path) -> None:
    repository = ["config.pbtxt", "1/model.onnx", "labels.txt"]
    assert written(exported) == sorted(
        [
            "README.md",
            "export.json",
            "kserve.yaml",
            "kubernetes.yaml",
            *(f"repository/tiny/{name}" for name in repository),
        ]
    )


def test_the_inference_service_points_at_the_repository(exported: Path) -> None:
    (service,) = documents(exported / "kserve.yaml")
    assert (service["apiVersion"], service["kind"]) == ("serving.kserve.io/v1beta1", "InferenceService")
    model = service["spec"]["predictor"]["model"]
    assert model["storageUri"] == URI and model["protocolVersion"] == "v2"
    assert model["modelFormat"] == {"name": "triton"}


def test_the_deployment_runs_our_server_without_rights(exported: Path) -> None:
    deployment, service = documents(exported / "kubernetes.yaml")
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["image"] == IMAGE and "command" not in container and container["args"][0] == "serve"
    for probe, path in (("readinessProbe", "/v2/health/ready"), ("livenessProbe", "/v2/health/live")):
        assert container[probe]["httpGet"] == {"path": path, "port": "http"}
    assert container["ports"] == [{"name": "http", "containerPort": 8000}]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["runAsNonRoot"] is pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"] == deployment["spec"]["selector"]["matchLabels"] == labels
    assert service["spec"]["ports"][0]["targetPort"] == "http"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "--storage-uri: is missing"),
        (("--storage-uri", URI), "--image: is missing"),
        (("--storage-uri", "bucket/tiny", "--image", IMAGE), "--storage-uri: got 'bucket/tiny'"),
        (("--storage-uri", 's3://a"\nkind: Pod', "--image", IMAGE), "--storage-uri: got"),
        (("--storage-uri", URI, "--image", "Not An Image"), "--image: got 'Not An Image'"),
        (("--storage-uri", URI, "--image", "edgekit:1\n  hostNetwork: true"), "--image: got"),
        ((*GIVEN, "--backend", "onnx"), "--backend onnx"),
    ],
)
def test_wrong_options_are_refused(
    options: tuple[str, ...], message: str, bundles: dict[str, Path], tmp_path: Path, export: Export
) -> None:
    done = export("kserve", bundles["onnx"], tmp_path / "out", *options)
    assert done.exit_code == 2 and message in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("image", ["edgekit", "team/edgekit:1.0", f"a.example/b/c:v1@sha256:{'0' * 64}", IMAGE])
def test_every_form_of_an_images_name_is_taken(
    image: str, bundles: dict[str, Path], tmp_path: Path, export: Export
) -> None:
    done = export("kserve", bundles["onnx"], tmp_path / "out", "--storage-uri", "pvc://claim/x", "--image", image)
    assert done.exit_code == 0, done.stderr
    assert documents(tmp_path / "out/kubernetes.yaml")[0]["spec"]["template"]["spec"]["containers"][0]["image"] == image


@pytest.mark.parametrize(
    ("name", "service"), [("Door_Bell.v2", "door-bell-v2"), ("3axis", "m-3axis"), ("x" * 80, "x" * 53), ("a-", "a")]
)
def test_a_models_name_becomes_one_that_kubernetes_allows(
    name: str, service: str, models: dict[str, Any], write_bundle: WriteBundle, tmp_path: Path, export: Export
) -> None:
    assert export("kserve", write_bundle(models["onnx"], name=name), tmp_path / "out", *GIVEN).exit_code == 0
    (found,) = documents(tmp_path / "out/kserve.yaml")
    assert found["metadata"]["name"] == service
    assert (tmp_path / "out/repository" / name).is_dir()


def test_bundles_of_several_models_share_one_service(
    models: dict[str, Any], bundles: dict[str, Path], write_bundle: WriteBundle, tmp_path: Path, export: Export
) -> None:
    folder = tmp_path / "bundles"
    folder.mkdir()
    shutil.copy(bundles["tflite"], folder)
    shutil.move(write_bundle(models["onnx"], name="other"), folder)
    assert export("kserve", folder, tmp_path / "out", *GIVEN).exit_code == 0
    (found,) = documents(tmp_path / "out/kserve.yaml")
    assert found["metadata"]["name"] == "models"
    assert sorted(path.name for path in (tmp_path / "out/repository").iterdir()) == ["other", "tiny"]


def validate(*words: str) -> subprocess.CompletedProcess[str]:
    requirements.environment(ENVIRONMENT / "bin" / "kubernetes-validate")
    return subprocess.run(
        [str(ENVIRONMENT / "bin" / words[0]), *words[1:]], capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.serving
@pytest.mark.parametrize("version", ["1.25", "1.30", "1.37"])
def test_kubernetes_schemas_take_the_manifests(version: str, exported: Path) -> None:
    done = validate("kubernetes-validate", "--strict", "-k", version, str(exported / "kubernetes.yaml"))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.serving
def test_the_validator_notices_a_misspelt_key(exported: Path) -> None:
    path = exported / "kubernetes.yaml"
    path.write_text(path.read_text().replace("readOnlyRootFilesystem", "readOnlyRootFileSystem"))
    done = validate("kubernetes-validate", "--strict", str(path))
    assert done.returncode != 0 and "readOnlyRootFileSystem" in done.stdout + done.stderr


@pytest.mark.serving
def test_kserves_own_models_know_every_key(exported: Path) -> None:
    script = str(Path(__file__).with_name("kserve_names.py"))
    done = validate("python", script, str(exported / "kserve.yaml"))
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    path = exported / "kserve.yaml"
    path.write_text(path.read_text().replace("storageUri", "storageURI"))
    assert ".spec.predictor.model.storageURI" in validate("python", script, str(path)).stdout
