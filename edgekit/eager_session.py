"""A process that opens a saved network and answers requests by PyTorch eager, and tells when it did what.

`python -m edgekit.eager_session MODEL_FOLDER SAMPLES.npy` writes one JSON line when it is ready and one for each
request: a line with the number of a sample, and `bare` behind it where nothing but the answer is wanted. Stamps are
nanoseconds of the monotonic clock, which all processes share.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

BEGAN = time.perf_counter_ns()
BARE = " bare\n"
WARM_UP_CALLS = 3
"""Calls before the process says that it is ready: the first ones allocate memory and choose kernels."""


def main(model_folder: Path, samples_path: Path) -> None:
    """Answer until standard input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a network or a library prints is no answer
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

    def prepare(number: int) -> torch.Tensor:
        return eager_input(samples[number][None], spec.preprocess)

    def read(scores: torch.Tensor, given: torch.Tensor) -> dict[str, object]:
        if spec.task == "anomaly":
            return {"score": float(torch.mean((scores - given) ** 2))}
        if spec.task == "regression":
            return {"values": scores[0].tolist()}
        if spec.task == "multi_label":
            return {"scores": torch.sigmoid(scores)[0].tolist()}
        probabilities = (scores if spec.gives_probabilities else torch.softmax(scores, dim=1))[0]
        top = int(probabilities.argmax())
        return {"top": top, "label": spec.classes[top], "scores": probabilities.tolist()}

    def say(**answer: object) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    with torch.inference_mode():
        for _ in range(WARM_UP_CALLS):
            module(prepare(0))
        say(began=BEGAN, imported=imported, loaded=loaded, warm=clock())
        for line in sys.stdin:
            if line.endswith(BARE):
                x = prepare(int(line.removesuffix(BARE)))
                say(**read(module(x), x))
                continue
            picked = clock()
            x = prepare(int(line))
            prepared = clock()
            scores = module(x)
            executed = clock()
            answer = read(scores, x)
            answered = clock()
            say(**answer, stamps=(picked, prepared, executed, answered))


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), Path(sys.argv[2]))
    except (Exception, SystemExit) as error:
        from edgekit.errors import ModelError
        from edgekit.models.raised import told

        print(error if isinstance(error, ModelError) else told(error), file=sys.stderr)
        raise SystemExit(ModelError.exit_code) from None
