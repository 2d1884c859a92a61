"""What GKM's controllers know of a cluster's topology beside its nodes: their configuration, and trees of providers."""

from collections.abc import Collection, Mapping, Sequence

from gkm.api.config import Config, ConfigInvalid, parse
from gkm.api.installation import CONFIG_KEY, CONFIG_MAP, NAMESPACE
from gkm.api.topology_settings import TopologyLevel
from gkm.kube.api import Api, ListSelector
from gkm.kube.resources import CONFIGMAPS, PROVIDER_TREES
from gkm.topology.placements import Placements, placements
from gkm.topology.provider_trees import InvalidTree, Refused, checked

from gkm_cli.clusters.reads import Unreadable, get, listed

Notes = tuple[str, ...]
"""Sentences for the user."""


def read_config(api: Api) -> tuple[Config | None, Notes]:
    """Return the configuration of the controllers: None, with a note, if it cannot be read; None without GKM."""
    try:
        found = get(api, CONFIGMAPS, CONFIG_MAP, NAMESPACE)
        text = (found or {}).get("data", {}).get(CONFIG_KEY)
        return (parse(text) if isinstance(text, str) else None), ()
    except (ConfigInvalid, Unreadable) as fault:
        return None, (f"the settings are not those of ConfigMap {NAMESPACE}/{CONFIG_MAP}: {fault}",)


def read_trees(
    api: Api, providers: Collection[str], levels: Sequence[TopologyLevel]
) -> tuple[Mapping[str, Placements], Notes]:
    """Return the placements in the ProviderTrees of these providers, and a note for each that has no usable one."""
    hint = "delete those that no provider writes"
    try:
        trees, damaged = listed(api, PROVIDER_TREES, ListSelector(), hint) if providers else ([], [])
    except Unreadable as fault:
        return {}, _notes(dict.fromkeys(providers, str(fault)))
    specs = {tree.metadata.name: tree.spec for tree in trees}
    names, found = [level.name for level in levels], {}
    faults = dict.fromkeys(damaged, "its ProviderTree cannot be read")
    for name in providers:
        spec = specs.get(name)
        if spec is None or not spec.revision:
            faults.setdefault(name, "it has written no tree, and the controllers wait for the first")
            continue
        try:
            tree = checked(spec.tree)
        except (InvalidTree, Refused) as fault:
            faults[name] = f"its revision {spec.revision} cannot be used ({fault}); the controllers use the one before"
        else:
            found[name] = placements(tree.hypernodes.values(), names, tree.quarantined)
    return found, _notes({name: faults[name] for name in providers if name in faults})


def _notes(faults: Mapping[str, str]) -> Notes:
    return tuple(f"the topology of {name} is not used here: {why}" for name, why in faults.items())
