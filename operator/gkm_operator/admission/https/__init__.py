"""The HTTPS server of the webhook: connections, sessions and HTTP/1.1. It does not know images."""
