"""The elements of a page of HTML: a page of ours requests nothing, and no text becomes an element."""

from html.parser import HTMLParser


class Tags(HTMLParser):
    """Collects the names of elements and of their attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
