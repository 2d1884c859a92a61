"""Reviews of GroupTemplates, Pools, TaskGroups and the pods of TaskGroups (docs/design/task-groups.md).

Decisions are functions of a request, of the observed templates, and of what the API server and the rendering child
return. The only write is a dry run.
"""
