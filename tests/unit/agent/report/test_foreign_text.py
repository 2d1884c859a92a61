"""Foreign text in what a node says: a registry's words are a printable line in the API and in files."""

from pathlib import Path

import yaml
from gkm.api.nodes import NodeCacheStatus, NodeStatus
from gkm.gpus.values import Inventory
from gkm.hoststate.names import CacheRef
from gkm.hoststate.pointers import CacheState, Pointer
from gkm_agent.caches.decisions import Observed
from gkm_agent.report.status import statuses
from gkm_agent.standalone.sinks import FileStatusSink

COMMANDS = "a\x1b[2J\x9b31m\x85\u202eb"
SHOWN = r"a\x1b[2J\x9b31m\x85\u202eb"
REF = CacheRef("a", "llama")


def test_reason_and_message_of_a_node_object() -> None:
    pointer = Pointer(REF, "registry.test/x", CacheState.FAILED, reason=COMMANDS, message=COMMANDS)
    cache = statuses({REF: Observed(pointer=pointer)}, [], Inventory())["a"].caches["llama"]
    assert (cache.reason, cache.message) == (SHOWN, SHOWN)


def test_a_file_has_printable_lines_and_the_value(tmp_path: Path) -> None:
    FileStatusSink(tmp_path, "node-1").publish(
        "a", NodeStatus(caches={"x": NodeCacheStatus(state="Ready", message=COMMANDS)})
    )
    text = (tmp_path / "a" / "node-1.yaml").read_text()
    assert all(line.isprintable() for line in text.split("\n")), ascii(text)
    assert yaml.load(text, yaml.CSafeLoader)["status"]["caches"]["x"]["message"] == COMMANDS
