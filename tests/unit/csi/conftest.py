"""The fixtures of the driver's tests."""

from support.csi.fixtures import desk, rig, scene

__all__ = ["desk", "rig", "scene"]
