CREATE TABLE calendar_events (id INTEGER PRIMARY KEY AUTOINCREMENT, owner INTEGER NOT NULL REFERENCES people(id),
    title TEXT NOT NULL, start TEXT NOT NULL CHECK (start GLOB '????-??-?? ??:??'),
    minutes INTEGER NOT NULL CHECK (minutes BETWEEN 5 AND 720), place TEXT NOT NULL DEFAULT '',
    note TEXT NOT NULL DEFAULT '');
CREATE TABLE calendar_guests (id INTEGER PRIMARY KEY AUTOINCREMENT,
    event_id INTEGER NOT NULL REFERENCES calendar_events(id) ON DELETE CASCADE,
    guest INTEGER NOT NULL REFERENCES people(id),
    answer TEXT NOT NULL DEFAULT 'open' CHECK (answer IN ('open', 'accepted', 'declined')), UNIQUE (event_id, guest));
CREATE INDEX calendar_guests_guest ON calendar_guests(guest);
CREATE TABLE calendar_reminders (id INTEGER PRIMARY KEY AUTOINCREMENT, owner INTEGER NOT NULL REFERENCES people(id),
    event_id INTEGER NOT NULL REFERENCES calendar_events(id) ON DELETE CASCADE,
    minutes_before INTEGER NOT NULL CHECK (minutes_before >= 0), UNIQUE (owner, event_id, minutes_before));
CREATE INDEX calendar_reminders_event ON calendar_reminders(event_id);
CREATE VIEW calendar_shown AS SELECT e.*, p.first || ' ' || p.last AS organiser,
    (SELECT group_concat(q.first || ' ' || q.last) FROM calendar_guests g JOIN people q ON q.id = g.guest
        WHERE g.event_id = e.id) AS guests
    FROM calendar_events e JOIN people p ON p.id = e.owner;
CREATE VIEW calendar_invited AS SELECT g.*, first || ' ' || last AS name, email
    FROM calendar_guests g JOIN people p ON p.id = guest;
CREATE VIEW calendar_reminded AS SELECT r.*, start FROM calendar_reminders r JOIN calendar_events e ON e.id = event_id;

-- What must find nothing:
SELECT e.id FROM calendar_events e JOIN calendar_guests g ON g.event_id = e.id WHERE g.guest = e.owner;
SELECT id FROM calendar_events WHERE datetime(start, '+' || minutes || ' minutes') > datetime(date(start), '+1 day');
SELECT r.id FROM calendar_reminders r JOIN calendar_events e ON e.id = r.event_id WHERE r.owner != e.owner
    AND r.owner NOT IN (SELECT guest FROM calendar_guests WHERE event_id = e.id AND answer = 'accepted');
