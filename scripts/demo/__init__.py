"""Demos, each a sequence of steps that a person can follow: `local` is `make demo`, `cluster` is `make demo-cluster`.

They start real processes by the tests' support (tests/support). No part of the product imports them.
"""
