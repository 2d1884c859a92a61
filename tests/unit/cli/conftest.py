"""The fixtures of the command line's tests."""

from support.cli.fixtures import image, key, site

__all__ = ["image", "key", "site"]
