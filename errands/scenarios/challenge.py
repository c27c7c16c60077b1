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
from errands.words import WORDS
from errands.world import World
from errands.written import apis, every, log_in, shown

_GROUPS = WORDS["groups"]
_BOUGHT = WORDS["shared_costs"]
_PAPERS = WORDS["papers"]
_LISTS = WORDS["playlists"]
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


class PaidForGroup(Scenario, split="test_challenge", difficulty=1):
    """Enter what the owner paid for a group."""

    def prepare(self, w: World) -> Goal:
        group, here, _ = _make_group(w, w.rng.sample(w.others(*CIRCLES), 3))
        title, amount, day = w.rng.choice(_BOUGHT), amount_between(w, 8, 90), w.day(-w.rng.randrange(1, 12))
        goal = Goal(w, group=group, title=title, amount=amount, day=day)
        goal.do("expenses.add_expense", group_id=here, title=title, amount=float(amount), day=day)
        return goal

    def solve(self, group: str, title: str, amount: float, day: str) -> None:
        # I need the id of the group.
        groups = apis.expenses.list_groups()
        print([(g["id"], g["name"]) for g in groups])
        # I add the expense to the one that is called just '{group}'.
        here = [g["id"] for g in groups if g["name"] == group][0]
        print(apis.expenses.add_expense(group_id=here, title=title, amount=amount, day=day))
        # The expense is entered.


class RefileDocument(Scenario, split="test_challenge", difficulty=1):
    """Rename a file and move it to another folder, which has a file with the old name."""

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

    def solve(self, name: str, folder: str, new: str, target: str) -> None:
        # I look for the file.
        found = shown(apis.files.search(query=name, page_size=20))
        # I take the one in {folder}. {target} may have a file with its old name, so I rename it before I move it.
        this = [f["id"] for f in found if f["name"] == name and f["folder"] == folder][0]
        print(apis.files.rename(file_id=this, name=new))
        print(apis.files.move(file_id=this, folder=target))
        # The file has its new name and folder.


class KeepThisSong(Scenario, split="test_challenge", difficulty=1):
    """Like the song in the player and add it to a playlist."""

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

    def solve(self, playlist: str) -> None:
        # I look at what is in the player.
        song = shown(apis.music.show_player()["song"])
        # I like it.
        print(apis.music.like(song_id=song["id"]))
        # Now I need the playlist '{playlist}'.
        lists = apis.music.list_playlists(page_size=20)
        print([(p["id"], p["name"]) for p in lists])
        # I add the song to it.
        here = [p["id"] for p in lists if p["name"] == playlist][0]
        print(apis.music.add_to_playlist(playlist_id=here, song_id=song["id"]))
        # The song is liked and on the playlist.


class ShareFile(Scenario, split="test_challenge", difficulty=1):
    """Share a file with someone."""

    def prepare(self, w: World) -> Goal:
        name, relation = w.rng.choice(_PAPERS), w.rng.choice(ALONE)
        _add_file(w, w.owner, "Downloads", f"old-{name}", days=2)
        _add_file(w, w.owner, "Documents", "reminder.txt", text=f"Look through {name} again.", days=1)
        file = _add_file(w, w.owner, w.rng.choice(("Documents", "Work")), name, days=w.rng.randrange(5, 90))
        goal = Goal(w, name=name, relation=relation)
        goal.do("files.share", file_id=file, email=w.others(relation)[0].email)
        return goal

    def solve(self, name: str, relation: str) -> None:
        # I look for the file.
        log_in("files", "contacts")
        found = apis.files.search(query=name, page_size=20)
        print([(f["id"], f["name"]) for f in found])
        # I look for my {relation} in the contacts, to get the address.
        cards = shown(apis.contacts.search(query=relation))
        # I share the file that is called just '{name}'.
        this = [f["id"] for f in found if f["name"] == name][0]
        print(apis.files.share(file_id=this, email=cards[0]["email"]))
        # The file is shared.


class CorrectLastExpense(Scenario, split="test_challenge", difficulty=2):
    """Correct the last expense of its title that someone paid in a group, and comment on it."""

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

    def solve(self, group: str, title: str, name: str, amount: float, text: str) -> None:
        # I need the id of the group.
        groups = apis.expenses.list_groups()
        print([(g["id"], g["name"]) for g in groups])
        # I collect its expenses '{title}' from all pages and keep those that {name} paid; the newest comes first.
        here = [g["id"] for g in groups if g["name"] == group][0]
        items = every(apis.expenses.list_expenses(group_id=here, query=title))
        paid = [x for x in items if x["title"] == title and x["paid_by"] == name]
        print([(x["id"], x["day"], x["amount"]) for x in paid])
        # I correct the first and comment on it.
        print(apis.expenses.update_expense(expense_id=paid[0]["id"], amount=amount))
        print(apis.expenses.add_comment(expense_id=paid[0]["id"], text=text))
        # The expense is corrected.


class EmptyBin(Scenario, split="test_challenge", difficulty=2):
    """Restore the files of a folder, empty the bin, and say how much room there is."""

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

    def solve(self, folder: str) -> None:
        # I collect what is in the bin from all pages.
        binned = every(apis.files.list_bin())
        print([(f["name"], f["folder"]) for f in binned])
        # I restore what was in {folder}.
        for f in binned:
            if f["folder"] == folder:
                print(f["name"], apis.files.restore(file_id=f["id"]))
        # Now I empty the bin and look how much room the files take.
        print(apis.files.empty_bin())
        usage = shown(apis.files.show_usage())
        # The bin is empty; what the files do not take is free.
        apis.owner.complete_task(answer=usage["quota_kb"] - usage["kb"])


class QueueNewestAlbum(Scenario, split="test_challenge", difficulty=2):
    """Queue the newest album of an artist."""

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

    def solve(self, artist: str, volume: int) -> None:
        # I look for the albums of {artist}; others may have the name in their title.
        albums = every(apis.music.search_albums(query=artist))
        albums = shown([a for a in albums if a["artist"] == artist])
        # The newest has the highest year. I need its songs, and what is queued.
        newest = max(albums, key=lambda a: a["year"])["album"]
        songs = every(apis.music.search_songs(query=newest, artist=artist))
        queue = every(apis.music.list_queue())
        queued = [s["id"] for s in queue]
        missing = [s for s in songs if s["id"] not in queued]
        print([s["title"] for s in songs], [s["title"] for s in missing])
        # I queue those that are missing.
        for s in missing:
            apis.music.queue_song(song_id=s["id"])
        # What remains is the next song and the volume.
        print(apis.music.next())
        print(apis.music.set_volume(volume=volume))
        # The album is queued.


class FriendsFavourites(Scenario, split="test_challenge", difficulty=2):
    """Add the songs of a genre on someone's playlist to the library, and rate them."""

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

    def solve(self, name: str, playlist: str, genre: str, stars: int) -> None:
        # I look for the playlist.
        lists = every(apis.music.search_public(query=playlist))
        print(lists)
        # I take the one of {name} and collect its {genre} songs from all pages.
        here = [p["id"] for p in lists if p["name"] == playlist and p["owner"] == name][0]
        songs = every(apis.music.list_playlist_songs(playlist_id=here))
        songs = [s for s in songs if s["genre"] == genre]
        print([s["title"] for s in songs])
        # I look which of them are not in my library.
        new = [s for s in songs if not apis.music.show_song(song_id=s["id"])["in_library"]]
        print([s["title"] for s in new])
        # I add and rate these.
        for s in new:
            print(apis.music.add_to_library(song_id=s["id"]))
            print(apis.music.rate(song_id=s["id"], stars=stars))
        # The new songs are in the library.


class RequestDebts(Scenario, split="test_challenge", difficulty=2):
    """Request what others owe the owner in a group, except from those who are asked already."""

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

    def solve(self, group: str) -> None:
        # I need the id of the group, and my own address.
        log_in("expenses", "wallet")
        me = apis.owner.show_profile()["email"]
        groups = apis.expenses.list_groups()
        print(me, [(g["id"], g["name"]) for g in groups])
        # I look who should pay me.
        here = [g["id"] for g in groups if g["name"] == group][0]
        debts = apis.expenses.list_debts(group_id=here)
        debts = shown([d for d in debts if d["creditor"] == me])
        # I collect whom I have asked already, from all pages.
        requests = every(apis.wallet.list_sent_requests(status="open"))
        asked = shown([r["name"] for r in requests if r["note"] == group])
        # The group says which name belongs to which address.
        members = apis.expenses.show_group(group_id=here)["members"]
        names = shown({m["email"]: m["name"] for m in members})
        # I ask all the others.
        for d in debts:
            if names[d["debtor"]] not in asked:
                print(apis.wallet.request(email=d["debtor"], amount=d["amount"], note=group))
        # Everyone is asked.


class StopSharing(Scenario, split="test_challenge", difficulty=2):
    """Stop sharing files with someone, and say which they were."""

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

    def solve(self, name: str) -> None:
        # I look for {name} in the contacts, to get the address.
        log_in("contacts", "files")
        email = apis.contacts.search(query=name)[0]["email"]
        print(email)
        # I go through all pages of my files and look with whom each is shared.
        everything = every(apis.files.search())
        shown = [apis.files.show(file_id=f["id"]) for f in everything]
        shared = [f for f in shown if email in f["shared_with"]]
        print(len(shown), [f["name"] for f in shared])
        # I stop sharing these.
        for f in shared:
            print(apis.files.unshare(file_id=f["id"], email=email))
        # I answer with their names.
        apis.owner.complete_task(answer=[f["name"] for f in shared])


class SettleAndLeave(Scenario, split="test_challenge", difficulty=3):
    """Pay and record what the owner owes in a group, tell those who are paid, and leave the group."""

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

    def solve(self, group: str, text: str) -> None:
        # I need the id of the group, and my own address.
        log_in("expenses", "wallet", "contacts", "phone")
        me = apis.owner.show_profile()["email"]
        groups = apis.expenses.list_groups()
        print(me, [(g["id"], g["name"], g["your_balance"]) for g in groups])
        # I look whom I should pay.
        here = [g["id"] for g in groups if g["name"] == group][0]
        debts = apis.expenses.list_debts(group_id=here)
        debts = shown([d for d in debts if d["debtor"] == me])
        # I pay each of them, record it, and text them.
        for d in debts:
            email, amount = d["creditor"], d["amount"]
            apis.wallet.send(email=email, amount=amount, note=group)
            apis.expenses.settle_up(group_id=here, paid_by=me, paid_to=email, amount=amount)
            number = apis.contacts.search(query=email)[0]["phone"]
            print(apis.phone.send_message(number=number, text=text))
        # Nothing is owed any more, so I can leave the group.
        print(apis.expenses.leave_group(group_id=here))
        # All is paid, recorded and told.


class ReceiptsIntoGroup(Scenario, split="test_challenge", difficulty=3):
    """Enter the receipts in a folder as expenses of a group, where they are missing, and tell the others."""

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

    def solve(self, folder: str, group: str) -> None:
        # I collect the files of the folder from all pages and read them.
        log_in("files", "expenses", "mail")
        found = every(apis.files.list_folder(folder=folder))
        receipts = [apis.files.show(file_id=f["id"]) for f in found]
        for r in receipts:
            print(r["name"], r["text"].splitlines())
        # Each has a title, an amount and a day; I take them apart.
        for r in receipts:
            title, amount, day = [line.split(": ")[1] for line in r["text"].splitlines()]
            r["said"] = (title, float(amount), day)
        groups = apis.expenses.list_groups()
        print([(g["id"], g["name"]) for g in groups])
        # I compare them with all expenses of the group.
        here = [g["id"] for g in groups if g["name"] == group][0]
        items = every(apis.expenses.list_expenses(group_id=here))
        entered = [(x["title"], x["amount"], x["day"]) for x in items]
        new = [r for r in receipts if r["said"] not in entered]
        print([r["said"] for r in new])
        # I enter what is new and put its file into the bin.
        for r in new:
            title, amount, day = r["said"]
            apis.expenses.add_expense(group_id=here, title=title, amount=amount, day=day)
            print(apis.files.delete(file_id=r["id"]))
        # The other members should know the total.
        me = apis.owner.show_profile()["email"]
        members = apis.expenses.show_group(group_id=here)["members"]
        others = [m["email"] for m in members if m["email"] != me]
        total = sum([r["said"][1] for r in new])
        print(apis.mail.send(to=others, subject=group, body=f"{total:.2f}"))
        # The receipts are entered and the mail is sent.


class PartyPlaylist(Scenario, split="test_challenge", difficulty=3):
    """Make a playlist of the songs that the guests who come have asked for by mail, and tell them."""

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

    def solve(self, event: str, subject: str, text: str) -> None:
        # I look for the event.
        log_in("calendar", "mail", "music", "contacts", "phone")
        events = shown(apis.calendar.list_upcoming(query=event))
        # I collect the guests who have accepted, from all pages.
        guests = every(apis.calendar.list_guests(event_id=events[0]["id"]))
        coming = shown([g["email"] for g in guests if g["answer"] == "accepted"])
        # I read the mails and keep those of these guests.
        found = every(apis.mail.search(query=subject))
        mails = [apis.mail.show(message_id=m["id"]) for m in found if m["subject"] == subject]
        mails = [m for m in mails if m["address"] in coming]
        for m in mails:
            print(m["sender"], m["body"].splitlines())
        # The songs are the lines with a dash; I look each up, once.
        titles = {line[2:] for m in mails for line in m["body"].splitlines() if line.startswith("- ")}
        songs = []
        for title in sorted(titles):
            hits = apis.music.search_songs(query=title, page_size=20)
            songs += [s for s in hits if s["title"] == title]
        print(len(titles), [s["title"] for s in songs])
        # I make the playlist.
        made = apis.music.create_playlist(name=event, public=True)
        for s in songs:
            print(apis.music.add_to_playlist(playlist_id=made["playlist_id"], song_id=s["id"]))
        # I text those who wrote the mails.
        for m in mails:
            number = apis.contacts.search(query=m["address"])[0]["phone"]
            print(apis.phone.send_message(number=number, text=text))
        # The playlist is ready.


class SharedShoppingList(Scenario, split="test_challenge", difficulty=3):
    """Put what a shared file lists into the cart, the rest on a to-do list, and tell the file's owner."""

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

    def solve(self, name: str, file: str, list_name: str, text: str) -> None:
        # I look for the file among those that are shared with me.
        log_in("files", "shop", "todo", "contacts", "phone")
        shared = every(apis.files.list_shared_with_me())
        print([(f["id"], f["name"], f["owner"]) for f in shared])
        # I read the one of {name}.
        this = [f["id"] for f in shared if f["name"] == file and f["owner"] == name][0]
        lines = shown(apis.files.show(file_id=this)["text"].splitlines())
        # I look up each product and whether there is enough of it; if so, I put it into the cart.
        rest = []
        for line in lines:
            count, product = line.split(" x ")
            hits = apis.shop.search(query=product, page_size=20)
            enough = [p["id"] for p in hits if p["name"] == product and p["stock"] >= int(count)]
            if enough:
                print(apis.shop.add_to_cart(product_id=enough[0], quantity=int(count)))
            else:
                rest.append(line)
        print(rest)
        # The rest goes on the list {list_name}.
        lists = apis.todo.list_lists()
        here = [x["id"] for x in lists if x["name"] == list_name][0]
        for line in rest:
            print(apis.todo.add(list_id=here, text=line))
        # Now I text {name}.
        number = apis.contacts.search(query=name)[0]["phone"]
        print(apis.phone.send_message(number=number, text=text))
        # Everything is in the cart or on the list.


class PaymentsAsFile(Scenario, split="test_challenge", difficulty=3):
    """List the payments with a note in a file, share it with someone and mail them the total."""

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

    def solve(self, note: str, day: str, folder: str, file: str, relation: str) -> None:
        # I collect the payments with this note from all pages and keep those that I sent since {day}.
        log_in("wallet", "files", "contacts", "mail")
        found = every(apis.wallet.search_transactions(query=note))
        paid = [t for t in found if t["note"] == note and t["direction"] == "sent" and t["at"] >= day]
        print(len(found), len(paid))
        # They come newest first; I turn them round and write the lines.
        paid = sorted(paid, key=lambda t: t["at"])
        lines = [t["at"][:10] + "," + t["name"] + "," + f"{t['amount']:.2f}" for t in paid]
        total = f"{sum([t['amount'] for t in paid]):.2f}"
        print(lines, total)
        # I make the folder and the file.
        print(apis.files.create_folder(path=folder))
        made = shown(apis.files.create(folder=folder, name=file, text="\n".join(lines)))
        # I look for my {relation} in the contacts, to get the address.
        cards = shown(apis.contacts.search(query=relation))
        # I share the file and send the mail.
        email = cards[0]["email"]
        print(apis.files.share(file_id=made["file_id"], email=email))
        print(apis.mail.send(to=[email], subject=file, body=total))
        # The list is shared and the total is sent.


class TidyLibrary(Scenario, split="test_challenge", difficulty=3):
    """Remove songs with few stars from the library, unless a playlist has them; unfollow artists who have none left."""

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

    def solve(self, stars: int, title: str) -> None:
        # I collect my library from all pages; songs without a rating have no stars.
        log_in("music", "notes")
        library = every(apis.music.list_library())
        poor = [s for s in library if s["stars"] is not None and s["stars"] <= stars]
        print(len(library), [s["title"] for s in poor])
        # I collect what is on my playlists.
        lists = every(apis.music.list_playlists())
        listed = []
        for p in lists:
            songs = every(apis.music.list_playlist_songs(playlist_id=p["id"]))
            listed += [s["id"] for s in songs]
        removed = [s for s in poor if s["id"] not in listed]
        print([s["title"] for s in removed])
        # I remove those that are on none.
        for s in removed:
            apis.music.remove_from_library(song_id=s["id"])
        followed = shown(apis.music.list_followed())
        # I stop following those who have no song left in the library.
        left = [s["artist"] for s in library if s not in removed]
        for artist in followed:
            if artist not in left:
                print(artist, apis.music.follow(artist=artist, follow=False))
        # I write the note.
        body = "\n".join(sorted([s["title"] for s in removed]))
        print(apis.notes.create(title=title, body=body))
        # The library is tidy.


class TripAccounts(Scenario, split="test_challenge", difficulty=3):
    """Turn a note of who paid what into an expenses group, tell its members, and say how the owner stands."""

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

    def solve(self, title: str, group: str, text: str) -> None:
        # I look for the note.
        log_in("notes", "contacts", "expenses", "mail")
        found = shown(apis.notes.search(query=title, page_size=20))
        # I read it, and who I work for.
        this = [n["id"] for n in found if n["title"] == title][0]
        lines = apis.notes.show(note_id=this)["body"].splitlines()
        me = apis.owner.show_profile()
        print(me["name"], lines)
        # I look up everyone who paid.
        emails = {me["name"]: me["email"]}
        for name in [line.split(": ")[0] for line in lines]:
            if name not in emails:
                emails[name] = apis.contacts.search(query=name)[0]["email"]
        print(emails)
        # I make the group of the others and me.
        others = [emails[name] for name in emails if name != me["name"]]
        here = shown(apis.expenses.create_group(name=group, emails=others)["group_id"])
        # I enter each line, split between all but whoever is left out.
        for line in lines:
            line, _, without = line.rstrip(")").partition(" (without ")
            name, paid = line.split(": ")
            what, amount = paid.split(", ")
            between = [emails[other] for other in emails if other != without]
            given = {"title": what, "amount": float(amount), "paid_by": emails[name], "between": between}
            print(apis.expenses.add_expense(group_id=here, **given))
        # I write to the others, and look at my balance in the group.
        print(apis.mail.send(to=others, subject=group, body=text))
        groups = apis.expenses.list_groups()
        balance = shown([g["your_balance"] for g in groups if g["id"] == here][0])
        # I answer with it.
        apis.owner.complete_task(answer=balance)
