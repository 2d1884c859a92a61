"""The fixtures of the hostile suite of images."""

from support.images.fixtures import built, layout, site

__all__ = ["built", "layout", "site"]
