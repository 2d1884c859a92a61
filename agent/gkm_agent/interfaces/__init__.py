"""The Protocols through which the agent reads desired state and reports observed state."""
