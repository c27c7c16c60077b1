"""Scenarios around the shop."""

from typing import Any

from errands.judge import Goal
from errands.people import CIRCLES
from errands.scenario import Scenario
from errands.scenarios.calendar import add_event
from errands.scenarios.mail import mail_from
from errands.world import World
from errands.written import apis, every, log_in, shown


def past_order(w: World, at: str, status: str, items: dict[int, int]) -> int:
    """Write an order into the owner's history (product -> quantity); its id."""
    me, prices = w.owner.id, {row["id"]: row["price_cents"] for row in w.all("SELECT * FROM shop_products")}
    address, card = address_of(w, "home"), valid_card(w)
    bill = {"address_id": address, "card_id": card, "total_cents": sum(prices[id] * items[id] for id in items)}
    arrives = w.day(3) if status == "placed" else at[:10]
    order = w.add("shop_orders", owner=me, **bill, at=at, arrives=arrives, status=status)
    for id, quantity in items.items():
        w.add("shop_order_items", order_id=order, product=id, quantity=quantity, price_cents=prices[id])
    return order


def address_of(w: World, label: str) -> int:
    """The id of the owner's address, home or work."""
    return int(w.value("SELECT id FROM addresses WHERE person = ? AND label = ?", w.owner.id, label))


def valid_card(w: World) -> int:
    """The id of the owner's card that has not expired."""
    return int(w.value("SELECT id FROM cards WHERE person = ? AND expires >= ?", w.owner.id, w.today[:7]))


def products(w: World, where: str = "1", *values: Any) -> list[dict[str, Any]]:
    """Products of the catalogue, with their ratings."""
    return w.all(f"SELECT * FROM shop_catalogue WHERE {where} ORDER BY id", *values)


def _some_items(w: World) -> dict[int, int]:
    return {row["id"]: w.rng.randrange(1, 4) for row in w.rng.sample(products(w), 2)}


class CostOfLastOrder(Scenario, split="train", difficulty=1):
    """Say what the last order cost."""

    def prepare(self, w: World) -> Goal:
        order = past_order(w, w.ago(hours=w.rng.randrange(2, 20)), "placed", _some_items(w))
        goal = Goal(w)
        goal.answer = w.value("SELECT total_cents FROM shop_orders WHERE id = ?", order) / 100
        return goal

    def solve(self) -> None:
        # The newest order comes first, so I list only one.
        orders = shown(apis.shop.list_orders(page_size=1))
        # I answer with its total.
        apis.owner.complete_task(answer=orders[0]["total"])


class PutIntoCart(Scenario, split="train", difficulty=1):
    """Put some of a product into the cart."""

    def prepare(self, w: World) -> Goal:
        free = products(w, "id NOT IN (SELECT product FROM shop_cart WHERE owner = ?)", w.owner.id)
        product, count = w.rng.choice(free), w.rng.randrange(2, 6)
        goal = Goal(w, product=product["name"], count=count)
        goal.do("shop.add_to_cart", product_id=product["id"], quantity=count)
        return goal

    def solve(self, product: str, count: int) -> None:
        # I search for {product}.
        found = shown(apis.shop.search(query=product))
        # Found. I put {count} of them in the cart.
        print(apis.shop.add_to_cart(product_id=found[0]["id"], quantity=count))
        # They are in the cart.


class OrderCheapestGoodOne(Scenario, split="train", difficulty=2):
    """Order the cheapest well-rated product of a category."""

    def prepare(self, w: World) -> Goal:
        w.run("DELETE FROM shop_cart WHERE owner = ?", w.owner.id)
        rating = w.rng.choice([least for least in (4, 4.3, 4.5) if products(w, "rating >= ?", least)])
        good = products(w, "rating >= ?", rating)
        category, place = w.rng.choice(good)["category"], w.rng.choice(("home", "work"))
        best = min((row for row in good if row["category"] == category), key=lambda row: row["price_cents"])
        goal = Goal(w, category=category, rating=rating, place=place)
        goal.do("shop.add_to_cart", product_id=best["id"])
        goal.do("shop.place_order", address_id=address_of(w, place), card_id=valid_card(w))
        return goal

    def solve(self, category: str, rating: float, place: str) -> None:
        # I list the category, cheapest first, and keep the well-rated products. Some have no rating.
        found = apis.shop.search(category=category, sort="price", page_size=20)
        good = [p for p in found if p["rating"] and p["rating"] >= rating]
        print(good[0])
        # I put the first one in the cart.
        print(apis.shop.add_to_cart(product_id=good[0]["id"]))
        # I need the address, and a card that has not expired.
        address = [a for a in apis.owner.list_addresses() if a["label"] == place][0]
        card = max(apis.owner.list_cards(), key=lambda c: c["expires"])
        print(address, card)
        # Now I place the order.
        print(apis.shop.place_order(address_id=address["id"], card_id=card["id"]))
        # The product is ordered.


class CancelLastOrder(Scenario, split="dev", difficulty=1):
    """Cancel the order that was placed last."""

    def prepare(self, w: World) -> Goal:
        order = past_order(w, w.ago(hours=w.rng.randrange(2, 20)), "placed", _some_items(w))
        goal = Goal(w)
        goal.do("shop.cancel_order", order_id=order)
        return goal

    def solve(self) -> None:
        # The newest order comes first, so I list only one.
        orders = shown(apis.shop.list_orders(page_size=1))
        # It has not shipped yet. I cancel it.
        print(apis.shop.cancel_order(order_id=orders[0]["id"]))
        # The order is cancelled.


class BestOfMailedWishes(Scenario, split="dev", difficulty=3):
    """Put the best rated of the products that a mail lists on the wishlist, and tell its writer."""

    def prepare(self, w: World) -> Goal:
        reviewed = products(w, "rating > 0")
        rated = {row["rating"]: row for row in w.rng.sample(reviewed, len(reviewed))}
        wishes = w.rng.sample(list(rated.values()), 3)
        best = max(wishes, key=lambda row: row["rating"])
        for row in wishes:
            w.run("DELETE FROM shop_wishlist WHERE owner = ? AND product = ?", w.owner.id, row["id"])
        person = w.rng.choice(w.others("family", "friends"))
        text = w.rng.choice(("I have an idea", "Thanks for the list", "I know what to get", "One wish is noted"))
        body = "\n".join(["I would like one of these:", *(f"- {row['name']}" for row in wishes)])
        mail_from(w, person, "Wishes", body, w.ago(w.rng.randrange(1, 9)))
        goal = Goal(w, name=person.name, text=text)
        goal.do("shop.add_to_wishlist", product_id=best["id"])
        goal.do("phone.send_message", number=person.phone, text=text)
        return goal

    def solve(self, name: str, text: str) -> None:
        # I search for the email.
        log_in("mail", "shop", "contacts", "phone")
        found = shown(apis.mail.search(query="wish", sender=name))
        # Found. Now I read it.
        body = shown(apis.mail.show(message_id=found[0]["id"])["body"])
        # I look up each product in the shop.
        names = [line[2:] for line in body.split("\n") if line.startswith("- ")]
        wishes = [apis.shop.search(query=n)[0] for n in names]
        print([(p["name"], p["rating"]) for p in wishes])
        # I put the best-rated one on the wishlist.
        best = max(wishes, key=lambda p: p["rating"])
        print(apis.shop.add_to_wishlist(product_id=best["id"]))
        # Now I text {name}.
        number = apis.contacts.search(query=name)[0]["phone"]
        print(apis.phone.send_message(number=number, text=text))
        # The product is on the wishlist and the text is sent.


class ReturnBrokenThing(Scenario, split="validation", difficulty=2):
    """Find the delivered order with a product, and return it."""

    def prepare(self, w: World) -> Goal:
        mine = "id NOT IN (SELECT product FROM shop_items WHERE owner = ?)"
        product = w.rng.choice(products(w, mine, w.owner.id))
        count, gone, came = w.rng.randrange(1, 4), w.rng.randrange(1, 70), w.rng.randrange(20, 70)
        past_order(w, w.ago(gone, hours=1), "cancelled", {product["id"]: count})
        order = past_order(w, w.ago(came, hours=2), "delivered", _some_items(w) | {product["id"]: count})
        goal = Goal(w, product=product["name"])
        goal.do("shop.start_return", order_id=order, product_id=product["id"], reason="damaged")
        return goal

    def solve(self, product: str) -> None:
        # I collect the delivered orders from all pages.
        listed = every(apis.shop.list_orders(status="delivered"))
        orders = shown([o["id"] for o in listed])
        # I look through their items for the {product}.
        found = []
        for id in orders:
            for item in apis.shop.show_order(order_id=id)["items"]:
                if item["name"] == product:
                    found.append((id, item["product_id"]))
        print(found)
        # Found. Now I return it.
        order, this_product = found[0]
        print(apis.shop.start_return(order_id=order, product_id=this_product, reason="damaged"))
        # The return is started.


class DropDearWishes(Scenario, split="validation", difficulty=2):
    """Take the dear things off the wishlist."""

    def prepare(self, w: World) -> Goal:
        wishes = products(w, "id IN (SELECT product FROM shop_wishlist WHERE owner = ?)", w.owner.id)
        prices = sorted(row["price_cents"] for row in wishes)
        # Prices end in 49 and 99, so none is a whole amount.
        limit = prices[w.rng.randrange(1, len(prices) - 3)] // 100 + 1
        goal = Goal(w, limit=limit)
        for row in wishes:
            if row["price_cents"] > 100 * limit:
                goal.do("shop.remove_from_wishlist", product_id=row["id"])
        return goal

    def solve(self, limit: int) -> None:
        # I collect the wishlist from all pages before I remove anything, because removing changes the pages.
        wishes = every(apis.shop.list_wishlist())
        dear = [p for p in wishes if p["price"] > limit]
        print([(p["name"], p["price"]) for p in dear])
        # I remove these products.
        for p in dear:
            print(apis.shop.remove_from_wishlist(product_id=p["id"]))
        # The expensive products are gone.


class SplitOrderWithGuests(Scenario, split="validation", difficulty=3):
    """Request their shares of an order from the guests who come to an event, and tell them."""

    def prepare(self, w: World) -> Goal:
        title = w.rng.choice(("Garden Party", "Housewarming", "Movie Night", "Quiz Evening", "Summer Party"))
        text = w.rng.choice(("I sent you a request", "Please pay your part", "Our costs are split"))
        guests = w.rng.sample(w.others(*CIRCLES), 7)
        start = f"{w.day(w.rng.randrange(3, 20))} 19:30"
        coming = w.rng.sample(guests, w.rng.randrange(2, 5))
        others = {guest: w.rng.choice(("open", "declined")) for guest in guests if guest not in coming}
        add_event(w, w.owner, title, start, dict.fromkeys(coming, "accepted") | others)
        product, parts = w.rng.choice(products(w)), len(coming) + 1
        past_order(w, w.ago(hours=w.rng.randrange(2, 20)), "placed", {product["id"]: parts})
        goal = Goal(w, title=title, text=text)
        for guest in coming:
            goal.do("wallet.request", email=guest.email, amount=product["price_cents"] / 100, note=title)
        goal.do("mail.send", to=[guest.email for guest in coming], subject=title, body=text)
        return goal

    def solve(self, title: str, text: str) -> None:
        # The newest order comes first. I need its total.
        log_in("shop", "calendar", "wallet", "mail")
        total = shown(apis.shop.list_orders(page_size=1)[0]["total"])
        # Now I look for the event.
        events = shown(apis.calendar.list_upcoming(query=title))
        # I collect the guests who have accepted, from all pages.
        listed = every(apis.calendar.list_guests(event_id=events[0]["id"]))
        coming = shown([g["email"] for g in listed if g["answer"] == "accepted"])
        # The owner pays one share too. I request a share from each guest.
        share = round(total / (len(coming) + 1), 2)
        for email in coming:
            print(apis.wallet.request(email=email, amount=share, note=title))
        # Now I email all of them.
        print(apis.mail.send(to=coming, subject=title, body=text))
        # All requests and the email are sent.
