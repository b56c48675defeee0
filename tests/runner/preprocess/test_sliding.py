"""Frames that overlapping windows share are computed once, and have the bits of a window computed alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.runner.preprocess import sliding_windows, transform
from edgekit.runner.preprocess.log_mel import LogMel

MEL = {
    "step": "log_mel", "rate_hz": 8000, "window_samples": 60, "hop_samples": 20, "fft_samples": 64,
    "mels": 6, "low_hz": 60.0, "high_hz": 3800.0, "floor": 1e-6,
}  # fmt: skip
SCALE = {"step": "scale", "factor": 3.0}
CHAIN: list[dict[str, Any]] = [SCALE, MEL, {"step": "normalize", "mean": [-3.0], "std": [2.0]}]
SOUND = np.random.default_rng(1).uniform(-1, 1, 6000).astype(np.float32)


@pytest.mark.parametrize("steps", [[MEL], CHAIN], ids=["alone", "among others"])
@settings(max_examples=60, deadline=None)
@given(moves=st.lists(st.sampled_from([20, 40, 60, 200, 380, 400, 500, 7, 30, 0]), min_size=1, max_size=8))
def test_any_moves_give_the_bits_of_a_window_alone(steps: list[dict[str, Any]], moves: list[int]) -> None:
    """Also where windows between were dropped, or a hop fits no frame."""
    windows, alone = sliding_windows.SlidingPreprocess(steps, 400), transform.pipeline(steps)
    for start in np.cumsum([0, *moves]).tolist():
        window = SOUND[start : start + 400]
        assert windows(window, start).tobytes() == alone(window).tobytes()


def test_only_new_frames_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[int] = []
    compute = LogMel.__call__

    def counted(self: LogMel, x: np.ndarray) -> np.ndarray:
        made = compute(self, x)
        computed.append(made.shape[-3])
        return made

    monkeypatch.setattr(LogMel, "__call__", counted)
    windows = sliding_windows.SlidingPreprocess(CHAIN, 400)
    for start in (0, 20, 60, 70, 110, 400, 900):
        windows(SOUND[start : start + 400], start)
    assert windows.frames == 18
    assert computed == [18, 1, 2, 18, 2, 18, 18]


@pytest.mark.parametrize(
    ("steps", "place"),
    [
        ([MEL], 0),
        ([SCALE, MEL], 1),
        ([{"step": "normalize", "mean": [0.1], "std": [2.0]}, SCALE, MEL], 2),
        ([{"step": "normalize", "mean": [0.1] * 400, "std": [2.0]}, MEL], None),
        ([{"step": "normalize", "mean": [0.1], "std": [2.0] * 400}, MEL], None),
        ([SCALE], None),
        ([], None),
    ],
)
def test_steps_in_front_must_treat_each_sample_alike(steps: list[dict[str, Any]], place: int | None) -> None:
    assert sliding_windows.find_shareable_log_mel(steps) == place
