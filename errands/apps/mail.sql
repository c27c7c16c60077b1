CREATE TABLE mail_messages (id INTEGER PRIMARY KEY AUTOINCREMENT, owner INTEGER NOT NULL REFERENCES people(id),
    folder TEXT NOT NULL CHECK (folder IN ('inbox', 'archive', 'sent', 'drafts', 'trash')),
    sender TEXT NOT NULL, address TEXT NOT NULL, recipients TEXT NOT NULL, subject TEXT NOT NULL, body TEXT NOT NULL,
    time TEXT NOT NULL, read INTEGER NOT NULL DEFAULT 1, starred INTEGER NOT NULL DEFAULT 0,
    reply_to INTEGER REFERENCES mail_messages(id));
CREATE TABLE mail_labels (id INTEGER PRIMARY KEY AUTOINCREMENT, owner INTEGER NOT NULL REFERENCES people(id),
    name TEXT NOT NULL, UNIQUE (owner, name));
CREATE TABLE mail_labelled (id INTEGER PRIMARY KEY AUTOINCREMENT,
    message INTEGER NOT NULL REFERENCES mail_messages(id) ON DELETE CASCADE,
    label INTEGER NOT NULL REFERENCES mail_labels(id), UNIQUE (message, label));
CREATE INDEX mail_labelled_label ON mail_labelled(label);
CREATE VIEW mail_shown AS SELECT m.*, (SELECT coalesce(group_concat(name, ', '), '') FROM
    (SELECT name FROM mail_labelled JOIN mail_labels l ON l.id = label WHERE message = m.id ORDER BY name)) AS labels
    FROM mail_messages m;
CREATE VIEW mail_counted AS
    SELECT l.*, (SELECT count(*) FROM mail_labelled WHERE label = l.id) AS messages FROM mail_labels l;

-- What must find nothing:
SELECT m.id FROM mail_messages m JOIN people p ON p.id = owner WHERE folder = 'sent' AND m.address != email;
SELECT id FROM mail_messages WHERE recipients = '' OR recipients != lower(recipients);
SELECT m.id FROM mail_messages m JOIN mail_messages o ON o.id = m.reply_to WHERE o.owner != m.owner;
SELECT x.id FROM mail_labelled x JOIN mail_messages m ON m.id = message JOIN mail_labels l ON l.id = label
    WHERE m.owner != l.owner;
