"""The fixtures of the operator's hostile suite."""

from support.operator.fixtures import images

__all__ = ["images"]
