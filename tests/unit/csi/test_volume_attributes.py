"""The mount options in the attributes of a volume."""

from dataclasses import replace

import pytest
from gkm.hoststate.records import READ_ONLY, VolumeOptions
from gkm_csi.status_errors import Code, StatusError
from gkm_csi.volumes.request import AUTO, CAPTURE_MODES, DEFAULT_SIZE, REQUEST, parse_bytes, volume_options
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("attributes", "options"),
    [
        ({}, READ_ONLY),
        ({"readOnly": "true", "ifUnavailable": "wait", "capture": "false"}, READ_ONLY),
        ({"readOnly": "false"}, VolumeOptions(private=True, size_limit=1 << 30)),
        ({"readOnly": "false", "sizeLimit": "512Mi"}, VolumeOptions(private=True, size_limit=512 << 20)),
        ({"readOnly": "false", "sizeLimit": "2G"}, VolumeOptions(private=True, size_limit=2 * 10**9)),
        ({"readOnly": "false", "sizeLimit": "1Mi"}, VolumeOptions(private=True, size_limit=1 << 20)),
        ({"readOnly": "false", "sizeLimit": "1Ti"}, VolumeOptions(private=True, size_limit=1 << 40)),
        ({"mountPath": "/root/.triton/cache"}, VolumeOptions(mount_path="/root/.triton/cache")),
        ({"userNamespace": "true"}, VolumeOptions(user_namespace=True)),
        ({"userNamespace": "false"}, READ_ONLY),
        ({"ifUnavailable": "empty"}, VolumeOptions(or_empty=True, size_limit=DEFAULT_SIZE)),
        ({"readOnly": "false", "capture": "true"}, VolumeOptions(private=True, size_limit=DEFAULT_SIZE, capture=True)),
    ],
)
def test_valid_options_are_parsed(attributes: dict[str, str], options: VolumeOptions) -> None:
    assert volume_options(attributes) == options


PRIVATE = {"readOnly": "false"}
EMPTY = {"ifUnavailable": "empty"}


@pytest.mark.parametrize(
    ("attributes", "captured_in"),
    [
        ({}, {AUTO}),
        ({"readOnly": "true"}, set()),
        ({"capture": "false"}, set()),
        (PRIVATE, {AUTO}),
        (EMPTY, {AUTO}),
        (PRIVATE | {"capture": "true"}, {AUTO, REQUEST}),
        (EMPTY | {"capture": "true"}, {AUTO, REQUEST}),
        (PRIVATE | {"capture": "false"}, set()),
        (EMPTY | {"capture": "false"}, set()),
    ],
)
def test_the_mode_decides_with_the_attribute_which_volumes_are_captured(
    attributes: dict[str, str], captured_in: set[str]
) -> None:
    assert {mode for mode in CAPTURE_MODES if volume_options(attributes, mode).capture} == captured_in


JUST_IN_TIME = VolumeOptions(private=True, size_limit=DEFAULT_SIZE, or_compile=True, capture=True)


@pytest.mark.parametrize(
    ("attributes", "options"),
    [
        ({}, JUST_IN_TIME),
        ({"sizeLimit": "2Mi"}, replace(JUST_IN_TIME, size_limit=2 << 20)),
        (PRIVATE, JUST_IN_TIME),
        ({"capture": "true"}, JUST_IN_TIME),
        ({"ifUnavailable": "compile"}, JUST_IN_TIME),
        ({"ifUnavailable": "wait"}, replace(JUST_IN_TIME, or_compile=False)),
        (EMPTY, replace(JUST_IN_TIME, or_compile=False, or_empty=True)),
        ({"readOnly": "true"}, READ_ONLY),
        ({"readOnly": "true", "ifUnavailable": "wait"}, READ_ONLY),
        ({"readOnly": "true"} | EMPTY, replace(JUST_IN_TIME, private=False, or_compile=False, or_empty=True)),
        ({"readOnly": "true", "ifUnavailable": "compile"}, replace(JUST_IN_TIME, private=False)),
        ({"capture": "false"}, READ_ONLY),
        ({"capture": "false"} | PRIVATE, VolumeOptions(private=True, size_limit=DEFAULT_SIZE)),
        ({"capture": "false"} | EMPTY, VolumeOptions(or_empty=True, size_limit=DEFAULT_SIZE)),
    ],
)
def test_a_volume_that_says_nothing_compiles_just_in_time(attributes: dict[str, str], options: VolumeOptions) -> None:
    assert volume_options(attributes, AUTO) == options


def test_a_read_only_volume_of_a_pod_compiles_nothing() -> None:
    assert volume_options({}, AUTO, read_only=True) == READ_ONLY


@pytest.mark.parametrize("mode", CAPTURE_MODES)
def test_a_pod_may_ask_for_compilation_in_every_mode(mode: str) -> None:
    options = volume_options({"ifUnavailable": "compile"}, mode)
    assert (options.or_compile, options.capture) == (True, mode == AUTO)


@pytest.mark.parametrize(
    ("attributes", "told"),
    [
        ({"readOnly": "TRUE"}, 'readOnly must be "true" or "false", not \'TRUE\''),
        ({"readOnly": ""}, "''"),
        ({"ifUnavailable": "skip"}, 'must be "wait", "empty" or "compile", not \'skip\''),
        ({"capture": "yes"}, 'must be "false" or "true"'),
        ({"capture": "true"}, "capture needs a writable volume"),
        ({"sizeLimit": "1Gi"}, "sizeLimit needs a writable volume"),
        ({"readOnly": "true", "sizeLimit": "1Gi"}, 'set readOnly: "false"'),
        ({"readOnly": "false", "sizeLimit": "a lot"}, "'a lot'"),
        ({"readOnly": "false", "sizeLimit": "1.5Gi"}, "'1.5Gi'"),
        ({"readOnly": "false", "sizeLimit": "-1"}, "1Mi to 1Ti"),
        ({"readOnly": "false", "sizeLimit": "1023Ki"}, "1Mi to 1Ti"),
        ({"readOnly": "false", "sizeLimit": "2Ti"}, "1Mi to 1Ti"),
        ({"readOnly": "false", "sizeLimit": "9" * 4000}, "1Mi to 1Ti"),
        ({"mountPath": "cache"}, "mountPath 'cache' is not an absolute path"),
        ({"mountPath": "/a/../b"}, "mountPath"),
        ({"mountPath": ""}, "mountPath"),
    ],
)
def test_invalid_options_are_refused_with_the_cause(attributes: dict[str, str], told: str) -> None:
    with pytest.raises(StatusError) as caught:
        volume_options(attributes)

    assert caught.value.code is Code.INVALID_ARGUMENT
    assert told in caught.value.message
    assert len(caught.value.message) < 400


@given(st.integers(0, 10**15 - 1), st.sampled_from([("", 1), ("k", 10**3), ("Ki", 1 << 10), ("Ti", 1 << 40)]))
def test_a_formatted_size_parses_to_itself(number: int, unit: tuple[str, int]) -> None:
    assert parse_bytes(f"{number}{unit[0]}") == number * unit[1]


@given(st.text(max_size=30))
def test_no_text_is_a_size_by_mistake(text: str) -> None:
    size = parse_bytes(text)
    assert size is None or text[0] in "0123456789"
