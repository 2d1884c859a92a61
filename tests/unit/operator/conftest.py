"""The fixtures of the operator's unit tests."""

from support.operator.fixtures import images

__all__ = ["images"]
