// Keeps a page up to date. Everything can be read without this: it only asks for the page again when the server says that
// something has changed, and puts the parts marked data-live in place of the old ones.
"use strict";

const QUIET = 700; // milliseconds between two refreshes at least
let due = 0;
let busy = false;

function isTouched(part) {
  const at = document.activeElement;
  return at && at !== document.body && part.contains(at) && at.matches("input, select, textarea");
}

function replace(part, fresh) {
  if (part.innerHTML === fresh.innerHTML || isTouched(part)) return;
  const open = [...part.querySelectorAll("details")].map((d) => d.open);
  const sides = [...part.querySelectorAll(".scroll")].map((s) => s.scrollLeft);
  const focus = document.activeElement && part.contains(document.activeElement) ? document.activeElement.id : "";
  part.innerHTML = fresh.innerHTML;
  part.querySelectorAll("details").forEach((d, i) => { d.open = open[i] ?? d.open; });
  part.querySelectorAll(".scroll").forEach((s, i) => { s.scrollLeft = sides[i] ?? 0; });
  if (focus) document.getElementById(focus)?.focus();
}

async function refresh() {
  if (busy || document.hidden) return;
  busy = true;
  try {
    const answer = await fetch(location.href, { headers: { "x-live": "1" } });
    if (answer.redirected || !answer.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of document.querySelectorAll("[data-live]")) {
      const fresh = page.getElementById(part.id);
      if (fresh) replace(part, fresh);
    }
  } catch {
    document.body.classList.remove("live");
  } finally {
    busy = false;
  }
}

function ask() {
  if (due) return;
  due = setTimeout(() => { due = 0; refresh(); }, QUIET);
}

function listen() {
  const said = document.querySelector(".pulse");
  const events = new EventSource("/events");
  const show = (live) => {
    document.body.classList.toggle("live", live);
    if (said) { said.hidden = false; said.textContent = live ? "live" : "not live"; }
  };
  events.addEventListener("hello", () => { show(true); ask(); });
  events.addEventListener("change", ask);
  events.onerror = () => show(false);
  addEventListener("beforeunload", () => events.close());
  document.addEventListener("visibilitychange", () => { if (!document.hidden) ask(); });
}

// Filters act while somebody types.
for (const form of document.querySelectorAll("form.filter")) {
  let wait = 0;
  form.addEventListener("input", () => {
    clearTimeout(wait);
    wait = setTimeout(() => {
      history.replaceState(null, "", `?${new URLSearchParams(new FormData(form))}`);
      refresh();
    }, 250);
  });
}

// Parts of the page are put anew, so the document listens, and not each form.
document.addEventListener("submit", (event) => {
  const form = event.target.closest("form[data-ask]");
  if (form && !confirm(form.dataset.ask)) event.preventDefault();
});

// On a phone the names of pages are wider than the screen: the present one is brought into sight.
const nav = document.querySelector(".top nav");
const present = nav?.querySelector("[aria-current]");
if (present) nav.scrollLeft = present.offsetLeft - (nav.clientWidth - present.offsetWidth) / 2;

if (document.querySelector("[data-live]")) listen();
