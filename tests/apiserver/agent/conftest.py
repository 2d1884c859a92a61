"""The fixtures of the agent's tests against a real API server."""

from support.agent.node import api, layout, machine, nvml

__all__ = ["api", "layout", "machine", "nvml"]
