"""Export for OpenVINO Model Server: a model repository with `config.json`, after a check of the golden answers."""

from __future__ import annotations

import json
from collections.abc import Sequence

from edgekit.serve.export import _openvino, _readme
from edgekit.serve.export._subjects import Export, ExportedBundle, ExportRequest

HELP = "OpenVINO Model Server: a model repository, its golden samples checked with OpenVINO"
OPTIONS = ()
MOUNTED = "/models"
CHECKED = "its golden samples gave the recorded answers on this machine's OpenVINO, with this file and these settings"
UNTRIED = "prepared, not verified: the server comes in a separate image, which edgekit's tests do not run"


def export(subjects: Sequence[ExportedBundle], request: ExportRequest) -> Export:
    """Create the repository. Raises ConversionError if OpenVINO cannot run a file or gives wrong answers."""
    files: dict[str, bytes] = {}
    lines = []
    for subject in subjects:
        _openvino.check(subject)
        files.update({f"{subject.name}/1/{name}": data for name, data in _openvino.files(subject).items()})
        lines.append(f"{subject.name}: {CHECKED}. {_readme.sends(subject)}")
    files["config.json"] = _config(subjects)
    files["README.md"] = _readme_bytes(subjects)
    return Export(files, [*lines, UNTRIED])


def _config(subjects: Sequence[ExportedBundle]) -> bytes:
    models = [
        {
            "config": {
                "name": subject.name,
                "base_path": f"{MOUNTED}/{subject.name}",
                "target_device": "CPU",
                "plugin_config": _openvino.SETTINGS,
            }
        }
        for subject in subjects
    ]
    return json.dumps({"model_config_list": models}, indent=2).encode() + b"\n"


def _readme_bytes(subjects: Sequence[ExportedBundle]) -> bytes:
    parts = [
        "# A model repository for OpenVINO Model Server\n\n"
        f"`config.json` expects this folder at `{MOUNTED}`:\n\n"
        f"```\ndocker run --rm -v $PWD:{MOUNTED}:ro -p 9000:9000 -p 8000:8000 openvino/model_server \\\n"
        f"  --config_path {MOUNTED}/config.json --port 9000 --rest_port 8000\n```\n\n"
        f"{UNTRIED[0].upper()}{UNTRIED[1:]}.\n"
    ]
    for subject in subjects:
        parts += [_readme.title(subject), f"Checked: {CHECKED}.\n", _readme.native(subject)]
    return "\n".join(parts).encode()
