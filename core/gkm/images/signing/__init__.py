"""Making signatures that cosign and we ourselves accept. Only the command line signs."""
