"""The fixtures of the operator's tests against a real API server."""

from support.operator.fixtures import images, kserve
from support.operator.template_admission import site

__all__ = ["images", "kserve", "site"]
