"""Drills around what goes back to the shop."""

from dataclasses import replace

from errands.drill import Act, Ask, Find, Rows, Slots, drills, pick, row
from errands.drills import orders, purchases, shop, wishes
from errands.world import World

_REASONS = ("damaged", "wrong item", "not needed")


def _product(w: World) -> tuple[Slots, Rows]:
    slots, [found] = orders.item(w)
    return slots, [row(w, "shop_catalogue", found["product_id"])]


def _return(w: World, item: dict[str, object], reason: str, status: str, ago: float) -> dict[str, object]:
    w.add("shop_returns", owner=w.owner.id, item=item["id"], reason=reason, status=status, at=w.ago(hours=ago))
    return item | {"reason": reason, "status": status}


def _returns(w: World) -> Rows:
    """Returns of products of an order, newest first and newer than any other, in both states and for every reason."""
    items = orders.delivered(w)
    reasons = [*w.rng.sample(_REASONS, 3), *w.rng.choices(_REASONS, k=2)]
    found = []
    for place, item in enumerate(items):
        found.append(_return(w, item, reasons[place], ("open", "refunded")[place % 2], 20 - 2 * place))
    return found[::-1]


def _all_returns(w: World) -> Rows:
    _returns(w)
    found = "SELECT r.*, name FROM shop_returns r JOIN shop_items i ON i.id = item WHERE r.owner = ?"
    return w.all(found, w.owner.id)


def _returned_for(w: World) -> tuple[Slots, Rows]:
    returns = _all_returns(w)
    why = w.rng.choice(_REASONS)
    return {"why": why}, [one for one in returns if one["reason"] == why]


def _last_returned(w: World) -> tuple[Slots, Rows]:
    product = _returns(w)[0]["product_id"]
    for table in ("shop_reviews", "shop_cart"):
        w.run(f"DELETE FROM {table} WHERE owner = ? AND product = ?", w.owner.id, product)
    return {}, [row(w, "shop_catalogue", product)]


def _others(w: World) -> tuple[Slots, Rows]:
    items = orders.delivered(w)
    _return(w, items[0], w.rng.choice(_REASONS), "open", w.rng.randrange(1, 20))
    kept = "SELECT * FROM shop_items WHERE order_id = ? AND id NOT IN (SELECT item FROM shop_returns)"
    return {}, w.all(kept, items[0]["order_id"])


_PRODUCT = Find(
    "ordered-product",
    (
        "the {product} of my order {order_id} in the shop",
        "the {product} that I bought in the shop with order {order_id}",
    ),
    'found = shop.search(query="{product}")',
    _product,
)
_LAST_RETURN = Find(
    "last-return",
    ("my last return in the shop", "the newest return that I started in the shop"),
    "found = shop.list_returns(page_size=1)",
    lambda w: ({}, _returns(w)),
)
_ALL_RETURNS = "found = shop.list_returns(page_size=20)\n"
_RETURNED_FOR = Find(
    "returns-for-reason",
    ("all my returns in the shop with the reason '{why}'", "those of my returns in the shop whose reason is '{why}'"),
    _ALL_RETURNS + 'found = [x for x in found if x["reason"] == "{why}"]',
    _returned_for,
    many=True,
    keep="those whose `reason` is '{why}'",
)
_LAST_RETURNED = Find(
    "product-returned-last",
    ("the product that I returned last in the shop", "the product of my newest return in the shop"),
    'found = shop.list_returns(page_size=1)\nfound = shop.search(query=found[0]["name"])',
    _last_returned,
)
_OTHERS = Find(
    "others-of-returned-order",
    (
        "all the other products of the order that my newest return in the shop is of",
        "everything else that came with the product of my newest return in the shop",
    ),
    'last = shop.list_returns(page_size=1)[0]\nfound = shop.show_order(order_id=last["order_id"])["items"]\n'
    'found = [x for x in found if x["name"] != last["name"]]\n'
    'found = [dict(x, order_id=last["order_id"]) for x in found]',
    _others,
    many=True,
    keep="those whose `name` is not that of the return",
)

_RETURN = Act(
    "shop.start_return",
    (
        "Return {it}. The reason is '{reason}'.",
        "Send {it} back, with the reason '{reason}'.",
        "{it} should go back to the shop: start a return with the reason '{reason}'.",
        "Start a return of {it}, reason '{reason}'.",
    ),
    "return {them} for the reason '{reason}'",
    key="product_id",
    field="product_id",
    given=pick(reason=_REASONS),
    name="return",
)
_WHAT = Ask(
    "name",
    (
        "Which product is {it} about?",
        "Tell me the name of the product in {it}.",
        "What product did I send back by {it}?",
    ),
    "say which product {them} is about",
    name="product",
)
DRILLS = [
    *drills([orders.ITEM, orders.MOST, orders.DEAR_ITEMS], [_RETURN]),
    *drills([_PRODUCT], [replace(_RETURN, field="id")]),
    *drills([orders.DEAR_AND_CHEAP], [(_RETURN, replace(wishes.WISH_LINE, rest=True))]),
    *drills([_OTHERS], [replace(_RETURN, also=(("order_id", "order_id"),))]),
    *drills([_LAST_RETURN], [_WHAT]),
    *drills([_RETURNED_FOR], [purchases.COUNT]),
    *drills([_LAST_RETURNED], [wishes.WISH, (shop.PRICE, shop.ADD)]),
]
