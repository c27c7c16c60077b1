"""Commands as a person types them, run in this process."""

import sys
from collections.abc import Callable

import pytest

from longloop.cli.main import main


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str, str]]:
    """Run `longloop ...`; how it ended, what it printed, and what it printed as an error."""

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["longloop", *map(str, arguments)])
        monkeypatch.setenv("COLUMNS", "200")
        with pytest.raises(SystemExit) as exit:
            main()
        printed = capsys.readouterr()
        return int(exit.value.code or 0), printed.out, printed.err

    return run
