"""Providers in real child processes: whatever one does shows in its own status, and its last HyperNodes count on."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from gkm.api.topology_settings import TopologyProvider
from gkm.topology.hypernodes import HyperNode, Member
from gkm.topology.providers import ClusterNode, Reply
from gkm.topology.quarantine import Quarantined, QuarantineReason
from gkm_operator.hypernodes.providers.session import ChildLimits
from gkm_operator.hypernodes.providers.status import State
from support.host.child_processes import children_of, is_gone
from support.topology.hosted_providers import LIMITS, Cluster, Secrets, hosted, misbehaves

SERIAL = "MT1234X00001"


def test_a_provider_serves_its_hypernodes_until_it_is_stopped(tmp_path: Path) -> None:
    before = children_of(os.getpid())
    with hosted(tmp_path, misbehaves("serves", tmp_path)) as running:
        running.serves("serves")
        assert running.names("serves") == {"one"}
        assert running.host.unserved() == ()
        assert running.seen.changes == ["serves"]
        assert running.status("serves").hypernodes == 1
    assert running.notes() == ["stopped"]
    assert children_of(os.getpid()) == before


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("raises", "raised ValueError at misbehaving.py:"),
        ("raises-in-thread", "raised KeyError at misbehaving.py:"),
        ("states-why", r"cannot read its \x1b[31mserver"),
        ("exits", "exited with status 7"),
        ("kills-itself", "was ended by SIGKILL"),
        ("dies-in-a-snapshot", "exited with status 0"),
        ("sends-garbage", "sent a message that is no event"),
        ("sends-a-huge-message", "sent a message of 4294967295 bytes; 67108864 are possible"),
        ("sends-many-values", "sent a message with more than 1500000 values"),
        ("leaves-a-process", "exited with status 0"),
    ],
)
def test_a_provider_that_fails_is_restarted_and_its_hypernodes_count_on(
    tmp_path: Path, name: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    with hosted(tmp_path, misbehaves(name, tmp_path), misbehaves("serves", tmp_path)) as running:
        assert running.failed(name).startswith(reason)
        running.serves("serves")
        running.until(lambda: running.status(name).restarts >= 1, "a restart")
        assert running.names(name) == {"one"}
        assert running.status("serves").restarts == 0
    assert SERIAL not in caplog.text
    assert not [status for _, status in running.seen.statuses if SERIAL in str(status)]


@pytest.mark.parametrize(
    ("name", "limits", "reason"),
    [
        ("hangs-in-start", replace(LIMITS, start=1.0), "sent no snapshot within 1 s"),
        ("stalls-in-a-message", replace(LIMITS, message=1.0), "did not complete a message within 1 s"),
        ("forks", replace(LIMITS, look=0.1), "runs "),
    ],
)
def test_a_provider_that_exceeds_a_limit_is_ended_with_its_processes(
    tmp_path: Path, name: str, limits: ChildLimits, reason: str
) -> None:
    with hosted(tmp_path, misbehaves(name, tmp_path), limits=limits) as running:
        failed = running.failed(name)
        running.until(lambda: running.status(name).restarts >= 1, "a restart")
    assert failed.startswith(reason)
    assert all(is_gone(int(note)) for note in running.notes())


@pytest.mark.parametrize("name", ["serves", "hangs-in-c"])
def test_a_silent_provider_is_restarted_and_its_hypernodes_count_on(tmp_path: Path, name: str) -> None:
    with hosted(tmp_path, misbehaves(name, tmp_path, stale_seconds=1.0)) as running:
        assert running.failed(name) == "sent nothing for 1 s"
        assert running.names(name) == {"one"}
        running.until(lambda: running.status(name).restarts >= 1, "a restart")


def test_a_provider_states_how_long_it_is_silent_unless_the_configuration_does(tmp_path: Path) -> None:
    with hosted(tmp_path, misbehaves("promises", tmp_path)) as running:
        assert running.failed("promises") == "sent nothing for 1 s"
    with hosted(
        tmp_path,
        misbehaves("promises", tmp_path, stale_seconds=0.0),
        misbehaves("serves", tmp_path, stale_seconds=2.0),
        path=tmp_path / "packages",
    ) as running:
        running.serves("promises")
        running.until(lambda: running.status("serves").restarts >= 2, "the other one is silent")
        assert running.status("promises").restarts == 0


def test_a_provider_without_a_source_yet_says_so_and_is_not_restarted(tmp_path: Path) -> None:
    providers = misbehaves("waits", tmp_path), misbehaves("hangs-in-start", tmp_path)
    with hosted(tmp_path, *providers, limits=replace(LIMITS, start=3.0)) as running:
        running.until(lambda: running.status("waits").reason == r"waits for a\nsource", "the reason")
        running.until(lambda: running.status("hangs-in-start").restarts >= 2, "the other one sends nothing")
        assert (running.status("waits").state, running.status("waits").restarts) == (State.STARTING, 0)
        assert "waits" in running.host.unserved()
        (tmp_path / "notes").touch()
        running.serves("waits")
        assert running.status("waits").reason == ""


def test_quarantined_nodes_come_with_a_snapshot_and_stay_with_updates(tmp_path: Path) -> None:
    with hosted(tmp_path, misbehaves("quarantines", tmp_path)) as running:
        running.until(lambda: running.names("quarantines") == {"one", "two"}, "both")
        found = running.host.quarantined("quarantines")
    assert found == (Quarantined("n2", QuarantineReason.EQUAL_CABLES, r"equal\ncables"),)


def test_a_child_starts_when_what_it_reads_is_there(tmp_path: Path) -> None:
    before, cluster = children_of(os.getpid()), Cluster(complete=False)
    with hosted(tmp_path, TopologyProvider("lldp"), cluster=cluster, view=(ClusterNode("n1"),)) as running:
        running.until(lambda: cluster.looks > 1, "it waits")
        assert running.status("lldp").state is State.STARTING
        assert running.status("lldp").reason == "waits for the cluster"
        assert children_of(os.getpid()) == before
        cluster.complete = True
        running.serves("lldp")
    starting = [status.reason for _, status in running.seen.statuses if status.state is State.STARTING]
    assert starting == ["waits for the cluster", ""]


def test_a_provider_that_waits_for_the_large_message_of_another_is_not_silent(tmp_path: Path) -> None:
    large = misbehaves("sends-large", tmp_path, config={"nodes": 160_000}, max_memory_bytes=1 << 30)
    stalls = misbehaves("stalls-in-a-large-message", tmp_path, stale_seconds=600.0)
    limits = replace(LIMITS, start=12.0, message=18.0)
    with hosted(tmp_path, stalls, limits=limits) as first:
        first.until(lambda: first.notes() == ["stalls"], "the other one stalls")
        with hosted(tmp_path, large, limits=limits, path=tmp_path / "packages") as running:
            running.serves("sends-large")
            assert running.status("sends-large").restarts == 0


def test_a_provider_never_gets_more_memory_than_configured(tmp_path: Path) -> None:
    provider = misbehaves("eats-memory", tmp_path, max_memory_bytes=100 << 20)
    with hosted(tmp_path, provider, limits=replace(LIMITS, look=0.1)) as running:
        reason = running.failed("eats-memory")
    assert reason.startswith(("raised MemoryError", "uses "))


def test_a_provider_that_floods_waits_and_stops_when_asked(tmp_path: Path) -> None:
    with hosted(
        tmp_path, misbehaves("floods", tmp_path), misbehaves("serves", tmp_path), limits=replace(LIMITS, rest=50.0)
    ) as running:
        running.serves("floods")
        running.serves("serves")
        running.until(lambda: len(running.seen.changes) > 200, "200 changes")
        applied = len(running.seen.changes)
        sent = int((running.notes() or ["0"])[-1])
        # What is ahead of the controllers is in the buffer of a socket.
        assert sent - applied < 5_000
        assert running.status("floods").state is State.SERVING
    assert running.status("floods").reason == ""


def test_a_provider_that_prints_disturbs_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with hosted(tmp_path, misbehaves("prints", tmp_path)) as running:
        running.serves("prints")
    assert running.status("prints").restarts == 0
    assert SERIAL not in str(capfd.readouterr())


def test_a_refused_event_gets_a_reply_and_the_others_are_applied_in_their_order(tmp_path: Path) -> None:
    with hosted(tmp_path, misbehaves("sends-invalid", tmp_path)) as running:
        running.until(lambda: len(running.notes()) == 2, "two replies")
        assert running.notes() == [
            r"'bad\nname' an illegal name",
            "'two' a member has two parents: n1 is a member of one",
        ]
        assert running.names("sends-invalid") == {"one", "three"}
        status = running.status("sends-invalid")
    assert (status.state, status.refused, status.refusal) == (State.SERVING, 2, "a member has two parents")


def test_the_first_event_is_a_snapshot(tmp_path: Path) -> None:
    with hosted(tmp_path, misbehaves("begins-with-an-update", tmp_path)) as running:
        running.serves("begins-with-an-update")
        assert running.notes() == ["an event before the first snapshot"]


def test_the_first_event_after_a_restart_is_a_snapshot_too(tmp_path: Path) -> None:
    name = "begins-again-with-an-update"
    with hosted(tmp_path, misbehaves(name, tmp_path)) as running:
        running.until(lambda: running.notes()[1:] == ["an event before the first snapshot"], "the reply")
        assert running.status(name).state is State.STARTING
        assert running.names(name) == {"one"}


def test_a_provider_sees_all_hypernodes_and_every_change(tmp_path: Path) -> None:
    first, second = (HyperNode(name, "rack", (Member("Node", f"of-{name}"),)) for name in ("first", "second"))
    with hosted(tmp_path, misbehaves("watches", tmp_path), view=(first,)) as running:
        running.until(lambda: running.notes()[-1:] == ["watching"], "the provider watches")
        running.host.view.publish([second])
        running.until(lambda: len(running.notes()) == 3, "a change")
        running.host.view.publish([], [Member("HyperNode", "first")])
        running.until(lambda: len(running.notes()) == 4, "a deletion")
    assert running.notes() == ["there ['first']", "watching", f"changed second {second}", "changed first None"]


def test_an_error_of_the_api_server_reaches_the_provider(tmp_path: Path) -> None:
    with hosted(tmp_path, misbehaves("hears", tmp_path)) as running:
        running.until(lambda: running.notes() == ["listens"], "the provider listens")
        running.host.reply("hears", Reply("one", "conflict"))
        running.until(lambda: running.notes()[1:] == ["one conflict"], "the reply")


def test_credentials_reach_the_provider_and_neither_its_arguments_nor_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GKM_TEST_SECRET", "hidden")
    secrets = Secrets({"ufm": {"token": b"\xffs3cret"}})
    provider = misbehaves("shows-secrets", tmp_path, credentials_secret="ufm")
    with hosted(tmp_path, provider, secrets=secrets) as running:
        running.until(lambda: len(running.notes()) == 3, "three notes")
    shown, arguments, environment = running.notes()
    assert shown == r"[('token', b'\xffs3cret')]"
    assert "s3cret" not in arguments + environment
    assert "hidden" not in environment


def test_a_provider_whose_secret_cannot_be_read_is_tried_again(tmp_path: Path) -> None:
    secrets = Secrets()
    provider = misbehaves("serves", tmp_path, credentials_secret="later")
    with hosted(tmp_path, provider, secrets=secrets) as running:
        running.failed("serves")
        assert running.host.unserved() == ("serves",)
        secrets.data["later"] = {}
        running.serves("serves")


def test_hypernodes_of_a_provider_that_never_comes_back_count_on(tmp_path: Path) -> None:
    with hosted(tmp_path, misbehaves("serves-once", tmp_path), limits=replace(LIMITS, start=1.0)) as running:
        running.until(lambda: running.status("serves-once").restarts >= 2, "two restarts")
        assert running.names("serves-once") == {"one"}
        assert running.host.unserved() == ()
        assert running.status("serves-once").reason in ("exited with status 3", "sent no snapshot within 1 s")


def test_a_provider_may_return_and_run_threads_of_its_own(tmp_path: Path) -> None:
    with hosted(tmp_path, misbehaves("returns-at-once", tmp_path)) as running:
        running.serves("returns-at-once")
    assert running.status("returns-at-once").restarts == 0


def test_snapshots_of_large_fabrics_from_several_providers_arrive_as_a_whole(tmp_path: Path) -> None:
    names = ("sends-large", "sends-large-too")
    providers = [misbehaves(name, tmp_path, config={"nodes": 160_000}, max_memory_bytes=1 << 30) for name in names]
    with hosted(tmp_path, *providers) as running:
        for name in names:
            running.serves(name)
            assert len(running.host.hypernodes(name)) == 10_000
            assert running.status(name).hypernodes == 10_000


def test_an_unknown_provider_names_those_that_there_are(tmp_path: Path) -> None:
    with hosted(tmp_path, misbehaves("acme", tmp_path)) as running:
        reason = running.failed("acme")
    assert reason.startswith(f"is not installed in the image or {tmp_path}/packages; there are begins-")


def test_the_controllers_import_no_provider() -> None:
    shown = subprocess.run(
        [sys.executable, "-c", "import sys, gkm_operator.hypernodes.providers.host; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    ours = {name.rpartition(".")[2] for name in shown if name.startswith("gkm_operator.hypernodes.providers.")}
    assert not ours & {"registry", "child", "connection", "polling", "ufm", "tree_file"}
