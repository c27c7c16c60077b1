"""The viewer in a real browser: opening, filtering, arrow keys, a run that grows, content that wants to break out."""

import json
import re
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from longloop.store.run import Run
from longloop.types import Group, Message, StopReason, Task
from longloop.viewer.pages import Pages
from tests.support import recorded
from tests.support.chromium import CHROMIUM, Browser
from tests.support.viewing import served

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on the PATH: `apt-get install chromium`")

ROOT = Path(__file__).parents[2]
EVIL = (
    "<script>window.hacked=1</script><img src=x onerror=window.hacked=1>\"'><svg onload=window.hacked=1>{{7*7}}</pre>"
)

WRITER = """
import sys
from pathlib import Path
from longloop.store.run import Run
from tests.support import recorded
folder = Path(sys.argv[1])
with Run.create(recorded.settings(folder, steps=9), {}) as run:
    for line in sys.stdin:
        recorded.step(run, int(line), share=int(line) / 9)
        print("written", flush=True)
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture(autouse=True)
def no_complaints(browser):
    """But for a page that asks for news when its server has just been ended."""
    browser.complaints.clear()
    yield
    assert [said for said in browser.complaints if "/version" not in said] == []


def own(browser: Browser, port: int) -> bool:
    """Whether all that the page loaded came from its own server."""
    loaded = browser.run("performance.getEntriesByType('resource').map((entry) => entry.name)")
    return bool(loaded) and all(name.startswith(f"http://127.0.0.1:{port}/") for name in loaded)


def test_a_run_is_opened_step_by_step_down_to_an_attempt(browser, tmp_path):
    recorded.small(tmp_path / "runs/quickstart")
    with served(tmp_path / "runs") as port:
        browser.open(f"http://127.0.0.1:{port}/")
        assert "quickstart" in browser.text() and "finished" in browser.text()
        assert browser.run("document.querySelectorAll('svg.spark').length") == 1
        browser.run("document.querySelector('td a').click()")
        browser.until("location.pathname === '/run/quickstart' && document.querySelectorAll('svg.chart').length > 8")
        assert "No clear change in held-out success: 25% [20%, 80%] before training, 50% [20%, 80%]" in browser.text()
        assert own(browser, port)
        browser.run("document.querySelector('svg.chart').dispatchEvent(new PointerEvent('pointermove', "
                    "{bubbles: true, clientX: 5000}))")  # fmt: skip
        assert "step 3" in browser.text(".reading") and "75%" in browser.text(".reading")
        browser.run("document.querySelectorAll('.ribbon a')[1].click()")
        browser.until(
            "location.pathname.endsWith('/step/2') && document.querySelectorAll('.groups tbody tr').length === 3"
        )
        browser.run("[...document.querySelectorAll('.pills a')].find((a) => a.innerText === 'reward spread').click()")
        browser.until("location.search === '?sort=spread' && document.readyState === 'complete'")
        spreads = browser.run(
            "[...document.querySelectorAll('.groups tbody tr')].map((row) => +row.cells[4].innerText)"
        )
        assert spreads == sorted(spreads, reverse=True)
        browser.run("document.querySelector('.groups .task a').click()")
        browser.until("document.querySelectorAll('.columns header a').length === 4")
        browser.run("document.querySelector('.columns header a').click()")
        browser.until("document.querySelectorAll('.turn').length === 2")
        assert browser.run("document.querySelector('.code .nb').innerText") == "print"
        assert not browser.run("document.querySelector('.system details').open")  # the prompt is folded
        assert "the answer is 401.96" in browser.text("aside")
        browser.run("[...document.querySelectorAll('aside a')].find((a) => a.innerText === 'by log-prob').click()")
        browser.until("document.querySelectorAll('.tokens span').length === 24")
        assert browser.run("document.querySelector('.tokens span').title") == "-0.25"
        assert browser.run("document.querySelector('.tokens span').className") == "tm1"


def test_the_analysis_leads_to_the_attempts_that_failed(browser, tmp_path):
    recorded.small(tmp_path / "runs/quickstart")
    with served(tmp_path / "runs") as port:
        browser.open(f"http://127.0.0.1:{port}/run/quickstart")
        browser.run("document.querySelector('.lead a').click()")
        browser.until("location.pathname === '/run/quickstart/analysis' && document.readyState === 'complete'")
        browser.until("document.querySelectorAll('.counted').length > 3 && !document.querySelector('.lead .tag')")
        assert "Held-out success: " in browser.text(".lead") and own(browser, port)
        headings = browser.run("[...document.querySelectorAll('h2')].map((heading) => heading.innerText)")
        assert headings == ["Success", "Behaviors", "Stop reasons", "Failures", "Reward without success"]
        assert browser.run("document.querySelectorAll('svg.chart').length") > 8
        rows = "[...document.querySelectorAll('.counted tbody tr')]"
        assert browser.run(f"{rows}.some((row) => row.innerText.startsWith('the answer is #'))")
        browser.run("document.querySelector('.counted td a').click()")
        browser.until(
            "location.pathname.startsWith('/run/quickstart/eval/3/') && document.querySelectorAll('.turn').length === 2"
        )
        assert "failure" in browser.text("main")


def test_arrows_go_through_the_attempts_of_a_step(browser, tmp_path):
    recorded.small(tmp_path / "run", steps=1)
    with served(tmp_path / "run") as port:
        browser.open(f"http://127.0.0.1:{port}/run/run/step/1/0/2")
        for key, path in (("ArrowRight", "0/3"), ("ArrowRight", "1/0"), ("ArrowLeft", "0/3"), ("u", "0")):
            browser.press(key)
            browser.until(f"location.pathname === '/run/run/step/1/{path}' && document.readyState === 'complete'")
        browser.press("u")
        browser.until("location.pathname === '/run/run/step/1' && document.readyState === 'complete'")
        browser.press("/")
        browser.type("last order? (train/cost-of-last-order/2)")
        browser.press("ArrowLeft")  # moves the cursor now, not the page
        browser.run("document.activeElement.form.requestSubmit()")
        browser.until("location.pathname.endsWith('/find') && document.readyState === 'complete'")
        assert browser.run("document.querySelectorAll('.hits tbody tr').length") == 4


def test_attempts_are_filtered(browser, tmp_path):
    run = recorded.small(tmp_path / "run", steps=2)
    task = Task("a-rare-task", "train")
    tried = [recorded.attempt(task, 0, True), recorded.attempt(task, 1, False, StopReason.MAX_TURNS)]
    tried.append(recorded.attempt(task, 2, False, StopReason.ENV_ERROR, error="The database is on fire."))
    with Run.reopen(run) as again:
        again.trajectories.write(3, [Group(task, tuple(tried))])
    with served(run) as port:

        def filtered(**fields: str) -> list[str]:
            browser.open(f"http://127.0.0.1:{port}/run/run/find")
            for name, value in fields.items():
                browser.run(f"document.querySelector('.filters [name={name}]').value = {json.dumps(value)}")
            browser.run("document.querySelector('.filters').requestSubmit()")
            browser.until("location.search.includes('success=') && document.readyState === 'complete'")
            rows = "[...document.querySelectorAll('.hits tbody tr')]"
            return browser.run(f"{rows}.map((row) => row.cells[0].innerText + ':' + row.cells[1].innerText)")

        assert filtered(task="rare") == ["3:0/0", "3:0/1", "3:0/2"]
        assert filtered(task="rare", success="no") == ["3:0/1"]
        assert filtered(stop="env_error") == ["3:0/2"]
        assert filtered(text="DATABASE is on fire") == ["3:0/2"]
        assert filtered(text="nobody said this") == []
        assert "No attempt is like that" in browser.text()


def test_a_run_that_is_training_is_followed(browser, tmp_path):
    folder = tmp_path / "runs/live"
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    try:

        def write(step: int) -> None:
            writer.stdin.write(f"{step}\n")
            writer.stdin.flush()
            assert writer.stdout.readline() == "written\n"

        write(1)
        with served(tmp_path / "runs") as port:
            browser.open(f"http://127.0.0.1:{port}/run/live")
            assert browser.run("document.querySelectorAll('.ribbon a').length") == 1
            browser.until("!document.querySelector('.live').hidden")
            browser.run("window.unchanged = true; document.querySelector('#config').open = false")
            write(2)
            browser.until("document.querySelectorAll('.ribbon a').length === 2")
            write(3)
            browser.until("document.querySelectorAll('.ribbon a').length === 3")
            assert browser.run("window.unchanged") and not browser.run("document.querySelector('#config').open")
            assert "running" in browser.text(".title") and "3 / 9" in browser.text(".tiles")
            writer.send_signal(signal.SIGKILL)
            writer.wait()
            browser.until("document.querySelector('.title').innerText.includes('killed')")
            assert f"longloop train --resume {folder}" in browser.text()
            browser.until("document.querySelector('.live').hidden")
    finally:
        writer.kill()
        writer.wait()
        writer.stdin.close()
        writer.stdout.close()


def test_a_page_that_fails_once_is_still_followed(browser, tmp_path, monkeypatch):
    folder = recorded.small(tmp_path / "runs/run")
    failed = threading.Event()

    def fail(*_: object) -> str:
        failed.set()
        raise RuntimeError("once")

    with served(tmp_path / "runs") as port, Run.reopen(folder) as run:
        browser.open(f"http://127.0.0.1:{port}/run/run")
        with monkeypatch.context() as patched:
            patched.setattr(Pages, "html", fail)
            recorded.step(run, 4)
            assert failed.wait(60)
        assert "null" not in browser.text() and "held out" in browser.text()
        browser.until("document.querySelectorAll('.ribbon a').length === 4")
    browser.complaints.clear()


def choose(browser: Browser, selector: str, value: str) -> None:
    """Set a field as a person does."""
    browser.run(f"(() => {{ const field = document.querySelector({json.dumps(selector)}); "
                f"if (field.type === 'checkbox') field.checked = {value}; else field.value = {value}; "
                "field.dispatchEvent(new Event('input', {bubbles: true})); })()")  # fmt: skip


def test_curves_are_drawn_as_one_likes(browser, tmp_path):
    recorded.small(tmp_path / "run", steps=3)
    with served(tmp_path / "run") as port:
        browser.open(f"http://127.0.0.1:{port}/run/run")
        assert browser.run("document.querySelectorAll('.faint').length") == 0
        browser.run("document.querySelector('#config').open = false")
        choose(browser, "select[name=smooth]", "'5'")
        browser.until("document.querySelectorAll('.faint').length > 5 && location.search === '?smooth=5'")
        assert not browser.run("document.querySelector('#config').open"), "the rest of the page stays as it was"
        choose(browser, "input[name=log]", "true")
        browser.until("document.querySelector('input[name=log]').checked && location.search === '?smooth=5&log=1'")
        browser.open(f"http://127.0.0.1:{port}/run/run?smooth=5")
        assert browser.run("document.querySelector('select[name=smooth]').value") == "5", "the address has it"


def test_runs_are_filtered_sorted_and_tagged(browser, tmp_path):
    for name in ("apple", "pear"):
        recorded.small(tmp_path / "runs" / name, steps=1)
    shown = "JSON.stringify([...document.querySelectorAll('.runs tbody b')].map((one) => one.innerText))"
    with served(tmp_path / "runs") as port:
        browser.open(f"http://127.0.0.1:{port}/?sort=run&order=down")
        assert browser.run(shown) == '["pear","apple"]'
        browser.run("document.querySelector('.filters input[type=search]').focus()")
        browser.type("app")
        browser.until(f"{shown} === '[\"apple\"]'")
        assert browser.run("document.activeElement.value") == "app", "one can go on typing"
        browser.open(f"http://127.0.0.1:{port}/run/pear")
        browser.run("document.querySelector('.tags input').focus()")
        browser.type("to keep")
        browser.run("document.querySelector('.tags form').requestSubmit()")
        browser.until("document.querySelector('.tags .tag')?.innerText.includes('#to keep')")
        assert json.loads((tmp_path / "runs/pear/tags.json").read_text()) == ["to keep"]
        browser.run("document.querySelector('.tags .tag a').click()")
        browser.until(f"location.search === '?text=%23to+keep' && {shown} === '[\"pear\"]'")
        browser.open(f"http://127.0.0.1:{port}/run/pear")
        browser.run("document.querySelector('.tags button').click()")
        browser.until("!document.querySelector('.tags .tag')")
        assert json.loads((tmp_path / "runs/pear/tags.json").read_text()) == []


def test_a_narrow_window_has_all_of_the_menu_and_no_page_runs_off_the_edge(browser, tmp_path):
    name = "a-run-with-a-rather-long-name-2026-11-17"
    recorded.small(tmp_path / name, steps=2)
    with served(tmp_path / name) as port:
        try:
            for width in (400, 1280):
                browser.call(
                    "Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False
                )
                for page in ("", "/analysis", "/step/1", "/step/1/0", "/step/1/0/0", "/find"):
                    browser.open(f"http://127.0.0.1:{port}/run/{name}{page}")
                    assert browser.run("document.documentElement.scrollWidth") <= width, (width, page)
                    cut = (
                        "[...document.querySelectorAll('nav a')].filter((link) => link.scrollWidth > link.clientWidth)"
                    )
                    assert browser.run(f"{cut}.length") == 0, (width, page)
        finally:
            browser.call("Emulation.clearDeviceMetricsOverride")
        browser.open(f"http://127.0.0.1:{port}/run/{name}/step/1/0/0")
        said = "[...document.querySelectorAll('.message pre, .message .prose')]"
        assert len(set(browser.run(f"{said}.map((one) => getComputedStyle(one).fontFamily)"))) == 1, (
            "one typeface for what was said and what was heard"
        )


def hostile(folder: Path) -> Path:
    """A run that has mark-up wherever a model, an environment or a user can put text."""
    task = Task(f"task {EVIL}\ud800", EVIL, {"data": EVIL}, f"scenario {EVIL}")
    evil = recorded.attempt(
        task, 0, False, StopReason.ENV_ERROR, error=EVIL, info={"tests": [{"name": EVIL, "passed": False}], EVIL: EVIL}
    )
    said = [
        f"Thought: {EVIL}\n```{EVIL}\n{EVIL}\n```\n{EVIL}",
        f"```python\nx = '{EVIL}'\n# {EVIL}\n```",
        "```html\n" + EVIL,
    ]
    heard = (Message("system", EVIL), Message(EVIL, EVIL), Message("user", EVIL * 20 + "\ud800"))
    turns = tuple(replace(evil.turns[0], action=Message("assistant", text), context=heard) for text in said)
    evil = replace(evil, turns=turns)
    with Run.create(recorded.settings(folder, env={"name": EVIL}), {"command": EVIL, "machine": EVIL}) as run:
        run.trajectories.write(1, [Group(task, (evil, replace(evil, attempt=1)))])
        failing = tuple(replace(turn, context=(Message("user", f"Error: {EVIL}"),)) for turn in turns)
        scored = [replace(evil, task=Task(f"{EVIL}{n}", EVIL, {"apps": [EVIL]}, f"{n % 2}{EVIL}"), turns=failing,
                          stop=StopReason.FINISHED) for n in range(3)]  # fmt: skip
        run.trajectories.write(2, [Group(one.task, (one,)) for one in scored])
        run.metrics.write(recorded.metrics(1, 0.5, 2, 1) | {"guard": EVIL})
    return folder


def test_hostile_content_is_shown_as_text(browser, tmp_path):
    hostile(tmp_path / "runs" / "<img src=x onerror=hacked=1>")
    name = "%3Cimg%20src%3Dx%20onerror%3Dhacked%3D1%3E"
    left = f"{name}:step/1/0/0"
    with served(tmp_path / "runs") as port:
        paths = ["/", f"/run/{name}", f"/run/{name}/step/1", f"/run/{name}/step/1/0", f"/run/{name}/step/1/0/0"]
        paths += [
            f"/run/{name}/find?text=%3Cscript%3E&task=%3Cscript",
            f"/run/{name}/analysis",
            f"/run/{name}/behaviors",
            f"/curves?run={name}",
        ]
        paths += [
            f"/compare?left={left}",
            f"/compare?left={left}&right={left[:-1]}1",
            f"/run/{name}/step/1/0/0?tokens=logprob",
        ]
        for path in paths:
            browser.open(f"http://127.0.0.1:{port}{path}")
            assert browser.run("window.hacked === undefined"), path
            assert browser.run("document.scripts.length") == 1, path
            assert (
                browser.run("document.querySelectorAll('img, main iframe, [onload], [onerror], style').length") == 0
            ), path
            assert own(browser, port), path
        browser.open(f"http://127.0.0.1:{port}/run/{name}/analysis")
        seen = browser.text()
        assert seen.count("<script>window.hacked=1</script>") == 2, "the scenarios"
        assert seen.count("<script>window.hacked=#</script>") == 2, "a test and an error, without their numbers"
        browser.open(f"http://127.0.0.1:{port}/run/{name}/step/1/0/0")
        browser.run("document.querySelectorAll('details').forEach((one) => { one.open = true })")
        assert browser.text().count("<script>window.hacked=1</script>") > 20
        assert "{{7*7}}" in browser.text() and "window.hacked=1>" in browser.text("h1")


def test_the_html_export_opens_without_a_server(browser, tmp_path):
    from longloop.viewer.html_export import write
    from longloop.viewer.library import Library

    recorded.small(tmp_path / "runs/quickstart")
    hostile(tmp_path / "runs/hostile")
    pages, _ = write(Library([tmp_path / "runs"]), tmp_path / "runs.html")
    assert pages > 60
    browser.open((tmp_path / "runs.html").as_uri())
    shown = "[...document.querySelectorAll('.page')].filter((page) => page.offsetParent).map((page) => page.id)"
    assert browser.run(shown) == ["/"]
    browser.press("ArrowRight")
    assert browser.run(f"location.hash === '' && JSON.stringify({shown}) === '[\"/\"]'"), "no page comes after the list"
    browser.run("document.querySelector('td a[href=\"#/run/quickstart\"]').click()")
    browser.until(f"JSON.stringify({shown}) === '[\"/run/quickstart\"]'")
    browser.run("location.hash = '#/run/quickstart/step/2/1/0'")
    browser.until(f"JSON.stringify({shown}) === '[\"/run/quickstart/step/2/1/0\"]'")
    browser.press("ArrowRight")
    browser.until(f"JSON.stringify({shown}) === '[\"/run/quickstart/step/2/1/1\"]'")
    browser.run("location.hash = '#/run/hostile/step/1/0/0'")
    browser.until(f"JSON.stringify({shown}) === '[\"/run/hostile/step/1/0/0\"]'")
    assert browser.run("window.hacked === undefined && document.querySelectorAll('img').length === 0")
    assert browser.run("performance.getEntriesByType('resource').length") == 0
    assert re.search("<script>window.hacked=1</script>", browser.text("section:target"))


def test_a_page_of_fifty_thousand_attempts_stays_small(browser, tmp_path):
    recorded.big(tmp_path / "big")
    with served(tmp_path / "big") as port:
        for path in ("/run/big", "/run/big/find", "/run/big/step/200"):
            browser.open(f"http://127.0.0.1:{port}{path}")
            assert browser.run("document.querySelectorAll('*').length") < 4000, path
        assert "Step 200" in browser.text()
