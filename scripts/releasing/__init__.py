"""How a release is made, described, checked and stored (scripts/release.py). No part of the product imports it."""
