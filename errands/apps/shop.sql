CREATE TABLE shop_products (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, category TEXT NOT NULL,
    price_cents INTEGER NOT NULL, stock INTEGER NOT NULL CHECK (stock >= 0), delivery_days INTEGER NOT NULL);
CREATE TABLE shop_reviews (id INTEGER PRIMARY KEY AUTOINCREMENT, owner INTEGER NOT NULL REFERENCES people(id),
    product INTEGER NOT NULL REFERENCES shop_products(id), stars INTEGER NOT NULL CHECK (stars BETWEEN 1 AND 5),
    text TEXT NOT NULL, UNIQUE (product, owner));
CREATE TABLE shop_cart (id INTEGER PRIMARY KEY AUTOINCREMENT, owner INTEGER NOT NULL REFERENCES people(id),
    product INTEGER NOT NULL REFERENCES shop_products(id), quantity INTEGER NOT NULL, UNIQUE (owner, product));
CREATE TABLE shop_wishlist (id INTEGER PRIMARY KEY AUTOINCREMENT, owner INTEGER NOT NULL REFERENCES people(id),
    product INTEGER NOT NULL REFERENCES shop_products(id), UNIQUE (owner, product));
CREATE TABLE shop_vouchers (id INTEGER PRIMARY KEY AUTOINCREMENT, owner INTEGER NOT NULL REFERENCES people(id),
    code TEXT NOT NULL UNIQUE, percent INTEGER NOT NULL CHECK (percent BETWEEN 1 AND 50), expires TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('free', 'applied', 'used')));
CREATE UNIQUE INDEX shop_vouchers_applied ON shop_vouchers(owner) WHERE status = 'applied';
CREATE TABLE shop_orders (id INTEGER PRIMARY KEY AUTOINCREMENT, owner INTEGER NOT NULL REFERENCES people(id),
    address_id INTEGER NOT NULL REFERENCES addresses(id), card_id INTEGER NOT NULL REFERENCES cards(id),
    percent_off INTEGER NOT NULL DEFAULT 0, total_cents INTEGER NOT NULL, at TEXT NOT NULL, arrives TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('placed', 'shipped', 'delivered', 'cancelled')));
CREATE TABLE shop_order_items (id INTEGER PRIMARY KEY AUTOINCREMENT,
    order_id INTEGER NOT NULL REFERENCES shop_orders(id), product INTEGER NOT NULL REFERENCES shop_products(id),
    quantity INTEGER NOT NULL CHECK (quantity > 0), price_cents INTEGER NOT NULL, UNIQUE (order_id, product));
CREATE TABLE shop_returns (id INTEGER PRIMARY KEY AUTOINCREMENT, owner INTEGER NOT NULL REFERENCES people(id),
    item INTEGER NOT NULL UNIQUE REFERENCES shop_order_items(id), reason TEXT NOT NULL, at TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('open', 'refunded')));
CREATE VIEW shop_catalogue AS SELECT p.*,
    (SELECT round(avg(stars), 1) FROM shop_reviews r WHERE r.product = p.id) AS rating FROM shop_products p;
CREATE VIEW shop_cart_lines AS SELECT c.*, product AS product_id, name, price_cents, stock, delivery_days
    FROM shop_cart c JOIN shop_products p ON p.id = product;
CREATE VIEW shop_items AS SELECT i.*, product AS product_id, name, o.owner, o.status
    FROM shop_order_items i JOIN shop_products p ON p.id = product JOIN shop_orders o ON o.id = order_id;
CREATE VIEW shop_reviewed AS SELECT r.*, first || ' ' || last AS name FROM shop_reviews r JOIN people p ON p.id = owner;
CREATE VIEW shop_returned AS SELECT r.*, order_id, name FROM shop_returns r JOIN shop_items i ON i.id = item;

-- What must find nothing:
-- An order costs what its items cost, less the voucher.
SELECT o.id FROM shop_orders o WHERE total_cents IS NOT
    (SELECT sum(quantity * price_cents) - sum(quantity * price_cents) * percent_off / 100
        FROM shop_order_items i WHERE i.order_id = o.id);
-- Everyone orders to an address of theirs, by a card of theirs, and returns what was delivered to them.
SELECT o.id FROM shop_orders o JOIN addresses a ON a.id = address_id JOIN cards c ON c.id = card_id
    WHERE a.person != o.owner OR c.person != o.owner;
SELECT r.id FROM shop_returns r JOIN shop_items i ON i.id = r.item
    WHERE i.owner != r.owner OR i.status != 'delivered';
