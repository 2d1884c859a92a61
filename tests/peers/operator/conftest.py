"""The fixtures of the operator's tests against a real API server."""

from support.operator.fixtures import images

__all__ = ["images"]
