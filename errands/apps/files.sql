CREATE TABLE files_folders (id INTEGER PRIMARY KEY AUTOINCREMENT, owner INTEGER NOT NULL REFERENCES people(id),
    path TEXT NOT NULL, UNIQUE (owner, path));
CREATE TABLE files_files (id INTEGER PRIMARY KEY AUTOINCREMENT, owner INTEGER NOT NULL REFERENCES people(id),
    folder INTEGER REFERENCES files_folders(id), name TEXT NOT NULL, text TEXT NOT NULL DEFAULT '',
    kb INTEGER NOT NULL CHECK (kb > 0), changed TEXT NOT NULL, binned INTEGER NOT NULL DEFAULT 0,
    CHECK (folder IS NOT NULL OR binned = 1));
CREATE UNIQUE INDEX files_files_place ON files_files(folder, name) WHERE binned = 0;
CREATE TABLE files_shares (id INTEGER PRIMARY KEY AUTOINCREMENT,
    file INTEGER NOT NULL REFERENCES files_files(id) ON DELETE CASCADE, person INTEGER NOT NULL REFERENCES people(id),
    UNIQUE (file, person));
CREATE INDEX files_shares_person ON files_shares(person);
CREATE VIEW files_shown AS SELECT f.id, f.name, d.path AS folder, f.kb, f.changed, f.owner, f.text, f.binned
    FROM files_files f LEFT JOIN files_folders d ON d.id = f.folder;
CREATE VIEW files_counted AS
    SELECT *, (SELECT count(*) FROM files_files WHERE folder = d.id AND binned = 0) AS files FROM files_folders d;
CREATE VIEW files_shared AS SELECT f.id, name, first || ' ' || last AS owner, kb, changed, person, binned
    FROM files_files f JOIN people p ON p.id = f.owner JOIN files_shares s ON s.file = f.id;

-- What must find nothing:
SELECT f.id FROM files_files f JOIN files_folders d ON d.id = f.folder WHERE d.owner <> f.owner;
SELECT s.id FROM files_shares s JOIN files_files f ON f.id = s.file WHERE f.owner = s.person;
SELECT id FROM files_folders d WHERE instr(path, '/') AND NOT EXISTS
    (SELECT 1 FROM files_folders u WHERE u.owner = d.owner AND instr(d.path, u.path || '/') = 1);
