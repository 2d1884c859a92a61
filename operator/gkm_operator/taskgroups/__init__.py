"""Controllers of task groups: they create and delete the groups' objects, find leaks, and write the status of pools.

No module here knows a kind of object, except for two conditions: MNNVLReady of a ComputeDomain and NVLinkVerified of a
Job (docs/design/task-groups.md). It must never change an object that it did not create.
"""
