"""The provider `ufm` against a real HTTPS server: authentication, pages, bounds, and errors without content."""

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from gkm.topology.fabrics import ufm as fabric
from gkm.topology.hypernodes import Member
from gkm.topology.providers import Action, ClusterNode, ProviderFailed
from gkm_operator.hypernodes.providers import ufm
from gkm_operator.hypernodes.providers.view import LiveView
from support.topology.observed import ports
from support.topology.provider_run import ProviderRun
from support.topology.ufm_server import UfmServer

PASSWORD, TOKEN = {"username": b"reader", "password": b"s3cret"}, {"token": b"t0ken\n"}
BASIC = ("/ufmRest", "Basic " + base64.b64encode(b"reader:s3cret").decode())
NODES = [f"node-{i}" for i in range(30)]
BY_TOKEN = ("/ufmRestV3", "Basic t0ken")


def rows(count: int) -> list[dict[str, Any]]:
    """Return the rows of nodes that have a leaf each."""
    return [
        {
            "description": "Computer IB Port",
            "system_name": f"node-{i}",
            "peer_node_name": f"leaf{i}",
            "active_speed": None,
        }
        for i in range(count)
    ]


@contextmanager
def reads(
    server: UfmServer, directory: Path, credentials: dict[str, bytes] | None = None, **config: object
) -> Iterator[ProviderRun]:
    with server.start(directory):
        settings = {"url": server.url, "caFile": str(server.ca_file), "intervalSeconds": 0.1, **config}
        with ProviderRun.of(ufm.provider(settings, credentials or PASSWORD), *NODES) as run:
            yield run


@pytest.mark.parametrize(
    ("credentials", "accepted"), [(PASSWORD, BASIC), (TOKEN, BY_TOKEN), (PASSWORD | TOKEN, BY_TOKEN)]
)
def test_ports_are_read_with_a_password_or_a_token(
    tmp_path: Path, credentials: dict[str, bytes], accepted: tuple[str, str]
) -> None:
    with reads(UfmServer(rows(3), accepted), tmp_path, credentials) as run:
        event = run.next()
    assert event.action is Action.SNAPSHOT
    assert {each.name for each in event.hypernodes} == {"leaf0", "leaf1", "leaf2"}


@pytest.mark.parametrize("paging", ["object", "list", "none"])
@pytest.mark.parametrize("count", [0, 7, 10, 20, 25])
def test_every_port_of_every_page_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, paging: str, count: int
) -> None:
    monkeypatch.setattr(ufm, "PAGE_ROWS", 10)
    with reads(UfmServer(rows(count), BASIC, paging), tmp_path) as run:
        event = run.next()
    members = [(each.name, *(member.name for member in each.members)) for each in event.hypernodes]
    assert sorted(members) == sorted((f"leaf{i}", f"node-{i}") for i in range(count))


def test_a_change_is_a_snapshot_and_no_change_is_none(tmp_path: Path) -> None:
    server = UfmServer(rows(2), BASIC)
    with reads(server, tmp_path) as run:
        assert run.next().action is Action.SNAPSHOT
        assert run.next() == run.next()
        server.rows = rows(3)
        event = run.next(lambda event: event.action is Action.SNAPSHOT)
    assert len(event.hypernodes) == 3


@pytest.mark.parametrize(
    ("fault", "shown"),
    [
        ("status:401", "it refuses the credentials (status 401)"),
        ("status:403", "it refuses the credentials (status 403)"),
        ("status:500", "it answers with status 500"),
        ("status:204", "it answers with status 204"),
        ("redirect", "it redirects (status 302); url must name the final address"),
        ("drip", "it sends too slowly, or broke off"),
        ("silent", "it did not answer in time"),
        ("breaks-off", "it sends too slowly, or broke off"),
        ("gzip", "it sends a Content-Encoding that was not requested"),
        ("garbage", "Expected `array`, got `str` - at `$.data`"),
    ],
)
def test_a_fault_of_the_server_shows_without_content(tmp_path: Path, fault: str, shown: str) -> None:
    with reads(UfmServer(rows(1), BASIC, fault=fault), tmp_path, timeoutSeconds=1) as run:
        failure = run.failure()
    assert isinstance(failure, ProviderFailed)
    assert str(failure) == f"cannot read the HTTPS server in its url: {shown}"
    assert "s3cret" not in repr(failure)


def test_a_redirect_is_not_followed(tmp_path: Path) -> None:
    server = UfmServer(rows(1), BASIC, fault="redirect")
    with reads(server, tmp_path) as run:
        run.failure()
    assert len(server.requests) == 1


def test_a_body_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ufm, "MAX_BODY_BYTES", 3 << 20)
    with reads(UfmServer(rows(1), BASIC, fault="large"), tmp_path) as run:
        assert str(run.failure()).startswith("cannot read the HTTPS server in its url: it sends more than ")


def test_all_pages_together_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ufm, "PAGE_ROWS", 10)
    monkeypatch.setattr(fabric, "MAX_ROWS", 24)
    with reads(UfmServer(rows(25), BASIC), tmp_path) as run:
        assert str(run.failure()) == "cannot read the HTTPS server in its url: UFM has more than 24 ports"


def test_a_server_that_puts_fewer_ports_on_a_page_is_read_to_its_end(tmp_path: Path) -> None:
    with reads(UfmServer(rows(25), BASIC, most=10), tmp_path) as run:
        assert {each.name for each in run.next().hypernodes} == {f"leaf{i}" for i in range(25)}


@pytest.mark.parametrize("most", [10, 1000])
def test_a_part_of_the_ports_is_no_network(tmp_path: Path, most: int) -> None:
    with reads(UfmServer(rows(25), BASIC, most=most, total=26), tmp_path) as run:
        assert str(run.failure()) == (
            "cannot read the HTTPS server in its url: UFM has 26 ports and answers with 25, so the network is not whole"
        )


@pytest.mark.parametrize("paging", ["object", "list"])
def test_more_pages_than_are_read_are_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, paging: str) -> None:
    monkeypatch.setattr(ufm, "PAGE_ROWS", 10)
    monkeypatch.setattr(ufm, "_MAX_PAGES", 2)
    with reads(UfmServer(rows(25), BASIC, paging), tmp_path) as run:
        assert str(run.failure()) == "cannot read the HTTPS server in its url: UFM has more than 2 pages of ports"


def test_a_node_is_found_by_the_guid_of_its_port_whatever_its_description(tmp_path: Path) -> None:
    row = {"description": "Computer IB Port", "node_description": "MT4129 ConnectX7   Mellanox Technologies"}
    server = UfmServer([row | {"guid": "0xb8cef6030000aa01", "peer_node_name": "leaf7"}], BASIC)
    with server.start(tmp_path):
        run = ProviderRun(ufm.provider({"url": server.url, "caFile": str(server.ca_file)}, PASSWORD))
        run.view.publish([ClusterNode("node-1"), ports("node-1", "b8cef6030000aa01")])
        with run.running():
            (group,) = run.next().hypernodes
    assert (group.name, group.members) == ("leaf7", (Member("Node", "node-1"),))


def test_a_group_that_is_written_has_the_same_name_after_a_restart_with_another_switch(tmp_path: Path) -> None:
    cables = [(node, leaf) for node in ("node-1", "node-2", "node-3") for leaf in ("leaf5", "leaf6", "leaf4")]
    every = [{"description": "Computer IB Port", "system_name": node, "peer_node_name": leaf} for node, leaf in cables]
    server = UfmServer(every, BASIC)
    with server.start(tmp_path):
        provider = ufm.provider({"url": server.url, "caFile": str(server.ca_file)}, PASSWORD)
        run = ProviderRun(provider, LiveView(frozenset({"leaf5"})))
        run.view.publish(map(ClusterNode, NODES))
        with run.running():
            (group,) = run.next().hypernodes
    assert group.name == "leaf5"


def test_a_certificate_of_another_authority_or_name_is_not_trusted(tmp_path: Path) -> None:
    server = UfmServer(rows(1), BASIC)
    shown = "cannot read the HTTPS server in its url: its certificate is not trusted, or it does not speak TLS"
    with reads(server, tmp_path, caFile="") as run:
        assert str(run.failure()) == shown
    with server.start(tmp_path, ("other.example",)):
        config = {"url": server.url, "caFile": str(server.ca_file)}
        with ProviderRun.of(ufm.provider(config, PASSWORD)) as run:
            assert str(run.failure()) == shown
    assert server.requests == []


def test_an_authority_that_cannot_be_read_is_named_as_the_cause(tmp_path: Path) -> None:
    (tmp_path / "empty.crt").touch()
    for name in ("none.crt", "empty.crt"):
        with pytest.raises(ProviderFailed, match="caFile holds no certificates"):
            ufm.provider({"url": "https://ufm", "caFile": str(tmp_path / name)}, PASSWORD)


def test_a_server_that_is_not_there_is_a_fault() -> None:
    with ProviderRun.of(ufm.provider({"url": "https://127.0.0.1:9"}, PASSWORD)) as run:
        assert str(run.failure()) == "cannot read the HTTPS server in its url: it refuses connections"


@pytest.mark.parametrize(
    "url",
    ["", "ufm", "http://ufm", "https://", "https://user:s3cret@ufm", "https://ufm?x=1", "https://[::", "file:///x"],
)
def test_only_a_plain_https_url_is_possible(url: str) -> None:
    with pytest.raises(ProviderFailed, match="has an invalid config") as caught:
        ufm.provider({"url": url}, PASSWORD)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("credentials", "shown"),
    [
        ({}, "needs a Secret with the keys"),
        ({"username": b"reader"}, "needs a Secret with the keys"),
        ({"token": b"a\nX-Other: b"}, "has a token that is not one line of ASCII"),
        ({"token": b"\xff"}, "has a token that is not one line of ASCII"),
    ],
)
def test_credentials_must_be_complete_and_legal(credentials: dict[str, bytes], shown: str) -> None:
    with pytest.raises(ProviderFailed, match=shown):
        ufm.provider({"url": "https://ufm"}, credentials)


def test_an_unknown_key_of_the_config_is_named() -> None:
    with pytest.raises(ProviderFailed, match="insecureSkipVerify"):
        ufm.provider({"url": "https://ufm", "insecureSkipVerify": True}, PASSWORD)
