CREATE TABLE wallet_accounts (id INTEGER PRIMARY KEY AUTOINCREMENT,
    owner INTEGER NOT NULL UNIQUE REFERENCES people(id),
    balance_cents INTEGER NOT NULL DEFAULT 0 CHECK (balance_cents >= 0));
CREATE TABLE wallet_transactions (id INTEGER PRIMARY KEY AUTOINCREMENT,
    owner INTEGER NOT NULL REFERENCES people(id), person INTEGER REFERENCES people(id),
    card INTEGER REFERENCES cards(id), direction TEXT NOT NULL CHECK (direction IN ('sent', 'received')),
    amount_cents INTEGER NOT NULL CHECK (amount_cents > 0), note TEXT NOT NULL, label TEXT NOT NULL DEFAULT '',
    at TEXT NOT NULL, CHECK ((person IS NULL) != (card IS NULL)), CHECK (person IS NULL OR person != owner));
CREATE TABLE wallet_requests (id INTEGER PRIMARY KEY AUTOINCREMENT, owner INTEGER NOT NULL REFERENCES people(id),
    payer INTEGER NOT NULL REFERENCES people(id), amount_cents INTEGER NOT NULL CHECK (amount_cents > 0),
    note TEXT NOT NULL, status TEXT NOT NULL CHECK (status IN ('open', 'paid', 'declined', 'withdrawn')),
    at TEXT NOT NULL, reminded TEXT, CHECK (payer != owner));
CREATE TABLE wallet_friends (id INTEGER PRIMARY KEY AUTOINCREMENT, owner INTEGER NOT NULL REFERENCES people(id),
    friend INTEGER NOT NULL REFERENCES people(id), UNIQUE (owner, friend));
CREATE VIEW wallet_history AS SELECT t.*, coalesce(p.first || ' ' || p.last, 'card ' || c.label) AS name, p.email
    FROM wallet_transactions t LEFT JOIN people p ON p.id = t.person LEFT JOIN cards c ON c.id = t.card;
CREATE VIEW wallet_known AS SELECT f.*, first || ' ' || last AS name, email FROM wallet_friends f JOIN people p ON p.id = friend;

-- What must find nothing:
-- Each balance is what came in less what went out.
SELECT owner, balance_cents FROM wallet_accounts a WHERE balance_cents !=
    (SELECT sum(CASE direction WHEN 'received' THEN amount_cents ELSE -amount_cents END)
        FROM wallet_transactions t WHERE t.owner = a.owner);
-- What one person sent, the other received.
SELECT payer, payee, amount_cents, note, at FROM (SELECT amount_cents, note, at,
        CASE direction WHEN 'sent' THEN owner ELSE person END AS payer,
        CASE direction WHEN 'sent' THEN person ELSE owner END AS payee,
        CASE direction WHEN 'sent' THEN 1 ELSE -1 END AS side FROM wallet_transactions WHERE person IS NOT NULL)
    GROUP BY payer, payee, amount_cents, note, at HAVING sum(side) != 0;
SELECT id FROM people WHERE id NOT IN (SELECT owner FROM wallet_accounts);
SELECT id FROM wallet_requests WHERE substr(reminded, 1, 10) < substr(at, 1, 10);
