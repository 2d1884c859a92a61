"""Webhook configurations and the CAs in them: admission publishes its CAs, the controllers copy them."""
