"""Drills around the wishlist of the shop and what people think of its products."""

from dataclasses import replace

from errands.drill import Act, Ask, Find, Rows, Slots, drills, limit, row
from errands.drills import contacts, purchases, shop
from errands.world import World

_AROUND = (
    "SELECT id FROM shop_products WHERE id IN (SELECT product FROM shop_cart WHERE owner = ?1) "
    "OR category IN (SELECT category FROM shop_products WHERE id = ?2)"
)


def _off(w: World, rows: Rows) -> Slots:
    """None of the products is on the wishlist, nor what is like them."""
    for one in rows:
        product = one.get("product_id", one["id"])
        w.run(f"DELETE FROM shop_wishlist WHERE owner = ?1 AND product IN ({_AROUND})", w.owner.id, product)
    return {}


def _on(w: World, rows: Rows) -> Slots:
    """All of the products are on the wishlist, and what is like them."""
    for one in rows:
        product, into = one.get("product_id", one["id"]), "INSERT OR IGNORE INTO shop_wishlist (owner, product)"
        w.run(f"{into} SELECT ?1, id FROM ({_AROUND})", w.owner.id, product)
    return {}


def _wishes(w: World) -> Rows:
    """A wishlist of products of which none is in the cart; something else is there."""
    for table in ("shop_wishlist", "shop_cart"):
        w.run(f"DELETE FROM {table} WHERE owner = ?", w.owner.id)
    products = [one["id"] for one in w.all("SELECT id FROM shop_products ORDER BY id")]
    ids = w.rng.sample(products, w.rng.randrange(5, 9))
    for id in ids:
        w.add("shop_wishlist", owner=w.owner.id, product=id)
    for id in w.rng.sample([one for one in products if one not in ids], 2):
        w.add("shop_cart", owner=w.owner.id, product=id, quantity=w.rng.randrange(1, 4))
    return [row(w, "shop_catalogue", id) for id in ids]


def _cheap_wishes(w: World) -> tuple[Slots, Rows]:
    wishes = _wishes(w)
    most = limit(w, [one["price"] for one in wishes])
    return {"limit": most}, [one | {"rest": one["price"] > most} for one in wishes]


def _in_both(w: World) -> tuple[Slots, Rows]:
    found = w.rng.sample(_wishes(w), 2)
    for one in found:
        w.add("shop_cart", owner=w.owner.id, product=one["id"], quantity=w.rng.randrange(1, 4))
    return {}, [one | {"product_id": one["id"]} for one in found]


def _review(w: World, product: int, stars: list[int]) -> Rows:
    """Reviews of a product by as many people, and no others; who wrote them."""
    w.run("DELETE FROM shop_reviews WHERE product = ?", product)
    people = w.rng.sample(w.others(), len(stars))
    for person, number in zip(people, stars, strict=True):
        w.add("shop_reviews", owner=person.id, product=product, stars=number, text=w.rng.choice(shop.TEXTS))
    told = [{"name": person.name, "email": person.email, "phone": person.phone} for person in people]
    return [one | {"stars": number} for one, number in zip(told, stars, strict=True)]


def _reviews(w: World) -> tuple[str, Rows]:
    """A product with reviews of which just one has the fewest stars; that one is not the first."""
    product = w.rng.choice(w.all("SELECT id, name FROM shop_products ORDER BY id"))
    more = [w.rng.randrange(2, 6) for _ in range(w.rng.randrange(1, 4))]
    return product["name"], _review(w, product["id"], [4, 2, 1, 5, 3, *more])


def _with_text(w: World, rows: Rows) -> Rows:
    texts = "SELECT text FROM shop_reviews JOIN people p ON p.id = owner WHERE email = ? ORDER BY shop_reviews.id DESC"
    return [one | {"text": w.value(texts, one["email"])} for one in rows]


def _by(w: World) -> tuple[Slots, Rows]:
    product, reviews = _reviews(w)
    found = w.rng.choice(reviews)
    return {"product": product, "who": found["name"]}, _with_text(w, [found])


def _worst(w: World) -> tuple[Slots, Rows]:
    product, reviews = _reviews(w)
    return {"product": product}, _with_text(w, [reviews[2]])


def _bad(w: World) -> tuple[Slots, Rows]:
    product, reviews = _reviews(w)
    most = w.rng.randrange(2, 6)
    return {"product": product, "limit": most}, [one for one in reviews if one["stars"] < most]


def _praised(w: World) -> tuple[Slots, Rows]:
    """Wishes of which some have a review by someone."""
    wishes, person = _wishes(w), w.rng.choice(w.others())
    w.run("DELETE FROM shop_reviews WHERE owner = ?", person.id)
    found = w.rng.sample(wishes, w.rng.randrange(1, 4))
    for one in found:
        text = {"stars": w.rng.randrange(3, 6), "text": w.rng.choice(shop.TEXTS)}
        w.add("shop_reviews", owner=person.id, product=one["id"], **text)
    return {"who": person.name}, found


_ALL_WISHES = "found = shop.list_wishlist(page_size=20)\n"
_WISHES = Find(
    "wishes",
    ("all products on my wishlist in the shop", "everything that is on my wishlist in the shop"),
    _ALL_WISHES + 'print([x["name"] for x in found])',
    lambda w: ({}, _wishes(w)),
    many=True,
)
_CHEAP_WISHES = Find(
    "cheap-wishes",
    (
        "all products on my wishlist that cost less than {limit}",
        "everything below {limit} on my wishlist in the shop",
    ),
    _ALL_WISHES + 'found = [x for x in found if x["price"] < {limit}]',
    _cheap_wishes,
    many=True,
    keep="those whose `price` is below {limit}",
)
_CHEAP_AND_DEAR = replace(
    _CHEAP_WISHES,
    name="cheap-and-dear-wishes",
    look='seen = shop.list_wishlist(page_size=20)\nfound = [x for x in seen if x["price"] < {limit}]\n'
    'rest = [x for x in seen if x["price"] >= {limit}]',
    rest="the other products on the wishlist",
)
_DEAREST_WISH = Find(
    "dearest-wish",
    ("the most expensive product on my wishlist in the shop", "the product on my wishlist with the highest price"),
    _ALL_WISHES + 'found = [max(found, key=lambda x: x["price"])]',
    lambda w: ({}, [max(_wishes(w), key=lambda one: one["price"])]),
    keep="the one with the highest `price`",
)
_IN_BOTH = Find(
    "wishes-in-cart",
    ("all products in my cart that are on my wishlist too", "everything that is both in my cart and on my wishlist"),
    'wishes = [x["id"] for x in shop.list_wishlist(page_size=20)]\nfound = shop.show_cart()["items"]\n'
    'found = [x for x in found if x["product_id"] in wishes]',
    _in_both,
    many=True,
    keep="those whose `product_id` is the `id` of a product on the wishlist",
)
_FIND_REVIEWS = (
    'product = shop.search(query="{product}")\nfound = shop.list_reviews(product_id=product[0]["id"], page_size=20)\n'
)
_BY = Find(
    "review-by",
    ("the review of the {product} by {who}", "the review that {who} wrote about the {product} in the shop"),
    _FIND_REVIEWS + 'found = [x for x in found if x["name"] == "{who}"]',
    _by,
)
_WORST = Find(
    "worst-review",
    ("the worst review of the {product} in the shop", "the review with the fewest stars that the {product} has"),
    _FIND_REVIEWS + 'found = [min(found, key=lambda x: x["stars"])]',
    _worst,
    keep="the one with the fewest `stars`",
)
_BAD = Find(
    "bad-reviews",
    (
        "all reviews of the {product} with fewer than {limit} stars",
        "those reviews in the shop that give the {product} less than {limit} stars",
    ),
    _FIND_REVIEWS + 'found = [x for x in found if x["stars"] < {limit}]\nprint(len(found))',
    _bad,
    many=True,
    keep="those whose `stars` are below {limit}",
)
_CRITICS = Find(
    "of-those-who-reviewed",
    (
        "everyone in my contacts who gave the {product} fewer than {limit} stars in the shop",
        "all contacts whose review of the {product} in the shop has less than {limit} stars",
    ),
    _FIND_REVIEWS.replace("found =", "reviews =")
    + 'names = [x["name"] for x in reviews if x["stars"] < {limit}]\npeople = contacts.search(page_size=20)\n'
    'found = [x for x in people if x["name"] in names]\nprint(names)',
    _bad,
    many=True,
    keep="those whose `name` is in a review with `stars` below {limit}",
)
_WORST_CRITIC = Find(
    "of-the-worst-critic",
    (
        "the person who wrote the worst review of the {product} in the shop",
        "whoever gave the {product} the fewest stars in the shop",
    ),
    _FIND_REVIEWS + 'found = [min(found, key=lambda x: x["stars"])]\nfound = contacts.search(query=found[0]["name"])',
    _worst,
    person=True,
    keep="the one with the fewest `stars` and look up its `name` in the contacts",
)
_PRAISED = Find(
    "reviewed-wishes",
    (
        "all products on my wishlist that {who} reviewed in the shop",
        "everything on my wishlist in the shop for which there is a review by {who}",
    ),
    _ALL_WISHES + "names = dict()\nfor x in found:\n"
    '    names[x["id"]] = [y["name"] for y in shop.list_reviews(product_id=x["id"], page_size=20)]\n'
    'found = [x for x in found if "{who}" in names[x["id"]]]\nprint([x["name"] for x in found])',
    _praised,
    many=True,
    keep="those that have {who} as the `name` of a review",
)


WISH = Act(
    "shop.add_to_wishlist",
    (
        "Put {it} on my wishlist.",
        "Add {it} to the wishlist in the shop.",
        "I would like to have {it} some day: put {them} on my wishlist.",
        "My wishlist should have {it}.",
    ),
    "put {them} on the wishlist",
    key="product_id",
    given=_off,
    name="wish",
)
_UNWISH = Act(
    "shop.remove_from_wishlist",
    (
        "Take {it} off my wishlist.",
        "Remove {it} from the wishlist in the shop.",
        "Take {it} off the wishlist; I have no use for {them}.",
        "My wishlist should be without {it}.",
    ),
    "take {them} off the wishlist",
    key="product_id",
    given=_on,
    name="unwish",
)
WISH_LINE, UNWISH_LINE = replace(WISH, field="product_id"), replace(_UNWISH, field="product_id")

_WORTH = Ask(
    "sum of price",
    (
        "What would it cost to buy {it}, one each?",
        "Add up the prices of {it} and tell me the sum.",
        "Tell me what I would pay for {it}, one each.",
    ),
    "add up the prices of {them}",
    name="worth",
)
_SAID = Ask(
    "text",
    ("What does {it} say?", "Tell me the text of {it}.", "I want to read {it}. What is the text?"),
    "tell the text of {them}",
)
_WHO = Ask(
    "name",
    ("Who wrote {it}?", "By whom is {it}? I want the name.", "Tell me who wrote {it}."),
    "say who wrote {them}",
    name="writer",
)

DRILLS = [
    *drills([shop.PRODUCT], [_UNWISH, (shop.PRICE, WISH)]),
    *drills([shop.CHEAPEST, purchases.IN_PRICE], [WISH]),
    *drills([purchases.SCARCEST, purchases.IN_PRICE], [_UNWISH]),
    *drills([purchases.CHEAP_LINES], [(WISH_LINE, purchases.TAKE_OUT), UNWISH_LINE]),
    *drills([purchases.CHEAP_AND_DEAR], [(purchases.TAKE_OUT, replace(WISH_LINE, rest=True))]),
    *drills([_WISHES], [_WORTH]),
    *drills([_CHEAP_WISHES, _PRAISED], [purchases.ONE_EACH]),
    *drills([_CHEAP_AND_DEAR], [(purchases.ONE_EACH, replace(purchases.COUNT, rest=True))]),
    *drills([_DEAREST_WISH], [(shop.NAME, shop.ADD)]),
    *drills([_IN_BOTH], [purchases.TAKE_OUT]),
    *drills([_BY], [_SAID]),
    *drills([_WORST], [_WHO]),
    *drills([_BAD], [purchases.COUNT]),
    *drills([_CRITICS], [contacts.TEXT]),
    *drills([_WORST_CRITIC], [contacts.MAIL]),
]
