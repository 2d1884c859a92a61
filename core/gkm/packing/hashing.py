"""The hash of a plan: sha256 of the request, the groups and the inventory's version, as canonical JSON (RFC 8785)."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict

from gkm.packing.values import Group, Request


def plan_hash(request: Request, groups: Sequence[Group], inventory_version: str) -> str:
    """Return the hash of a plan: SHA-256 in hexadecimal.

    Raises:
        UnicodeEncodeError: a name holds half a surrogate pair, which no JSON can say.
    """
    return hashlib.sha256(canonical(document(request, groups, inventory_version))).hexdigest()


def document(request: Request, groups: Sequence[Group], inventory_version: str) -> dict[str, object]:
    """Return the JSON document of a plan that is hashed.

    `request` holds the fields of Request by their names; `within`, `balanced` and `per_area` only where they are set,
    so that other requests have the hash of earlier versions. A group is its index, GPUs, place (region, cluster, block,
    domain), scope, nodes as [name, GPUs] and spares as [name, GPUs, place, distance], sorted.
    """
    optional = {name for name in ("within", "balanced", "per_area") if not getattr(request, name)}
    return {
        "request": {name: value for name, value in asdict(request).items() if name not in optional},
        "groups": [
            {
                "index": group.index,
                "gpus": group.gpus,
                "place": group.place,
                "scope": group.scope,
                "nodes": group.nodes,
                "spares": sorted((spare.node, spare.gpus, spare.place, spare.distance) for spare in group.spares),
            }
            for group in groups
        ],
        "inventoryVersion": inventory_version,
    }


def canonical(value: object) -> bytes:
    """Return a value as canonical JSON. It must have no floats, only ASCII keys and integers below 2^53.

    Of such values the standard library writes what RFC 8785 asks for, six times faster than a library for all values; a
    test holds the two against each other.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, check_circular=False).encode()
