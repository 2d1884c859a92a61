"""The one tree of domains: its merge from all sources, its guard, and the forms that schedulers read. Pure.

What reads a source stands beside this folder; here are only its places.
"""
