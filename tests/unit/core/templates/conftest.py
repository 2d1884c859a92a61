"""The fixtures of the tests of group templates."""

from support.templates.fixtures import renderer

__all__ = ["renderer"]
