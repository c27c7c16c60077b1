"""What models and environments wrote, for a terminal."""


def visible(text: str) -> str:
    """Control characters, and what is no text, as their escapes, so that a text cannot act on the terminal."""
    return "".join(c if c in "\n\t" or c.isprintable() else c.encode("unicode_escape").decode() for c in text)
