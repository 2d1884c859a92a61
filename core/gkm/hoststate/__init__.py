"""The state and conventions that the processes of one node share: paths, names, records, locks, logs, command lines.

Standard library only. May know files, names and child processes; must never know Kubernetes, registries, gRPC or
mounts. docs/design/node-state.md documents the states and invariants.
"""
