"""The fixtures of the tests that read GPUs."""

from support.gpus.inventories import nvml, reading

__all__ = ["nvml", "reading"]
