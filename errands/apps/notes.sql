CREATE TABLE notes (id INTEGER PRIMARY KEY AUTOINCREMENT, owner INTEGER NOT NULL REFERENCES people(id),
    title TEXT NOT NULL, body TEXT NOT NULL, created TEXT NOT NULL,
    pinned INTEGER NOT NULL DEFAULT 0 CHECK (pinned IN (0, 1)),
    archived INTEGER NOT NULL DEFAULT 0 CHECK (archived IN (0, 1)));
CREATE TABLE notes_tags (id INTEGER PRIMARY KEY AUTOINCREMENT,
    note_id INTEGER NOT NULL REFERENCES notes(id) ON DELETE CASCADE, tag TEXT NOT NULL, UNIQUE (note_id, tag));
CREATE VIEW notes_counted AS SELECT owner, tag, count(*) AS notes
    FROM notes_tags JOIN notes n ON n.id = note_id GROUP BY owner, tag;

-- What must find nothing:
SELECT id FROM notes WHERE title = '';
SELECT id FROM notes_tags WHERE tag != lower(tag);
