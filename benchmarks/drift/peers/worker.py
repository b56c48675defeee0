"""Runs in build/drift: what alibi-detect or evidently says to windows of streams. Prints one line of JSON.

python worker.py ASKED.npz ks|mmd|evidently WINDOW LEVELS NAMES
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable

import numpy as np

warnings.simplefilter("ignore")
PERMUTATIONS = 50
Says = Callable[[np.ndarray], "tuple[float, str]"]
"""Of a window: a number that alarms where it is below the level, and what it is of."""


def kolmogorov_smirnov(reference: np.ndarray, names: list[str]) -> Says:
    """alibi-detect's KSDrift: one test a statistic, Bonferroni's correction over them."""
    from alibi_detect.cd import KSDrift

    detector = KSDrift(reference, correction="bonferroni")

    def says(window: np.ndarray) -> tuple[float, str]:
        p = detector.predict(window, drift_type="batch")["data"]["p_val"]
        return float(np.min(p)) * len(names), names[int(np.argmin(p))]

    return says


def mean_discrepancy(reference: np.ndarray, names: list[str]) -> Says:
    """alibi-detect's MMDDrift on PyTorch, with statistics in units of their spread."""
    import torch
    from alibi_detect.cd import MMDDrift

    torch.set_num_threads(1)
    torch.manual_seed(0)
    mean, spread = reference.mean(0), reference.std(0) + 1e-9
    scaled = ((reference - mean) / spread).astype(np.float32)
    detector = MMDDrift(scaled, backend="pytorch", n_permutations=PERMUTATIONS, device="cpu")

    def says(window: np.ndarray) -> tuple[float, str]:
        found = detector.predict(((window - mean) / spread).astype(np.float32))
        return float(found["data"]["p_val"]), "all together"

    return says


def evidently_report(reference: np.ndarray, names: list[str]) -> Says:
    """evidently's preset: it picks a test for each column, and counts those that drifted. Its share is turned round."""
    import pandas as pd
    from evidently import Report
    from evidently.presets import DataDriftPreset

    known = pd.DataFrame(reference, columns=names)
    report = Report([DataDriftPreset()])

    def says(window: np.ndarray) -> tuple[float, str]:
        result = report.run(pd.DataFrame(window, columns=names), known).dict()
        share = next(each["value"]["share"] for each in result["metrics"] if "DriftedColumns" in each["metric_name"])
        return 1 - float(share), "share of columns"

    return says


TESTS = {"ks": kolmogorov_smirnov, "mmd": mean_discrepancy, "evidently": evidently_report}


def main() -> None:
    """Each window until the first alarm behind the onset at every level."""
    path, kind, size, levels, names = sys.argv[1:]
    asked, window, limits = np.load(path), int(size), json.loads(levels)
    told: dict[int, Says] = {}
    answer: list[list[list[tuple[int, str]]]] = [[] for _ in limits]
    for number, (onset, of) in enumerate(zip(asked["onsets"].tolist(), asked["of"].tolist())):
        if of not in told:
            told[of] = TESTS[kind](asked[f"r{of}"], json.loads(names))
        table, found = asked[f"s{number}"], [[] for _ in limits]  # type: list[list[tuple[int, str]]]
        begin = onset // window * window if onset < len(table) else 0
        for end in range(begin + window, len(table) + 1, window):
            value, by = told[of](table[end - window : end])
            for place, limit in enumerate(limits):
                if value <= limit and (not found[place] or found[place][-1][0] <= onset):
                    found[place].append((end, by))
            if all(each and each[-1][0] > onset for each in found):
                break
        for place, each in enumerate(found):
            answer[place].append(each)
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
