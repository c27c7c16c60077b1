CREATE TABLE todo_lists (id INTEGER PRIMARY KEY AUTOINCREMENT, owner INTEGER NOT NULL REFERENCES people(id),
    name TEXT NOT NULL, UNIQUE (owner, name));
CREATE TABLE todo_items (id INTEGER PRIMARY KEY AUTOINCREMENT, owner INTEGER NOT NULL REFERENCES people(id),
    list_id INTEGER NOT NULL REFERENCES todo_lists(id) ON DELETE CASCADE, text TEXT NOT NULL, due TEXT,
    priority TEXT NOT NULL CHECK (priority IN ('low', 'normal', 'high')),
    done INTEGER NOT NULL DEFAULT 0 CHECK (done IN (0, 1)), done_on TEXT, note TEXT NOT NULL DEFAULT '');
CREATE INDEX todo_items_list ON todo_items(list_id);
CREATE VIEW todo_shown AS
    SELECT *, (SELECT count(*) FROM todo_items WHERE list_id = l.id AND done = 0) AS open_items FROM todo_lists l;

-- What must find nothing:
SELECT i.id FROM todo_items i JOIN todo_lists l ON l.id = i.list_id WHERE i.owner != l.owner;
SELECT id FROM todo_items WHERE done != (done_on IS NOT NULL);
