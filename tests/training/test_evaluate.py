"""What counts as an answer."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.core.errors import ModelError
from edgekit.training import evaluate


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_no_number_is_no_answer(bad: float) -> None:
    outputs = np.zeros((4, 2, 3), np.float32)
    assert evaluate.finite(outputs, "net", "mend it") is outputs
    outputs[2, 1, 0] = bad
    with pytest.raises(ModelError, match="net answers sample 2 of 4 with NaN or infinity; mend it"):
        evaluate.finite(outputs, "net", "mend it")
