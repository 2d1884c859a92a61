"""Controllers of task groups: their objects are created and deleted, leaks are found, pools show their templates.

No module here knows a kind of object, except for two conditions: MNNVLReady of a ComputeDomain and NVLinkVerified of a
Job (docs/design/task-groups.md). It must never change an object that it did not create.
"""
