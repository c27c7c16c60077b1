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
CREATE TABLE music_tracks (id INTEGER PRIMARY KEY AUTOINCREMENT, song INTEGER NOT NULL REFERENCES music_songs(id),
    playlist INTEGER NOT NULL REFERENCES music_playlists(id) ON DELETE CASCADE, UNIQUE (playlist, song));
CREATE TABLE music_queue (id INTEGER PRIMARY KEY AUTOINCREMENT, owner INTEGER NOT NULL REFERENCES people(id),
    song INTEGER NOT NULL REFERENCES music_songs(id), UNIQUE (owner, song));
CREATE TABLE music_players (id INTEGER PRIMARY KEY AUTOINCREMENT, owner INTEGER NOT NULL UNIQUE REFERENCES people(id),
    song INTEGER REFERENCES music_songs(id), playing INTEGER NOT NULL, volume INTEGER NOT NULL,
    CHECK (volume BETWEEN 0 AND 100), CHECK (song IS NOT NULL OR playing = 0));
CREATE VIEW music_shown AS SELECT p.id, name, first || ' ' || last AS owner, p.owner AS owner_id, public,
    (SELECT count(*) FROM music_tracks WHERE playlist = p.id) AS songs
    FROM music_playlists p JOIN people o ON o.id = p.owner;
CREATE VIEW music_kept AS SELECT s.id, title, artist, added, plays, stars, l.owner FROM music_library l
    JOIN music_songs s ON s.id = l.song LEFT JOIN music_ratings t ON t.song = s.id AND t.owner = l.owner;

-- What must find nothing:
SELECT id FROM people WHERE id NOT IN (SELECT owner FROM music_players);
SELECT id FROM music_follows WHERE artist NOT IN (SELECT artist FROM music_songs);
