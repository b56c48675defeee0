"""The environment variables that edgekit, its tests and its site read.

`tests/docs/test_reference.py` looks for their names in the code, and fails on one that is missing here.
"""

from __future__ import annotations

from collections.abc import Mapping

from docs.generate.tables import code, table

VARIABLES: Mapping[str, Mapping[str, str]] = {
    "user": {
        "EDGEKIT_ARTIFACTS": "Folder of the runs, used instead of a relative `--out`. Default: `artifacts`.",
        "EDGEKIT_CACHE": "URLs of shared caches, separated by commas, for `edgekit run` without `--cache`.",
        "EDGEKIT_LANE": "Folder of the locks with which measurements and other work on this machine take turns.",
        "EDGEKIT_PARALLEL": "How many trainings of a stage may run at once, as `edgekit run --parallel`. Default: 1.",
        "EDGEKIT_PROCESSES": "Number of processes that train, as `--processes`; at most `training.shares`.",
        "EDGEKIT_PROGRESS_S": "Longest time between lines on stderr without a terminal, 0.1 to 3600 seconds, else 30.",
        "EDGEKIT_SPLIT_MB": "Largest split of a memory map that is copied into memory, in megabytes. Default: 256.",
        "EDGERUN_HOME": "Folder of a device's releases. Default: `/var/lib/edge` or `~/.edge`.",
        "EDGEKIT_SHARED": "Folder with `data/cifar10.zip` and `models/`, for `configs/cifar10.yaml` and the tests.",
        "GOMP_SPINCOUNT": "How often a waiting OpenMP thread spins before it sleeps; see the next row.",
        "OMP_WAIT_POLICY": "edgekit sets both, so that waiting threads free the cores, unless you set one of them.",
    },
    "tests": {
        "EDGEKIT_DIGITS_BUNDLES": "Folder with bundles for `make matrix` and `make aarch64`, which else make some.",
        "EDGEKIT_DOCS_RUN": "Folder of the run whose executed notebooks the site shows. Default: `build/nbval/digits`.",
        "EDGEKIT_FUZZ_S": "How many seconds `make fuzz` lasts. Default: 600.",
        "EDGEKIT_HEAP": "Folder in which a server records what its allocator has given out. Set by tests of memory.",
        "EDGEKIT_IMITATE": "System whose missing modules and files Python imitates. Set by tests of platforms.",
        "EDGEKIT_KILLS": "How many times `make faults` kills a run. Default: 60.",
        "EDGEKIT_SITE": "Folder of the built site that `make docs` tests. Default: `build/site`.",
        "EDGEKIT_SOAK_S": "How many seconds the soak tests of `make processes` last. Defaults: 30 and 20.",
        "EDGEKIT_TASK_BUNDLES": "Folder in which `make tasks` leaves its bundles for `make aarch64`.",
    },
    "internal": {
        "EDGERUN_RELEASE": "The release on probation with which `edgerun boot` or `edgerun watch` started a program.",
        "EDGEKIT_FORCE": "The stage to run again although nothing changed, because of `--from`.",
        "EDGEKIT_PROGRESS": "File in which a kernel reports its progress.",
        "EDGEKIT_RUN": "Process number of the `edgekit run` that holds the run's lock.",
    },
}
HEADER = ("variable", "meaning")


def variables(who: str) -> str:
    """The table of those for `user`, `tests` or `internal`."""
    return table(HEADER, [(code(name), meaning) for name, meaning in VARIABLES[who].items()])
