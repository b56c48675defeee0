"""Runs in build/drift: what alibi-detect or evidently says to windows of streams. Prints one line of JSON.

    python worker.py ASKED.npz ks|mmd|evidently WINDOW LEVEL NAMES
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable

import numpy as np

warnings.simplefilter("ignore")
Says = Callable[[np.ndarray], "str | None"]


def kolmogorov_smirnov(reference: np.ndarray, level: float, names: list[str]) -> Says:
    """alibi-detect's KSDrift: one test a statistic, Bonferroni's correction over them."""
    from alibi_detect.cd import KSDrift

    detector = KSDrift(reference, p_val=level, correction="bonferroni")

    def says(window: np.ndarray) -> str | None:
        data = detector.predict(window)["data"]
        return names[int(np.argmin(data["p_val"]))] if data["is_drift"] else None

    return says


def mean_discrepancy(reference: np.ndarray, level: float, names: list[str]) -> Says:
    """alibi-detect's MMDDrift on PyTorch, with statistics in units of their spread."""
    import torch
    from alibi_detect.cd import MMDDrift

    torch.set_num_threads(1)
    torch.manual_seed(0)
    mean, spread = reference.mean(0), reference.std(0) + 1e-9
    scaled = ((reference - mean) / spread).astype(np.float32)
    detector = MMDDrift(scaled, backend="pytorch", p_val=level, n_permutations=100, device="cpu")

    def says(window: np.ndarray) -> str | None:
        found = detector.predict(((window - mean) / spread).astype(np.float32))["data"]["is_drift"]
        return "all together" if found else None

    return says


def evidently_report(reference: np.ndarray, level: float, names: list[str]) -> Says:
    """evidently's preset: it picks a test for each column, and counts those that drifted."""
    import pandas as pd
    from evidently import Report
    from evidently.presets import DataDriftPreset

    known = pd.DataFrame(reference, columns=names)
    report = Report([DataDriftPreset(drift_share=level)])

    def says(window: np.ndarray) -> str | None:
        result = report.run(pd.DataFrame(window, columns=names), known).dict()
        share = next(each["value"]["share"] for each in result["metrics"] if "DriftedColumns" in each["metric_name"])
        return "share of columns" if share >= level else None

    return says


TESTS = {"ks": kolmogorov_smirnov, "mmd": mean_discrepancy, "evidently": evidently_report}


def main() -> None:
    """Each window until the first alarm behind the onset."""
    path, kind, window, level, names = sys.argv[1:]
    asked = np.load(path)
    says = TESTS[kind](asked["reference"], float(level), json.loads(names))
    answer = []
    for number, onset in enumerate(asked["onsets"].tolist()):
        table, found = asked[f"s{number}"], []
        for end in range(int(window), len(table) + 1, int(window)):
            by = says(table[end - int(window) : end])
            if by is not None:
                found.append((end, by))
                if end > onset:
                    break
        answer.append(found)
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
