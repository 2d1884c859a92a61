"""The interface between rendering and its users."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from gkm.templates.values import Json


@dataclass(frozen=True, slots=True)
class Rendered:
    """The result of rendering templates: the objects, and whether each rule is true, in the order of the request.

    If a verdict is False, there are no objects.
    """

    objects: list[Json]
    verdicts: list[bool]


class Renderer(Protocol):
    """Renders group templates; callable from several threads."""

    def render(self, templates: Sequence[Json], variables: Json, rules: Sequence[str] = ()) -> Rendered:
        """Return the rendered templates, and whether each rule is true; no template is rendered if a rule is false.

        Raises:
            RenderingFailed: an expression fails or exceeds a limit; the message names its place.
            RenderingUnavailable: rendering is not possible now; try again later.
        """

    def compile(self, template: Json, rules: Sequence[str] = ()) -> list[str]:
        """Return the problems in the expressions of a template and of rules; raises as `render` does."""

    def close(self) -> None:
        """Stop rendering; later requests fail."""
