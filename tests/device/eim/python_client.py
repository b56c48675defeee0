"""What Edge Impulse's Python client makes of a program; run by Python of build/eim.

    python_client.py PROGRAM SAMPLES.json KIND

KIND is "shm", "json" or "image". SAMPLES.json has a list of feature lists, or of pictures (rows, columns, 3) for
"image". The answer to `hello` and the results are printed as JSON.
"""

import json
import sys
import types

import numpy as np

sys.modules["pyaudio"] = types.ModuleType("pyaudio")  # imported by the package, but used only for microphones

from edge_impulse_linux.image import ImageImpulseRunner  # noqa: E402
from edge_impulse_linux.runner import ImpulseRunner  # noqa: E402


def main() -> None:
    program, samples, kind = sys.argv[1:]
    runner = ImageImpulseRunner(program) if kind == "image" else ImpulseRunner(program, allow_shm=kind == "shm")
    results = []
    try:
        hello = runner.init()
        with open(samples) as stream:
            whole = json.load(stream)
        for sample in whole:
            features = sample
            if kind == "image":
                features, _ = runner.get_features_from_image_auto_studio_settings(np.array(sample, np.uint8))
            try:
                results.append(runner.classify(features)["result"])
            except Exception as error:
                results.append(str(error))
    except Exception as error:
        hello = str(error)
    process = runner._runner
    runner.stop()
    code = process.wait(30)
    print(json.dumps({"hello": hello, "results": results, "code": code}))


main()
