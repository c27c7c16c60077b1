"""Practice with the shop: products, the cart, the wishlist, orders, returns, reviews and vouchers."""

from dataclasses import replace
from functools import partial

from errands.practice.blocks import COUNT, REPEATED, Source, alone, each, practice
from errands.practice.conditions import All, Amount, Moment, Name, Number, Top, Value
from errands.practice.drill import DAY, TIME, Act, Ask, Row, Slots
from errands.scenarios.shop import past_order
from errands.words import WORDS
from errands.world import World

_KINDS = ("kitchen", "office", "sport", "home")


def _products(w: World, count: int) -> list[int]:
    return w.rng.sample([one["id"] for one in w.all("SELECT id FROM shop_products ORDER BY id")], count)


def _category(w: World) -> Slots:
    """Products of a category, of each another number in stock."""
    kind = w.rng.choice(_KINDS)
    ids = [one["id"] for one in w.all("SELECT id FROM shop_products WHERE category = ? ORDER BY id", kind)]
    for id, stock in zip(ids, w.rng.sample(range(5, 40), len(ids)), strict=True):
        w.run("UPDATE shop_products SET stock = ? WHERE id = ?", stock, id)
    return {"of": kind}


def _cart(w: World) -> Slots:
    w.run("DELETE FROM shop_cart WHERE owner = ?", w.owner.id)
    for product, quantity in zip(_products(w, 5), w.rng.sample(range(2, 9), 5), strict=True):
        w.run("UPDATE shop_products SET stock = 30 WHERE id = ?", product)
        w.add("shop_cart", owner=w.owner.id, product=product, quantity=quantity)
    return {}


def _wishes(w: World) -> Slots:
    w.run("DELETE FROM shop_wishlist WHERE owner = ?", w.owner.id)
    for product in _products(w, w.rng.randrange(5, 8)):
        w.add("shop_wishlist", owner=w.owner.id, product=product)
    return {}


def _order(w: World, status: str, hours: float) -> int:
    items = dict(zip(_products(w, 4), w.rng.sample(range(1, 8), 4), strict=True))
    return past_order(w, w.ago(hours=hours), status, items)


def _placed(w: World) -> Slots:
    """Orders that are not shipped yet, each with its own day of arrival."""
    ids = []
    for hours, ahead in zip(w.rng.sample(range(2, 90), 4), w.rng.sample(range(1, 30, 2), 4), strict=True):
        ids.append(_order(w, "placed", hours))
        w.run("UPDATE shop_orders SET arrives = ? WHERE id = ?", w.day(ahead), ids[-1])
    return {"of": ", ".join(map(str, ids))}


def _ordered(w: World) -> Slots:
    _placed(w)
    return {}


def _last_order(w: World) -> Slots:
    return {"_order": _order(w, "placed", w.rng.random())}


def _delivered(w: World) -> Slots:
    order = _order(w, "delivered", w.rng.randrange(90, 400))
    return {"of": order, "_order": order}


def _returned(w: World) -> Slots:
    items = w.all("SELECT id FROM shop_order_items WHERE order_id = ?", _order(w, "delivered", 60))
    for place, (item, hours) in enumerate(zip(items, w.rng.sample(range(1, 20), 4), strict=True)):
        more = {"reason": WORDS["reasons"][place % 3], "status": ("open", "refunded")[place % 2]}
        w.add("shop_returns", owner=w.owner.id, item=item["id"], at=w.ago(hours=hours), **more)
    return {}


def _reviewed(w: World) -> Slots:
    product = _products(w, 1)[0]
    w.run("DELETE FROM shop_reviews WHERE product = ?", product)
    for person, stars in zip(w.rng.sample(w.others(), 4), w.rng.sample((1, 2, 4, 5), 4), strict=True):
        w.add("shop_reviews", owner=person.id, product=product, stars=stars, text=w.rng.choice(WORDS["reviews"]))
    return {"of": w.value("SELECT name FROM shop_products WHERE id = ?", product), "_product": product}


def _vouchers(w: World) -> Slots:
    w.run("DELETE FROM shop_vouchers WHERE owner = ?", w.owner.id)
    for percent, days in zip(w.rng.sample((8, 12, 18, 25, 30), 4), w.rng.sample(range(5, 90, 2), 4), strict=True):
        more = {"code": f"GIFT{w.rng.randrange(1000, 9999)}", "expires": w.day(days), "status": "free"}
        w.add("shop_vouchers", owner=w.owner.id, percent=percent, **more)
    return {}


def _without(w: World, row: Row, table: str) -> None:
    """Take a product out of a table of the owner's."""
    product = row.get("product_id", row.get("id"))
    w.run(f"DELETE FROM {table} WHERE owner = ? AND product = ?", w.owner.id, product)


def _with(w: World, row: Row, table: str, **more: object) -> None:
    _without(w, row, table)
    w.add(table, owner=w.owner.id, product=row.get("product_id", row.get("id")), **more)


_CATEGORY = Source("products", "shop.search", "{of} product* in the shop", _category, {"category": '"{of}"'})
_ALL = Source("catalogue", "shop.search", "product* in the shop", long=True)
_CART = Source("cart", "shop.show_cart", "product* in my cart", _cart, part="items")
_WISHES = Source("wishes", "shop.list_wishlist", "product* on my wishlist", _wishes)
_ORDERS = Source("orders", "shop.list_orders", "my shop order*", _ordered, long=True)
_PLACED = Source("numbered-orders", "shop.show_order", "my shop orders {of}", _placed, each="order_id")
_LAST = Source(
    "last-order",
    "shop.show_order",
    "product* in my last order",
    _last_order,
    {"order_id": "order"},
    'order = shop.list_orders(page_size=1)[0]["id"]\n',
    "items",
)
_DELIVERED = Source(
    "delivered",
    "shop.show_order",
    "product* in my order {of}",
    _delivered,
    {"order_id": "order"},
    "order = {of}\n",
    "items",
)
_RETURNS = Source("returns", "shop.list_returns", "my return* in the shop", _returned)
_REVIEWS = Source(
    "reviews",
    "shop.list_reviews",
    "review* of the {of}",
    _reviewed,
    {"product_id": "product"},
    'product = shop.search(query="{of}")[0]["id"]\n',
)
_VOUCHERS = Source("vouchers", "shop.list_vouchers", "my shop voucher*", _vouchers)

_PRODUCT = Name("name", "the {called}|the {called} in the shop", "query")
_PRICE = Amount("price", "{noun} that cost {than} {limit} each", "most expensive {noun}", "cheapest {noun}")
_STOCK = Number(
    "stock", "{noun} with {than} {limit} in stock", "{noun} with the most in stock", "{noun} with the fewest in stock"
)
_QUANTITY = Amount("quantity", "{noun} with a quantity of {than} {limit}", "{noun} with the highest quantity")
_TOTAL = Amount("total", "{noun} with a total of {than} {limit}", "most expensive of {noun}", "cheapest of {noun}")
_STARS = Number("stars", "{noun} with {than} {limit} stars", "best {noun}", "worst {noun}")
_ARRIVES = Moment("arrives", "{noun} that arrive {than} {day}")
_EXPIRES = Moment("expires", "{noun} that expire {than} {day}", "{noun} that expires last", "{noun} that expires first")
_PERCENT = Amount("percent", "{noun} for {than} {limit} percent", "{noun} with the highest discount")
_IN_CART, _IN_ORDER = Name("name", "the {called} in my cart"), Name("name", "the {called} in my order {of}")
_STATUS = Value("status", "{noun} with the status '{value}'")
_REASON = Value("reason", "{noun} with the reason '{value}'")
_NEWEST = Top("last {noun}", "at")
_MADE = Moment("at", "{noun} placed {than} {day}", "", "oldest {noun}")

_NOT_IN_CART, _UNWISHED = (partial(_without, table=table) for table in ("shop_cart", "shop_wishlist"))
_WISHED = partial(_with, table="shop_wishlist")
_ADD = Act(
    "shop.add_to_cart",
    "add {it} to my cart, with a quantity of {quantity}",
    args={"quantity": (2, 3, 4)},
    ready=_NOT_IN_CART,
)
_WISH = Act("shop.add_to_wishlist", "put {it} on my wishlist", name="wish", ready=_UNWISHED)
_UNWISH = Act("shop.remove_from_wishlist", "remove {it} from my wishlist", name="unwish", ready=_WISHED)
_REVIEW = Act(
    "shop.write_review",
    "give {it} {stars} stars and the review '{text}'",
    args={"stars": (2, 3, 4, 5), "text": "reviews"},
    ready=partial(_without, table="shop_reviews"),
)
_UNREVIEW = Act(
    "shop.delete_review",
    "delete my review of {it}|remove my review of {it}",
    ready=partial(_with, table="shop_reviews", stars=4, text="Fine"),
)
_PRODUCTS = [_ADD, _WISH, _REVIEW, _UNREVIEW]
_CHANGE = Act(
    "shop.change_quantity", "set the quantity of {it} to {quantity}", args={"quantity": (9, 10, 11)}, field="product_id"
)
_REMOVE = Act("shop.remove_from_cart", "remove {it}|take out {it}", name="take-out", field="product_id")
_LINES = [replace(one, field="product_id") for one in (_WISH, _REVIEW, _UNREVIEW, _UNWISH, _ADD)]
_CANCEL = Act("shop.cancel_order", "cancel {it}", name="cancel")
_RETURN = Act(
    "shop.start_return",
    "return {it}, with the reason '{reason}'",
    name="return",
    args={"reason": "reasons"},
    field="product_id",
    key="product_id",
    known=(("order_id", "order"),),
)
_APPLY = Act(
    "shop.apply_voucher", "apply {it} to my cart|use {it} for my cart", name="apply", field="code", single=True
)
_CLEAR = Act("shop.clear_cart", "empty my cart in the shop|remove everything from my shopping cart")

_ASKS = [
    Ask("price", asked="How much does {it} cost?"),
    Ask("stock", "stock level", asked="How many of {it} are in stock?"),
    Ask("delivery_days", "delivery time in days", show="shop.show_product"),
    Ask("name"),
]
_MANY = [COUNT, each("name"), Ask("price", "sum of the unit prices", of="sum")]
_LINE_ASKS = [Ask("price", "unit price"), Ask("quantity"), Ask("name")]
_WRITERS = "name of the writer|names of the writers"
_LAST_DAY = Ask("expires", "expiry date", hint=DAY)
_SUM = Ask(
    "total",
    asked="How much is everything in my cart?|What is the total of my shopping cart?|Tell me the total of my cart.",
    show="shop.show_cart",
)
_ORDER_ASKS = [
    COUNT,
    Ask("total"),
    Ask("total", "total cost", of="sum"),
    Ask("at", "time", hint=TIME, asked="When did I place {it}?"),
]

KINDS = [
    *practice(_ALL, [_PRODUCT], [*_PRODUCTS, *_ASKS[:3], _UNWISH], 9),
    *practice(_CATEGORY, [_PRICE, _STOCK], [_ADD, *_ASKS, _WISH, *_MANY, _UNWISH]),
    *practice(_CART, [_PRICE, _QUANTITY, _IN_CART], [_REMOVE, *_LINE_ASKS, _CHANGE, *_MANY, *_LINES[:4]]),
    *practice(_WISHES, [All(), _PRICE, _STOCK], [_ADD, *_MANY, _UNWISH, *_ASKS, _REVIEW]),
    *practice(
        _ORDERS,
        [_NEWEST, replace(_TOTAL, top="{noun} with the highest total", bottom=""), _MADE, _STATUS],
        _ORDER_ASKS[1:],
    ),
    *practice(_PLACED, [All(), _TOTAL, _ARRIVES], [_CANCEL, *_ORDER_ASKS, Ask("arrives", "arrival date", hint=DAY)]),
    *practice(_LAST, [All(), _PRICE, _QUANTITY], [*_LINES, *_MANY, *_LINE_ASKS]),
    *practice(_DELIVERED, [_PRICE, _QUANTITY, _IN_ORDER], [_RETURN, *_LINE_ASKS, *_LINES, COUNT]),
    *practice(
        _RETURNS,
        [Top("last {noun}"), _REASON, _STATUS],
        [Ask("name", "product name"), COUNT, each("name", "product name", REPEATED), Ask("reason")],
    ),
    *practice(_REVIEWS, [_STARS], [Ask("text"), COUNT, each("name", _WRITERS), Ask("name", _WRITERS), each("text")]),
    *practice(_VOUCHERS, [_PERCENT, _EXPIRES], [_APPLY, Ask("code"), _LAST_DAY, COUNT, each("code")]),
    *alone(_SUM, (_SUM, _CLEAR)),
]
