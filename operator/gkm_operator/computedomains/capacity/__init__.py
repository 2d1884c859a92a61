"""Whole free nodes by NVLink clique, which admission warns with."""
