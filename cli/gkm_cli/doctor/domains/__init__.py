"""Checks of ComputeDomains and of all that belongs to them: pure functions over lists, except in `cluster`.

An object that is younger than the cutoff gives no finding where a controller may not have reached it yet.
"""
