"""The GPUs of this machine behind one Protocol, and whether a cache fits them.

Only this package touches NVML, and only in a short-lived child process (docs/design/node-state.md says why).
"""
