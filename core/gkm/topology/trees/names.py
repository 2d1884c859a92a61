"""Make names of domains for HyperNodes and label values: legal, unique and stable. Pure.

A name is a function of the domain's level and identity only, never of what else exists.
"""

import re
from collections.abc import Collection
from hashlib import sha256

from gkm.api import node_labels

_LONGEST = 63
# Kubernetes, "Object Names and IDs", a DNS subdomain; with at most 63 characters it is also the value of a label.
_LEGAL = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*", re.ASCII)
_DIGEST = 20
# No readable name ends like a hashed one, so that no provider can name a domain like another one.
_LOOKS_HASHED = re.compile(rf"(?:^|-)[0-9a-f]{{{_DIGEST}}}$")
OWN_LABEL_VALUE = re.compile(rf"node-[0-9a-f]{{{_DIGEST}}}", re.ASCII)
"""The values that `own_label_value` returns."""
_UNREADABLE = re.compile(r"[^a-z0-9]+")
_SLUG = 20


def hypernode_name(level: str, name: str, identity: str, levels: Collection[str], *, hashed: bool) -> str:
    """Return the name of a domain's HyperNode: `<level>-<name>`, if that is legal and unique at its level.

    Otherwise it ends with a digest of level and identity; with `hashed` it does not contain the domain's name.
    `levels` are all levels: a-b and a could make the same name of c and b-c, so names at a-b end with a digest then.
    """
    ambiguous = any(level.startswith(f"{other}-") for other in levels)
    readable = f"{level}-{name}"
    if not (hashed or ambiguous or name != identity) and _is_plain(readable, _LEGAL):
        return readable
    return f"{level}-{_digested(level, name, identity, hashed=hashed)}"


def label_value(level: str, name: str, identity: str, *, hashed: bool) -> str:
    """Return the label value for a domain: its name if legal and unique at its level, else with a digest."""
    if not hashed and name == identity and _is_plain(name, node_labels.NAME):
        return name
    return _digested(level, name, identity, hashed=hashed)


def own_label_value(level: str, identity: str) -> str:
    """Return the label value of a level for a node that has no domain there."""
    return f"node-{_digest(level, identity)}"


def _is_plain(name: str, legal: re.Pattern[str]) -> bool:
    return len(name) <= _LONGEST and legal.fullmatch(name) is not None and not _LOOKS_HASHED.search(name)


def _digested(level: str, name: str, identity: str, *, hashed: bool) -> str:
    slug = "" if hashed else _UNREADABLE.sub("-", name.lower())[:_SLUG].strip("-")
    digest = _digest(level, identity)
    return f"{slug}-{digest}" if slug else digest


def _digest(level: str, identity: str) -> str:
    return sha256(f"{level}/{identity}".encode(errors="surrogatepass")).hexdigest()[:_DIGEST]
