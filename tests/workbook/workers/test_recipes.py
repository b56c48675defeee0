"""The recipes for clusters: Slurm's script runs with a stand-in for `srun`, the manifest is read as its tools do."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

from edgekit.workbook.workers import Job, open_pool
from tests.conftest import ROOT

TEMPLATES = ROOT / "docs/how-to/templates"


def parsed(words: list[str]) -> dict[str, Any]:
    """The options of `dask …` by its own parser; raises for what it would not take."""
    main = import_module(f"distributed.cli.dask_{words[0]}").main
    options: dict[str, Any] = main.make_context(words[0], list(words[1:])).params
    return options


def test_the_manifest_starts_a_scheduler_and_one_worker_a_node() -> None:
    result = {
        (each["kind"], each["metadata"]["name"]): each["spec"]
        for each in yaml.safe_load_all((TEMPLATES / "dask-workers.yaml").read_text())
    }
    service = result["Service", "edgekit-scheduler"]
    scheduler = result["Deployment", "edgekit-scheduler"]["template"]
    workers = result["Deployment", "edgekit-workers"]["template"]
    (port,) = service["ports"]
    assert service["selector"].items() <= scheduler["metadata"]["labels"].items()
    (container,) = scheduler["spec"]["containers"]
    assert container["command"][0] == "dask"
    assert int(parsed(container["command"][1:])["port"]) == port["port"] == container["ports"][0]["containerPort"]
    (container,) = workers["spec"]["containers"]
    assert container["command"][0] == "dask"
    options = parsed(container["command"][1:])
    assert options["scheduler"] == f"tcp://edgekit-scheduler:{port['port']}"
    assert (options["nthreads"], options["n_workers"]) == (1, "1")
    assert container["resources"]["requests"] == container["resources"]["limits"]
    (term,) = workers["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["labelSelector"]["matchLabels"].items() <= workers["metadata"]["labels"].items()
    for each in ("edgekit-scheduler", "edgekit-workers"):
        spec = result["Deployment", each]
        assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]
    (mount,) = container["volumeMounts"]
    assert mount["name"] in {volume["name"] for volume in workers["spec"]["volumes"]}


def test_the_script_of_slurm_is_one_that_bash_and_sbatch_take() -> None:
    script = TEMPLATES / "slurm-workers.sh"
    subprocess.run(["bash", "-n", str(script)], check=True)
    options = [line for line in script.read_text().splitlines() if line.startswith("#SBATCH")]
    assert options and all(line.startswith("#SBATCH --") for line in options)
    assert script.read_text().startswith("#!/bin/bash\n#SBATCH")  # sbatch reads options up to the first command


@pytest.mark.processes
def test_the_script_of_slurm_starts_workers_that_do_a_work(tmp_path: Path) -> None:
    """`srun` stands for one that starts a single task here; all else is the script itself."""
    programs = tmp_path / ".venv/bin"
    programs.mkdir(parents=True)
    (programs / "activate").write_text(f'PATH="{programs}:$PATH"\n')
    (programs / "srun").write_text('#!/bin/sh\nexec "$@"\n')
    (programs / "dask").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m dask "$@"\n')
    (programs / "hostname").write_text("#!/bin/sh\necho 127.0.0.1\n")
    for each in ("srun", "dask", "hostname"):
        (programs / each).chmod(0o755)
    job = subprocess.Popen(
        ["bash", str(TEMPLATES / "slurm-workers.sh")],
        cwd=tmp_path,
        env={**os.environ, "FOLDER": str(tmp_path), "PORT": str(free_port()), "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        assert job.stdout is not None
        on = job.stdout.readline().split()[-1]
        deadline = time.monotonic() + 120
        while True:
            try:
                with open_pool(on=on, folder=tmp_path / "out") as pool:
                    assert pool.run([Job("adds", "tests.workbook.workers.job_functions:add", {"a": 1, "b": 2})]) == [3]
                break
            except Exception:
                assert time.monotonic() < deadline
    finally:
        os.killpg(job.pid, 9)
        job.wait()


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
