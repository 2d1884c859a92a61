"""A provider as its pod runs it: it becomes its ProviderTree, and each end of it leaves the last good tree."""

import logging
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec
import pytest
from gkm.api.meta import FALSE, Condition
from gkm.api.provider_trees import MAX_PACKED, ProviderTreeStatus, RefusedHyperNode, TreeReason
from gkm.kube.errors import ApiError
from gkm.kube.resources import HYPERNODES, NODES, PROVIDER_TREES
from gkm.topology import provider_trees
from gkm.topology.provider_trees import unpack
from gkm.topology.quarantine import Quarantined, QuarantineReason
from gkm_operator.hypernodes.providers.channel import UNSTATED_END
from support.kube.fake_api import FakeApi
from support.operator.nodes import put
from support.operator.topology import hypernode, node
from support.topology.provider_pods import PACE, ProviderPod, misbehaves

SERIAL = "MT1234X00001"


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


def test_a_provider_serves_its_hypernodes_until_it_is_stopped(api: FakeApi, tmp_path: Path) -> None:
    with misbehaves(api, "serves", tmp_path) as pod:
        pod.serves()
        assert pod.names() == {"one"}
        assert (pod.spec.revision, pod.spec.hypernodes, pod.spec.nodes, pod.spec.reason) == (1, 1, 1, "")
    assert (pod.code, pod.notes()) == (0, ["stopped"])
    assert (pod.spec.state, pod.spec.reason, pod.names()) == ("Starting", "is stopped", {"one"})


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("raises", "raised ValueError at misbehaving.py:"),
        ("states-why", r"cannot read its \x1b[31mserver"),
        ("sends-no-event", "raised ValueError at channel.py:"),
        ("nobody", "cannot be imported as support.topology.misbehaving:nobody from the image"),
    ],
)
def test_a_provider_that_fails_ends_its_process_and_says_why_without_content(
    api: FakeApi, tmp_path: Path, name: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    with misbehaves(api, name, tmp_path) as pod:
        assert pod.failed().startswith(reason)
    assert pod.code == 1
    assert SERIAL not in str(api.stored("providertrees"))
    assert SERIAL not in caplog.text


def test_the_last_good_tree_outlives_the_failure_and_the_next_start(api: FakeApi, tmp_path: Path) -> None:
    with misbehaves(api, "raises", tmp_path, named="acme") as first:
        first.failed()
        assert first.names() == {"one"}
    with misbehaves(api, "hangs-in-start", tmp_path, named="acme", pace=replace(PACE, start=0.3)) as second:
        assert second.failed() == "sent no event within 0.3 s"
        assert (second.names(), second.spec.revision) == ({"one"}, 1)
    with misbehaves(api, "serves", tmp_path, named="acme") as third:
        third.serves()
        assert third.spec.revision == 1, "the tree is the same one"


def test_a_failure_stays_until_the_provider_serves_again(api: FakeApi, tmp_path: Path) -> None:
    with misbehaves(api, "raises", tmp_path, named="acme") as first:
        cause = first.failed()
    waiting = rf"{cause}; now: waits for a\nsource"
    for _ in range(2):
        with misbehaves(api, "waits", tmp_path, named="acme", pace=replace(PACE, start=30.0)) as pod:
            pod.until(lambda: (pod.spec.state, pod.spec.reason) == ("Failed", waiting), f"both; {pod.spec}")
        assert (pod.spec.state, pod.spec.reason) == ("Failed", f"{cause}; now: is stopped")
    with misbehaves(api, "serves", tmp_path, named="acme") as last:
        last.serves()
        assert last.spec.reason == ""
    assert (last.spec.state, last.spec.reason) == ("Starting", "is stopped")


def test_names_of_the_last_tree_exist_after_a_restart(api: FakeApi, tmp_path: Path) -> None:
    with misbehaves(api, "serves", tmp_path) as pod:
        pod.serves()
    with misbehaves(api, "serves", tmp_path) as pod:
        assert pod.runner._view.earlier_names == {"one"}


def test_an_end_without_a_word_shows_after_the_next_start(api: FakeApi, tmp_path: Path) -> None:
    with misbehaves(api, "serves", tmp_path) as pod:
        pod.serves()
        killed = pod.spec
    api.merge(PROVIDER_TREES, "serves", {"spec": {"state": killed.state, "reason": killed.reason}})
    with misbehaves(api, "hangs-in-start", tmp_path, named="serves") as pod:
        pod.until(lambda: (pod.spec.state, pod.spec.reason) == ("Starting", UNSTATED_END), "the reason")
        assert pod.names() == {"one"}


def test_a_silent_provider_ends_and_its_tree_counts_on(api: FakeApi, tmp_path: Path) -> None:
    with misbehaves(api, "serves", tmp_path, stale_seconds=0.3) as pod:
        assert pod.failed() == "sent nothing for 0.3 s"
        assert pod.names() == {"one"}


def test_a_provider_states_how_long_it_is_silent_unless_the_configuration_does(api: FakeApi, tmp_path: Path) -> None:
    with misbehaves(api, "promises", tmp_path) as pod:
        assert pod.failed() == "sent nothing for 1 s"
        assert pod.spec.stale_seconds == 1
    with misbehaves(api, "promises", tmp_path, stale_seconds=0.0) as pod:
        pod.serves()
        assert pod.spec.stale_seconds == 0


def test_a_provider_without_a_source_yet_says_so_and_does_not_end(api: FakeApi, tmp_path: Path) -> None:
    with misbehaves(api, "waits", tmp_path, pace=replace(PACE, start=30.0)) as pod:
        pod.until(lambda: pod.spec.reason == r"waits for a\nsource", "the reason")
        assert (pod.spec.state, pod.spec.tree) == ("Starting", "")
        (tmp_path / "notes").touch()
        pod.serves()
        assert pod.spec.reason == ""


def test_a_provider_whose_sources_came_does_not_say_that_it_waits_for_them(api: FakeApi, tmp_path: Path) -> None:
    api.fault = lambda verb, plural: ApiError(503, "", "away") if (verb, plural) == ("list", "nodes") else None
    with misbehaves(api, "hangs-in-start", tmp_path) as pod:
        pod.until(lambda: "waits for the list of" in pod.spec.reason, "the reason")
        api.fault = lambda _verb, _plural: None
        pod.until(lambda: pod.spec.state == "Starting" and not pod.spec.reason, "the reason to go")


def test_quarantined_nodes_come_with_a_snapshot_and_stay_with_updates(api: FakeApi, tmp_path: Path) -> None:
    with misbehaves(api, "quarantines", tmp_path) as pod:
        pod.until(lambda: pod.names() == {"one", "two"}, "both")
        found = unpack(pod.spec.tree).quarantined
    assert found == (Quarantined("n2", QuarantineReason.EQUAL_CABLES, r"equal\ncables"),)


def test_a_provider_that_floods_is_written_at_a_pace_and_stops_when_asked(api: FakeApi, tmp_path: Path) -> None:
    with misbehaves(api, "floods", tmp_path, pace=replace(PACE, least=0.2)) as pod:
        pod.serves()
        pod.until(lambda: int((pod.notes() or ["0"])[-1]) > 1_000, "1,000 events")
        pod.until(lambda: pod.spec.revision > 2, "three trees")
        sent = int(pod.notes()[-1])
        assert pod.spec.revision < sent / 10
    assert pod.code == 0


def test_a_refused_event_gets_a_reply_and_the_others_are_applied_in_their_order(api: FakeApi, tmp_path: Path) -> None:
    with misbehaves(api, "sends-invalid", tmp_path) as pod:
        pod.until(lambda: len(pod.notes()) == 2, "two replies")
        assert pod.notes() == [
            r"'bad\nname' an illegal name",
            "'two' a member has two parents: n1 is a member of one",
        ]
        pod.until(lambda: pod.names() == {"one", "three"}, "the others")
        pod.until(lambda: pod.spec.refused, "the count")
        spec = pod.spec
    assert (spec.state, spec.refused, spec.refusal) == ("Serving", 2, "a member has two parents")


def test_the_first_event_is_a_snapshot(api: FakeApi, tmp_path: Path) -> None:
    with misbehaves(api, "begins-with-an-update", tmp_path) as pod:
        pod.serves()
        assert pod.notes() == ["an event before the first snapshot"]


def test_a_provider_sees_all_hypernodes_and_every_change(api: FakeApi, tmp_path: Path) -> None:
    put(api, NODES, node("n1", {}))
    api.create(HYPERNODES, hypernode("first", 1, nodes=["of-first"], tierName="rack"))
    with misbehaves(api, "watches", tmp_path) as pod:
        pod.until(lambda: pod.notes()[-1:] == ["watching"], "the provider watches")
        api.create(HYPERNODES, hypernode("second", 1, nodes=["of-second"], tierName="rack"))
        pod.until(lambda: len(pod.notes()) == 3, "a change")
        api.delete(HYPERNODES, "first")
        pod.until(lambda: len(pod.notes()) == 4, "a deletion")
    there, watching, changed, deleted = pod.notes()
    assert (there, watching, deleted) == ("there ['first']", "watching", "changed first None")
    assert changed.startswith("changed second HyperNode(name='second', tier_name='rack'")


def status(pod: ProviderPod, revision: int, *refused: str, set_aside: str = "") -> None:
    """Let the controllers write the status of a pod's tree."""
    condition = Condition("Accepted", FALSE, TreeReason.SET_ASIDE, set_aside, "2026-01-01T00:00:00Z")
    value = ProviderTreeStatus(
        revision, [RefusedHyperNode(name, "conflict") for name in refused], [condition] if set_aside else []
    )
    pod.api.merge(PROVIDER_TREES, pod.name, {"status": msgspec.to_builtins(value)}, subresource="status")


def test_what_the_controllers_refuse_reaches_the_provider_once(api: FakeApi, tmp_path: Path) -> None:
    with misbehaves(api, "hears", tmp_path) as pod:
        pod.until(lambda: pod.notes() == ["listens"], "the provider listens")
        pod.until(lambda: pod.spec.revision == 1, "the tree")
        status(pod, 7, "of another revision")
        status(pod, 1, "one")
        pod.until(lambda: pod.notes()[1:], "the reply")
        status(pod, 1, "one", set_aside="set aside")
        pod.until(lambda: len(pod.notes()) > 2, "the next replies")
        writes = len(api.calls)
        pod.until(lambda: len(api.calls) > writes + 5, "further heartbeats")
    assert pod.notes() == ["listens", "one conflict", " set aside", "one conflict"]


def test_a_tree_that_is_sent_again_is_no_new_one(api: FakeApi, tmp_path: Path) -> None:
    with misbehaves(api, "sends-again", tmp_path) as pod:
        pod.until(lambda: pod.spec.revision == 1, "the tree")
        for _ in range(3):
            status(pod, pod.spec.revision, "one")
            pod.until(pod.notes, "the reply")
            later = len(api.calls) + 5
            pod.until(partial(lambda calls: len(api.calls) > calls, later), "further heartbeats")
        assert pod.notes() == ["one conflict"], "each answer of the provider is a new revision, and has a new reply"
        assert pod.spec.revision == 1


def test_a_secret_reaches_the_provider_as_its_files_have_it(api: FakeApi, tmp_path: Path) -> None:
    mounted = tmp_path / "secret"
    (mounted / "..data").mkdir(parents=True)
    (mounted / "..data" / "token").write_bytes(b"\xffs3cret")
    (mounted / "token").symlink_to("..data/token")
    with misbehaves(api, "shows-secrets", tmp_path, credentials=mounted) as pod:
        pod.until(pod.notes, "the note")
    assert pod.notes() == [r"[('token', b'\xffs3cret')]"]
    assert "s3cret" not in str(api.stored("providertrees"))


def test_a_secret_that_is_not_mounted_fails_the_provider(api: FakeApi, tmp_path: Path) -> None:
    with misbehaves(api, "serves", tmp_path, credentials=tmp_path / "none") as pod:
        assert pod.failed() == "has no credentials: FileNotFoundError; does its Secret exist?"


def test_a_provider_may_return_and_run_threads_of_its_own(api: FakeApi, tmp_path: Path) -> None:
    with misbehaves(api, "returns-at-once", tmp_path) as pod:
        pod.serves()
    assert pod.code == 0


def test_an_exception_of_a_thread_fails_the_provider(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with misbehaves(api, "raises-in-thread", tmp_path) as pod:
        # As the command installs it.
        monkeypatch.setattr(threading, "excepthook", lambda caught: pod.runner.fail(caught.exc_value))
        assert pod.failed().startswith("raised KeyError at misbehaving.py:")


@pytest.mark.parametrize(
    ("name", "reason"),
    [("hangs-in-stop", "did not stop within 0.2 s"), ("raises-in-stop", "raised ValueError at misbehaving.py:")],
)
def test_a_provider_that_does_not_stop_well_is_reported_and_holds_up_nothing(
    api: FakeApi, tmp_path: Path, name: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    with misbehaves(api, name, tmp_path, pace=replace(PACE, stop=0.2)) as pod:
        pod.serves()
    assert pod.code == 1
    assert pod.spec.reason.startswith(reason)
    assert SERIAL not in caplog.text


def test_an_event_after_stop_does_not_count(api: FakeApi, tmp_path: Path) -> None:
    with misbehaves(api, "sends-after-stop", tmp_path) as pod:
        pod.serves()
    assert pod.names() == {"one"}
    assert pod.code == 0


def test_an_api_server_that_is_away_loses_no_tree(
    api: FakeApi, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    with misbehaves(api, "floods", tmp_path) as pod:
        pod.serves()
        api.fault = lambda verb, _plural: ApiError(0, "", "away") if verb == "merge" else None
        pod.until(lambda: "ProviderTree not written" in caplog.text, "a failed write")
        stuck = pod.spec.revision
        api.fault = lambda _verb, _plural: None
        pod.until(lambda: pod.spec.revision > stuck, "the next tree")


def test_an_object_that_is_deleted_comes_back_whole(api: FakeApi, tmp_path: Path) -> None:
    with misbehaves(api, "serves", tmp_path) as pod:
        pod.serves()
        api.delete(PROVIDER_TREES, "serves")
        pod.until(lambda: pod.names() == {"one"}, "the tree")
        assert pod.spec.revision == 1


def test_a_heartbeat_is_no_new_tree(api: FakeApi, tmp_path: Path) -> None:
    with misbehaves(api, "serves", tmp_path) as pod:
        pod.serves()
        before = pod.object.metadata.resource_version
        pod.until(lambda: pod.object.metadata.resource_version != before, "a heartbeat")
        assert pod.spec.revision == 1


def test_a_tree_that_does_not_fit_is_refused_and_the_last_one_becomes_older(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with misbehaves(api, "floods", tmp_path, pace=replace(PACE, least=0.0)) as pod:
        pod.serves()
        monkeypatch.setattr(provider_trees, "MAX_PACKED", 10)
        pod.until(lambda: pod.spec.refusal == "the tree does not fit into one object", "the refusal")
        stopped = pod.spec
        pod.until(lambda: pod.spec.refused > stopped.refused + 3, "further refusals")
        assert (pod.spec.revision, pod.spec.tree) == (stopped.revision, stopped.tree)
        assert pod.spec.observed_time == stopped.observed_time
        monkeypatch.setattr(provider_trees, "MAX_PACKED", MAX_PACKED)
        pod.until(lambda: pod.spec.revision > stopped.revision, "the next tree")
