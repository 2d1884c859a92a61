"""The fixtures of the tests of images against real registries."""

from support.images.fixtures import built, layout

__all__ = ["built", "layout"]
