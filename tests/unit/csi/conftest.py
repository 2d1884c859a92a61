"""The fixtures of the driver's tests."""

from support.csi.fixtures import rig, scene

__all__ = ["desk", "rig", "scene"]
