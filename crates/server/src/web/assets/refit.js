// Shows times in the reader's zone, and keeps what is on the page current. Everything can be read without it.
"use strict";
(() => {
  const moment = { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit" };
  const zoned = new Intl.DateTimeFormat(undefined, moment);
  const dated = new Intl.DateTimeFormat(undefined, { year: "numeric", ...moment });
  const short = new Intl.DateTimeFormat(undefined, {
    month: "short", day: "numeric", hour: "2-digit", minute: "2-digit",
  });

  const localize = (root) => {
    for (const time of root.querySelectorAll("time[datetime]")) {
      const at = new Date(time.dateTime);
      if (Number.isNaN(at.getTime())) continue;
      const isThisYear = at.getFullYear() === new Date().getFullYear();
      time.textContent = (isThisYear ? zoned : dated).format(at);
    }
    for (const text of root.querySelectorAll("[data-time]")) {
      const at = new Date(text.dataset.time);
      if (!Number.isNaN(at.getTime())) text.textContent = short.format(at);
    }
  };

  // Where the reader is on the page: what has the focus, what is open, and how far it was scrolled.
  const remember = (part) => {
    const focus = part.contains(document.activeElement) ? document.activeElement : null;
    return {
      focus: focus && focus.id,
      isTyping: focus !== null && focus.matches("input, select, textarea"),
      open: [...part.querySelectorAll("details[open][id]")].map((details) => details.id),
      boxes: [...part.querySelectorAll(".scroll")].map((box) => [box.scrollLeft, box.scrollTop]),
      boxFocus: focus ? [...part.querySelectorAll(".scroll")].indexOf(focus) : -1,
    };
  };

  const restore = (part, was) => {
    for (const id of was.open) {
      const details = document.getElementById(id);
      if (details) details.open = true;
    }
    const boxes = [...part.querySelectorAll(".scroll")];
    boxes.forEach((box, n) => {
      if (was.boxes[n]) [box.scrollLeft, box.scrollTop] = was.boxes[n];
    });
    const focus = (was.focus && document.getElementById(was.focus)) || boxes[was.boxFocus];
    if (focus && focus !== document.activeElement) focus.focus({ preventScroll: true });
  };

  // What the server sent last for a part: compared with that, and not with what became of it here.
  const sent = new Map();

  // False if the reader is typing there: then it has to wait.
  const swap = (part, fresh) => {
    const html = fresh.innerHTML;
    if (sent.get(part.id) === html) return true;
    const was = remember(part);
    if (was.isTyping) return false;
    sent.set(part.id, html);
    for (const { name, value } of fresh.attributes) part.setAttribute(name, value);
    part.replaceChildren(...fresh.childNodes);
    localize(part);
    restore(part, was);
    return true;
  };

  let marks = null;
  // What is out of date, and what of that waits until nobody types there.
  let wanted = new Set();
  const postponed = new Set();
  let isFetching = false;
  // After a failure it is asked again by itself, less and less often.
  let failures = 0;
  let again = null;

  const parts = () => [...document.querySelectorAll("main [data-live][id]")];

  const show = async (names) => {
    const answer = await fetch(location.pathname + location.search, {
      headers: { "x-refit-fragment": "1" }, credentials: "same-origin", redirect: "error",
    });
    if (answer.status === 401) {
      say("off", "signed out");
      source?.close();
      return;
    }
    if (!answer.ok) throw new Error(answer.statusText);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of parts()) {
      const fresh = page.getElementById(part.id);
      const concerned = part.dataset.live.split(" ").filter((name) => names.has(name));
      if (fresh && concerned.length > 0 && !swap(part, fresh)) {
        concerned.forEach((name) => postponed.add(name));
      }
    }
  };

  const refresh = async () => {
    if (isFetching || wanted.size === 0 || document.hidden) return;
    isFetching = true;
    clearTimeout(again);
    const names = wanted;
    wanted = new Set();
    try {
      await show(names);
      failures = 0;
    } catch {
      names.forEach((name) => wanted.add(name));
      failures += 1;
    } finally {
      isFetching = false;
    }
    const pause = failures === 0 ? 0 : Math.min(2000 * 2 ** failures, 60000) * (0.5 + Math.random() / 2);
    // More may have changed in the meantime.
    if (wanted.size > 0) again = setTimeout(refresh, pause);
  };

  const catchUp = () => {
    postponed.forEach((name) => wanted.add(name));
    postponed.clear();
    refresh();
  };

  const say = (state, word) => {
    const place = document.getElementById("connection");
    if (!place) return;
    place.hidden = false;
    place.dataset.state = state;
    const text = place.querySelector(".word");
    if (text.textContent !== word) text.textContent = word;
  };

  let source = null;

  const listen = () => {
    source = new EventSource(document.body.dataset.live);
    source.addEventListener("hello", (event) => {
      say("on", "live");
      // Something may have been missed since the page was made, or while nobody was heard.
      if (marks !== null) wanted = new Set(["rollout", "fleet", "audit"]);
      marks = JSON.parse(event.data);
      refresh();
    });
    source.addEventListener("changed", (event) => {
      const told = JSON.parse(event.data);
      for (const name of Object.keys(told)) {
        if (marks === null || told[name] !== marks[name]) wanted.add(name);
      }
      marks = told;
      refresh();
    });
    source.addEventListener("error", () => {
      say("off", "not connected");
      // A browser gives up when it is refused: ask again, less often.
      if (source.readyState === EventSource.CLOSED) setTimeout(listen, 10000);
    });
  };

  localize(document);
  if (document.body.dataset.live && parts().length > 0) {
    say("off", "connecting");
    listen();
    document.addEventListener("visibilitychange", refresh);
    document.addEventListener("focusout", () => setTimeout(catchUp, 0));
  }
})();
