"""Generated from pyproject.toml by `make generate`: importlib.metadata would cost 2 MiB."""

VERSION = "0.1.0"
