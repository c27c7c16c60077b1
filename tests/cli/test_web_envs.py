"""WebShop and multi-hop QA as a user meets them: playing by hand, and the data missing."""

import pytest

pytest.importorskip("bm25s", reason="the package bm25s is not installed")

from tests.support import published
from tests.support.helpers import write_config


@pytest.mark.parametrize("name", ["webshop", "multihop_qa"])
def test_missing_data_are_one_sentence_and_what_mends_it(command, name, tmp_path, monkeypatch):
    monkeypatch.delenv("LONGLOOP_DATA", raising=False)
    text = write_config(tmp_path).read_text().replace('name = "guess"\nhighest = 3\ntries = 2', f'name = "{name}"')
    config = write_config(tmp_path, text)
    for arguments in (("play", name), ("train", config, f"folder={tmp_path}")):
        code, _, error = command(*arguments)
        assert code == 2 and f"{name}: its data are not part of longloop" in error and "env.data=FOLDER" in error
        assert "Traceback" not in error


def type_in(monkeypatch, *lines: str) -> None:
    typed = iter(lines)
    monkeypatch.setattr("builtins.input", lambda prompt: next(typed))


@published.needed("webshop")
def test_play_webshop(command, monkeypatch):
    buy = ("click[b0743jkhbv]", "", 'click[28" x 28"]', "", "click[buy now]", "")
    type_in(monkeypatch, "/expert", "buy me that", "", "Action: search[Ambesonne throw pillow]", "", *buy)
    data = f"data={published.folder('webshop')}"
    code, printed, _ = command("play", "webshop", data, "--split", "test", "--task", "goal-0")
    assert code == 0 and "reward 1.000, success" in printed
    assert "Action: search[" in printed and "That is no action" in printed


@published.needed("multihop_qa")
def test_play_multihop_qa(command, monkeypatch):
    type_in(monkeypatch, "Search[Neil Peart]", "", "Finish[Rush]", "")
    code, printed, _ = command("play", "multihop_qa", f"data={published.folder('multihop_qa')}", "--split", "dev")
    assert code == 0 and "Neil Peart: " in printed and "reward 1.000, success" in printed


def test_an_empty_folder_is_missed_by_name(command, tmp_path):
    code, _, error = command("check", "mind2web", f"data={tmp_path}")
    assert code == 2 and "There is no train_0.json" in error and "huggingface" in error
