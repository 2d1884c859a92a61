"""Read the GPUs of this machine, and check whether a cache fits them.

Only this package uses NVML, and only in a short-lived child process (docs/design/node-state.md gives the reason).
"""
