"""What the processes of one node share: paths, names, records and locks on disk, and the form of a log line.

Standard library only. May know files and names; must never know Kubernetes, registries, gRPC or mounts.
The states and invariants are written down in docs/design/node-state.md.
"""
