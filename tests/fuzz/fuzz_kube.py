"""Lists as kubectl prints them, and quantities: what is read is what any reader of JSON and of quantities finds."""

import json
import re
from fractions import Fraction
from typing import Any

from gkm.api.topology_settings import Topology
from gkm.topology import lists, pods
from gkm.topology.lists import ListUnreadable
from gkm.topology.nodes import MAX_GPUS, gpu_count
from gkm.topology.survey import survey_nodes
from gkm_csi.volumes import request

REFUSED = "refused"
_UNITS = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DIGITS = frozenset("0123456789")


class _Twice(Exception):
    """An object has a key twice: readers differ on what that means."""


def lists_of_objects(data: bytes) -> None:
    """The cuts of a long list, and of its blocks, change nothing of what is read; what is read is JSON, and bounded."""
    whole = _read([data])
    try:
        value = json.loads(data.decode(), object_pairs_hook=_once)
    except (_Twice, RecursionError, UnicodeDecodeError):
        return
    except ValueError:
        assert whole == (REFUSED, REFUSED)
        return
    # Without its layout, which is what the list is cut by.
    compact = _read([json.dumps(value, separators=(",", ":")).encode()])
    readings = [_read([data[at : at + size] for at in range(0, len(data), size)]) for size in _sizes(data)]
    for reading in (whole, *readings):
        # A list with another one beside `items`, which the API has nowhere, may be refused when it is cut.
        assert all(found in (REFUSED, meant) for found, meant in zip(reading, compact, strict=True))


def _sizes(data: bytes) -> list[int]:
    return [size for size in (1, 7, 64, 700) if len(data) <= 64 * size]


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(found := dict(pairs)) < len(pairs):
        raise _Twice
    return found


def _read(blocks: list[bytes]) -> tuple[object, object]:
    """Return nodes and pods, or for either the word for a list that is refused."""
    found: list[object] = []
    try:
        nodes = lists.parse_nodes(blocks)
        surveyed = survey_nodes(nodes.nodes, Topology(), nodes.unread)
        names = [each.node.name for each in surveyed.located] + list(surveyed.bare)
        assert len(set(names)) == len(names)
        assert len(names) + len(surveyed.quarantined) == len(nodes.nodes) + len(nodes.unread)
        for aside in surveyed.quarantined:
            _check_message(aside.message)
            _check_message(aside.node)
        assert all(0 <= each.gpus <= MAX_GPUS for each in surveyed.located)
        found.append(nodes)
    except ListUnreadable as error:
        found.append(_refused(error))
    try:
        listed = lists.parse_pods(blocks)
        for pod in listed.pods:
            _takes(pod)
        for _, why in listed.unread:
            _check_message(why)
        found.append(listed)
    except ListUnreadable as error:
        found.append(_refused(error))
    return found[0], found[1]


def _takes(pod: pods.Pod) -> None:
    try:
        assert pods.requested_gpus(pod) >= 0
        assert min(pods.requested_load(pod)) >= 0
    except ValueError as error:
        _check_message(str(error))


def _refused(error: ListUnreadable) -> str:
    _check_message(str(error))
    return REFUSED


def _check_message(text: str) -> None:
    assert text.isprintable(), ascii(text)
    assert len(text) < 500, ascii(text)


def amounts(data: bytes) -> None:
    """A quantity that is read is the number that the grammar of Kubernetes says, computed in another way."""
    text = data.decode("utf-8", "replace")
    meant = _meant(text)
    try:
        read = gpu_count(text)
    except ValueError as error:
        _check_message(str(error))
        # What is longer than 18 digits is refused unread, and so are exponents of three digits, and a minus before 0.
        short = len(text) <= 18 and text[:1] != "-" and not re.search("[eE][+-]?[0-9]{3}", text)
        assert meant is None or not short or meant.denominator != 1 or not 0 <= meant <= MAX_GPUS, text
    else:
        assert meant == read, ascii(text)
        assert 0 <= read <= MAX_GPUS
        assert gpu_count(str(read)) == gpu_count(f"{read * 1000}m") == read
    size = request.parse_bytes(text)
    if size is not None:
        assert meant == size, ascii(text)
        assert request.parse_bytes(str(size)) == size or size >= 10**15


def _meant(text: str) -> Fraction | None:
    """Return the number in a quantity (apimachinery pkg/api/resource, "Quantity"), None for what is none."""
    sign = -1 if text.startswith("-") else 1
    rest = text[1:] if text[:1] in ("+", "-") else text
    end = next((at for at, one in enumerate(rest) if one not in _DIGITS and one != "."), len(rest))
    number, suffix = rest[:end], rest[end:]
    if number.count(".") > 1 or not _DIGITS & set(number):
        return None
    before, _, after = number.partition(".")
    value = Fraction(sign * int((before or "0") + after), int("1" + len(after) * "0"))
    if suffix in _UNITS:
        return value * _power(_UNITS[suffix])
    if suffix in _BINARY:
        return value * (1 << _BINARY[suffix])
    exponent = suffix[1:].removeprefix("-").removeprefix("+") if suffix[:1] in ("e", "E") else ""
    if not exponent or not set(exponent) <= _DIGITS or len(suffix) - len(exponent) > 2 or len(exponent) > 3:
        return None
    return value * _power(-int(exponent) if suffix[1] == "-" else int(exponent))


def _power(exponent: int) -> Fraction:
    power = Fraction(int("1" + abs(exponent) * "0"))
    return power if exponent >= 0 else 1 / power
