CREATE TABLE phone_messages (id INTEGER PRIMARY KEY AUTOINCREMENT, owner INTEGER NOT NULL REFERENCES people(id),
    number TEXT NOT NULL, incoming INTEGER NOT NULL, text TEXT NOT NULL, time TEXT NOT NULL,
    read INTEGER NOT NULL DEFAULT 1);
CREATE TABLE phone_calls (id INTEGER PRIMARY KEY AUTOINCREMENT, owner INTEGER NOT NULL REFERENCES people(id),
    number TEXT NOT NULL, kind TEXT NOT NULL CHECK (kind IN ('incoming', 'outgoing', 'missed')), time TEXT NOT NULL,
    minutes INTEGER NOT NULL CHECK (minutes >= 0));
CREATE TABLE phone_voicemails (id INTEGER PRIMARY KEY AUTOINCREMENT, owner INTEGER NOT NULL REFERENCES people(id),
    number TEXT NOT NULL, time TEXT NOT NULL, seconds INTEGER NOT NULL CHECK (seconds > 0), text TEXT NOT NULL);
CREATE TABLE phone_blocked (id INTEGER PRIMARY KEY AUTOINCREMENT, owner INTEGER NOT NULL REFERENCES people(id),
    number TEXT NOT NULL, UNIQUE (owner, number));
CREATE VIEW phone_conversations AS
    SELECT owner, number, count(*) AS messages, sum(NOT read) AS unread, max(time) AS last
    FROM phone_messages GROUP BY owner, number;

-- What must find nothing:
SELECT id FROM phone_messages WHERE NOT read AND NOT incoming;
SELECT id FROM phone_calls WHERE kind = 'missed' AND minutes > 0;
SELECT t.id FROM phone_messages t JOIN people p ON p.id = owner WHERE length(number) != 7 OR number = phone;
SELECT t.id FROM phone_calls t JOIN people p ON p.id = owner WHERE length(number) != 7 OR number = phone;
SELECT t.id FROM phone_voicemails t JOIN people p ON p.id = owner WHERE length(number) != 7 OR number = phone;
SELECT t.id FROM phone_blocked t JOIN people p ON p.id = owner WHERE length(number) != 7 OR number = phone;
