"""Drills in which products, orders and vouchers of the shop are chosen by a condition."""

from dataclasses import replace

from errands.drill import Act, Ask, Find, Rows, Slots, day, drills, limit, row
from errands.drills import shop
from errands.scenario import every
from errands.world import World


def _lines(w: World) -> Rows:
    """A cart with six to nine products, of which there are different numbers."""
    w.run("DELETE FROM shop_cart WHERE owner = ?", w.owner.id)
    products = [one["id"] for one in w.all("SELECT id FROM shop_products ORDER BY id")]
    ids = []
    for place, product in enumerate(w.rng.sample(products, w.rng.randrange(6, 10))):
        quantity = (1, 2, 5)[place] if place < 3 else w.rng.randrange(1, 6)
        ids.append(w.add("shop_cart", owner=w.owner.id, product=product, quantity=quantity))
    return [row(w, "shop_cart_lines", id) for id in ids]


def _cheap_lines(w: World) -> tuple[Slots, Rows]:
    lines = _lines(w)
    most = limit(w, [line["price"] for line in lines])
    return {"limit": most}, [line | {"rest": line["price"] > most} for line in lines]


def _many_lines(w: World) -> tuple[Slots, Rows]:
    lines, least = _lines(w), w.rng.randrange(2, 5)
    return {"limit": least}, [line for line in lines if line["quantity"] > least]


def _category(w: World) -> tuple[str, Rows]:
    """The products of a category, of each another number in stock."""
    kind = w.rng.choice(("kitchen", "office", "sport", "home"))
    ids = [one["id"] for one in w.all("SELECT id FROM shop_products WHERE category = ? ORDER BY id", kind)]
    for id, stock in zip(ids, w.rng.sample(range(5, 40), len(ids)), strict=True):
        w.run("UPDATE shop_products SET stock = ? WHERE id = ?", stock, id)
    return kind, [row(w, "shop_catalogue", id) for id in ids]


def _in_price(w: World) -> tuple[Slots, Rows]:
    kind, products = _category(w)
    most = limit(w, [one["price"] for one in products])
    return {"kind": kind, "limit": most}, [one for one in products if one["price"] < most]


def _in_stock(w: World) -> tuple[Slots, Rows]:
    kind, products = _category(w)
    least = limit(w, [one["stock"] for one in products])
    return {"kind": kind, "limit": least}, [one for one in products if one["stock"] > least]


def _dearest(w: World) -> tuple[Slots, Rows]:
    kind, products = _category(w)
    return {"kind": kind}, [max(products, key=lambda one: one["price"])]


def _scarcest(w: World) -> tuple[Slots, Rows]:
    kind, products = _category(w)
    return {"kind": kind}, [min(products, key=lambda one: one["stock"])]


def _orders(w: World) -> Rows:
    return [row(w, "shop_orders", one["id"]) for one in w.all("SELECT id FROM shop_orders WHERE owner = ?", w.owner.id)]


def _large_orders(w: World) -> tuple[Slots, Rows]:
    orders = _orders(w)
    least = limit(w, [order["total"] for order in orders])
    return {"limit": least}, [order for order in orders if order["total"] > least]


def _old_orders(w: World) -> tuple[Slots, Rows]:
    orders = _orders(w)
    end = day(w, [order["at"] for order in orders])
    return {"day": end}, [order for order in orders if order["at"] < end]


def _best_voucher(w: World) -> tuple[Slots, Rows]:
    """Vouchers of which the best is used."""
    w.run("DELETE FROM shop_vouchers WHERE owner = ?", w.owner.id)
    percents = sorted(w.rng.sample(range(5, 45), w.rng.randrange(4, 7)), reverse=True)
    ids = []
    for place, percent in enumerate(percents):
        more = {"expires": w.day(w.rng.randrange(5, 90)), "status": "free" if place in (1, 2) else "used"}
        code = f"GIFT{w.rng.randrange(100, 999)}{place}"
        ids.append(w.add("shop_vouchers", owner=w.owner.id, code=code, percent=percent, **more))
    return {}, [row(w, "shop_vouchers", ids[1])]


CHEAP_LINES = Find(
    "cheap-things-in-cart",
    (
        "all products in my cart that cost less than {limit}",
        "everything below {limit} in my shopping cart",
        "whatever has a price under {limit} in my cart",
    ),
    'found = shop.show_cart()["items"]\nfound = [x for x in found if x["price"] < {limit}]',
    _cheap_lines,
    many=True,
    keep="those whose `price` is below {limit}",
)
CHEAP_AND_DEAR = replace(
    CHEAP_LINES,
    name="cheap-and-dear-in-cart",
    look='seen = shop.show_cart()["items"]\nfound = [x for x in seen if x["price"] < {limit}]\n'
    'rest = [x for x in seen if x["price"] >= {limit}]',
    rest="the other products in the cart",
)
_MANY_LINES = Find(
    "things-often-in-cart",
    (
        "all products of which more than {limit} are in my cart",
        "everything in my cart with a quantity above {limit}",
        "whatever is in my shopping cart more than {limit} times",
    ),
    'found = shop.show_cart()["items"]\nfound = [x for x in found if x["quantity"] > {limit}]',
    _many_lines,
    many=True,
    keep="those whose `quantity` is above {limit}",
)
_ALL_OF_KIND = 'found = shop.search(category="{kind}", page_size=20)\n'
IN_PRICE = Find(
    "products-below",
    (
        "all products of the category {kind} in the shop that cost less than {limit}",
        "the shop's {kind} products below {limit}",
        "whatever the shop has in {kind} for under {limit}",
    ),
    _ALL_OF_KIND + 'found = [x for x in found if x["price"] < {limit}]',
    _in_price,
    many=True,
    keep="those whose `price` is below {limit}",
)
_IN_STOCK = Find(
    "products-in-stock",
    (
        "all products of the category {kind} of which the shop has more than {limit}",
        "the shop's {kind} products with a stock above {limit}",
    ),
    _ALL_OF_KIND + 'found = [x for x in found if x["stock"] > {limit}]',
    _in_stock,
    many=True,
    keep="those whose `stock` is above {limit}",
)
_DEAREST = Find(
    "dearest-product",
    ("the most expensive product of the category {kind} in the shop", "the shop's {kind} product with the top price"),
    _ALL_OF_KIND + 'found = [max(found, key=lambda x: x["price"])]',
    _dearest,
    keep="the one with the highest `price`",
)
SCARCEST = Find(
    "scarcest-product",
    ("the product of the category {kind} with the smallest stock", "the {kind} product of which the shop has fewest"),
    _ALL_OF_KIND + 'found = [min(found, key=lambda x: x["stock"])]',
    _scarcest,
    keep="the one with the lowest `stock`",
)
_ALL_ORDERS = every("found", "shop.list_orders()")
_LARGE_ORDERS = Find(
    "large-orders",
    ("all my orders above {limit} in the shop", "those of my orders in the shop that cost more than {limit}"),
    _ALL_ORDERS + '\nfound = [x for x in found if x["total"] > {limit}]\nprint([x["total"] for x in found])',
    _large_orders,
    many=True,
    keep="those whose `total` is above {limit}",
)
_OLD_ORDERS = Find(
    "old-orders",
    ("all my orders in the shop from before {day}", "the orders that I made in the shop earlier than {day}"),
    _ALL_ORDERS + '\nfound = [x for x in found if x["at"][:10] < "{day}"]\nprint([x["at"] for x in found])',
    _old_orders,
    many=True,
    keep="those whose `at` is before {day}",
)
_BEST_FREE = Find(
    "best-voucher",
    ("the best of my free vouchers in the shop", "the unused voucher with which I save most in the shop"),
    'found = shop.list_vouchers()\nfound = [x for x in found if x["status"] == "free"]\n'
    'found = [max(found, key=lambda x: x["percent"])]',
    _best_voucher,
    keep="those whose `status` is free, and of them the one with the highest `percent`",
)

TAKE_OUT = Act(
    "shop.remove_from_cart",
    ("Take out {it}.", "I changed my mind about {it}: remove {them}.", "Remove {it}; the rest stays."),
    "take {them} out of the cart",
    key="product_id",
    field="product_id",
    name="take-out",
)
_ONLY_ONE = Act(
    "shop.change_quantity",
    (
        "I want no more than one piece each of {it}. Change the quantities.",
        "Set the quantity to 1 for {it}.",
        "Buy just one each of {it}: change the quantities.",
    ),
    "set the quantity of {them} to 1",
    key="product_id",
    field="product_id",
    fixed=(("quantity", 1),),
    name="only-one-of",
)
ONE_EACH = Act(
    "shop.add_to_cart",
    ("Put one each of {it} into my cart.", "Add {it} to my cart, one piece each.", "I want to buy {it}, one of each."),
    "put one each of {them} into the cart",
    key="product_id",
    fixed=(("quantity", 1),),
    name="one-each-of",
)
COUNT = Ask(
    "how many",
    ("Count {it}.", "Please count {it} for me.", "Tell me the number you get if you count {it}."),
    "count {them}",
)
_SPENT = Ask(
    "sum of total",
    ("Add up {it} and tell me what that is.", "What is the sum of {it}?", "How much money is it in all for {it}?"),
    "add up {them}",
    name="total",
)

DRILLS = [
    *drills([CHEAP_LINES], [TAKE_OUT, (COUNT, TAKE_OUT)]),
    *drills([CHEAP_AND_DEAR], [(TAKE_OUT, replace(_ONLY_ONE, rest=True)), (TAKE_OUT, replace(COUNT, rest=True))]),
    *drills([_MANY_LINES], [_ONLY_ONE]),
    *drills([IN_PRICE], [ONE_EACH, COUNT]),
    *drills([_IN_STOCK], [COUNT]),
    *drills([_DEAREST], [shop.ADD]),
    *drills([SCARCEST], [shop.NAME]),
    *drills([_LARGE_ORDERS], [_SPENT]),
    *drills([_OLD_ORDERS], [COUNT]),
    *drills([_BEST_FREE], [shop.APPLY]),
]
