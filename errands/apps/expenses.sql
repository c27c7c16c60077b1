CREATE TABLE expenses_groups (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL);
CREATE TABLE expenses_members (id INTEGER PRIMARY KEY AUTOINCREMENT,
    grp INTEGER NOT NULL REFERENCES expenses_groups(id),
    person INTEGER NOT NULL REFERENCES people(id), UNIQUE (grp, person));
CREATE INDEX expenses_members_person ON expenses_members(person);
CREATE TABLE expenses_items (id INTEGER PRIMARY KEY AUTOINCREMENT, grp INTEGER NOT NULL REFERENCES expenses_groups(id),
    payer INTEGER NOT NULL REFERENCES people(id), title TEXT NOT NULL,
    amount_cents INTEGER NOT NULL CHECK (amount_cents > 0), day TEXT NOT NULL);
CREATE INDEX expenses_items_grp ON expenses_items(grp);
CREATE TABLE expenses_shares (id INTEGER PRIMARY KEY AUTOINCREMENT,
    item INTEGER NOT NULL REFERENCES expenses_items(id) ON DELETE CASCADE,
    person INTEGER NOT NULL REFERENCES people(id), amount_cents INTEGER NOT NULL, UNIQUE (item, person));
CREATE TABLE expenses_settlements (id INTEGER PRIMARY KEY AUTOINCREMENT,
    grp INTEGER NOT NULL REFERENCES expenses_groups(id), payer INTEGER NOT NULL REFERENCES people(id),
    payee INTEGER NOT NULL REFERENCES people(id), amount_cents INTEGER NOT NULL CHECK (amount_cents > 0),
    day TEXT NOT NULL, CHECK (payer <> payee));
CREATE INDEX expenses_settlements_grp ON expenses_settlements(grp);
CREATE TABLE expenses_comments (id INTEGER PRIMARY KEY AUTOINCREMENT,
    item INTEGER NOT NULL REFERENCES expenses_items(id) ON DELETE CASCADE,
    author INTEGER NOT NULL REFERENCES people(id), text TEXT NOT NULL, written TEXT NOT NULL);
-- Everything that counts towards a person's balance in a group.
CREATE VIEW expenses_moves AS
    SELECT grp, person, 0 AS cents FROM expenses_members
    UNION ALL SELECT grp, payer, amount_cents FROM expenses_items
    UNION ALL SELECT grp, person, -s.amount_cents FROM expenses_shares s JOIN expenses_items i ON i.id = item
    UNION ALL SELECT grp, payer, amount_cents FROM expenses_settlements
    UNION ALL SELECT grp, payee, -amount_cents FROM expenses_settlements;
CREATE VIEW expenses_shown AS SELECT i.id, title, amount_cents, first || ' ' || last AS paid_by, day, grp AS group_id
    FROM expenses_items i JOIN people p ON p.id = payer;
CREATE VIEW expenses_settled AS SELECT s.*, p.first || ' ' || p.last AS paid_by, q.first || ' ' || q.last AS paid_to
    FROM expenses_settlements s JOIN people p ON p.id = payer JOIN people q ON q.id = payee;

-- What must find nothing:
SELECT i.id FROM expenses_items i JOIN expenses_shares s ON s.item = i.id
    GROUP BY i.id HAVING sum(s.amount_cents) <> i.amount_cents;
SELECT id FROM expenses_items WHERE id NOT IN (SELECT item FROM expenses_shares);
