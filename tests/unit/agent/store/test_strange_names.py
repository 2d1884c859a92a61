"""Damage that is hard to say: names that are no text, lists that name what cannot be, errors nobody thought of."""

import pytest
from gkm.images.pulling import entry
from gkm_agent.store import scrubber as inspection
from support.agent.node import Node
from support.agent.store_node import ONE, content_of, inspected, inspector, is_whole, ready
from support.host.sealed import unseal


@pytest.mark.parametrize("name", [b"kernel\xff.cubin", b"a\x1b[31m\n"])
def test_a_foreign_file_of_any_name_is_damage_that_can_be_reported_and_repaired(node: Node, name: bytes) -> None:
    store = ready(node)
    unseal(content_of(node))
    with open(bytes(content_of(node)) + b"/" + name, "wb"):  # noqa: PTH123 -- no Path has such a name
        pass

    inspected(node, store)

    store.catalog.save()
    assert store.catalog.damage_of(ONE).isprintable()
    assert node.settle()
    assert is_whole(node)


@pytest.mark.parametrize("name", ["../../../../etc/passwd", "a\\u0000b"])
def test_a_list_with_names_that_cannot_be_is_withdrawn(node: Node, name: str) -> None:
    store = ready(node)
    path = node.layout.entry(ONE) / entry.FILE_LIST
    path.chmod(0o644)
    path.write_text(path.read_text().replace("kernel.cubin", name))

    inspected(node, store)

    assert store.catalog.damage_of(ONE) == entry.FILE_LIST
    assert node.settle()
    assert is_whole(node)


def test_an_unexpected_error_ends_no_check_for_good(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    looking = inspector(node, ready(node))
    steps: list[int] = []

    def step() -> bool:
        steps.append(len(steps))
        if len(steps) == 1:
            raise ValueError("embedded null byte")
        looking.stop()
        return True

    monkeypatch.setattr(looking, "step", step)
    monkeypatch.setattr(inspection, "POLL_SECONDS", 0.0)
    looking._run()
    assert steps == [0, 1]
