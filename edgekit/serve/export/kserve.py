"""Export for KServe and Kubernetes: an InferenceService on Triton, and a Deployment of `edgekit serve`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from edgekit.core.errors import ConfigError
from edgekit.serve.export import triton
from edgekit.serve.export._formats import yaml_text
from edgekit.serve.export._subjects import Export, ExportedBundle, ExportRequest

HELP = "KServe and Kubernetes: manifests, and the model repository that they point at"
OPTIONS = ("backend", "storage_uri", "image")
REPOSITORY = "repository"
SEVERAL = "models"
"""Name of a service with more than one model."""
LONGEST_NAME = 53
"""Kubernetes allows 63 characters, and KServe appends some of its own."""
URI = re.compile(r"(s3|gs|hdfs|webhdfs|https?|pvc|hf|oci|file)://[^\s\"'\\]+")
IMAGE = re.compile(r"[a-z0-9]+([._:/-][a-z0-9_]+)*(:[A-Za-z0-9_][\w.-]{0,127})?(@sha256:[0-9a-f]{64})?")
PORT, GRPC_PORT = 8000, 8001
BUNDLES = "/app/bundles"
"""The folder of the bundles in the image of deploy/Dockerfile."""
UNTRIED = "prepared, not verified: the manifests were not applied to a cluster"


def export(subjects: Sequence[ExportedBundle], request: ExportRequest) -> Export:
    """Create the manifests for KServe and for Kubernetes, and the model repository.

    Raises ConfigError if the address of the repository or the image is missing or invalid.
    """
    uri = _required_option("--storage-uri", request.storage_uri, URI, "s3://bucket/folder or pvc://claim/folder")
    image = _required_option("--image", request.image, IMAGE, "registry.example/edgekit:1.0.0")
    files, lines = triton.repository(subjects, request.backend)
    name = service_name(subjects)
    return Export(
        {
            **{f"{REPOSITORY}/{path}": data for path, data in files.items()},
            "kserve.yaml": yaml_text(inference_service(name, uri)),
            "kubernetes.yaml": b"---\n".join([yaml_text(deployment(name, image)), yaml_text(service(name))]),
            "README.md": _readme_bytes(subjects, request.backend, uri, image),
        },
        [*lines, f"copy {REPOSITORY}/ to {uri}; {image} must hold the bundles in {BUNDLES}", UNTRIED],
    )


def service_name(subjects: Sequence[ExportedBundle]) -> str:
    """Return the model's name in a form that Kubernetes allows. Several models share one service."""
    names = {subject.manifest.name for subject in subjects}
    letters = re.sub("[^a-z0-9]+", "-", names.pop().lower() if len(names) == 1 else SEVERAL).strip("-")
    return (letters if letters[0].isalpha() else f"m-{letters}")[:LONGEST_NAME].rstrip("-")


def inference_service(name: str, uri: str) -> dict[str, Any]:
    """Return KServe's resource, which runs Triton with the Open Inference Protocol."""
    model = {
        "modelFormat": {"name": "triton"},
        "protocolVersion": "v2",
        "runtime": "kserve-tritonserver",
        "storageUri": uri,
    }
    return {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {"name": name},
        "spec": {"predictor": {"model": model}},
    }


def deployment(name: str, image: str) -> dict[str, Any]:
    """Return a Deployment of `edgekit serve`.

    It does not run as root, its file system is read-only, and its cache is on a temporary volume.
    """
    container = {
        "name": "server",
        "image": image,
        "args": ["serve", BUNDLES, "--host", "0.0.0.0", "--port", str(PORT)],
        "env": [{"name": "XDG_CACHE_HOME", "value": "/tmp/cache"}],
        "ports": [{"name": "http", "containerPort": PORT}],
        "startupProbe": {**_probe("ready"), "failureThreshold": 60},
        "readinessProbe": {**_probe("ready"), "failureThreshold": 1},
        "livenessProbe": {**_probe("live"), "failureThreshold": 3},
        "resources": {"requests": {"cpu": "500m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
        },
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }
    pod = {
        "automountServiceAccountToken": False,
        "containers": [container],
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "runAsGroup": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "terminationGracePeriodSeconds": 60,
        "volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": _labels(name)},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": _labels(name)},
            "template": {"metadata": {"labels": _labels(name)}, "spec": pod},
        },
    }


def service(name: str) -> dict[str, Any]:
    """Return the Service that gives the deployment an address in the cluster."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": _labels(name)},
        "spec": {"selector": _labels(name), "ports": [{"name": "http", "port": PORT, "targetPort": "http"}]},
    }


def _labels(name: str) -> dict[str, str]:
    return {"app.kubernetes.io/name": name}


def _probe(word: str) -> dict[str, Any]:
    return {"httpGet": {"path": f"/v2/health/{word}", "port": "http"}, "periodSeconds": 5, "timeoutSeconds": 2}


def _required_option(option: str, value: str | None, form: re.Pattern[str], example: str) -> str:
    if value is None:
        raise ConfigError(f"{option}: is missing, kserve needs it; for example {option} {example}")
    if not form.fullmatch(value):
        raise ConfigError(f"{option}: got {value!r}; write for example {example}")
    return value


def _readme_bytes(subjects: Sequence[ExportedBundle], backend: str | None, uri: str, image: str) -> bytes:
    head = (
        f"# Manifests for Kubernetes\n\n{UNTRIED[0].upper()}{UNTRIED[1:]}.\n\n"
        f"- `kserve.yaml`: an InferenceService of KServe on Triton. Copy `{REPOSITORY}/` to `{uri}` first.\n"
        f"- `kubernetes.yaml`: a Deployment of `edgekit serve` and its Service. "
        f"The image `{image}` must hold the bundles in `{BUNDLES}`.\n\n"
        "A model on the Python backend needs its interpreter in the image of KServe's Triton runtime.\n"
    )
    return head.encode() + b"\n" + triton.about(subjects, backend)
