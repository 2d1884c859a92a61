"""The validating webhook for new caches and new images of caches. Keeps no state that a restart must preserve."""
