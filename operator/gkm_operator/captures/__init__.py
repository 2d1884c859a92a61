"""The controller of captures: registers announced captures as caches, and ends those that are not retained."""
