"""Runs in Olive's environment: its search, with a row for each file that was tried."""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from olive.data.registry import Registry
from olive.workflows import run

from benchmarks.peers import worker_protocol
from benchmarks.peers.worker_protocol import SAMPLES, WorkerJob

UNCHOSEN = "olive_parameter_type"
"""Marks an option in Olive's record that another option switches off."""
ONE_THREAD = {"inference_settings": {"onnx": {"session_options": {"intra_op_num_threads": 1}}}}


class Samples(torch.utils.data.Dataset[Any]):
    """The samples of one split, by the name of the file's input."""

    def __init__(self, name: str, x: np.ndarray, y: np.ndarray) -> None:
        self._name, self._x, self._y = name, torch.from_numpy(x), torch.from_numpy(y)

    def __len__(self) -> int:
        return len(self._x)

    def __getitem__(self, index: int) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        return {self._name: self._x[index]}, self._y[index]


@Registry.register_dataset("edgekit_samples")
def samples(path: str, split: str, name: str, **_: Any) -> Samples:
    """Return the samples of "calibration" or "validation"."""
    with np.load(path) as file:
        if split == "validation":
            return Samples(name, file["x"], file["y"])
        return Samples(name, file["calibration"], np.zeros(len(file["calibration"]), np.int64))


@Registry.register_post_process("edgekit_class")
def class_of(output: Any, **_: Any) -> torch.Tensor:
    """Return the class of each row of the only output."""
    scores = next(iter(output.values())) if isinstance(output, dict) else output
    return torch.as_tensor(scores).argmax(dim=-1)


def configuration(job: WorkerJob) -> dict[str, Any]:
    """Return Olive's configuration: everything that `OnnxQuantization` searches by default, with TPE."""
    graph = onnx.load(job.model).graph
    classes = graph.output[0].type.tensor_type.shape.dim[-1].dim_value

    def data(split: str) -> dict[str, Any]:
        params = {"path": str(job.subject / SAMPLES), "split": split, "name": graph.input[0].name}
        return {
            "name": split,
            "type": "DataContainer",
            "load_dataset_config": {"type": "edgekit_samples", "params": params},
            "dataloader_config": {"batch_size": 1},
            "post_process_data_config": {"type": "edgekit_class"},
        }

    accuracy = {
        "name": "accuracy",
        "type": "accuracy",
        "backend": "torch_metrics",
        "data_config": "validation",
        "user_config": ONE_THREAD,
        "sub_types": [
            {
                "name": "accuracy_score",
                "priority": 1,
                "higher_is_better": True,
                "metric_config": {"task": "multiclass", "num_classes": classes},
            }
        ],
    }
    latency = {
        "name": "latency",
        "type": "latency",
        "data_config": "validation",
        "user_config": ONE_THREAD,
        "sub_types": [
            {"name": "p50", "priority": 2, "metric_config": {"warmup_num": 20, "repeat_test_num": 300, "sleep_num": 0}}
        ],
    }
    processor = {"device": "cpu", "execution_providers": ["CPUExecutionProvider"]}
    return {
        "input_model": {"type": "ONNXModel", "model_path": str(job.model)},
        "systems": {"here": {"type": "LocalSystem", "accelerators": [processor]}},
        "data_configs": [data("calibration"), data("validation")],
        "evaluators": {"both": {"type": "OnnxEvaluator", "metrics": [accuracy, latency]}},
        "passes": {"quantization": {"type": "OnnxQuantization", "data_config": "calibration"}},
        "search_strategy": {
            "execution_order": "joint",
            "sampler": "tpe",
            "sampler_config": {"seed": 0, "max_samples": 0},
            "max_time": job.seconds,
        },
        "evaluator": "both",
        "host": "here",
        "target": "here",
        "cache_dir": str(job.out / "cache"),
        "output_dir": str(job.out / "out"),
    }


def search_rows(footprint: dict[str, Any], out: Path, took_s: float) -> list[dict[str, Any]]:
    """Return a row for each file with metrics, copied to OUT. Its time is that of the whole search."""
    rows = []
    for node in footprint.values():
        if node.get("from_pass") is None or not node.get("metrics"):
            continue
        metrics = node["metrics"]["value"]
        name = f"olive-{len(rows) + 1}.onnx"
        shutil.copyfile(node["model_config_data"]["config"]["model_path"], out / name)
        recorded_options = node["pass_run_config"].items()
        options = {key: value for key, value in recorded_options if key != "data_config" and UNCHOSEN not in str(value)}
        rows.append(
            {
                "file": name,
                "how": "found by its search",
                "seconds": took_s,
                "options": options,
                "accuracy": metrics["accuracy-accuracy_score"]["value"],
                "p50_ms": metrics["latency-p50"]["value"],
            }
        )
    return rows


def work(job: WorkerJob) -> list[dict[str, Any]]:
    """Search for as long as the job allows."""
    started = time.perf_counter()
    run(configuration(job))
    footprint = job.out / "out" / "footprint.json"
    if not footprint.is_file():
        sys.exit("no file was made")  # the error was printed above
    return search_rows(json.loads(footprint.read_text()), job.out, time.perf_counter() - started)


if __name__ == "__main__":
    worker_protocol.run_worker(work)
