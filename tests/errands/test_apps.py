"""What APIs do where it is easily got wrong."""

from typing import Any

import pytest

from errands.apps import make_world
from errands.judge import act
from errands.world import World


@pytest.fixture
def w() -> World:
    return make_world("apps")


def do(w: World, api: str, **arguments: Any) -> Any:
    return act(w, api, arguments)


@pytest.mark.parametrize("query", ["100%", "a_b", "%", "_"])
def test_what_is_searched_for_is_no_pattern(w: World, query: str) -> None:
    for title in (query, "100 or more", "axb", "All of it"):
        do(w, "notes.create", title=title)
    assert [note["title"] for note in do(w, "notes.search", query=query)] == [query]


def test_a_search_is_for_a_part_in_any_case(w: World) -> None:
    number = do(w, "notes.create", title="Straße NACH Rom", body="x")["note_id"]
    for query in ("nach r", "STRAßE", "straße nach rom", "x"):
        assert number in [note["id"] for note in do(w, "notes.search", query=query)], query
    assert do(w, "notes.search", query="ROM nach") == []


def test_artist_and_genre_are_whole_names_in_any_case(w: World) -> None:
    song = do(w, "music.search_songs")[0]
    whole = do(w, "music.search_songs", artist=song["artist"].upper(), page_size=20)
    assert song in whole and {one["artist"] for one in whole} == {song["artist"]}
    for part in (song["artist"][:-1], song["artist"][:-1] + "_", "%"):
        assert do(w, "music.search_songs", artist=part) == [], part


def test_a_folder_is_not_in_one_of_a_similar_name(w: World) -> None:
    for path in ("A_B", "axb", "axb/C"):
        do(w, "files.create_folder", path=path)
    do(w, "files.delete_folder", path="A_B")
    with pytest.raises(Exception, match="not empty"):
        do(w, "files.delete_folder", path="axb")


def test_mail_goes_back_to_where_it_was(w: World) -> None:
    me, other = w.owner.email, w.others("friends")[0].email
    for to, subject in ((me, "to myself"), (other, "to another"), (f"{me} {other}", "to both")):
        do(w, "mail.send", to=to.split(), subject=subject, body="")
    mine = w.all("SELECT id, folder FROM mail_messages WHERE owner = ? AND subject LIKE 'to %'", w.owner.id)
    assert sorted(mail["folder"] for mail in mine) == ["inbox", "inbox", "sent", "sent", "sent"]
    for away in ("mail.archive", "mail.delete"):
        for mail in mine:
            do(w, away, message_id=mail["id"])
        for mail in mine:
            do(w, "mail.restore", message_id=mail["id"])
            assert do(w, "mail.show", message_id=mail["id"])["folder"] == mail["folder"]
