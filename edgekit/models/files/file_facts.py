"""Read from a model file what it says about itself: its input, its outputs, and the names of its classes."""

from __future__ import annotations

import json
import tempfile
from ast import literal_eval
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgekit.core import subprocesses
from edgekit.core.config import available_cores
from edgekit.core.errors import EdgekitError, ModelError
from edgekit.models.files import detect, module
from edgekit.models.files.task_outputs import RawOutputs

LIMIT_S = 120.0
CHANNELS = (1, 3)


@dataclass(frozen=True)
class FileFacts:
    """What is known about a model file before it sees any data.

    Attributes
    ----------
    kind
        The format, named after its module in `edgekit.models.files`.
    input_shape
        Shape of its only input, the batch first; an open dimension is -1.
    output_shapes
        Shapes of its outputs, the batch first; read from ONNX files only, and empty for other formats.
    metadata
        Texts that the exporter left in an ONNX file, parsed where they are JSON or Python literals; empty for other
        formats.
    """

    kind: str
    input_shape: tuple[int, ...]
    output_shapes: tuple[tuple[int, ...], ...]
    metadata: dict[str, Any]

    @property
    def picture(self) -> tuple[int, int, int] | None:
        """(height, width, channels) of the pictures that it takes; None if it takes no pictures.

        Open sides are taken from the metadata. A side that the metadata do not state either is -1.
        """
        shape = self.input_shape
        if len(shape) != 4:
            return None
        if shape[1] in CHANNELS and shape[3] not in CHANNELS:
            channels, height, width = shape[1:]
        elif shape[3] in CHANNELS:
            height, width, channels = shape[1:]
        else:
            return None
        stated = self.metadata.get("imgsz")
        stated = [stated, stated] if isinstance(stated, int) else stated
        if isinstance(stated, list) and len(stated) == 2 and all(isinstance(side, int) for side in stated):
            height, width = (own if own > 0 else side for own, side in zip((height, width), stated, strict=True))
        return height, width, channels

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """The names of the classes in the order of the outputs, if the metadata have them."""
        names = self.metadata.get("names", self.metadata.get("labels"))
        if isinstance(names, dict):
            try:
                names = [names[key] for key in sorted(names, key=int)]
            except (TypeError, ValueError):
                return None
        if not isinstance(names, list | tuple) or not names or not all(isinstance(name, str) for name in names):
            return None
        return tuple(names)

    @property
    def task(self) -> str | None:
        """The task that the metadata name, in the exporter's words, such as "detect" or "classify"."""
        task = self.metadata.get("task")
        return task if isinstance(task, str) else None


class FileProcess:
    """A process that opens the model file at `path`, so that a broken file cannot end this process.

    It is a context manager. All calls of a block run in the same process unless a call crashes it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._home = tempfile.TemporaryDirectory(prefix="edgekit-file-")
        environment = {**subprocesses.QUIET_ENVIRONMENT, "TMPDIR": self._home.name}
        self._server = subprocesses.CallServer(Path(self._home.name, subprocesses.LOG), environment)

    def __enter__(self) -> FileProcess:
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.__exit__(*exception)
        self._home.cleanup()

    def call(self, function: str, arguments: dict[str, Any], limit_s: float, folder: Path | None = None) -> Any:
        """Call a function in the process and return its result; messages of its errors begin with the path.

        Parameters
        ----------
        function, arguments
            See `subprocesses.call`; the function gets `path`, too.
        limit_s
            Longest time in seconds.
        folder
            An existing folder for the files of the call, if the function writes some.

        Raises
        ------
        ModelError
            The function raised an error of the file, or its process died.
        """
        job = {"path": str(self.path.absolute()), **arguments}
        try:
            return self._server.call(function, job, folder or Path(self._home.name), limit_s)
        except EdgekitError as error:
            raise (ModelError if type(error) is EdgekitError else type(error))(f"{self.path}: {error}") from None
        except subprocesses.ChildDied as died:
            raise ModelError(f"{self.path}: cannot be run: {died.ended.describe()}") from None


def read(process: FileProcess) -> FileFacts:
    """Return the facts about a model file.

    Raises
    ------
    ModelError
        The file holds no model, cannot be opened, or has several inputs.
    """
    kind = detect.model_kind(process.path)
    facts = process.call(f"{__name__}:describe", {"kind": kind}, LIMIT_S)
    return FileFacts(
        kind, tuple(facts["input_shape"]), tuple(tuple(shape) for shape in facts["output_shapes"]), facts["metadata"]
    )


def describe(path: str, kind: str) -> dict[str, Any]:
    """Return the facts as JSON values; `read` calls this in a child process."""
    file = Path(path)
    if kind == "onnx":
        return _describe_onnx(file)
    raw = RawOutputs(0)
    opened = module(kind).open(file, available_cores(), (), raw)
    return {"input_shape": list(opened.shape), "output_shapes": [], "metadata": {}}


def _describe_onnx(path: Path) -> dict[str, Any]:
    import onnx

    from edgekit.models.files import onnx as onnx_file
    from edgekit.models.files import onnx_batch

    content = onnx_file.onnx(path)
    model = onnx.load_model_from_string(content)
    ports = onnx_batch.describe_ports(model)
    if len(ports["inputs"]) != 1:
        names = ", ".join(each["name"] for each in ports["inputs"])
        raise ModelError(f"has {len(ports['inputs'])} inputs ({names}); write the config by hand, for one with several")
    return {
        "input_shape": ports["inputs"][0]["shape"],
        "output_shapes": [each["shape"] for each in ports["outputs"]],
        "metadata": onnx_metadata(content),
    }


def onnx_metadata(content: bytes) -> dict[str, Any]:
    """Return the metadata of an ONNX file, with values that are JSON or Python literals parsed."""
    import onnx

    return {each.key: _parsed(each.value) for each in onnx.load_model_from_string(content).metadata_props}


def _parsed(text: str) -> Any:
    for parse in (json.loads, literal_eval):
        try:
            value = parse(text)
            json.dumps(value)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            continue
        return value
    return text
