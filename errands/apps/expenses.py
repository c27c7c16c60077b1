"""Shared expenses: groups of people, who paid what for whom, who owes whom, and repayments."""

from typing import Annotated, Any, Literal

from pydantic import Field
from typing_extensions import TypedDict

from errands.api import App, Day, Email, Id, Line, Listing, Money, New, Numbered, Problem, Query, Success, cents
from errands.words import read
from errands.world import NO_PERSON, World

app = App("expenses", "Shared expenses: groups of people, who paid for whom, balances, who owes whom, and repayments.")

NO_GROUP = Problem(404, "There is no group {id}.")
NO_EXPENSE = Problem(404, "There is no expense {id}.")
NOT_MEMBER = Problem(422, "{email} is not a member of the group.")
MEMBER_ALREADY = Problem(409, "{email} is already a member of the group.")
NOT_SETTLED = Problem(409, "Your balance in the group is {balance:.2f}; it must be 0 before you leave.")
WRONG_SUM = Problem(422, "The shares must be of different members and add up to the amount.")
NOT_YOURS = Problem(403, "You can only record payments that you made or received.")


class Share(TypedDict):
    email: Email
    amount: Money


Emails = Annotated[list[Email], Field(min_length=1, max_length=20)]


class Group(Numbered):
    name: str
    members: int
    your_balance: float


class Member(TypedDict):
    name: str
    email: str
    balance: float


class FullGroup(Numbered):
    name: str
    members: list[Member]


class Expense(Numbered):
    title: str
    amount: Money
    paid_by: str
    day: str
    group_id: int


class FullExpense(Expense):
    shares: list[Share]
    comments: list[str]


class Debt(TypedDict):
    debtor: str
    creditor: str
    amount: float


class Settlement(Numbered):
    paid_by: str
    paid_to: str
    amount: Money
    day: str


@app.api()
def list_groups(w: World, me: int) -> list[Group]:
    """The groups you are in. A negative balance means that you owe the group."""
    mine = "SELECT g.id, name FROM expenses_groups g JOIN expenses_members ON grp = g.id WHERE person = ? ORDER BY g.id"
    groups = [(g["id"], g["name"], _balances(w, g["id"])) for g in w.all(mine, me)]
    return [{"id": id, "name": name, "members": len(of), "your_balance": of[me] / 100} for id, name, of in groups]


@app.api(NO_GROUP)
def show_group(w: World, me: int, group_id: Id) -> FullGroup:
    """Show a group and its members. A balance is positive if the group owes the member, negative if the member owes."""
    _members(w, me, group_id)
    people = [(w.people[person - 1], balance / 100) for person, balance in _balances(w, group_id).items()]
    return {
        "id": group_id,
        "name": w.value("SELECT name FROM expenses_groups WHERE id = ?", group_id),
        "members": [{"name": person.name, "email": person.email, "balance": balance} for person, balance in people],
    }


@app.api(NO_PERSON)
def create_group(w: World, me: int, name: Line, emails: Emails) -> New[Literal["group_id"]]:
    """Create a group of you and the people with these e-mail addresses."""
    people = {me} | {w.person(email) for email in emails}
    group = w.add("expenses_groups", name=name)
    for person in sorted(people):
        w.add("expenses_members", grp=group, person=person)
    return {"group_id": group}


@app.api(NO_GROUP, NO_PERSON, MEMBER_ALREADY)
def add_member(w: World, me: int, group_id: Id, email: Email) -> Success:
    """Add someone to a group. They have no share in earlier expenses."""
    members, person = _members(w, me, group_id), w.person(email)
    MEMBER_ALREADY.when(person in members, email=email)
    w.add("expenses_members", grp=group_id, person=person)
    return {"message": f"{w.name_of(person)} is now a member."}


@app.api(NO_GROUP, NOT_SETTLED, says="You have left the group.")
def leave_group(w: World, me: int, group_id: Id) -> None:
    """Leave a group. Your balance in it must be 0."""
    _members(w, me, group_id)
    balance = _balances(w, group_id)[me]
    NOT_SETTLED.when(balance, balance=balance / 100)
    w.remove("expenses_members", grp=group_id, person=me)


@app.api(NO_GROUP)
def list_expenses(w: World, me: int, group_id: Id | None = None, query: Query = "") -> Listing[Expense]:
    """Expenses whose title contains the query, newest first: those of a group, or of all your groups."""
    if group_id is not None:
        _members(w, me, group_id)
    mine = "group_id IN (SELECT grp FROM expenses_members WHERE person = ?) AND group_id = coalesce(?, group_id)"
    source = f"FROM expenses_shown WHERE {mine} AND holds(title, ?) ORDER BY day DESC, id"
    return Listing(source, me, group_id, query)


@app.api(NO_EXPENSE)
def show_expense(w: World, me: int, expense_id: Id) -> FullExpense:
    """Show an expense with all shares and comments."""
    _item(w, me, expense_id)
    shares = "FROM expenses_shares s JOIN people p ON p.id = person WHERE item = ? ORDER BY person"
    comments = w.all("SELECT author, text FROM expenses_comments WHERE item = ? ORDER BY written, id", expense_id)
    return {
        **w.rows(Expense, "FROM expenses_shown WHERE id = ?", expense_id)[0],
        "shares": w.rows(Share, shares, expense_id),
        "comments": [f"{w.name_of(comment['author'])}: {comment['text']}" for comment in comments],
    }


@app.api(NO_GROUP, NOT_MEMBER, WRONG_SUM)
def add_expense(
    w: World,
    me: int,
    group_id: Id,
    title: Line,
    amount: Money,
    paid_by: Email | None = None,
    day: Day | None = None,
    between: Emails | None = None,
    shares: list[Share] | None = None,
) -> New[Literal["expense_id"]]:
    """Add an expense. It is paid by you and dated today unless you say otherwise, and split equally between all
    members, or between those with the e-mails in `between`, or as `shares` says."""
    members = _members(w, me, group_id)
    payer = me if paid_by is None else _member(w, members, paid_by)
    people = members if between is None else [_member(w, members, email) for email in between]
    parts = _split(cents(amount), people) if shares is None else _parts(w, members, cents(amount), shares)
    values = {"grp": group_id, "payer": payer, "title": title, "amount_cents": cents(amount), "day": day or w.today}
    item = w.add("expenses_items", **values)
    for person, part in parts.items():
        w.add("expenses_shares", item=item, person=person, amount_cents=part)
    return {"expense_id": item}


@app.api(NO_EXPENSE, NOT_MEMBER, says="Expense changed.")
def update_expense(
    w: World,
    me: int,
    expense_id: Id,
    title: Line | None = None,
    amount: Money | None = None,
    paid_by: Email | None = None,
    day: Day | None = None,
) -> None:
    """Change an expense. What you leave out stays as it is. A new amount is split equally between all who have a
    share."""
    item = _item(w, me, expense_id)
    payer = _member(w, _members(w, me, item["grp"]), paid_by) if paid_by else item["payer"]
    total = cents(amount) if amount else item["amount_cents"]
    if total != item["amount_cents"]:
        people = [row["person"] for row in w.all("SELECT person FROM expenses_shares WHERE item = ?", expense_id)]
        for person, part in _split(total, people).items():
            w.run("UPDATE expenses_shares SET amount_cents = ? WHERE item = ? AND person = ?", part, expense_id, person)
    w.change("expenses_items", expense_id, title=title, amount_cents=total, payer=payer, day=day)


@app.api(NO_EXPENSE, says="Expense deleted.")
def delete_expense(w: World, me: int, expense_id: Id) -> None:
    """Delete an expense with its shares and comments."""
    _item(w, me, expense_id)
    w.remove("expenses_items", id=expense_id)


@app.api(NO_EXPENSE, says="Comment added.")
def add_comment(w: World, me: int, expense_id: Id, text: Line) -> None:
    """Comment on an expense."""
    _item(w, me, expense_id)
    w.add("expenses_comments", item=expense_id, author=me, text=text, written=w.moment)


@app.api(NO_GROUP)
def list_debts(w: World, me: int, group_id: Id) -> list[Debt]:
    """Who should pay whom how much to settle all debts, by e-mail address."""
    _members(w, me, group_id)
    left = _balances(w, group_id)
    debts: list[Debt] = []
    while any(left.values()):
        debtor, creditor = min(left, key=lambda p: (left[p], p)), max(left, key=lambda p: (left[p], -p))
        paid = min(-left[debtor], left[creditor])
        left[debtor] += paid
        left[creditor] -= paid
        one, other = w.people[debtor - 1].email, w.people[creditor - 1].email
        debts.append({"debtor": one, "creditor": other, "amount": paid / 100})
    return debts


@app.api(NO_GROUP, NOT_MEMBER, NOT_YOURS, says="Recorded.")
def settle_up(w: World, me: int, group_id: Id, paid_by: Email, paid_to: Email, amount: Money) -> None:
    """Record that one member has paid another back. One of them must be you. No money is moved."""
    members = _members(w, me, group_id)
    payer, payee = _member(w, members, paid_by), _member(w, members, paid_to)
    NOT_YOURS.when((payer == me) == (payee == me))
    w.add("expenses_settlements", grp=group_id, payer=payer, payee=payee, amount_cents=cents(amount), day=w.today)


@app.api(NO_GROUP)
def list_settlements(w: World, me: int, group_id: Id) -> Listing[Settlement]:
    """The repayments in a group, newest first."""
    _members(w, me, group_id)
    return Listing("FROM expenses_settled WHERE grp = ? ORDER BY day DESC, id", group_id)


def _members(w: World, me: int, group: int) -> list[int]:
    """The members of a group that I am in."""
    rows = w.all("SELECT person FROM expenses_members WHERE grp = ? ORDER BY person", group)
    members = [row["person"] for row in rows]
    NO_GROUP.unless(me in members, id=group)
    return members


def _balances(w: World, group: int) -> dict[int, int]:
    """Everyone's balance in cents: that of members, and of those who left and owe or are owed again since."""
    sql = (
        "SELECT person, sum(cents) AS cents FROM expenses_moves WHERE grp = ?1 GROUP BY person HAVING sum(cents) <> 0"
        " OR person IN (SELECT person FROM expenses_members WHERE grp = ?1) ORDER BY person"
    )
    return {row["person"]: row["cents"] for row in w.all(sql, group)}


def _item(w: World, me: int, id: int) -> dict[str, Any]:
    mine = "grp IN (SELECT grp FROM expenses_members WHERE person = ?)"
    return NO_EXPENSE.unless(w.one(f"SELECT * FROM expenses_items WHERE id = ? AND {mine}", id, me), id=id)


def _member(w: World, members: list[int], email: str) -> int:
    person = w.person_with(email)
    if person not in members:
        raise NOT_MEMBER(email=email)
    return person


def _split(total: int, people: list[int]) -> dict[int, int]:
    """Equal parts in cents; the cents that are left over go to the first ones."""
    people = sorted(set(people))
    part, rest = divmod(total, len(people))
    return {person: part + (place < rest) for place, person in enumerate(people)}


def _parts(w: World, members: list[int], total: int, shares: list[Share]) -> dict[int, int]:
    parts = {_member(w, members, share["email"]): cents(share["amount"]) for share in shares}
    WRONG_SUM.when(len(parts) < len(shares) or sum(parts.values()) != total)
    return parts


_TITLES: dict[str, list[str]] = read("world")["expenses"]


@app.filled_by
def fill(w: World) -> None:
    """Four groups of the owner, and one of others, each with a history: expenses, a repayment, a comment."""
    me, rng = [w.owner], w.rng
    groups = [
        ("Flat", me + w.others("flatmates"), 12),
        ("Mountain trip", me + rng.sample(w.others("friends"), 2) + rng.sample(w.others("colleague"), 1), 7),
        ("Lunch club", me + rng.sample(w.others("colleagues"), 3), 7),
        ("Parents' anniversary", me + w.others("sister", "brother"), 3),
        ("Lunch club", w.others("friends"), 2),
    ]
    items: list[tuple[Any, ...]] = []
    rows: dict[str, list[tuple[Any, ...]]] = {"members": [], "shares": [], "settlements": [], "comments": []}
    for group, (name, people, count) in enumerate(groups, start=1):
        members = [person.id for person in people]
        rows["members"] += [(group, person) for person in members]
        for _ in range(count):
            amount, title = rng.randrange(500, 9000), rng.choice(_TITLES[name])
            items.append((group, rng.choice(members), title, amount, w.day(-rng.randrange(1, 120))))
            rows["shares"] += [(len(items), person, part) for person, part in _split(amount, members).items()]
        payer, payee = rng.sample(members, 2)
        rows["settlements"].append((group, payer, payee, rng.randrange(500, 2000), w.day(-rng.randrange(1, 60))))
        rows["comments"].append((len(items), payee, "Thanks for paying!", w.ago(days=rng.randrange(9))))
    w.add_all("expenses_groups", "name", [(name,) for name, _, _ in groups])
    w.add_all("expenses_members", "grp, person", rows["members"])
    w.add_all("expenses_items", "grp, payer, title, amount_cents, day", items)
    w.add_all("expenses_shares", "item, person, amount_cents", rows["shares"])
    w.add_all("expenses_settlements", "grp, payer, payee, amount_cents, day", rows["settlements"])
    w.add_all("expenses_comments", "item, author, text, written", rows["comments"])
