"""csi-sanity, the conformance suite of Kubernetes' CSI community, against the real process.

Every spec for a driver without a controller runs: three of Identity, fourteen of Node. They run in two ways, because
csi-sanity runs two of them ("should work", "should be idempotent": the life of a volume) only for a plugin with the
capability of a controller:

- at the driver's own socket, with a controller beside it that makes volumes: all but these two;
- through that controller, which passes every call on and announces the capability: all of them.

Specs that cannot run:

- NodeStageVolume (3), NodeUnstageVolume (2), NodeExpandVolume (4): kubelet neither stages nor expands an inline volume,
  so the driver has neither STAGE_UNSTAGE_VOLUME nor EXPAND_VOLUME, and csi-sanity skips them;
- a second writer (1): the driver has no SINGLE_NODE_MULTI_WRITER, since kubelet requests one mode only for an inline
  volume;
- NodeGetVolumeHealth (2), NodeGetStorageHealth (1): alpha in CSI 1.13, and not supported either; the condition of a
  volume is part of its stats;
- Controller, GroupController and snapshots: the driver has no such services, and csi-sanity would test the double, so
  the focus excludes them.
"""

import subprocess
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from support.csi.driver import driver
from support.csi.namespaces import MountNamespace, private_namespace
from support.csi.nodes import NodeFiles, node_files, publish_message
from support.csi.sanity_controller import controller
from support.peers import require

pytestmark = pytest.mark.mounts

DEADLINE = 120
"""Seconds; with a socket where nobody answers it would wait for ever."""
FOCUS = "Identity Service|Node Service"
LIFE = {"Node Service should work", "Node Service should be idempotent"}
NOT_SAID = {
    "NodeStageVolume": 3,
    "NodeUnstageVolume": 2,
    "NodeExpandVolume": 4,
    "with single node multi writer capability": 1,
    "NodeGetVolumeHealth": 2,
    "NodeGetStorageHealth": 1,
}
"""Specs that csi-sanity passes over because the driver does not say that it has what they ask."""
ALL = 17


def asked(namespace: MountNamespace, files: NodeFiles, sanity: Path, *sockets: str) -> dict[str, str]:
    """Run csi-sanity; return the result of each spec that it reached ("passed", "skipped", …)."""
    report = files.root / "junit.xml"
    report.unlink(missing_ok=True)
    mount = files.target("sanity").parent
    mount.rmdir()  # csi-sanity makes the parent of a target, as kubelet does
    where = (f"-csi.mountdir={mount}", f"-csi.stagingdir={files.root}/staging", f"-csi.junitfile={report}")
    command = namespace.command([sanity, *sockets, *where, f"-ginkgo.focus={FOCUS}", "-ginkgo.no-color"])
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=DEADLINE)
    specs = {
        case.attrib["name"].removeprefix("[It] "): case.attrib["status"]
        for case in ET.parse(report).getroot().iter("testcase")  # noqa: S314 -- written by csi-sanity just now
        if case.attrib["name"].startswith("[It] ") and any(name in case.attrib["name"] for name in FOCUS.split("|"))
    }
    assert done.returncode == 0, done.stdout[-8000:]
    return specs


def test_csi_sanity_passes_for_a_driver_without_a_controller(
    record_property: Callable[[str, object], None], capsys: pytest.CaptureFixture[str]
) -> None:
    sanity = require.peer("csi-sanity")
    with node_files() as files, private_namespace() as namespace, driver(files, namespace) as running:
        files.ready("llama")
        message = publish_message("unused", files.root, {"cacheName": "llama"})
        front = files.root / "controller.sock"
        with controller(running.socket, front, message.volume_context):
            beside = (f"-csi.endpoint=unix:{running.socket}", f"-csi.controllerendpoint=unix:{front}")
            direct = asked(namespace, files, sanity, *beside)
            through = asked(namespace, files, sanity, f"-csi.endpoint=unix:{front}")
        assert namespace.mounts(files.kubelet) == []
        assert list(files.layout.volumes.iterdir()) == []
    passed = {name for name, ending in through.items() if ending == "passed"}
    with capsys.disabled():
        print(f"\ncsi-sanity: {len(passed)} specs passed\n  " + "\n  ".join(sorted(passed)))  # noqa: T201 -- a report
    record_property("csi_sanity_passed", len(passed))
    assert len(passed) >= ALL
    assert {name for name, ending in direct.items() if ending == "passed"} == passed - LIFE
    left_out = through.keys() - passed
    assert {part: sum(part in name for name in left_out) for part in NOT_SAID} == NOT_SAID
    assert len(left_out) == sum(NOT_SAID.values())
