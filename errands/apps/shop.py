"""Shop: a catalogue with reviews, and everyone's cart, wishlist, vouchers, orders and returns."""

from typing import Any, Literal, get_args

from typing_extensions import TypedDict

from errands.api import App, Count, Id, Line, Listing, Money, Numbered, Problem, Query, Success, cents
from errands.apps.owner import debit_card, home_address
from errands.words import read
from errands.world import World

app = App("shop", "Shopping: products and reviews, the cart, the wishlist, vouchers, orders and returns.")

NO_PRODUCT = Problem(404, "There is no product {id}.")
NO_STOCK = Problem(409, "Only {stock} of product {id} are in stock.")
NOT_THERE = Problem(404, "Product {id} is not there.")
ALREADY = Problem(409, "You have already done this with product {id}.")
NO_SUCH = Problem(404, "There is no {what} {id}.")
WRONG_STATUS = Problem(409, "The order is {status}.")
EMPTY = Problem(409, "The cart is empty.")
EXPIRED = Problem(409, "The {what} has expired or is used up.")

Category = Literal["kitchen", "office", "sport", "home"]
Reason = Literal["damaged", "wrong item", "not needed"]
State = Literal["placed", "shipped", "delivered", "cancelled"]


class Brief(Numbered):
    name: str
    price: Money
    rating: float | None
    stock: int


class Product(Brief):
    category: str
    delivery_days: int


class Review(TypedDict):
    name: str
    stars: int
    text: str


class Item(TypedDict):
    product_id: int
    name: str
    price: Money
    quantity: int


class Cart(TypedDict):
    items: list[Item]
    voucher: str | None
    total: float


class Voucher(TypedDict):
    code: str
    percent: int
    expires: str
    status: str


class Order(Numbered):
    at: str
    status: str
    arrives: str
    total: Money


class FullOrder(Order):
    items: list[Item]


class Return(TypedDict):
    order_id: int
    name: str
    reason: str
    status: str


@app.api()
def search(
    w: World,
    me: int,
    query: Query = "",
    category: Category | None = None,
    min_price: Money | None = None,
    max_price: Money | None = None,
    sort: Literal["name", "price", "rating"] = "name",
) -> Listing[Brief]:
    """Products whose name contains the query, sorted by name, by price (cheapest first) or by rating (best first)."""
    order = {"name": "name", "price": "price_cents", "rating": "rating DESC"}[sort]
    source = (
        "FROM shop_catalogue WHERE holds(name, ?1) AND (?2 IS NULL OR category = ?2) "
        f"AND price_cents BETWEEN ?3 AND ?4 ORDER BY {order}, id"
    )
    prices = (cents(min_price or 0), cents(max_price or 100_000))
    return Listing(source, query, category, *prices)


@app.api(NO_PRODUCT)
def show_product(w: World, me: int, product_id: Id) -> Product:
    """Show a product, with its category and the number of days that delivery takes."""
    _stock(w, product_id)
    return w.rows(Product, "FROM shop_catalogue WHERE id = ?", product_id)[0]


@app.api(NO_PRODUCT)
def list_reviews(w: World, me: int, product_id: Id) -> Listing[Review]:
    """The reviews of a product."""
    _stock(w, product_id)
    return Listing("FROM shop_reviewed WHERE product = ? ORDER BY id", product_id)


@app.api(NO_PRODUCT, ALREADY, says="Review written.")
def write_review(w: World, me: int, product_id: Id, stars: Literal[1, 2, 3, 4, 5], text: Line) -> None:
    """Review a product. You can review each product once."""
    _put_once(w, "shop_reviews", me, product_id, stars=stars, text=text)


@app.api(NOT_THERE, says="Review deleted.")
def delete_review(w: World, me: int, product_id: Id) -> None:
    """Delete your review of a product."""
    _take(w, "shop_reviews", me, product_id)


@app.api()
def show_cart(w: World, me: int) -> Cart:
    """The items in your cart, the voucher applied to it, and the total."""
    lines = w.rows(Item, "FROM shop_cart_lines WHERE owner = ? ORDER BY id", me)
    voucher = w.value("SELECT code FROM shop_vouchers WHERE owner = ? AND status = 'applied'", me)
    return {"items": lines, "voucher": voucher, "total": _total(w, me)[1] / 100}


@app.api(NO_PRODUCT, NO_STOCK, says="Added to the cart.")
def add_to_cart(w: World, me: int, product_id: Id, quantity: Count = 1) -> None:
    """Add a product to your cart. If it is already there, its quantity goes up."""
    _stock(w, product_id)
    w.run("INSERT OR IGNORE INTO shop_cart (owner, product, quantity) VALUES (?, ?, 0)", me, product_id)
    _change(w, me, product_id, "quantity + ?", quantity)


@app.api(NOT_THERE, NO_STOCK, says="Quantity changed.")
def change_quantity(w: World, me: int, product_id: Id, quantity: Count) -> None:
    """Set the quantity of a product in your cart."""
    _change(w, me, product_id, "?", quantity)


@app.api(NOT_THERE, says="Removed from the cart.")
def remove_from_cart(w: World, me: int, product_id: Id) -> None:
    """Remove a product from your cart."""
    _take(w, "shop_cart", me, product_id)


@app.api(says="The cart is empty.")
def clear_cart(w: World, me: int) -> None:
    """Remove everything from your cart."""
    w.remove("shop_cart", owner=me)


@app.api()
def list_wishlist(w: World, me: int) -> Listing[Brief]:
    """The products on your wishlist."""
    source = "FROM shop_catalogue WHERE id IN (SELECT product FROM shop_wishlist WHERE owner = ?) ORDER BY id"
    return Listing(source, me)


@app.api(NO_PRODUCT, ALREADY, says="Added to the wishlist.")
def add_to_wishlist(w: World, me: int, product_id: Id) -> None:
    """Add a product to your wishlist."""
    _put_once(w, "shop_wishlist", me, product_id)


@app.api(NOT_THERE, says="Removed from the wishlist.")
def remove_from_wishlist(w: World, me: int, product_id: Id) -> None:
    """Remove a product from your wishlist."""
    _take(w, "shop_wishlist", me, product_id)


@app.api()
def list_vouchers(w: World, me: int) -> list[Voucher]:
    """Your vouchers: free, applied to the cart, or used."""
    return w.rows(Voucher, "FROM shop_vouchers WHERE owner = ? ORDER BY id", me)


@app.api(NO_SUCH, EXPIRED)
def apply_voucher(w: World, me: int, code: Line) -> Success:
    """Apply a voucher to your cart. It replaces the voucher that is applied."""
    sql = "SELECT * FROM shop_vouchers WHERE owner = ? AND code = ?"
    found = NO_SUCH.unless(w.one(sql, me, code), what="voucher", id=code)
    EXPIRED.when(found["status"] == "used" or found["expires"] < w.today, what="voucher")
    w.run("UPDATE shop_vouchers SET status = 'free' WHERE owner = ? AND status = 'applied'", me)
    w.change("shop_vouchers", found["id"], status="applied")
    return {"message": f"{found['percent']} percent off."}


@app.api(EMPTY, NO_SUCH, EXPIRED, NO_STOCK)
def place_order(w: World, me: int, address_id: Id, card_id: Id) -> Order:
    """Order everything in your cart, to one of your addresses and with one of your cards (see the app owner)."""
    lines = EMPTY.unless(w.all("SELECT * FROM shop_cart_lines WHERE owner = ? ORDER BY id", me))
    address = w.value("SELECT id FROM addresses WHERE id = ? AND person = ?", address_id, me)
    expires = w.value("SELECT expires FROM cards WHERE id = ? AND person = ?", card_id, me)
    NO_SUCH.unless(address, what="address", id=address_id)
    EXPIRED.when(NO_SUCH.unless(expires, what="card", id=card_id) < w.today[:7], what="card")
    percent, total = _total(w, me)
    bill = {"percent_off": percent, "total_cents": total, "address_id": address_id, "card_id": card_id}
    arrives = w.day(max(line["delivery_days"] for line in lines))
    order = w.add("shop_orders", owner=me, **bill, at=w.moment, arrives=arrives, status="placed")
    for line in lines:
        NO_STOCK.when(line["quantity"] > line["stock"], stock=line["stock"], id=line["product"])
        w.add("shop_order_items", order_id=order, **{key: line[key] for key in ("product", "quantity", "price_cents")})
        w.run("UPDATE shop_products SET stock = stock - ? WHERE id = ?", line["quantity"], line["product"])
    w.remove("shop_cart", owner=me)
    w.run("UPDATE shop_vouchers SET status = 'used' WHERE owner = ? AND status = 'applied'", me)
    return w.rows(Order, "FROM shop_orders WHERE id = ?", order)[0]


@app.api()
def list_orders(w: World, me: int, status: State | None = None) -> Listing[Order]:
    """Your orders, newest first."""
    source = "FROM shop_orders WHERE owner = ?1 AND (?2 IS NULL OR status = ?2) ORDER BY at DESC, id DESC"
    return Listing(source, me, status)


@app.api(NO_SUCH)
def show_order(w: World, me: int, order_id: Id) -> FullOrder:
    """Show an order in full, with its items."""
    found = w.rows(Order, "FROM shop_orders WHERE id = ? AND owner = ?", order_id, me)
    order: Order = NO_SUCH.unless(found, what="order", id=order_id)[0]
    return {**order, "items": w.rows(Item, "FROM shop_items WHERE order_id = ? ORDER BY id", order_id)}


@app.api(NO_SUCH, WRONG_STATUS, says="Order cancelled.")
def cancel_order(w: World, me: int, order_id: Id) -> None:
    """Cancel an order that has not been shipped yet."""
    status = w.value("SELECT status FROM shop_orders WHERE id = ? AND owner = ?", order_id, me)
    WRONG_STATUS.when(NO_SUCH.unless(status, what="order", id=order_id) != "placed", status=status)
    w.change("shop_orders", order_id, status="cancelled")
    for item in w.all("SELECT product, quantity FROM shop_order_items WHERE order_id = ?", order_id):
        w.run("UPDATE shop_products SET stock = stock + ? WHERE id = ?", item["quantity"], item["product"])


@app.api(NOT_THERE, WRONG_STATUS, ALREADY, says="Return started.")
def start_return(w: World, me: int, order_id: Id, product_id: Id, reason: Reason) -> None:
    """Return a product from a delivered order."""
    sql = "SELECT id, status FROM shop_items WHERE order_id = ? AND product = ? AND owner = ?"
    item = NOT_THERE.unless(w.one(sql, order_id, product_id, me), id=product_id)
    WRONG_STATUS.when(item["status"] != "delivered", status=item["status"])
    sql = "INSERT OR IGNORE INTO shop_returns (owner, item, reason, at, status) VALUES (?, ?, ?, ?, 'open')"
    ALREADY.unless(w.run(sql, me, item["id"], reason, w.moment), id=product_id)


@app.api()
def list_returns(w: World, me: int) -> Listing[Return]:
    """Your returns, newest first."""
    return Listing("FROM shop_returned WHERE owner = ? ORDER BY at DESC, id DESC", me)


def _put_once(w: World, table: str, me: int, product: int, **more: Any) -> None:
    _stock(w, product)
    ALREADY.when(w.find_id(table, owner=me, product=product), id=product)
    w.add(table, owner=me, product=product, **more)


def _take(w: World, table: str, me: int, product: int) -> None:
    NOT_THERE.unless(w.remove(table, owner=me, product=product), id=product)


def _stock(w: World, product: int) -> int:
    return int(NO_PRODUCT.unless(w.one("SELECT stock FROM shop_products WHERE id = ?", product), id=product)["stock"])


def _change(w: World, me: int, product: int, quantity: str, *values: int) -> None:
    """Set the quantity of a product in the cart, to an expression."""
    sql = f"UPDATE shop_cart SET quantity = {quantity} WHERE owner = ? AND product = ?"
    NOT_THERE.unless(w.run(sql, *values, me, product), id=product)
    if w.value("SELECT quantity > stock FROM shop_cart_lines WHERE owner = ? AND product = ?", me, product):
        raise NO_STOCK(stock=_stock(w, product), id=product)


def _total(w: World, me: int) -> tuple[int, int]:
    """The percent off and the total in cents of a cart."""
    full = w.value("SELECT sum(quantity * price_cents) FROM shop_cart_lines WHERE owner = ?", me) or 0
    percent = w.value("SELECT percent FROM shop_vouchers WHERE owner = ? AND status = 'applied'", me) or 0
    return percent, full - full * percent // 100


_WORDS = read("world")["shop"]
_NAMES = [f"{thing} {model}" for thing in _WORDS["things"] for model in ("Basic", "Plus", "Pro")]
_VOUCHERS = ((-40, "used"), (-3, "free"), (30, "free"))


@app.filled_by
def fill(w: World) -> None:
    """No two products have the same price. Every second person buys something."""
    rng, ids, kinds = w.rng, range(1, len(_NAMES) + 1), get_args(Category)
    prices = rng.sample(range(499, 12_499, 50), len(ids))
    products = [
        (name, kinds[number // 9], prices[number], rng.randrange(5, 40), rng.randrange(1, 9))
        for number, name in enumerate(_NAMES)
    ]
    reviews, cart, wishlist, vouchers = list[Any](), list[Any](), list[Any](), list[Any]()
    orders, items, returns = list[Any](), list[Any](), list[Any]()
    for person in w.people[::2]:
        me, (few, some, many) = person.id, (3, 8, 16) if person is w.owner else (1, 1, 1)
        reviews += [(me, id, rng.choice((3, 4, 4, 5)), rng.choice(_WORDS["reviews"])) for id in rng.sample(ids, 7)]
        cart += [(me, id, rng.randrange(1, 4)) for id in rng.sample(ids, few)]
        wishlist += [(me, id) for id in rng.sample(ids, some)]
        for number, (days, status) in zip(rng.sample(range(100, 1000), few), _VOUCHERS[-few:], strict=True):
            vouchers.append((me, f"{person.first.upper()}{number}", rng.choice((5, 10, 15, 20)), w.day(days), status))
        for days in sorted(rng.sample(range(1, 150), many), reverse=True):
            status = rng.choice(("placed", "shipped") if days < 6 else ("delivered",) * 7 + ("cancelled",))
            bought = [(id, rng.randrange(1, 4), prices[id - 1]) for id in rng.sample(ids, 2)]
            total = sum(quantity * price for _, quantity, price in bought)
            ways = (home_address(me), debit_card(me))
            orders.append((me, *ways, total, w.ago(days, 9 * rng.random()), w.day(4 - days), status))
            for item in bought:
                items.append((len(orders), *item))
                if status == "delivered" and len(items) % 9 == 0:
                    returns.append((me, len(items), "damaged", w.ago(1), "open"))
    w.add_all("shop_products", "name, category, price_cents, stock, delivery_days", products)
    w.add_all("shop_reviews", "owner, product, stars, text", reviews)
    w.add_all("shop_cart", "owner, product, quantity", cart)
    w.add_all("shop_wishlist", "owner, product", wishlist)
    w.add_all("shop_vouchers", "owner, code, percent, expires, status", vouchers)
    w.add_all("shop_orders", "owner, address_id, card_id, total_cents, at, arrives, status", orders)
    w.add_all("shop_order_items", "order_id, product, quantity, price_cents", items)
    w.add_all("shop_returns", "owner, item, reason, at, status", returns)
