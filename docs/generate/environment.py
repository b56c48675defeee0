"""The environment variables that edgekit, its tests and its site read.

`tests/docs/test_reference.py` looks for their names in the code, and fails on one that is missing here.
"""

from __future__ import annotations

from collections.abc import Mapping

from docs.generate.tables import code, table

VARIABLES: Mapping[str, Mapping[str, str]] = {
    "user": {
        "EDGEKIT_ARTIFACTS": "Folder of the runs, in the place of a relative `--out`, which is `artifacts`.",
        "EDGEKIT_CACHE": "URLs of shared caches, with commas between them, for an `edgekit run` without `--cache`.",
        "EDGEKIT_LANE": "Folder of the lane on which this machine measures alone; for notebooks run by hand, too.",
        "EDGEKIT_PARALLEL": "How many trainings of a stage may run at once, as `edgekit run --parallel` says, else 1.",
        "EDGEKIT_PROCESSES": "Processes that train, as after `--processes`: at most `training.shares`.",
        "EDGEKIT_PROGRESS_S": "Most seconds between lines on stderr, where no terminal is: 0.1 to 3600, by default 30.",
        "EDGEKIT_SPLIT_MB": "Most megabytes of a split of a memory map that are copied into memory, else 256.",
        "EDGERUN_HOME": "Folder of a device's releases, else `/var/lib/edge` or `~/.edge`.",
        "EDGEKIT_SHARED": "Folder with `data/cifar10.zip` and `models/`, for `configs/cifar10.yaml` and the tests.",
        "GOMP_SPINCOUNT": "How often a waiting OpenMP thread looks before it sleeps; see the next row.",
        "OMP_WAIT_POLICY": "edgekit sets both, so that a run leaves cores to others; where you set one, it sets none.",
    },
    "tests": {
        "EDGEKIT_DIGITS_BUNDLES": "Folder with bundles for `make matrix` and `make aarch64`, else they make some.",
        "EDGEKIT_DOCS_RUN": "Folder of the run whose executed notebooks the site shows, else `build/nbval/digits`.",
        "EDGEKIT_FUZZ_S": "How many seconds `make fuzz` lasts, else 600.",
        "EDGEKIT_HEAP": "Folder for what a server's allocator has given out; the tests of memory set it.",
        "EDGEKIT_IMITATE": "System whose lack of modules and files Python imitates; tests of platforms set it.",
        "EDGEKIT_KILLS": "How many times `make faults` kills a run, else 60.",
        "EDGEKIT_SITE": "Folder of the built site that `make docs` tests, else `build/site`.",
        "EDGEKIT_SOAK_S": "How many seconds the soak tests of `make processes` last, else 30 and 20.",
        "EDGEKIT_TASK_BUNDLES": "Folder in which `make tasks` leaves its bundles for `make aarch64`.",
    },
    "internal": {
        "EDGERUN_RELEASE": "The release on trial that `edgerun boot` or `edgerun watch` has started a program with.",
        "EDGEKIT_FORCE": "The stage to run again although nothing changed, as `--from` asks.",
        "EDGEKIT_PROGRESS": "File in which a kernel says how far it is.",
        "EDGEKIT_RUN": "Process number of the `edgekit run` that holds the run's lock.",
    },
}
HEADER = ("variable", "meaning")


def variables(who: str) -> str:
    """The table of those for `user`, `tests` or `internal`."""
    return table(HEADER, [(code(name), meaning) for name, meaning in VARIABLES[who].items()])
