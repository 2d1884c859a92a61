"""The webhook's certificates: issue, rotation and the CA bundle."""
