"""Scenarios around music."""

from typing import Any

from errands.apps.mail import deliver
from errands.judge import Goal
from errands.people import ALONE
from errands.scenario import Scenario
from errands.world import World
from errands.written import every, log_in


def put_playlist(w: World, owner: int, name: str, songs: list[int], public: bool = False) -> int:
    """A playlist; its id."""
    playlist = w.add("music_playlists", owner=owner, name=name, public=int(public))
    for song in songs:
        w.add("music_tracks", playlist=playlist, song=song)
    return playlist


def some_songs(w: World, count: int) -> list[int]:
    """Different songs of the catalogue."""
    return w.rng.sample([row["id"] for row in w.all("SELECT id FROM music_songs ORDER BY id")], count)


class PlayLongestOfAlbum(Scenario):
    """Play the longest song of an album."""

    split, difficulty = "test_challenge", 1
    apis = ("music.search_songs", "music.play_song")
    phrasings = (
        "Play the longest song of the album '{album}'.",
        "I want to hear the longest song that there is on '{album}'.",
        "Put on the song with the longest playing time of the album '{album}'.",
        "From the album '{album}', play me the longest song.",
    )

    def prepare(self, w: World) -> Goal:
        song = some_songs(w, 1)[0]
        w.run("UPDATE music_songs SET seconds = ? WHERE id = ?", w.rng.randrange(430, 600), song)
        goal = Goal(w, album=w.value("SELECT album FROM music_songs WHERE id = ?", song))
        goal.do("music.play_song", song_id=song)
        return goal

    @staticmethod
    def solve(apis: Any, album: str) -> None:
        # Searching also looks at albums, so I get the songs of this one.
        music = log_in("music")
        songs = apis.music.search_songs(query=album, page_size=20, access_token=music)
        print([(s["id"], s["title"], s["seconds"]) for s in songs])
        # I play the one with the most seconds.
        longest = max(songs, key=lambda s: s["seconds"])
        print(longest["title"], apis.music.play_song(song_id=longest["id"], access_token=music))
        # It is playing.
        apis.owner.complete_task()


class LikeWhatIsOn(Scenario):
    """Like the song in the player and follow its artist."""

    split, difficulty = "test_challenge", 1
    apis = ("music.show_player", "music.like", "music.follow")
    phrasings = (
        "I like the song that is in my music player. Mark it as liked, follow its artist, and tell me the title.",
        "What is the title of the song in my player? Like it, and follow whoever made it.",
        "Give a like to the song in my music player and follow its artist. Which song is it?",
        "Please like what my player has on at the moment, follow the artist, and tell me what the song is called.",
    )

    def prepare(self, w: World) -> Goal:
        songs = w.all(
            "SELECT id, title, artist FROM music_songs WHERE id NOT IN (SELECT song FROM music_likes WHERE owner = ?1)"
            " AND artist NOT IN (SELECT artist FROM music_follows WHERE owner = ?1) ORDER BY id",
            w.owner.id,
        )
        song = w.rng.choice(songs)
        w.run("UPDATE music_players SET song = ?, playing = 1 WHERE owner = ?", song["id"], w.owner.id)
        goal = Goal(w)
        goal.do("music.like", song_id=song["id"])
        goal.do("music.follow", artist=song["artist"])
        goal.answer = song["title"]
        return goal

    @staticmethod
    def solve(apis: Any) -> None:
        # I look at the player.
        music = log_in("music")
        song = apis.music.show_player(access_token=music)["song"]
        print(song)
        # I like this song and follow its artist.
        print(apis.music.like(song_id=song["id"], access_token=music))
        print(apis.music.follow(artist=song["artist"], access_token=music))
        # I answer with the title.
        apis.owner.complete_task(answer=song["title"])


class PlaylistOfGenre(Scenario):
    """Make a playlist of the songs of a genre that are in the library."""

    split, difficulty = "test_challenge", 2
    apis = ("music.list_library", "music.search_songs", "music.create_playlist", "music.add_to_playlist")
    phrasings = (
        "Make a playlist '{name}' of all {genre} songs in my music library.",
        "I want a new playlist called '{name}' with every {genre} song that I have in my library, and nothing else.",
        "Collect the {genre} songs of my music library in a new playlist named '{name}'.",
        "Please create the playlist '{name}' and add to it all songs from my library whose genre is {genre}.",
    )

    def prepare(self, w: World) -> Goal:
        name = w.rng.choice(("Sunday morning", "Late night", "Balcony", "Kitchen radio"))
        kept = w.all(
            "SELECT s.id, genre FROM music_songs s JOIN music_library l ON l.song = s.id WHERE owner = ? ORDER BY s.id",
            w.owner.id,
        )
        genres = [song["genre"] for song in kept]
        genre = w.rng.choice([kind for kind in sorted(set(genres)) if genres.count(kind) >= 3])
        goal = Goal(w, name=name, genre=genre)
        made = goal.do("music.create_playlist", name=name)
        for song in kept:
            if song["genre"] == genre:
                goal.do("music.add_to_playlist", **made, song_id=song["id"])
        return goal

    @staticmethod
    def solve(apis: Any, name: str, genre: str) -> None:
        # The library does not say the genre, so I need it and all songs of the genre.
        music = log_in("music")
        library = every(apis.music.list_library(access_token=music))
        of_genre = every(apis.music.search_songs(genre=genre, access_token=music))
        print(len(library), len(of_genre))
        # What is in both belongs into the playlist.
        kept = [s["id"] for s in library]
        wanted = [s for s in of_genre if s["id"] in kept]
        print([s["title"] for s in wanted])
        # I make the playlist and add them.
        playlist = apis.music.create_playlist(name=name, access_token=music)["playlist_id"]
        for s in wanted:
            print(apis.music.add_to_playlist(playlist_id=playlist, song_id=s["id"], access_token=music))
        # The playlist is made.
        apis.owner.complete_task()


class WeedOutPlaylist(Scenario):
    """Remove from a playlist what the owner has given few stars."""

    split, difficulty = "test_challenge", 2
    apis = ("music.list_playlists", "music.list_playlist_songs", "music.show_song", "music.remove_from_playlist")
    phrasings = (
        "Remove all songs from my playlist '{name}' that I gave fewer than {stars} stars. Songs without stars stay.",
        "My playlist '{name}' has songs I do not like: take out those which I rated below {stars} stars, but leave "
        "what has no rating.",
        "Clean up the playlist '{name}': each song with less than {stars} stars from me goes, unrated ones stay.",
        "Take every song that I rated with fewer than {stars} stars off my playlist '{name}'. Keep the unrated ones.",
    )

    def prepare(self, w: World) -> Goal:
        name = w.rng.choice(("Evening walk", "Train ride", "Gardening"))
        songs = some_songs(w, 10)
        given = dict(zip(songs, (1, 2, 2, 3, 3, 4, 5), strict=False))
        for song in songs:
            w.run("DELETE FROM music_ratings WHERE owner = ? AND song = ?", w.owner.id, song)
            if song in given:
                w.add("music_ratings", owner=w.owner.id, song=song, stars=given[song])
        w.rng.shuffle(songs)
        playlist = put_playlist(w, w.owner.id, name, songs)
        stars = w.rng.choice((3, 4))
        goal = Goal(w, name=name, stars=stars)
        for song, rated in given.items():
            if rated < stars:
                goal.do("music.remove_from_playlist", playlist_id=playlist, song_id=song)
        return goal

    @staticmethod
    def solve(apis: Any, name: str, stars: int) -> None:
        # I look for the playlist.
        music = log_in("music")
        playlists = every(apis.music.list_playlists(access_token=music))
        playlist = [p for p in playlists if p["name"] == name][0]
        print(playlist)
        # I go through all its songs; each one by itself says my stars.
        songs = every(apis.music.list_playlist_songs(playlist_id=playlist["id"], access_token=music))
        songs = [apis.music.show_song(song_id=s["id"], access_token=music) for s in songs]
        print([(s["id"], s["stars"]) for s in songs])
        # I remove those with too few stars and leave the unrated ones.
        for s in songs:
            if s["stars"] is not None and s["stars"] < stars:
                print(
                    s["title"],
                    apis.music.remove_from_playlist(playlist_id=playlist["id"], song_id=s["id"], access_token=music),
                )
        # The playlist is cleaned up.
        apis.owner.complete_task()


class KeepTheirSongs(Scenario):
    """Add what is new in the public playlist of a relative or the like to the library."""

    split, difficulty = "test_challenge", 2
    apis = (
        *("contacts.search", "music.search_public", "music.list_playlist_songs"),
        *("music.list_library", "music.add_to_library"),
    )
    phrasings = (
        "My {relation} has a public playlist '{name}'. Add all its songs to my music library that are not in it yet.",
        "Put the songs of the public playlist '{name}' of my {relation} into my music library, as far as I lack them.",
        "Find the public playlist '{name}' that my {relation} made, and add to my library whatever is missing there.",
        "I want to have every song from my {relation}'s public playlist '{name}' in my music library.",
    )

    def prepare(self, w: World) -> Goal:
        person = w.others(w.rng.choice(ALONE))[0]
        other = w.rng.choice([p for p in w.others() if p is not person])
        name = w.rng.choice(("Gold from the attic", "On repeat", "Slow hours"))
        have = [row["song"] for row in w.all("SELECT song FROM music_library WHERE owner = ?", w.owner.id)]
        new = [song for song in some_songs(w, 48) if song not in have][:5]
        songs = w.rng.sample([*new, *w.rng.sample(have, 2)], 7)
        for owner, content in w.rng.sample([(person, songs), (other, some_songs(w, 6))], 2):
            put_playlist(w, owner.id, name, content, public=True)
        goal = Goal(w, relation=person.relation, name=name)
        for song in new:
            goal.do("music.add_to_library", song_id=song)
        return goal

    @staticmethod
    def solve(apis: Any, relation: str, name: str) -> None:
        # I need the name of my {relation}, for others may have a playlist of the same name.
        contacts, music = log_in("contacts", "music")
        person = apis.contacts.search(query=relation, access_token=contacts)[0]
        lists = apis.music.search_public(query=name, page_size=20, access_token=music)
        print(person["name"], [(p["id"], p["owner"]) for p in lists])
        # I compare its songs with my library.
        theirs = [p for p in lists if p["owner"] == person["name"] and p["name"] == name][0]["id"]
        songs = every(apis.music.list_playlist_songs(playlist_id=theirs, access_token=music))
        library = every(apis.music.list_library(access_token=music))
        have = [s["id"] for s in library]
        new = [s for s in songs if s["id"] not in have]
        print(len(songs), [s["title"] for s in new])
        # I add the missing ones.
        for s in new:
            print(apis.music.add_to_library(song_id=s["id"], access_token=music))
        # The library has them all now.
        apis.owner.complete_task()


class SongsFromAMail(Scenario):
    """Make a playlist of the songs in a mail, note down those that do not exist, and reply."""

    split, difficulty = "test_challenge", 3
    apis = (
        *("contacts.search", "mail.search", "mail.show", "music.search_songs", "music.create_playlist"),
        *("music.add_to_playlist", "todo.list_lists", "todo.add", "mail.reply"),
    )
    phrasings = (
        "My {relation} mailed me a list of songs. Make a playlist '{name}' of them, put each title that the music app "
        "does not have on my to-do list {todos}, and reply '{text}'.",
        "In the mail with songs from my {relation}, take every title that exists in the music app into a new playlist "
        "'{name}'; add the other titles to the to-do list {todos}. Then answer the mail with '{text}'.",
        "Turn the song list that my {relation} sent by mail into the playlist '{name}'. Titles which the music app "
        "does not know become items of my to-do list {todos}. Reply to the mail: '{text}'.",
        "Please make the playlist '{name}' from the songs in my {relation}'s mail, reply to that mail with '{text}', "
        "and add those titles that you cannot find in the music app to my to-do list {todos}.",
    )

    def prepare(self, w: World) -> Goal:
        person = w.others(w.rng.choice(ALONE))[0]
        songs = some_songs(w, 5)
        found = [w.value("SELECT title FROM music_songs WHERE id = ?", song) for song in songs]
        missing = w.rng.sample(("Crimson Kettle", "Paper Submarine", "Thursday Engine", "Marble Staircase"), 2)
        titles = w.rng.sample(found + missing, 7)
        body = "Hello, here they are:\n" + "\n".join(f"- {title}" for title in titles) + "\nHave fun"
        mail = deliver(w, person.name, person.email, "Songs for you", body, w.ago(hours=4))
        deliver(w, person.name, person.email, "By the way", "Did you see the moon last night?", w.ago(hours=2))
        slots = {
            "name": w.rng.choice(("From the mail", "Picked for me", "Seven songs")),
            "todos": w.rng.choice(("Home", "Errands", "Work")),
            "text": w.rng.choice(("Thank you, great choice", "Listening already", "Made a playlist of it")),
        }
        goal = Goal(w, relation=person.relation, **slots)
        made = goal.do("music.create_playlist", name=slots["name"])
        for song in songs:
            goal.do("music.add_to_playlist", **made, song_id=song)
        sql = "SELECT id FROM todo_lists WHERE owner = ? AND name = ?"
        for title in missing:
            goal.do("todo.add", list_id=w.value(sql, w.owner.id, slots["todos"]), text=title)
        goal.do("mail.reply", message_id=mail, body=slots["text"])
        return goal

    @staticmethod
    def solve(apis: Any, relation: str, name: str, todos: str, text: str) -> None:
        # I look for mails of my {relation}.
        contacts, mail, music, todo = log_in("contacts", "mail", "music", "todo")
        person = apis.contacts.search(query=relation, access_token=contacts)[0]
        mails = apis.mail.search(sender=person["email"], page_size=20, access_token=mail)
        print([(m["id"], m["subject"]) for m in mails])
        # The one about songs is it.
        songs = [m for m in mails if "songs" in m["subject"].lower()][0]["id"]
        body = apis.mail.show(message_id=songs, access_token=mail)["body"]
        print(body)
        # I look up each title, exactly.
        titles = [line[2:] for line in body.splitlines() if line.startswith("- ")]
        ids = {}
        for title in titles:
            for s in apis.music.search_songs(query=title, access_token=music):
                if s["title"] == title:
                    ids[title] = s["id"]
        print(ids, [title for title in titles if title not in ids])
        # What exists goes into the playlist, the rest onto the to-do list.
        playlist = apis.music.create_playlist(name=name, access_token=music)["playlist_id"]
        lists = apis.todo.list_lists(access_token=todo)
        this_list = [x for x in lists if x["name"] == todos][0]["id"]
        for title in titles:
            if title in ids:
                apis.music.add_to_playlist(playlist_id=playlist, song_id=ids[title], access_token=music)
            else:
                print(title, apis.todo.add(list_id=this_list, text=title, access_token=todo))
        # Now the reply.
        print(apis.mail.reply(message_id=songs, body=text, access_token=mail))
        # All is done.
        apis.owner.complete_task()


class PartyPlaylist(Scenario):
    """Make a playlist of the longest song of each guest, and ask guests who have no playlist."""

    split, difficulty = "test_challenge", 3
    apis = (
        *("calendar.list_upcoming", "calendar.list_guests", "music.search_public", "music.list_playlist_songs"),
        *("music.create_playlist", "music.add_to_playlist", "contacts.search", "phone.send_message"),
    )
    phrasings = (
        "Guests of my event '{event}' have made public playlists '{theirs}'. Make a playlist '{name}' with the longest "
        "song from that of each guest who accepted. Text '{text}' to those who accepted but have no such playlist.",
        "For '{event}' in my calendar: from every guest who accepted, take the longest song of their public playlist "
        "'{theirs}' into a new playlist '{name}'. If there is none, send them the text message '{text}'.",
        "Please make the playlist '{name}' for my event '{event}'. It should have one song of each guest who has "
        "accepted: the longest of their public playlist '{theirs}'. Accepted guests without one get the text '{text}'.",
        "I need a playlist '{name}': the longest song in the public playlist '{theirs}' of each guest who accepted my "
        "event '{event}'. Text the accepted guests who do not have that playlist: '{text}'.",
    )

    def prepare(self, w: World) -> Goal:
        event = w.rng.choice(("Dance night", "Terrace party", "Karaoke evening"))
        theirs, name = w.rng.choice(("Party picks", "My three")), f"{event} mix"
        guests = w.rng.sample(w.others("friends", "colleagues", "family"), 6)
        start = f"{w.day(w.rng.randrange(31, 45))} 19:00"
        id = w.add("calendar_events", owner=w.owner.id, title=event, start=start, minutes=240, place="at home")
        with_list, without, others = guests[:2], guests[2:4], guests[4:]
        for guest in w.rng.sample(guests, 6):
            answer = w.rng.choice(("declined", "open")) if guest in others else "accepted"
            w.add("calendar_guests", event_id=id, guest=guest.id, answer=answer)
        songs = some_songs(w, 12)
        for song, seconds in zip(songs, w.rng.sample(range(120, 420), 12), strict=True):
            w.run("UPDATE music_songs SET seconds = ? WHERE id = ?", seconds, song)
        for place, guest in enumerate([*with_list, *others]):
            put_playlist(w, guest.id, theirs, songs[3 * place : 3 * place + 3], public=True)
        text = w.rng.choice(("Which song do you wish for?", "Please send me a song", "What shall I play for you?"))
        goal = Goal(w, event=event, theirs=theirs, name=name, text=text)
        made = goal.do("music.create_playlist", name=name)
        sql = "SELECT id FROM music_songs WHERE id IN (?, ?, ?) ORDER BY seconds DESC"
        for place in range(len(with_list)):
            goal.do("music.add_to_playlist", **made, song_id=w.value(sql, *songs[3 * place : 3 * place + 3]))
        for guest in without:
            goal.do("phone.send_message", number=guest.phone, text=text)
        return goal

    @staticmethod
    def solve(apis: Any, event: str, theirs: str, name: str, text: str) -> None:
        # I look for the event and who has accepted.
        calendar, music, contacts, phone = log_in("calendar", "music", "contacts", "phone")
        this_event = apis.calendar.list_upcoming(query=event, access_token=calendar)[0]
        print(this_event)
        guests = every(apis.calendar.list_guests(event_id=this_event["id"], access_token=calendar))
        coming = [g["name"] for g in guests if g["answer"] == "accepted"]
        print(coming)
        # Now the public playlists of this name, by owner.
        found = every(apis.music.search_public(query=theirs, access_token=music))
        lists = {p["owner"]: p["id"] for p in found if p["name"] == theirs}
        print(lists)
        # Of each guest who comes and has one, I take the longest song.
        longest = []
        for who in coming:
            if who in lists:
                songs = apis.music.list_playlist_songs(playlist_id=lists[who], page_size=20, access_token=music)
                longest.append(max(songs, key=lambda s: s["seconds"]))
        print([(s["title"], s["seconds"]) for s in longest])
        # I make the playlist, and text those who come and have none.
        mix = apis.music.create_playlist(name=name, access_token=music)["playlist_id"]
        for s in longest:
            apis.music.add_to_playlist(playlist_id=mix, song_id=s["id"], access_token=music)
        for who in coming:
            if who not in lists:
                number = apis.contacts.search(query=who, access_token=contacts)[0]["phone"]
                print(who, apis.phone.send_message(number=number, text=text, access_token=phone))
        # The playlist is made and the others are asked.
        apis.owner.complete_task()


SCENARIOS: list[type[Scenario]] = [
    *(PlayLongestOfAlbum, LikeWhatIsOn, PlaylistOfGenre, WeedOutPlaylist, KeepTheirSongs),
    *(SongsFromAMail, PartyPlaylist),
]
