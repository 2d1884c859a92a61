"""The field numbers of the messages; another test checks that the generated files are current."""

import tomllib
from pathlib import Path

import pytest
from gkm_csi.proto import csi_pb2, registration_pb2
from gkm_csi.server.version import VERSION

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("message", "numbers"),
    [
        ("NodePublishVolumeRequest", {"volume_id": 1, "target_path": 4, "volume_capability": 5, "volume_context": 8}),
        ("NodeUnpublishVolumeRequest", {"volume_id": 1, "target_path": 2}),
        ("NodeGetVolumeStatsRequest", {"volume_id": 1, "volume_path": 2}),
        ("VolumeCapability", {"block": 1, "mount": 2, "access_mode": 3}),
        ("VolumeUsage", {"available": 1, "total": 2, "used": 3, "unit": 4}),
        ("NodeGetInfoResponse", {"node_id": 1, "max_volumes_per_node": 2}),
        ("GetPluginInfoResponse", {"name": 1, "vendor_version": 2}),
    ],
)
def test_the_numbers_of_the_specification(message: str, numbers: dict[str, int]) -> None:
    fields = csi_pb2.DESCRIPTOR.message_types_by_name[message].fields_by_name
    assert {name: fields[name].number for name in numbers} == numbers


def test_the_numbers_of_kubelets_registration() -> None:
    fields = registration_pb2.PluginInfo.DESCRIPTOR.fields
    assert {field.name: field.number for field in fields} == {
        "type": 1,
        "name": 2,
        "endpoint": 3,
        "supported_versions": 4,
    }


def test_secrets_are_no_field_of_ours() -> None:
    assert "secrets" not in csi_pb2.NodePublishVolumeRequest.DESCRIPTOR.fields_by_name


def test_the_version_is_that_of_the_distribution() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == VERSION
