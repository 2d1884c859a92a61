"""The interface between rendering and its users."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from gkm.templates.values import Json


@dataclass(frozen=True, slots=True)
class Rendered:
    """Rendered objects and the verdicts of rules, each in the order of the request.

    If a verdict is False, there are no objects.
    """

    objects: list[Json]
    verdicts: list[bool]


class Renderer(Protocol):
    """Renders templates; callable from several threads."""

    def render(self, templates: Sequence[Json], variables: Json, rules: Sequence[str] = ()) -> Rendered:
        """Return the rendered templates, and whether each rule is true. If one is not, no template is rendered.

        Raises:
            RenderingFailed: an expression fails or exceeds a limit; the message names its place.
            RenderingUnavailable: no fault of the templates; try again later.
        """

    def compile(self, template: Json, rules: Sequence[str] = ()) -> list[str]:
        """Return the problems of the expressions of a template, and of rules; raises as `render` does."""

    def close(self) -> None:
        """End what renders; later requests fail."""
