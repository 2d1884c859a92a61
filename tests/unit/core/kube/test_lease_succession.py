"""Which leader may meet requests of an earlier one, and what ends a leader whose Lease is another's."""

import pytest
from gkm.kube.leases import LEASES
from support.kube.lease_scene import Scene


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_leader_succeeds_another_unless_that_released_the_lease() -> None:
    """Requests of one that has not can still arrive; it may have had the same identity."""
    scene = Scene()
    first, second, third = scene.candidate("a"), scene.candidate("b"), scene.candidate("b")
    assert first.try_acquire_or_renew()
    assert first.succeeds, "a lease that was missing may have been deleted"
    first.release()
    assert second.try_acquire_or_renew()
    assert not second.succeeds
    assert third.try_acquire_or_renew()
    assert third.succeeds
    scene.now += 30
    fourth = scene.candidate("c")
    fourth.try_acquire_or_renew()
    scene.now += 30
    assert fourth.try_acquire_or_renew()
    assert fourth.succeeds


def test_a_deleted_lease_is_not_taken_while_its_holder_may_lead(scene: Scene) -> None:
    one, two = scene.candidate("one"), scene.candidate("two")
    one.try_acquire_or_renew()
    two.try_acquire_or_renew()
    scene.api.delete(LEASES, "gkm", "gkm-system")
    scene.now = 2.0
    assert not two.try_acquire_or_renew()
    assert one.try_acquire_or_renew()
    scene.api.delete(LEASES, "gkm", "gkm-system")
    scene.now = 15.0
    assert (one.is_leader, two.try_acquire_or_renew()) == (False, True)
    assert two.succeeds


def test_a_lease_that_never_had_a_holder_may_stand_for_one_that_was_deleted(scene: Scene) -> None:
    """A candidate creates the lease, and ends before it takes it."""
    metadata = {"name": "gkm", "namespace": "gkm-system"}
    lease = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": metadata}
    scene.api.apply(LEASES, lease, field_manager="gkm")
    one = scene.candidate("one")
    assert one.try_acquire_or_renew()
    assert one.succeeds


def test_a_leader_that_sees_another_holder_leads_no_more(scene: Scene) -> None:
    """Its lease was deleted, and a replica that has never seen it created another one."""
    one, two = scene.candidate("one"), scene.candidate("two")
    one.try_acquire_or_renew()
    scene.api.delete(LEASES, "gkm", "gkm-system")
    assert (two.try_acquire_or_renew(), two.succeeds) == (True, True)
    scene.now = 2.0
    assert not one.try_acquire_or_renew()
    assert (one.is_leader, two.is_leader) == (False, True)
