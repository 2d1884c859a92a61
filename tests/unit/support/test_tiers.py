"""A tier has the partners that it builds, and refuses others to its tests."""

from collections.abc import Callable

import pytest
from support.peers import build as peers
from support.peers import require, tiers
from support.peers.go_modules import Peer

KNOWN = [command.name for directory in peers.directories() for command in Peer.read(directory).commands]


@pytest.mark.parametrize(
    ("tier", "has", "lacks"),
    [
        ("check", {"gcc"}, {"etcd", "kubectl", "kubelet", "shellcheck"}),
        ("test", {"gcc", "etcd", "kube-apiserver", "kube-controller-manager", "kubectl"}, {"kubelet", "podman"}),
        ("partners", {"etcd", "kubelet", "cosign", "podman"}, tiers.HEAVY),
        ("all", {"etcd", "kubelet", "podman", *tiers.HEAVY}, set[str]()),
    ],
)
def test_a_tier_has_its_partners_and_no_others(tier: str, has: set[str], lacks: set[str]) -> None:
    assert all(tiers.allows(tier, command) for command in has)
    assert not any(tiers.allows(tier, command) for command in lacks)


def test_each_tier_builds_what_the_ones_before_it_build() -> None:
    built = [set(tiers.commands(tier, KNOWN)) for tier in ("check", "test", "partners", "all")]
    assert built[0] == set()
    assert built[1] == tiers.APISERVER | tiers.RENDERING
    assert built[0] < built[1] < built[2] < built[3] == set(KNOWN)
    assert built[3] - built[2] == tiers.HEAVY


@pytest.mark.parametrize("ask", [peers.binary, require.peer])
def test_a_partner_of_a_later_tier_fails_and_is_not_skipped(
    monkeypatch: pytest.MonkeyPatch, ask: Callable[[str], object]
) -> None:
    monkeypatch.setenv("GKM_TIER", "test")
    with pytest.raises(tiers.OfALaterTier, match=r"^the tier 'test' has no kueue: "):
        ask("kueue")


def test_an_unknown_tier_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GKM_TIER", "tset")
    with pytest.raises(ValueError, match=r"^GKM_TIER=tset: the tiers are check, test, partners, all$"):
        tiers.check("kueue")
