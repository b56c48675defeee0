"""The figure of samples with several tensors."""

from __future__ import annotations

import matplotlib.pyplot as plt

from edgekit import data
from edgekit.report.sections import samples
from tests import joint_data


def test_each_tensor_has_a_row_and_its_own_scale() -> None:
    """In one curve sensors of hundredths beside bytes would be a flat line."""
    section = {"source": "python", "function": "tests.joint_data:arrays", "calibration_samples": 60}
    figure = samples.figure(data.load(data.parse(section, "classification")))
    axes = figure.axes
    rows = {each.get_ylabel(): place for place, each in enumerate(axes) if each.get_ylabel()}
    assert list(rows) == list(joint_data.NAMES)
    assert {each.get_title("left") or each.get_title() for each in axes[:6]} == set(joint_data.CLASSES)
    assert all(len(each.images) == 1 for each in axes[:6])
    low, high = axes[rows["sensors"]].get_ylim()
    assert high - low < 0.5 and len(axes[rows["sensors"]].lines) == 1
    plt.close(figure)
