"""What the controller creates and releases where a domain is lost, doubled, or of an unknown kind."""

from gkm_operator.mnnvl.difference import DomainDifference, ExistingDomain, difference, existing
from gkm_operator.mnnvl.required import SetDomainKey
from support.grove.tables import table
from support.grove.typed import a_compute_domain

KEY = SetDomainKey(0, "a")
EARLY, LATE = "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"


def domain(
    name: str, created: str = EARLY, *, terminating: bool = False, key: SetDomainKey | None = KEY
) -> ExistingDomain:
    return ExistingDomain(key, name, f"uid-{name}", terminating, created)


def between(*domains: ExistingDomain) -> DomainDifference:
    """The difference, whatever order the domains have."""
    found = difference(frozenset({KEY}), domains)
    assert difference(frozenset({KEY}), reversed(domains)) == found
    return found


def test_a_domain_has_the_key_that_its_labels_state() -> None:
    made = existing(a_compute_domain("x", "7", "workers", uid="u", creationTimestamp=EARLY))
    assert made == ExistingDomain(SetDomainKey(7, "workers"), "x", "u", terminating=False, created=EARLY)
    assert existing(a_compute_domain("x", "7")).key == SetDomainKey(7, "")
    assert existing(a_compute_domain("x", deletionTimestamp=LATE)).terminating


@table("label", [(repr(label), label) for label in ("", "abc", "-1", "01", "1.0", " 1", "1" * 11)])
def test_a_domain_without_a_replica_is_excess(label: str) -> None:
    found = between(existing(a_compute_domain("odd", label)))
    assert ([odd.name for odd in found.release], found.create) == (["odd"], (KEY,))


def test_a_lost_domain_is_neither_created_again_nor_released() -> None:
    lost = domain("x", terminating=True)
    found = between(lost)
    assert (found.lost, found.create, found.release, found.present) == ((lost,), (), (), {})
    assert not found.complete


def test_an_excess_domain_that_is_terminating_is_released() -> None:
    gone = domain("x", terminating=True, key=SetDomainKey(1, "a"))
    found = between(gone)
    assert (found.lost, found.create, found.release) == ((), (KEY,), (gone,))


def test_the_younger_of_two_domains_is_excess() -> None:
    old, young = domain("z", EARLY), domain("a", LATE)
    found = between(old, young)
    assert (found.present, found.release, found.complete) == ({KEY: old}, (young,), True)


def test_of_two_domains_of_one_second_one_is_excess() -> None:
    first, second = domain("a"), domain("b")
    assert between(first, second).release == (second,)


def test_a_terminating_domain_is_excess_beside_a_living_one() -> None:
    gone, living = domain("x", EARLY, terminating=True), domain("y", LATE)
    found = between(gone, living)
    assert (found.present, found.lost, found.release, found.complete) == ({KEY: living}, (), (gone,), True)


def test_of_two_terminating_domains_one_is_lost() -> None:
    old, young = domain("x", EARLY, terminating=True), domain("y", LATE, terminating=True)
    found = between(old, young)
    assert (found.lost, found.release, found.create) == ((old,), (young,), ())


def test_keys_to_create_are_in_the_order_of_replicas() -> None:
    required = frozenset(SetDomainKey(replica, group) for replica in (10, 9, 2) for group in ("b", "a"))
    found = difference(required, ())
    assert found.create == tuple(SetDomainKey(replica, group) for replica in (2, 9, 10) for group in ("a", "b"))
