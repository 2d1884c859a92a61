"""Checks at the start of the controllers: our kinds and the rights to use them."""
