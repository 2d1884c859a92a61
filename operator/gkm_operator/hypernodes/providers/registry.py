"""Which function makes the provider of a name: a built-in one, or an entry point of an installed package.

Runs in the child process only: the controllers import no provider.
"""

import sys
from importlib import import_module, metadata
from typing import cast

from gkm.topology.providers import ENTRY_POINTS, ProviderFactory, ProviderFailed

_BUILT_IN = {
    name: f"gkm_operator.hypernodes.providers.{module}"
    for name, module in (
        ("infiniband", "infiniband"),
        ("lldp", "lldp"),
        ("ufm", "ufm"),
        ("tree-file", "tree_file"),
    )
}
_SHOWN = 20


def factory(name: str, path: str = "") -> ProviderFactory:
    """Return the function that makes the provider `name`; packages in the directory `path` count as installed.

    Built-in providers come first; packages of ours win over those in `path`.

    Raises:
        ProviderFailed: no package or several packages offer it, or it cannot be imported.
    """
    if path:
        # Behind ours: a package of a provider must not replace what the child itself runs on.
        sys.path.append(path)
    if name in _BUILT_IN:
        return cast("ProviderFactory", import_module(_BUILT_IN[name]).provider)
    found = {point.value: point for point in metadata.entry_points(group=ENTRY_POINTS, name=name)}
    if not found:
        known = sorted({*_BUILT_IN, *metadata.entry_points(group=ENTRY_POINTS).names})
        where = f"the image or {path}" if path else "the image; topology.providerPath names no directory"
        raise ProviderFailed(f"is not installed in {where}; there are {', '.join(known[:_SHOWN])}")
    if len(found) > 1:
        raise ProviderFailed(f"is offered by several packages: {', '.join(sorted(found)[:_SHOWN])}")
    (point,) = found.values()
    try:
        made = point.load()
    except (ImportError, AttributeError) as error:
        raise ProviderFailed(f"cannot be imported from {point.value}: {type(error).__name__}") from error
    return cast("ProviderFactory", made)
