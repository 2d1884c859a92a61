"""The Protocols through which the agent reads its desired state and publishes the state of the node."""
