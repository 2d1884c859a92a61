"""Directories for kustomize, rendered from the chart (scripts/manifests.py). No part of the product imports it."""
