"""The fixtures of the driver's unit tests."""

from support.csi.fixtures import memory_node

__all__ = ["memory_node"]
