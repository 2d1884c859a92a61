"""The fixtures of the agent's unit tests."""

from support.agent.node import api, changed, layout, node, nvml, source

__all__ = ["api", "changed", "layout", "node", "nvml", "source"]
