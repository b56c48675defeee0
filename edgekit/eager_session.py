"""A process that opens a saved network and answers requests by PyTorch eager, and tells when it did what.

`python -m edgekit.eager_session MODEL_FOLDER SAMPLES.npy` writes one JSON line when it is ready and one for each
request, a line with the number of a sample. Stamps are nanoseconds of the monotonic clock, which all processes share.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

BEGAN = time.perf_counter_ns()
WARM_UP_CALLS = 3
"""Calls before the process says that it is ready: the first ones allocate memory and choose kernels."""


def main(model_folder: Path, samples_path: Path) -> None:
    """Answer until standard input ends."""
    clock = time.perf_counter_ns
    import numpy as np
    import torch

    from edgekit.eager import eager_input
    from edgekit.models import store

    torch.set_num_threads(1)
    imported = clock()
    module, spec = store.load(model_folder)
    samples = np.load(samples_path, allow_pickle=False)
    loaded = clock()
    with torch.inference_mode():
        for _ in range(WARM_UP_CALLS):
            module(eager_input(samples[:1], spec.preprocess))
        _say(began=BEGAN, imported=imported, loaded=loaded, warm=clock())
        for line in sys.stdin:
            picked = clock()
            x = eager_input(samples[int(line)][None], spec.preprocess)
            prepared = clock()
            scores = module(x)
            executed = clock()
            probabilities = torch.softmax(scores, dim=1)[0]
            top = int(probabilities.argmax())
            answered = clock()
            stamps = (picked, prepared, executed, answered)
            _say(top=top, label=spec.classes[top], scores=probabilities.tolist(), stamps=stamps)


def _say(**answer: object) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
