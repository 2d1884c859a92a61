"""What an API server refuses and forgets: one body for the fake API in memory and the real kube-apiserver."""

import base64
import json
from itertools import pairwise
from pathlib import Path

import pytest
from gkm.hoststate.pacing import Backoff
from gkm.kube import client, decoding
from gkm.kube.api import Api, Change, ListSelector
from gkm.kube.client import HttpApi, connect
from gkm.kube.errors import ApiError
from gkm.kube.reflector import Reflector
from gkm.kube.resources import Json
from support.cluster.cluster import Cluster
from support.host.waiting import until
from support.kube.fake_api import FakeApi
from support.kube.our_kinds import THIN, a_cache
from support.registry.relay import Relay


def forget(api: Api, request: pytest.FixtureRequest) -> None:
    """Let the server forget its history."""
    if isinstance(api, FakeApi):
        api.forget_history()
    else:
        request.getfixturevalue("gkm_cluster").control_plane.compact()


def test_a_watch_from_a_version_that_is_forgotten_is_gone(api: Api, wiped: str, request: pytest.FixtureRequest) -> None:
    for number in range(3):
        api.create(THIN, a_cache(f"{wiped}-{number}"))
    forget(api, request)
    with pytest.raises(ApiError) as caught:
        list(api.watch(THIN, "1"))
    assert (caught.value.expired, caught.value.reason) == (True, "Expired")


def test_a_list_whose_beginning_is_forgotten_is_gone_in_the_midst_of_its_pages(
    api: Api, wiped: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        api.create(THIN, a_cache(f"{wiped}-{number}"))
    pages = api.list_pages(THIN, limit=1)
    if isinstance(api, HttpApi):
        # The server keeps pages in memory for longer than etcd does: none of a list that began with the first version.
        token = {"v": "meta.k8s.io/v1", "rv": 1, "start": f"default/{wiped}-0\u0000"}
        ancient = base64.urlsafe_b64encode(json.dumps(token).encode()).decode().rstrip("=")
        read = decoding.page
        monkeypatch.setattr(decoding, "page", lambda *page: (read(*page)[0], ancient))
    next(pages)
    forget(api, request)
    with pytest.raises(ApiError) as caught:
        list(pages)
    assert (caught.value.expired, caught.value.reason) == (True, "Expired")


def test_a_bookmark_says_how_far_the_server_is(api: Api, wiped: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # The real server sends one about once a minute, and 2 s before the end that the client has asked for.
    monkeypatch.setattr(client, "WATCH_SECONDS", 6)
    version = next(iter(api.list_pages(THIN, limit=1))).resource_version
    watch = api.watch(THIN, version, ListSelector(namespace="default", fields=f"metadata.name={wiped}-none"))
    api.create(THIN, a_cache(wiped))
    if isinstance(api, FakeApi):
        api.bookmark()
    event = next(iter(watch))
    watch.close()
    assert (event.change, event.entry, event.unreadable) == (Change.BOOKMARK, None, None)
    assert int(event.resource_version) > int(version)
    api.create(THIN, a_cache(f"{wiped}-b"))
    onward = api.watch(THIN, event.resource_version, ListSelector(namespace="default"))
    first = next(event.entry for event in onward if event.entry)
    onward.close()
    assert first.name == f"{wiped}-b"


@pytest.mark.apiserver
def test_cut_at_any_byte_every_event_of_the_real_server_arrives_once_and_in_order(gkm_cluster: Cluster) -> None:
    """The bytes are those of TLS, so that cuts fall into records, chunks and lines alike."""
    name, last = "cut-at-any-byte", 100
    direct = connect(str(gkm_cluster.kubeconfig))
    told: list[tuple[str | None, str | None]] = []
    selector = ListSelector(namespace="default", fields=f"metadata.name={name}")
    with Relay.start(gkm_cluster.url.removeprefix("https://")) as relay:
        relay.patience = 300.0
        cuts = relay.answers = [1500 + 97 * number for number in range(60)]
        through = connect(str(_through(gkm_cluster, relay.host)))
        reflector = Reflector(
            through, THIN, lambda old, new: told.append((_mark(old), _mark(new))),
            selector=selector, backoff=Backoff(0.001, 0.002),
        )  # fmt: skip
        reflector.start()
        try:
            direct.create(THIN, a_cache(name, labels={"mark": "0"}))
            until(lambda: told, "it is told")
            for number in range(1, last):
                direct.merge(THIN, name, {"metadata": {"labels": {"mark": str(number)}}}, "default")
                if number % 20 == 10:
                    relay.break_all(reset=True)
            direct.delete(THIN, name, "default")
            until(lambda: told[-1][1] is None, "the delete is told", 60)
        finally:
            reflector.close()
    marks: list[str | None] = [None, *(str(number) for number in range(last)), None]
    assert told == list(pairwise(marks))
    assert len(cuts) < 50


def _mark(value: Json | None) -> str | None:
    return str(value["metadata"]["labels"]["mark"]) if value else None


def _through(cluster: Cluster, host: str) -> Path:
    """Return the administrator's kubeconfig, by way of a relay."""
    user = json.loads(cluster.kubeconfig.read_text())["users"][0]["user"]
    return cluster.control_plane.kubeconfig("through-relay", user, server=f"https://{host}")
