"""Sources and documents stay below the ceilings of scripts/prose.py, which names the turns of phrase."""

from pathlib import Path

import pytest
from prose import LONG, PATTERNS, count, offsets
from prose_texts import ROOMS, Text, masked, python, read

ROOT = Path(__file__).parents[3]
PER_10_000_WORDS = dict.fromkeys(ROOMS, (8.0, 10.0, 1.5, 1.0, 1.0, 0.5, 2.5))
"""The most hits per 10,000 words in each room, in the order of PATTERNS; last, sentences above 30 words in per cent."""
BAD = {
    "possessive": "The size is that of the layer. A volume has a file of its own. Return the one that is newest.",
    "negative": "It writes nothing. A pod of none of them waits. Neither is read.",
    "what": "It reads a file. What the node has is kept. | What is left |",
    "whatever": "It runs whatever happens, however many nodes there are, whoever asks.",
    "counts": "An older label counts. It counts as failed, and the pod counts on it.",
    "of-first": "It is sorted. Of two entries the newer one is used; of none, it is empty. Of labels, the first.",
}


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_stays_below_its_ceilings(room: str) -> None:
    counts = count(read(ROOT, room))
    over = {
        pattern: counts.rate(pattern)
        for pattern, most in zip((*PATTERNS, LONG), PER_10_000_WORDS[room], strict=True)
        if counts.rate(pattern) > most
    }
    assert not over, f"python scripts/prose.py --list {room} {next(iter(over))} prints the sentences to reword"


@pytest.mark.parametrize(("pattern", "hits"), [(name, 2 if name == "what" else 3) for name in PATTERNS])
def test_each_pattern_is_found(pattern: str, hits: int) -> None:
    assert len(list(offsets(BAD[pattern], pattern))) == hits


def test_plain_sentences_have_no_hit() -> None:
    plain = "What does it do? The counter counts the requests. Of course it returns None. A number counts from 1."
    assert count([Text("a", 1, "documents", plain)]).hits == dict.fromkeys((*PATTERNS, LONG), 0)


def test_a_sentence_of_31_words_is_long() -> None:
    text = "It is short. " + "word " * 31 + ". End."
    assert list(offsets(text, LONG)) == [13]


def test_a_hit_has_the_line_of_its_file() -> None:
    source = '"""Title."""\ndef f():\n    """Run.\n\n    It does\n    nothing.\n    """\n    # first\n    # none\n'
    found = {(text.kind, text.line_at(at)) for text in python("a.py", source) for at in offsets(text.text, "negative")}
    assert found == {("docstrings", 6), ("comments", 9)}


def test_code_and_targets_of_links_are_no_prose() -> None:
    text = masked("`none` [none](none.md)\n```\nnone\n```\nnone")
    assert [text.count("\n", 0, at) for at in offsets(text, "negative")] == [0, 4]


def test_messages_are_strings_of_three_words() -> None:
    source = "a = 'none'\nb = f'{a} has none left'\nc = ('there is '\n 'nothing')\n"
    assert [(text.kind, text.line) for text in python("a.py", source)] == [("messages", 2), ("messages", 3)]
