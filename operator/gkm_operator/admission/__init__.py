"""The validating webhook: refuses what definitely does not hold. Holds no state that matters."""
