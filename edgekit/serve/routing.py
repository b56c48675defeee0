"""Which handler answers a path: one table of routes for each port."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

from edgekit.serve.errors import RequestError

Handler = TypeVar("Handler", bound=Callable[..., Any])


REMEMBERED_PATHS = 64
"""A client asks the same path again and again, and a search through the table takes a microsecond."""


class Route(NamedTuple, Generic[Handler]):
    """A path with names for its parts, such as `/v2/models/{model}/infer`; `{rest*}` is all that follows.

    The first of `methods` is the one that a client is told to use.
    """

    methods: tuple[str, ...]
    path: str
    handler: Handler


class Router(Generic[Handler]):
    """The routes of one port, in the order in which they are tried."""

    def __init__(self, routes: Sequence[Route[Handler]], there_is: str) -> None:
        """`there_is` is what the answer to an unknown path says of those that are known."""
        self._routes = [(_pattern(route.path), route) for route in routes]
        self._there_is = there_is
        self.match = lru_cache(REMEMBERED_PATHS)(self._match)

    def _match(self, path: str) -> tuple[Route[Handler], Mapping[str, str]] | None:
        """The route of a path, whatever the method, and the values of its names; None where there is none."""
        for pattern, route in self._routes:
            found = pattern.fullmatch(path)
            if found is not None:
                return route, MappingProxyType(found.groupdict())
        return None

    def find(self, method: str, path: str) -> tuple[Handler, Mapping[str, str]]:
        """The handler of a request, and the values in its path; RequestError (404 or 405) where there is none."""
        found = self.match(path)
        if found is None:
            raise RequestError(404, f"path: got {path}; {self._there_is}")
        route, values = found
        if method not in route.methods:
            allowed = route.methods
            raise RequestError(405, f"method: got {method}; use {allowed[0]}", allow=", ".join(allowed))
        return route.handler, values


def _pattern(path: str) -> re.Pattern[str]:
    pattern = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]*)", path)
    return re.compile(re.sub(r"\{(\w+)\*\}", r"(?P<\1>.*)", pattern), re.DOTALL)
