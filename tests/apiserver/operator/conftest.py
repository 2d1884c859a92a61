"""The fixtures of the operator's tests against a real API server."""

from support.operator.fixtures import images, kserve
from support.operator.group_fixtures import group_control_plane, place, running
from support.operator.template_admission import site

__all__ = ["group_control_plane", "images", "kserve", "place", "running", "site"]
