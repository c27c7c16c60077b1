"""`longloop view` as a process of its own, asked over HTTP; `view --html`; `show`."""

import re
import shutil
from html import unescape
from pathlib import Path

import pytest

from longloop.store.run import Run
from longloop.types import Group, Task
from tests.support import recorded
from tests.support.viewing import ask, links, server


def test_every_page_is_linked_and_none_is_broken(tmp_path):
    recorded.small(tmp_path / "runs/seed-0", steps=2)
    recorded.small(tmp_path / "runs/seed-1", steps=2, seed=1)
    with server(tmp_path / "runs") as (port, _):
        # attempts are many; those of the first group stand for the others, and one of them for comparisons
        alike = re.compile(r"/(step|eval)/\d+/[1-9]|left=seed-(?!0%3Astep%2F1%2F0%2F0)")
        seen: set[str] = set()
        ahead = {"/", "/curves?run=seed-0&run=seed-1"}
        while ahead:
            path = ahead.pop()
            seen.add(path)
            status, body, headers = ask(port, path)
            assert status == 200, path
            assert "default-src 'none'" in headers["content-security-policy"]
            if "text/html" in headers["content-type"]:
                assert all(link.startswith("/") for link in links(body)), path
                ahead |= {link for link in links(body) - seen if not alike.search(link)}
        kinds = [
            "/curves",
            "/compare",
            "analysis",
            "behaviors",
            "/step/1",
            "/step/1/0",
            "/step/1/0/0",
            "/eval/0",
            "tokens=logprob",
        ]
        assert all(any(kind in path for path in seen) for kind in kinds)
        assert len(seen) > 60
        assert "seed, 2 seeds" in ask(port, "/curves?run=seed-0&run=seed-1")[1]


def test_only_this_machine_is_answered_and_only_pages(tmp_path):
    secret = tmp_path / "secret.jsonl"
    secret.write_text("the secret")
    recorded.small(tmp_path / "runs/one", steps=1)
    with server(tmp_path / "runs") as (port, pid):
        assert ask(port, "/", Host="evil.example")[0] == 400
        assert ask(port, "/run/one", Host=f"evil.example:{port}")[0] == 400
        assert ask(port, "/", Host=f"localhost:{port}")[0] == 200
        for path in (
            *("/run/../secret.jsonl", "/run/%2e%2e/secret.jsonl", "/run/..%2fsecret.jsonl", "/static/../pages.py"),
            *("/static/%2e%2e/pages.py", "/static/..%2f..%2fcli%2fmain.py", "/run/one/step/..", "/run/one/step/%00"),
            *(
                "/run/one/step/99999999999999999999",
                "/run/one/step/1/2/3/4",
                "/compare?left=one:step/../../1",
                "/compare",
            ),
            *("/run/nobody", "/curves", "/run/one/step/%C2%B2"),
        ):
            status, body, headers = ask(port, path)
            assert status == 404, path
            assert "the secret" not in body and "import " not in body, path
            assert "default-src 'none'" in headers["content-security-policy"]
        listening = Path(f"/proc/{pid}/net/tcp")
        if listening.exists():
            rows = [line.split() for line in listening.read_text().splitlines()[1:]]
            assert [row[1] for row in rows if row[3] == "0A" and row[1].endswith(f":{port:04X}")] == [
                f"0100007F:{port:04X}"
            ]


def test_of_fifty_thousand_attempts_only_what_is_shown_is_read(tmp_path):
    """Bytes that the server's process read, from the kernel. Not seconds: benchmarks/viewer.py has those."""
    if not Path("/proc/self/io").exists():
        pytest.skip("needs Linux, whose /proc/PID/io counts the bytes that a process read")
    big = recorded.big(tmp_path / "runs/big")
    recorded.small(tmp_path / "runs/small", steps=2)
    stored = sum(path.stat().st_size for path in (big / "trajectories").glob("0*.jsonl"))
    index = (big / "trajectories/index.jsonl").stat().st_size
    with server(tmp_path / "runs") as (port, pid):

        def read() -> int:
            return int(re.search(r"rchar: (\d+)", Path(f"/proc/{pid}/io").read_text())[1])

        for path in ("/run/small", "/run/small/step/1", "/run/small/step/1/0", "/run/small/step/1/0/0"):
            ask(port, path)  # what is loaded once
        start = read()
        for path in ("/", "/run/big", "/run/big/step/150", "/run/big/step/150/3", "/run/big/step/150/3/7"):
            status, body, _ = ask(port, path)
            assert status == 200 and len(body) < 400_000
        opened = read() - start
        assert index < opened < index + 400_000
        assert stored > 8 * opened
        start = read()
        for attempt in range(8):
            assert ask(port, f"/run/big/step/150/4/{attempt}")[0] == 200
        assert read() - start < 200_000  # the index is not read twice
        start = read()
        status, body, _ = ask(port, "/run/big/find?task=order/7&success=no")
        assert status == 200 and "further, from step" in body
        assert read() - start < 200_000


def test_html_is_one_file_that_loads_nothing(tmp_path, command):
    run = recorded.small(tmp_path / "run")
    code, said, _ = command("view", run, "--html", tmp_path / "out.html")
    assert code == 0 and "out.html" in said
    html = (tmp_path / "out.html").read_text()
    found = links(html)
    assert all(link.startswith("#") for link in found)
    ids = set(re.findall(r'<section class="page[^"]*" id="([^"]+)"', html))
    assert {link[1:] for link in found} <= ids
    assert {
        "/",
        "/run/run",
        "/run/run/analysis",
        "/run/run/behaviors",
        "/run/run/step/3/2/1",
        "/run/run/eval/0/0/0",
    } <= ids
    assert ids == {link[1:] for link in found if link != "#"}, "and something leads to every page"
    assert "http://" not in html.replace("http://www.w3.org", "") and "https://" not in html
    recorded.small(tmp_path / "other")
    assert command("view", run, tmp_path / "other", "--html", tmp_path / "both.html")[0] == 0
    html = (tmp_path / "both.html").read_text()
    ids = {unescape(one) for one in re.findall(r'<section class="page[^"]*" id="([^"]+)"', html)}
    assert "/curves?run=other&run=run" in ids or "/curves?run=run&run=other" in ids
    assert ids == {link[1:] for link in links(html) if link != "#"}


def test_show_prints_an_attempt_and_no_control_sequences(tmp_path, command):
    run = recorded.small(tmp_path / "run")
    code, said, _ = command("show", run, "3/1/2")
    assert code == 0
    for part in ("train/cost-of-last-order/1", "turn 2", "apis.shop.list_orders(page_size=1)", "nothing else differs"):
        assert part in said
    evil = recorded.attempt(Task("evil", "train"), 0, False, error="\x1b[2J\x9b31m\x07 [red]gone[/red]")
    with Run.reopen(run) as again:
        again.trajectories.write(4, [Group(evil.task, (evil,))])
    code, said, _ = command("show", run, "4/0/0")
    assert code == 0
    assert "\x1b[2J" not in said and "\x9b" not in said and "\x07" not in said
    assert r"\x1b[2J\x9b31m\x07 [red]gone[/red]" in said


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["show", "RUN", "nonsense"], "write STEP/GROUP/ATTEMPT such as 12/0/3, or eval/20/0/0. RUN has steps 1 to 3"),
        (["show", "RUN"], "Name an attempt: write STEP/GROUP/ATTEMPT"),
        (["show", "RUN", "9/0/0"], "no attempt 9/0/0: it has steps 1 to 3 and evaluations of steps 0, 3."),
        (["show", "RUN", "eval/2/0/0"], "it has steps 1 to 3 and evaluations of steps 0, 3."),
        (["show", "RUN", "1/7/0"], "step 1 has groups 0 to 2."),
        (["show", "RUN", "1/2/7"], "group 2 of step 1 has attempts 0 to 3."),
        (["show", "RUN", "eval/3/7/0"], "the evaluation of step 3 has groups 0 to 2."),
        (["show", "RUN", "eval/3/1/7"], "group 1 of the evaluation of step 3 has attempts 0 to 1."),
        (["show", "RUN/trajectories", "1/0/0"], "is not a run folder"),
        (["view", "RUN/nowhere"], "There is no folder"),
        (["view", "RUN/trajectories"], "No run is in"),
    ],
)
def test_mistakes_are_told_in_a_sentence(arguments, part, tmp_path, command):
    run = recorded.small(tmp_path / "run")
    code, _, said = command(*(word.replace("RUN", str(run)) for word in arguments))
    assert code == 2 and part.replace("RUN", str(run)) in said and "Traceback" not in said


def test_a_run_that_was_never_evaluated_says_so(tmp_path, command):
    run = recorded.small(tmp_path / "run")
    shutil.rmtree(run / "evaluations")
    assert "has no attempt eval/3/0/0: it has steps 1 to 3 and no evaluations." in command("show", run, "eval/3/0/0")[2]
    shutil.rmtree(run / "trajectories")
    assert "has no attempt 3/0/0: it has no steps and no evaluations." in command("show", run, "3/0/0")[2]


def test_a_port_in_use_is_told_in_a_sentence(tmp_path, command):
    run = recorded.small(tmp_path / "run", steps=1)
    with server(run) as (port, _):
        code, _, said = command("view", run, "--port", port)
    assert code == 2 and f"Port {port} cannot be used" in said and "--port 0" in said
