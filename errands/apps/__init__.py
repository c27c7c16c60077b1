"""The apps, in the order in which a world is filled."""

from errands.api import Api
from errands.apps import calendar, contacts, docs, expenses, files, mail, music, notes, owner, phone, shop, todo, wallet
from errands.world import World

APPS = [
    module.app
    for module in (docs, owner, contacts, mail, phone, calendar, notes, todo, files, wallet, expenses, shop, music)
]
BY_NAME = {app.name: app for app in APPS}


def find(name: str) -> Api:
    """The API that is called so, as app.api; a KeyError if there is none."""
    app, _, api = name.partition(".")
    return BY_NAME[app].apis[api]


def make_world(seed: str) -> World:
    """A world with all apps, the same for the same seed."""
    return World.make(seed, BY_NAME)
