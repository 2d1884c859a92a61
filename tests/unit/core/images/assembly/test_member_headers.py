"""The headers of a layer's members are those of tarfile, byte for byte."""

import tarfile

from gkm.images.assembly import image
from hypothesis import example, given
from hypothesis import strategies as st

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=300)


@given(
    name=NAMES | st.text("abc/", min_size=95, max_size=105),
    is_directory=st.booleans(),
    size=st.integers(0, 9 << 33),
    mode=st.sampled_from([0o644, 0o755]),
)
@example(name="a" * 100, is_directory=False, size=8**11 - 1, mode=0o644)
@example(name="a" * 100, is_directory=True, size=0, mode=0o755)
@example(name="a" * 99, is_directory=True, size=0, mode=0o755)
@example(name="a", is_directory=False, size=8**11, mode=0o644)
def test_a_header_is_that_of_tarfile(name: str, mode: int, size: int, *, is_directory: bool) -> None:
    kind = tarfile.DIRTYPE if is_directory else tarfile.REGTYPE
    member = tarfile.TarInfo(f"{name}/" if is_directory else name)
    member.type, member.size, member.mode = kind, size, mode
    assert image._header(name, kind, size, mode) == member.tobuf(tarfile.PAX_FORMAT)
