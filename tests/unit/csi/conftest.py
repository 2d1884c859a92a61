"""The fixtures of the driver's tests."""

from support.csi.fixtures import memory_node, rig, scene

__all__ = ["memory_node", "rig", "scene"]
