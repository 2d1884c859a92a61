"""The directories of deploy/, rendered from the chart (scripts/manifests.py). No part of the product imports it."""
