"""What the viewer reads of a run: an index and single lines; also of a run that is cut, repeated, damaged or old."""

import itertools
import json
import shutil
from types import SimpleNamespace

import pytest

from longloop.store.run import Run
from longloop.store.run_reader import RunReader
from longloop.store.trajectories import StoredTrajectory, Trajectories
from longloop.types import Group, Message, Task
from longloop.viewer import search as searching
from longloop.viewer.library import Library
from longloop.viewer.pages import Pages
from longloop.viewer.search import search
from longloop.viewer.text import action
from tests.support import recorded


@pytest.fixture
def run(tmp_path):
    return recorded.small(tmp_path / "run")


def test_an_attempt_is_read_by_its_entry(run):
    attempts = Trajectories(run / "trajectories")
    lines = (run / "trajectories/000002.jsonl").read_text().splitlines()
    stored = [StoredTrajectory.from_json(json.loads(line)) for line in lines]
    entries = attempts.entries(2)
    assert len(entries) == len(stored) == 12
    assert [attempts.get(entry) for entry in entries] == stored == list(attempts.stored(2))
    assert attempts.find(2, 1, 3).task == "train/cost-of-last-order/1"
    assert attempts.find(2, 9, 9) is None
    assert attempts.entries(7) == []


def test_the_mean_advantage_is_found_without_a_line(run):
    attempts = Trajectories(run / "trajectories")
    found = attempts.advantages(2)
    for number in range(3):
        group = [entry for entry in attempts.entries(2) if entry.group == number]
        scored = [entry.reward for entry in group if entry.scored]
        for entry in group:
            mean = sum(scored) / len(scored)
            assert found[entry.key] == pytest.approx(entry.reward - mean if entry.scored else 0.0, abs=1e-6)
    assert any(value > 0 for value in found.values())


def test_a_growing_index_is_read_from_where_it_ended(run):
    index = run / "trajectories/index.jsonl"
    attempts = Trajectories(run / "trajectories")
    before = attempts.entries(3)
    line = json.dumps({**before[0]._asdict(), "attempt": 77, "offset": 99}) + "\n"
    with index.open("a") as file:
        file.write(line[:40])
    assert attempts.entries(3) == before  # half a line says nothing yet
    with index.open("a") as file:
        file.write(line[40:])
    assert [entry.attempt for entry in attempts.entries(3)] == [*(entry.attempt for entry in before), 77]


def test_a_step_that_was_done_again_counts_as_it_was_last(run):
    attempts = Trajectories(run / "trajectories")
    assert len(attempts.entries(3)) == 12
    with Run.reopen(run) as again:
        recorded.step(again, 3, share=1.0, count=2, k=2)
    entries = attempts.entries(3)
    assert [entry.key for entry in entries] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert all(attempts.get(entry).success == entry.success for entry in entries)


def test_an_index_that_lags_behind_its_file_is_not_believed(run):
    """The step's file was replaced, and the process was killed before the index had its lines."""
    attempts = Trajectories(run / "trajectories")
    old = attempts.find(3, 2, 1)
    lines = (run / "trajectories/000003.jsonl").read_bytes().splitlines(keepends=True)
    (run / "trajectories/000003.jsonl").write_bytes(b"".join(reversed(lines)))
    found = attempts.get(old)
    assert (found.group, found.attempt) == (2, 1)


def test_a_run_cut_in_the_middle_of_its_lines_opens(run):
    for name in ("metrics.jsonl", "trajectories/index.jsonl", "trajectories/000003.jsonl"):
        data = (run / name).read_bytes()
        (run / name).write_bytes(data[:-40])
    pages = Pages(Library([run]))
    assert "Step 3" in pages.html("/run/run/step/3")
    for path in ("/", "/run/run", "/run/run/step/3/0/0", "/run/run/find", "/run/run/behaviors", "/run/run/analysis"):
        assert pages.html(path)
    last = Trajectories(run / "trajectories").entries(3)[-1]
    assert last.key == (2, 2)  # the line that was cut is the one that is missing


def test_code_in_fences_is_highlighted_where_a_lexer_is_quick():
    html = str(action("First.\n```python\nx = 1\n```then ```json\n[2]\n``` and\n```\ny = 3"))
    assert [part.partition("</pre>")[0] for part in html.split('<pre class="code">')[1:]] == [
        '<span class="n">x</span> <span class="o">=</span> <span class="mi">1</span>\n',
        '<span class="p">[</span><span class="mi">2</span><span class="p">]</span>\n',
        '<span class="n">y</span> <span class="o">=</span> <span class="mi">3</span>\n',
    ]
    assert '<p class="prose">then </p>' in html and '<p class="prose"> and</p>' in html
    for language in ("java", "console", "yaml", "ini"):
        assert str(action(f"```{language}\na <b\n```")) == '<pre class="code">a &lt;b\n</pre>', language
    for long in ("x = 1\n" * 1000, "```\n" * 2000):
        assert "<span" not in str(action(f"```python\n{long}\n```")), "one text, or many short ones"


def test_fences_that_never_open_cost_nothing():
    """In time quadratic in them, this would take an hour."""
    assert str(action("```" * 700_000)) == f'<p class="prose">{"```" * 700_000}</p>'
    assert str(action("```" * 700_000 + "\n")).startswith('<pre class="code">')


def test_a_damaged_line_costs_itself_alone(run):
    for name in ("metrics.jsonl", "trajectories/index.jsonl"):
        lines = (run / name).read_bytes().splitlines(keepends=True)
        lines[1] = b"{what?\n"
        (run / name).write_bytes(b"".join(lines))
    assert len(Trajectories(run / "trajectories").entries(1)) == 11
    assert len(RunReader(run).metrics) == 3
    assert Pages(Library([run])).html("/run/run")


def test_an_older_format_opens(run):
    """No format number, no index, no token columns, and lines that lack what was added later."""
    (run / "run.json").write_text('{"status": "finished"}')
    (run / "config.toml").write_text('name = "old"\n[env]\nname = "errands"\n')
    for part in ("trajectories", "evaluations"):
        (run / part / "index.jsonl").unlink()
        for path in (run / part).glob("*.safetensors"):
            path.unlink()
        for path in (run / part).glob("0*.jsonl"):
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            for line in lines:
                for name in ("expert", "info", "error", "first_token"):
                    del line[name]
                for turn in line["turns"]:
                    for name in ("restarts_context", "seconds", "info", "finish"):
                        del turn[name]
            path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    pages = Pages(Library([run]))
    for path in (
        "/",
        "/run/run",
        "/run/run/step/1",
        "/run/run/step/1/2",
        "/run/run/eval/3/0/1",
        "/run/run/behaviors",
        "/run/run/analysis",
    ):
        assert pages.html(path)
    assert "list_orders" in pages.html("/run/run/step/1/2/0", {"tokens": ["advantage"]})
    assert "train/cost-of-last-order/2" in pages.html("/run/run/find", {"task": ["order/2"]})


def test_a_later_format_says_so(run):
    facts = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(facts | {"format": 999}))
    assert "A later longloop wrote this run" in Pages(Library([run])).html("/run/run")


def test_search_finds_text_task_stop_and_success(run):
    attempts = Trajectories(run / "trajectories")
    everyone = [entry for step in attempts.steps() for entry in attempts.entries(step)]

    def found(text="", wanted=lambda entry: True):
        hits, more = search(attempts, text, wanted, None, 1000)
        assert more is None
        return [hit.entry for hit in hits]

    assert sorted(found()) == sorted(everyone)
    assert {entry.step for entry in found()} == {1, 2, 3} and found()[0].step == 3
    right = [attempts.get(entry).turns[1].action.startswith("Thought: I answer") for entry in everyone]
    assert 0 < sum(right) < len(right)
    assert len(found("i ANSWER with its")) == sum(right)
    assert len(found("i answer", lambda entry: entry.step == 3)) < sum(right)
    assert found("You do errands") == []  # every attempt has the system's prompt
    assert found('"first_token"') == []  # text, not the file's own words
    assert len(found("ORDER/2)")) == 12


def test_search_goes_on_where_it_stopped(run):
    attempts = Trajectories(run / "trajectories")
    whole, _ = search(attempts, "list_orders", lambda entry: True, None, 1000)
    pieces, start = [], None
    for _ in range(20):
        hits, start = search(attempts, "list_orders", lambda entry: True, start, 5)
        pieces += hits
        if start is None:
            break
    assert pieces == whole and len(whole) == 36


def test_search_finds_other_letters_and_what_came_last(tmp_path):
    task = Task("task", "train")
    unread = (Message("user", "\u0130\u0130\u0130 The KÄSE is sold out."),)
    with Run.create(recorded.settings(tmp_path / "run"), {}) as run:
        tried = recorded.attempt(task, 0, False, unread=unread, info={"output": "Traceback: éclair"})
        run.trajectories.write(1, [Group(task, (tried, recorded.attempt(task, 1, True)))])
    attempts = Trajectories(run.folder / "trajectories")

    def found(text):
        return [hit[1:] for hit in search(attempts, text, lambda entry: True, None, 10)[0]]

    for text in ("käse", "KÄSE", "Käse"):
        assert found(text) == [("\u0130\u0130\u0130 The ", "KÄSE", " is sold out.")], text
    assert found("sold OUT") == [("\u0130\u0130\u0130 The KÄSE is ", "sold out", ".")]
    assert found("traceback: É") == [("", "Traceback: é", "clair")]
    assert found("[a-z]") == [], "a text, and no pattern"


def test_search_stops_within_a_step(run, monkeypatch):
    attempts = Trajectories(run / "trajectories")
    clock = itertools.count()
    monkeypatch.setattr(searching, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    pieces, start = [], None
    while not pieces or start is not None:
        hits, start = search(attempts, "list_orders", lambda entry: True, start, 1000)
        pieces.append(hits)
    assert sum(map(len, pieces)) == 36 and len(pieces) > 10


def test_tokens_of_a_trained_run_are_colored_by_the_gap(tmp_path):
    from tests.support.helpers import train

    _, _, steps = train(tmp_path, "steps=3", "algo.k=16", "algo.minibatch=0")
    run = tmp_path / "runs/test"
    step = next(line["step"] for line in steps if line.get("trained_tokens"))
    attempts = Trajectories(run / "trajectories")
    columns = attempts.columns(step, "mask", "logprobs", "learner", "advantages")
    trained = (columns["mask"] == 1) & (columns["advantages"] != 0)
    assert trained.any()
    assert abs(columns["learner"] - columns["logprobs"])[trained].max() < 1e-4
    group, attempt = next(key for key, advantage in attempts.advantages(step).items() if advantage)
    html = Pages(Library([run])).html(f"/run/test/step/{step}/{group}/{attempt}", {"tokens": ["gap"]})
    assert "by the gap between sampler and learner" in html and '<pre class="tokens">' in html


def test_killed_is_told_from_running(tmp_path):
    record = RunReader(tmp_path / "run")
    with Run.create(recorded.settings(tmp_path / "run"), {}):
        assert record.status == "running"
    assert record.status == "finished"
    facts = record.facts | {"status": "running"}
    (tmp_path / "run/run.json").write_text(json.dumps(facts))
    assert record.status == "killed"


def test_runs_of_one_name_are_told_apart(tmp_path):
    for parent in ("a", "b"):
        recorded.small(tmp_path / parent / "seed-0", steps=1)
    library = Library([tmp_path])
    records = library.runs
    assert {name: record.folder for name, record in records.items()} == {
        f"{parent}~seed-0": tmp_path / parent / "seed-0" for parent in ("a", "b")
    }
    recorded.small(tmp_path / "c", steps=1)
    assert sorted(library.runs) == ["a~seed-0", "b~seed-0", "c"]
    assert library.runs["a~seed-0"] is records["a~seed-0"]
    assert sorted(Library([tmp_path / "b", tmp_path]).runs) == ["a~seed-0", "b~seed-0", "c"], "in any order"


def test_a_run_that_was_deleted_and_begun_again_is_another(tmp_path):
    pages = Pages(Library([recorded.small(tmp_path / "runs/run").parent]))
    assert all(pages.html(f"/run/run/{page}") for page in ("analysis", "step/3", "step/3/0/0", "find"))
    shutil.rmtree(tmp_path / "runs/run")
    again = recorded.small(tmp_path / "runs/run", steps=4, env={"name": "guess"})
    note = json.loads((again / "run.json").read_text()) | {
        "started": "2030-01-01T00:00:00+0000",
        "analysis": {"patterns": {"newest": {"said": "newest order"}}},
    }
    (again / "run.json").write_text(json.dumps(note))
    fresh = Pages(Library([again]))
    assert "newest / attempt" in fresh.html("/run/run/analysis")
    for page in ("analysis", "step/1", "step/4", "step/3/0/0", "find"):
        assert pages.html(f"/run/run/{page}") == fresh.html(f"/run/run/{page}"), page


def test_steps_that_are_gone_are_counted_no_more(run):
    pages = Pages(Library([run]))
    assert "Held-out success" in pages.html("/run/run/analysis")
    for path in (run / "evaluations").glob("0*.jsonl"):
        path.unlink()
    assert "Held-out success" not in pages.html("/run/run/analysis")


def test_an_index_in_the_place_of_another_is_read_from_its_beginning(run, tmp_path):
    attempts = Trajectories(run / "trajectories")
    assert len(attempts.entries(1)) == 12
    with Run.create(recorded.settings(tmp_path / "other"), {}) as other:
        for number in range(1, 13):
            recorded.step(other, number, count=2, k=2)
    for path in other.trajectories.folder.iterdir():
        path.replace(run / "trajectories" / path.name)
    assert len(attempts.entries(1)) == 4 and len(attempts.entries(12)) == 4
