"""Open a bundle on the emulated device and call its model: `python calls.py ROOT BUNDLE INTERPRETER CALLS`."""

import sys


def main(root: str, path: str, interpreter: str, calls: str) -> None:
    """Call the model with an input of zeros. `root` is the folder that contains the package `edgekit`."""
    sys.path.append(root)
    import numpy as np

    from edgekit.runner import bundle
    from edgekit.runner.backends import open_backend

    opened = bundle.read(path)
    manifest = opened.manifest
    backend = open_backend(
        manifest.target, opened.model_files(), manifest.inputs, manifest.outputs, interpreter=interpreter
    )
    x = np.zeros((1, *manifest.input.shape[1:]), manifest.input.dtype)
    for _ in range(int(calls)):
        backend.invoke(x)


if __name__ == "__main__":
    main(*sys.argv[1:])
