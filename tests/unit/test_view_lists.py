"""The lists of the viewer: runs sorted, filtered and tagged, the task's text, attempts that are equal; its curves."""

import errno
import json
import os
import re
import threading
from html import unescape
from pathlib import Path

import pytest

from longloop.analysis.run import analyze
from longloop.evaluation import summarize
from longloop.store.run import Run
from longloop.store.run_reader import RunReader
from longloop.store.tags import MOST, read_tags, set_tag
from longloop.training import summarize as summary
from longloop.types import Group, StopReason, Task, UserError
from longloop.viewer.charts import Chart, Line, powers, styled
from longloop.viewer.curves import alike, of_runs
from longloop.viewer.library import Library
from longloop.viewer.pages import HERE, Pages
from tests.support import recorded
from tests.support.viewing import ask, served


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for name, steps, algo in (("beta", 2, "loop"), ("alpha", 3, "grpo"), ("gamma", 1, "loop")):
        recorded.small(tmp_path / "runs" / name, steps=steps, algo={"name": algo})
    return tmp_path / "runs"


def listed(html: str) -> list[str]:
    return re.findall(r'<td><a href="/run/([^"/]+)"', html)


def test_runs_are_sorted(runs: Path) -> None:
    pages = Pages(Library([runs]))
    assert listed(pages.html("/", {"sort": ["run"]})) == ["alpha", "beta", "gamma"]
    assert listed(pages.html("/", {"sort": ["run"], "order": ["down"]})) == ["gamma", "beta", "alpha"]
    assert listed(pages.html("/", {"sort": ["step"]})) == ["alpha", "beta", "gamma"]
    assert listed(pages.html("/", {"sort": ["step"], "order": ["up"]})) == ["gamma", "beta", "alpha"]
    with Run.create(recorded.settings(runs / "empty"), {}):
        for order in ("up", "down"):
            assert listed(pages.html("/", {"sort": ["held_out"], "order": [order]}))[-1] == "empty"
    assert sorted(listed(pages.html("/", {"sort": ["nonsense"]}))) == ["alpha", "beta", "empty", "gamma"]


def test_runs_are_filtered(runs: Path) -> None:
    pages = Pages(Library([runs]))
    set_tag(runs / "beta", "the baseline", True)
    set_tag(runs / "gamma", "loop", True)
    for text, found in (
        ("LOOP", ["beta", "gamma"]),
        ("loop beta", ["beta"]),
        ("#loop", ["gamma"]),
        ("#the baseline", ["beta"]),
        ("baseline", ["beta"]),
        ("nothing like it", []),
    ):
        assert sorted(listed(pages.html("/", {"text": [text]}))) == found, text
    assert "No run is like that." in pages.html("/", {"text": ["nothing like it"]})


def test_tags_have_a_file_of_their_own(runs: Path) -> None:
    assert read_tags(runs / "beta") == []
    set_tag(runs / "beta", "  first   try ", True)
    set_tag(runs / "beta", "a", True)
    assert json.loads((runs / "beta/tags.json").read_text()) == ["a", "first try"] == read_tags(runs / "beta")
    assert set_tag(runs / "beta", "a", False) == ["first try"]
    for wrong in ("", " ", "x" * 41, "bell\x07"):
        with pytest.raises(UserError, match="1 to 40"):
            set_tag(runs / "beta", wrong, True)
    for number in range(MOST - 1):
        set_tag(runs / "beta", f"t{number}", True)
    with pytest.raises(UserError, match="at most 20"):
        set_tag(runs / "beta", "one more", True)
    for broken in ("{", "3", '[1, {"x": 2}, "kept"]', '"text"'):
        (runs / "beta/tags.json").write_text(broken)
        assert read_tags(runs / "beta") == (["kept"] if "kept" in broken else [])
        assert Pages(Library([runs])).html("/run/beta")
    with Run.reopen(runs / "beta") as again:
        recorded.step(again, 3)
    (runs / "gamma/tags.json.partial").mkdir()
    with pytest.raises(UserError, match=r"could not be kept: .*tags\.json"):
        set_tag(runs / "gamma", "a", True)


def test_a_folder_of_another_user_costs_no_page(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pages, status = Pages(Library([runs])), Path.stat
    (runs / "theirs").mkdir()

    def stat(path: Path, **options: bool) -> os.stat_result:
        if path.parent == runs / "theirs":
            raise PermissionError(errno.EACCES, "Permission denied")
        return status(path, **options)

    monkeypatch.setattr(Path, "stat", stat)
    assert sorted(listed(pages.html("/"))) == ["alpha", "beta", "gamma"]


@pytest.mark.parametrize("model", ['model = "x"', "model = 3", "algo = []", "model = 2020-01-01"])
def test_an_odd_config_costs_no_page(runs: Path, model: str) -> None:
    (runs / "beta/config.toml").write_text(f'name = "beta"\n{model}\n')
    pages = Pages(Library([runs]))
    assert sorted(listed(pages.html("/"))) == ["alpha", "beta", "gamma"]
    assert pages.html("/run/beta") and pages.html("/curves", {"run": ["alpha", "beta"]})
    assert pages.html("/run/beta/step/1/0/0", {"tokens": ["logprob"]})
    change = {"step": 1, "time": "", "changed": {"model.path": ["x", "y"]}}
    (runs / "beta/changes.jsonl").write_text(json.dumps(change) + "\n")
    assert pages.html("/run/beta")


@pytest.mark.parametrize("name", ["success", "success_interval", "reward", "floor_success", "tasks"])
def test_an_evaluation_without_a_number_costs_no_page(runs: Path, name: str) -> None:
    """JSON has no NaN: what is not finite is stored as null."""
    found = recorded.evaluation(0.5) | {name: [None, 0.5] if name == "success_interval" else None}
    with Run.reopen(runs / "beta") as again:
        again.metrics.write({"step": 2, "eval": found})
    pages = Pages(Library([runs]))
    assert pages.html("/") and pages.html("/run/beta") and pages.html("/curves", {"run": ["alpha", "beta"]})


def test_odd_stops_cost_the_list_nothing(runs: Path) -> None:
    with Run.reopen(runs / "beta") as again:
        again.metrics.write(recorded.metrics(2, 0.5, 8, 2) | {"stops": 3})
    assert sorted(listed(Pages(Library([runs])).html("/"))) == ["alpha", "beta", "gamma"]


def test_only_the_viewers_own_pages_can_tag(runs: Path) -> None:
    with served(runs) as port:
        own = {"Host": f"127.0.0.1:{port}", "Origin": f"http://127.0.0.1:{port}", "Content-Type": "application/json"}
        tag = json.dumps({"tag": "mine", "on": True}).encode()

        def post(path: str = "/run/beta/tags", body: bytes = tag, **changes: str) -> int:
            headers = {name: value for name, value in (own | changes).items() if value}
            return ask(port, path, body, **headers)[0]

        assert post(Origin="http://evil.example") == 403
        assert post(Origin=f"http://127.0.0.1:{port + 1}") == 403, "another server of this machine"
        assert post(Origin="null") == 403 and post(Origin="") == 403
        assert post(Host="evil.example", Origin="http://evil.example") == 400
        for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
            assert post(**{"Content-Type": kind}) == 415
        assert post(body=b"{") == post(body=b"[]") == post(body=b'{"tag": 3, "on": true}') == 400
        assert post(body=b" " * 5000) == 413
        assert post("/run/nobody/tags") == post("/run/../tags") == 404
        assert post("/run/beta") == post("/") == post("/run/..%2fbeta/tags") == 405
        assert not (runs / "beta/tags.json").exists()
        assert post() == 200 and read_tags(runs / "beta") == ["mine"]
        assert "#mine" in ask(port, "/run/beta")[1] and "#mine" in ask(port, "/")[1]
        assert post(body=b'{"tag": "mine", "on": false}') == 200 and read_tags(runs / "beta") == []


def test_crafted_addresses_and_failures_are_answered(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many = "9" * 5000
    with served(runs) as port:
        assert ask(port, f"/run/beta/find?from={many}.0")[0] == 200
        assert ask(port, f"/compare?left=beta:step/{many}/0/0")[0] == 404
        monkeypatch.setattr(Pages, "html", lambda *_: 1 / 0)
        status, body, headers = ask(port, "/run/beta")
        assert status == 500 and body == "Internal Server Error"
        assert "default-src 'none'" in headers["content-security-policy"] and headers["x-content-type-options"]
        assert "default-src 'none'" in ask(port, "/", Host="evil.example")[2]["content-security-policy"]


def test_lists_have_the_tasks_text(runs: Path) -> None:
    pages = Pages(Library([runs]))
    asked = "How much was my last order? (train/cost-of-last-order/1)"
    for path in ("/run/alpha/step/2", "/run/alpha/eval/0", "/run/alpha/find"):
        assert asked in pages.html(path), path


def test_equal_attempts_are_shown_once(tmp_path: Path) -> None:
    run = recorded.small(tmp_path / "run", steps=1)
    task = Task("task", "train")
    tried = [recorded.attempt(task, number, number % 3 == 0) for number in range(7)]
    with Run.reopen(run) as again:
        again.trajectories.write(2, [Group(task, tuple(tried))])
    html = Pages(Library([run])).html("/run/run/step/2/0")
    assert html.count("<article>") == 2
    assert re.findall(r'<span class="tag times">.(\d)', html) == ["3", "4"]
    assert "7 attempts, 2 of them different" in html
    assert all(f'href="/run/run/step/2/0/{number}"' in html for number in range(7))
    assert "<table" not in html.partition("<main")[2], "columns wrap"


def tile(html: str, name: str) -> str:
    return re.findall(f"<dt>{name}</dt><dd>(.*?)</dd>", html)[0]


def test_side_rollouts_are_not_abandoned(tmp_path: Path) -> None:
    run = recorded.small(tmp_path / "run", steps=1)
    task = Task("task", "train")
    tried = [recorded.attempt(task, number, number < 2, side=number > 2) for number in range(5)]
    lost = recorded.attempt(task, 5, False, StopReason.CANCELLED)
    with Run.reopen(run) as again:
        again.trajectories.write(2, [Group(task, (*tried, lost))])
    pages = Pages(Library([run]))
    html = pages.html("/run/run/step/2")
    assert [tile(html, name) for name in ("attempts", "without a score", "side rollouts")] == ["4", "1", "2"]
    assert html.count('<a class="dot side"') == 2 and html.count('<a class="dot lost"') == 1
    assert "3 finished" in html and "1 cancelled" in html
    assert "side rollout" not in pages.html("/run/run/step/1")
    assert ">side rollout</span>" in pages.html("/run/run/step/2/0/4")
    assert "finished</span>" not in pages.html("/run/run/step/2/0")
    assert analyze(run).training[2].stops == {"finished": 3, "cancelled": 1}


def test_a_step_has_the_success_that_the_run_has_for_it(tmp_path: Path) -> None:
    """An expert's attempts are none of the policy's; an evaluation is a mean over tasks."""
    task, other = Task("task", "train"), Task("other", "train")
    own = [recorded.attempt(task, number, False) for number in range(3)]
    group = Group(task, (*own, recorded.attempt(task, 3, True, expert=True)))
    tried = Group(task, (own[0],)), Group(other, tuple(recorded.attempt(other, n, True) for n in range(3)))
    with Run.create(recorded.settings(tmp_path / "run"), {}) as run:
        for step in (1, 2):
            run.trajectories.write(step, [group])
        run.evaluations.write(1, tried)
        found = {"eval": summarize(tried, 3, (0.0, 0.0)).to_json()}
        run.metrics.write(recorded.metrics(1, 1.0, 1, 1) | summary([group], [], []) | found)
    pages = Pages(Library([run.folder]))
    assert 'title="step 1: success 0%"' in pages.html("/run/run")
    assert [tile(pages.html("/run/run/step/1"), name) for name in ("success", "reward")] == ["0%", "0"]
    assert tile(pages.html("/run/run/step/2"), "success") == "25%", "without a line of metrics all that was scored"
    assert [tile(pages.html("/run/run/eval/1"), name) for name in ("success", "reward")] == ["50%", "0.5"]


def test_two_typefaces() -> None:
    style = (HERE / "static/view.css").read_text()
    stacks = re.findall(r"(--\w+): [^;]*(?:sans-serif|monospace);", style)
    assert stacks == ["--words", "--code"]
    assert len(re.findall("sans-serif|monospace", style.replace("ui-monospace", ""))) == 2
    assert set(re.findall(r"font(?:-family)?:[^;]*?(--\w+|inherit)", style)) == {"--words", "--code", "inherit"}


def drawn(chart: Chart) -> str:
    return unescape(chart.__html__())


def test_curves_are_smoothed() -> None:
    points = [(float(step), float(step % 2)) for step in range(100)]
    chart = Chart("Loss", [Line("loss", points)])
    paths = {text: re.findall(r'<path class="([^"]*)" d="([^"]*)"', drawn(styled([chart], text, False)[0]))
             for text in ("", "0", "10", "50")}  # fmt: skip
    assert [name for name, _ in paths["0"]] == ["line c0"], "as it was measured"
    for text in ("", "10", "50"):
        assert [name for name, _ in paths[text]] == ["line c0 faint", "line c0"]

    def unrest(path: str) -> float:
        heights = [float(point.split(" ")[1]) for point in path[1:].split("L")]
        return max(heights) - min(heights)

    assert unrest(paths["0"][0][1]) > 4 * unrest(paths["10"][1][1]) > 8 * unrest(paths["50"][1][1]) > 0


def test_a_log_scale() -> None:
    points = [(1.0, 0.001), (2.0, 0.01), (3.0, 0.0), (4.0, 0.1)]
    chart, negative = styled([Chart("KL", [Line("kl", points)]), Chart("Loss", [Line("l", [(1.0, -1.0)])])], "0", True)
    (path,) = re.findall(r'<path class="line c0" d="M([^"]*)"', drawn(chart))
    heights = [float(point.split(" ")[1]) for point in path.split("L")]
    assert len(heights) == 3, "0 has no logarithm"
    assert heights[0] - heights[1] == pytest.approx(heights[1] - heights[2], abs=0.11)
    assert not negative.log and "stays linear" in negative.note and drawn(negative)
    assert powers(0.001, 0.1) == [0.001, 0.01, 0.1] and powers(1, 10) == [1, 2, 5, 10]
    assert 2 <= len(powers(1e-12, 1e3)) <= 6 and len(powers(3.1, 3.3)) >= 2


def test_smoothing_and_scale_are_in_the_address(runs: Path) -> None:
    pages = Pages(Library([runs]))
    plain = pages.html("/run/alpha")
    assert pages.html("/run/alpha", {"smooth": ["5"]}) != plain != pages.html("/run/alpha", {"log": ["1"]})
    assert pages.html("/run/alpha", {"smooth": ["nonsense"]}) == plain
    chosen = {"run": ["alpha", "beta"], "log": ["1"], "smooth": ["5"]}
    html = pages.html("/curves", chosen)
    assert all(f'<input type="hidden" name="run" value="{name}">' in html for name in ("alpha", "beta"))
    assert '<option value="5" selected>' in html and 'name="log" value="1" checked' in html


def test_seeds_of_a_method_are_a_mean_at_the_steps_that_all_have(tmp_path: Path) -> None:
    def made(name: str, seed: int, steps: int = 2, **facts: object) -> RunReader:
        path = f"runs/start-{seed}" if facts else "novice"
        with Run.create(recorded.settings(tmp_path / name, seed=seed, model={"path": path}), facts) as run:
            for step in range(1, steps + 1):
                run.metrics.write(recorded.metrics(step, 0.25 + 0.5 * seed, 8, 2))
        return RunReader(run.folder)

    def named(*runs: RunReader) -> dict[str, list[str]]:
        return {name: [run.name for run in members] for name, members in alike(runs).items()}

    own = [made("loop-0", 0), made("loop-1", 1, steps=5)]
    again, begun = made("loop-again", 0), made("loop-2", 2, steps=0)
    assert named(*own) == {"loop, 2 seeds": ["loop-0", "loop-1"]}
    assert named(*own, again, begun) == {
        "loop, 2 seeds": ["loop-0", "loop-1"],
        "loop-again": ["loop-again"],
        "loop-2": ["loop-2"],
    }
    compared = [
        made(f"{method}-{seed}", seed, comparison={"name": "c", "method": method, "seed": seed, "start": "sft"})
        for method in ("grpo", "rloo")
        for seed in (0, 1)
    ]
    assert named(*compared) == {"grpo, 2 seeds": ["grpo-0", "grpo-1"], "rloo, 2 seeds": ["rloo-0", "rloo-1"]}
    (chart,) = (chart for chart in of_runs(own) if chart.title == "Success, training")
    (line,) = chart.lines
    assert line.points == [(1, 0.5), (2, 0.5)] and line.band == [(1, 0.25, 0.75), (2, 0.25, 0.75)]


def test_runs_appear_while_pages_are_made(tmp_path: Path) -> None:
    """Pages are made in several threads."""
    recorded.small(tmp_path / "runs" / "first", steps=1)
    library, faults = Library([tmp_path / "runs"]), list[Exception]()
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            try:
                assert "first" in library.runs
            except Exception as error:
                faults.append(error)

    threads = [threading.Thread(target=look, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(150):
        folder = tmp_path / "runs" / f"later-{number}"
        folder.mkdir()
        (folder / "run.json").write_bytes((tmp_path / "runs" / "first" / "run.json").read_bytes())
    done.set()
    for thread in threads:
        thread.join()
    assert not faults and len(library.runs) == 151
