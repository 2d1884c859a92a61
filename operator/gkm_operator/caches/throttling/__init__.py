"""Limits on the rate of status writes and of Events."""
