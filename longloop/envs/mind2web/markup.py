"""A web page as a tree, and a short text of it around the elements to choose from.

Pages are those of Mind2Web: HTML in which every element has a `backend_node_id`, and text is inside `text` elements.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser

_VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
_TELLING = (
    *("role", "type", "name", "title", "placeholder", "label", "alt", "value", "aria_label", "aria_description"),
    *("aria-label", "aria-description", "input_value", "input_checked", "option_selected"),
)
"""Attributes whose values say what an element is for."""
_WORDS = 12
"""Words of an attribute or a text that are shown."""
_BESIDE, _BELOW = 2, 10
"""Neighbors on either side of an element, and elements inside it, that are shown with it."""


@dataclass(eq=False)
class Element:
    tag: str
    attributes: dict[str, str]
    parent: "Element | None" = None
    children: list["Element | str"] = field(default_factory=list)

    @property
    def number(self) -> str:
        return self.attributes.get("backend_node_id", "")

    @property
    def elements(self) -> list["Element"]:
        return [child for child in self.children if isinstance(child, Element)]

    def walk(self) -> Iterator["Element"]:
        """Yield the element and all inside it, in the order of the page."""
        waiting = [self]
        while waiting:
            element = waiting.pop()
            yield element
            waiting += reversed(element.elements)


def parse(html: str) -> Element:
    """Return the page's root. Markup that is not properly nested is accepted."""
    parser = _Parser()
    parser.feed(html)
    parser.close()
    return parser.root


def shown(root: Element, choices: Sequence[Element]) -> str:
    """Return the page around some of its elements, which are numbered `id=0`, `id=1`, ... in the order given."""
    kept: set[Element] = set()
    for choice in choices:
        kept.update(list(choice.walk())[: _BELOW + 1])
        above = choice
        while above.parent is not None:
            above = above.parent
            kept.add(above)
        beside = choice.parent.elements if choice.parent else []
        at = next((index for index, other in enumerate(beside) if other is choice), 0)
        for other in beside[max(0, at - _BESIDE) : at + _BESIDE + 1]:
            kept.update([other, *other.elements[:1]])
    return _written(root, kept, {choice: index for index, choice in enumerate(choices)})


def brief(choice: Element, number: int, length: int) -> str:
    """Return one element, as `id=number`, with what is inside it, cut to `length` characters."""
    return _written(choice, set(list(choice.walk())[: _BELOW + 1]), {choice: number})[:length].rstrip()


def _written(root: Element, kept: set[Element], numbers: Mapping[Element, int]) -> str:
    """Return the elements that are kept, as text. It is built from the innermost out, since pages may be deeper than
    Python's stack."""
    done: dict[Element, str] = {}
    for element in reversed([element for element in root.walk() if element in kept]):
        parts = [_few(child) if isinstance(child, str) else done.get(child, "") for child in element.children]
        inside = " ".join(filter(None, parts))
        said = [f"id={numbers[element]}"] if element in numbers else []
        said += [_few(element.attributes[name]) for name in _TELLING if element.attributes.get(name)]
        wraps = [child.tag for child in element.elements] not in ([], ["text"]) and len(element.children) == 1
        if element.tag == "text" or (not said and (wraps or not inside)):
            done[element] = inside  # a wrapper that says nothing is left out
        else:
            opening = " ".join([element.tag, *said])
            done[element] = f"<{opening}> {inside} </{element.tag}>" if inside else f"<{opening} />"
    return done.get(root, "")


def _few(text: str) -> str:
    return " ".join(text.split()[:_WORDS])


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.root = Element("page", {})
        self._inner = self.root

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs}, self._inner)
        self._inner.children.append(element)
        if tag not in _VOID:
            self._inner = element

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        before = self._inner
        self.handle_starttag(tag, attrs)
        self._inner = before

    def handle_endtag(self, tag: str) -> None:
        above: Element | None = self._inner
        while above is not None and above.tag != tag:
            above = above.parent
        if above is not None and above.parent is not None:
            self._inner = above.parent

    def handle_data(self, data: str) -> None:
        if data.strip():
            self._inner.children.append(data)
