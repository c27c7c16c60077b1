"""Fills worlds for practice with products, carts, wishlists, orders, returns, reviews and vouchers (shop.toml)."""

from errands.practice.drill import Row, Slots
from errands.scenarios.shop import past_order
from errands.words import WORDS
from errands.world import World

_KINDS = ("kitchen", "office", "sport", "home")


def _products(w: World, count: int) -> list[int]:
    return w.rng.sample([one["id"] for one in w.all("SELECT id FROM shop_products ORDER BY id")], count)


def category(w: World) -> Slots:
    """Products of a category, of each another number in stock."""
    kind = w.rng.choice(_KINDS)
    ids = [one["id"] for one in w.all("SELECT id FROM shop_products WHERE category = ? ORDER BY id", kind)]
    for id, stock in zip(ids, w.rng.sample(range(5, 40), len(ids)), strict=True):
        w.run("UPDATE shop_products SET stock = ? WHERE id = ?", stock, id)
    return {"of": kind}


def cart(w: World) -> Slots:
    w.run("DELETE FROM shop_cart WHERE owner = ?", w.owner.id)
    for product, quantity in zip(_products(w, 5), w.rng.sample(range(2, 9), 5), strict=True):
        w.run("UPDATE shop_products SET stock = 30 WHERE id = ?", product)
        w.add("shop_cart", owner=w.owner.id, product=product, quantity=quantity)
    return {}


def wishes(w: World) -> Slots:
    w.run("DELETE FROM shop_wishlist WHERE owner = ?", w.owner.id)
    for product in _products(w, w.rng.randrange(5, 8)):
        w.add("shop_wishlist", owner=w.owner.id, product=product)
    return {}


def _order(w: World, status: str, hours: float) -> int:
    items = dict(zip(_products(w, 4), w.rng.sample(range(1, 8), 4), strict=True))
    return past_order(w, w.ago(hours=hours), status, items)


def placed(w: World, numbered: bool = False) -> Slots:
    """Orders that are not shipped yet, each with its own day of arrival."""
    ids = []
    for hours, ahead in zip(w.rng.sample(range(2, 90), 4), w.rng.sample(range(1, 30, 2), 4), strict=True):
        ids.append(_order(w, "placed", hours))
        w.run("UPDATE shop_orders SET arrives = ? WHERE id = ?", w.day(ahead), ids[-1])
    return {"of": ", ".join(map(str, ids))} if numbered else {}


def last_order(w: World) -> Slots:
    return {"_order": _order(w, "placed", w.rng.random())}


def delivered(w: World) -> Slots:
    order = _order(w, "delivered", w.rng.randrange(90, 400))
    return {"of": order, "_order": order}


def returned(w: World) -> Slots:
    items = w.all("SELECT id FROM shop_order_items WHERE order_id = ?", _order(w, "delivered", 60))
    for place, (item, hours) in enumerate(zip(items, w.rng.sample(range(1, 20), 4), strict=True)):
        more = {"reason": WORDS["reasons"][place % 3], "status": ("open", "refunded")[place % 2]}
        w.add("shop_returns", owner=w.owner.id, item=item["id"], at=w.ago(hours=hours), **more)
    return {}


def reviewed(w: World) -> Slots:
    product = _products(w, 1)[0]
    w.run("DELETE FROM shop_reviews WHERE product = ?", product)
    for person, stars in zip(w.rng.sample(w.others(), 4), w.rng.sample((1, 2, 4, 5), 4), strict=True):
        w.add("shop_reviews", owner=person.id, product=product, stars=stars, text=w.rng.choice(WORDS["reviews"]))
    return {"of": w.value("SELECT name FROM shop_products WHERE id = ?", product), "_product": product}


def vouchers(w: World) -> Slots:
    w.run("DELETE FROM shop_vouchers WHERE owner = ?", w.owner.id)
    for percent, days in zip(w.rng.sample((8, 12, 18, 25, 30), 4), w.rng.sample(range(5, 90, 2), 4), strict=True):
        more = {"code": f"GIFT{w.rng.randrange(1000, 9999)}", "expires": w.day(days), "status": "free"}
        w.add("shop_vouchers", owner=w.owner.id, percent=percent, **more)
    return {}


def absent(w: World, row: Row, table: str) -> None:
    """Take a product out of a table of the owner's."""
    product = row.get("product_id", row.get("id"))
    w.run(f"DELETE FROM {table} WHERE owner = ? AND product = ?", w.owner.id, product)


def present(w: World, row: Row, table: str, **more: object) -> None:
    absent(w, row, table)
    w.add(table, owner=w.owner.id, product=row.get("product_id", row.get("id")), **more)
