import io
import json
import logging
import sys
import unicodedata

import pytest
from gkm.hoststate import logs
from gkm.hoststate.escaping import escape, escape_json, escape_lines
from hypothesis import given
from hypothesis import strategies as st

COMMANDS = "\x1b[2J\x07\x7f\x9b31m\x85\u2028\u202e\u2066\u200b\ufeff\U000e0001\ud800"
"""CSI as two characters and as one, BEL, DEL, NEL, a line separator, bidi, what has no width, tags, half a pair."""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, é, 漢 and 😀", "plain, é, 漢 and 😀"),
        ("a\x1b[31mred", r"a\x1b[31mred"),
        ("\x9b31m", r"\x9b31m"),
        ("two\nlines\r\t", r"two\nlines\r\t"),
        ("invoice\u202efdp.exe", r"invoice\u202efdp.exe"),
        ("tag\U000e0041", r"tag\U000e0041"),
        ("half\udc80", r"half\udc80"),
    ],
)
def test_unprintable_characters_are_escaped(text: str, shown: str) -> None:
    assert escape(text) == shown


@given(st.text(st.characters(), max_size=60))
def test_no_text_leaves_a_control_or_format_character(text: str) -> None:
    shown = escape(text)
    assert not {unicodedata.category(one) for one in shown} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    assert escape(shown) == shown
    assert escape_lines(f"{text}\n{text}").count("\n") == 2 * text.count("\n") + 1


@given(st.text(st.characters(), max_size=60), st.booleans())
def test_escaped_json_has_the_same_value_and_printable_lines(text: str, ascii_only: bool) -> None:  # noqa: FBT001
    document = escape_json(json.dumps({text: [text]}, ensure_ascii=False, indent=2), ascii_only=ascii_only)
    assert json.loads(document) == {text: [text]}
    assert all(line.isprintable() for line in document.split("\n"))
    assert document.isascii() or not ascii_only


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_a_log_line_has_no_terminal_command_and_the_same_value(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(written, encoding, "backslashreplace", line_buffering=True))
    root = logging.getLogger()
    before = root.handlers[:], root.level
    try:
        logs.configure()
        logging.getLogger("test").info("ends %s", COMMANDS, extra=logs.fields(why=COMMANDS, also="é"))
    finally:
        root.handlers[:], root.level = before
    line = written.getvalue().decode(encoding)
    assert line[:-1].isprintable(), ascii(line)
    found = json.loads(line)
    assert (found["event"], found["why"], found["also"]) == (f"ends {COMMANDS}", COMMANDS, "é")
