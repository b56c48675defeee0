"""Routing: finds the handler of a path in the route table of a port."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

from edgekit.serve.errors import RequestError

Handler = TypeVar("Handler", bound=Callable[..., Any])


CACHED_PATHS = 64
"""The number of recent paths whose route is cached, because searching the table takes a microsecond."""


class Route(NamedTuple, Generic[Handler]):
    """A path with placeholders, such as `/v2/models/{model}/infer`, and its handler. `{rest*}` matches the whole rest.

    The first of `methods` is the one that error messages recommend.
    """

    methods: tuple[str, ...]
    path: str
    handler: Handler


class Router(Generic[Handler]):
    """The routes of one port, in the order in which they are tried."""

    def __init__(self, routes: Sequence[Route[Handler]], hint: str) -> None:
        """`hint` is appended to the error for an unknown path, and says which paths exist."""
        self._routes = [(_pattern(route.path), route) for route in routes]
        self._hint = hint
        self.match = lru_cache(CACHED_PATHS)(self._match)

    def _match(self, path: str) -> tuple[Route[Handler], Mapping[str, str]] | None:
        """Return the route of a path and the values of its placeholders, for any method; None if there is none."""
        for pattern, route in self._routes:
            match = pattern.fullmatch(path)
            if match is not None:
                return route, MappingProxyType(match.groupdict())
        return None

    def find(self, method: str, path: str) -> tuple[Handler, Mapping[str, str]]:
        """Return the handler of a request and the values in its path. Raises RequestError (404 or 405)."""
        match = self.match(path)
        if match is None:
            raise RequestError(404, f"path: got {path}; {self._hint}")
        route, values = match
        if method not in route.methods:
            allowed = route.methods
            raise RequestError(405, f"method: got {method}; use {allowed[0]}", allow=", ".join(allowed))
        return route.handler, values


def _pattern(path: str) -> re.Pattern[str]:
    pattern = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]*)", path)
    return re.compile(re.sub(r"\{(\w+)\*\}", r"(?P<\1>.*)", pattern), re.DOTALL)
