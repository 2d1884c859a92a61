"""The fixtures of the operator's crash tests."""

from support.operator.fixtures import images

__all__ = ["images"]
