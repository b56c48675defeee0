"""scikit-learn's digits: real pictures of 8×8 pixels. The network learns 0 to 8 from half of them, and never a 9."""

from __future__ import annotations

import numpy as np

from benchmarks.drift.drifts import images
from benchmarks.drift.subjects import Subject, manifest, network
from edgekit.runner.bundle.manifest import RawSpec

KNOWN = 9


def load(quick: bool = False) -> Subject:
    """The half that the network did not learn."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    x = np.rint(bunch.images * (255 / 16)).astype(np.uint8)[..., None]
    order = np.random.default_rng(0).permutation(len(x))
    x, classes = x[order], bunch.target[order]
    known = np.flatnonzero(classes < KNOWN)
    learning, held = known[: len(known) // 2], known[len(known) // 2 :]

    def features(raws: np.ndarray) -> np.ndarray:
        return raws.reshape(len(raws), -1) / np.float32(255)

    logits = network.learnt(features(x[learning]), classes[learning], (48,))
    return Subject(
        name="digits",
        what="8×8 pixels of scikit-learn's digits, and a network of one hidden layer that knows 0 to 8",
        manifest=manifest("digits", RawSpec("image", (8, 8, 1), "uint8"), [str(each) for each in range(KNOWN)]),
        raws=x[held],
        classes=classes[held],
        unknown=x[classes == KNOWN],
        answer=lambda raws: logits(features(raws)),
        drifts=images.GREY,
        references=400,
    )
