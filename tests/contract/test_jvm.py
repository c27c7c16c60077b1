"""The machine that simulators run on: a real process stands in for the JVM, so no Java is needed."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from longloop.envs.shared.jvm import Machine
from longloop.types import UserError


def simulator(*command: str) -> SimpleNamespace:
    process = subprocess.Popen(command or ("sleep", "60"), stdout=subprocess.PIPE)
    return SimpleNamespace(_gateway=SimpleNamespace(java_process=process))


@pytest.fixture
def java(tmp_path, monkeypatch):
    """A PATH with something called java on it."""
    (tmp_path / "java").write_text("#!/bin/sh\n")
    (tmp_path / "java").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")


def test_one_machine_serves_all_until_it_dies(java):
    machine = Machine("game", simulator)
    first = machine.take("a")
    assert machine.take("b") is first and machine.of("b") is first
    with pytest.raises(RuntimeError, match="one attempt at a time"):
        machine.of("a")
    first._gateway.java_process.kill()
    first._gateway.java_process.wait()
    second = machine.running()
    with pytest.raises(RuntimeError, match="game is gone"):
        machine.of("b")
    assert machine.take("c") is second
    assert second is not first and second._gateway.java_process.poll() is None
    second._gateway.java_process.kill()
    second._gateway.java_process.wait()


@pytest.mark.parametrize("given", [None, "-Xmx2g"])
def test_the_jvm_is_capped_and_the_users_options_win(java, monkeypatch, given):
    monkeypatch.delenv("JAVA_TOOL_OPTIONS", raising=False)
    if given:
        monkeypatch.setenv("JAVA_TOOL_OPTIONS", given)
    show = "import os; print(os.environ['JAVA_TOOL_OPTIONS'])"
    process = Machine("game", lambda: simulator(sys.executable, "-c", show)).take("a")._gateway.java_process
    options = process.communicate()[0].decode().split()
    assert options[0] == "-Xmx512m" and [word for word in options if word.startswith("-Xmx")][-1] == (
        given or "-Xmx512m"
    )
    assert os.environ.get("JAVA_TOOL_OPTIONS") == given, "it is as it was"


def test_what_is_missing_is_said(java, monkeypatch):
    with pytest.raises(UserError, match="longloop envs install game"):
        Machine("game", lambda: __import__("no_such_simulator")).take("a")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UserError, match="needs Java"):
        Machine("game", simulator).take("a")
