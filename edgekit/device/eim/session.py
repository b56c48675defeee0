"""What one client asks, and the answers to it."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Any

import numpy as np

from edgekit.device.eim import features, messages, parameters, results
from edgekit.device.eim.shared_memory import SharedFeatures
from edgekit.runner.errors import InputError, ResourceError, RunnerError
from edgekit.runner.model import Model

VERSION = 1


class Session:
    """Answers the messages of one client. Clients share the model, and `lock` lets one at a time use it."""

    def __init__(self, model: Model, lock: Lock) -> None:
        self._model, self._lock, self._manifest = model, lock, model.manifest
        self._shared: SharedFeatures | None = None
        self._threshold = parameters.threshold(self._manifest)
        self._lowest = self._threshold.value if self._threshold and self._manifest.task == "detection" else 0.0
        self._requests = {
            "hello": self._hello,
            "classify": self._classify,
            "classify_shm": self._classify_shared,
            "set_threshold": self._set_threshold,
        }

    def answer(self, data: bytes) -> dict[str, Any]:
        """Return the answer to a message. What is wrong with the message becomes an answer as well."""
        identity = None
        try:
            message = messages.parse(data)
            identity = message.get("id")
            if not isinstance(identity, int) or isinstance(identity, bool):
                identity = None
                raise InputError("id: is missing, or not a whole number")
            return {"id": identity, "success": True, **self._request(message)}
        except messages.SyntaxFault as error:
            return failure(str(error), messages.find_id(data))
        except RunnerError as error:
            return failure(str(error), identity)
        except MemoryError:
            return failure("not enough memory for this message", identity)

    def close(self) -> None:
        """Remove the shared memory."""
        if self._shared is not None:
            self._shared.close()
            self._shared = None

    def unlink(self) -> None:
        """Remove the name of the shared memory, at the end of the process, when requests may still read it."""
        if self._shared is not None:
            self._shared.unlink()

    def _request(self, message: dict[str, Any]) -> dict[str, Any]:
        for name, request in self._requests.items():
            if name in message:
                return request(message[name])
        others = ", ".join(sorted(message.keys() - {"id", "debug"})) or "nothing"
        raise InputError(f"the message asks for {others}; send one of {', '.join(self._requests)}")

    def _hello(self, version: Any) -> dict[str, Any]:
        if version != VERSION:
            raise InputError(f"hello: got {str(version)[:20]}; this is version {VERSION} of the protocol")
        return {**parameters.describe(self._manifest), **self._shared_memory()}

    def _shared_memory(self) -> dict[str, Any]:
        """Return where the client may write its samples, or why there is no such place."""
        try:
            if self._shared is None:
                self._shared = SharedFeatures(parameters.feature_count(self._manifest.raw))
        except ResourceError as error:
            return {"features_shm_error": str(error)}
        block = self._shared
        return {
            "features_shm": {
                "name": block.name,
                "size_bytes": block.size_bytes,
                "type": "float32",
                "elements": block.length,
            }
        }

    def _classify(self, values: Any) -> dict[str, Any]:
        if not isinstance(values, list):
            raise InputError("classify: is not a list; send the features of one sample")
        return self._predict("classify", values)

    def _classify_shared(self, value: Any) -> dict[str, Any]:
        if self._shared is None:
            raise InputError("classify_shm: there is no shared memory; send hello first")
        count = value.get("elements") if isinstance(value, dict) else None
        if count != self._shared.length:
            raise InputError(f"classify_shm: got {count} elements; the bundle takes {self._shared.length}")
        return self._predict("classify_shm", self._shared.read())

    def _predict(self, name: str, values: Sequence[Any] | np.ndarray) -> dict[str, Any]:
        manifest = self._manifest
        try:
            sample = features.to_sample(values, manifest.raw)
            with self._lock:
                prediction: Any = self._model.predict(sample, top_k=max(1, len(manifest.labels)))
        except InputError as error:
            raise InputError(f"{name}: {error}") from None
        limit = self._threshold.value if self._threshold else 0.0
        result = results.to_result(prediction, manifest, limit)
        return {"result": result, "timing": results.to_timing(prediction.timing_ms)}

    def _set_threshold(self, value: Any) -> dict[str, Any]:
        """Change the threshold for this client. A detector gives no boxes below the threshold of its bundle."""
        limit = self._threshold
        if limit is None:
            raise InputError(f"set_threshold: the task {self._manifest.task} has no threshold")
        number = value.get(limit.field) if isinstance(value, dict) and value.get("id") == limit.id else None
        if not isinstance(number, (int, float)) or isinstance(number, bool):
            raise InputError(f'set_threshold: send {{"id": {limit.id}, "{limit.field}": a number}}')
        if not number >= self._lowest:
            raise InputError(f"set_threshold: got {number:g}; the bundle gives nothing below {self._lowest:g}")
        self._threshold = limit._replace(value=number)
        return {}


def failure(error: str, identity: int | None) -> dict[str, Any]:
    """Return the answer to a message that failed. `id` is left out if the message had none."""
    return {**({} if identity is None else {"id": identity}), "success": False, "error": error}
