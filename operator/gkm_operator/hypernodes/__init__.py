"""HyperNodes of the cluster: sources of topology become one tree that schedulers read (docs/design/hypernodes.md).

Must never take part in a decision about a workload.
"""
