"""Which function makes a provider, and what of the cluster the provider reads.

Runs in the provider's process only: the controllers import no provider.
"""

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import cast

from gkm.topology.providers import ProviderFactory, ProviderFailed

from gkm_operator.hypernodes.providers.view import Kind

_PACKAGE = "gkm_operator.hypernodes.providers"
BUILT_IN: Mapping[str, str] = {
    "infiniband": f"{_PACKAGE}.infiniband:provider",
    "lldp": f"{_PACKAGE}.lldp:provider",
    "ufm": f"{_PACKAGE}.ufm:provider",
    "tree-file": f"{_PACKAGE}.tree_file:provider",
}
_READS: Mapping[str, frozenset[Kind]] = {
    "infiniband": frozenset({"Node", "Ports", "Survey"}),
    "lldp": frozenset({"Node", "Neighbors"}),
    "ufm": frozenset({"Node", "Ports"}),
    "tree-file": frozenset({"Node"}),
}
# Providers of others see the GUIDs of Nodes, and would lose nodes without them.
_OTHERS_READ: frozenset[Kind] = frozenset({"HyperNode", "Node", "Ports"})


def reads(reference: str) -> frozenset[Kind]:
    """Return the kinds that a provider reads."""
    return _READS.get(reference, _OTHERS_READ)


def factory(reference: str, path: str = "") -> ProviderFactory:
    """Return the function that makes a provider: the name of a built-in one, or `module:attribute`.

    Modules in the directory `path` can be imported as well; packages of ours win over them.

    Raises:
        ProviderFailed: it cannot be imported.
    """
    if path:
        # Behind ours: a package of a provider must not replace what this process runs on.
        sys.path.append(path)
    target = BUILT_IN.get(reference, reference)
    module, _, attribute = target.partition(":")
    if not module or not attribute:
        known = ", ".join(sorted(BUILT_IN))
        raise ProviderFailed(f"has no class: --class must be module:Class, or one of {known}")
    try:
        return cast("ProviderFactory", getattr(import_module(module), attribute))
    except (ImportError, AttributeError) as error:
        where = f"the image or {path}" if path else "the image; --path names no directory"
        raise ProviderFailed(f"cannot be imported as {target} from {where}: {type(error).__name__}") from error
