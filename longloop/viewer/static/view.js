"use strict";

// Arrow keys: to the attempt, group or step before and after; u: up; /: search.
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea")) return;
  const shown = document.querySelector("section:target") || document.querySelector("section.start") || document;
  const rel = { ArrowLeft: "prev", ArrowRight: "next", u: "up" }[event.key];
  const link = rel && shown.querySelector(`a[rel="${rel}"]`);
  const search = event.key === "/" && document.querySelector('input[type="search"]');
  if (link) link.click();
  if (search) search.focus();
  if (link || search) event.preventDefault();
});

// Charts: the numbers at the step under the pointer; a click opens the step.
const say = (value, share) => (share ? `${+(100 * value).toPrecision(3)}%` : `${+value.toPrecision(4)}`);

function point(event) {
  const chart = event.target.closest?.("svg.chart");
  document.querySelectorAll(".reading").forEach((old) => old.closest("figure") !== chart?.closest("figure") && old.remove());
  if (!chart) return;
  const data = JSON.parse(chart.dataset.chart);
  const box = chart.getBoundingClientRect();
  const inside = ((event.clientX - box.left) / box.width) * chart.viewBox.baseVal.width;
  const wanted = data.x[0] + ((inside - data.left) / (data.right - data.left)) * (data.x[1] - data.x[0]);
  const nearest = (points) => points.reduce((a, b) => (Math.abs(b[0] - wanted) < Math.abs(a[0] - wanted) ? b : a));
  const found = data.lines.filter((line) => line[2].length).map(([name, color, points]) => [name, color, ...nearest(points)]);
  if (!found.length) return;
  const step = found.map((one) => one[2]).reduce((a, b) => (Math.abs(b - wanted) < Math.abs(a - wanted) ? b : a));
  const figure = chart.closest("figure");
  let reading = figure.querySelector(".reading");
  if (!reading) figure.append((reading = Object.assign(document.createElement("div"), { className: "reading" })));
  reading.replaceChildren(`step ${step}`);
  for (const [name, color, at, value] of found.filter((one) => one[2] === step)) {
    const row = Object.assign(document.createElement("span"), { className: `c${color % 8}` });
    row.textContent = `${found.length > 1 ? name + " " : ""}${say(value, data.share)}`;
    reading.append(row);
  }
  chart.dataset.step = step;
}
addEventListener("pointermove", point);
addEventListener("click", (event) => {
  const chart = event.target.closest?.("svg.chart");
  const open = chart?.closest("[data-open]")?.dataset.open;
  if (open && chart.dataset.step > 0) location.href = `${open}/${chart.dataset.step}`;
});

// Put the page as it is now in place of the old one; what was unfolded, and where one types, stays. An answer that is no
// page, or that a later one has overtaken, changes nothing.
let asked = 0;
async function refresh() {
  const number = (asked += 1);
  const answer = await fetch(location.href);
  const updated = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
  if (!answer.ok || !updated || number !== asked) return;
  const main = document.querySelector("main");
  for (const old of main.querySelectorAll("details[id]")) {
    const same = updated.querySelector(`#${CSS.escape(old.id)}`);
    if (same) same.open = old.open;
  }
  const typed = document.activeElement?.closest("main form[data-auto] input");
  const again = typed && updated.querySelector(`form[data-auto] input[name="${typed.name}"]`);
  const caret = typed?.selectionStart;
  if (again) again.value = typed.value;
  const top = scrollY;
  main.replaceWith(updated);
  scrollTo(0, top);
  again?.focus();
  again?.setSelectionRange(caret, caret);
}

// Forms that filter and draw act at once. Their state is in the address, so it stays and can be sent to somebody.
document.documentElement.classList.add("scripts");
let soon;
function apply(form) {
  const asked = String(new URLSearchParams([...new FormData(form)].filter(([, value]) => value)));
  history.replaceState(null, "", location.pathname + (asked && `?${asked}`));
  clearTimeout(soon);
  soon = setTimeout(refresh, 200);
}
addEventListener("input", (event) => {
  const form = event.target.closest("form[data-auto]");
  if (!form) return;
  if (event.target.type !== "search") event.target.blur();
  apply(form);
});
addEventListener("submit", (event) => {
  const form = event.target.closest("form[data-auto], [data-tags] form");
  if (!form) return;
  event.preventDefault();
  if (form.dataset.auto !== undefined) apply(form);
  else tag(form, form.elements.tag.value, true);
});

// Tags of a run.
async function tag(element, name, on) {
  const tags = element.closest("[data-tags]");
  const headers = { "Content-Type": "application/json" };
  const answer = await fetch(tags.dataset.tags, { method: "POST", headers, body: JSON.stringify({ tag: name, on }) });
  if (answer.ok) await refresh();
  else tags.querySelector(".problem").textContent = await answer.text();
}
addEventListener("click", (event) => {
  const button = event.target.closest?.("[data-tags] button");
  if (button) tag(button, button.value, false);
});

// Following: ask whether the runs of this page have grown, and if so show them as they are now.
async function follow() {
  const main = document.querySelector("main");
  if (!main?.dataset.follow) return;
  const query = new URLSearchParams(main.dataset.watch.split("\n").filter(Boolean).map((name) => ["run", name]));
  const live = document.querySelector(".live");
  try {
    const version = await (await fetch(`/version?${query}`)).text();
    live.hidden = !/running/.test(version);
    const busy = document.activeElement?.closest("main input, main select") || main.querySelector('input[name="run"]:checked');
    if ((version !== main.dataset.version || main.dataset.unfinished) && !busy && !document.hidden) await refresh();
  } catch {
    live.hidden = true; // the server has gone; it may come back
  }
  setTimeout(follow, document.querySelector("main")?.dataset.unfinished ? 200 : 2000);
}
follow();
