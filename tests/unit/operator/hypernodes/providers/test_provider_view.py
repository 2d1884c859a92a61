"""The view of all HyperNodes: what is published reaches the child's view, in few messages and bounded memory."""

from collections.abc import Iterator
from threading import Thread
from typing import Any

import pytest
from gkm.topology.hypernodes import HyperNode, Member, MemberKind
from gkm.topology.providers import ClusterNode, Reply
from gkm_operator.hypernodes.providers import mailbox
from gkm_operator.hypernodes.providers.mailbox import Mailbox, ProvidersView, Value
from gkm_operator.hypernodes.providers.messages import AgentReport, Key, Start, ToChild, decode_to_child
from gkm_operator.hypernodes.providers.view import LiveView
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.host.waiting import scaled

START = Start("test", {}, {}, "", 1 << 28)


def hypernode(name: str, version: int = 0, members: int = 1) -> HyperNode:
    return HyperNode(name, "block", tuple(Member("Node", f"n{i}") for i in range(members)), version)


def key(name: str, kind: MemberKind = "HyperNode") -> Member:
    return Member(kind, name)


def taken(box: Mailbox) -> Iterator[ToChild]:
    while (message := box.take()) is not None:
        yield decode_to_child(message)


@pytest.fixture
def cluster() -> ProvidersView:
    return ProvidersView()


def test_the_first_message_is_the_start_and_the_view_follows(cluster: ProvidersView) -> None:
    cluster.publish([hypernode("a"), hypernode("b")])
    first, second = taken(Mailbox(START, cluster))
    assert first.start == START
    assert ({each.name for each in second.hypernodes}, second.synced) == ({"a", "b"}, True)


def test_an_empty_cluster_is_synced_too(cluster: ProvidersView) -> None:
    assert [message.synced for message in taken(Mailbox(START, cluster))] == [False, True]


def test_a_child_that_does_not_read_gets_each_hypernode_once_in_its_last_state(cluster: ProvidersView) -> None:
    box = Mailbox(START, cluster)
    for version in range(1000):
        cluster.publish([hypernode("a", version), hypernode("b", version)])
        cluster.publish([], [key("b")])
    _, message = taken(box)
    assert message.hypernodes == (hypernode("a", 999),)
    assert message.deleted == (key("b"),)


def test_a_large_view_is_divided_into_messages(cluster: ProvidersView) -> None:
    cluster.publish([hypernode(f"h{i}", members=100) for i in range(1000)])
    messages = list(taken(Mailbox(START, cluster)))[1:]
    assert len(messages) == 10
    assert [message.synced for message in messages] == [False] * 9 + [True]
    assert len({each.name for message in messages for each in message.hypernodes}) == 1000


def test_the_view_and_the_replies_have_limits(cluster: ProvidersView, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mailbox, "MAX_VIEW", 3)
    cluster.publish([hypernode(f"h{i}") for i in range(5)])
    box = Mailbox(START, cluster)
    for number in range(mailbox.MAX_REPLIES + 5):
        box.reply(Reply(str(number), "no"))
    replies = [message.reply.name for message in taken(box) if message.reply]
    assert replies == [str(number) for number in range(5, mailbox.MAX_REPLIES + 5)]
    assert cluster.get(key("h2")) is not None
    assert cluster.get(key("h3")) is None


def test_after_stop_nothing_else_is_sent(cluster: ProvidersView) -> None:
    box = Mailbox(START, cluster)
    box.reply(Reply("a", "no"))
    box.stop()
    cluster.publish([hypernode("a")])
    assert [message.stop for message in taken(box)] == [False, True]


def test_a_closed_mailbox_gets_nothing_and_disturbs_nothing(cluster: ProvidersView) -> None:
    box = Mailbox(START, cluster)
    box.close()
    cluster.publish([hypernode("a")])
    box.reply(Reply("a", "no"))
    box.stop()


def test_readers_see_changes_until_the_view_stops() -> None:
    view = LiveView()
    first, second = view.changes(), view.changes()
    view.update(ToChild(hypernodes=(hypernode("a"), hypernode("b")), nodes=(ClusterNode("n1"),), synced=True))
    view.update(ToChild(hypernodes=(hypernode("a", 1),), deleted=(key("b"), key("n1", "Node"))))
    assert {next(first), next(first)} == {"a", "b"}
    seen: list[str] = []
    reader = Thread(target=lambda: seen.extend(second))
    reader.start()
    view.stop()
    reader.join(scaled(60))
    assert not reader.is_alive()
    assert view.get("b") is None
    assert view.list() == [hypernode("a", 1)]
    assert view.nodes() == ()


def test_large_reports_are_divided_into_messages_and_go_to_their_readers_only(cluster: ProvidersView) -> None:
    cluster.publish([AgentReport("Survey", f"n{i}", b"x" * 1_000_000) for i in range(4)])
    cluster.publish([AgentReport("Neighbors", "n0", b"{}"), ClusterNode("n0")])
    messages = list(taken(Mailbox(replace(START, name="infiniband"), cluster)))[1:]
    assert [len(one.observed) for one in messages] == [2, 2, 0]
    assert {one.kind for message in messages for one in message.observed} == {"Survey"}
    assert [message.observed for message in taken(Mailbox(START, cluster))] == [(), ()]


READERS = {
    "test": {"HyperNode", "Node"},
    "infiniband": {"Node", "Ports", "Survey"},
    "lldp": {"Node", "Neighbors"},
    "ufm": {"Node", "Ports"},
    "tree-file": set[str](),
}
KEYS = st.tuples(st.sampled_from(["Node", "HyperNode", "Ports", "Neighbors", "Survey"]), st.sampled_from("abc"))
CHANGES = st.lists(st.tuples(st.dictionaries(KEYS, st.integers(0, 3)), st.sets(KEYS), st.booleans()))


def value(kind: Any, name: str, version: int) -> Value:  # noqa: ANN401 -- a literal
    if kind == "HyperNode":
        return hypernode(name, version)
    return ClusterNode(name, (str(version),)) if kind == "Node" else AgentReport(kind, name, str(version).encode())


@given(CHANGES, st.sampled_from(sorted(READERS)))
def test_a_child_sees_what_was_published_and_its_provider_reads_whenever_it_reads(
    changes: list[tuple[dict[Key, int], set[Key], bool]], name: str
) -> None:
    cluster, view = ProvidersView(), LiveView()
    box = Mailbox(replace(START, name=name), cluster)
    expected: dict[Key, Value] = {}

    def read() -> None:
        for message in taken(box):
            view.update(message)

    for changed, deleted, reads in changes:
        values = {key: value(*key, version) for key, version in changed.items()}
        cluster.publish(values.values(), deleted)
        expected = {of: there for of, there in expected.items() if of not in deleted} | values
        if reads:
            read()
    read()
    box.close()
    seen: dict[Key, Value] = {("HyperNode", each.name): each for each in view.list()}
    seen |= {("Node", each.name): each for each in view.nodes()}
    for kind in ("Ports", "Neighbors", "Survey"):
        seen |= {(kind, of): AgentReport(kind, of, data) for of, data in view._observed[kind].items()}
    assert seen == {key: there for key, there in expected.items() if key[0] in READERS[name]}
