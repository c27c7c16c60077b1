"""Markdown in which models and environments have their say: read by a real parser, it is the text that was written."""

import re
from dataclasses import replace
from html import unescape

import pytest
from markdown_it import MarkdownIt

from longloop.analysis.markdown import escaped, markdown
from longloop.analysis.report import AttemptIds, Report, Section, Table, report
from longloop.analysis.run import analyze
from longloop.store.run import Run
from longloop.types import Group, Message, Task
from tests.support import recorded

EVIL = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "a | b | c",
    "a \\| b \\",
    "`code` ``two`` ```three",
    "![x](http://evil.example/x.png)",
    "[x](javascript:alert(1))",
    "[x]: http://evil.example",
    "<http://evil.example> &lt;b&gt; &#60; &amp;",
    "see http://evil.example and WWW.evil.example or a@evil.example",
    "**bold** __bold__ *it* _it_ ~~gone~~ $x^2$ ==x==",
    "# heading",
    "line\n\n## heading\n\n| a |\n|---|\n",
    "- item\r\n> quote\u2028end\u0085",
    "\x1b[31mred\x1b[0m \x00 \u202e reversed",
    "1. one",
    "+ two",
    "    indented",
    "half a pair \ud800",
    "<!-- not seen -->",
    "{{7*7}} {% x %}",
]
READER = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])


def plain(text: str) -> str:
    """As it should be read: on one line, without what cannot be printed."""
    return " ".join("".join(c if c.isprintable() else " " if c.isspace() else "\ufffd" for c in text).split())


@pytest.mark.parametrize("text", EVIL)
def test_a_text_is_read_as_it_was_written(text):
    for around in ("{}", "| {} |\n|---|\n| {} |"):
        html = READER.render(around.format(*[escaped(text)] * 2))
        tags = set(re.findall(r"<(/?\w+)", html)) - {"p", "/p", "table", "/table", "thead", "/thead", "tbody", "/tbody"}
        assert tags <= {"tr", "/tr", "th", "/th", "td", "/td"}, html
        seen = [" ".join(unescape(part).split()) for part in re.findall(r"<(?:p|t[hd])>(.*?)</", html)]
        assert seen == [plain(text)] * len(seen) and len(seen) == around.count("{}")


def test_no_link_makes_itself():
    """Some readers turn addresses into links without being asked."""
    assert "://" not in escaped("HTTP://evil.example") and "www." not in escaped("www.evil.example").lower()


def test_a_report_keeps_its_shape():
    rows = tuple((text, "1", AttemptIds(("eval/1/0/0", "eval/1/0/1"))) for text in EVIL)
    shown = Report(EVIL[0], (Section(EVIL[1], tuple(EVIL), (Table((EVIL[2], "n", "where"), rows),), name="x"),))
    html = READER.render(markdown(EVIL[5], EVIL[3], shown, {"x": "x.png"}))
    assert html.count("<tr>") == 1 + len(EVIL) and html.count("<td>") == 3 * len(EVIL)
    assert re.findall('(?:src|href)="([^"]*)"', html) == ["x.png"]
    assert html.count("<h1>") == html.count("<h2>") == 1 and "<script" not in html
    assert html.count("<code>eval/1/0/0</code>") == len(EVIL)


def test_a_hostile_run(tmp_path):
    """What a model says reaches the report by its errors; what an environment says by tasks and tests."""
    tried = []
    for number, text in enumerate(EVIL * 2):
        task = Task(f"{text}{number}", "train", {"difficulty": text, "apps": [text]}, text)
        one = recorded.attempt(task, 0, False, info={"tests": [{"name": text, "passed": False}]})
        back = (Message("user", f"Error: {text}"),)
        tried.append(Group(task, (replace(one, turns=(one.turns[0], replace(one.turns[1], context=back))),)))
    with Run.create(recorded.settings(tmp_path / "run"), {}) as run:
        run.trajectories.write(1, tried)
    shown = report(analyze(tmp_path / "run"))
    titles = [section.title for section in shown.sections]
    assert titles[3:6] == ["Success by scenario", "Failures", "Reward without success"], "the same by any other name"
    html = READER.render(markdown("run", "", shown, {}))
    assert not re.search("<(?!/?(?:p|h1|h2|strong|table|thead|tbody|tr|th|td|code)>)", html)
