"""The mount path in a volume attribute."""

import posixpath

import pytest
from gkm.mounts.relocation.mount_path import MAX_BYTES, InvalidMountPath, MountPath
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize("text", ["/cache", "/root/.triton/cache", "/a b/ü", "/..a/b..", "/" + "x" * (MAX_BYTES - 1)])
def test_a_valid_path_is_accepted(text: str) -> None:
    assert MountPath(text).text == text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not an absolute path"),
        ("cache", "not an absolute path"),
        ("//cache", "not an absolute path"),
        ("/", "root of the container"),
        ("/cache/", "write '/cache'"),
        ("/a//b", "write '/a/b'"),
        ("/a/./b", "write '/a/b'"),
        ("/a/../b", "write '/b'"),
        ("/..", "write '/'"),
        ("/a\n/b", "cannot be printed"),
        ("/a\0b", "cannot be printed"),
        ("/a\x1b[31m", "cannot be printed"),
        ("/\udcff", "cannot be printed"),
        ("/a\u202eb", "cannot be printed"),
        ("/" + "x" * MAX_BYTES, "longer than 1024 bytes"),
        ("/" + "ü" * 600, "longer than 1024 bytes"),
    ],
)
def test_an_invalid_path_is_refused_with_a_hint(text: str, said: str) -> None:
    with pytest.raises(InvalidMountPath, match=r"^mountPath '") as refused:
        MountPath(text)
    assert said in str(refused.value)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 700


@given(st.text(max_size=60))
def test_any_text_is_a_normal_path_or_refused(text: str) -> None:
    try:
        path = MountPath(text)
    except InvalidMountPath:
        return
    assert posixpath.normpath(path.text) == path.text
    assert posixpath.isabs(path.text)
    assert ".." not in path.text.split("/")


@given(st.text(min_size=1, max_size=20), st.text(min_size=1, max_size=20))
def test_two_paths_have_two_keys_and_a_key_is_one_harmless_name(first: str, second: str) -> None:
    try:
        one, other = MountPath("/" + first), MountPath("/" + second)
    except InvalidMountPath:
        return
    assert (one.key == other.key) == (first == second)
    assert len(one.key) == 64
    assert one.key.isalnum()
