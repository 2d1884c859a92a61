"""The parent's side of rendering: requests in, checked replies out.

The reply of a child is foreign text, because an expression may have taken it over: it is bounded before it is decoded.
"""

from collections.abc import Sequence
from contextlib import suppress
from queue import Empty, LifoQueue
from typing import Any

import msgspec

from gkm.api import json_limits
from gkm.hoststate.escaping import escape
from gkm.templates.encoding import encoded
from gkm.templates.rendering.child_process import REQUEST_SECONDS, START_SECONDS, RenderingChild
from gkm.templates.rendering.frames import MAX_REQUEST_BYTES
from gkm.templates.rendering.renderer import Rendered
from gkm.templates.values import Json, RenderingFailed, RenderingUnavailable, TemplateInvalid, check_levels

CHILDREN = 2
"""So that one template that needs all its time does not stop the others."""
WAIT_SECONDS = 5.0
"""Of a request for a child that is free."""
_MAX_MESSAGE = 1_000


class ChildReply(msgspec.Struct, frozen=True):
    """The reply of a child."""

    objects: list[dict[str, Any]] = []
    verdicts: list[bool] = []
    problems: list[str] = []
    error: str = ""


class RenderingProcess:
    """Renders in children, which start when they are needed. Safe for several threads; never log its requests."""

    def __init__(self) -> None:
        # The last one used is the first: the second starts only when two are needed at once.
        self._idle: LifoQueue[RenderingChild] = LifoQueue()
        for _ in range(CHILDREN):
            self._idle.put(RenderingChild())

    def render(self, templates: Sequence[Json], variables: Json, rules: Sequence[str] = ()) -> Rendered:
        """Return the rendered templates, and whether each rule is true. If one is not, no template is rendered.

        Raises:
            RenderingFailed: an expression fails or exceeds a limit; the message names its place.
            RenderingUnavailable: no fault of the templates; try again later.
        """
        reply = self._reply({"render": templates, "variables": variables, "rules": rules})
        expected = len(templates) if all(reply.verdicts) else 0
        if (len(reply.objects), len(reply.verdicts)) != (expected, len(rules)):
            raise RenderingFailed("the rendering process replies to another request")
        return Rendered(reply.objects, reply.verdicts)

    def compile(self, template: Json, rules: Sequence[str] = ()) -> list[str]:
        """Return the problems of the expressions of a template, and of rules: syntax, unknown variables.

        Raises:
            RenderingFailed: compiling exceeds a limit.
            RenderingUnavailable: no fault of the template; try again later.
        """
        return [_excerpt(problem) for problem in self._reply({"compile": template, "rules": rules}).problems]

    def close(self) -> None:
        """End the children; a later request fails with RenderingUnavailable after WAIT_SECONDS."""
        for _ in range(CHILDREN):
            with suppress(Empty):
                self._idle.get(timeout=START_SECONDS + REQUEST_SECONDS).end()

    def _reply(self, request: Json) -> ChildReply:
        try:
            payload = encoded(request, MAX_REQUEST_BYTES, "templates, variables and rules")
        except TemplateInvalid as error:
            raise RenderingFailed(str(error)) from None
        try:
            child = self._idle.get(timeout=WAIT_SECONDS)
        except Empty:
            raise RenderingUnavailable(f"no rendering process was free for {WAIT_SECONDS:g} s; try again") from None
        try:
            text = child.exchange(payload)
        finally:
            self._idle.put(child)
        reply = decode(text)
        if reply.error:
            raise RenderingFailed(_excerpt(reply.error))
        return reply


def decode(text: bytes) -> ChildReply:
    """Return the reply of a child; raise RenderingFailed if it is malformed, or holds too many values or levels."""
    try:
        json_limits.check_objects(text)
        json_limits.check_items(text)
        reply = msgspec.json.decode(text, type=ChildReply)
        check_levels(reply.objects)
    except (
        msgspec.DecodeError,
        json_limits.TooManyValues,
        TemplateInvalid,
        RecursionError,
        UnicodeDecodeError,
    ) as error:
        raise RenderingFailed(f"the rendered objects cannot be used: {_excerpt(str(error))}") from None
    return reply


def _excerpt(message: str) -> str:
    return escape(message[:_MAX_MESSAGE])
