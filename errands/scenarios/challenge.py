"""The split test_challenge: errands that need an app which no other split uses.

Frozen: nobody reads attempts at them, and no practice is written for them.
"""

from collections.abc import Sequence
from typing import Any

from errands.apps.mail import deliver
from errands.apps.wallet import transfer
from errands.judge import Goal, act
from errands.people import ALONE, Person
from errands.scenario import Scenario
from errands.scenarios.calendar import add_event
from errands.scenarios.todo import owned_lists
from errands.scenarios.wallet import CIRCLES, amount_between
from errands.world import World
from errands.written import every, log_in

_GROUPS = ("Ski week", "Canoe tour", "Lake holiday", "Sailing course", "Camping trip", "Cabin weekend")
_BOUGHT = (
    *("Firewood", "Parking", "Boat rental", "Snacks", "Museum passes", "Gas bottle", "Charcoal", "Bus tickets"),
    *("Batteries", "Guidebook", "Ice cream", "Rope"),
)
_PAPERS = (
    *("warranty.pdf", "itinerary.pdf", "floor-plan.png", "guest-list.txt", "schedule.csv", "contract.pdf"),
    *("certificate.pdf", "logo.png", "summary.md", "quote.pdf", "seating.csv"),
)
_LISTS = ("Sunday cooking", "Late train", "Spring cleaning", "Campfire", "Ironing", "Garden work")
_SONGS = [
    f"{one} {two}" for one in ("Amber", "Crimson", "Lonely", "Tender") for two in ("Harbour", "Lantern", "Meadow")
]
"""Names of groups, expenses, files, playlists and songs that a new world does not have."""


def _make_group(w: World, people: Sequence[Person]) -> tuple[str, int, int]:
    """The name of a new expenses group of the owner and these people, its id, and that of last year's group, which has
    nearly the same name and comes first."""
    name, emails = w.rng.choice(_GROUPS), [person.email for person in people]
    made = [
        act(w, "expenses.create_group", {"name": called, "emails": emails})["group_id"]
        for called in (f"{name} {w.now.year - 1}", name)
    ]
    _spend(w, made[0], people[0], "Deposit", w.rng.randrange(2000, 9000), 200)
    return name, made[1], made[0]


def _spend(w: World, group: int, payer: Person, title: str, cents: int, days: int, *between: Person) -> int:
    """An expense of so many days ago, split equally between all members or those given; its id."""
    given = {"group_id": group, "title": title, "amount": cents / 100, "paid_by": payer.email, "day": w.day(-days)}
    shared = {"between": [person.email for person in between]} if between else {}
    return int(act(w, "expenses.add_expense", given | shared)["expense_id"])


def _add_file(w: World, owner: Person, folder: str, name: str, text: str = "", kb: int = 1, days: float = 9) -> int:
    """A file that was changed so many days ago; its id."""
    place = w.value("SELECT id FROM files_folders WHERE owner = ? AND path = ?", owner.id, folder)
    content = {"name": name, "text": text, "kb": kb, "changed": w.ago(days)}
    return w.add("files_files", owner=owner.id, folder=place, **content)


def _add_playlist(w: World, owner: Person, name: str, songs: Sequence[int], public: bool = True) -> int:
    """A playlist with these songs; its id."""
    playlist = w.add("music_playlists", owner=owner.id, name=name, public=int(public))
    for song in songs:
        w.add("music_tracks", playlist=playlist, song=song)
    return playlist


def _songs(w: World, where: str = "1", *values: Any) -> list[dict[str, Any]]:
    """Songs of the catalogue."""
    return w.all(f"SELECT * FROM music_songs WHERE {where} ORDER BY id", *values)


def _keep_song(w: World, song: int) -> None:
    """Put a song into the owner's library, if it is not there."""
    row = (w.owner.id, song, w.day(-w.rng.randrange(1, 300)))
    w.run("INSERT OR IGNORE INTO music_library (owner, song, added) VALUES (?, ?, ?)", *row)


class PaidForGroup(Scenario):
    """Enter what the owner paid for a group."""

    split, difficulty = "test_challenge", 1
    apis = ("expenses.list_groups", "expenses.add_expense")
    phrasings = (
        "I paid {amount} for '{title}' on {day}. Enter it in the expenses group '{group}', split equally between all "
        "of us.",
        "Add an expense to the group '{group}': '{title}', {amount}, which I paid on {day}. Everyone in the group has "
        "an equal share.",
        "My expenses group '{group}' does not know yet that I spent {amount} on {day}. The title is '{title}', and all "
        "members share it equally.",
        "'{title}' cost me {amount} on {day}, and it was for everyone in '{group}'. Please put it into that group's "
        "shared expenses, in equal parts.",
    )

    def prepare(self, w: World) -> Goal:
        group, here, _ = _make_group(w, w.rng.sample(w.others(*CIRCLES), 3))
        title, amount, day = w.rng.choice(_BOUGHT), amount_between(w, 8, 90), w.day(-w.rng.randrange(1, 12))
        goal = Goal(w, group=group, title=title, amount=amount, day=day)
        goal.do("expenses.add_expense", group_id=here, title=title, amount=float(amount), day=day)
        return goal

    @staticmethod
    def solve(apis: Any, group: str, title: str, amount: float, day: str) -> None:
        # I need the id of the group.
        expenses = log_in("expenses")
        groups = apis.expenses.list_groups(access_token=expenses)
        print([(g["id"], g["name"]) for g in groups])
        # I add the expense to the one that is called just '{group}'.
        here = [g["id"] for g in groups if g["name"] == group][0]
        print(apis.expenses.add_expense(group_id=here, title=title, amount=amount, day=day, access_token=expenses))
        # The expense is entered.
        apis.owner.complete_task()


class RefileDocument(Scenario):
    """Rename a file and move it to another folder, which has a file with the old name."""

    split, difficulty = "test_challenge", 1
    apis = ("files.search", "files.rename", "files.move")
    phrasings = (
        "Rename the file '{name}' in my folder {folder} to '{new}' and move it to the folder {target}.",
        "There is a file '{name}' in {folder} that belongs in {target}, under the name '{new}'. Please rename and move "
        "it.",
        "I want the '{name}' from my {folder} folder to be called '{new}', and moved to {target}.",
        "The name '{name}' says nothing. Call that file in the folder {folder} '{new}' and, while you are at it, move "
        "it over to {target}.",
    )

    def prepare(self, w: World) -> Goal:
        name = w.rng.choice(("scan.pdf", "unnamed.pdf", "document-1.pdf", "letter.pdf"))
        new = w.rng.choice(("rent-contract.pdf", "dentist-bill.pdf", "gas-meter.pdf", "car-papers.pdf"))
        places = w.rng.sample(("Documents", "Documents/Taxes", "Downloads", "Photos", "Work", "Work/Reports"), 3)
        ids = {place: _add_file(w, w.owner, place, name, days=w.rng.randrange(1, 90)) for place in places}
        folder, target, _ = w.rng.sample(places, 3)
        goal = Goal(w, name=name, folder=folder, new=new, target=target)
        goal.do("files.rename", file_id=ids[folder], name=new)
        goal.do("files.move", file_id=ids[folder], folder=target)
        return goal

    @staticmethod
    def solve(apis: Any, name: str, folder: str, new: str, target: str) -> None:
        # I look for the file.
        files = log_in("files")
        found = apis.files.search(query=name, page_size=20, access_token=files)
        print(found)
        # I take the one in {folder}. {target} may have a file with its old name, so I rename it before I move it.
        this = [f["id"] for f in found if f["name"] == name and f["folder"] == folder][0]
        print(apis.files.rename(file_id=this, name=new, access_token=files))
        print(apis.files.move(file_id=this, folder=target, access_token=files))
        # The file has its new name and folder.
        apis.owner.complete_task()


class KeepThisSong(Scenario):
    """Like the song in the player and add it to a playlist."""

    split, difficulty = "test_challenge", 1
    apis = ("music.show_player", "music.like", "music.list_playlists", "music.add_to_playlist")
    phrasings = (
        "I love the song that is in my music player right now. Like it and add it to my playlist '{playlist}'.",
        "Please like the song my player is paused at, and put it on my playlist '{playlist}'.",
        "The song I was just listening to (it is paused in the player) should go on my playlist '{playlist}'. Give it "
        "a like as well.",
        "My playlist '{playlist}' needs the song that is in the music player at the moment. Like that song, too.",
    )

    def prepare(self, w: World) -> Goal:
        songs = [
            song["id"] for song in _songs(w, "id NOT IN (SELECT song FROM music_likes WHERE owner = ?)", w.owner.id)
        ]
        song, *others = w.rng.sample(songs, 6)
        w.run("UPDATE music_players SET song = ? WHERE owner = ?", song, w.owner.id)
        name = w.rng.choice(_LISTS)
        _add_playlist(w, w.owner, f"{name} {w.now.year - 1}", [song, others[0]], public=False)
        playlist = _add_playlist(w, w.owner, name, others, public=False)
        goal = Goal(w, playlist=name)
        goal.do("music.like", song_id=song)
        goal.do("music.add_to_playlist", playlist_id=playlist, song_id=song)
        return goal

    @staticmethod
    def solve(apis: Any, playlist: str) -> None:
        # I look at what is in the player.
        music = log_in("music")
        song = apis.music.show_player(access_token=music)["song"]
        print(song)
        # I like it.
        print(apis.music.like(song_id=song["id"], access_token=music))
        # Now I need the playlist '{playlist}'.
        lists = apis.music.list_playlists(page_size=20, access_token=music)
        print([(p["id"], p["name"]) for p in lists])
        # I add the song to it.
        here = [p["id"] for p in lists if p["name"] == playlist][0]
        print(apis.music.add_to_playlist(playlist_id=here, song_id=song["id"], access_token=music))
        # The song is liked and on the playlist.
        apis.owner.complete_task()


class ShareFile(Scenario):
    """Share a file with someone."""

    split, difficulty = "test_challenge", 1
    apis = ("files.search", "contacts.search", "files.share")
    phrasings = (
        "Share my file '{name}' with my {relation}.",
        "My {relation} should be able to read the file '{name}'. Please share it.",
        "In my files there is one called '{name}'. Give my {relation} access to it.",
        "I promised my {relation} a look at '{name}', which is one of my files. Share it with them.",
    )

    def prepare(self, w: World) -> Goal:
        name, relation = w.rng.choice(_PAPERS), w.rng.choice(ALONE)
        _add_file(w, w.owner, "Downloads", f"old-{name}", days=2)
        _add_file(w, w.owner, "Documents", "reminder.txt", text=f"Look through {name} again.", days=1)
        file = _add_file(w, w.owner, w.rng.choice(("Documents", "Work")), name, days=w.rng.randrange(5, 90))
        goal = Goal(w, name=name, relation=relation)
        goal.do("files.share", file_id=file, email=w.others(relation)[0].email)
        return goal

    @staticmethod
    def solve(apis: Any, name: str, relation: str) -> None:
        # I look for the file.
        files, contacts = log_in("files", "contacts")
        found = apis.files.search(query=name, page_size=20, access_token=files)
        print([(f["id"], f["name"]) for f in found])
        # I look for my {relation} in the contacts, to get the address.
        cards = apis.contacts.search(query=relation, access_token=contacts)
        print(cards)
        # I share the file that is called just '{name}'.
        this = [f["id"] for f in found if f["name"] == name][0]
        print(apis.files.share(file_id=this, email=cards[0]["email"], access_token=files))
        # The file is shared.
        apis.owner.complete_task()


class CorrectLastExpense(Scenario):
    """Correct the last expense of its title that someone paid in a group, and comment on it."""

    split, difficulty = "test_challenge", 2
    apis = ("expenses.list_groups", "expenses.list_expenses", "expenses.update_expense", "expenses.add_comment")
    phrasings = (
        "The last '{title}' that {name} paid in the expenses group '{group}' should be {amount}. Correct the amount, "
        "and comment '{text}' on it.",
        "In the expenses group '{group}' there is a wrong amount: the latest '{title}' that was paid by {name} cost "
        "{amount}. Please fix that expense and add the comment '{text}'.",
        "{name} mistyped an amount: of the expenses '{title}' that {name} has paid in '{group}', the most recent one "
        "was really {amount}. Change it and leave the comment '{text}' there.",
        "Find the newest expense '{title}' paid by {name} in my expenses group '{group}', set its amount to {amount}, "
        "and write '{text}' as a comment on it.",
    )

    def prepare(self, w: World) -> Goal:
        payer, *others = w.rng.sample(w.others(*CIRCLES), 4)
        group, here, old = _make_group(w, [payer, *others])
        title = w.rng.choice(_BOUGHT)
        days = sorted(w.rng.sample(range(2, 60), 13))
        place, ids = w.rng.randrange(5, 9), []
        for number, ago in enumerate(days):
            paid = w.rng.choice([w.owner, *others] if number < place else [payer, *others])
            ids.append(_spend(w, here, payer if number == place else paid, title, w.rng.randrange(500, 4000), ago))
        _spend(w, here, payer, f"{title} (again)", w.rng.randrange(500, 4000), 1)
        _spend(w, old, payer, title, w.rng.randrange(500, 4000), 1)
        text = w.rng.choice(("Corrected", "See the bill", "Typing error", "Now it is right"))
        goal = Goal(w, group=group, title=title, name=payer.name, amount=amount_between(w, 41, 80), text=text)
        goal.do("expenses.update_expense", expense_id=ids[place], amount=float(goal.slots["amount"]))
        goal.do("expenses.add_comment", expense_id=ids[place], text=text)
        return goal

    @staticmethod
    def solve(apis: Any, group: str, title: str, name: str, amount: float, text: str) -> None:
        # I need the id of the group.
        expenses = log_in("expenses")
        groups = apis.expenses.list_groups(access_token=expenses)
        print([(g["id"], g["name"]) for g in groups])
        # I collect its expenses '{title}' from all pages and keep those that {name} paid; the newest comes first.
        here = [g["id"] for g in groups if g["name"] == group][0]
        items = every(apis.expenses.list_expenses(group_id=here, query=title, access_token=expenses))
        paid = [x for x in items if x["title"] == title and x["paid_by"] == name]
        print([(x["id"], x["day"], x["amount"]) for x in paid])
        # I correct the first and comment on it.
        print(apis.expenses.update_expense(expense_id=paid[0]["id"], amount=amount, access_token=expenses))
        print(apis.expenses.add_comment(expense_id=paid[0]["id"], text=text, access_token=expenses))
        # The expense is corrected.
        apis.owner.complete_task()


class EmptyBin(Scenario):
    """Restore the files of a folder, empty the bin, and say how much room there is."""

    split, difficulty = "test_challenge", 2
    apis = ("files.list_bin", "files.restore", "files.empty_bin", "files.show_usage")
    phrasings = (
        "Take every file that was directly in my folder {folder} out of the bin again, but none from its subfolders. "
        "Then empty the bin. How many KB of my quota are free after that?",
        "I want to empty the bin of my files, but first restore what was in {folder} itself (not in a subfolder of "
        "it). When the bin is empty, tell me how many KB of the quota I have left.",
        "Some files from {folder} are in the bin by mistake: put them back where they were. Those from subfolders of "
        "{folder} stay in the bin, which you then empty for good. How many KB of my quota are unused in the end?",
        "Clean up the bin of my files: what was in the folder {folder} (exactly this one, no subfolder) goes back "
        "there, and all the rest is deleted for good. Afterwards tell me the free part of my storage quota in KB.",
    )

    def prepare(self, w: World) -> Goal:
        folder, below = w.rng.choice((("Documents", "Documents/Taxes"), ("Work", "Work/Reports")))
        others = w.rng.choices(("Downloads", "Photos", "Recipes"), k=5)
        places = [folder, below, *others, below, *(folder,) * w.rng.randrange(2, 4)]
        binned = {}
        for name, place in zip(sorted(w.rng.sample(_PAPERS, len(places))), places, strict=True):
            binned[_add_file(w, w.owner, place, name, kb=w.rng.randrange(40, 3000))] = place
        w.run(f"UPDATE files_files SET binned = 1 WHERE id IN ({', '.join(map(str, binned))})")
        goal = Goal(w, folder=folder)
        for file, place in binned.items():
            if place == folder:
                goal.do("files.restore", file_id=file)
        goal.do("files.empty_bin")
        usage = act(goal.wish, "files.show_usage", {})
        goal.answer = usage["quota_kb"] - usage["kb"]
        return goal

    @staticmethod
    def solve(apis: Any, folder: str) -> None:
        # I collect what is in the bin from all pages.
        files = log_in("files")
        binned = every(apis.files.list_bin(access_token=files))
        print([(f["name"], f["folder"]) for f in binned])
        # I restore what was in {folder}.
        for f in binned:
            if f["folder"] == folder:
                print(f["name"], apis.files.restore(file_id=f["id"], access_token=files))
        # Now I empty the bin and look how much room the files take.
        print(apis.files.empty_bin(access_token=files))
        usage = apis.files.show_usage(access_token=files)
        print(usage)
        # The bin is empty; what the files do not take is free.
        apis.owner.complete_task(answer=usage["quota_kb"] - usage["kb"])


class QueueNewestAlbum(Scenario):
    """Queue the newest album of an artist."""

    split, difficulty = "test_challenge", 2
    apis = (
        *("music.search_albums", "music.search_songs", "music.list_queue", "music.queue_song"),
        *("music.next", "music.set_volume"),
    )
    phrasings = (
        "Put the songs of the newest album by {artist} into my music queue, except those that are in the queue "
        "already. Then skip to the next song and set the volume to {volume}.",
        "Queue {artist}'s latest album for me, leaving out the songs that I have queued already. After that set the "
        "player's volume to {volume} and go to the next song in the queue.",
        "I would like to hear the most recent album of {artist}: add its songs to my queue if they are not in it yet. "
        "Turn the volume to {volume}, then let the player go on to the next song.",
        "The newest album by {artist} should be in my music queue. Some of its songs may be there; queue the others. "
        "Once that is done, skip to the next song, at volume {volume}.",
    )

    def prepare(self, w: World) -> Goal:
        artist, other = w.rng.sample(sorted({song["artist"] for song in _songs(w)}), 2)
        titles = w.rng.sample(_SONGS, 10)
        albums = {f"A Tribute to {artist}": (other, titles[7:9]), f"{titles[9]} Tapes": (artist, titles[:7])}
        ids = []
        for album, (by, songs) in albums.items():
            genre = w.value("SELECT genre FROM music_songs WHERE artist = ?", by)
            more = {"artist": by, "album": album, "genre": genre, "year": w.now.year, "seconds": 200}
            ids = [w.add("music_songs", title=title, **more) for title in songs]
        queued = w.rng.sample(ids, 2)
        for song in queued:
            w.add("music_queue", owner=w.owner.id, song=song)
        goal = Goal(w, artist=artist, volume=w.rng.choice((20, 30, 35, 65, 70, 80)))
        for song in ids:
            if song not in queued:
                goal.do("music.queue_song", song_id=song)
        goal.do("music.next")
        goal.do("music.set_volume", volume=goal.slots["volume"])
        return goal

    @staticmethod
    def solve(apis: Any, artist: str, volume: int) -> None:
        # I look for the albums of {artist}; others may have the name in their title.
        music = log_in("music")
        albums = every(apis.music.search_albums(query=artist, access_token=music))
        albums = [a for a in albums if a["artist"] == artist]
        print(albums)
        # The newest has the highest year. I need its songs, and what is queued.
        newest = max(albums, key=lambda a: a["year"])["album"]
        songs = every(apis.music.search_songs(query=newest, artist=artist, access_token=music))
        queue = every(apis.music.list_queue(access_token=music))
        queued = [s["id"] for s in queue]
        missing = [s for s in songs if s["id"] not in queued]
        print([s["title"] for s in songs], [s["title"] for s in missing])
        # I queue those that are missing.
        for s in missing:
            apis.music.queue_song(song_id=s["id"], access_token=music)
        # What remains is the next song and the volume.
        print(apis.music.next(access_token=music))
        print(apis.music.set_volume(volume=volume, access_token=music))
        # The album is queued.
        apis.owner.complete_task()


class FriendsFavourites(Scenario):
    """Add the songs of a genre on someone's playlist to the library, and rate them."""

    split, difficulty = "test_challenge", 2
    apis = (
        *("music.search_public", "music.list_playlist_songs", "music.show_song"),
        *("music.add_to_library", "music.rate"),
    )
    phrasings = (
        "Add the {genre} songs from {name}'s public playlist '{playlist}' to my music library, apart from those I "
        "already have there. Give each song that you add {stars} stars.",
        "{name} has made a public playlist called '{playlist}'. I want all the {genre} songs on it in my library. Rate "
        "those that were not there before with {stars} stars, and leave the others as they are.",
        "Go through the public playlist '{playlist}' of {name}. Every {genre} song that is missing in my library "
        "should go in, with {stars} stars.",
        "From '{playlist}', a public playlist by {name}, take the {genre} songs that are not in my library yet: add "
        "them to it and rate them {stars} stars each.",
    )

    def prepare(self, w: World) -> Goal:
        person, other = w.rng.sample(w.others(), 2)
        name, genre = w.rng.choice(_LISTS), w.rng.choice(("rock", "jazz", "folk"))
        mine = [song["id"] for song in w.rng.sample(_songs(w, "genre = ?", genre), 8)]
        others = [song["id"] for song in w.rng.sample(_songs(w, "genre <> ?", genre), 12)]
        new, known, elsewhere = mine[: w.rng.randrange(2, 5)], mine[4:6], mine[6:]
        for table in ("library", "ratings"):
            w.run(f"DELETE FROM music_{table} WHERE song IN ({', '.join(map(str, new))})")
        for song in known:
            _keep_song(w, song)
        _add_playlist(w, other, name, [*elsewhere, *others[:3]])
        _add_playlist(w, person, f"{name} {w.now.year - 1}", [*elsewhere, *others[3:5]])
        _add_playlist(w, person, name, w.rng.sample([*new, *known, *others[5:]], len(new) + 9))
        goal = Goal(w, name=person.name, playlist=name, genre=genre, stars=w.rng.randrange(2, 6))
        for song in new:
            goal.do("music.add_to_library", song_id=song)
            goal.do("music.rate", song_id=song, stars=goal.slots["stars"])
        return goal

    @staticmethod
    def solve(apis: Any, name: str, playlist: str, genre: str, stars: int) -> None:
        # I look for the playlist.
        music = log_in("music")
        lists = every(apis.music.search_public(query=playlist, access_token=music))
        print(lists)
        # I take the one of {name} and collect its {genre} songs from all pages.
        here = [p["id"] for p in lists if p["name"] == playlist and p["owner"] == name][0]
        songs = every(apis.music.list_playlist_songs(playlist_id=here, access_token=music))
        songs = [s for s in songs if s["genre"] == genre]
        print([s["title"] for s in songs])
        # I look which of them are not in my library.
        new = [s for s in songs if not apis.music.show_song(song_id=s["id"], access_token=music)["in_library"]]
        print([s["title"] for s in new])
        # I add and rate these.
        for s in new:
            print(apis.music.add_to_library(song_id=s["id"], access_token=music))
            print(apis.music.rate(song_id=s["id"], stars=stars, access_token=music))
        # The new songs are in the library.
        apis.owner.complete_task()


class RequestDebts(Scenario):
    """Request what others owe the owner in a group, except from those who are asked already."""

    split, difficulty = "test_challenge", 2
    apis = (
        *("owner.show_profile", "expenses.list_groups", "expenses.list_debts", "expenses.show_group"),
        *("wallet.list_sent_requests", "wallet.request"),
    )
    phrasings = (
        "Check who should pay whom in the expenses group '{group}', and send those who should pay me a wallet request "
        "for it, with the note '{group}'. Skip people who already have an open request from me with this note.",
        "Everyone who should pay me according to the expenses group '{group}' gets a wallet request for the amount, "
        "with the note '{group}', but not those whom I have asked under the same note and whose request is still open.",
        "I want back what I paid for others in '{group}'. See in the expenses app who should pay me how much, and send "
        "each of them a wallet request with the note '{group}', unless one of mine with this note is open already.",
        "Use the list of who should pay whom in my expenses group '{group}'. From each person who should pay me, "
        "request that amount in the wallet with the note '{group}'; leave out anyone to whom I have an open request "
        "with the same note.",
    )

    def prepare(self, w: World) -> Goal:
        people = w.rng.sample(w.others(*CIRCLES), 5)
        group, here, _ = _make_group(w, people)
        for payer, low in ((w.owner, 5500), (people[0], 2500), (w.owner, 5500), (people[0], 2500)):
            _spend(w, here, payer, w.rng.choice(_BOUGHT), w.rng.randrange(low, low + 1000), w.rng.randrange(5, 90))
        debts = act(w, "expenses.list_debts", {"group_id": here})
        mine = w.rng.sample([debt for debt in debts if debt["creditor"] == w.owner.email], 3)
        earlier = ((0, group, "open"), (1, group, "withdrawn"), *((place, "taxi", "open") for place in (1, 2, 2)))
        for place, note, status in earlier:
            asked = {"amount_cents": 990, "note": note, "status": status, "at": w.ago(70)}
            w.add("wallet_requests", owner=w.owner.id, payer=w.person_with(mine[place]["debtor"]), **asked)
        goal = Goal(w, group=group)
        for debt in debts:
            if debt["creditor"] == w.owner.email and debt != mine[0]:
                goal.do("wallet.request", email=debt["debtor"], amount=debt["amount"], note=group)
        return goal

    @staticmethod
    def solve(apis: Any, group: str) -> None:
        # I need the id of the group, and my own address.
        expenses, wallet = log_in("expenses", "wallet")
        me = apis.owner.show_profile()["email"]
        groups = apis.expenses.list_groups(access_token=expenses)
        print(me, [(g["id"], g["name"]) for g in groups])
        # I look who should pay me.
        here = [g["id"] for g in groups if g["name"] == group][0]
        debts = apis.expenses.list_debts(group_id=here, access_token=expenses)
        debts = [d for d in debts if d["creditor"] == me]
        print(debts)
        # I collect whom I have asked already, from all pages.
        requests = every(apis.wallet.list_sent_requests(status="open", access_token=wallet))
        asked = [r["name"] for r in requests if r["note"] == group]
        print(asked)
        # The group says which name belongs to which address.
        members = apis.expenses.show_group(group_id=here, access_token=expenses)["members"]
        names = {m["email"]: m["name"] for m in members}
        print(names)
        # I ask all the others.
        for d in debts:
            if names[d["debtor"]] not in asked:
                print(apis.wallet.request(email=d["debtor"], amount=d["amount"], note=group, access_token=wallet))
        # Everyone is asked.
        apis.owner.complete_task()


class StopSharing(Scenario):
    """Stop sharing files with someone, and say which they were."""

    split, difficulty = "test_challenge", 2
    apis = ("contacts.search", "files.search", "files.show", "files.unshare")
    phrasings = (
        "{name} should no longer be able to read any of my files. Stop sharing them, and tell me the names of the "
        "files that {name} could read.",
        "Which of my files do I share with {name}? Stop sharing all of them with {name}, and give me their names.",
        "Go through all my files and end every share with {name}. I would like a list of the names of these files.",
        "I do not want to share files with {name} any more. Unshare whatever {name} can read of mine, and answer with "
        "the names of those files.",
    )

    def prepare(self, w: World) -> Goal:
        person, *others = w.rng.sample(w.others(), 4)
        mine = w.all("SELECT id FROM files_files WHERE owner = ? AND binned = 0 ORDER BY id", w.owner.id)
        for reader, count in ((person, w.rng.randrange(3, 6)), *((other, 3) for other in others)):
            for row in w.rng.sample(mine, count):
                w.run("INSERT OR IGNORE INTO files_shares (file, person) VALUES (?, ?)", row["id"], reader.id)
        w.add("files_shares", file=_add_file(w, person, "Documents", "schedule.csv"), person=w.owner.id)
        goal = Goal(w, name=person.name)
        shared = (
            "SELECT f.id, name FROM files_files f JOIN files_shares s ON s.file = f.id WHERE owner = ? AND person = ?"
        )
        found = w.all(f"{shared} ORDER BY f.id", w.owner.id, person.id)
        for row in found:
            goal.do("files.unshare", file_id=row["id"], email=person.email)
        goal.answer = [row["name"] for row in found]
        return goal

    @staticmethod
    def solve(apis: Any, name: str) -> None:
        # I look for {name} in the contacts, to get the address.
        contacts, files = log_in("contacts", "files")
        email = apis.contacts.search(query=name, access_token=contacts)[0]["email"]
        print(email)
        # I go through all pages of my files and look with whom each is shared.
        everything = every(apis.files.search(access_token=files))
        shown = [apis.files.show(file_id=f["id"], access_token=files) for f in everything]
        shared = [f for f in shown if email in f["shared_with"]]
        print(len(shown), [f["name"] for f in shared])
        # I stop sharing these.
        for f in shared:
            print(apis.files.unshare(file_id=f["id"], email=email, access_token=files))
        # I answer with their names.
        apis.owner.complete_task(answer=[f["name"] for f in shared])


class SettleAndLeave(Scenario):
    """Pay and record what the owner owes in a group, tell those who are paid, and leave the group."""

    split, difficulty = "test_challenge", 3
    apis = (
        *("owner.show_profile", "expenses.list_groups", "expenses.list_debts", "wallet.send", "expenses.settle_up"),
        *("contacts.search", "phone.send_message", "expenses.leave_group"),
    )
    phrasings = (
        "I want to leave the expenses group '{group}'. Send everyone I should pay there their money by wallet, with "
        "the note '{group}', record each payment in the group, text each of them '{text}', and leave the group.",
        "Get me out of '{group}' in the expenses app: make the wallet payments that I owe (note '{group}'), enter them "
        "in the group as paid back, leave it, and send '{text}' as a text message to each person who got money.",
        "Settle my debts in the expenses group '{group}' as it suggests. Each person I should pay gets their money by "
        "wallet with the note '{group}', a record of that in the group, and the text message '{text}'. Then leave the "
        "group for me.",
        "The expenses group '{group}' is over for me. Pay those who should get money from me through the wallet with "
        "the note '{group}', record it in the group as paid back, and text '{text}' to the people you paid. Then leave "
        "the group.",
    )

    def prepare(self, w: World) -> Goal:
        people = w.rng.sample(w.others(*CIRCLES), 5)
        group, here, _ = _make_group(w, people)
        for payer in people[:2]:  # the owner owes more than either is owed, so both get something
            _spend(w, here, payer, w.rng.choice(_BOUGHT), w.rng.randrange(3600, 4400), w.rng.randrange(5, 90))
            _spend(w, here, payer, "Deposit", w.rng.randrange(1800, 2000), w.rng.randrange(5, 90), w.owner)
        text = w.rng.choice(("I have paid my part", "Your money is on its way", "We are even now", "That was the rest"))
        goal = Goal(w, group=group, text=text)
        for debt in act(w, "expenses.list_debts", {"group_id": here}):
            if debt["debtor"] == w.owner.email:
                email, amount = debt["creditor"], debt["amount"]
                goal.do("wallet.send", email=email, amount=amount, note=group)
                goal.do("expenses.settle_up", group_id=here, paid_by=w.owner.email, paid_to=email, amount=amount)
                number = next(person.phone for person in people if person.email == email)
                goal.do("phone.send_message", number=number, text=text)
        goal.do("expenses.leave_group", group_id=here)
        return goal

    @staticmethod
    def solve(apis: Any, group: str, text: str) -> None:
        # I need the id of the group, and my own address.
        expenses, wallet, contacts, phone = log_in("expenses", "wallet", "contacts", "phone")
        me = apis.owner.show_profile()["email"]
        groups = apis.expenses.list_groups(access_token=expenses)
        print(me, [(g["id"], g["name"], g["your_balance"]) for g in groups])
        # I look whom I should pay.
        here = [g["id"] for g in groups if g["name"] == group][0]
        debts = apis.expenses.list_debts(group_id=here, access_token=expenses)
        debts = [d for d in debts if d["debtor"] == me]
        print(debts)
        # I pay each of them, record it, and text them.
        for d in debts:
            email, amount = d["creditor"], d["amount"]
            apis.wallet.send(email=email, amount=amount, note=group, access_token=wallet)
            apis.expenses.settle_up(group_id=here, paid_by=me, paid_to=email, amount=amount, access_token=expenses)
            number = apis.contacts.search(query=email, access_token=contacts)[0]["phone"]
            print(apis.phone.send_message(number=number, text=text, access_token=phone))
        # Nothing is owed any more, so I can leave the group.
        print(apis.expenses.leave_group(group_id=here, access_token=expenses))
        # All is paid, recorded and told.
        apis.owner.complete_task()


class ReceiptsIntoGroup(Scenario):
    """Enter the receipts in a folder as expenses of a group, where they are missing, and tell the others."""

    split, difficulty = "test_challenge", 3
    apis = (
        *("files.list_folder", "files.show", "expenses.list_groups", "expenses.list_expenses", "expenses.add_expense"),
        *("files.delete", "expenses.show_group", "owner.show_profile", "mail.send"),
    )
    phrasings = (
        "Each file in my folder {folder} is a receipt. Enter those that are not in the expenses group '{group}' yet "
        "(with the same title, amount and day): paid by me on that day, split equally between all members. Put their "
        "files into the bin, and send all other members one mail, subject '{group}', whose text is just the total of "
        "what you entered, like 123.40.",
        "I paid what the files in {folder} say. Compare title, amount and day with the expenses group '{group}'; what "
        "is missing there becomes an expense of that day, paid by me, in equal parts for everyone. Delete the files of "
        "those. Then mail the sum of the new expenses, only the number like 123.40, to all the other members together, "
        "with the subject '{group}'.",
        "Go through the receipts in the folder {folder}. If the expenses group '{group}' has an expense with the same "
        "title, amount and day, do nothing. If not, add it for that day with me as the payer, split equally among all, "
        "and delete the file. At the end write one mail to the other members, with the subject '{group}' and nothing "
        "but the total you added as text, like 123.40.",
        "Some receipts in my folder {folder} are already in the expenses group '{group}', with the same title, amount "
        "and day. Add the others, on their day, as paid by me and shared equally by all, and put their files into the "
        "bin. The other members get one mail about it together: subject '{group}', text only the total of what you "
        "added, like 123.40.",
    )

    def prepare(self, w: World) -> Goal:
        people = w.rng.sample(w.others(*CIRCLES), 3)
        group, here, old = _make_group(w, people)
        folder, new = w.rng.choice(("Receipts", "Bills", "Slips")), w.rng.sample(range(9), w.rng.randrange(4, 7))
        w.add("files_folders", owner=w.owner.id, path=folder)
        receipts: list[tuple[int, dict[str, Any]]] = []
        for number, title in enumerate(w.rng.sample(_BOUGHT, 9)):
            cents, days = w.rng.randrange(310, 6000, 5), w.rng.randrange(3, 60)
            text = f"Title: {title}\nAmount: {cents / 100:.2f}\nDay: {w.day(-days)}"
            file = _add_file(w, w.owner, folder, f"receipt-{number + 1}.txt", text)
            if number in new:
                receipts.append((file, {"title": title, "amount": cents / 100, "day": w.day(-days)}))
                _spend(w, here, w.owner, title, cents, days + 30)
                _spend(w, here, people[0], title, cents + 100, days)
            _spend(w, old if number in new else here, w.owner, title, cents, days)
        goal = Goal(w, folder=folder, group=group)
        for file, entered in receipts:
            goal.do("expenses.add_expense", group_id=here, **entered)
            goal.do("files.delete", file_id=file)
        total = sum(entered["amount"] for _, entered in receipts)
        goal.do("mail.send", to=[person.email for person in people], subject=group, body=f"{total:.2f}")
        return goal

    @staticmethod
    def solve(apis: Any, folder: str, group: str) -> None:
        # I collect the files of the folder from all pages and read them.
        files, expenses, mail = log_in("files", "expenses", "mail")
        found = every(apis.files.list_folder(folder=folder, access_token=files))
        receipts = [apis.files.show(file_id=f["id"], access_token=files) for f in found]
        for r in receipts:
            print(r["name"], r["text"].splitlines())
        # Each has a title, an amount and a day; I take them apart.
        for r in receipts:
            title, amount, day = [line.split(": ")[1] for line in r["text"].splitlines()]
            r["said"] = (title, float(amount), day)
        groups = apis.expenses.list_groups(access_token=expenses)
        print([(g["id"], g["name"]) for g in groups])
        # I compare them with all expenses of the group.
        here = [g["id"] for g in groups if g["name"] == group][0]
        items = every(apis.expenses.list_expenses(group_id=here, access_token=expenses))
        entered = [(x["title"], x["amount"], x["day"]) for x in items]
        new = [r for r in receipts if r["said"] not in entered]
        print([r["said"] for r in new])
        # I enter what is new and put its file into the bin.
        for r in new:
            title, amount, day = r["said"]
            apis.expenses.add_expense(group_id=here, title=title, amount=amount, day=day, access_token=expenses)
            print(apis.files.delete(file_id=r["id"], access_token=files))
        # The other members should know the total.
        me = apis.owner.show_profile()["email"]
        members = apis.expenses.show_group(group_id=here, access_token=expenses)["members"]
        others = [m["email"] for m in members if m["email"] != me]
        total = sum([r["said"][1] for r in new])
        print(apis.mail.send(to=others, subject=group, body=f"{total:.2f}", access_token=mail))
        # The receipts are entered and the mail is sent.
        apis.owner.complete_task()


class PartyPlaylist(Scenario):
    """Make a playlist of the songs that the guests who come have asked for by mail, and tell them."""

    split, difficulty = "test_challenge", 3
    apis = (
        *("calendar.list_upcoming", "calendar.list_guests", "mail.search", "mail.show", "music.search_songs"),
        *("music.create_playlist", "music.add_to_playlist", "contacts.search", "phone.send_message"),
    )
    phrasings = (
        "People have mailed me song wishes for my '{event}', with the subject '{subject}'. Make a public playlist "
        "'{event}' with the songs of those guests who have accepted, leaving out songs that the music app does not "
        "have. Text '{text}' to each guest whose wishes you used.",
        "For my event '{event}' I need a public playlist of the same name. The songs are in mails with the subject "
        "'{subject}'; only mails from guests who accepted count, and what the music app does not know is skipped. Then "
        "each of these senders gets the text message '{text}'.",
        "My '{event}' is coming up. Of the mails titled '{subject}', take those by guests who have accepted, put all "
        "the songs in them that exist in the music app on a new public playlist '{event}', and send their writers the "
        "text message '{text}'.",
        "Make '{event}', a new public playlist for my event '{event}'. In the mails with the subject '{subject}' are "
        "the songs people want; use what guests who have accepted wrote there, as far as the music app has it, and let "
        "those whose wishes you used know by text message: '{text}'.",
    )

    def prepare(self, w: World) -> Goal:
        event = w.rng.choice(("Garden Party", "House Warming", "Rooftop Evening", "Summer Feast", "Farewell Night"))
        subject = w.rng.choice(("My songs", "Music wishes", "For the playlist"))
        *guests, quiet, stranger = w.rng.sample(w.others(*CIRCLES), 9)
        coming = guests[: w.rng.randrange(3, 5)]
        answers = {guest: "accepted" if guest in coming else w.rng.choice(("open", "declined")) for guest in guests}
        add_event(w, w.owner, event, f"{w.day(w.rng.randrange(3, 20))} 19:30", answers | {quiet: "accepted"})
        songs, wished = w.rng.sample(_songs(w), 14), set()
        for song in songs[:6]:  # albums with a title song: looking for the song finds all of the album
            w.run("UPDATE music_songs SET album = ? WHERE album = ?", song["title"], song["album"])
        for person in w.rng.sample([*guests, stranger], 8):
            wishes = w.rng.sample(songs[1:], 3)
            lines = [f"- {title}" for title in (*(song["title"] for song in wishes), w.rng.choice(_SONGS))]
            body = "\n".join(["I would love to hear:", *w.rng.sample(lines, 4)])
            deliver(w, person.name, person.email, subject, body, w.ago(hours=w.rng.randrange(2, 90)))
            deliver(w, person.name, person.email, f"{subject} for New Year", f"- {songs[0]['title']}", w.ago(days=9))
            if person in coming:
                wished |= {song["id"] for song in wishes}
        text = w.rng.choice(("Your songs are on the list", "Looking forward to dancing", "Thanks for the music"))
        goal = Goal(w, event=event, subject=subject, text=text)
        playlist = goal.do("music.create_playlist", name=event, public=True)["playlist_id"]
        for song in sorted(wished):
            goal.do("music.add_to_playlist", playlist_id=playlist, song_id=song)
        for guest in coming:
            goal.do("phone.send_message", number=guest.phone, text=text)
        return goal

    @staticmethod
    def solve(apis: Any, event: str, subject: str, text: str) -> None:
        # I look for the event.
        calendar, mail, music, contacts, phone = log_in("calendar", "mail", "music", "contacts", "phone")
        events = apis.calendar.list_upcoming(query=event, access_token=calendar)
        print(events)
        # I collect the guests who have accepted, from all pages.
        guests = every(apis.calendar.list_guests(event_id=events[0]["id"], access_token=calendar))
        coming = [g["email"] for g in guests if g["answer"] == "accepted"]
        print(coming)
        # I read the mails and keep those of these guests.
        found = every(apis.mail.search(query=subject, access_token=mail))
        mails = [apis.mail.show(message_id=m["id"], access_token=mail) for m in found if m["subject"] == subject]
        mails = [m for m in mails if m["address"] in coming]
        for m in mails:
            print(m["sender"], m["body"].splitlines())
        # The songs are the lines with a dash; I look each up, once.
        titles = {line[2:] for m in mails for line in m["body"].splitlines() if line.startswith("- ")}
        songs = []
        for title in sorted(titles):
            hits = apis.music.search_songs(query=title, page_size=20, access_token=music)
            songs += [s for s in hits if s["title"] == title]
        print(len(titles), [s["title"] for s in songs])
        # I make the playlist.
        made = apis.music.create_playlist(name=event, public=True, access_token=music)
        for s in songs:
            print(apis.music.add_to_playlist(playlist_id=made["playlist_id"], song_id=s["id"], access_token=music))
        # I text those who wrote the mails.
        for m in mails:
            number = apis.contacts.search(query=m["address"], access_token=contacts)[0]["phone"]
            print(apis.phone.send_message(number=number, text=text, access_token=phone))
        # The playlist is ready.
        apis.owner.complete_task()


class SharedShoppingList(Scenario):
    """Put what a shared file lists into the cart, the rest on a to-do list, and tell the file's owner."""

    split, difficulty = "test_challenge", 3
    apis = (
        *("files.list_shared_with_me", "files.show", "shop.search", "shop.add_to_cart", "todo.list_lists", "todo.add"),
        *("contacts.search", "phone.send_message"),
    )
    phrasings = (
        "{name} shared the file '{file}' with me: each line says how many of what we need. Put everything that the "
        "shop has enough of in stock into my cart, in that quantity. Every other line goes on my {list_name} list, "
        "just as it is written. Then text {name} '{text}'.",
        "Work through the lines of '{file}', a file that {name} shares with me. If the shop has enough of the product "
        "in stock, put that many into my cart; if not, add the line word for word to my to-do list {list_name}. At the "
        "end send {name} the text message '{text}'.",
        "The shopping list of {name} is in the file '{file}', which is shared with me. I want it in my shop cart, with "
        "its quantities. A line for which the shop has too few in stock, or nothing at all, should become an item of "
        "my {list_name} list instead, unchanged. Text '{text}' to {name} when you are done.",
        "Fill my shop cart with what {name}'s file '{file}' says, in the quantities given there (the file is shared "
        "with me). Only what is in stock in full goes into the cart; the other lines go, as they are, on my to-do list "
        "{list_name}. Finish with a text message to {name}: '{text}'.",
    )

    def prepare(self, w: World) -> Goal:
        person, other = w.rng.sample(w.others("family", "flatmates", "friends"), 2)
        file = w.rng.choice(("shopping.txt", "we-need.txt", "for-the-flat.txt"))
        list_name, list_id = w.rng.choice(list(owned_lists(w).items()))
        free = "SELECT * FROM shop_products WHERE id NOT IN (SELECT product FROM shop_cart WHERE owner = ?) ORDER BY id"
        bought, rest = {}, [f"{w.rng.randrange(2, 9)} x {w.rng.choice(('Ladder', 'Doormat', 'Bucket'))}"]
        for place, row in enumerate(w.rng.sample(w.all(free, w.owner.id), w.rng.randrange(5, 8))):
            quantity = w.rng.randrange(2, 6)
            line = f"{quantity} x {row['name']}"
            w.run("UPDATE shop_products SET stock = ? WHERE id = ?", quantity - 1 + place % 3, row["id"])
            if place % 3:
                bought[line] = {"product_id": row["id"], "quantity": quantity}
            else:
                rest.append(line)
        wrong = "4 x Kettle Basic\n2 x Desk Plus"
        right = "\n".join(w.rng.sample([*bought, *rest], len(bought) + len(rest)))
        for owner, name, text in ((other, file, wrong), (person, f"old-{file}", wrong), (person, file, right)):
            w.add("files_shares", file=_add_file(w, owner, "Documents", name, text), person=w.owner.id)
        said = w.rng.choice(("I took care of your list", "The shopping is under way", "Everything is noted"))
        goal = Goal(w, name=person.name, file=file, list_name=list_name, text=said)
        for added in bought.values():
            goal.do("shop.add_to_cart", **added)
        for line in rest:
            goal.do("todo.add", list_id=list_id, text=line)
        goal.do("phone.send_message", number=person.phone, text=said)
        return goal

    @staticmethod
    def solve(apis: Any, name: str, file: str, list_name: str, text: str) -> None:
        # I look for the file among those that are shared with me.
        files, shop, todo, contacts, phone = log_in("files", "shop", "todo", "contacts", "phone")
        shared = every(apis.files.list_shared_with_me(access_token=files))
        print([(f["id"], f["name"], f["owner"]) for f in shared])
        # I read the one of {name}.
        this = [f["id"] for f in shared if f["name"] == file and f["owner"] == name][0]
        lines = apis.files.show(file_id=this, access_token=files)["text"].splitlines()
        print(lines)
        # I look up each product and whether there is enough of it; if so, I put it into the cart.
        rest = []
        for line in lines:
            count, product = line.split(" x ")
            hits = apis.shop.search(query=product, page_size=20, access_token=shop)
            enough = [p["id"] for p in hits if p["name"] == product and p["stock"] >= int(count)]
            if enough:
                print(apis.shop.add_to_cart(product_id=enough[0], quantity=int(count), access_token=shop))
            else:
                rest.append(line)
        print(rest)
        # The rest goes on the list {list_name}.
        lists = apis.todo.list_lists(access_token=todo)
        here = [x["id"] for x in lists if x["name"] == list_name][0]
        for line in rest:
            print(apis.todo.add(list_id=here, text=line, access_token=todo))
        # Now I text {name}.
        number = apis.contacts.search(query=name, access_token=contacts)[0]["phone"]
        print(apis.phone.send_message(number=number, text=text, access_token=phone))
        # Everything is in the cart or on the list.
        apis.owner.complete_task()


class PaymentsAsFile(Scenario):
    """List the payments with a note in a file, share it with someone and mail them the total."""

    split, difficulty = "test_challenge", 3
    apis = (
        *("wallet.search_transactions", "files.create_folder", "files.create", "contacts.search", "files.share"),
        "mail.send",
    )
    phrasings = (
        "Make a folder {folder} in my files, and in it the file '{file}' with all wallet payments that I sent with the "
        "note '{note}' since {day}: one line each, like 2026-01-31,Ann Lee,12.50, oldest first, no header. Share it "
        "with my {relation}, and mail them just the total, like 123.40, with the subject '{file}'.",
        "My {relation} wants to know what I have paid for '{note}' since {day}. List what I sent by wallet with just "
        "this note in a new file '{file}' in a new folder {folder}: oldest first, no header, a line for each like "
        "2026-01-31,Ann Lee,12.50. Share the file with my {relation} and send them a mail, subject '{file}', with the "
        "total and nothing else as text, like 123.40.",
        "Create the folder {folder} and in it '{file}'. Each line is a payment I have sent since {day} whose note in "
        "the wallet is '{note}', as day, full name and amount (2026-01-31,Ann Lee,12.50), from oldest to newest and "
        "without a header. Share the file with my {relation}, and mail them the sum alone (like 123.40) under the "
        "subject '{file}'.",
        "Collect the payments I made by wallet since {day} with the note '{note}' (this note exactly, and only what I "
        "sent). They go into the file '{file}' in the folder {folder}, both still to be made, as lines such as "
        "2026-01-31,Ann Lee,12.50 in order of time, no header. My {relation} gets access to it, and a mail with the "
        "subject '{file}' whose whole text is the sum, like 123.40.",
    )

    def prepare(self, w: World) -> Goal:
        note, relation = w.rng.choice(("choir", "pottery", "rowing", "theatre")), w.rng.choice(ALONE)
        days = sorted(w.rng.sample(range(2, 100), 11), reverse=True)
        first, lines, total = w.rng.randrange(2, 5), [], 0
        for place, ago in enumerate(days):
            person, cents = w.rng.choice(w.others(*CIRCLES)), w.rng.randrange(150, 350, 5)
            transfer(w, w.owner.id, person.id, cents, note, w.ago(ago))
            if place >= first:
                lines.append(f"{w.day(-ago)},{person.name},{cents / 100:.2f}")
                total += cents
            if place % 4 == 0:
                transfer(w, person.id, w.owner.id, cents, note, w.ago(ago - 1))
                other = transfer(w, w.owner.id, person.id, cents, f"{note} shoes", w.ago(ago - 1))
                w.run("UPDATE wallet_transactions SET label = ? WHERE id = ?", note, other)
        folder, file = w.rng.choice(("Documents/Hobbies", "Work/Club", "Documents/Taxes/Leisure")), f"{note}-costs.csv"
        goal = Goal(w, note=note, day=w.day(-days[first]), folder=folder, file=file, relation=relation)
        email = w.others(relation)[0].email
        goal.do("files.create_folder", path=folder)
        made = goal.do("files.create", folder=folder, name=file, text="\n".join(lines))
        goal.do("files.share", file_id=made["file_id"], email=email)
        goal.do("mail.send", to=[email], subject=file, body=f"{total / 100:.2f}")
        return goal

    @staticmethod
    def solve(apis: Any, note: str, day: str, folder: str, file: str, relation: str) -> None:
        # I collect the payments with this note from all pages and keep those that I sent since {day}.
        wallet, files, contacts, mail = log_in("wallet", "files", "contacts", "mail")
        found = every(apis.wallet.search_transactions(query=note, access_token=wallet))
        paid = [t for t in found if t["note"] == note and t["direction"] == "sent" and t["at"] >= day]
        print(len(found), len(paid))
        # They come newest first; I turn them round and write the lines.
        paid = sorted(paid, key=lambda t: t["at"])
        lines = [t["at"][:10] + "," + t["name"] + "," + f"{t['amount']:.2f}" for t in paid]
        total = f"{sum([t['amount'] for t in paid]):.2f}"
        print(lines, total)
        # I make the folder and the file.
        print(apis.files.create_folder(path=folder, access_token=files))
        made = apis.files.create(folder=folder, name=file, text="\n".join(lines), access_token=files)
        print(made)
        # I look for my {relation} in the contacts, to get the address.
        cards = apis.contacts.search(query=relation, access_token=contacts)
        print(cards)
        # I share the file and send the mail.
        email = cards[0]["email"]
        print(apis.files.share(file_id=made["file_id"], email=email, access_token=files))
        print(apis.mail.send(to=[email], subject=file, body=total, access_token=mail))
        # The list is shared and the total is sent.
        apis.owner.complete_task()


class TidyLibrary(Scenario):
    """Remove songs with few stars from the library, unless a playlist has them; unfollow artists who have none left."""

    split, difficulty = "test_challenge", 3
    apis = (
        *("music.list_library", "music.list_playlists", "music.list_playlist_songs", "music.remove_from_library"),
        *("music.list_followed", "music.follow", "notes.create"),
    )
    phrasings = (
        "Tidy up my music library: remove every song that I gave {stars} stars or fewer, unless it is on one of my "
        "playlists. Songs without stars stay. Then stop following the artists of whom I have no song in the library, "
        "and write the removed titles into a new note '{title}', one per line in alphabetical order.",
        "I want to get rid of the songs in my library that I rated with at most {stars} stars. Those on any of my own "
        "playlists stay, and so do those I never rated. Unfollow the artists who have no song in my library after "
        "that. The titles you removed go into a new note '{title}': alphabetical, a line each.",
        "Go through my music library. A song with a rating of {stars} stars or less goes, except when one of my "
        "playlists has it; a song I have not rated stays in any case. Make a note '{title}' of nothing but the titles "
        "that went, one a line from A to Z. Of the artists I follow, drop all who then have no song in my library.",
        "Which songs in my library have {stars} stars or fewer from me (having none at all does not count) and are on "
        "none of my playlists? Remove them, and list their titles alphabetically in a new note '{title}', each on its "
        "own line. Finally, I no longer want to follow artists without any song in my library.",
    )

    def prepare(self, w: World) -> Goal:
        me, stars = w.owner.id, w.rng.randrange(2, 4)
        followed = [row["artist"] for row in w.all("SELECT artist FROM music_follows WHERE owner = ? ORDER BY 1", me)]
        lost = w.rng.choice(followed)
        of_lost = _songs(w, "artist = ?", lost)
        for song in of_lost:
            w.run("DELETE FROM music_library WHERE song = ?", song["id"])
            w.run("DELETE FROM music_tracks WHERE song = ?", song["id"])
        listed = "id IN (SELECT song FROM music_tracks t JOIN music_playlists p ON p.id = playlist WHERE owner = ?)"
        for song in (*w.rng.sample(of_lost, 2), *w.rng.sample(_songs(w, listed, me), 3)):
            _keep_song(w, song["id"])
            act(w, "music.rate", {"song_id": song["id"], "stars": w.rng.randrange(1, stars + 1)})
        poor = "id IN (SELECT song FROM music_library JOIN music_ratings USING (owner, song) WHERE stars <= ?)"
        removed = _songs(w, f"{poor} AND NOT {listed}", stars, me)
        title = w.rng.choice(("Songs I dropped", "Music clean-up", "Out of the library"))
        goal = Goal(w, stars=stars, title=title)
        for song in removed:
            goal.do("music.remove_from_library", song_id=song["id"])
        left = {song["artist"] for song in _songs(goal.wish, "id IN (SELECT song FROM music_library)")}
        for artist in followed:
            if artist not in left:
                goal.do("music.follow", artist=artist, follow=False)
        goal.do("notes.create", title=title, body="\n".join(sorted(song["title"] for song in removed)))
        return goal

    @staticmethod
    def solve(apis: Any, stars: int, title: str) -> None:
        # I collect my library from all pages; songs without a rating have no stars.
        music, notes = log_in("music", "notes")
        library = every(apis.music.list_library(access_token=music))
        poor = [s for s in library if s["stars"] is not None and s["stars"] <= stars]
        print(len(library), [s["title"] for s in poor])
        # I collect what is on my playlists.
        lists = every(apis.music.list_playlists(access_token=music))
        listed = []
        for p in lists:
            songs = every(apis.music.list_playlist_songs(playlist_id=p["id"], access_token=music))
            listed += [s["id"] for s in songs]
        removed = [s for s in poor if s["id"] not in listed]
        print([s["title"] for s in removed])
        # I remove those that are on none.
        for s in removed:
            apis.music.remove_from_library(song_id=s["id"], access_token=music)
        followed = apis.music.list_followed(access_token=music)
        print(followed)
        # I stop following those who have no song left in the library.
        left = [s["artist"] for s in library if s not in removed]
        for artist in followed:
            if artist not in left:
                print(artist, apis.music.follow(artist=artist, follow=False, access_token=music))
        # I write the note.
        body = "\n".join(sorted([s["title"] for s in removed]))
        print(apis.notes.create(title=title, body=body, access_token=notes))
        # The library is tidy.
        apis.owner.complete_task()


class TripAccounts(Scenario):
    """Turn a note of who paid what into an expenses group, tell its members, and say how the owner stands."""

    split, difficulty = "test_challenge", 3
    apis = (
        *("notes.search", "notes.show", "owner.show_profile", "contacts.search", "expenses.create_group"),
        *("expenses.add_expense", "expenses.list_groups", "mail.send"),
    )
    phrasings = (
        "My note '{title}' has a line for each thing that was paid on our trip: who, what, how much. Make an expenses "
        "group '{group}' of me and everyone in the note, and enter each line with today's date, split equally between "
        "all members; but where it ends with 'without' and a name, that person has no share. Mail the others together: "
        "subject '{group}', text '{text}'. What is my balance in the group (negative if I owe)?",
        "Set up the expenses group '{group}' from my note '{title}', with its people and me. Every line is a payer, a "
        "title and an amount and becomes an expense of today. All of us share it in equal parts, or all but the one "
        "named after 'without'. Then send all the others one mail, subject '{group}', text '{text}', and tell me my "
        "balance there, negative if I owe.",
        "I wrote down in '{title}', one of my notes, who paid what on our trip. Create an expenses group '{group}' of "
        "these people and me, with one expense for each line, dated today. Everyone has an equal share, except that "
        "somebody whom a line is 'without' has none. The others get one common mail that says '{text}', with the "
        "subject '{group}'. Answer with my balance in the group, negative if I owe.",
        "How do I stand after our trip? Payers, titles and amounts are in my note '{title}'. Put each line, dated "
        "today, into a new expenses group '{group}' of those people and me, divided equally among all, less whoever "
        "the line says it is 'without'. Mail '{text}' to the rest of the group, in a single mail with the subject "
        "'{group}', and give me my balance in it, negative if I owe.",
    )

    def prepare(self, w: World) -> Goal:
        people = [w.owner, *w.rng.sample(w.others(*CIRCLES), w.rng.randrange(3, 5))]
        city = w.rng.choice(("Lisbon", "Oslo", "Prague", "Dublin", "Vienna"))
        group, title = f"{city} trip", f"{city} costs"
        payers = [*people, *w.rng.choices(people, k=2)]
        paid: dict[str, dict[str, Any]] = {}
        for payer, what in zip(w.rng.sample(payers, len(payers)), w.rng.sample(_BOUGHT, len(payers)), strict=True):
            amount = amount_between(w, 5, 80)
            line, sharing = f"{payer.name}: {what}, {amount}", people
            if len(paid) % 3 == 1:
                without = w.rng.choice([person for person in people if person is not payer])
                line, sharing = f"{line} (without {without.name})", [p for p in people if p is not without]
            between = [person.email for person in sharing]
            paid[line] = {"title": what, "amount": float(amount), "paid_by": payer.email, "between": between}
        w.add("notes", owner=w.owner.id, title=title, body="\n".join(paid), created=w.ago(3))
        w.add("notes", owner=w.owner.id, title=f"{title} of {w.now.year - 1}", body="lost", created=w.ago(1))
        text = w.rng.choice(("The accounts are ready", "Please check the costs", "Everything is entered"))
        goal = Goal(w, title=title, group=group, text=text)
        others = [person.email for person in people[1:]]
        here = goal.do("expenses.create_group", name=group, emails=others)["group_id"]
        for expense in paid.values():
            goal.do("expenses.add_expense", group_id=here, **expense)
        goal.do("mail.send", to=others, subject=group, body=text)
        goal.answer = act(goal.wish, "expenses.list_groups", {})[-1]["your_balance"]
        return goal

    @staticmethod
    def solve(apis: Any, title: str, group: str, text: str) -> None:
        # I look for the note.
        notes, contacts, expenses, mail = log_in("notes", "contacts", "expenses", "mail")
        found = apis.notes.search(query=title, page_size=20, access_token=notes)
        print(found)
        # I read it, and who I work for.
        this = [n["id"] for n in found if n["title"] == title][0]
        lines = apis.notes.show(note_id=this, access_token=notes)["body"].splitlines()
        me = apis.owner.show_profile()
        print(me["name"], lines)
        # I look up everyone who paid.
        emails = {me["name"]: me["email"]}
        for name in [line.split(": ")[0] for line in lines]:
            if name not in emails:
                emails[name] = apis.contacts.search(query=name, access_token=contacts)[0]["email"]
        print(emails)
        # I make the group of the others and me.
        others = [emails[name] for name in emails if name != me["name"]]
        here = apis.expenses.create_group(name=group, emails=others, access_token=expenses)["group_id"]
        print(here)
        # I enter each line, split between all but whoever is left out.
        for line in lines:
            line, _, without = line.rstrip(")").partition(" (without ")
            name, paid = line.split(": ")
            what, amount = paid.split(", ")
            between = [emails[other] for other in emails if other != without]
            given = {"title": what, "amount": float(amount), "paid_by": emails[name], "between": between}
            print(apis.expenses.add_expense(group_id=here, **given, access_token=expenses))
        # I write to the others, and look at my balance in the group.
        print(apis.mail.send(to=others, subject=group, body=text, access_token=mail))
        groups = apis.expenses.list_groups(access_token=expenses)
        balance = [g["your_balance"] for g in groups if g["id"] == here][0]
        print(balance)
        # I answer with it.
        apis.owner.complete_task(answer=balance)
