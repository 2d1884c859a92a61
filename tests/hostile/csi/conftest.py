"""The fixtures of the driver's hostile suite."""

from support.csi.fixtures import rig, scene

__all__ = ["rig", "scene"]
