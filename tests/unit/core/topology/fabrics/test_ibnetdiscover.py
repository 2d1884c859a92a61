"""The parser of ibnetdiscover's topology file: forms that versions print, damage, and limits."""

import random
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from gkm.topology.fabrics import ibnetdiscover
from gkm.topology.fabrics.ibnetdiscover import NotASurvey, marker, parse, with_earlier
from gkm.topology.fabrics.subnet import HostPort, Link
from hypothesis import given
from hypothesis import strategies as st
from support.topology.infiniband_networks import Rails, cabling, topology_file

PRINTED = Path(__file__).parents[4] / "data" / "fabric" / "ibnetdiscover-40-switches.out"
SWITCH, SPINE, ADAPTER = "2c5eab0300b87b40", "2c5eab0300c26280", "e09d7303007a4bd8"
TEXT = f"""#
# Topology file: generated on Wed Aug  6 16:11:23 2025
#
# Initiated from node e09d730300156ff6 port e09d730300156ff6

vendid=0x2c9
devid=0xd2f2
sysimgguid=0x{SWITCH}
switchguid=0x{SWITCH}({SWITCH})
Switch\t65 "S-{SWITCH}"\t\t# "MF0;leaf-01:MQM9701/U1" enhanced port 0 lid 73 lmc 0
[1]\t"H-{ADAPTER}"[1](e09d7303007a4bd9) \t\t# "GPU-1 mlx5_5" lid 647 4xNDR
[35]\t"S-{SPINE}"[32]\t\t# "MF0;spine-02:MQM9701/U1" lid 236 4xNDR
[36]\t"S-{SPINE}"[31]\t\t# "MF0;spine-02:MQM9701/U1" lid 236 4xNDR
[65]\t"H-2c5eab0300b87b50"[1](2c5eab0300b87b50) \t\t# "Mellanox Technologies Aggregation Node" lid 193 4xNDR

sysimgguid=0x{SPINE}
switchguid=0x{SPINE}({SPINE})
Switch\t65 "S-{SPINE}"\t\t# "MF0;spine-02:MQM9701/U1" enhanced port 0 lid 236 lmc 0
[31]\t"S-{SWITCH}"[36]\t\t# "MF0;leaf-01:MQM9701/U1" lid 73 4xNDR
[32]\t"S-{SWITCH}"[35]\t\t# "MF0;leaf-01:MQM9701/U1" lid 73 4xNDR

vendid=0x2c9
devid=0x1021
sysimgguid=0x9d7303007a4bd0
caguid=0x{ADAPTER}
Ca\t2 "H-{ADAPTER}"\t\t# "GPU-1 mlx5_5"
[1](e09d7303007a4bd9) \t"S-{SWITCH}"[1]\t\t# lid 647 lmc 0 "MF0;leaf-01:MQM9701/U1" lid 73 4xNDR

"""
PORT = HostPort(SWITCH, "e09d7303007a4bd9", ADAPTER, "009d7303007a4bd0", ("gpu-1",), "gpu-1", "mlx5_5")
LINK = Link(SWITCH, SPINE, 2)
SWITCHES = {SWITCH: "MF0;leaf-01:MQM9701/U1", SPINE: "MF0;spine-02:MQM9701/U1"}


def changed(old: str, new: str) -> bytes:
    assert old in TEXT
    return TEXT.replace(old, new).encode()


def test_a_topology_has_switches_host_ports_and_links() -> None:
    subnet = parse(TEXT.encode())
    assert (subnet.switches, subnet.ports, subnet.links, subnet.faults) == (SWITCHES, (PORT,), (LINK,), ())


FORMS: dict[str, Callable[[str], str]] = {
    "line ends of Windows": lambda text: text.replace("\n", "\r\n"),
    "no line end at the end": lambda text: text.rstrip("\n"),
    "no empty lines": lambda text: text.replace("\n\n", "\n"),
    "no comments": lambda text: re.sub(r"(?m)^#.*\n", "", text),
    "unknown lines": lambda text: text.replace("vendid", "newid=0x1\n  something: new\nvendid"),
    "chassis": lambda text: text.replace("\nswitchguid", "\nchassisguid=0x1\nswitchguid"),
    "external ports": lambda text: text.replace("[35]\t", "[35][ext 3/1]\t").replace('"[32]\t', '"[32][ext 7]\t'),
    "spaces for tabs": lambda text: text.replace("\t", "  "),
    "base port 0": lambda text: text.replace("enhanced port", "base port"),
    "routers": lambda text: (
        text.replace("[65]\t", '[64]\t"R-00000000000000aa"[1](00000000000000aa) \t\t# "router" lid 3 4xNDR\n[65]\t')
        + 'sysimgguid=0xaa\nrtguid=0xaa\nRt\t2 "R-00000000000000aa"\t\t# "router"\n[1](00000000000000aa) \t"S-'
        + f'{SWITCH}"[64]\t\t# lid 3 lmc 0 "leaf" lid 73 4xNDR\n'
    ),
    "an aggregation node of another name": lambda text: (
        text.replace("Mellanox Technologies Aggregation Node", "AN x")
        + f'sysimgguid=0x{SWITCH}\ncaguid=0x2c5eab0300b87b50\nCa\t1 "H-2c5eab0300b87b50"\t\t# "AN x"\n'
    ),
    "the block of one end is missing": lambda text: re.sub(
        r"sysimgguid=0x2c5eab0300c26280(?:\n.+)+\n", "", text
    ).replace("vendid=0x2c9\ndevid=0x1021\n", f'Switch\t65 "S-{SPINE}"\t\t# "{SWITCHES[SPINE]}" enhanced port 0\n'),
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_that_versions_print_have_the_same_meaning(form: str) -> None:
    text = FORMS[form](TEXT)
    assert text != TEXT
    subnet = parse(text.encode())
    assert (subnet.switches, subnet.ports, subnet.links, subnet.faults) == (SWITCHES, (PORT,), (LINK,), ())


@pytest.mark.parametrize(
    ("description", "words", "host"),
    [
        ("", (), ""),
        ("gpu-1", ("gpu-1",), "gpu-1"),
        ("GPU-1.example.com HCA-1", ("gpu-1.example.com",), "gpu-1.example.com"),
        ("MT4129 ConnectX7   Mellanox Technologies", ("mt4129",), ""),
        ("localhost mlx5_0", ("localhost",), ""),
        ("(none) mlx5_0", (), ""),
        ('gpu-1 "quoted" lid 9', ("gpu-1",), ""),
        ('"gpu-1" mlx5_0', (), ""),
        ("gpu-1\x1b[31m mlx5_0", (), ""),
        ("gpu-1\u2603 mlx5_0", (), ""),
        ("x" * 64 + " mlx5_0", (), ""),
        ('gpu-1" lid 1 4xNDR "', (), ""),
        ('gpu-1 " lid 1 4xNDR "', ("gpu-1",), ""),
    ],
)
def test_a_description_names_a_host_only_as_rdma_ndd_writes_it(
    description: str, words: tuple[str, ...], host: str
) -> None:
    (port,) = parse(changed('"GPU-1 mlx5_5" lid', f'"{description}" lid')).ports
    assert port._replace(adapter="mlx5_5") == PORT._replace(words=words, host=host)


@pytest.mark.parametrize(
    ("description", "adapter"), [("gpu-1 mlx5_9", "mlx5_9"), ("gpu-1", ""), ("MT4129 ConnectX7   Mellanox", "")]
)
def test_a_description_of_two_words_names_the_adapter(description: str, adapter: str) -> None:
    (port,) = parse(changed('"GPU-1 mlx5_5" lid', f'"{description}" lid')).ports
    assert port.adapter == adapter


def test_descriptions_with_bytes_that_are_no_text_are_no_names() -> None:
    text = changed("GPU-1 mlx5_5", "@@").replace(b"@@", b"\xff\xfe gpu\x00")
    assert parse(text).ports[0].words == ()
    named = TEXT.encode().replace(b"MF0;leaf-01:MQM9701/U1", b"\xff\x1b[31mleaf" + b"x" * 99)
    assert parse(named).switches[SWITCH] == ("??[31mleaf" + "x" * 99)[:64]


@pytest.mark.parametrize(("ports", "end"), [("3[56]", SWITCH), ("3[12]", SPINE)])
def test_a_link_that_one_end_reports_is_a_link(ports: str, end: str) -> None:
    text = re.sub(rf"(?m)^\[{ports}\]\t.*\n", "", TEXT)
    assert text.count('"S-') == TEXT.count('"S-') - 2
    assert parse(text.encode()).links == (LINK,), end


def test_a_port_without_a_description_is_a_port() -> None:
    text = changed(' \t\t# "GPU-1 mlx5_5" lid 647 4xNDR', "")
    assert parse(text).ports == (PORT._replace(words=(), host="", adapter=""),)


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        (f'[1]\t"H-{ADAPTER}"', f'[1]\t"H-{ADAPTER}', 11),
        (f'[1]\t"H-{ADAPTER}"', f'[1]\t"H-{ADAPTER[1:]}"', 11),
        (f'[1]\t"H-{ADAPTER}"', f'[1]\t"Q-{ADAPTER}"', 11),
        (f'[35]\t"S-{SPINE}"[32]', f'[3535]\t"S-{SPINE}"[32]', 12),
        (f'Switch\t65 "S-{SPINE}"', f'Switch\t65 "X-{SPINE}"', 18),
    ],
)
def test_a_damaged_line_is_a_fault_with_its_number_and_without_its_content(old: str, new: str, line: int) -> None:
    fault, *gaps = parse(changed(old, new)).faults
    assert [gap.partition(":")[0] for gap in gaps] == ["it is not whole"] * ("Switch" in old)
    assert re.match(rf"damaged lines are ignored: {line}\b", fault)
    assert not re.search(r"[SHQX]-|\bMF0", fault)


def test_a_text_that_ends_in_a_line_has_what_is_before_and_a_fault() -> None:
    subnet = parse(TEXT.encode()[: TEXT.index("[36]") + 20])
    assert subnet.ports == (PORT._replace(system_guid=""),)
    damaged, gap = subnet.faults
    assert damaged.startswith("damaged lines are ignored: ")
    assert gap.startswith("it is not whole: 2 cables lead to devices without an entry; ")


ERROR = "src/query_smp.c:228; umad (DR path slid 0; dlid 0; 0,1,31 Attr 0x11:0) bad status 110; Connection timed out\n"


@pytest.mark.parametrize(
    ("before", "count"),
    [
        (ERROR, "1 query"),
        (ERROR * 3, "3 queries"),
        ("# unanswered: 7\n", "7 queries"),
        (ERROR.replace("0x11", "0xff90"), ""),
        ("# unanswered: 0\n", ""),
        ('[1]\t"H-00000000000000ff"[1](00000000000000fe)\t# "ibwarn: bad status" lid 1 4xNDR\n', ""),
    ],
)
def test_queries_without_an_answer_are_a_fault_in_the_survey(before: str, count: str) -> None:
    """The agent writes their number into the survey; a person may have redirected standard error into the file."""
    expected = f"{count} of ibnetdiscover had no answer: what lies behind is missing"
    for text in (before + TEXT, TEXT.replace("[1]", f"{before}[1]", 1)):
        faults = parse(text.encode()).faults
        unanswered = [fault for fault in faults if "answer" in fault and "entry" not in fault]
        assert unanswered == ([expected] if count else [])


@pytest.mark.parametrize("seed", range(8))
def test_a_survey_with_what_the_last_whole_one_showed_beyond_it_is_both_in_one_text(seed: int) -> None:
    """Blocks of devices that did not answer are missing, and so are the lines of their cables at other switches."""
    order = random.Random(seed)
    head, *blocks = PRINTED.read_bytes().split(b"\n\n")
    lost = order.sample(blocks, len(blocks) // 3)
    names = {name.group() for block in lost for name in re.finditer(rb'"[SH]-[0-9a-f]{16}"', block.partition(b"[")[0])}
    left = [b"\n".join(_without(block, names)) for block in blocks if block not in lost]
    part = marker(7) + b"\n\n".join([head, *left])

    both = parse(with_earlier(part, PRINTED.read_bytes()))

    expected = parse(part).filled(parse(PRINTED.read_bytes()))
    assert both.faults == expected.faults
    assert {*both.ports} == {*expected.ports} == {*parse(PRINTED.read_bytes()).ports}
    assert (both.switches, both.links) == (expected.switches, expected.links)
    assert len(with_earlier(part, PRINTED.read_bytes())) < 1.5 * len(PRINTED.read_bytes())


def _without(block: bytes, names: set[bytes]) -> list[bytes]:
    head, *lines = block.split(b"\n")
    return [head, *(line for line in lines if not (line[:1] == b"[" and any(name in line for name in names)))]


def test_a_port_that_moved_is_where_the_newest_survey_shows_it() -> None:
    moved = changed(f'[1]\t"H-{ADAPTER}"', f'[2]\t"H-{ADAPTER}"').replace(SWITCH.encode(), b"2c5eab0300b87b99")
    assert [port.switch for port in parse(with_earlier(moved, TEXT.encode())).ports] == ["2c5eab0300b87b99"]


@pytest.mark.parametrize("earlier", [b"", b"no survey", b"\xff\n\n\n[1]\n\n" * 9])
def test_an_earlier_survey_that_shows_nothing_changes_nothing(earlier: bytes) -> None:
    both, alone = parse(with_earlier(TEXT.encode(), earlier)), parse(TEXT.encode())
    assert (both.switches, both.ports, both.links) == (alone.switches, alone.ports, alone.links)


@pytest.mark.parametrize(
    "text", [b"", b"\n" * 9, b"#\n# Topology file\n#\n", b"ibwarn: cannot open UMAD port", b"\xff" * 99]
)
def test_a_text_without_a_switch_is_no_survey(text: bytes) -> None:
    with pytest.raises(NotASurvey, match="names no switch"):
        parse(text)


def test_too_many_bytes_lines_ports_or_damaged_lines_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    head = TEXT[: TEXT.index("[1]")].encode()
    with pytest.raises(NotASurvey, match="and 998 more"):
        parse(head + b"[\n" * 5_000)
    with pytest.raises(NotASurvey, match="bytes, the limit is"):
        parse(head + bytes(ibnetdiscover.MAX_BYTES))
    with pytest.raises(NotASurvey, match="lines"):
        parse(head + b"\n" * (ibnetdiscover.MAX_LINES + 1))
    monkeypatch.setattr(ibnetdiscover, "MAX_PORTS", 2)
    with pytest.raises(NotASurvey, match="more than 2 ports"):
        parse(TEXT.encode())


@given(st.binary(max_size=40), st.integers(0, len(TEXT)), st.integers(0, 60))
def test_any_change_gives_a_network_or_an_error_without_content(noise: bytes, at: int, length: int) -> None:
    text = TEXT.encode()
    try:
        subnet = parse(text[:at] + noise + text[at + length :])
    except NotASurvey as error:
        messages: tuple[str, ...] = (str(error),)
    else:
        messages = subnet.faults
        assert all(re.fullmatch("[0-9a-f]{16}", guid) for guid in subnet.switches)
        assert all(link.first < link.second or link.first == link.second for link in subnet.links)
    assert all(re.fullmatch(r"[a-z0-9 :;,A-Z]{1,200}", message) for message in messages)


def test_the_same_network_has_the_same_values_in_any_order() -> None:
    made = cabling(Rails(groups=3, rails=2))
    first, second = (parse(topology_file(replace(made, seed=seed))) for seed in (1, 2))
    assert sorted(first.ports) == sorted(second.ports)
    assert (first.switches, first.links) == (second.switches, second.links)
    assert len(first.ports) == 3 * 4 * 2
