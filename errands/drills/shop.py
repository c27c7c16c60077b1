"""Drills around the shop."""

from errands.drill import Act, Ask, Find, Rows, Slots, drills, row
from errands.scenarios.shop import past_order
from errands.world import World

TEXTS = ("Does what it should", "Too small for me", "A present that pleased", "Fine but loud", "Would buy again")


def _product(w: World) -> tuple[Slots, Rows]:
    """A product that is neither in the cart nor reviewed by the owner."""
    ids = [one["id"] for one in w.all("SELECT id FROM shop_catalogue WHERE rating IS NOT NULL ORDER BY id")]
    id = w.rng.choice(ids)
    for table in ("shop_cart", "shop_reviews"):
        w.run(f"DELETE FROM {table} WHERE owner = ? AND product = ?", w.owner.id, id)
    found = row(w, "shop_catalogue", id)
    return {"product": found["name"]}, [found]


def _in_cart(w: World) -> tuple[Slots, Rows]:
    slots, rows = _product(w)
    w.add("shop_cart", owner=w.owner.id, product=rows[0]["id"], quantity=1)
    return slots, rows


def _cheapest(w: World) -> tuple[Slots, Rows]:
    kind = w.rng.choice(("kitchen", "office", "sport", "home"))
    id = w.value("SELECT id FROM shop_products WHERE category = ? ORDER BY price_cents LIMIT 1", kind)
    w.run("DELETE FROM shop_cart WHERE owner = ? AND product = ?", w.owner.id, id)
    return {"kind": kind}, [row(w, "shop_catalogue", id)]


def _voucher(w: World) -> tuple[Slots, Rows]:
    """A voucher whose percentage no other has."""
    code, percent = f"GIFT{w.rng.randrange(1000, 9999)}", w.rng.choice((12, 18, 25, 30))
    more = {"expires": w.day(w.rng.randrange(5, 90)), "status": "free"}
    return {"percent": percent}, [
        row(w, "shop_vouchers", w.add("shop_vouchers", owner=w.owner.id, code=code, percent=percent, **more))
    ]


def _order(w: World) -> tuple[Slots, Rows]:
    products = [one["id"] for one in w.all("SELECT id FROM shop_products ORDER BY id")]
    items = {id: w.rng.randrange(1, 4) for id in w.rng.sample(products, 2)}
    order = past_order(w, w.ago(hours=w.rng.randrange(2, 20)), "placed", items)
    w.run("UPDATE shop_orders SET arrives = ? WHERE id = ?", w.day(w.rng.randrange(1, 9)), order)
    return {}, [row(w, "shop_orders", order)]


def _cart(w: World) -> tuple[Slots, Rows]:
    total = "SELECT sum(quantity * price_cents) / 100.0 FROM shop_cart_lines WHERE owner = ?"
    return {}, [{"total": w.value(total, w.owner.id)}]


def _reviewed(w: World, rows: Rows) -> Slots:
    w.add("shop_reviews", owner=w.owner.id, product=rows[0]["id"], stars=4, text=w.rng.choice(TEXTS))
    return {}


PRODUCT = Find(
    "product",
    ("the {product}", "the product {product} of the shop"),
    'found = shop.search(query="{product}")',
    _product,
)
_IN_CART = Find(
    "product-in-cart",
    ("the {product} in my cart", "the {product} that is in my shopping cart"),
    'found = shop.search(query="{product}")',
    _in_cart,
)
CHEAPEST = Find(
    "cheapest-product",
    ("the cheapest product of the category {kind} in the shop", "the shop's {kind} product with the lowest price"),
    'found = shop.search(category="{kind}", sort="price", page_size=1)',
    _cheapest,
)
_BEST = Find(
    "voucher",
    ("my voucher for {percent} percent", "the voucher in the shop that gives me {percent} percent off"),
    'found = shop.list_vouchers()\nfound = [x for x in found if x["percent"] == {percent}]',
    _voucher,
)
_ORDER = Find(
    "last-order",
    ("my last order in the shop", "the newest order that I made in the shop"),
    "found = shop.list_orders(page_size=1)",
    _order,
)
_CART = Find("", ("",), "", _cart)

REVIEW = Act(
    "shop.write_review",
    (
        "Review {it}: {stars} stars, '{text}'.",
        "Write in the shop about {it}: '{text}'. Give {stars} stars.",
        "I want to give {it} {stars} stars in the shop, with the text '{text}'.",
    ),
    "review {them} with {stars} stars and the text '{text}'",
    key="product_id",
    given=lambda w, rows: {"stars": w.rng.randrange(1, 6), "text": w.rng.choice(TEXTS)},
)
_UNREVIEW = Act(
    "shop.delete_review",
    (
        "Delete what I wrote about {it} in its reviews.",
        "Take my review of {it} back.",
        "I do not want my review of {it} in the shop any more.",
    ),
    "delete the review of {them}",
    key="product_id",
    given=_reviewed,
)
ADD = Act(
    "shop.add_to_cart",
    (
        "Put {quantity} of {it} into my cart.",
        "Add {it} to my shopping cart, {quantity} pieces.",
        "I want to buy {it}: {quantity} pieces into the cart, please.",
    ),
    "put {quantity} of {them} into the cart",
    key="product_id",
    given=lambda w, rows: {"quantity": w.rng.randrange(2, 5)},
)
_QUANTITY = Act(
    "shop.change_quantity",
    (
        "Set how many there are of {it} to {quantity}.",
        "I want exactly {quantity} of {it}. Change the quantity.",
        "Of {it} there should be {quantity}, not more and not less.",
    ),
    "change the quantity of {them} to {quantity}",
    key="product_id",
    given=lambda w, rows: {"quantity": w.rng.randrange(2, 5)},
)
_REMOVE = Act(
    "shop.remove_from_cart",
    ("Take out {it}.", "I do not want to buy {it} after all. Remove it.", "Remove {it}; the rest stays."),
    "remove {them}",
    key="product_id",
    name="remove",
)
_CLEAR = Act(
    "shop.clear_cart",
    (
        "Empty my cart in the shop.",
        "Take everything out of my shopping cart.",
        "I do not want to buy anything: clear the cart.",
    ),
    "empty the cart in the shop",
)
APPLY = Act(
    "shop.apply_voucher",
    ("Use {it} for my cart.", "Apply {it} to the cart.", "My cart should get cheaper by {it}. Apply it."),
    "apply {them} to the cart",
    key="code",
    field="code",
    name="apply",
)

PRICE = Ask(
    "price", ("What does {it} cost?", "Tell me the price of {it}.", "How much is {it}?"), "tell the price of {them}"
)
_STOCK = Ask(
    "stock",
    ("How many pieces of {it} are in stock?", "Tell me the stock of {it}.", "How many are left of {it} in the shop?"),
    "say how many of {them} are in stock",
)
_RATING = Ask(
    "rating",
    ("How is {it} rated?", "What rating does {it} have in the shop?", "Tell me the rating of {it}."),
    "tell the rating of {them}",
)
_DELIVERY = Ask(
    "delivery_days",
    (
        "How many days does the delivery of {it} take?",
        "If I ordered {it}, how many days would delivery take?",
        "Tell me the days of delivery for {it}.",
    ),
    "say how many days the delivery of {them} takes",
    show="shop.show_product",
    key="product_id",
)
NAME = Ask(
    "name",
    ("What is the name of {it}?", "Which is {it}? I want the name.", "Tell me the name of {it}."),
    "tell the name of {them}",
)
_CODE = Ask(
    "code",
    ("What is the code of {it}?", "Tell me the code of {it}.", "I need the code of {it}."),
    "tell the code of {them}",
)
_EXPIRES = Ask(
    "expires",
    (
        "When does {it} expire? Answer like 2026-01-31.",
        "Until when is {it} good? Write it like 2026-01-31.",
        "Tell me the day on which {it} expires, like 2026-01-31.",
    ),
    "say when {them} expires",
)
ARRIVES = Ask(
    "arrives",
    (
        "When does {it} arrive? Answer like 2026-01-31.",
        "On which day will {it} be here? Write it like 2026-01-31.",
        "Tell me the day on which {it} arrives, like 2026-01-31.",
    ),
    "say when {them} arrives",
)
_TOTAL = Ask(
    "total",
    (
        "What would I pay for my cart in the shop?",
        "How much is everything in my cart together?",
        "Tell me the total of my cart.",
    ),
    "tell the total of the cart",
    show="shop.show_cart",
    name="cart-total",
)

DRILLS = [
    *drills([PRODUCT], [REVIEW, _UNREVIEW, PRICE, _STOCK, _RATING, _DELIVERY]),
    *drills([_IN_CART], [_QUANTITY, _REMOVE]),
    *drills([CHEAPEST], [ADD, NAME, PRICE]),
    *drills([_BEST], [APPLY, _CODE, _EXPIRES]),
    *drills([_ORDER], [ARRIVES]),
    *drills([PRODUCT], [(ADD, REVIEW), (PRICE, ADD)]),
    *drills([_CART], [_TOTAL, (_TOTAL, _CLEAR)]),
]
