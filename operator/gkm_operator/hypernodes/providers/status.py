"""The state of an external provider as a value, for the report, metrics, Events and what the writer waits for."""

from gkm.api.topology_status import ProviderState as State
from gkm.api.topology_status import ProviderStatus

__all__ = ["ProviderFault", "ProviderStatus", "State"]


class ProviderFault(Exception):
    """Why the child of a provider ended or must end: a predicate that follows the provider's name."""
