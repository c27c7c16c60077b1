"""Docs: the documentation of every app, from the definitions that implement it."""

from typing_extensions import TypedDict

from errands.api import App, Line, Problem
from errands.world import World

app = App("docs", "The documentation: lists the apps and their APIs, and shows an API in full.", login=False)

NO_APP = Problem(404, "There is no app {app!r}; see docs.list_apps().")
NO_API = Problem(404, "There is no API {api!r}; write it as app.api, and see docs.list_apis(app=...).")


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
    if app not in w.apps:
        raise NO_APP(app=app)
    return [{"api": f"{app}.{api.name}", "about": api.summary} for api in w.apis(app).values()]


@app.api(NO_API)
def show(w: World, api: Line) -> str:
    """Show an API in full: its parameters, what it returns, and its errors. For example api='owner.show_profile'."""
    app, _, name = api.partition(".")
    found = w.apis(app).get(name) if app in w.apps else None
    if found is None:
        raise NO_API(api=api)
    return found.documentation()
