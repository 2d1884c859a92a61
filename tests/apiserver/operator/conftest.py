"""The fixtures of the operator's tests against a real API server."""

from support.operator.fixtures import images, kserve

__all__ = ["images", "kserve"]
