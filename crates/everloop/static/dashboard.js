// Live updates, keys and kept state of a page. The pages work without it: it only loads the page
// again when the journal has grown, and takes over the parts that changed.
const bodySeq = () => document.body.dataset.seq || "0";
const say = (text) => {
  const line = document.getElementById("live");
  if (line && line.textContent !== text) line.textContent = text;
};

let source;
let last = bodySeq();
let timer;
let loading = false;
let again = false;

function open() {
  if (source || document.hidden) return;
  source = new EventSource(`/events?after=${last}`);
  source.onmessage = (event) => {
    last = event.lastEventId || last;
    soon();
  };
  source.addEventListener("reload", (event) => {
    last = event.lastEventId || last;
    soon();
  });
  source.onerror = () => {
    // The browser tries again by itself unless the answer was a refusal.
    if (source && source.readyState === EventSource.CLOSED) say("not connected: load the page again");
  };
}

function close() {
  if (source) source.close();
  source = undefined;
}

// Several records in a row are one update.
function soon() {
  clearTimeout(timer);
  timer = setTimeout(update, 250);
}

async function update() {
  if (loading) {
    again = true;
    return;
  }
  loading = true;
  try {
    const answer = await fetch(location.href, { credentials: "same-origin", cache: "no-store" });
    if (answer.status === 401) {
      close();
      say("you are logged out: everloop ui");
      return;
    }
    if (answer.ok) take(new DOMParser().parseFromString(await answer.text(), "text/html"));
  } catch {
    say("the supervisor does not answer");
  } finally {
    loading = false;
    if (again) {
      again = false;
      soon();
    }
  }
}

const isTyping = (part) => {
  const at = document.activeElement;
  return Boolean(at && part.contains(at) && at.matches("input:not([type=hidden]), textarea, select"));
};
const hasWords = (part) =>
  [...part.querySelectorAll("input:not([type=hidden]), textarea")].some((field) => field.value !== field.defaultValue);

// Takes over each part that is new, unless a person types in it.
function take(fresh) {
  document.title = fresh.title;
  document.body.dataset.seq = fresh.body.dataset.seq;
  const known = new Map([...document.querySelectorAll("[data-live]")].map((part) => [part.id, part]));
  let previous;
  for (const part of fresh.querySelectorAll("[data-live]")) {
    const old = known.get(part.id);
    known.delete(part.id);
    if (!old) {
      const copy = document.importNode(part, true);
      if (previous && previous.parentNode) previous.after(copy);
      else if (part.closest("main")) document.getElementById("main").append(copy);
      else document.querySelector("header").append(copy);
      previous = copy;
      continue;
    }
    previous = old;
    if (isTyping(old) || hasWords(old)) continue;
    const copy = document.importNode(part, true);
    for (const details of old.querySelectorAll("details[open][id]")) {
      const same = copy.querySelector(`#${CSS.escape(details.id)}`);
      if (same) same.open = true;
    }
    if (copy.isEqualNode(old)) continue;
    const focus = document.activeElement;
    const back = old.contains(focus) ? focus.getAttribute("href") || focus.textContent : undefined;
    old.replaceWith(copy);
    previous = copy;
    if (back) refocus(copy, back);
  }
  // A part that is gone from the page, like troubles that are over.
  for (const part of known.values()) if (!isTyping(part)) part.remove();
  const waiting = fresh.querySelector(".views .count");
  const count = document.querySelector(".views .count");
  const inbox = document.querySelector('.views a[href="/inbox"]');
  if (count) count.remove();
  if (waiting && inbox) inbox.insertBefore(document.importNode(waiting, true), inbox.querySelector("kbd"));
  const word = fresh.querySelector(".word");
  if (word) say(`${word.textContent}${waiting ? `, ${waiting.textContent} waiting for you` : ""}`);
}

function refocus(part, back) {
  const all = part.querySelectorAll("a, button, summary");
  const same = [...all].find((one) => one.getAttribute("href") === back || one.textContent === back);
  if (same) same.focus({ preventScroll: true });
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) close();
  else {
    open();
    soon();
  }
});
addEventListener("pagehide", close);
addEventListener("pageshow", open);

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  const typing = event.target.matches("input, textarea, select");
  if (event.key === "Escape" && typing) event.target.blur();
  if (typing) return;
  if (event.key === "/") {
    const field = document.querySelector("main input:not([type=hidden]), main textarea");
    if (!field) return;
    const folded = field.closest("details:not([open])");
    if (folded) folded.open = true;
    field.focus();
    event.preventDefault();
  } else if (event.key === "?") {
    document.querySelector("footer").scrollIntoView();
    say("letters open views, j and k move, / goes to the first field");
  } else if (event.key === "j" || event.key === "k") {
    const all = [...document.querySelectorAll("main a, main button, main summary")].filter((one) => one.offsetParent);
    const at = all.indexOf(document.activeElement);
    const next = event.key === "j" ? at + 1 : at < 0 ? all.length - 1 : at - 1;
    if (all[next]) all[next].focus();
  } else {
    const view = [...document.querySelectorAll(".views a")].find((one) => one.dataset.key === event.key);
    if (view) view.click();
  }
});

open();
