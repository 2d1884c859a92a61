"""Limits on how often a cache's status is written and its image is checked."""
