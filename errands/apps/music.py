"""Music: a catalogue of songs, and everyone's library, likes, ratings, playlists, followed artists and player."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from errands.api import App, Id, Label, Line, Page, PageSize, Problem, Query, Success
from errands.world import World

app = App(
    "music",
    "Music: songs, albums and artists; your library, likes, ratings, playlists and player.",
    schema="""
CREATE TABLE music_songs (id INTEGER PRIMARY KEY AUTOINCREMENT, title TEXT NOT NULL UNIQUE, artist TEXT NOT NULL,
    album TEXT NOT NULL, genre TEXT NOT NULL, year INTEGER NOT NULL, seconds INTEGER NOT NULL);
CREATE TABLE music_library (id INTEGER PRIMARY KEY AUTOINCREMENT, owner INTEGER NOT NULL REFERENCES people(id),
    song INTEGER NOT NULL REFERENCES music_songs(id), added TEXT NOT NULL, plays INTEGER NOT NULL DEFAULT 0,
    UNIQUE (owner, song));
CREATE TABLE music_likes (id INTEGER PRIMARY KEY AUTOINCREMENT, owner INTEGER NOT NULL REFERENCES people(id),
    song INTEGER NOT NULL REFERENCES music_songs(id), UNIQUE (owner, song));
CREATE TABLE music_ratings (id INTEGER PRIMARY KEY AUTOINCREMENT, owner INTEGER NOT NULL REFERENCES people(id),
    song INTEGER NOT NULL REFERENCES music_songs(id), stars INTEGER NOT NULL CHECK (stars BETWEEN 1 AND 5),
    UNIQUE (owner, song));
CREATE TABLE music_follows (id INTEGER PRIMARY KEY AUTOINCREMENT, owner INTEGER NOT NULL REFERENCES people(id),
    artist TEXT NOT NULL, UNIQUE (owner, artist));
CREATE TABLE music_playlists (id INTEGER PRIMARY KEY AUTOINCREMENT, owner INTEGER NOT NULL REFERENCES people(id),
    name TEXT NOT NULL, public INTEGER NOT NULL DEFAULT 0);
CREATE INDEX music_playlists_owner ON music_playlists(owner);
CREATE TABLE music_tracks (id INTEGER PRIMARY KEY AUTOINCREMENT, song INTEGER NOT NULL REFERENCES music_songs(id),
    playlist INTEGER NOT NULL REFERENCES music_playlists(id) ON DELETE CASCADE, UNIQUE (playlist, song));
CREATE TABLE music_queue (id INTEGER PRIMARY KEY AUTOINCREMENT, owner INTEGER NOT NULL REFERENCES people(id),
    song INTEGER NOT NULL REFERENCES music_songs(id), UNIQUE (owner, song));
CREATE TABLE music_players (id INTEGER PRIMARY KEY AUTOINCREMENT, owner INTEGER NOT NULL UNIQUE REFERENCES people(id),
    song INTEGER REFERENCES music_songs(id), playing INTEGER NOT NULL, volume INTEGER NOT NULL,
    CHECK (volume BETWEEN 0 AND 100), CHECK (song IS NOT NULL OR playing = 0));
""",
    invariants=(
        "SELECT id FROM people WHERE id NOT IN (SELECT owner FROM music_players)",
        "SELECT id FROM music_follows WHERE artist NOT IN (SELECT artist FROM music_songs)",
    ),
)

NO_SONG = Problem(404, "There is no song {id}.")
NO_ARTIST = Problem(404, "There is no artist {artist!r}.")
NO_PLAYLIST = Problem(404, "There is no playlist {id}.")
NOT_OWNER = Problem(403, "The playlist is someone else's; you can only read and play it.")
ALREADY = Problem(409, "It is already there.")
NOT_THERE = Problem(409, "It is not there.")
EMPTY = Problem(409, "There is no song to play.")

Stars = Annotated[int, Field(ge=1, le=5), Label("1..5")]
Volume = Annotated[int, Field(ge=0, le=100), Label("0..100")]


class Song(TypedDict):
    id: int
    title: str
    artist: str
    genre: str
    seconds: int


class FullSong(Song):
    album: str
    year: int
    in_library: bool
    liked: bool
    stars: int | None


class Kept(TypedDict):
    id: int
    title: str
    artist: str
    added: str
    plays: int
    stars: int | None


class Album(TypedDict):
    album: str
    artist: str
    year: int


class Playlist(TypedDict):
    id: int
    name: str
    owner: str
    songs: int
    public: bool


class PlaylistMade(TypedDict):
    playlist_id: int


class Player(TypedDict):
    song: Song | None
    playing: bool
    volume: int
    queued: int


@app.api()
def search_songs(
    w: World, me: int, query: Query = "", artist: Query = "", genre: Query = "", page: Page = 0, page_size: PageSize = 5
) -> list[Song]:
    """Songs of the catalogue whose title or album contains the query, of this artist and genre where given."""
    source = "FROM music_songs WHERE title || ' ' || album LIKE ? AND artist LIKE ? AND genre LIKE ? ORDER BY id"
    return w.page(Song, source, (f"%{query}%", artist or "%", genre or "%"), page, page_size)


@app.api(NO_SONG)
def show_song(w: World, me: int, song_id: Id) -> FullSong:
    """One song with its album and year, whether it is in your library and liked, and the stars you gave it."""
    _song(w, song_id)
    mine = (
        "EXISTS (SELECT 1 FROM music_library WHERE owner = ?1 AND song = s.id) AS in_library,"
        " EXISTS (SELECT 1 FROM music_likes WHERE owner = ?1 AND song = s.id) AS liked,"
        " (SELECT stars FROM music_ratings WHERE owner = ?1 AND song = s.id) AS stars"
    )
    return w.rows(FullSong, f"FROM (SELECT *, {mine} FROM music_songs s) WHERE id = ?2", me, song_id)[0]


@app.api()
def search_albums(w: World, me: int, query: Query = "", page: Page = 0, page_size: PageSize = 5) -> list[Album]:
    """Albums whose title or artist contains the query, newest first."""
    source = "FROM music_songs WHERE album || ' ' || artist LIKE ? GROUP BY album ORDER BY year DESC, album"
    return w.page(Album, source, (f"%{query}%",), page, page_size)


@app.api()
def list_followed(w: World, me: int) -> list[str]:
    """The names of the artists you follow."""
    return [row["artist"] for row in w.all("SELECT artist FROM music_follows WHERE owner = ? ORDER BY artist", me)]


@app.api(NO_ARTIST)
def follow(w: World, me: int, artist: Line, follow: bool = True) -> Success:
    """Follow an artist, or no longer."""
    if w.value("SELECT id FROM music_songs WHERE artist = ?", artist) is None:
        raise NO_ARTIST(artist=artist)
    if follow:
        w.run("INSERT OR IGNORE INTO music_follows (owner, artist) VALUES (?, ?)", me, artist)
    else:
        w.run("DELETE FROM music_follows WHERE owner = ? AND artist = ?", me, artist)
    return {"message": "Followed." if follow else "No longer followed."}


@app.api()
def list_library(w: World, me: int, page: Page = 0, page_size: PageSize = 5) -> list[Kept]:
    """The songs in your library, last added first: how often you played them, and the stars you gave."""
    source = (
        "FROM (SELECT s.id, title, artist, added, plays, stars, l.owner FROM music_library l JOIN music_songs s"
        " ON s.id = l.song LEFT JOIN music_ratings t ON t.song = s.id AND t.owner = l.owner)"
        " WHERE owner = ? ORDER BY added DESC, id"
    )
    return w.page(Kept, source, (me,), page, page_size)


@app.api(NO_SONG, ALREADY)
def add_to_library(w: World, me: int, song_id: Id) -> Success:
    """Add a song to your library."""
    return _put(w, "music_library", "owner", me, song_id, added=w.today)


@app.api(NO_SONG, NOT_THERE)
def remove_from_library(w: World, me: int, song_id: Id) -> Success:
    """Remove a song from your library."""
    return _take(w, "music_library", "owner", me, song_id)


@app.api()
def list_likes(w: World, me: int, page: Page = 0, page_size: PageSize = 5) -> list[Song]:
    """The songs that you like."""
    return _songs_of(w, "music_likes", "owner", me, page, page_size)


@app.api(NO_SONG, ALREADY, NOT_THERE)
def like(w: World, me: int, song_id: Id, like: bool = True) -> Success:
    """Like a song, or no longer."""
    change = _put if like else _take
    return change(w, "music_likes", "owner", me, song_id)


@app.api(NO_SONG)
def rate(w: World, me: int, song_id: Id, stars: Stars) -> Success:
    """Give a song stars, in place of those you gave before."""
    _song(w, song_id)
    if not w.run("UPDATE music_ratings SET stars = ? WHERE owner = ? AND song = ?", stars, me, song_id):
        w.add("music_ratings", owner=me, song=song_id, stars=stars)
    return {"message": "Rated."}


@app.api()
def list_playlists(w: World, me: int, page: Page = 0, page_size: PageSize = 5) -> list[Playlist]:
    """Your playlists."""
    return w.page(Playlist, f"FROM ({_PLAYLISTS} WHERE p.owner = ?) ORDER BY id", (me,), page, page_size)


@app.api()
def search_public(w: World, me: int, query: Query = "", page: Page = 0, page_size: PageSize = 5) -> list[Playlist]:
    """Public playlists of other people whose name or owner contains the query."""
    source = f"FROM ({_PLAYLISTS} WHERE p.owner <> ? AND public = 1) WHERE name || ' ' || owner LIKE ? ORDER BY id"
    return w.page(Playlist, source, (me, f"%{query}%"), page, page_size)


@app.api(NO_PLAYLIST)
def list_playlist_songs(w: World, me: int, playlist_id: Id, page: Page = 0, page_size: PageSize = 5) -> list[Song]:
    """The songs of a playlist, yours or a public one, in the order they were added."""
    _playlist(w, me, playlist_id)
    return _songs_of(w, "music_tracks", "playlist", playlist_id, page, page_size)


@app.api()
def create_playlist(w: World, me: int, name: Line, public: bool = False) -> PlaylistMade:
    """Make an empty playlist."""
    return {"playlist_id": w.add("music_playlists", owner=me, name=name, public=int(public))}


@app.api(NO_PLAYLIST, NOT_OWNER)
def update_playlist(
    w: World, me: int, playlist_id: Id, name: Line | None = None, public: bool | None = None
) -> Success:
    """Rename a playlist, or make it public or private; what is not given stays."""
    _playlist(w, me, playlist_id, change=True)
    sql = "UPDATE music_playlists SET name = coalesce(?, name), public = coalesce(?, public) WHERE id = ?"
    w.run(sql, name, public, playlist_id)
    return {"message": "Playlist changed."}


@app.api(NO_PLAYLIST, NOT_OWNER)
def delete_playlist(w: World, me: int, playlist_id: Id) -> Success:
    """Delete a playlist; its songs stay in your library."""
    _playlist(w, me, playlist_id, change=True)
    w.run("DELETE FROM music_playlists WHERE id = ?", playlist_id)
    return {"message": "Playlist deleted."}


@app.api(NO_PLAYLIST, NOT_OWNER, NO_SONG, ALREADY)
def add_to_playlist(w: World, me: int, playlist_id: Id, song_id: Id) -> Success:
    """Add a song to a playlist."""
    _playlist(w, me, playlist_id, change=True)
    return _put(w, "music_tracks", "playlist", playlist_id, song_id)


@app.api(NO_PLAYLIST, NOT_OWNER, NO_SONG, NOT_THERE)
def remove_from_playlist(w: World, me: int, playlist_id: Id, song_id: Id) -> Success:
    """Remove a song from a playlist."""
    _playlist(w, me, playlist_id, change=True)
    return _take(w, "music_tracks", "playlist", playlist_id, song_id)


@app.api()
def show_player(w: World, me: int) -> Player:
    """What is playing or paused, how loud, and how many songs are queued."""
    player = w.all("SELECT song, playing, volume FROM music_players WHERE owner = ?", me)[0]
    songs = w.rows(Song, "FROM music_songs WHERE id = ?", player["song"])
    return {
        "song": songs[0] if songs else None,
        "playing": bool(player["playing"]),
        "volume": player["volume"],
        "queued": w.value("SELECT count(*) FROM music_queue WHERE owner = ?", me),
    }


@app.api(NO_SONG)
def play_song(w: World, me: int, song_id: Id) -> Success:
    """Play a song now. The queue stays as it is."""
    _song(w, song_id)
    w.run("UPDATE music_players SET song = ?, playing = 1 WHERE owner = ?", song_id, me)
    return {"message": "Playing."}


@app.api(NO_PLAYLIST, EMPTY)
def play_playlist(w: World, me: int, playlist_id: Id) -> Success:
    """Play a playlist: its first song now, the others become the queue in place of what was there."""
    _playlist(w, me, playlist_id)
    rows = w.all("SELECT song FROM music_tracks WHERE playlist = ? ORDER BY id", playlist_id)
    w.run("DELETE FROM music_queue WHERE owner = ?", me)
    for row in rows:
        w.add("music_queue", owner=me, song=row["song"])
    return next(w, me)


@app.api()
def pause(w: World, me: int) -> Success:
    """Pause the player."""
    w.run("UPDATE music_players SET playing = 0 WHERE owner = ?", me)
    return {"message": "Paused."}


@app.api(EMPTY)
def next(w: World, me: int) -> Success:
    """Play the first song of the queue; it leaves the queue."""
    song = w.value("SELECT song FROM music_queue WHERE owner = ? ORDER BY id", me)
    if song is None:
        raise EMPTY()
    _take(w, "music_queue", "owner", me, song)
    return play_song(w, me, song)


@app.api(NO_SONG, ALREADY)
def queue_song(w: World, me: int, song_id: Id) -> Success:
    """Put a song at the end of the queue."""
    return _put(w, "music_queue", "owner", me, song_id)


@app.api()
def list_queue(w: World, me: int, page: Page = 0, page_size: PageSize = 5) -> list[Song]:
    """The queued songs, next one first."""
    return _songs_of(w, "music_queue", "owner", me, page, page_size)


@app.api()
def set_volume(w: World, me: int, volume: Volume) -> Success:
    """Set how loud the player is."""
    w.run("UPDATE music_players SET volume = ? WHERE owner = ?", volume, me)
    return {"message": "Volume set."}


_PLAYLISTS = (
    "SELECT p.id, name, first || ' ' || last AS owner, (SELECT count(*) FROM music_tracks WHERE playlist = p.id)"
    " AS songs, public FROM music_playlists p JOIN people o ON o.id = p.owner"
)


def _songs_of(w: World, table: str, column: str, value: int, page: int, page_size: int) -> list[Song]:
    """The songs in one of the tables that hold songs of a person or playlist, in the order they were added."""
    joined = f"SELECT s.*, x.id AS place FROM {table} x JOIN music_songs s ON s.id = song WHERE {column} = ?"
    return w.page(Song, f"FROM ({joined}) ORDER BY place", (value,), page, page_size)


def _put(w: World, table: str, column: str, value: int, song: int, **more: str) -> Success:
    _song(w, song)
    if w.value(f"SELECT id FROM {table} WHERE {column} = ? AND song = ?", value, song) is not None:
        raise ALREADY()
    w.add(table, **{column: value}, song=song, **more)
    return {"message": "Added."}


def _take(w: World, table: str, column: str, value: int, song: int) -> Success:
    _song(w, song)
    if not w.run(f"DELETE FROM {table} WHERE {column} = ? AND song = ?", value, song):
        raise NOT_THERE()
    return {"message": "Removed."}


def _song(w: World, id: int) -> None:
    if w.value("SELECT id FROM music_songs WHERE id = ?", id) is None:
        raise NO_SONG(id=id)


def _playlist(w: World, me: int, id: int, change: bool = False) -> None:
    """Check that I may read or change a playlist."""
    found = w.one("SELECT owner, public FROM music_playlists WHERE id = ?", id)
    if found is None or (found["owner"] != me and not found["public"]):
        raise NO_PLAYLIST(id=id)
    if change and found["owner"] != me:
        raise NOT_OWNER()


_GENRES = ("rock", "jazz", "folk")
_ARTISTS = ("Papercranes", "Tidewalkers", "Copper Owls", "Night Ferry", "Glass Bay", "Velvet Fox")
_FIRST = ("Silver", "Golden", "Broken", "Quiet", "Burning", "Distant", "Frozen", "Hidden", "Electric", "Wild", "Hollow")
_SECOND = ("River", "Morning", "Window", "Garden", "Highway", "Summer", "Mirror", "Shadow", "Island", "Ocean", "Winter")
_TITLES = [f"{first} {second}" for first in _FIRST for second in _SECOND]
_LISTS = ("Morning run", "Focus", "Dinner party", "Road trip", "Rainy days", "Workout")


@app.filled_by
def fill(w: World) -> None:
    """A catalogue; the owner has a library, ratings and playlists, some others a public playlist."""
    rng, me = w.rng, w.owner.id
    titles = rng.sample(_TITLES, 60)
    albums = [(f"{title} Sessions", rng.randrange(1995, w.now.year)) for title in titles[48:]]
    songs = []
    for number, title in enumerate(titles[:48]):
        who = number // 8
        songs.append((title, _ARTISTS[who], _GENRES[who // 2], *albums[number // 4], rng.randrange(120, 420)))
    _insert(w, "songs", "title, artist, genre, album, year, seconds", songs)
    kept = rng.sample(range(1, 49), 25)
    library = [(me, song, w.day(-rng.randrange(1, 300)), rng.randrange(200)) for song in kept]
    _insert(w, "library", "owner, song, added, plays", library)
    _insert(w, "likes", "owner, song", [(me, song) for song in rng.sample(kept, 12)])
    _insert(w, "ratings", "owner, song, stars", [(me, song, rng.randrange(1, 6)) for song in rng.sample(kept, 16)])
    _insert(w, "follows", "owner, artist", [(me, artist) for artist in rng.sample(_ARTISTS, 3)])
    _insert(w, "queue", "owner, song", [(me, song) for song in rng.sample(range(1, 49), 3)])
    for owner, name in [(me, name) for name in _LISTS] + [(p.id, "Favourites") for p in rng.sample(w.others(), 4)]:
        playlist = w.add("music_playlists", owner=owner, name=name, public=int(owner != me))
        _insert(w, "tracks", "playlist, song", [(playlist, s) for s in rng.sample(range(1, 49), rng.randrange(4, 8))])
    _insert(w, "players", "owner, song, playing, volume", [(p.id, rng.choice(kept), 0, 50) for p in w.people])


def _insert(w: World, table: str, columns: str, rows: Sequence[tuple[int | str, ...]]) -> None:
    marks = ", ".join("?" * len(columns.split()))
    w.db.executemany(f"INSERT INTO music_{table} ({columns}) VALUES ({marks})", rows)
