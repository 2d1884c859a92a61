"""A plan's hash, worked out again: canonical JSON (RFC 8785) written here, of the plan's own words."""

import hashlib
import json

from gkm.packing.values import Group, Plan


def canonical(value: object) -> str:
    """Return text, numbers, truth values, nothing, lists and objects in the one spelling that RFC 8785 gives them.

    Raises:
        TypeError: it is none of these.
    """
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case str():
            return json.dumps(str(value), ensure_ascii=False)  # its escapes are those of RFC 8785, section 3.2.2.2
        case list() | tuple():
            return "[" + ",".join(canonical(item) for item in value) + "]"
        case dict():
            keys = sorted(value, key=lambda key: key.encode("utf-16-be"))  # by UTF-16 code units, section 3.2.3
            return "{" + ",".join(f"{canonical(key)}:{canonical(value[key])}" for key in keys) + "}"
    raise TypeError(f"{type(value).__name__} has no place in a plan's hash")


def expected_hash(plan: Plan) -> str:
    """Return sha256, in hex, of the request, the groups and the inventory's version."""
    request, malleable = plan.request, plan.request.malleability
    document = {
        "inventoryVersion": plan.inventory_version,
        "request": {
            "gpus": request.gpus,
            "pod_gpus": request.pod_gpus,
            "group_gpus": request.group_gpus,
            "spares": request.spares,
            "may_spread": request.may_spread,
            "policy": request.policy.value,
            "ceilings": [{"scope": ceiling.scope, "gpus": ceiling.gpus} for ceiling in request.ceilings],
            "malleability": malleable and {"step_gpus": malleable.step_gpus, "min_gpus": malleable.min_gpus},
            **({"within": request.within.value} if request.within else {}),
            **({"balanced": True} if request.balanced else {}),
        },
        "groups": [_group(group) for group in plan.groups],
    }
    return hashlib.sha256(canonical(document).encode()).hexdigest()


def _group(group: Group) -> dict[str, object]:
    spares = sorted([spare.node, spare.gpus, list(spare.place), spare.distance.value] for spare in group.spares)
    return {
        "index": group.index,
        "gpus": group.gpus,
        "place": list(group.place),
        "scope": group.scope,
        "nodes": [[share.node, share.gpus] for share in group.nodes],
        "spares": spares,
    }
