"""Music: a catalogue of songs, and everyone's library, likes, ratings, playlists, followed artists and player."""

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict

from errands.api import App, Id, Label, Line, Listing, New, Numbered, Problem, Query, Success
from errands.words import read
from errands.world import World

app = App("music", "Music: songs, albums and artists; your library, likes, ratings, playlists and player.")

NO_SONG = Problem(404, "There is no song {id}.")
NO_ARTIST = Problem(404, "There is no artist {artist!r}.")
NO_PLAYLIST = Problem(404, "There is no playlist {id}.")
NOT_OWNER = Problem(403, "This is someone else's playlist; you can only read and play it.")
ALREADY = Problem(409, "It is already there.")
NOT_THERE = Problem(409, "It is not there.")
EMPTY = Problem(409, "There is no song to play.")

Stars = Annotated[int, Field(ge=1, le=5), Label("1..5")]
Volume = Annotated[int, Field(ge=0, le=100), Label("0..100")]


class Song(Numbered):
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


class Kept(Numbered):
    title: str
    artist: str
    added: str
    plays: int
    stars: int | None


class Album(TypedDict):
    album: str
    artist: str
    year: int


class Playlist(Numbered):
    name: str
    owner: str
    songs: int
    public: bool


class Player(TypedDict):
    song: Song | None
    playing: bool
    volume: int
    queued: int


@app.api()
def search_songs(w: World, me: int, query: Query = "", artist: Query = "", genre: Query = "") -> Listing[Song]:
    """Songs in the catalogue whose title or album contains the query. You can also give the artist and the genre."""
    given = "(?2 = '' OR artist = ?2 COLLATE NOCASE) AND (?3 = '' OR genre = ?3 COLLATE NOCASE)"
    source = f"FROM music_songs WHERE holds(title || ' ' || album, ?1) AND {given} ORDER BY id"
    return Listing(source, query, artist, genre)


@app.api(NO_SONG)
def show_song(w: World, me: int, song_id: Id) -> FullSong:
    """Show a song: its album and year, whether it is in your library and you like it, and the stars you gave it."""
    _song(w, song_id)
    mine = (
        "EXISTS (SELECT 1 FROM music_library WHERE owner = ?1 AND song = s.id) AS in_library,"
        " EXISTS (SELECT 1 FROM music_likes WHERE owner = ?1 AND song = s.id) AS liked,"
        " (SELECT stars FROM music_ratings WHERE owner = ?1 AND song = s.id) AS stars"
    )
    return w.rows(FullSong, f"FROM (SELECT *, {mine} FROM music_songs s) WHERE id = ?2", me, song_id)[0]


@app.api()
def search_albums(w: World, me: int, query: Query = "") -> Listing[Album]:
    """Albums whose title or artist contains the query, newest first."""
    source = "FROM music_songs WHERE holds(album || ' ' || artist, ?) GROUP BY album ORDER BY year DESC, album"
    return Listing(source, query)


@app.api()
def list_followed(w: World, me: int) -> list[str]:
    """The names of the artists you follow."""
    return [row["artist"] for row in w.all("SELECT artist FROM music_follows WHERE owner = ? ORDER BY artist", me)]


@app.api(NO_ARTIST)
def follow(w: World, me: int, artist: Line, follow: bool = True) -> Success:
    """Follow an artist, or unfollow them."""
    NO_ARTIST.unless(w.find_id("music_songs", artist=artist), artist=artist)
    if follow:
        w.run("INSERT OR IGNORE INTO music_follows (owner, artist) VALUES (?, ?)", me, artist)
    else:
        w.remove("music_follows", owner=me, artist=artist)
    return {"message": "Followed." if follow else "Unfollowed."}


@app.api()
def list_library(w: World, me: int) -> Listing[Kept]:
    """The songs in your library, last added first, with your plays and stars."""
    return Listing("FROM music_kept WHERE owner = ? ORDER BY added DESC, id", me)


@app.api(NO_SONG, ALREADY, says="Added.")
def add_to_library(w: World, me: int, song_id: Id) -> None:
    """Add a song to your library."""
    _put(w, "music_library", "owner", me, song_id, added=w.today)


@app.api(NO_SONG, NOT_THERE, says="Removed.")
def remove_from_library(w: World, me: int, song_id: Id) -> None:
    """Remove a song from your library."""
    _take(w, "music_library", "owner", me, song_id)


@app.api()
def list_likes(w: World, me: int) -> Listing[Song]:
    """The songs you like."""
    return _songs_of("music_likes", "owner", me)


@app.api(NO_SONG, ALREADY, NOT_THERE)
def like(w: World, me: int, song_id: Id, like: bool = True) -> Success:
    """Like a song, or unlike it."""
    change = _put if like else _take
    change(w, "music_likes", "owner", me, song_id)
    return {"message": "Added." if like else "Removed."}


@app.api(NO_SONG, says="Rated.")
def rate(w: World, me: int, song_id: Id, stars: Stars) -> None:
    """Rate a song with stars. They replace the stars you gave before."""
    _song(w, song_id)
    if not w.run("UPDATE music_ratings SET stars = ? WHERE owner = ? AND song = ?", stars, me, song_id):
        w.add("music_ratings", owner=me, song=song_id, stars=stars)


@app.api()
def list_playlists(w: World, me: int) -> Listing[Playlist]:
    """Your playlists."""
    return Listing("FROM music_shown WHERE owner_id = ? ORDER BY id", me)


@app.api()
def search_public(w: World, me: int, query: Query = "") -> Listing[Playlist]:
    """Public playlists of other people whose name or owner contains the query."""
    source = "FROM music_shown WHERE owner_id <> ? AND public = 1 AND holds(name || ' ' || owner, ?) ORDER BY id"
    return Listing(source, me, query)


@app.api(NO_PLAYLIST)
def list_playlist_songs(w: World, me: int, playlist_id: Id) -> Listing[Song]:
    """The songs of a playlist, yours or a public one, in the order they were added."""
    _playlist(w, me, playlist_id)
    return _songs_of("music_tracks", "playlist", playlist_id)


@app.api()
def create_playlist(w: World, me: int, name: Line, public: bool = False) -> New[Literal["playlist_id"]]:
    """Create an empty playlist."""
    return {"playlist_id": w.add("music_playlists", owner=me, name=name, public=int(public))}


@app.api(NO_PLAYLIST, NOT_OWNER, says="Playlist changed.")
def update_playlist(w: World, me: int, playlist_id: Id, name: Line | None = None, public: bool | None = None) -> None:
    """Rename a playlist, or make it public or private. What you leave out stays as it is."""
    _playlist(w, me, playlist_id, change=True)
    w.change("music_playlists", playlist_id, name=name, public=public)


@app.api(NO_PLAYLIST, NOT_OWNER, says="Playlist deleted.")
def delete_playlist(w: World, me: int, playlist_id: Id) -> None:
    """Delete a playlist. Its songs stay in your library."""
    _playlist(w, me, playlist_id, change=True)
    w.remove("music_playlists", id=playlist_id)


@app.api(NO_PLAYLIST, NOT_OWNER, NO_SONG, ALREADY, says="Added.")
def add_to_playlist(w: World, me: int, playlist_id: Id, song_id: Id) -> None:
    """Add a song to a playlist."""
    _playlist(w, me, playlist_id, change=True)
    _put(w, "music_tracks", "playlist", playlist_id, song_id)


@app.api(NO_PLAYLIST, NOT_OWNER, NO_SONG, NOT_THERE, says="Removed.")
def remove_from_playlist(w: World, me: int, playlist_id: Id, song_id: Id) -> None:
    """Remove a song from a playlist."""
    _playlist(w, me, playlist_id, change=True)
    _take(w, "music_tracks", "playlist", playlist_id, song_id)


@app.api()
def show_player(w: World, me: int) -> Player:
    """The song that is playing or paused, the volume, and the number of songs in the queue."""
    player = w.all("SELECT song, playing, volume FROM music_players WHERE owner = ?", me)[0]
    songs = w.rows(Song, "FROM music_songs WHERE id = ?", player["song"])
    return {
        "song": songs[0] if songs else None,
        "playing": bool(player["playing"]),
        "volume": player["volume"],
        "queued": w.value("SELECT count(*) FROM music_queue WHERE owner = ?", me),
    }


@app.api(NO_SONG, says="Playing.")
def play_song(w: World, me: int, song_id: Id) -> None:
    """Play a song now. The queue stays as it is."""
    _song(w, song_id)
    w.run("UPDATE music_players SET song = ?, playing = 1 WHERE owner = ?", song_id, me)


@app.api(NO_PLAYLIST, EMPTY, says="Playing.")
def play_playlist(w: World, me: int, playlist_id: Id) -> None:
    """Play the first song of a playlist now. Its other songs replace the queue."""
    _playlist(w, me, playlist_id)
    rows = w.all("SELECT song FROM music_tracks WHERE playlist = ? ORDER BY id", playlist_id)
    w.remove("music_queue", owner=me)
    for row in rows:
        w.add("music_queue", owner=me, song=row["song"])
    next(w, me)


@app.api(says="Paused.")
def pause(w: World, me: int) -> None:
    """Pause the player."""
    w.run("UPDATE music_players SET playing = 0 WHERE owner = ?", me)


@app.api(EMPTY, says="Playing.")
def next(w: World, me: int) -> None:
    """Play the next song of the queue."""
    song = EMPTY.unless(w.value("SELECT song FROM music_queue WHERE owner = ? ORDER BY id", me))
    _take(w, "music_queue", "owner", me, song)
    play_song(w, me, song)


@app.api(NO_SONG, ALREADY, says="Added.")
def queue_song(w: World, me: int, song_id: Id) -> None:
    """Add a song to the end of the queue."""
    _put(w, "music_queue", "owner", me, song_id)


@app.api()
def list_queue(w: World, me: int) -> Listing[Song]:
    """The songs in the queue, next one first."""
    return _songs_of("music_queue", "owner", me)


@app.api(says="Volume set.")
def set_volume(w: World, me: int, volume: Volume) -> None:
    """Set the volume of the player."""
    w.run("UPDATE music_players SET volume = ? WHERE owner = ?", volume, me)


def _songs_of(table: str, column: str, value: int) -> Listing[Song]:
    """The songs in one of the tables that hold songs of a person or playlist, in the order they were added."""
    joined = f"SELECT s.*, x.id AS place FROM {table} x JOIN music_songs s ON s.id = song WHERE {column} = ?"
    return Listing(f"FROM ({joined}) ORDER BY place", value)


def _put(w: World, table: str, column: str, value: int, song: int, **more: str) -> None:
    _song(w, song)
    row = {column: value, "song": song}
    ALREADY.when(w.find_id(table, **row))
    w.add(table, **row, **more)


def _take(w: World, table: str, column: str, value: int, song: int) -> None:
    _song(w, song)
    NOT_THERE.unless(w.remove(table, **{column: value, "song": song}))


def _song(w: World, id: int) -> None:
    NO_SONG.unless(w.find_id("music_songs", id=id), id=id)


def _playlist(w: World, me: int, id: int, change: bool = False) -> None:
    """Check that I may read or change a playlist."""
    found = w.one("SELECT owner, public FROM music_playlists WHERE id = ?", id)
    if found is None or (found["owner"] != me and not found["public"]):
        raise NO_PLAYLIST(id=id)
    NOT_OWNER.when(change and found["owner"] != me)


_WORDS = read("world")["music"]
_TITLES = [f"{first} {second}" for first in _WORDS["first"] for second in _WORDS["second"]]
_SONGS = 48
"""In the catalogue: eight of each artist, on two albums."""


@app.filled_by
def fill(w: World) -> None:
    """A catalogue; the owner has a library, ratings and playlists, some others a public playlist."""
    rng, me, ids = w.rng, w.owner.id, range(1, _SONGS + 1)
    titles = rng.sample(_TITLES, _SONGS + _SONGS // 4)
    albums = [(f"{title} Sessions", rng.randrange(1995, w.now.year)) for title in titles[_SONGS:]]
    songs = []
    for number, title in enumerate(titles[:_SONGS]):
        artist, genre = _WORDS["artists"][number // 8], _WORDS["genres"][number // 16]
        songs.append((title, artist, genre, *albums[number // 4], rng.randrange(120, 420)))
    kept = rng.sample(ids, 25)
    playlists = [(me, name, False) for name in _WORDS["playlists"]]
    playlists += [(person.id, "Favourites", True) for person in rng.sample(w.others(), 4)]
    tracks = [
        (playlist + 1, song) for playlist in range(len(playlists)) for song in rng.sample(ids, rng.randrange(4, 8))
    ]
    library = [(me, song, w.day(-rng.randrange(1, 300)), rng.randrange(200)) for song in kept]
    ratings = [(me, song, rng.randrange(1, 6)) for song in rng.sample(kept, 16)]
    w.add_all("music_songs", "title, artist, genre, album, year, seconds", songs)
    w.add_all("music_library", "owner, song, added, plays", library)
    w.add_all("music_likes", "owner, song", [(me, song) for song in rng.sample(kept, 12)])
    w.add_all("music_ratings", "owner, song, stars", ratings)
    w.add_all("music_follows", "owner, artist", [(me, artist) for artist in rng.sample(_WORDS["artists"], 3)])
    w.add_all("music_queue", "owner, song", [(me, song) for song in rng.sample(ids, 3)])
    w.add_all("music_playlists", "owner, name, public", playlists)
    w.add_all("music_tracks", "playlist, song", tracks)
    w.add_all("music_players", "owner, song, playing, volume", [(p.id, rng.choice(kept), 0, 50) for p in w.people])
