"""The fixtures of the operator's tests with partners, and of those that take minutes."""

from support.operator.fixtures import kserve
from support.operator.group_fixtures import group_control_plane, place, running

__all__ = ["group_control_plane", "kserve", "place", "running"]
