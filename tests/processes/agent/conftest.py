"""The fixtures of the agent as a process: a machine with a registry and GPUs, or what an agent left on a node."""

from support.agent.node import layout, machine, node, nvml

__all__ = ["layout", "machine", "node", "nvml"]
