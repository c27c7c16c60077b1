"""In half of the tasks of practice the APIs have names of their own: they must be read, and all that is said fits."""

import asyncio
import gc
import hashlib
import keyword
import re
import subprocess
import sys
import threading
from functools import cache

import pytest

from errands.apps import APPS, BY_NAME, find, make_world
from errands.catalog import by_name, expert, setting
from errands.disguise import NOUNS, VERBS, Disguise, renamed
from errands.env import Errands, Expert
from errands.practice.drill import Act
from errands.practice.kinds import DRILLS
from errands.practice.pairs import Relay, Round
from errands.session import OUTPUT, Session
from errands.world import World
from longloop.envs.play import play
from longloop.envs.react import code_of
from longloop.types import Message, Task

SEEDS = [f"seed {number}" for number in range(40)]
RENAMED = [app.name for app in APPS if app.login]
PRACTISED = sorted({app for kind in DRILLS for app in kind.apps()})
REWRITE = "rewrite-notes-by-title"
ALL = frozenset(f"{app.name}.{api}" for app in APPS for api in app.apis)


def tasks(split: str, number: int = 1) -> list[Task]:
    return list(Errands.tasks(split, Errands.Options(per_scenario=number)))


@cache
def names(seed: str, app: str, known: frozenset[str] = frozenset()) -> dict[str, str]:
    """What each API of an app is called, by its real name."""
    disguise = Disguise(seed, known)
    return {api: disguise.name(f"{app}.{api}").removeprefix(f"{app}.") for api in BY_NAME[app].apis}


@cache
def parameters(seed: str, app: str, known: frozenset[str] = frozenset()) -> list[tuple[str, str, str]]:
    """(API, real name, name) of each parameter."""
    here = Disguise(seed, known).apis(app)
    return [
        (api, one, other)
        for api, new in names(seed, app, known).items()
        for one, other in zip(BY_NAME[app].apis[api].parameters, here[new].parameters, strict=True)
    ]


@pytest.mark.parametrize("app", RENAMED)
def test_names_are_identifiers_and_never_clash(app: str) -> None:
    real = BY_NAME[app].apis
    for seed in SEEDS:
        new = names(seed, app)
        assert list(Disguise(seed).apis(app))[:2] == ["login", "logout"]
        assert sorted(Disguise(seed).apis(app)) == sorted(new.values()) and len(set(new.values())) == len(real)
        assert all(name == api or name not in real for api, name in new.items()), "the real name of another"
        assert all(name.isidentifier() and not keyword.iskeyword(name) for name in new.values())
        for api in Disguise(seed).apis(app).values():
            assert all(name == p.name and name.isidentifier() for name, p in api.parameters.items())
            assert not any(keyword.iskeyword(name) for name in api.parameters)
            assert len(api.parameters) == len(set(api.parameters))


def test_a_quarter_stays_and_an_eighth_says_nothing() -> None:
    drawn = [
        pair
        for seed in SEEDS
        for app in PRACTISED
        for pair in names(seed, app, ALL).items()
        if not pair[0].startswith("log")
    ]
    kept = sum(api == name for api, name in drawn) / len(drawn)
    mute = sum(re.fullmatch(r"(do|op|fn)_[a-z]\d", name) is not None for _, name in drawn) / len(drawn)
    assert 0.2 < kept < 0.3 and 0.1 < mute < 0.16


@pytest.mark.parametrize("api", sorted({api for kind in DRILLS for api in kind.apis if not api.startswith("owner.")}))
def test_no_name_that_practice_needs_can_be_known_by_heart(api: str) -> None:
    app, _, name = api.partition(".")
    called = [names(seed, app)[name] for seed in SEEDS]
    assert len(set(called)) >= 10 and max(map(called.count, called)) <= len(SEEDS) // 2
    for parameter in set(BY_NAME[app].apis[name].parameters) - {"access_token"}:
        given = {new for seed in SEEDS for of, real, new in parameters(seed, app) if (of, real) == (name, parameter)}
        assert len(given) >= 3 and parameter in given, (parameter, given)


def test_what_the_system_prompt_names_is_as_everywhere() -> None:
    for seed in SEEDS:
        for app in ("docs", "owner"):
            assert list(Disguise(seed).apis(app)) == list(BY_NAME[app].apis)
        for app in RENAMED:
            here = Disguise(seed).apis(app)
            assert [here[name].documentation for name in ("login", "logout")] == [
                BY_NAME[app].apis[name].documentation for name in ("login", "logout")
            ]
            assert all(real != "access_token" or new == "access_token" for _, real, new in parameters(seed, app))


def test_the_same_seed_gives_the_same_names_in_any_process() -> None:
    code = (
        "from errands.disguise import Disguise; import hashlib; "
        f"print(hashlib.sha256(''.join(a.documentation for app in {PRACTISED!r} "
        "for a in Disguise('one').apis(app).values()).encode()).hexdigest())"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    said = "".join(api.documentation for app in PRACTISED for api in Disguise("one").apis(app).values())
    assert hashlib.sha256(said.encode()).hexdigest() == other
    assert Disguise("one").apis("mail").keys() != Disguise("two").apis("mail").keys()


def test_half_of_practice_is_disguised_each_in_its_own_way_and_no_others() -> None:
    def world(task: Task) -> World:
        return setting(task.data["scenario"], task.data["world"]).world()

    def plain(task: Task) -> bool:
        return all(world(task).apis(app) is BY_NAME[app].apis for app in BY_NAME)

    for split in set(Errands.splits) - {"practice"}:
        assert all(plain(task) for task in tasks(split)[::5])
    assert all(plain(task) for task in Errands.tasks("practice", Errands.Options(plain=True))[::20])
    some = [task for task in tasks("practice", 2)[::4] if not plain(task)]
    assert 0.4 < len(some) / len(tasks("practice", 2)[::4]) < 0.6
    lists = [tuple(world(task).apis("mail")) for task in some]
    assert len(set(lists)) == len(lists) > 40
    assert lists[:5] == [tuple(world(task).apis("mail")) for task in some[:5]]


@pytest.mark.parametrize("app", PRACTISED)
def test_a_list_is_printed_whole(app: str) -> None:
    world = make_world("tests/0")
    kinds = [kind for kind in DRILLS if kind.apps() == [app] and kind.noun()]
    for number, seed in enumerate(SEEDS):
        kind = kinds[number % len(kinds)] if kinds else None
        world.disguise = Disguise(seed, kind.known(), kind.noun(), frozenset(kind.apis)) if kind else Disguise(seed)
        assert len(str(world.call(BY_NAME["docs"].apis["list_apis"], {"app": app}))) <= OUTPUT


def test_foreign_words_are_foreign() -> None:
    """No name, sentence or wording has them, so that none can be known from anywhere."""
    assert len({*VERBS, *NOUNS}) == len(VERBS) + len(NOUNS) > 200
    assert not [noun for noun in NOUNS if noun[0] in "aeiou" or noun[-1] in "sxyz"]  # a, not an; and s for many
    said = [f"{api.name} {api.about}".replace("_", " ") for app in APPS for api in app.apis.values()]
    said += [wording for kind in by_name().values() for wording in kind.phrasings]
    words = {word for text in said for word in re.findall("[a-z]+", text.lower())}
    assert not words & {word + end for word in (*VERBS, *NOUNS) for end in ("", "s", "d", "ed", "ing")}


def has(text: str, word: str) -> bool:
    return re.search(rf"\b{word}s?\b", text.lower()) is not None


def test_what_is_asked_for_by_a_foreign_word_can_be_found_by_it_and_all_else_by_its_usual_words() -> None:
    verbs = nouns = 0
    for task in tasks("practice", 2):
        made = setting(task.data["scenario"], task.data["world"])
        if (disguise := made.disguise) is None:
            continue
        kind = by_name()[task.data["scenario"]]
        lists = [api for app in kind.apps() for api in disguise.apis(app).values()]
        used = {api: disguise.name(api) for api in kind.apis if not api.startswith("owner.")}
        here = {real: next(api for api in lists if f"{api.app}.{api.name}" == name) for real, name in used.items()}
        for name, api in here.items():
            if verb := disguise.verb(name):
                verbs += 1
                assert has(made.instruction, verb), task.id
                assert [other for other in lists if has(other.about, verb)] == [api], task.id
                parts = {"": kind.first, "then_": kind.second} if issubclass(kind, Round) else {"": kind}
                acts = [(key, wish) for key, part in parts.items() for wish in part.wishes if isinstance(wish, Act)]
                elsewhere = f"then_{kind.slot}" if issubclass(kind, Relay) else ""  # what another app tells
                told = {key + slot for key, act in acts for slot in act.told} - {elsewhere}
                assert all(str(made.goal.slots[slot]) in made.instruction for slot in told), task.id
            else:
                assert api.summary.split()[0] == disguise.called(find(name).summary).split()[0], task.id
        if disguise.noun:
            nouns += 1
            noun = disguise.called(disguise.noun)
            assert noun in NOUNS and has(made.instruction, noun), task.id
            assert [api.name for api in lists if has(api.summary, noun)] == [
                api.name for api in lists if api in here.values()
            ], task.id
            assert all(f"{app} app" in made.instruction for app in kind.apps()), task.id
    assert verbs > 100 and nouns > 50


def test_a_noun_is_renamed_where_it_is_one() -> None:
    said = "An order in the order app, order.show, {order}, reorder, orders and an order."
    assert (
        renamed(said, "order", "whale") == "A whale in the order app, order.show, {order}, reorder, whales and a whale."
    )
    assert renamed("An email, mails, an email address", "email", "whale") == "A whale, whales, an email address"
    assert renamed("Events: 'event' and e-event", "event", "whale") == "Whales: 'whale' and e-event"
    assert renamed("Text messages that a text message has", "text message", "whale") == "Whales that a whale has"


def test_a_thorough_expert_says_what_was_asked_in_the_words_of_the_instruction() -> None:
    for task in [*tasks("practice")[::9], *tasks("train")[::4], *tasks("dev")[::3]]:
        env, made = Errands(Errands.Options(thorough=True)), setting(task.data["scenario"], task.data["world"])
        played = asyncio.run(play(env, task, env.expert(task)))
        thoughts = [said.partition("```")[0] for said in played.said]
        asked = [thought for thought in thoughts if f"My task: {made.instruction} " in thought]
        places = [re.search(r" (First|Next) I need ", thought) for thought in asked]
        assert [place and place[1] for place in places] == ["First"] + ["Next"] * (len(asked) - 1), task.id
        for look in re.findall(
            r"I look for (.+?)\.(?: I keep|\n)", "".join(thoughts) if task.split == "practice" else ""
        ):
            assert look.lower() in made.instruction.lower(), (task.id, look)


def test_lists_are_in_another_order() -> None:
    places = {list(Disguise(seed).apis("mail")).index(names(seed, "mail")["star"]) for seed in SEEDS}
    assert len(places) > 10


def test_only_the_names_of_here_exist() -> None:
    session = Session(setting(REWRITE, "tests/0").world())
    session.run('notes = apis.notes.login(**apis.owner.show_account(app="notes"))["access_token"]')
    changed = {real: new for real, new in names(f"tests/0/{REWRITE}", "notes").items() if real != new}
    assert len(changed) >= 5
    listed = session.run('print(apis.docs.list_apis(app="notes"))')
    for real, new in changed.items():
        assert f"notes has no API '{real}'" in session.run(f"apis.notes.{real}(access_token=notes)")
        assert f"There is no API 'notes.{real}'" in session.run(f'apis.docs.show(api="notes.{real}")')
        assert session.run(f'print(apis.docs.show(api="notes.{new}"))').startswith(f"notes.{new}(access_token: str")
        assert f"'notes.{new}'" in listed and f"'notes.{real}'" not in listed
        assert f"422 notes.{new} takes its parameters by keyword" in session.run(f"apis.notes.{new}(1)")
        assert f"can only be called, as apis.notes.{new}(...)" in session.run(f"apis.notes.{new}")
    session.close()


def test_errors_speak_the_names_of_here() -> None:
    """With the first seed under which the parameters of notes.rename have other names."""
    seed = next(
        f"s{number}"
        for number in range(100)
        if all(
            real != new for api, real, new in parameters(f"s{number}", "notes") if api == "rename" and real[0] != "a"
        )
    )
    title = next(new for api, real, new in parameters(seed, "notes") if (api, real) == ("rename", "title"))
    which = next(new for api, real, new in parameters(seed, "notes") if (api, real) == ("rename", "note_id"))
    world = make_world("tests/0")
    world.disguise = Disguise(seed)
    session, name = Session(world), names(seed, "notes")["rename"]
    session.run('t = apis.notes.login(**apis.owner.show_account(app="notes"))["access_token"]')
    call = f"apis.notes.{name}"
    assert f"422 notes.{name} has no parameter 'title'." in session.run(f'{call}({which}=1, title="A", access_token=t)')
    assert f"Did you mean '{title}'?" in session.run(f'{call}({which}=1, {title}s="A", access_token=t)')
    assert f"needs the parameter '{title}' (str)" in session.run(f"{call}({which}=1, access_token=t)")
    assert f"{title} must be str" in session.run(f"{call}({which}=1, {title}=2, access_token=t)")
    id = world.value("SELECT id FROM notes WHERE owner = ?", world.owner.id)
    session.run(f'{call}({which}={id}, {title}="A new one", access_token=t)')
    assert world.value("SELECT title FROM notes WHERE id = ?", id) == "A new one"
    session.close()


def test_sentences_that_name_others_name_them_as_here() -> None:
    """An error that points to another API, and descriptions that mention a parameter."""
    for seed in SEEDS:
        disguise, called = Disguise(seed), names(seed, "files")
        world = make_world("tests/0")
        world.disguise = disguise
        session = Session(world)
        session.run('t = apis.files.login(**apis.owner.show_account(app="files"))["access_token"]')
        folder = next(new for api, real, new in parameters(seed, "files") if (api, real) == ("list_folder", "folder"))
        said = session.run(f'apis.files.{called["list_folder"]}({folder}="No/Such", access_token=t)')
        assert f"see files.{called['list_folders']}." in said
        assert f"see files.{called['list_folders']}." in disguise.apis("files")[called["list_folder"]].documentation
        session.close()
        world.close()
        given = {(api, real): new for api, real, new in parameters(seed, "mail", ALL)}
        mail = Disguise(seed, ALL).apis("mail")
        about = {api: mail[name].about for api, name in names(seed, "mail", ALL).items()}
        assert f"With {given['reply', 'everyone']}=True" in about["reply"]
        assert f"`{given['search', 'sender']}` in the sender's name" in about["search"]


def test_a_fork_keeps_the_names() -> None:
    env, task = (
        Errands(Errands.Options(thorough=True)),
        next(task for task in tasks("practice") if task.scenario == REWRITE),
    )
    messages = list(env.start(task))
    player = env.expert(task)
    for _ in range(3):
        action = Message("assistant", player.act(messages))
        messages += [action, *env.step(action).messages]
    copy = env.fork()
    while not (step := copy.step(Message("assistant", player.act(messages)))).done:
        messages += step.messages
    assert copy.finish().success
    assert not env.finish().success


def test_the_expert_speaks_the_names_of_here() -> None:
    """Every API and parameter that it thinks of is one that was printed before."""
    for task in tasks("practice")[::5]:
        env = Errands(Errands.Options(thorough=True))
        played = asyncio.run(play(env, task, env.expert(task)))
        assert played.outcome.success, task.id
        seen = ""
        for message in played.messages[played.opening - 1 :]:
            if message.role == "assistant":
                thought = message.content.partition("```")[0]
                for app, api in re.findall(r"\b([a-z]+)\.(\w+)", thought):
                    assert app not in RENAMED or api == "com" or f"'{app}.{api}'" in seen, (task.id, thought)
                for sentence in re.findall(r" \('(.+?)'\)(?: and|\. I read)", thought):
                    assert sentence in seen, (task.id, sentence)
                for word in re.findall(r"`(\w+)`", thought) if " does it" in thought else ():
                    assert re.search(rf"[(, ]{word}: ", seen), (task.id, thought)
            else:
                seen += message.content


def test_the_real_names_do_not_do_it() -> None:
    """Someone who knows the real names by heart can do few of the disguised tasks: those whose names happen to stay."""
    done = tried = 0
    for task in tasks("practice")[::5]:
        env, made = Errands(Errands.Options()), setting(task.data["scenario"], task.data["world"])
        if made.disguise is None:
            continue
        by_heart = Expert(expert(task.data["scenario"], made.goal.slots))
        done += asyncio.run(play(env, task, by_heart)).outcome.success
        tried += 1
    assert tried > 100 and done < tried / 25


def test_code_is_translated_where_it_stands() -> None:
    """By place and not by word: strings, other calls and letters of more than one byte stay."""
    seed = next(f"s{n}" for n in range(100) if names(f"s{n}", "notes")["create"] != "create")
    given = {(api, real): new for api, real, new in parameters(seed, "notes")}
    create, search = (names(seed, "notes")[api] for api in ("create", "search"))
    code = 'x = "é", apis.notes.create(title="ü create title=", body=str(apis.notes.search(query="a",\n  page=1)))'
    assert Disguise(seed).turn("", code)[1] == (
        f'x = "é", apis.notes.{create}({given["create", "title"]}="ü create title=", {given["create", "body"]}='
        f'str(apis.notes.{search}({given["search", "query"]}="a",\n  {given["search", "page"]}=1)))'
    )
    same = 'print(apis.owner.show_account(app="notes"), dict(title=1))\nnotes = apis.notes.login(**a)["access_token"]'
    assert Disguise(seed).turn("Write to ada@notes.com.", same) == ("Write to ada@notes.com.", same)


def test_the_destroyer_finds_what_there_is_to_delete() -> None:
    """The floor stays one: its calls arrive under the names of here."""
    task = next(task for task in tasks("practice") if task.scenario == REWRITE)
    env = Errands(Errands.Options())
    script = env.baselines(task)["delete everything"]
    messages = list(env.start(task))
    before = env._world.value("SELECT count(*) FROM notes WHERE owner = ?", env._world.owner.id)
    while code_of(action := script.act(messages)) and env._world.done is None:
        env.step(Message("assistant", action))
    after = env._world.value("SELECT count(*) FROM notes WHERE owner = ?", env._world.owner.id)
    assert before > 3 and after < before
    env.finish()


def test_experts_translate_in_many_threads_at_once() -> None:
    class Junk:
        """Collecting it lets another thread run in the middle of parsing."""

        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            sum(range(200))

    code = 'print(apis.mail.send(to=[found[0]["email"]], subject="A", body="B", access_token=mail))\n' * 40
    failed = []

    def translate() -> None:
        try:
            for _ in range(100):
                [Junk() for _ in range(20)]
                Disguise("many threads").turn("", code)
        except BaseException as error:
            failed.append(error)

    thresholds, interval = gc.get_threshold(), sys.getswitchinterval()
    gc.set_threshold(50)
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=translate) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        gc.set_threshold(*thresholds)
        sys.setswitchinterval(interval)
    assert not failed
