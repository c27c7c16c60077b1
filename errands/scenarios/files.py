"""Scenarios around files."""

from typing import Any

from errands.judge import Goal
from errands.people import ALONE
from errands.scenario import Scenario
from errands.world import World
from errands.written import every, log_in


def put_file(w: World, owner: int, folder: str, name: str, days: float, text: str = "", kb: int = 1) -> int:
    """A file as if changed so many days ago; its id. The folder must exist."""
    place = w.value("SELECT id FROM files_folders WHERE owner = ? AND path = ?", owner, folder)
    row = {"folder": place, "name": name, "text": text, "kb": kb, "changed": w.ago(days)}
    return w.add("files_files", owner=owner, **row)


class RestoreDeletedFile(Scenario):
    """Take a file out of the bin, into another folder than it was in."""

    split, difficulty = "test_challenge", 1
    apis = ("files.list_bin", "files.restore")
    phrasings = (
        "I deleted the file {name} by mistake. Bring it back, into the folder {folder}.",
        "Please take {name} out of the bin and put it into my folder {folder}.",
        "The file {name} should not be in the bin. It belongs into {folder}.",
        "Restore my deleted file {name}; I want to have it in the folder {folder} from now on.",
    )

    def prepare(self, w: World) -> Goal:
        words = w.rng.sample(("passport", "contract", "diploma", "warranty", "floorplan"), 3)
        ids = [
            put_file(w, w.owner.id, "Downloads", f"{word}-scan.pdf", 9, kb=w.rng.randrange(50, 900)) for word in words
        ]
        for id in ids:
            w.run("UPDATE files_files SET binned = 1 WHERE id = ?", id)
        folder = w.rng.choice(("Documents", "Documents/Taxes", "Work", "Photos"))
        goal = Goal(w, name=f"{words[0]}-scan.pdf", folder=folder)
        goal.do("files.restore", file_id=ids[0], folder=folder)
        return goal

    @staticmethod
    def solve(apis: Any, name: str, folder: str) -> None:
        # The bin may have more than one page, so I look for the file by its exact name.
        files = log_in("files")
        bin = every(apis.files.list_bin(access_token=files))
        found = [f for f in bin if f["name"] == name]
        print(found)
        # There is one; I restore it into the folder I was told.
        print(apis.files.restore(file_id=found[0]["id"], folder=folder, access_token=files))
        # The file is back.
        apis.owner.complete_task()


class CodeInAFile(Scenario):
    """Find a code that is written down in some file."""

    split, difficulty = "test_challenge", 1
    apis = ("files.search", "files.show")
    phrasings = (
        "Somewhere in my files I wrote down the code of the {place}. What is it?",
        "What is the code for the {place}? One of my files has it.",
        "I forgot the code of the {place}. Look it up in my files.",
        "Please find the code of the {place}; it must be in one of my files.",
    )

    def prepare(self, w: World) -> Goal:
        places = w.rng.sample(("garage", "alarm", "bike cellar", "letterbox", "safe", "gym locker"), 4)
        codes = [str(code) for code in w.rng.sample(range(1000, 9999), 4)]
        lines = [f"{place}: {code}" for place, code in zip(places, codes, strict=True)]
        put_file(w, w.owner.id, w.rng.choice(("Documents", "Work", "Recipes")), "numbers.txt", 30, "\n".join(lines[:3]))
        put_file(w, w.owner.id, "Downloads", "more-numbers.txt", 3, lines[3])
        place = w.rng.randrange(4)
        goal = Goal(w, place=places[place])
        goal.answer = codes[place]
        return goal

    @staticmethod
    def solve(apis: Any, place: str) -> None:
        # Searching also looks into the text, so I search for the {place}.
        files = log_in("files")
        found = apis.files.search(query=place, access_token=files)
        print(found)
        # There is one file; I read it.
        text = apis.files.show(file_id=found[0]["id"], access_token=files)["text"]
        print(text)
        # I answer with the code in the line of the {place}.
        line = [line for line in text.splitlines() if line.startswith(f"{place}: ")][0]
        apis.owner.complete_task(answer=line.split(": ")[1])


class ShareLatestVersion(Scenario):
    """Share the version of a file that was changed last with a relative or the like."""

    split, difficulty = "test_challenge", 2
    apis = ("contacts.search", "files.search", "files.share")
    phrasings = (
        "Share the latest version of my {topic} file with my {relation}. There are several versions in my folders.",
        "My {relation} needs my {topic} file. Share the one that I changed last.",
        "There are several {topic} files of mine. Let my {relation} read the one changed most recently.",
        "Give my {relation} access to my {topic} file, the most recently changed version and no other.",
    )

    def prepare(self, w: World) -> Goal:
        topic = w.rng.choice(("renovation", "reunion", "itinerary", "inventory", "handover"))
        person = w.others(w.rng.choice(ALONE))[0]
        days = w.rng.sample(range(2, 90), 4)
        names = w.rng.sample([f"{topic}-{word}.md" for word in ("new", "final", "v2", "copy", "draft")], 4)
        folders = w.rng.sample(("Documents", "Work", "Work/Reports", "Downloads", "Recipes"), 4)
        ids = [put_file(w, w.owner.id, *version, text="Draft.") for version in zip(folders, names, days, strict=True)]
        goal = Goal(w, topic=topic, relation=person.relation)
        goal.do("files.share", file_id=ids[days.index(min(days))], email=person.email)
        return goal

    @staticmethod
    def solve(apis: Any, topic: str, relation: str) -> None:
        # I need the address of my {relation}, and all versions of the file.
        contacts, files = log_in("contacts", "files")
        person = apis.contacts.search(query=relation, access_token=contacts)[0]
        print(person)
        versions = every(apis.files.search(query=topic, access_token=files))
        print([(f["id"], f["name"], f["changed"]) for f in versions])
        # I share the one with the latest change.
        last = max(versions, key=lambda f: f["changed"])
        print(apis.files.share(file_id=last["id"], email=person["email"], access_token=files))
        # It is shared.
        apis.owner.complete_task()


class DeleteLargeFiles(Scenario):
    """Delete the large files of a folder, and say how much room they took."""

    split, difficulty = "test_challenge", 2
    apis = ("files.list_folder", "files.delete")
    phrasings = (
        "Delete all files in my folder {folder} that are larger than {limit} KB. How many KB did they have together?",
        "My folder {folder} is too big. Put everything over {limit} KB into the bin and tell me the sum of KB.",
        "Throw away the files with more than {limit} KB in the folder {folder}, and tell me their total size in KB.",
        "In {folder}, delete each file of more than {limit} KB. I want to know how many KB these were altogether.",
    )

    def prepare(self, w: World) -> Goal:
        folder, kind = w.rng.choice((("Downloads", "zip"), ("Photos", "png")))
        limit = w.rng.randrange(1500, 2500, 100)
        sizes = [limit, limit + 1, limit - 1, *(w.rng.randrange(100, 5000) for _ in range(6))]
        for number, kb in zip(w.rng.sample(range(100, 999), 9), sizes, strict=True):
            put_file(w, w.owner.id, folder, f"item-{number}.{kind}", w.rng.randrange(1, 90), kb=kb)
        goal = Goal(w, folder=folder, limit=limit)
        inside = "SELECT id FROM files_folders WHERE owner = ? AND path = ?"
        sql = f"SELECT id, kb FROM files_files WHERE folder = ({inside}) AND binned = 0 AND kb > ? ORDER BY id"
        large = w.all(sql, w.owner.id, folder, limit)
        for file in large:
            goal.do("files.delete", file_id=file["id"])
        goal.answer = sum(file["kb"] for file in large)
        return goal

    @staticmethod
    def solve(apis: Any, folder: str, limit: int) -> None:
        # I go through all pages of the folder and pick by size.
        files = log_in("files")
        inside = every(apis.files.list_folder(folder=folder, access_token=files))
        large = [f for f in inside if f["kb"] > limit]
        print(len(inside), [(f["name"], f["kb"]) for f in large])
        # These are over the limit; I delete them and add up their sizes.
        for f in large:
            apis.files.delete(file_id=f["id"], access_token=files)
        total = sum(f["kb"] for f in large)
        print(total)
        # I answer with the sum.
        apis.owner.complete_task(answer=total)


class MileageTotal(Scenario):
    """Add up numbers from several files."""

    split, difficulty = "test_challenge", 2
    apis = ("files.list_folder", "files.show")
    phrasings = (
        "How many kilometres did I drive to {client} in all? See the mileage files in the folder Work/Reports.",
        "The mileage files in Work/Reports say how far I drove to whom. What is the sum of kilometres for {client}?",
        "Add up the kilometres for {client} over all mileage files in my folder Work/Reports.",
        "I need the total of kilometres to {client} from all the mileage files in Work/Reports.",
    )

    def prepare(self, w: World) -> Goal:
        clients = ["Arbor GmbH", "Belltown", "Corvid Labs", "Dockside"]
        months = w.rng.sample(("april", "may", "june", "july", "august", "october", "november"), 6)
        sums = dict.fromkeys(clients, 0)
        for place, month in enumerate(months):
            lines = ["client,km"]
            for client in [*w.rng.choices(clients, k=4), clients[place % 4]]:
                km = w.rng.randrange(5, 140)
                sums[client] += km
                lines.append(f"{client},{km}")
            put_file(w, w.owner.id, "Work/Reports", f"mileage-{month}.csv", 10 * place + 5, "\n".join(lines))
        client = w.rng.choice(clients)
        goal = Goal(w, client=client)
        goal.answer = sums[client]
        return goal

    @staticmethod
    def solve(apis: Any, client: str) -> None:
        # I list the whole folder and keep the mileage files.
        files = log_in("files")
        inside = every(apis.files.list_folder(folder="Work/Reports", access_token=files))
        mileage = [f for f in inside if f["name"].startswith("mileage")]
        print([f["name"] for f in mileage])
        # I read one of them to see how it is written.
        texts = [apis.files.show(file_id=f["id"], access_token=files)["text"] for f in mileage]
        print(texts[0])
        # Each line is a client and kilometres; I add up those of {client}.
        lines = [line.split(",") for text in texts for line in text.splitlines()]
        trips = [int(km) for who, km in lines if who == client]
        print(trips, sum(trips))
        # I answer with the sum.
        apis.owner.complete_task(answer=sum(trips))


class CollectFromFriends(Scenario):
    """Copy what friends share into a new folder, and thank each of them by mail."""

    split, difficulty = "test_challenge", 3
    apis = ("contacts.search", "files.list_shared_with_me", "files.create_folder", "files.copy", "mail.send")
    phrasings = (
        "Copy all files that my friends share with me to a new folder {folder}. Then send each friend who shares "
        "something one mail with the subject '{subject}' and the text '{text}'.",
        "Make a folder {folder} and put a copy of every file into it that a friend of mine shares with me. Each of "
        "these friends should get one mail: subject '{subject}', text '{text}'.",
        "I want to keep what my friends share with me in the files: copy it all to the new folder {folder}, and mail "
        "'{text}' under the subject '{subject}' to each of those friends, once.",
        "Please create the folder {folder}, copy there whatever files friends (nobody else) share with me, and thank "
        "each of those friends by a single mail with subject '{subject}' and text '{text}'.",
    )

    def prepare(self, w: World) -> Goal:
        friends = w.rng.sample(w.others("friends"), 2)
        theirs = "SELECT id FROM files_files WHERE owner IN (SELECT id FROM people WHERE relation = 'friend')"
        w.run(f"DELETE FROM files_shares WHERE person = ? AND file IN ({theirs})", w.owner.id)
        strangers = w.rng.sample(w.others("colleagues", "flatmates"), 3)
        sharers = [friends[0], strangers[0], friends[1], strangers[1], friends[0], strangers[2]]
        w.rng.shuffle(sharers)
        words = w.rng.sample(("hike", "lake", "festival", "playlist", "chords", "tickets", "zoo", "quiz"), 6)
        shared = []
        for word, person in zip(words, sharers, strict=True):
            file = put_file(w, person.id, "Documents", f"{word}-{person.first.lower()}.txt", 7, f"About the {word}.")
            w.add("files_shares", file=file, person=w.owner.id)
            shared += [file] if person in friends else []
        slots = {
            "folder": w.rng.choice(("Friends", "Collected", "Keepsakes")),
            "subject": w.rng.choice(("Your files", "Got it", "Copied")),
            "text": w.rng.choice(("Thanks for sharing", "I have my own copy now", "You can clean up now")),
        }
        goal = Goal(w, **slots)
        goal.do("files.create_folder", path=slots["folder"])
        for file in shared:
            goal.do("files.copy", file_id=file, folder=slots["folder"])
        for friend in friends:
            goal.do("mail.send", to=[friend.email], subject=slots["subject"], body=slots["text"])
        return goal

    @staticmethod
    def solve(apis: Any, folder: str, subject: str, text: str) -> None:
        # I need to know who my friends are.
        contacts, files, mail = log_in("contacts", "files", "mail")
        people = every(apis.contacts.search(access_token=contacts))
        friends = {p["name"]: p["email"] for p in people if p["relation"] == "friend"}
        print(friends)
        # Now all files that are shared with me, of which I keep those of friends.
        shared = every(apis.files.list_shared_with_me(access_token=files))
        print([(f["name"], f["owner"]) for f in shared])
        wanted = [f for f in shared if f["owner"] in friends]
        print(len(wanted))
        # I make the folder and copy them.
        apis.files.create_folder(path=folder, access_token=files)
        for f in wanted:
            print(apis.files.copy(file_id=f["id"], folder=folder, access_token=files))
        # Someone may share several files but gets one mail.
        for name in {f["owner"] for f in wanted}:
            print(apis.mail.send(to=[friends[name]], subject=subject, body=text, access_token=mail))
        # All is copied and everyone thanked.
        apis.owner.complete_task()


class GuestsFromAFile(Scenario):
    """Invite those who said yes in a file to an event, and ask those who were not sure."""

    split, difficulty = "test_challenge", 3
    apis = (
        *("files.search", "files.show", "calendar.list_upcoming", "contacts.search"),
        *("calendar.invite", "phone.send_message"),
    )
    phrasings = (
        "My file {name} has the answers of my guests. Invite everyone who said yes to my calendar event '{event}', "
        "and text those who said maybe: '{text}'",
        "Please go through the answers in {name}: who said yes is to be invited to '{event}' in my calendar, who said "
        "maybe gets the text message '{text}'. The others get nothing.",
        "For '{event}' in my calendar, the answers are in the file {name}. Invite the yes ones there, and send the "
        "maybe ones a text message that says '{text}'",
        "Look into the file {name}. Text '{text}' to all with a maybe, and put all with a yes on the guest list of my "
        "calendar event '{event}'.",
    )

    def prepare(self, w: World) -> Goal:
        event, word = w.rng.choice(
            (("Housewarming", "party"), ("Garden party", "garden"), ("Farewell picnic", "picnic"))
        )
        people = w.rng.sample(w.others("friends", "family", "flatmates", "colleagues"), 7)
        answers = ["yes", "yes", "yes", "maybe", "maybe", "no", "no"]
        w.rng.shuffle(answers)
        said = list(zip(people, answers, strict=True))
        name = f"{word}-answers.txt"
        text = "\n".join(f"{person.name} - {answer}" for person, answer in said)
        put_file(w, w.owner.id, w.rng.choice(("Documents", "Downloads", "Work")), name, 2, text)
        start = f"{w.day(w.rng.randrange(31, 45))} 16:00"
        id = w.add("calendar_events", owner=w.owner.id, title=event, start=start, minutes=180, place="at home")
        slots = {"text": w.rng.choice(("Can you come or not?", "Please tell me by tomorrow", "Do you know by now?"))}
        goal = Goal(w, name=name, event=event, **slots)
        for person, answer in said:
            if answer == "yes":
                goal.do("calendar.invite", event_id=id, email=person.email)
            elif answer == "maybe":
                goal.do("phone.send_message", number=person.phone, **slots)
        return goal

    @staticmethod
    def solve(apis: Any, name: str, event: str, text: str) -> None:
        # First the answers in the file.
        files, calendar, contacts, phone = log_in("files", "calendar", "contacts", "phone")
        found = [f for f in apis.files.search(query=name, access_token=files) if f["name"] == name]
        answers = apis.files.show(file_id=found[0]["id"], access_token=files)["text"]
        print(answers)
        # Now the event to which I invite.
        events = apis.calendar.list_upcoming(query=event, access_token=calendar)
        print(events)
        this_event = [e for e in events if e["title"] == event][0]["id"]
        # Invitations need addresses and texts need numbers, so I look everyone up in the contacts.
        said = [line.split(" - ") for line in answers.splitlines()]
        cards = {who: apis.contacts.search(query=who, access_token=contacts)[0] for who, answer in said}
        print([(who, answer, cards[who]["relation"]) for who, answer in said])
        # I invite those with a yes and text those with a maybe.
        for who, answer in said:
            if answer == "yes":
                print(apis.calendar.invite(event_id=this_event, email=cards[who]["email"], access_token=calendar))
            if answer == "maybe":
                print(apis.phone.send_message(number=cards[who]["phone"], text=text, access_token=phone))
        # Everyone has been dealt with.
        apis.owner.complete_task()


SCENARIOS: list[type[Scenario]] = [
    *(RestoreDeletedFile, CodeInAFile, ShareLatestVersion, DeleteLargeFiles, MileageTotal),
    *(CollectFromFriends, GuestsFromAFile),
]
