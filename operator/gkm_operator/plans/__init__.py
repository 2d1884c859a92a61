"""The controller of Run: what is planned, when, and what stands of it (docs/design/plans.md).

Decisions are pure; `controller` and `writer` talk to the API server, and nobody else here does.
"""
