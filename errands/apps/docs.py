"""Docs: the documentation of every app, from the definitions that implement it."""

from typing_extensions import TypedDict

from errands.api import App, Line, Problem
from errands.world import World

app = App("docs", "The documentation: lists the apps and their APIs, and shows an API in full.", login=False)

NO_APP = Problem(404, "There is no app {app!r}. The apps are {apps}.")
NO_API = Problem(404, "There is no API {api!r}. The APIs of {app} are {apis}.")


class AppLine(TypedDict):
    app: str
    about: str


class ApiLine(TypedDict):
    api: str
    about: str


@app.api()
def list_apps(w: World) -> list[AppLine]:
    """List all apps."""
    return [{"app": app.name, "about": app.about} for app in w.apps.values()]


@app.api(NO_APP)
def list_apis(w: World, app: Line) -> list[ApiLine]:
    """List the APIs of an app, with a sentence about each."""
    NO_APP.unless(app in w.apps, app=app, apps=", ".join(w.apps))
    return [{"api": f"{app}.{api.name}", "about": api.summary} for api in w.apis(app).values()]


@app.api(NO_APP, NO_API)
def show(w: World, api: Line) -> str:
    """Show an API in full: its parameters, what it returns, and its errors. For example api='owner.show_profile'."""
    app, _, name = api.partition(".")
    NO_APP.unless(app in w.apps, app=app, apps=", ".join(w.apps))
    NO_API.unless(name in w.apis(app), api=api, app=app, apis=", ".join(w.apis(app)))
    return w.apis(app)[name].documentation
