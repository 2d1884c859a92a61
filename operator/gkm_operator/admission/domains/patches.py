"""JSON patches (RFC 6902) that add entries to maps and lists. Pure; must never remove or replace an existing value."""

from collections.abc import Iterator, Mapping

from gkm_operator.mnnvl.injection import Operation


def add_entries(at: str, values: Mapping[str, str], *, exists: bool) -> Iterator[Operation]:
    """Yield the operations that add entries to a map of strings, which `exists` or not; `at` is its JSON pointer."""
    if values and not exists:
        yield {"op": "add", "path": at, "value": dict(values)}
    elif values:
        for key, value in values.items():
            escaped = key.replace("~", "~0").replace("/", "~1")
            yield {"op": "add", "path": f"{at}/{escaped}", "value": value}
