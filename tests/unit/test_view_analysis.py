"""The analysis in the viewer: what the report says, with links; intervals; a run that grows; memory over the steps."""

import json
import re
from html import unescape
from types import SimpleNamespace

import pytest

from longloop.analysis.report import report
from longloop.analysis.run import analyze
from longloop.store.run import Run
from longloop.types import Group, Task
from longloop.viewer import analysis as counting
from longloop.viewer.library import Library
from longloop.viewer.pages import Pages
from tests.support import recorded


@pytest.fixture
def run(tmp_path):
    return recorded.small(tmp_path / "run")


def words(html: str) -> str:
    return " ".join(unescape(re.sub("<[^>]*>", " ", html)).split())


def test_the_page_is_the_report(run):
    html = Pages(Library([run])).html("/run/run/analysis")
    shown = report(analyze(run))
    seen = words(html)
    assert shown.headline in seen
    for section in shown.sections:
        assert f"<h2>{section.title}</h2>" in html
        for table in section.tables:
            for row in table.rows:
                assert " ".join(words(cell) for cell in row if isinstance(cell, str) and cell) in seen
    assert 'href="/run/run/eval/3/0/0">eval/3/0/0</a>' in html, "an attempt that failed can be opened"
    assert "steps counted" not in html


def test_behaviors_have_intervals(run):
    html = Pages(Library([run])).html("/run/run/behaviors")
    assert "change [95%]" in html and "turns / attempt" in html and "<h2>Stop reasons" not in html
    with Run.reopen(run) as again:
        tasks = [Task(f"t{number}", "dev") for number in range(4)]
        for step in (0, 3):
            tried = [recorded.attempt(task, 0, True) for task in tasks]
            tried[0] = recorded.attempt(tasks[0], 0, True, turns=tried[0].turns * 2)
            again.evaluations.write(step, [Group(one.task, (one,)) for one in tried])
    html = Pages(Library([run])).html("/run/run/behaviors")
    figure = next(part for part in html.split("<figure>") if "<b>turns / attempt</b>" in part)
    assert figure.count('class="line bar c1"') == 2, "one for each evaluation: some attempts are longer than others"


def test_while_it_is_counted_it_says_so(run):
    pages = Pages(Library([run]), patience=0.0)
    assert "0 of 5 steps counted" in pages.html("/run/run/analysis") and "No attempt was scored yet." in words(
        pages.html("/run/run/analysis")
    )
    pages._patience = 60.0
    assert "steps counted" not in pages.html("/run/run/analysis")


def test_counting_takes_both_ends_first_and_more_time_than_reports(tmp_path, monkeypatch):
    folder = recorded.small(tmp_path / "run", steps=20)
    with Run.reopen(folder) as again:
        for step in (5, 10, 15):
            again.evaluations.write(step, recorded.groups(3, 2, 0.5, "eval"))
    now, order, reports = 0.0, [], []
    count, make = counting.tally, counting.report

    def counted(attempts, kind, step, rules):
        nonlocal now
        now += 1.0
        order.append((kind, step))
        return count(attempts, kind, step, rules)

    def made(found):
        nonlocal now
        now += 6.0
        reports.append(len(order))
        return make(found)

    monkeypatch.setattr(counting, "tally", counted)
    monkeypatch.setattr(counting, "report", made)
    monkeypatch.setattr(counting, "time", SimpleNamespace(monotonic=lambda: now))
    pages = Pages(Library([folder]))
    while "steps counted" in pages.html("/run/run/analysis"):
        pass
    assert sorted(order[:4]) == [("eval", 0), ("eval", 20), ("step", 1), ("step", 20)] and order[4] == ("eval", 10)
    assert len(order) == 25 and reports == [1, 7, 13, 19, 25]
    pages.html("/run/run/analysis")
    assert len(reports) == 5, "nothing is new"


def test_a_run_that_grows_is_counted_on(run):
    pages = Pages(Library([run]))
    assert "after step 4" not in pages.html("/run/run/analysis")
    with Run.reopen(run) as again:
        again.evaluations.write(4, recorded.groups(3, 2, 1.0, "eval"))
    html = pages.html("/run/run/analysis")
    assert "100.0% [43.9%, 100.0%] after step 4" in words(html)


def test_bad_patterns_of_a_run_cost_no_page(run):
    facts = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(facts | {"analysis": {"patterns": {"x": {"said": "("}}}}))
    assert "Stop reasons" in Pages(Library([run])).html("/run/run/analysis")
    (run / "run.json").write_text(json.dumps(facts | {"analysis": {"patterns": {"seen": {"said": "newest"}}}}))
    assert "seen / attempt" in Pages(Library([run])).html("/run/run/analysis")


def test_a_run_without_attempts(tmp_path):
    with Run.create(recorded.settings(tmp_path / "run"), {}):
        assert "No attempt was scored yet." in Pages(Library([tmp_path / "run"])).html("/run/run/analysis")


def test_memory_over_the_steps(run):
    assert "<b>Memory</b>" not in Pages(Library([run])).html("/run/run"), "an older run has none"
    with Run.reopen(run) as again:
        for step, size in ((1, 2**30), (2, 3 * 2**30)):
            again.metrics.write(recorded.metrics(step, 0.5, 8, 2) | {"memory": {"process": size, "card": 2 * size}})
    html = Pages(Library([run])).html("/run/run")
    figure = next(part for part in html.split("<figure>") if "<b>Memory</b>" in part)
    (data,) = re.findall('data-chart="([^"]*)"', figure)
    lines = {name: points for name, _, points in json.loads(unescape(data))["lines"]}
    assert lines == {"process": [[1, 1.0], [2, 3.0]], "card": [[1, 2.0], [2, 6.0]]}
