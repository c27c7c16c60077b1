"""Drills around orders of the shop: what is in them, and which are cancelled."""

from dataclasses import replace

from errands.drill import Act, Find, Rows, Slots, day, drills, limit, row
from errands.drills import purchases, requests, shop, wishes
from errands.scenarios.shop import past_order
from errands.world import World


def _products(w: World, count: int) -> list[int]:
    return w.rng.sample([one["id"] for one in w.all("SELECT id FROM shop_products ORDER BY id")], count)


def _placed(w: World) -> Rows:
    """Orders that are not shipped yet, of other totals, each with its own day of arrival."""
    count = w.rng.randrange(3, 5)
    hours, days = sorted(w.rng.sample(range(2, 20), count)), w.rng.sample(range(1, 30, 2), count)
    found = []
    for product, ago, ahead in zip(_products(w, count), hours, days, strict=True):
        order = past_order(w, w.ago(hours=ago), "placed", {product: 1})
        w.run("UPDATE shop_orders SET arrives = ? WHERE id = ?", w.day(ahead), order)
        found.append(row(w, "shop_orders", order))
    return found


def _numbered(w: World) -> tuple[Slots, Rows]:
    found = w.rng.choice(_placed(w))
    return {"number": found["id"]}, [found]


def _large(w: World) -> tuple[Slots, Rows]:
    orders = _placed(w)
    least = limit(w, [one["total"] for one in orders])
    return {"numbers": requests.numbers(orders), "limit": least}, [
        one | {"rest": one["total"] < least} for one in orders
    ]


def _late(w: World) -> tuple[Slots, Rows]:
    orders = _placed(w)
    end = day(w, [one["arrives"] for one in orders])
    return {"numbers": requests.numbers(orders), "day": end}, [one for one in orders if one["arrives"] > end]


def _dearest(w: World) -> tuple[Slots, Rows]:
    orders = _placed(w)
    return {"numbers": requests.numbers(orders)}, [max(orders, key=lambda one: one["total"])]


def _noted(w: World) -> tuple[Slots, Rows]:
    found = w.rng.choice(_placed(w))
    return requests.noted(w, found), [found]


def _items(w: World, status: str, ago: float) -> Rows:
    """What is in an order, in other numbers of each."""
    products = _products(w, w.rng.randrange(3, 6))
    quantities = w.rng.sample(range(1, 9), len(products))
    order = past_order(w, w.ago(hours=ago), status, dict(zip(products, quantities, strict=True)))
    return [row(w, "shop_items", one["id"]) for one in w.all("SELECT id FROM shop_items WHERE order_id = ?", order)]


def delivered(w: World) -> Rows:
    return _items(w, "delivered", w.rng.randrange(90, 400))


def item(w: World) -> tuple[Slots, Rows]:
    found = w.rng.choice(delivered(w))
    return {"order_id": found["order_id"], "product": found["name"]}, [found]


def _dear_items(w: World) -> tuple[Slots, Rows]:
    items = delivered(w)
    least = limit(w, [one["price"] for one in items])
    found = [one | {"rest": one["price"] < least} for one in items]
    return {"order_id": items[0]["order_id"], "limit": least}, found


def _most(w: World) -> tuple[Slots, Rows]:
    items = delivered(w)
    return {"order_id": items[0]["order_id"]}, [max(items, key=lambda one: one["quantity"])]


def _last(w: World) -> Rows:
    """What is in the newest order."""
    items = _items(w, "placed", w.rng.random())
    for one in items:
        w.run("DELETE FROM shop_reviews WHERE owner = ? AND product = ?", w.owner.id, one["product_id"])
    return items


def _cheap_last(w: World) -> tuple[Slots, Rows]:
    items = _last(w)
    most = limit(w, [one["price"] for one in items])
    return {"limit": most}, [one for one in items if one["price"] < most]


_NUMBERED = Find(
    "numbered-order",
    ("my order {number} in the shop", "the shop's order with the number {number}"),
    "found = [shop.show_order(order_id={number})]",
    _numbered,
)
_SHOW_ALL = "found = [shop.show_order(order_id=x) for x in [{numbers}]]\n"
_LARGE = Find(
    "large-numbered-orders",
    (
        "those of my orders {numbers} in the shop that cost more than {limit}",
        "whichever of the shop's orders {numbers} is above {limit} in total",
    ),
    _SHOW_ALL + 'found = [x for x in found if x["total"] > {limit}]\nprint([x["total"] for x in found])',
    _large,
    many=True,
    keep="those whose `total` is above {limit}",
)
_LARGE_AND_SMALL = replace(
    _LARGE,
    name="large-and-small-orders",
    look="seen = [shop.show_order(order_id=x) for x in [{numbers}]]\n"
    'found = [x for x in seen if x["total"] > {limit}]\nrest = [x for x in seen if x["total"] <= {limit}]\n'
    "print(len(found), len(rest))",
    rest="the other ones of these orders",
)
_LATE = Find(
    "late-numbered-orders",
    (
        "those of my orders {numbers} in the shop that arrive after {day}",
        "whichever of the shop's orders {numbers} comes later than {day}",
    ),
    _SHOW_ALL + 'found = [x for x in found if x["arrives"] > "{day}"]\nprint([x["arrives"] for x in found])',
    _late,
    many=True,
    keep="those whose `arrives` is after {day}",
)
_DEAREST = Find(
    "dearest-numbered-order",
    (
        "the most expensive of my orders {numbers} in the shop",
        "the one of the shop's orders {numbers} with the highest total",
    ),
    _SHOW_ALL + 'found = [max(found, key=lambda x: x["total"])]',
    _dearest,
    keep="the one with the highest `total`",
)
_NOTED = Find(
    "order-in-note",
    (
        "my order in the shop whose number is in my note '{title}'",
        "the shop's order with the number that my note '{title}' has",
    ),
    'found = notes.search(query="{title}")\nfound = notes.show(note_id=found[0]["id"])\n'
    'number = int(found["body"])\nfound = [shop.show_order(order_id=number)]',
    _noted,
)
_SHOW_ITEMS = 'found = shop.show_order(order_id={order_id})["items"]\n'
ITEM = Find(
    "product-of-order",
    ("the {product} of my order {order_id} in the shop", "the {product} that came with the shop's order {order_id}"),
    _SHOW_ITEMS + 'found = [x for x in found if x["name"] == "{product}"]',
    item,
)
DEAR_ITEMS = Find(
    "dear-products-of-order",
    (
        "all products of my order {order_id} in the shop that cost more than {limit} apiece",
        "everything in the shop's order {order_id} with a price above {limit} for one",
    ),
    _SHOW_ITEMS + 'found = [x for x in found if x["price"] > {limit}]',
    _dear_items,
    many=True,
    keep="those whose `price` is above {limit}",
)
DEAR_AND_CHEAP = replace(
    DEAR_ITEMS,
    name="dear-and-cheap-products-of-order",
    look='seen = shop.show_order(order_id={order_id})["items"]\nfound = [x for x in seen if x["price"] > {limit}]\n'
    'rest = [x for x in seen if x["price"] <= {limit}]',
    rest="the other products of that order",
)
MOST = Find(
    "most-ordered-product",
    (
        "the product of which there are most pieces in my order {order_id} in the shop",
        "the product with the highest quantity in the shop's order {order_id}",
    ),
    _SHOW_ITEMS + 'found = [max(found, key=lambda x: x["quantity"])]',
    _most,
    keep="the one with the highest `quantity`",
)
_SHOW_LAST = 'orders = shop.list_orders(page_size=1)\nfound = shop.show_order(order_id=orders[0]["id"])["items"]\n'
_LAST = Find(
    "products-of-last-order",
    ("all products of my last order in the shop", "everything that is in my newest order in the shop"),
    _SHOW_LAST + "print(found)",
    lambda w: ({}, _last(w)),
    many=True,
)
_CHEAP_LAST = Find(
    "cheap-products-of-last-order",
    (
        "all products of my last order in the shop that cost less than {limit} apiece",
        "everything in my newest order in the shop with a price below {limit} for one",
    ),
    _SHOW_LAST + 'found = [x for x in found if x["price"] < {limit}]',
    _cheap_last,
    many=True,
    keep="those whose `price` is below {limit}",
)
_DEAREST_LAST = Find(
    "dearest-product-of-last-order",
    (
        "the product of my last order in the shop with the highest price for one",
        "the product in my newest order in the shop that costs most apiece",
    ),
    _SHOW_LAST + 'found = [max(found, key=lambda x: x["price"])]',
    lambda w: ({}, [max(_last(w), key=lambda one: one["price"])]),
    keep="the one with the highest `price`",
)
_CANCEL = Act(
    "shop.cancel_order",
    (
        "Cancel {it}.",
        "I do not want {it} any more: cancel {them}.",
        "Nothing is shipped yet, so cancel {it}.",
        "Call off {it}.",
    ),
    "cancel {them}",
    key="order_id",
    name="cancel",
)
_AGAIN = Act(
    "shop.add_to_cart",
    (
        "Buy {it} once more: one piece each into the cart.",
        "Put one each of {it} into my cart again.",
        "I want to order {it} again, one of each. Put {them} into the cart.",
    ),
    "put one each of {them} into the cart",
    key="product_id",
    field="product_id",
    fixed=(("quantity", 1),),
    name="again",
)


DRILLS = [
    *drills([_NUMBERED], [(shop.ARRIVES, _CANCEL)]),
    *drills([_LARGE, _LATE, _DEAREST, _NOTED], [_CANCEL]),
    *drills([_LARGE_AND_SMALL], [(_CANCEL, replace(purchases.COUNT, rest=True))]),
    *drills([_LAST], [_AGAIN, wishes.UNWISH_LINE]),
    *drills([_CHEAP_LAST], [wishes.WISH_LINE]),
    *drills([_DEAREST_LAST], [replace(shop.REVIEW, field="product_id")]),
]
