"""The fixtures of the command line's hostile suite."""

from support.cli.fixtures import site

__all__ = ["site"]
