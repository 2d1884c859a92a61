"""The fixtures of the driver as a process: one node in a mount namespace, for the tests of a module."""

from support.csi.fixtures import rig

__all__ = ["rig"]
