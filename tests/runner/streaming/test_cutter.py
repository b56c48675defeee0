"""Windows that are cut from a stream in parts are those of the whole recording."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.runner.inputs import windows
from edgekit.runner.streaming.window_cutter import WindowCutter


@settings(max_examples=300, deadline=None)
@given(
    parts=st.lists(st.integers(0, 40), max_size=12),
    length=st.integers(1, 20),
    hop=st.integers(1, 45),
    fill=st.sampled_from(["none", "silence"]),
    channels=st.sampled_from([(), (1,), (3,)]),
)
def test_any_parts_are_cut_as_the_whole(
    parts: list[int], length: int, hop: int, fill: str, channels: tuple[int, ...]
) -> None:
    whole = np.arange(1, 1 + sum(parts) * int(np.prod(channels)), dtype=np.float32).reshape(-1, *channels)
    expected = list(windows.window_samples(whole, {"length": length, "stride": hop, "fill": fill}, 50))
    cutter, place, found = WindowCutter((length, *channels), hop, fill, 50), 0, []
    for number, size in enumerate(parts):
        found += list(cutter.push(whole[place : place + size], number))
        place += size
    found += list(cutter.finish(99))
    assert [each.span for each in found] == [each.span for each in expected]
    for each, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(each.raw, other.raw)
    ends = np.cumsum(parts)
    for each in found:
        complete = each.span.start + length <= len(whole)
        assert each.arrived_ns == (np.searchsorted(ends, each.span.start + length) if complete else 99)
    assert cutter.moments == len(whole) and cutter.number == len(found)
    assert cutter.remaining == max(0, len(whole) - (found[-1].span.start + length if found else 0))
